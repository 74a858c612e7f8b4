//! The tables that a statement locks before it runs.
//!
//! A query locks its tables as `ACCESS SHARE`, those whose rows it locks as `ROW SHARE`, and a change its table as `ROW
//! EXCLUSIVE`. A change of a child locks its parents as `ROW SHARE`, as their rows are held. These conflict with the
//! modes of LOCK TABLE and of definitions alone.

use super::{Action, Change, Expr, First, Node, Parts};
use crate::catalog::{Catalog, TableDef};
use crate::locks::Mode;

/// Tables with modes, each once, and whether locks of numbers are taken.
#[derive(Default)]
struct Found {
    tables: Vec<(u32, Mode)>,
    takes_numbers: bool,
}

/// The tables of a statement, and whether it takes locks of numbers (advisory locks).
pub fn of(catalog: &Catalog, action: &Action, first: &[First]) -> (Vec<(u32, Mode)>, bool) {
    let mut found = Found::default();
    for first in first {
        change(&first.change, first.returned.as_deref(), &mut found);
    }
    match action {
        Action::Select(input) | Action::CopyOut(_, input) => node(input, &mut found),
        Action::Change(part, returned) => change(part, returned.as_deref(), &mut found),
        Action::CopyIn(_, table, _) => {
            changed(table, &mut found);
            partitions(catalog, table, &mut found);
        }
        Action::Utility(_) | Action::Empty => {}
    }
    let inserts = first.iter().map(|first| &first.change).chain(match action {
        Action::Change(change, _) => Some(change),
        _ => None,
    });
    for change in inserts {
        match change {
            Change::Insert { table, .. } | Change::Family { root: table, .. } => partitions(catalog, table, &mut found),
            Change::Merge(merge) => partitions(catalog, &merge.table, &mut found),
            _ => {}
        }
    }
    (found.tables, found.takes_numbers)
}

/// A row goes to any of the partitions.
fn partitions(catalog: &Catalog, table: &TableDef, found: &mut Found) {
    if table.partition_by.is_some() {
        catalog.heirs_of(table).iter().for_each(|(heir, _)| changed(heir, found));
    }
}

fn note(table: u32, mode: Mode, found: &mut Found) {
    if !found.tables.contains(&(table, mode)) {
        found.tables.push((table, mode));
    }
}

fn changed(table: &TableDef, found: &mut Found) {
    note(table.oid, Mode::RowExclusive, found);
    table.foreign_keys.iter().for_each(|key| note(key.parent, Mode::RowShare, found));
}

fn change(part: &Change, returned: Option<&[Expr]>, found: &mut Found) {
    match part {
        Change::Insert { table, input, conflict, view } => {
            changed(table, found);
            node(input, found);
            view.iter().flat_map(|view| view.exprs()).for_each(|part| expr(part, found));
            let update = conflict.iter().filter_map(|conflict| conflict.update.as_ref());
            update.for_each(|update| {
                update.set.iter().map(|(_, value)| value).chain(&update.filter).for_each(|part| expr(part, found));
            });
        }
        Change::Update { scan, set } => {
            changed(&scan.table, found);
            node(&Node::Scan(Box::new(super::Scan { locks: None, ..scan.clone() })), found);
            set.iter().for_each(|(_, value)| expr(value, found));
        }
        Change::Delete { scan } => {
            changed(&scan.table, found);
            node(&Node::Scan(Box::new(super::Scan { locks: None, ..scan.clone() })), found);
        }
        Change::Family { root, parts, .. } => {
            changed(root, found);
            parts.iter().for_each(|part| change(&part.change, None, found));
        }
        Change::Joined { table, input, set, view, .. } => {
            changed(table, found);
            node(input, found);
            view.iter().flat_map(|view| view.exprs()).for_each(|part| expr(part, found));
            set.iter().flatten().for_each(|(_, value)| expr(value, found));
        }
        Change::Merge(merge) => {
            changed(&merge.table, found);
            merge.members.iter().for_each(|member| changed(&member.table, found));
            node(&merge.input, found);
            merge.clauses.iter().flat_map(|clause| clause.exprs()).for_each(|part| expr(part, found));
        }
    }
    returned.into_iter().flatten().for_each(|part| expr(part, found));
}

fn node(part: &Node, found: &mut Found) {
    match part {
        Node::Scan(scan) => {
            let is_changed = found.tables.contains(&(scan.table.oid, Mode::RowExclusive));
            match scan.locks {
                Some(_) => note(scan.table.oid, Mode::RowShare, found),
                // The lock of the change is enough.
                None if is_changed => {}
                None => note(scan.table.oid, Mode::AccessShare, found),
            }
        }
        Node::LockRows(rows) => rows.targets.iter().for_each(|target| note(target.table.oid, Mode::RowShare, found)),
        _ => {}
    }
    let Parts { exprs, inputs } = part.parts();
    inputs.into_iter().for_each(|input| node(input, found));
    exprs.into_iter().for_each(|part| expr(part, found));
}

fn expr(part: &Expr, found: &mut Found) {
    part.walk(&mut |part| match part {
        Expr::Scalar(inner) | Expr::Exists(inner) | Expr::ArrayOf(inner) | Expr::InQuery(_, _, inner) => {
            node(inner, found);
        }
        Expr::Call(function, _) => found.takes_numbers |= function.name.starts_with("pg_advisory"),
        _ => {}
    });
}
