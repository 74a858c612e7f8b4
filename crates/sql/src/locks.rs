//! Locks on rows, in DRAM, held to the end of a transaction.
//!
//! A change of a row takes the lock of its key first. So a transaction that comes second waits, reads the newest
//! version and goes on, instead of meeting a conflict at its commit. The locks are comfort: the engine validates
//! every commit, also against users of the library, who take none.
//!
//! 1. A lock has one owner, or several that share it, and a queue. When the last owner ends, the first of the queue
//!    owns it and is woken, and with one that shares it all of the next ones that do.
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
    owners: Vec<Owner>,
    is_shared: bool,
    queue: VecDeque<Waiter>,
}

#[derive(Debug)]
struct Waiter {
    owner: Owner,
    is_shared: bool,
    waker: Waker,
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

    /// Whether a thread has panicked while it changed them.
    pub fn is_broken(&self) -> bool {
        self.0.is_poisoned()
    }

    /// Takes the lock for `owner`. `false`: another one has it, and `waker` is woken when it is the owner's.
    ///
    /// # Errors
    /// 40P01 when the wait would never end.
    pub fn acquire(&self, owner: Owner, key: &LockKey, waker: &Waker) -> Result<bool> {
        self.take(owner, key, false, waker)
    }

    /// Takes the lock for `owner` if no other one has it or waits for it.
    pub fn acquire_now(&self, owner: Owner, key: &LockKey) -> bool {
        let mut state = self.state();
        match state.locks.get_mut(key) {
            None => {
                let lock = Lock { owners: vec![owner], is_shared: false, queue: VecDeque::new() };
                state.locks.insert(key.clone(), lock);
                true
            }
            Some(lock) if lock.owners == [owner] => {
                lock.is_shared = false;
                true
            }
            Some(_) => false,
        }
    }

    /// As [`acquire`](Self::acquire), beside other owners that share the lock.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    pub fn share(&self, owner: Owner, key: &LockKey, waker: &Waker) -> Result<bool> {
        self.take(owner, key, true, waker)
    }

    fn take(&self, owner: Owner, key: &LockKey, is_shared: bool, waker: &Waker) -> Result<bool> {
        let mut state = self.state();
        assert!(!lodestone_pmem::planted::active("sql-lock-panics"), "planted");
        match state.locks.get_mut(key) {
            None => {
                state.locks.insert(key.clone(), Lock { owners: vec![owner], is_shared, queue: VecDeque::new() });
                return Ok(true);
            }
            Some(lock) if lock.owners.contains(&owner) => {
                let is_alone = lock.owners.len() == 1;
                if is_shared || !lock.is_shared || is_alone {
                    lock.is_shared &= is_shared;
                    return Ok(true);
                }
            }
            // Those that wait come first.
            Some(lock) if is_shared && lock.is_shared && lock.queue.is_empty() => {
                lock.owners.push(owner);
                return Ok(true);
            }
            Some(_) => {}
        }
        if let Some(holder) = state.circle(owner, key) {
            return Err(Error::new(SqlState::DEADLOCK_DETECTED, "deadlock detected")
                .detail(format!("Transaction {owner} waits for {holder}, which waits for it."))
                .hint("Run the transaction again."));
        }
        state.waits.insert(owner, key.clone());
        if let Some(lock) = state.locks.get_mut(key)
            && !lock.queue.iter().any(|waiter| waiter.owner == owner)
        {
            lock.queue.push_back(Waiter { owner, is_shared, waker: waker.clone() });
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

    /// Whether `owner` waits for a lock.
    pub fn is_waiting(&self, owner: Owner) -> bool {
        self.state().waits.contains_key(&owner)
    }

    /// Whether `owner` waits no more: the lock is its own.
    pub fn is_granted(&self, owner: Owner) -> bool {
        !self.state().waits.contains_key(&owner)
    }
}

impl State {
    /// An owner of the lock, or one that waits for it already, that waits for `owner`, over others perhaps.
    fn circle(&self, owner: Owner, key: &LockKey) -> Option<Owner> {
        let before = |key: &LockKey, waiter: Owner| {
            let lock = self.locks.get(key);
            let owners = lock.into_iter().flat_map(|lock| lock.owners.iter().copied());
            let queue = lock.into_iter().flat_map(move |lock| {
                lock.queue.iter().map(|other| other.owner).take_while(move |other| *other != waiter)
            });
            owners.chain(queue).filter(move |other| *other != waiter)
        };
        let first: Vec<Owner> = before(key, owner).collect();
        for start in first {
            let (mut seen, mut next) = (HashSet::new(), vec![start]);
            while let Some(holder) = next.pop() {
                if holder == owner {
                    return Some(start);
                }
                if let Some(key) = self.waits.get(&holder).filter(|_| seen.insert(holder)) {
                    let lock = self.locks.get(key);
                    let is_owner = lock.is_some_and(|lock| lock.owners.contains(&owner));
                    if is_owner {
                        return Some(start);
                    }
                    next.extend(before(key, holder));
                }
            }
        }
        None
    }
}

fn release_one(state: &mut State, owner: Owner, key: &LockKey, woken: &mut Vec<Waker>) {
    let Some(lock) = state.locks.get_mut(key) else { return };
    lock.queue.retain(|waiter| waiter.owner != owner);
    lock.owners.retain(|other| *other != owner);
    grant(lock, &mut state.waits, woken);
    if lock.owners.is_empty() {
        state.locks.remove(key);
    }
}

/// The first ones of the queue become owners, as far as they can.
fn grant(lock: &mut Lock, waits: &mut HashMap<Owner, LockKey>, woken: &mut Vec<Waker>) {
    while let Some(first) = lock.queue.front() {
        let is_alone = lock.owners.is_empty() || lock.owners == [first.owner];
        if !(is_alone || first.is_shared && lock.is_shared) {
            return;
        }
        let Some(Waiter { owner, is_shared, waker }) = lock.queue.pop_front() else { return };
        lock.is_shared = is_shared && (lock.is_shared || lock.owners.is_empty());
        if !lock.owners.contains(&owner) {
            lock.owners.push(owner);
        }
        waits.remove(&owner);
        woken.push(waker);
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
    fn a_lock_is_shared_until_it_is_taken_alone() -> Result<()> {
        let (locks, waker) = (Locks::default(), Waker::noop());
        assert!(locks.share(1, &key(0), waker)? && locks.share(2, &key(0), waker)?);
        assert!(!locks.acquire(3, &key(0), waker)?);
        assert!(!locks.share(4, &key(0), waker)?, "the one before it is not passed");
        locks.release(1, [key(0)].into());
        assert!(!locks.is_granted(3));
        locks.release(2, [key(0)].into());
        assert!(locks.is_granted(3) && !locks.is_granted(4));
        locks.release(3, [key(0)].into());
        assert!(locks.is_granted(4) && locks.share(5, &key(0), waker)?);
        // Of two that share it, only one can wait for it alone.
        assert!(!locks.acquire(4, &key(0), waker)?);
        let found = locks.acquire(5, &key(0), waker).expect_err("each would wait for the other");
        assert_eq!(found.state(), SqlState::DEADLOCK_DETECTED);
        locks.release(5, [key(0)].into());
        assert!(locks.is_granted(4) && locks.acquire(4, &key(0), waker)?);
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
