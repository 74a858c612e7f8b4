//! The transaction of a connection.

use std::sync::Arc;

use lodestone_engine::{Isolation, Savepoint, Ticket, Tx};
use lodestone_sql_types::func::Session;
use lodestone_sql_types::{Error, Result, SqlState, time};

use super::load::Replaced;
use super::{Connection, Failure};
use crate::catalog::Catalog;
use crate::ddl::REWRITTEN;
use crate::errors::from_engine;
use crate::parse::ast::{Level, Modes};
use crate::run::constraint::{Events, EventsMark};

/// Where a connection is between transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Outside of a transaction.
    Idle,
    /// In one that ends with the message or the next Sync.
    Implicit,
    /// After BEGIN.
    Explicit,
    /// After an error in it: only its end is accepted.
    Failed,
}

/// A transaction of the engine, and what SQL knows of it.
pub struct Open {
    pub tx: Tx,
    pub is_read_only: bool,
    /// It is only shown: every snapshot is safe.
    pub is_deferrable: bool,
    /// Statements that ran in it.
    pub statements: u64,
    /// Its first statement has begun, and its snapshot is of that moment, if it reads one.
    pub has_moment: bool,
    /// By name, the latest last.
    pub savepoints: Vec<(String, Savepoint, Mark)>,
    /// The catalog of the transaction, if it has changed tables.
    pub catalog: Option<Arc<Catalog>>,
    /// Constraints that are to be tested.
    pub events: Events,
    /// Its end has begun, and waits for another transaction.
    pub ends: bool,
    /// Tables to which it gave other rows.
    pub replaced: Vec<Replaced>,
}

/// The state of a transaction beside its changes.
#[derive(Clone, Debug)]
pub struct Mark {
    catalog: Option<Arc<Catalog>>,
    is_read_only: bool,
    events: EventsMark,
    /// Locks, and locks of numbers.
    locks: (usize, usize),
}

impl Open {
    pub(super) fn mark(&self, locks: (usize, usize)) -> Mark {
        Mark { catalog: self.catalog.clone(), is_read_only: self.is_read_only, events: self.events.mark(), locks }
    }

    pub(super) fn go_back(&mut self, mark: &Mark) {
        self.catalog.clone_from(&mark.catalog);
        self.is_read_only = mark.is_read_only;
        self.events.go_back(&mark.events);
    }
}

/// The modes of a transaction that names none, as the settings of this generation say.
#[derive(Clone, Copy, Debug, Default)]
pub struct Defaults {
    generation: u64,
    level: &'static str,
    is_read_only: bool,
}

const LEVELS: [&str; 4] = ["serializable", "repeatable read", "read committed", "read uncommitted"];

/// The word of a level.
pub fn level_name(level: Level) -> &'static str {
    match level {
        Level::ReadUncommitted => "read uncommitted",
        Level::ReadCommitted => "read committed",
        Level::RepeatableRead => "repeatable read",
        Level::Serializable => "serializable",
    }
}

/// The level of a word.
fn level_of(name: &str) -> Level {
    match name {
        "read uncommitted" => Level::ReadUncommitted,
        "read committed" => Level::ReadCommitted,
        "repeatable read" => Level::RepeatableRead,
        _ => Level::Serializable,
    }
}

/// The engine's level for a word.
fn isolation_of(level: &str) -> Isolation {
    match level {
        "read committed" | "read uncommitted" => Isolation::ReadCommitted,
        "repeatable read" => Isolation::Snapshot,
        _ => Isolation::Serializable,
    }
}

impl Connection {
    /// Opens a transaction if there is none.
    pub(super) fn open(&mut self, modes: Modes) -> Result<()> {
        if self.open.is_some() {
            return Ok(());
        }
        let defaults = self.defaults()?;
        let level = modes.isolation.map_or(defaults.level, level_name);
        self.open = Some(Open {
            tx: self.database.0.engine.begin_with(isolation_of(level)),
            is_read_only: modes.is_read_only.unwrap_or(defaults.is_read_only),
            is_deferrable: modes.is_deferrable.unwrap_or(false),
            statements: 0,
            has_moment: false,
            savepoints: Vec::new(),
            catalog: None,
            events: Events::default(),
            ends: false,
            replaced: Vec::new(),
        });
        if self.session.level != level {
            level.clone_into(&mut self.session.level);
        }
        self.session.transaction_time = time::now();
        Ok(())
    }

    /// The modes of a transaction that names none.
    fn defaults(&mut self) -> Result<Defaults> {
        let settings = self.session.settings.borrow();
        if self.defaults.generation != settings.generation() {
            let level = settings.get("default_transaction_isolation")?;
            let level = LEVELS.iter().copied().find(|name| *name == level).unwrap_or("serializable");
            let is_read_only = settings.get("default_transaction_read_only")? == "on";
            self.defaults = Defaults { generation: settings.generation(), level, is_read_only };
        }
        Ok(self.defaults)
    }

    /// Commits. The answer waits for the ticket.
    pub(super) fn commit(&mut self) -> Result<()> {
        if let Err(error) = self.settle_all().and_then(|()| self.end_temporary()) {
            self.roll_back();
            self.state = State::Idle;
            return Err(error);
        }
        let Some(open) = self.open.take() else { return Ok(()) };
        let (defines, has_other_rows) = (open.catalog.is_some(), !open.replaced.is_empty());
        let outcome = open.tx.commit_async().map_err(from_engine);
        self.end_cursors(outcome.is_ok());
        if has_other_rows {
            // Their handles are of the rows before.
            self.database.refresh()?;
        }
        self.state = State::Idle;
        if self.end_rewriting() | defines {
            // While the locks are held: one that waits for them sees what was defined.
            self.end_definitions();
        }
        self.release_locks();
        self.end_settings(outcome.is_ok());
        if defines {
            let catalog = self.database.catalog();
            self.on_commit.retain(|(oid, _)| catalog.table_of(*oid).is_some());
        }
        self.wait_for(outcome?);
        Ok(())
    }

    /// Forgets the changes of the transaction.
    pub(super) fn roll_back(&mut self) {
        let defines = self.open.as_ref().is_some_and(|open| open.catalog.is_some());
        self.end_cursors(false);
        // An answer about rows that are not durable yet must wait for them.
        if let Some(open) = self.open.take()
            && let Ok(ticket) = open.tx.seen()
        {
            self.wait_for(ticket);
        }
        self.release_locks();
        self.end_settings(false);
        if self.end_rewriting() | defines {
            self.end_definitions();
        }
    }

    /// The tables that the transaction has loaded are in the catalog now, or left over. Whether there are some.
    pub(super) fn end_rewriting(&self) -> bool {
        let names = std::mem::take(&mut *self.session.rewriting.borrow_mut());
        self.database.end_rewriting(&names);
        !names.is_empty()
    }

    /// The others see what the transaction has defined. The rest of it is removed.
    fn end_definitions(&mut self) {
        // An error is that of the next statement, which reads the catalog as well.
        drop(self.database.refresh());
        if self.database.0.engine.tables().is_ok_and(|names| names.iter().any(|name| name.starts_with(REWRITTEN))) {
            drop(self.database.sweep());
        }
    }

    fn end_settings(&mut self, is_committed: bool) {
        let reports = self.session.settings.borrow_mut().end(is_committed);
        self.session.reports.borrow_mut().extend(reports);
        let level = self.defaults().map(|defaults| defaults.level).unwrap_or_default();
        if self.session.level != level {
            level.clone_into(&mut self.session.level);
        }
    }

    /// The answer waits for this as well.
    pub(super) fn wait_for(&mut self, ticket: Ticket<()>) {
        if !ticket.is_durable() {
            self.tickets.push(ticket);
        }
    }

    /// The answer in the middle of a transaction waits for what it has read.
    pub(super) fn wait_for_reads(&mut self) -> Result<()> {
        let Some(open) = &self.open else { return Ok(()) };
        let ticket = open.tx.seen().map_err(from_engine)?;
        self.wait_for(ticket);
        Ok(())
    }

    /// An error ends the transaction: at once if it is implicit, or if it ends anyway.
    pub(super) fn fail(&mut self) {
        let ends = self.open.as_ref().is_some_and(|open| open.ends);
        match self.state {
            State::Explicit if !ends => {
                if let Some(open) = &self.open
                    && let Ok(ticket) = open.tx.seen()
                {
                    self.wait_for(ticket);
                }
                self.state = State::Failed;
                self.release_failed();
            }
            State::Failed => {}
            State::Explicit | State::Implicit | State::Idle => {
                self.roll_back();
                self.state = State::Idle;
            }
        }
    }

    /// Ends the locks after those of a mark.
    fn release_after(&mut self, (locks, numbers): (usize, usize)) {
        self.stop_waiting();
        self.held.release_after(locks);
        self.session.advisory.end_after(numbers);
    }

    /// Ends the locks of a transaction that failed: from its last savepoint on, as it may go back to that. Its changes
    /// are not seen by others, and cannot be committed.
    fn release_failed(&mut self) {
        match self.open.as_ref().and_then(|open| open.savepoints.last()) {
            Some((.., mark)) => self.release_after(mark.locks),
            None => self.release_locks(),
        }
    }

    pub(super) fn begin(&mut self, modes: Modes) -> Result<()> {
        match self.state {
            State::Idle | State::Implicit => {
                self.open(modes)?;
                self.set_modes(modes)?;
                self.state = State::Explicit;
            }
            State::Explicit | State::Failed => {
                self.notice(Error::new(SqlState::ACTIVE_SQL_TRANSACTION, "there is already a transaction in progress"));
            }
        }
        Ok(())
    }

    /// Changes the modes of the transaction at hand.
    pub(super) fn set_modes(&mut self, modes: Modes) -> Result<()> {
        let Some(open) = &mut self.open else { return Ok(()) };
        open.is_deferrable = modes.is_deferrable.unwrap_or(open.is_deferrable);
        if let Some(is_read_only) = modes.is_read_only {
            if open.is_read_only && !is_read_only {
                let message = match open.savepoints.is_empty() {
                    false => "cannot set transaction read-write mode inside a read-only transaction",
                    true if open.statements > 0 => "transaction read-write mode must be set before any query",
                    true => "",
                };
                if !message.is_empty() {
                    return Err(Error::new(SqlState::ACTIVE_SQL_TRANSACTION, message));
                }
            }
            open.is_read_only = is_read_only;
        }
        let Some(level) = modes.isolation.map(level_name).filter(|level| *level != self.session.level) else {
            return Ok(());
        };
        if open.statements > 0 {
            let message = "SET TRANSACTION ISOLATION LEVEL must be called before any query";
            return Err(Error::new(SqlState::ACTIVE_SQL_TRANSACTION, message));
        }
        open.tx = self.database.0.engine.begin_with(isolation_of(level));
        level.clone_into(&mut self.session.level);
        Ok(())
    }

    /// COMMIT. Returns its tag.
    ///
    /// # Errors
    /// [`Failure::Blocked`] if a constraint that is tested now waits for another transaction: nothing has changed then.
    pub(super) fn end(&mut self) -> Result<&'static str, Failure> {
        match self.state {
            State::Idle | State::Implicit => {
                self.notice(Error::new(SqlState::NO_ACTIVE_SQL_TRANSACTION, "there is no transaction in progress"));
                self.commit()?;
                Ok("COMMIT")
            }
            State::Explicit => {
                self.settle_before_end()?;
                self.commit()?;
                Ok("COMMIT")
            }
            State::Failed => {
                self.roll_back();
                self.state = State::Idle;
                Ok("ROLLBACK")
            }
        }
    }

    /// COMMIT AND CHAIN, and ROLLBACK AND CHAIN. Returns the tag.
    pub(super) fn chain(&mut self, is_rollback: bool) -> Result<&'static str, Failure> {
        if !matches!(self.state, State::Explicit | State::Failed) {
            let what = if is_rollback { "ROLLBACK" } else { "COMMIT" };
            let message = format!("{what} AND CHAIN can only be used in transaction blocks");
            return Err(Error::new(SqlState::NO_ACTIVE_SQL_TRANSACTION, message).into());
        }
        let modes = Modes {
            isolation: Some(level_of(&self.session.level)),
            is_read_only: self.open.as_ref().map(|open| open.is_read_only),
            is_deferrable: self.open.as_ref().map(|open| open.is_deferrable),
        };
        let tag = if is_rollback {
            self.abort();
            "ROLLBACK"
        } else {
            self.end()?
        };
        self.begin(modes)?;
        Ok(tag)
    }

    /// ROLLBACK.
    pub(super) fn abort(&mut self) {
        if matches!(self.state, State::Idle | State::Implicit) {
            self.notice(Error::new(SqlState::NO_ACTIVE_SQL_TRANSACTION, "there is no transaction in progress"));
        }
        self.roll_back();
        self.state = State::Idle;
    }

    pub(super) fn savepoint(&mut self, name: &str) -> Result<()> {
        let Some(open) = self.open.as_mut().filter(|_| self.state == State::Explicit) else {
            return Err(Error::new(
                SqlState::NO_ACTIVE_SQL_TRANSACTION,
                "SAVEPOINT can only be used in transaction blocks",
            ));
        };
        let savepoint = open.tx.savepoint().map_err(from_engine)?;
        let mark = open.mark((self.held.mark(), self.session.advisory.mark()));
        open.savepoints.push((name.to_owned(), savepoint, mark));
        Ok(())
    }

    /// ROLLBACK TO, or RELEASE.
    pub(super) fn go_to_savepoint(&mut self, name: &str, is_release: bool) -> Result<()> {
        let what = if is_release { "RELEASE SAVEPOINT" } else { "ROLLBACK TO SAVEPOINT" };
        let Some(open) = self.open.as_mut().filter(|_| matches!(self.state, State::Explicit | State::Failed)) else {
            let message = format!("{what} can only be used in transaction blocks");
            return Err(Error::new(SqlState::NO_ACTIVE_SQL_TRANSACTION, message));
        };
        let place =
            open.savepoints.iter().rposition(|(other, ..)| other == name).ok_or_else(|| {
                Error::new(SqlState::INVALID_SAVEPOINT, format!("savepoint \"{name}\" does not exist"))
            })?;
        let savepoint = open.savepoints[place].1;
        if is_release {
            open.tx.release(savepoint).map_err(from_engine)?;
            // As ROLLBACK TO does: only rows and definitions are handed on.
            open.is_read_only = open.savepoints[place].2.is_read_only;
            open.savepoints.truncate(place);
            open.release_from(place);
        } else {
            open.tx.rollback_to(savepoint).map_err(from_engine)?;
            open.savepoints.truncate(place + 1);
            let mark = open.savepoints[place].2.clone();
            open.go_back(&mark);
            open.undo_to(place);
            self.state = State::Explicit;
            self.release_after(mark.locks);
        }
        Ok(())
    }

    /// The value of a setting for SHOW.
    pub(super) fn show(&self, name: &str) -> Result<String> {
        let open = self.open.as_ref();
        let is_on = match name {
            "transaction_deferrable" => open.map(|open| open.is_deferrable),
            "transaction_read_only" => open.map(|open| open.is_read_only),
            _ => None,
        };
        match is_on {
            Some(is_on) => Ok(if is_on { "on" } else { "off" }.into()),
            None => self.session.setting(name),
        }
    }
}
