//! Constants of a statement: they are computed before its first row.
//!
//! As `PostgreSQL`, which does so when it plans: `SELECT 1 / 0 FROM t` is an error also if `t` has no rows. Parts that
//! no row reaches are not computed: the branches of a CASE after a constant condition that is true, the rest of an AND
//! after a constant that is false. Columns of a query in FROM are left out, as `PostgreSQL` computes only those that
//! are used.

use lodestone_sql_types::{Datum, Type};

use super::eval::bool_or_null;
use super::{Env, Outcome, Run};
use crate::plan::{Action, Change, Expr, Node, Parts, Plan};

/// The knowledge of an expression without a row.
enum Known {
    /// Nothing.
    Nothing,
    /// It is a constant, which is not computed yet.
    Constant,
    /// Its value, whatever those of its parts are that depend on the row.
    Value(Datum),
}

/// The place of a node in a query.
#[derive(Clone, Copy, PartialEq)]
enum Level {
    /// Above its columns.
    Top,
    /// Between its columns and its tables.
    Below,
    /// In a query of FROM.
    Inner,
}

/// Whether a type has the same texts and values in every session.
fn is_plain(ty: Type) -> bool {
    ty.is_integer() || ty.is_text() || matches!(ty, Type::Float4 | Type::Float8 | Type::Numeric | Type::Bool)
}

/// Whether the value depends on the parts alone.
fn is_immutable(expr: &Expr) -> bool {
    match expr {
        Expr::Arithmetic(_, ty, ..) | Expr::Negate(ty, _) | Expr::Fit { ty, .. } => is_plain(*ty),
        Expr::Cast { from, to, .. } => is_plain(*from) && is_plain(*to),
        Expr::Call(function, _) => function.is_immutable(),
        Expr::Compare(..) | Expr::Concat(..) | Expr::Not(_) | Expr::IsNull(_) | Expr::IsTruth(..) => true,
        Expr::IsDistinct(..) | Expr::In(..) | Expr::Like { .. } | Expr::Regex { .. } | Expr::Extreme { .. } => true,
        _ => false,
    }
}

/// Whether it is null when a part is.
fn is_strict(expr: &Expr) -> bool {
    match expr {
        Expr::Compare(..) | Expr::Arithmetic(..) | Expr::Negate(..) | Expr::Cast { .. } | Expr::Fit { .. } => true,
        Expr::Like { .. } | Expr::Regex { .. } => true,
        Expr::Call(function, _) => function.is_strict,
        _ => false,
    }
}

/// Whether computing it can be an error, with parts that are constants.
fn may_fail(expr: &Expr) -> bool {
    match expr {
        Expr::Arithmetic(..) | Expr::Negate(..) | Expr::Fit { .. } | Expr::Call(..) | Expr::Like { .. } => true,
        Expr::Regex { .. } => true,
        Expr::Cast { from, to, .. } => !(from.is_integer() && to.is_integer() && from.len() <= to.len()),
        _ => false,
    }
}

/// Whether an action, or a change before it, has constants to compute.
pub fn has_constants(action: &Action, first: &[crate::plan::First]) -> bool {
    let mut found = false;
    let visited = each(action, first, &mut |expr| {
        found = found || has_constant(expr);
        Ok(())
    });
    found || visited.is_err()
}

/// Whether an expression has constants to compute.
pub fn has_constant(expr: &Expr) -> bool {
    let mut found = false;
    expr.walk(&mut |part| match part {
        Expr::Scalar(inner) | Expr::Exists(inner) | Expr::ArrayOf(inner) | Expr::InQuery(_, _, inner) => {
            let visited = node(inner, Level::Top, &mut |expr| {
                found = found || has_constant(expr);
                Ok(())
            });
            found |= visited.is_err();
        }
        part if !found && may_fail(part) && is_immutable(part) => {
            let mut is_constant = true;
            part.walk(&mut |part| is_constant &= !matches!(part, Expr::Column { .. }) && !is_query(part));
            found = is_constant;
        }
        _ => {}
    });
    found
}

fn is_query(expr: &Expr) -> bool {
    matches!(expr, Expr::Scalar(_) | Expr::Exists(_) | Expr::ArrayOf(_) | Expr::InQuery(..))
}

type Look<'l> = &'l mut dyn FnMut(&Expr) -> Outcome<()>;

fn each(action: &Action, first: &[crate::plan::First], look: Look<'_>) -> Outcome<()> {
    for first in first {
        change(&first.change, first.returned.as_deref(), look)?;
    }
    match action {
        Action::Select(input) | Action::CopyOut(_, input) => node(input, Level::Top, look),
        Action::Change(part, returned) => change(part, returned.as_deref(), look),
        Action::CopyIn(..) | Action::Utility(_) | Action::Empty => Ok(()),
    }
}

fn change(part: &Change, returned: Option<&[Expr]>, look: Look<'_>) -> Outcome<()> {
    match part {
        Change::Insert { input, conflict, .. } => {
            // The values of the columns are above those of the query.
            let query = match input {
                Node::Project { input, columns } => {
                    columns.iter().try_for_each(&mut *look)?;
                    input
                }
                other => other,
            };
            node(query, Level::Top, look)?;
            let update = conflict.iter().filter_map(|conflict| conflict.update.as_ref());
            for update in update {
                update.set.iter().map(|(_, value)| value).chain(&update.filter).try_for_each(&mut *look)?;
            }
        }
        Change::Update { scan, set } => {
            set.iter().try_for_each(|(_, value)| look(value))?;
            scan.exprs().into_iter().try_for_each(&mut *look)?;
        }
        Change::Delete { scan } => scan.exprs().into_iter().try_for_each(&mut *look)?,
        Change::Family { parts, .. } => parts.iter().try_for_each(|part| change(&part.change, None, look))?,
        Change::Joined { input, set, .. } => {
            set.iter().flatten().try_for_each(|(_, value)| look(value))?;
            node(input, Level::Below, look)?;
        }
        Change::Merge(merge) => {
            merge.clauses.iter().flat_map(|clause| clause.exprs()).try_for_each(&mut *look)?;
            node(&merge.input, Level::Below, look)?;
        }
    }
    returned.into_iter().flatten().try_for_each(look)
}

fn node(part: &Node, level: Level, look: Look<'_>) -> Outcome<()> {
    let Parts { exprs, inputs } = part.parts();
    let (is_looked_at, below) = match part {
        Node::Project { columns, .. } if columns.iter().all(|column| matches!(column, Expr::Column { .. })) => {
            (true, level)
        }
        Node::Project { .. } if level == Level::Top => (true, Level::Below),
        Node::Project { .. } => (false, Level::Inner),
        Node::Aggregate { .. } | Node::Window { .. } | Node::ProjectSet { .. } | Node::Sort { .. } => {
            (level != Level::Inner, level)
        }
        _ => (true, level),
    };
    if is_looked_at {
        exprs.into_iter().try_for_each(&mut *look)?;
    }
    inputs.into_iter().try_for_each(|input| node(input, below, look))
}

impl Run<'_> {
    /// Computes the constants of a statement.
    ///
    /// # Errors
    /// Those of a constant.
    pub fn compute_constants(&self, plan: &Plan) -> Outcome<()> {
        if !plan.has_constants {
            return Ok(());
        }
        each(&plan.action, &plan.first, &mut |expr| self.compute(expr))
    }

    fn compute(&self, expr: &Expr) -> Outcome<()> {
        let known = self.known(expr)?;
        self.resolved(expr, known).map(drop)
    }

    fn resolved(&self, expr: &Expr, known: Known) -> Outcome<Option<Datum>> {
        Ok(match known {
            Known::Nothing => None,
            Known::Value(value) => Some(value),
            Known::Constant => Some(self.eval(expr, &Env { row: &[], outer: None })?),
        })
    }

    fn constant(&self, expr: &Expr) -> Outcome<Option<Datum>> {
        let known = self.known(expr)?;
        self.resolved(expr, known)
    }

    fn known(&self, expr: &Expr) -> Outcome<Known> {
        match expr {
            Expr::Const(_) | Expr::Param(_) => Ok(Known::Constant),
            Expr::Column { .. } => Ok(Known::Nothing),
            Expr::And(one, two) => self.connected((one, two), false),
            Expr::Or(one, two) => self.connected((one, two), true),
            Expr::Case { branches, otherwise } => self.known_case(branches, otherwise),
            Expr::Coalesce(list) => self.known_coalesce(list),
            Expr::Scalar(inner) | Expr::ArrayOf(inner) => {
                node(inner, Level::Top, &mut |expr| self.compute(expr)).map(|()| Known::Nothing)
            }
            Expr::InQuery(_, one, inner) => {
                self.compute(one)?;
                node(inner, Level::Top, &mut |expr| self.compute(expr)).map(|()| Known::Nothing)
            }
            // Its columns are not computed for any row.
            Expr::Exists(inner) => node(inner, Level::Inner, &mut |expr| self.compute(expr)).map(|()| Known::Nothing),
            other => self.known_plain(other),
        }
    }

    /// AND, or OR: the value that decides it is `decisive`.
    fn connected(&self, (one, two): (&Expr, &Expr), decisive: bool) -> Outcome<Known> {
        let first = self.constant(one)?.map(|value| value.truth());
        if first == Some(Some(decisive)) {
            return Ok(Known::Value(Datum::Bool(decisive)));
        }
        let second = self.constant(two)?.map(|value| value.truth());
        Ok(match (first, second) {
            (_, Some(Some(value))) if value == decisive => Known::Value(Datum::Bool(decisive)),
            (Some(first), Some(second)) => Known::Value(bool_or_null(first.and(second))),
            _ => Known::Nothing,
        })
    }

    fn known_case(&self, branches: &[(Expr, Expr)], otherwise: &Expr) -> Outcome<Known> {
        let mut is_open = false;
        let results = branches.iter().map(|(condition, result)| (Some(condition), result));
        for (condition, result) in results.chain([(None, otherwise)]) {
            let truth = condition.map(|condition| self.constant(condition)).transpose()?;
            let is_taken = match &truth {
                None => true,
                Some(Some(value)) if value.truth() == Some(true) => true,
                Some(Some(_)) => continue,
                Some(None) => false,
            };
            let value = self.constant(result)?;
            match (is_taken, is_open, value) {
                (true, false, Some(value)) => return Ok(Known::Value(value)),
                (true, ..) => return Ok(Known::Nothing),
                (false, ..) => is_open = true,
            }
        }
        Ok(Known::Nothing)
    }

    fn known_coalesce(&self, list: &[Expr]) -> Outcome<Known> {
        let mut is_open = false;
        for expr in list {
            match self.constant(expr)? {
                Some(Datum::Null) => {}
                Some(value) => return Ok(if is_open { Known::Nothing } else { Known::Value(value) }),
                None => is_open = true,
            }
        }
        Ok(if is_open { Known::Nothing } else { Known::Value(Datum::Null) })
    }

    fn known_plain(&self, expr: &Expr) -> Outcome<Known> {
        let mut parts = Vec::new();
        expr.each_part(&mut |part| parts.push(part));
        let known = parts.iter().map(|part| self.known(part)).collect::<Outcome<Vec<_>>>()?;
        let is_immutable = is_immutable(expr);
        if is_immutable && known.iter().all(|known| matches!(known, Known::Constant)) {
            return Ok(Known::Constant);
        }
        let mut has_null = false;
        for (part, known) in parts.into_iter().zip(known) {
            has_null |= self.resolved(part, known)?.is_some_and(|value| value.is_null());
        }
        let is_null = has_null && is_immutable && is_strict(expr);
        Ok(if is_null { Known::Value(Datum::Null) } else { Known::Nothing })
    }
}
