//! The part of a connection that functions and locks see.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::task::Waker;

use lodestone_engine::Ticket;
use lodestone_sql_types::func::{SequenceCall, Session};
use lodestone_sql_types::{Error, Result, SqlState};

use crate::catalog::{Catalog, Relation};
use crate::database::Database;
use crate::locks::{LockKey, Owner};
use crate::pgcatalog;
use crate::run::Locker;
use crate::settings::{Report, Settings};

/// A session: its user, its settings, its times.
#[derive(Debug)]
pub struct SessionState {
    pub user: String,
    pub database: String,
    pub number: i32,
    pub settings: RefCell<Settings>,
    /// Changes of settings that the client is to be told of.
    pub reports: RefCell<Vec<Report>>,
    /// The level of the transaction at hand.
    pub level: String,
    pub transaction_time: i64,
    pub statement_time: i64,
    pub catalog: Arc<Catalog>,
    pub shared: Database,
    /// The number that each sequence gave this session last, by its own number, and that of all.
    pub sequences: RefCell<(HashMap<i64, i64>, Option<i64>)>,
    /// Tickets of numbers of sequences, for which answers wait.
    pub waits: RefCell<Vec<Ticket<()>>>,
}

impl SessionState {
    /// The name of a relation, with its schema if it is not found without.
    pub fn shown_relation(&self, oid: i64) -> Option<String> {
        let quote = lodestone_sql_types::func::quote_ident;
        match self.catalog.relation(oid) {
            Some(found) if self.catalog.is_visible(found.schema(), found.name()) => Some(quote(found.name())),
            Some(found) => Some(format!("{}.{}", quote(found.schema()), quote(found.name()))),
            None => {
                let table = pgcatalog::all().find(|table| i64::from(table.oid) == oid)?;
                match table.schema {
                    "pg_catalog" => Some(table.name.to_owned()),
                    schema => Some(format!("{schema}.{}", table.name)),
                }
            }
        }
    }
}

impl Session for SessionState {
    fn transaction_time(&self) -> i64 {
        self.transaction_time
    }

    fn statement_time(&self) -> i64 {
        self.statement_time
    }

    fn user(&self) -> &str {
        &self.user
    }

    fn database(&self) -> &str {
        &self.database
    }

    fn backend(&self) -> i64 {
        self.number.into()
    }

    fn setting(&self, name: &str) -> Result<String> {
        if name.eq_ignore_ascii_case("transaction_isolation") {
            return Ok(self.level.clone());
        }
        self.settings.borrow().get(name)
    }

    fn set(&self, name: &str, value: &str, is_local: bool) -> Result<String> {
        if name.eq_ignore_ascii_case("transaction_isolation") {
            return Err(Error::new(
                SqlState::ACTIVE_SQL_TRANSACTION,
                "SET TRANSACTION ISOLATION LEVEL must be called before any query",
            ));
        }
        let report = self.settings.borrow_mut().set(name, Some(value), is_local)?;
        self.reports.borrow_mut().extend(report);
        self.setting(name)
    }

    fn relation_name(&self, oid: i64) -> Option<String> {
        self.catalog.relation(oid).map(|relation| relation.name().to_owned())
    }

    fn index_definition(&self, oid: i64, column: i64) -> Option<String> {
        pgcatalog::index_definition(&self.catalog, oid, column)
    }

    fn constraint_definition(&self, oid: i64, is_pretty: bool) -> Option<String> {
        pgcatalog::constraint_definition(&self.catalog, oid, is_pretty)
    }

    fn relation_bytes(&self, oid: i64) -> Option<i64> {
        // The engine does not count the bytes of a table.
        matches!(self.catalog.relation(oid)?, Relation::Table(_) | Relation::Key(_) | Relation::Index(..)).then_some(0)
    }

    fn view_definition(&self, oid: i64) -> Option<String> {
        match self.catalog.relation(oid)? {
            Relation::View(view) => Some(format!(" {};", view.text)),
            _ => None,
        }
    }

    fn relation_number(&self, name: &str) -> Option<i64> {
        let (schema, plain) = pgcatalog::names_of(name);
        let user = self.catalog.resolve(schema.as_deref(), &plain).and_then(|full| self.catalog.oid_of(&full));
        user.or_else(|| pgcatalog::find(schema.as_deref(), &plain).map(|table| table.oid)).map(i64::from)
    }

    fn is_visible(&self, oid: i64) -> bool {
        match self.catalog.relation(oid) {
            Some(found) => self.catalog.is_visible(found.schema(), found.name()),
            None => pgcatalog::all().any(|table| i64::from(table.oid) == oid && table.schema == "pg_catalog"),
        }
    }

    fn schemas(&self) -> Vec<String> {
        self.catalog.path.iter().filter(|schema| self.catalog.has_schema(schema)).cloned().collect()
    }

    fn serial_sequence(&self, table: &str, column: &str) -> Result<Option<String>> {
        let (schema, name) = pgcatalog::names_of(table);
        let full = self.catalog.resolve(schema.as_deref(), &name).unwrap_or_default();
        let found = self
            .catalog
            .tables
            .get(&full)
            .ok_or_else(|| Error::new(SqlState::UNDEFINED_TABLE, format!("relation \"{table}\" does not exist")))?;
        if found.column(column).is_none() {
            let message = format!("column \"{column}\" of relation \"{}\" does not exist", found.name);
            return Err(Error::new(SqlState::UNDEFINED_COLUMN, message));
        }
        let owner = Some((full, column.to_owned()));
        let sequence = self.catalog.sequences.values().find(|sequence| sequence.owner == owner);
        let quote = lodestone_sql_types::func::quote_ident;
        Ok(sequence.map(|sequence| format!("{}.{}", quote(&sequence.schema), quote(&sequence.name))))
    }

    fn sequence(&self, call: SequenceCall) -> Result<i64> {
        let shared = &self.shared.0;
        if call == SequenceCall::Last {
            let error = || {
                let message = "lastval is not yet defined in this session";
                Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
            };
            return self.sequences.borrow().1.ok_or_else(error);
        }
        let (SequenceCall::Next(oid)
        | SequenceCall::Current(oid)
        | SequenceCall::Set(oid, ..)
        | SequenceCall::Value(oid)
        | SequenceCall::Called(oid)) = call
        else {
            return Ok(0);
        };
        let sequence = match self.catalog.relation(oid) {
            Some(Relation::Sequence(sequence)) => sequence.clone(),
            Some(other) => {
                let message = format!("\"{}\" is not a sequence", other.name());
                return Err(Error::new(SqlState::WRONG_OBJECT_TYPE, message));
            }
            None => {
                let message = format!("could not open relation with OID {oid}");
                return Err(Error::new(SqlState::UNDEFINED_TABLE, message));
            }
        };
        match call {
            SequenceCall::Next(_) => {
                let (value, ticket) = shared.sequences.next(&shared.engine, &sequence)?;
                self.waits.borrow_mut().extend(ticket.filter(|ticket| !ticket.is_durable()));
                let mut given = self.sequences.borrow_mut();
                given.0.insert(oid, value);
                given.1 = Some(value);
                Ok(value)
            }
            SequenceCall::Set(_, value, is_called) => {
                let ticket = shared.sequences.set(&shared.engine, &sequence, (value, is_called))?;
                self.waits.borrow_mut().push(ticket);
                if is_called {
                    self.sequences.borrow_mut().0.insert(oid, value);
                }
                Ok(value)
            }
            SequenceCall::Value(_) => shared.sequences.value(&shared.engine, &sequence).map(|(value, _)| value),
            SequenceCall::Called(_) => {
                shared.sequences.value(&shared.engine, &sequence).map(|(_, is_called)| is_called.into())
            }
            _ => self.sequences.borrow().0.get(&oid).copied().ok_or_else(|| {
                let message = format!("currval of sequence \"{}\" is not yet defined in this session", sequence.name);
                Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
            }),
        }
    }
}

/// The locks of a transaction.
#[derive(Debug)]
pub struct Held {
    pub database: Database,
    pub owner: Owner,
    pub keys: RefCell<HashSet<LockKey>>,
    /// Locks that it shares with others.
    pub shared: RefCell<HashSet<LockKey>>,
    /// Locks that were waited for. One may be the transaction's own by now, and not be needed any more.
    pub asked: RefCell<HashSet<LockKey>>,
    pub waker: Waker,
}

impl Held {
    /// Ends all locks. The next transaction is another owner.
    pub fn release(&mut self) {
        if self.keys.get_mut().is_empty() && self.asked.get_mut().is_empty() {
            return;
        }
        let mut keys = std::mem::take(self.keys.get_mut());
        keys.extend(self.asked.get_mut().drain());
        keys.extend(self.shared.get_mut().drain());
        self.database.0.locks.release(self.owner, keys);
        self.owner = self.database.new_owner();
    }
}

impl Locker for Held {
    fn lock(&self, key: LockKey) -> Result<bool> {
        if self.keys.borrow().contains(&key) {
            return Ok(true);
        }
        let is_held = self.database.0.locks.acquire(self.owner, &key, &self.waker)?;
        let place = if is_held { &self.keys } else { &self.asked };
        place.borrow_mut().insert(key);
        Ok(is_held)
    }

    fn lock_shared(&self, key: LockKey) -> Result<bool> {
        if self.keys.borrow().contains(&key) || self.shared.borrow().contains(&key) {
            return Ok(true);
        }
        let is_held = self.database.0.locks.share(self.owner, &key, &self.waker)?;
        let place = if is_held { &self.shared } else { &self.asked };
        place.borrow_mut().insert(key);
        Ok(is_held)
    }
}

/// Takes no locks: for rows that come in a stream, which cannot be run again.
pub struct NoLocks;

impl Locker for NoLocks {
    fn lock(&self, _: LockKey) -> Result<bool> {
        Ok(true)
    }

    fn lock_shared(&self, _: LockKey) -> Result<bool> {
        Ok(true)
    }

    fn locks(&self) -> bool {
        false
    }
}
