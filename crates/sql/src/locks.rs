//! Locks on rows, in DRAM, held to the end of a transaction.
//!
//! A change of a row takes the lock of its key first. So a transaction that comes second waits, reads the newest
//! version and goes on, instead of meeting a conflict at its commit. The locks are comfort: the engine validates
//! every commit, also against users of the library, who take none.
//!
//! 1. A lock has one owner and a queue. When the owner ends, the first of the queue owns it and is woken.
//! 2. No thread waits here: who does not get a lock is told so, undoes its statement, and runs it again when it is
//!    woken.
//! 3. An owner waits for one lock at a time. One that would wait for itself over others is refused (40P01).

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use lodestone_sql_types::{Error, Result, SqlState};

/// The key of a row: the number of its table, and the bytes of its key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LockKey {
    pub table: u32,
    pub key: Vec<u8>,
}

/// A transaction, by a number that no other one has.
pub type Owner = u64;

#[derive(Debug)]
struct Lock {
    owner: Owner,
    queue: VecDeque<(Owner, Waker)>,
}

#[derive(Debug, Default)]
struct State {
    locks: HashMap<LockKey, Lock>,
    waits: HashMap<Owner, LockKey>,
}

/// All locks of a database.
#[derive(Debug, Default)]
pub struct Locks(Mutex<State>);

impl Locks {
    fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves the table whole: each change is one call.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the lock for `owner`. `false`: another one has it, and `waker` is woken when it is the owner's.
    ///
    /// # Errors
    /// 40P01 when the wait would never end.
    pub fn acquire(&self, owner: Owner, key: &LockKey, waker: &Waker) -> Result<bool> {
        let mut state = self.state();
        let holder = match state.locks.get(key) {
            None => {
                state.locks.insert(key.clone(), Lock { owner, queue: VecDeque::new() });
                return Ok(true);
            }
            Some(lock) if lock.owner == owner => return Ok(true),
            Some(lock) => lock.owner,
        };
        let mut next = holder;
        // Each owner waits for one lock, so this is a line.
        while let Some(lock) = state.waits.get(&next).and_then(|key| state.locks.get(key)) {
            if lock.owner == owner {
                return Err(Error::new(SqlState::DEADLOCK_DETECTED, "deadlock detected")
                    .detail(format!("Transaction {owner} waits for {holder}, which waits for it."))
                    .hint("Run the transaction again."));
            }
            next = lock.owner;
        }
        state.waits.insert(owner, key.clone());
        if let Some(lock) = state.locks.get_mut(key)
            && !lock.queue.iter().any(|(waiter, _)| *waiter == owner)
        {
            lock.queue.push_back((owner, waker.clone()));
        }
        Ok(false)
    }

    /// Ends all locks of `owner`, also those that it waits for.
    pub fn release(&self, owner: Owner, held: HashSet<LockKey>) {
        let mut woken = Vec::new();
        {
            let mut state = self.state();
            let waited = state.waits.remove(&owner);
            for key in held.into_iter().chain(waited) {
                release_one(&mut state, owner, &key, &mut woken);
            }
        }
        woken.into_iter().for_each(Waker::wake);
    }

    /// Whether `owner` waits no more: the lock is its own.
    pub fn is_granted(&self, owner: Owner) -> bool {
        !self.state().waits.contains_key(&owner)
    }
}

fn release_one(state: &mut State, owner: Owner, key: &LockKey, woken: &mut Vec<Waker>) {
    let Some(lock) = state.locks.get_mut(key) else { return };
    lock.queue.retain(|(waiter, _)| *waiter != owner);
    if lock.owner != owner {
        return;
    }
    match lock.queue.pop_front() {
        Some((next, waker)) => {
            lock.owner = next;
            state.waits.remove(&next);
            woken.push(waker);
        }
        None => drop(state.locks.remove(key)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u8) -> LockKey {
        LockKey { table: 1, key: vec![number] }
    }

    #[test]
    fn the_first_of_the_queue_is_next() -> Result<()> {
        let (locks, waker) = (Locks::default(), Waker::noop());
        assert!(locks.acquire(1, &key(0), waker)?);
        assert!(locks.acquire(1, &key(0), waker)?, "again by its owner");
        assert!(!locks.acquire(2, &key(0), waker)?);
        assert!(!locks.acquire(3, &key(0), waker)?);
        assert!(!locks.is_granted(2));
        locks.release(1, [key(0)].into());
        assert!(locks.is_granted(2) && !locks.is_granted(3));
        assert!(locks.acquire(2, &key(0), waker)?);
        locks.release(3, HashSet::new());
        locks.release(2, [key(0)].into());
        assert!(locks.acquire(4, &key(0), waker)?, "no owner waits any more");
        Ok(())
    }

    #[test]
    fn a_circle_is_refused() -> Result<()> {
        let (locks, waker) = (Locks::default(), Waker::noop());
        for owner in 1..=3 {
            assert!(locks.acquire(owner, &key(u8::try_from(owner).unwrap_or(0)), waker)?);
        }
        assert!(!locks.acquire(1, &key(2), waker)?);
        assert!(!locks.acquire(2, &key(3), waker)?);
        let found = locks.acquire(3, &key(1), waker).expect_err("1 waits for 2, 2 for 3, 3 for 1");
        assert_eq!(found.state(), SqlState::DEADLOCK_DETECTED);
        // The refused one ends, and the others go on one after another.
        locks.release(3, [key(3)].into());
        assert!(locks.is_granted(2) && !locks.is_granted(1));
        locks.release(2, [key(2), key(3)].into());
        assert!(locks.is_granted(1));
        Ok(())
    }
}
