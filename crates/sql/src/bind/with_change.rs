//! Changes of rows in WITH.
//!
//! They run once, before the statement that they stand before, in their order, and the rows that they return are kept
//! for it. `PostgreSQL` runs all parts on one snapshot: none sees the changes of another one. Here a transaction sees
//! its own changes, so a table that one part changes must not be used by another part. Where it is, the statement is
//! refused.

use lodestone_sql_types::{Error, Result, SqlState};

use super::Binder;
use super::recursive::Work;
use crate::catalog::TableDef;
use crate::parse::ast::{KeyAction, With};
use crate::plan::{Action, Change, Expr, First, Node, Parts};

impl Binder<'_> {
    /// Binds the changes among the queries of WITH.
    pub(super) fn bind_changes(&mut self, list: &mut [With]) -> Result<()> {
        if list.iter().any(|with| with.change.is_some()) {
            self.share_all(list);
        }
        let list = &*list;
        for (number, with) in list.iter().enumerate() {
            let Some(change) = &with.change else { continue };
            self.with.push(list[..number].iter().filter(|other| other.change.is_none()).cloned().collect());
            let bound = self.statement((**change).clone());
            self.with.pop();
            let (action, mut columns) = bound?;
            let Action::Change(change, returned) = action else {
                return Err(Error::unsupported("this statement in WITH").at(with.name.at));
            };
            if with.columns.len() > columns.len() {
                let message = format!(
                    "WITH query \"{}\" has {} columns available but {} columns specified",
                    with.name.value,
                    columns.len(),
                    with.columns.len()
                );
                return Err(Error::new(SqlState::INVALID_COLUMN_REFERENCE, message).at(with.name.at));
            }
            for (column, name) in columns.iter_mut().zip(&with.columns) {
                column.name.clone_from(&name.value);
            }
            let place = self.work_count;
            self.work_count += 1;
            self.work.push(Work::kept(with.name.value.clone(), place, columns, returned.is_some()));
            self.first.push(First { number: place, change, returned });
        }
        Ok(())
    }

    /// Whether the rows of the change with this name are kept.
    pub(super) fn has_kept(&self, name: &str) -> bool {
        self.work.iter().any(|work| work.is_kept(name))
    }

    /// Refuses a statement whose parts would see each other's changes.
    pub(super) fn refuse_shared(&self, action: &Action) -> Result<()> {
        for (number, first) in self.first.iter().enumerate() {
            let own = changed(&first.change);
            let mut used = Vec::new();
            first.returned.iter().flatten().for_each(|expr| expr_tables(expr, &mut used));
            for other in self.first.iter().enumerate().filter(|(other, _)| *other != number).map(|(_, other)| other) {
                used.push(changed(&other.change).oid);
                change_tables(&other.change, &mut used);
                other.returned.iter().flatten().for_each(|expr| expr_tables(expr, &mut used));
            }
            match action {
                Action::Change(change, returned) => {
                    used.push(changed(change).oid);
                    change_tables(change, &mut used);
                    returned.iter().flatten().for_each(|expr| expr_tables(expr, &mut used));
                }
                Action::Select(node) | Action::CopyOut(_, node) => node_tables(node, &mut used),
                _ => {}
            }
            if used.contains(&own.oid) || self.reaches_others(own) {
                let message = format!(
                    "a change in WITH of the table \"{}\", which another part of the statement uses or a foreign key changes",
                    own.name
                );
                return Err(Error::unsupported(message).hint("Write several statements in a transaction."));
            }
        }
        Ok(())
    }

    /// Whether a change of the table can change other tables.
    fn reaches_others(&self, table: &TableDef) -> bool {
        let is_passive = |action| matches!(action, KeyAction::NoAction | KeyAction::Restrict);
        let children = self.catalog.children.get(&table.oid).into_iter().flatten();
        children
            .map(|(child, number)| &child.foreign_keys[*number])
            .any(|key| !is_passive(key.on_delete) || !is_passive(key.on_update))
    }
}

/// The table whose rows a change changes.
pub fn changed(change: &Change) -> &TableDef {
    match change {
        Change::Insert { table, .. } | Change::Joined { table, .. } => table,
        Change::Update { scan, .. } | Change::Delete { scan } => &scan.table,
        Change::Family { root, .. } => root,
        Change::Merge(merge) => &merge.table,
    }
}

/// The tables that a change reads beside its own.
fn change_tables(change: &Change, found: &mut Vec<u32>) {
    match change {
        Change::Insert { input, conflict, view, .. } => {
            node_tables(input, found);
            view.iter().flat_map(|view| view.exprs()).for_each(|expr| expr_tables(expr, found));
            let update = conflict.iter().filter_map(|conflict| conflict.update.as_ref());
            for update in update {
                update.set.iter().map(|(_, expr)| expr).chain(&update.filter).for_each(|expr| expr_tables(expr, found));
            }
        }
        Change::Update { scan, set } => {
            scan.filter.iter().chain(set.iter().map(|(_, expr)| expr)).for_each(|expr| expr_tables(expr, found));
        }
        Change::Family { parts, .. } => parts.iter().for_each(|part| change_tables(&part.change, found)),
        Change::Delete { scan } => scan.filter.iter().for_each(|expr| expr_tables(expr, found)),
        Change::Joined { input, filter, set, view, .. } => {
            node_tables(input, found);
            view.iter().flat_map(|view| view.exprs()).for_each(|expr| expr_tables(expr, found));
            let set = set.iter().flatten().map(|(_, expr)| expr);
            filter.iter().chain(set).for_each(|expr| expr_tables(expr, found));
        }
        Change::Merge(merge) => {
            node_tables(&merge.input, found);
            let exprs = merge.clauses.iter().flat_map(|clause| clause.exprs());
            exprs.chain([&merge.on]).for_each(|expr| expr_tables(expr, found));
        }
    }
}

fn expr_tables(expr: &Expr, found: &mut Vec<u32>) {
    expr.walk(&mut |part| match part {
        Expr::Scalar(node) | Expr::Exists(node) | Expr::ArrayOf(node) | Expr::InQuery(_, _, node) => {
            node_tables(node, found);
        }
        _ => {}
    });
}

/// The tables that a query reads.
fn node_tables(node: &Node, found: &mut Vec<u32>) {
    if let Node::Scan(scan) = node {
        found.push(scan.table.oid);
    }
    let Parts { exprs, inputs } = node.parts();
    exprs.into_iter().for_each(|expr| expr_tables(expr, found));
    inputs.into_iter().for_each(|input| node_tables(input, found));
}
