//! MERGE: the rows of a source, each with the rows of the table that fit it, and what becomes of them.
//!
//! The row at hand has the columns of the table first, then where the row is, then the columns of the source. A row of
//! the source that no row of the table fits has nulls in the first two parts. Of a table with others below it, the
//! place of a row is the number of its table among them, its hidden number, and its columns in that table.

use std::sync::Arc;

use lodestone_sql_types::{Datum, Error, Result, SqlState, Type};

use super::Binder;
use super::access::{with_access, with_conditions};
use super::change::{Bound, Insert};
use super::family::{all_rows, oid_expr};
use super::from::hidden_table;
use super::scope::{Scope, ScopeColumn};
use crate::catalog::TableDef;
use crate::parse::ast::{self, JoinKind, MergeAction, ObjectName};
use crate::plan::{Access, Action, Change, Expr, Join, Member, Merge, MergeClause, MergeMember, MergeWork, Node, Scan};

/// The table of a MERGE.
struct Target {
    table: Arc<TableDef>,
    members: Vec<MergeMember>,
    node: Node,
    /// Columns of the row at hand before those of the source.
    width: usize,
}

impl Binder<'_> {
    pub(super) fn merge(&mut self, merge: &ast::Merge) -> Bound {
        refuse_unreachable(&merge.clauses)?;
        let target = self.merge_target(&merge.table)?;
        let shown = merge.alias.as_ref().unwrap_or(&merge.table.name);
        let table = target.table.clone();
        let mut own = self.changed_columns(&table, &table, shown);
        let (source, others) = self.from(std::slice::from_ref(&merge.source), None)?;
        if own.iter().any(|column| others.iter().any(|other| other.table == column.table)) {
            let message = format!("name \"{shown}\" specified more than once");
            return Err(Error::new(SqlState::DUPLICATE_ALIAS, message)
                .detail("The name is used both as MERGE target table and data source."));
        }
        let names = own.clone();
        // Its number is after everything else of the row.
        let relation = own.first().and_then(|column| column.relation.clone());
        let oid = self.oid_column(shown).map(|column| ScopeColumn { relation, ..column });
        own.resize_with(target.width - usize::from(oid.is_some()), nameless);
        own.extend(oid);
        // The join has the source first.
        let scope = Scope { columns: others.iter().chain(&own).cloned().collect(), parent: None };
        let condition = self.condition(&merge.on, &scope, "JOIN/ON")?;
        let has_inserts = merge.clauses.iter().any(|clause| !clause.is_matched);
        let input = joined(source, others.len(), target.node, target.width, condition, has_inserts);
        let order = (0..target.width).map(|index| index + others.len()).chain(0..others.len());
        let columns = order.map(|index| Expr::Column { depth: 0, index }).collect();
        let input = Node::Project { input: Box::new(input), columns };
        let both = Scope { columns: own.into_iter().chain(others.iter().cloned()).collect(), parent: None };
        let on = self.condition(&merge.on, &both, "JOIN/ON")?;
        // Without a row of the table its columns have no names.
        let alone = std::iter::repeat_with(nameless).take(target.width).chain(others).collect();
        let alone = Scope { columns: alone, parent: None };
        let mut clauses = Vec::new();
        for clause in &merge.clauses {
            let scope = if clause.is_matched { &both } else { &alone };
            let hidden = |error| if clause.is_matched { error } else { missing(hidden_table(error, &names), &names) };
            clauses.push(self.merge_clause(&table, clause, scope).map_err(hidden)?);
        }
        let (width, members) = (target.width, target.members);
        let merge = Merge { table, members, input, width, on, clauses };
        Ok((Action::Change(Change::Merge(Box::new(merge)), None), Vec::new()))
    }

    fn merge_target(&mut self, name: &ObjectName) -> Result<Target> {
        let refused = |what: &str| {
            let message = format!("cannot execute MERGE on relation \"{}\"", name.name);
            Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                .detail(format!("This operation is not supported for {what}.")))
        };
        if self.view_named(name).is_some() {
            return refused("views");
        }
        let full = self.catalog.resolve(name.schema.as_deref(), &name.name);
        if full.is_some_and(|full| self.catalog.sequences.contains_key(&full)) {
            return refused("sequences");
        }
        let table = self.table(name)?;
        if !self.has_heirs(name, &table) {
            let shows_number = table.hidden.is_some();
            let node = self.own_rows(Scan { shows_number, ..all_rows(table.clone()) });
            let width = table.columns.len() + usize::from(shows_number) + usize::from(self.shows_oids);
            return Ok(Target { table, members: Vec::new(), node, width });
        }
        let members = self.members(&table);
        let most = members.iter().map(|(member, _)| member.columns.len()).max().unwrap_or(0);
        let part = |(number, (member, map)): (i64, &(Arc<TableDef>, Vec<usize>))| {
            let own = member.columns.len();
            let shows_number = member.hidden.is_some();
            let scan = Node::Scan(Box::new(Scan { shows_number, ..all_rows(member.clone()) }));
            let column = |index: usize| Expr::Column { depth: 0, index };
            let null = || Expr::Const(Datum::Null);
            let mut columns: Vec<Expr> = map.iter().copied().map(column).collect();
            columns.push(Expr::Const(Datum::Int(number)));
            columns.push(if shows_number { column(own) } else { null() });
            columns.extend((0..most).map(|index| if index < own { column(index) } else { null() }));
            columns.extend(self.shows_oids.then(|| oid_expr(member.oid)));
            let limits = self.bounds_of(&table, member, map);
            Member { node: Node::Project { input: Box::new(scan), columns }, limits }
        };
        let node = Node::Append((0..).zip(&members).map(part).collect());
        let width = table.columns.len() + 2 + most + usize::from(self.shows_oids);
        let members = members.into_iter().map(|(table, map)| MergeMember { table, map }).collect();
        Ok(Target { table, members, node, width })
    }

    fn merge_clause(
        &mut self,
        table: &Arc<TableDef>,
        clause: &ast::MergeClause,
        scope: &Scope<'_>,
    ) -> Result<MergeClause> {
        let filter = clause.filter.as_ref().map(|filter| self.condition(filter, scope, "WHEN")).transpose()?;
        let work = match &clause.action {
            MergeAction::Nothing => MergeWork::Nothing,
            MergeAction::Delete => MergeWork::Delete,
            MergeAction::Update(set) => MergeWork::Update(self.assigned(table, set, scope)?),
            MergeAction::Insert { columns, overriding, source } => {
                let parts = Insert { columns, source, overriding: *overriding, conflict: None };
                MergeWork::Insert(self.merged_row(table, &parts, scope)?)
            }
        };
        Ok(MergeClause { is_matched: clause.is_matched, filter, work })
    }
}

/// A column that no name means.
fn nameless() -> ScopeColumn {
    ScopeColumn {
        table: None,
        name: String::new(),
        ty: Type::Int8,
        modifier: -1,
        origin: None,
        is_hidden: true,
        is_outer: false,
        relation: None,
    }
}

/// The error of a clause without a row of the table, with the hint that its columns are not there.
fn missing(error: Error, names: &[ScopeColumn]) -> Error {
    let name = error.message().split('"').nth(1).unwrap_or_default();
    let found = names.iter().find(|column| error.state() == SqlState::UNDEFINED_COLUMN && column.name == name);
    let Some(table) = found.and_then(|column| column.table.clone()) else { return error };
    let hint = format!(
        "There is a column named \"{name}\" in table \"{table}\", but it cannot be referenced from this part of the \
         query."
    );
    error.hint(hint)
}

/// The rows of the source with those of the table. If the condition says which key or entries of an index a row of the
/// source has, these alone are looked for.
fn joined(source: Node, width: usize, target: Node, own: usize, condition: Expr, keeps_all: bool) -> Node {
    let kind = if keeps_all { JoinKind::Left } else { JoinKind::Inner };
    let join = |right, is_lateral, on| Join {
        kind,
        left: source.clone(),
        right,
        left_width: width,
        right_width: own,
        is_lateral,
        on,
        hash: Vec::new(),
    };
    let mut conditions = Vec::new();
    condition.clone().conjuncts(&mut conditions);
    if let Node::Scan(scan) = &target {
        let (inside, rest): (Vec<Expr>, Vec<Expr>) =
            conditions.iter().cloned().partition(|part| !part.has_subquery() && !part.is_volatile());
        let inside = inside.into_iter().map(|part| inner(part, width)).collect();
        let found = with_access(scan.table.clone(), inside, None);
        if is_narrow(&found.access) {
            let right = Node::Scan(Box::new(Scan { shows_number: scan.shows_number, ..found }));
            return Node::Join(Box::new(join(right, true, Expr::all(rest))));
        }
    }
    with_conditions(join(target, false, None), conditions)
}

/// Whether values of the key or of an index are looked for.
fn is_narrow(access: &Access) -> bool {
    match access {
        Access::All => false,
        Access::Key(_) => true,
        Access::Range { equal, .. } => !equal.is_empty(),
    }
}

/// A condition over a row of the table, where the row of the source is the one around it.
fn inner(mut condition: Expr, width: usize) -> Expr {
    condition.walk_mut(&mut |part| {
        if let Expr::Column { depth: 0, index } = part {
            let index = *index;
            *part = match index.checked_sub(width) {
                Some(index) => Expr::Column { depth: 0, index },
                None => Expr::Column { depth: 1, index },
            };
        }
    });
    condition
}

/// Refuses clauses after one of the same kind that takes all rows.
fn refuse_unreachable(clauses: &[ast::MergeClause]) -> Result<()> {
    for (number, clause) in clauses.iter().enumerate() {
        let takes_all = |before: &ast::MergeClause| before.is_matched == clause.is_matched && before.filter.is_none();
        if clauses[..number].iter().any(takes_all) {
            let message = "unreachable WHEN clause specified after unconditional WHEN clause";
            return Err(Error::new(SqlState::SYNTAX_ERROR, message));
        }
    }
    Ok(())
}
