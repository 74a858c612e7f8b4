//! Time limits: of a statement, of a wait for a lock, and of a transaction without statements.

use std::time::{Duration, Instant};

use lodestone_sql_types::{Error, SqlState};

use super::transaction::State;
use super::{Completion, Connection, Failure};

/// A time limit that was passed.
#[derive(Debug)]
pub enum Overdue {
    /// The statement that waits ends with this error.
    Statement(Error),
    /// The connection ends with this error.
    Session(Error),
}

/// The limits that the settings say, and what is under way.
#[derive(Debug, Default)]
pub struct Clock {
    /// The settings that the limits are of.
    generation: u64,
    statement: Option<Duration>,
    lock: Option<Duration>,
    idle: Option<Duration>,
    /// When a wait for a lock began.
    waits_since: Option<Instant>,
    /// When the last statement ended.
    idle_since: Option<Instant>,
}

impl Connection {
    /// A statement begins, or begins again.
    pub(super) fn begin_clock(&mut self) {
        let settings = self.session.settings.borrow();
        if self.clock.generation != settings.generation() {
            let limit = |name: &str| {
                let millis = settings.millis(name);
                (millis > 0).then(|| Duration::from_millis(millis))
            };
            if settings.has_timeouts() {
                self.database.note_timeouts();
            }
            self.clock.statement = limit("statement_timeout");
            self.clock.lock = limit("lock_timeout");
            self.clock.idle = limit("idle_in_transaction_session_timeout");
            self.clock.generation = settings.generation();
        }
        self.clock.idle_since = None;
        if let Some(limit) = self.clock.statement
            && self.session.watch.deadline.is_none()
        {
            self.session.watch.deadline = Instant::now().checked_add(limit);
        }
    }

    /// A statement has ended, or goes on later.
    pub(super) fn end_clock(&mut self, outcome: &Result<Completion, Failure>) {
        let is_blocked = matches!(outcome, Err(Failure::Blocked));
        if !is_blocked {
            self.clock.waits_since = None;
        } else if self.clock.lock.is_some() {
            self.clock.waits_since.get_or_insert_with(Instant::now);
        }
        if is_blocked || matches!(outcome, Err(Failure::Long)) {
            return;
        }
        self.session.watch.deadline = None;
        if self.clock.idle.is_some() {
            self.clock.idle_since = Some(Instant::now());
        }
    }

    /// The limit that was passed by now. `is_waiting`: a statement waits for a lock.
    pub fn overdue(&mut self, now: Instant, is_waiting: bool) -> Option<Overdue> {
        let is_over = |since: Option<Instant>, limit: Option<Duration>| {
            since.zip(limit).is_some_and(|(since, limit)| now.saturating_duration_since(since) >= limit)
        };
        if is_waiting {
            let error = match () {
                () if self.session.watch.deadline.is_some_and(|deadline| now >= deadline) => {
                    Error::new(SqlState::QUERY_CANCELED, "canceling statement due to statement timeout")
                }
                () if is_over(self.clock.waits_since, self.clock.lock) => {
                    Error::new(SqlState::LOCK_NOT_AVAILABLE, "canceling statement due to lock timeout")
                }
                () => return None,
            };
            (self.session.watch.deadline, self.clock.waits_since) = (None, None);
            self.fail();
            return Some(Overdue::Statement(error));
        }
        let is_idle = matches!(self.state, State::Explicit | State::Failed) && self.copy.is_none();
        if is_idle && is_over(self.clock.idle_since, self.clock.idle) {
            let message = "terminating connection due to idle-in-transaction timeout";
            return Some(Overdue::Session(Error::new(SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT, message)));
        }
        None
    }
}
