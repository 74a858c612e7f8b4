//! GROUP BY: plain expressions, ROLLUP, CUBE and GROUPING SETS.
//!
//! Each part stands for a list of sets of expressions, and a plain expression for one set of itself. The sets of the
//! clause are all ways to take one set of each part.

use lodestone_sql_types::{Error, Result, SqlState};
use sqlparser::ast as tree;

use super::Converter;
use super::ast::{Expr, GroupBy};

/// Most sets of one clause.
const SETS_MAX: usize = 4096;
/// Most parts of a CUBE: it has a set for each choice of them.
const CUBE_MAX: usize = 12;

impl Converter<'_> {
    /// # Errors
    /// 0A000 for GROUP BY ALL and the clauses of other systems; 54001 for too many sets; 54011.
    pub(super) fn group_by(&self, clause: tree::GroupByExpr) -> Result<GroupBy> {
        let list = match clause {
            tree::GroupByExpr::Expressions(list, modifiers) if modifiers.is_empty() => list,
            _ => return Err(Error::unsupported("this form of GROUP BY")),
        };
        let is_plain = |part: &tree::Expr| match part {
            tree::Expr::Rollup(_) | tree::Expr::Cube(_) | tree::Expr::GroupingSets(_) => false,
            tree::Expr::Tuple(parts) => !parts.is_empty(),
            _ => true,
        };
        if list.iter().all(is_plain) {
            let flat = list.into_iter().flat_map(|part| match part {
                tree::Expr::Tuple(parts) => parts,
                other => vec![other],
            });
            return Ok(GroupBy { keys: self.exprs(flat)?, sets: Vec::new() });
        }
        let mut found: Vec<Vec<Expr>> = vec![Vec::new()];
        for part in list {
            let choices = self.sets(part)?;
            if found.len().saturating_mul(choices.len()) > SETS_MAX {
                let message = format!("too many grouping sets present (maximum {SETS_MAX})");
                return Err(Error::new(SqlState::STATEMENT_TOO_COMPLEX, message));
            }
            let longer = |before: &Vec<Expr>| {
                let before = before.clone();
                choices.iter().map(move |choice| before.iter().chain(choice).cloned().collect())
            };
            found = found.iter().flat_map(longer).collect();
        }
        let mut keys: Vec<Expr> = Vec::new();
        let mut number = |expr: Expr| match keys.iter().position(|key| *key == expr) {
            Some(number) => number,
            None => {
                keys.push(expr);
                keys.len() - 1
            }
        };
        let sets = found.into_iter().map(|set| set.into_iter().map(&mut number).collect()).collect();
        Ok(GroupBy { keys, sets })
    }

    /// The sets that a part of the clause stands for, the one with the most expressions first.
    fn sets(&self, part: tree::Expr) -> Result<Vec<Vec<Expr>>> {
        let convert = |list: Vec<Vec<tree::Expr>>| -> Result<Vec<Vec<Expr>>> {
            list.into_iter().map(|part| self.exprs(part)).collect()
        };
        Ok(match part {
            tree::Expr::Rollup(list) => {
                let list = convert(list)?;
                (0..=list.len()).rev().map(|count| list[..count].concat()).collect()
            }
            tree::Expr::Cube(list) => {
                let list = convert(list)?;
                if list.len() > CUBE_MAX {
                    let message = format!("CUBE is limited to {CUBE_MAX} elements");
                    return Err(Error::new(SqlState::TOO_MANY_COLUMNS, message));
                }
                let chosen = |choice: usize| {
                    let parts = list.iter().enumerate().filter(|(number, _)| choice & (1 << number) != 0);
                    parts.flat_map(|(_, part)| part.iter().cloned()).collect()
                };
                (0..1_usize << list.len()).rev().map(chosen).collect()
            }
            tree::Expr::GroupingSets(list) => convert(list)?,
            tree::Expr::Tuple(list) => vec![self.exprs(list)?],
            other => vec![vec![self.expr(other)?]],
        })
    }
}
