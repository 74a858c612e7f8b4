//! The locks of files that a mount has.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use lodestone_pmem::sync::lock;

use super::calls::{Call, HowToLock, Value};
use super::client::{RemoteVolume, Shared, unexpected, value};
use super::locks::{FileLock, Locked, Locks};
use super::mounts::may_have_lost;
use crate::bytes::Reader;
use crate::error::Result;
use crate::patience::Wait;

/// Pause before a lock is asked for again that is not decided yet.
const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// The locks that the mount has.
#[derive(Debug, Default)]
pub(super) struct Held {
    pub(super) locks: Locks,
    /// Counts how often they were told to a metadata node.
    pub(super) told: u64,
    /// The last request for a lock.
    pub(super) serial: u64,
    /// The term of the metadata node that knew the mount last, and when that was, at least.
    pub(super) known: Option<(u32, Instant)>,
    /// Files of which locks were lost: another mount has them. They are not used before they are closed.
    pub(super) lost: HashSet<u64>,
}

impl Shared {
    /// The locks that the mount has still, for the metadata node of a term.
    pub(super) fn locks_to_tell(&self, term: u32) -> Vec<(u64, FileLock)> {
        let lease = Duration::from_millis(self.lease_ms.load(Ordering::Acquire));
        let mut held = lock(&self.held);
        held.told += 1;
        let locks = held.locks.all();
        match held.known {
            Some((known, at)) if may_have_lost(known, term, at.elapsed(), lease) && !locks.is_empty() => {
                tracing::error!("this mount was away for too long: its locks are lost, and their files are not used");
                held.locks.free_mount(0);
                held.lost.extend(locks.into_iter().map(|(ino, _)| ino));
                Vec::new()
            }
            _ => locks,
        }
    }

    /// Notes which of the locks that were told are those of another mount now.
    pub(super) fn lose_locks(&self, told: &[(u64, FileLock)], answer: &mut Reader<'_>) {
        for _ in 0..answer.u32().unwrap_or_default() {
            let place = answer.u32().map(lodestone_width::to_usize);
            let Some((ino, gone)) = place.and_then(|place| told.get(place)) else { return };
            tracing::error!("file {ino}: a lock was lost, as this mount was away for too long: the file is not used");
            let mut held = lock(&self.held);
            held.locks.free(*ino, 0, (gone.owner, gone.start, gone.end));
            held.lost.insert(*ino);
        }
    }

    /// Refuses a file of which a lock was lost: its users rely on it.
    pub(super) fn check_locks(&self, ino: u64) -> Result<()> {
        if lock(&self.held).lost.contains(&ino) { Err(crate::error::Refusal::Stale.into()) } else { Ok(()) }
    }
}

#[expect(clippy::missing_errors_doc, reason = "each fails when no metadata node carries it out")]
impl RemoteVolume {
    /// Takes a lock of a range, which replaces what its owner has there. `false`: another owner has one that excludes
    /// it.
    /// A mount that is silent for its lease loses its locks; it cannot write to these files then before it has closed
    /// them.
    pub fn lock(&self, ino: u64, wanted: FileLock) -> Result<bool> {
        self.ask_for_lock(ino, wanted, HowToLock::Try)
    }

    /// As [`lock`](Self::lock), for a program that waits for it. If it gets `false` it asks again within a second.
    ///
    /// # Errors
    /// [`Refusal::Deadlock`](crate::Refusal::Deadlock): the owner of the lock waits for one of this owner, so waiting
    /// would never end.
    pub fn wait_lock(&self, ino: u64, wanted: FileLock) -> Result<bool> {
        self.ask_for_lock(ino, wanted, HowToLock::Wait)
    }

    fn ask_for_lock(&self, ino: u64, wanted: FileLock, how: HowToLock) -> Result<bool> {
        let mut wait = Wait::begin(self.shared.options.patience);
        let mut was_taken = false;
        loop {
            self.shared.check_locks(ino)?;
            let (serial, told) = {
                let mut held = lock(&self.shared.held);
                held.serial += 1;
                (held.serial, held.told)
            };
            let answer = value!(self.call(&Call::Lock { ino, serial, lock: wanted, how }), Number)?;
            match Locked::of_code(answer) {
                Some(Locked::Done) => {
                    let mut held = lock(&self.shared.held);
                    _ = held.locks.take(ino, 0, wanted);
                    if held.told == told {
                        return Ok(true);
                    }
                    // The next metadata node was told the locks without this one: it is asked, too.
                    was_taken = true;
                }
                Some(outcome @ (Locked::Conflict | Locked::Deadlock)) => {
                    if was_taken {
                        let range = (wanted.owner, wanted.start, wanted.end);
                        lock(&self.shared.held).locks.free(ino, 0, range);
                    }
                    let is_circle = outcome == Locked::Deadlock;
                    return if is_circle { Err(crate::error::Refusal::Deadlock.into()) } else { Ok(false) };
                }
                Some(Locked::Full) => return Err(crate::error::Refusal::NoLocks.into()),
                _ if !wait.goes_on(&|| "locks are granted soon after a takeover".to_owned())? => return Ok(false),
                _ => std::thread::sleep(LOCK_PAUSE),
            }
        }
    }

    /// Frees what an owner has in a range.
    pub fn unlock(&self, ino: u64, owner: u64, start: u64, end: u64) -> Result<()> {
        let freed = FileLock { owner, start, end, is_write: false, pid: 0 };
        loop {
            let serial = {
                let mut held = lock(&self.shared.held);
                held.locks.free(ino, 0, (owner, start, end));
                held.serial += 1;
                held.serial
            };
            let call = Call::Lock { ino, serial, lock: freed, how: HowToLock::Free };
            let answer = value!(self.call(&call), Number)?;
            if Locked::of_code(answer) != Some(Locked::Again) {
                return Ok(());
            }
        }
    }

    /// Frees everything that an owner has in a file, if it has something.
    pub fn unlock_owner(&self, ino: u64, owner: u64) -> Result<()> {
        if lock(&self.shared.held).locks.has(ino, owner) { self.unlock(ino, owner, 0, u64::MAX) } else { Ok(()) }
    }

    /// A lock of another owner that excludes this one.
    pub fn find_lock(&self, ino: u64, wanted: FileLock) -> Result<Option<FileLock>> {
        value!(self.call(&Call::FindLock { ino, lock: wanted }), Lock)
    }
}
