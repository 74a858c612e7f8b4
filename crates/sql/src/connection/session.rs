//! The part of a connection that functions and locks see.

use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::Arc;
use std::task::Waker;

use lodestone_sql_types::func::Session;
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

    fn constraint_definition(&self, oid: i64) -> Option<String> {
        pgcatalog::constraint_definition(&self.catalog, oid)
    }

    fn relation_bytes(&self, oid: i64) -> Option<i64> {
        // The engine does not count the bytes of a table.
        matches!(self.catalog.relation(oid)?, Relation::Table(_) | Relation::Key(_) | Relation::Index(..)).then_some(0)
    }
}

/// The locks of a transaction.
#[derive(Debug)]
pub struct Held {
    pub database: Database,
    pub owner: Owner,
    pub keys: RefCell<HashSet<LockKey>>,
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
}

/// Takes no locks: for rows that come in a stream, which cannot be run again.
pub struct NoLocks;

impl Locker for NoLocks {
    fn lock(&self, _: LockKey) -> Result<bool> {
        Ok(true)
    }

    fn locks(&self) -> bool {
        false
    }
}
