//! The locks of numbers (advisory locks) that a session has.
//!
//! Those of a transaction end with it, or with the savepoint before them. Those of the session are counted, and stay
//! after ROLLBACK: they are no part of a transaction.
//!
//! A statement that waits for another lock runs again from its start. Locks that it had taken are not counted twice:
//! the counts go back to those before it, and the locks themselves stay with the session meanwhile.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::task::Waker;

use lodestone_sql_types::func::{AdvisoryCall, AdvisoryVerb};
use lodestone_sql_types::{Error, Result, SqlState};

use crate::database::Database;
use crate::locks::{LockKey, Mode, Modes, Owner};

/// Most numbers that a session has locked. A lock outlives its statement and its transaction, so one client could fill
/// the memory of all with them.
const LOCKS_MAX: usize = 10_000;

/// See the module.
#[derive(Debug)]
pub struct Advisory {
    database: Database,
    owner: Owner,
    waker: Waker,
    counts: RefCell<Counts>,
    /// The counts before the statement at hand, if it has changed them.
    before: RefCell<Option<Counts>>,
    /// Locks that the session has.
    taken: RefCell<HashMap<LockKey, Modes>>,
    /// Locks that were waited for. One may be the session's own by now.
    asked: RefCell<Vec<(LockKey, Mode)>>,
    waits: Cell<bool>,
    warnings: RefCell<Vec<Error>>,
}

#[derive(Clone, Debug, Default)]
struct Counts {
    session: HashMap<(LockKey, Mode), u32>,
    /// With the number of those that were taken before.
    transaction: HashMap<(LockKey, Mode), usize>,
}

impl Counts {
    fn has(&self, key: &LockKey, mode: Mode) -> bool {
        let entry = (key.clone(), mode);
        self.transaction.contains_key(&entry) || self.session.contains_key(&entry)
    }
}

impl Advisory {
    pub fn new(database: Database, owner: Owner) -> Self {
        Self {
            database,
            owner,
            waker: Waker::noop().clone(),
            counts: RefCell::default(),
            before: RefCell::default(),
            taken: RefCell::default(),
            asked: RefCell::default(),
            waits: Cell::new(false),
            warnings: RefCell::default(),
        }
    }

    pub fn set_waker(&mut self, waker: Waker) {
        self.waker = waker;
    }

    /// Carries out a call. Whether it did what it is for.
    ///
    /// # Errors
    /// 40P01; any error when the lock is waited for: see [`takes_wait`](Self::takes_wait).
    pub fn call(&self, call: AdvisoryCall) -> Result<bool> {
        let mode = if call.is_shared { Mode::Share } else { Mode::Exclusive };
        let key = LockKey::advisory(call.number, call.is_pair);
        match call.verb {
            AdvisoryVerb::Lock | AdvisoryVerb::Try => {
                if !self.take(&key, mode, call.verb == AdvisoryVerb::Try)? {
                    return Ok(false);
                }
                let mut counts = self.change();
                if !call.is_of_transaction {
                    *counts.session.entry((key, mode)).or_default() += 1;
                } else {
                    let number = counts.transaction.len();
                    counts.transaction.entry((key, mode)).or_insert(number);
                }
                Ok(true)
            }
            AdvisoryVerb::Unlock => Ok(self.unlock(key, mode)),
            AdvisoryVerb::UnlockAll => {
                self.change().session.clear();
                Ok(true)
            }
        }
    }

    /// The counts, which go back if the statement runs again.
    fn change(&self) -> std::cell::RefMut<'_, Counts> {
        self.before.borrow_mut().get_or_insert_with(|| self.counts.borrow().clone());
        self.counts.borrow_mut()
    }

    fn take(&self, key: &LockKey, mode: Mode, is_try: bool) -> Result<bool> {
        if self.taken.borrow().get(key).is_some_and(|modes| modes.contains(mode)) {
            return Ok(true);
        }
        if self.taken.borrow().len() >= LOCKS_MAX {
            return Err(Error::new(SqlState::OUT_OF_MEMORY, "out of shared memory")
                .detail(format!("A session has at most {LOCKS_MAX} advisory locks."))
                .hint("Release some of them, or lock fewer numbers, such as one for a group of objects."));
        }
        let locks = &self.database.0.locks;
        let is_held = match is_try {
            true => locks.acquire_now(self.owner, key, mode),
            false => locks.acquire(self.owner, key, mode, &self.waker)?,
        };
        if is_held {
            let mut taken = self.taken.borrow_mut();
            let modes = taken.entry(key.clone()).or_default();
            *modes = modes.with(mode);
        } else if !is_try {
            self.asked.borrow_mut().push((key.clone(), mode));
            self.waits.set(true);
            return Err(Error::new(SqlState::INTERNAL_ERROR, "a lock is waited for"));
        }
        Ok(is_held)
    }

    fn unlock(&self, key: LockKey, mode: Mode) -> bool {
        let mut counts = self.change();
        let entry = (key, mode);
        match counts.session.get_mut(&entry) {
            Some(1) => drop(counts.session.remove(&entry)),
            Some(count) => *count -= 1,
            None => {
                let message = format!("you don't own a lock of type {}", mode.name());
                self.warnings.borrow_mut().push(Error::new(SqlState::WARNING, message));
                return false;
            }
        }
        true
    }

    /// Whether the last error says that a lock is waited for.
    pub fn takes_wait(&self) -> bool {
        self.waits.replace(false)
    }

    /// Whether it has waited for a lock.
    pub fn has_waited(&self) -> bool {
        !self.asked.borrow().is_empty()
    }

    pub fn warn(&self, warning: Error) {
        self.warnings.borrow_mut().push(warning);
    }

    pub fn take_warnings(&self) -> Vec<Error> {
        self.warnings.take()
    }

    /// A statement has ended. `runs_again`: what it did does not count.
    pub fn end_statement(&self, runs_again: bool) {
        let Some(before) = self.before.take() else { return };
        if runs_again {
            *self.counts.borrow_mut() = before;
            self.warnings.borrow_mut().clear();
        } else {
            self.trim();
        }
    }

    /// How many locks of the transaction there are.
    pub fn mark(&self) -> usize {
        self.counts.borrow().transaction.len()
    }

    /// Ends the locks of the transaction after the first `mark`.
    pub fn end_after(&self, mark: usize) {
        let is_none = self.counts.borrow().transaction.len() <= mark && self.asked.borrow().is_empty();
        if is_none {
            return;
        }
        self.counts.borrow_mut().transaction.retain(|_, number| *number < mark);
        self.trim();
    }

    /// Ends all locks.
    pub fn end(&self) {
        *self.counts.borrow_mut() = Counts::default();
        self.before.take();
        self.trim();
    }

    /// Releases locks that are not counted any more, or were waited for and not taken.
    fn trim(&self) {
        let counts = self.counts.borrow();
        let mut ended = Vec::new();
        self.taken.borrow_mut().retain(|key, modes| {
            for mode in modes.iter().filter(|mode| !counts.has(key, *mode)) {
                ended.push((key.clone(), Modes::of(mode)));
                *modes = modes.without(Modes::of(mode));
            }
            !modes.is_empty()
        });
        let asked = self.asked.take().into_iter().filter(|(key, mode)| !counts.has(key, *mode));
        ended.extend(asked.map(|(key, mode)| (key, Modes::of(mode))));
        if !ended.is_empty() {
            self.database.0.locks.release(self.owner, ended);
        }
    }
}
