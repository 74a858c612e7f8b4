//! FOR UPDATE and its relatives: the tables of a query whose rows they lock.
//!
//! The scan of a single table locks what it finds. In a join, or with ORDER BY and LIMIT, rows are locked after they
//! were put together and sorted: so those that LIMIT leaves out stay free.

use std::sync::Arc;

use lodestone_sql_types::{Error, Result, SqlState};

use super::Binder;
use super::aggregate::has_aggregate;
use super::scope::{Scope, ScopeColumn};
use crate::catalog::TableDef;
use crate::locks::Mode;
use crate::parse::ast::{Distinct, Item, JoinKind, LockWait, Query, RowLock, Select, TableRef};
use crate::plan::{LockRows, LockTarget, Node, SortKey};

/// A table of FROM, under its name in the query.
struct Source<'q> {
    name: &'q str,
    kind: Kind,
    /// Its columns are null where an outer join finds no partner.
    is_nullable: bool,
}

enum Kind {
    Table(Arc<TableDef>),
    /// A query, a view, or a table of the catalog.
    Query,
    With,
    Function,
}

/// A table whose rows are locked.
pub struct Locked {
    name: String,
    table: Arc<TableDef>,
    pub mode: Mode,
    pub wait: LockWait,
}

/// The name of the column for the hidden numbers of a table, by its name in the query and its number. No user can write
/// it.
pub fn number_column(table: &str, oid: u32) -> String {
    format!("\0{table}\0{oid}")
}

impl Binder<'_> {
    /// The tables that the clauses of a query lock.
    ///
    /// # Errors
    /// 0A000 where `PostgreSQL` has it, and for subqueries and views; 42P01 for a table that is not there.
    pub(super) fn locked_tables(&self, query: &Query, select: &Select) -> Result<Vec<Locked>> {
        let Some(first) = query.locks.first() else { return Ok(Vec::new()) };
        if let Some(what) = obstacle(query, select) {
            return Err(not_allowed(first, what));
        }
        let mut sources = Vec::new();
        select.from.iter().for_each(|table| self.sources(table, false, &mut sources));
        let mut found: Vec<Locked> = Vec::new();
        for lock in &query.locks {
            let named = |source: &&Source<'_>| lock.of.as_ref().is_none_or(|name| name.value == source.name);
            // Of several tables of one name the first is meant.
            let count = if lock.of.is_some() { 1 } else { sources.len() };
            let mut meant = sources.iter().filter(named).take(count).peekable();
            if let (Some(name), None) = (&lock.of, meant.peek()) {
                let message =
                    format!("relation \"{}\" in {} clause not found in FROM clause", name.value, lock.strength);
                return Err(Error::new(SqlState::UNDEFINED_TABLE, message).at(name.at));
            }
            for source in meant {
                let Some(table) = table_of(source, lock)? else { continue };
                match found.iter_mut().find(|other| other.name == source.name && other.table.oid == table.oid) {
                    Some(other) => {
                        (other.mode, other.wait) = (other.mode.max(lock.mode()), stricter(other.wait, lock.wait));
                    }
                    None => {
                        let (name, mode, wait) = (source.name.to_owned(), lock.mode(), lock.wait);
                        found.push(Locked { name, table, mode, wait });
                    }
                }
            }
        }
        Ok(found)
    }

    fn sources<'q>(&self, table: &'q TableRef, is_nullable: bool, found: &mut Vec<Source<'q>>) {
        match table {
            TableRef::Table { name, alias } => {
                let is_with = name.schema.is_none() && self.is_with_query(&name.name);
                let kind = match self.catalog.table(name) {
                    _ if is_with => Kind::With,
                    Some(table) => Kind::Table(table.clone()),
                    None => Kind::Query,
                };
                found.push(Source { name: alias.name.as_ref().unwrap_or(&name.name), kind, is_nullable });
            }
            TableRef::Query { alias, .. } => {
                let name = alias.name.as_deref().unwrap_or_default();
                found.push(Source { name, kind: Kind::Query, is_nullable });
            }
            TableRef::Function { call, alias, .. } => {
                let name = alias.name.as_ref().unwrap_or(&call.name.name);
                found.push(Source { name, kind: Kind::Function, is_nullable });
            }
            TableRef::Sample(sampled) => self.sources(&sampled.table, is_nullable, found),
            TableRef::Join { kind, left, right, .. } => {
                self.sources(left, is_nullable || matches!(kind, JoinKind::Right | JoinKind::Full), found);
                self.sources(right, is_nullable || matches!(kind, JoinKind::Left | JoinKind::Full), found);
            }
        }
    }

    /// Whether the scan of the one table can lock the rows.
    pub(super) fn scan_locks(query: &Query, select: &Select, tables: &[Locked]) -> bool {
        let is_cut = query.limit.is_some() || query.offset.is_some();
        let is_one = matches!(select.from[..], [TableRef::Table { .. }]) && tables.len() == 1;
        is_one && (!is_cut || query.order_by.is_empty())
    }

    /// Refuses tables with others below them where rows are locked after they were put together.
    ///
    /// # Errors
    /// 0A000.
    pub(super) fn refuse_locked_heirs(&self, query: &Query, tables: &[Locked]) -> Result<()> {
        let has_heirs =
            |locked: &&Locked| locked.table.partition_by.is_some() || !self.catalog.heirs(locked.table.oid).is_empty();
        match (query.locks.first(), tables.iter().find(has_heirs)) {
            (Some(lock), Some(locked)) => {
                let (strength, name) = (lock.strength, &locked.table.name);
                let what = format!("{strength} of \"{name}\", which has tables below it, in a join");
                Err(Error::unsupported(what))
            }
            _ => Ok(()),
        }
    }

    /// Shows the hidden numbers of the tables until the end of FROM.
    pub(super) fn show_numbers(&mut self, tables: &[Locked]) {
        let hidden = tables.iter().filter(|locked| locked.table.hidden.is_some());
        self.numbered = hidden.map(|locked| number_column(&locked.name, locked.table.oid)).collect();
    }

    /// Locks rows of the joined tables. `keys`: their order, if that decides which of them are locked.
    pub(super) fn lock_rows(
        &mut self,
        mut node: Node,
        tables: Vec<Locked>,
        query: &Query,
        keys: Vec<SortKey>,
        scope: &Scope<'_>,
    ) -> Result<Node> {
        if tables.is_empty() {
            return Ok(node);
        }
        if !keys.is_empty() {
            node = Node::Sort { input: Box::new(node), keys };
        }
        let (limit, offset) = self.limits(query, scope.parent)?;
        let targets = tables.into_iter().map(|locked| target(locked, &scope.columns)).collect::<Result<_>>()?;
        Ok(Node::LockRows(Box::new(LockRows { input: node, targets, limit, offset })))
    }

    /// Refuses windows, and functions that return rows, in a query that locks rows.
    ///
    /// # Errors
    /// 0A000.
    pub(super) fn refuse_locked_extras(&self, query: &Query) -> Result<()> {
        let what = self.extras.as_ref().and_then(super::window::Extras::lock_obstacle);
        match (query.locks.first(), what) {
            (Some(first), Some(what)) => Err(not_allowed(first, what)),
            _ => Ok(()),
        }
    }
}

/// The part of a query that has no rows of tables any more.
fn obstacle(query: &Query, select: &Select) -> Option<&'static str> {
    let has_aggregates = select.items.iter().any(|item| matches!(item, Item::Expr(expr, _) if has_aggregate(expr)))
        || query.order_by.iter().any(|order| has_aggregate(&order.expr));
    match () {
        () if select.distinct != Distinct::All => Some("DISTINCT clause"),
        () if !select.group_by.is_empty() => Some("GROUP BY clause"),
        () if select.having.is_some() => Some("HAVING clause"),
        () if has_aggregates => Some("aggregate functions"),
        () => None,
    }
}

pub(super) fn not_allowed(lock: &RowLock, what: &str) -> Error {
    let message = format!("{} is not allowed with {what}", lock.strength);
    Error::new(SqlState::FEATURE_NOT_SUPPORTED, message)
}

/// The table that is locked. `None`: the clause means all tables, and this is none.
fn table_of(source: &Source<'_>, lock: &RowLock) -> Result<Option<Arc<TableDef>>> {
    let cannot = |what: &str| {
        let message = format!("{} cannot be applied to {what}", lock.strength);
        Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message))
    };
    match &source.kind {
        Kind::With if lock.of.is_some() => cannot("a WITH query"),
        Kind::Function if lock.of.is_some() => cannot("a function"),
        Kind::With | Kind::Function => Ok(None),
        _ if source.is_nullable => cannot("the nullable side of an outer join"),
        Kind::Query => Err(Error::unsupported(format!("{} of a subquery or a view", lock.strength))),
        Kind::Table(table) => Ok(Some(table.clone())),
    }
}

/// Of two clauses for one table, NOWAIT counts before SKIP LOCKED, and that before a wait.
fn stricter(one: LockWait, two: LockWait) -> LockWait {
    match (one, two) {
        (LockWait::Refuse, _) | (_, LockWait::Refuse) => LockWait::Refuse,
        (LockWait::Skip, _) | (_, LockWait::Skip) => LockWait::Skip,
        (LockWait::Wait, LockWait::Wait) => LockWait::Wait,
    }
}

/// Where the columns of a table are in the rows of FROM.
fn target(locked: Locked, columns: &[ScopeColumn]) -> Result<LockTarget> {
    let Locked { name, table, mode, wait } = locked;
    let lost = || Error::new(SqlState::INTERNAL_ERROR, format!("the columns of the table \"{name}\" are lost"));
    let place = |number: usize| {
        let origin = i16::try_from(number + 1).ok().map(|number| (table.oid, number));
        let is_it = |column: &ScopeColumn| column.table.as_ref() == Some(&name) && column.origin == origin;
        columns.iter().position(is_it).ok_or_else(lost)
    };
    let found = (0..table.columns.len()).map(place).collect::<Result<Vec<_>>>()?;
    let number = match table.hidden {
        None => None,
        Some(_) => {
            let shown = number_column(&name, table.oid);
            Some(columns.iter().position(|column| column.name == shown).ok_or_else(lost)?)
        }
    };
    Ok(LockTarget { columns: found, number, mode, wait, table })
}
