//! Who waits for a lock: a circle of owners that wait for each other would never end.
//!
//! 1. A mount asks for a lock that a program waits for again and again, and says that it waits. The metadata node keeps
//!    that for [`LIFE`]: a program that was killed, or whose mount is gone, waits no longer.
//! 2. With each of these requests that another owner's lock excludes, it follows the owners: from those that exclude it
//!    to those that exclude what they wait for. If that leads back, the request is refused with `EDEADLK`, and the
//!    others wait on.
//!
//! Who excludes whom is always taken from the table of locks as it is now. So a wait that has ended a moment ago closes
//! no circle.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use super::locks::{FileLock, Locks};

/// A mount, and the number that its kernel gives.
type Owner = (u64, u64);

/// How long an owner waits that does not say so again.
const LIFE: Duration = Duration::from_secs(2);
/// Owners whose waits are kept. With more, circles of the others are not found.
const OWNERS_MAX: usize = 4096;
/// Waits of an owner: its threads may wait for several locks.
const WAITS_MAX: usize = 16;
/// Owners of a circle, at most: so a request takes no longer however many wait.
const CIRCLE_MAX: usize = 256;

#[derive(Debug)]
struct Wait {
    ino: u64,
    lock: FileLock,
    asked: Instant,
}

impl Wait {
    fn is_for(&self, ino: u64, lock: &FileLock) -> bool {
        (self.ino, self.lock) == (ino, *lock)
    }
}

/// Owners that wait for locks.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    owners: HashMap<Owner, Vec<Wait>>,
    /// When late ones were forgotten for the last time, because there were too many.
    made_room: Option<Instant>,
}

impl Waits {
    /// Notes that a mount waits for a lock. `false`: it would wait for ever, and does not.
    pub(crate) fn begin(&mut self, locks: &Locks, mount: u64, ino: u64, lock: FileLock, now: Instant) -> bool {
        self.end(mount, ino, &lock);
        if self.closes_a_circle(locks, mount, ino, &lock, now) {
            return false;
        }
        let is_due = self.made_room.is_none_or(|at| now.saturating_duration_since(at) >= LIFE / 4);
        if self.owners.len() >= OWNERS_MAX && is_due {
            self.made_room = Some(now);
            self.forget_late(now);
        }
        if self.owners.len() < OWNERS_MAX || self.owners.contains_key(&(mount, lock.owner)) {
            let waits = self.owners.entry((mount, lock.owner)).or_default();
            if waits.len() < WAITS_MAX {
                waits.push(Wait { ino, lock, asked: now });
            }
        }
        true
    }

    /// A mount does not wait for a lock any more.
    pub(crate) fn end(&mut self, mount: u64, ino: u64, lock: &FileLock) {
        let owner = (mount, lock.owner);
        let Some(waits) = self.owners.get_mut(&owner) else { return };
        waits.retain(|wait| !wait.is_for(ino, lock));
        if waits.is_empty() {
            self.owners.remove(&owner);
        }
    }

    /// A mount is gone.
    pub(crate) fn forget_mount(&mut self, mount: u64) {
        self.owners.retain(|(of, _), _| *of != mount);
    }

    /// Forgets those that have not said for long that they wait.
    pub(crate) fn forget_late(&mut self, now: Instant) {
        self.owners.retain(|_, waits| {
            waits.retain(|wait| now.saturating_duration_since(wait.asked) < LIFE);
            !waits.is_empty()
        });
    }

    fn closes_a_circle(&self, locks: &Locks, mount: u64, ino: u64, lock: &FileLock, now: Instant) -> bool {
        let (mut open, mut seen) = (locks.excluding(ino, mount, lock), HashSet::new());
        while let Some(owner) = open.pop() {
            if owner == (mount, lock.owner) {
                return true;
            }
            if !seen.insert(owner) || seen.len() > CIRCLE_MAX {
                continue;
            }
            let waits = self.owners.get(&owner).into_iter().flatten();
            for wait in waits.filter(|wait| now.saturating_duration_since(wait.asked) < LIFE) {
                open.extend(locks.excluding(wait.ino, owner.0, &wait.lock));
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::remote::locks::Locked;

    fn lock(owner: u64, start: u64, is_write: bool) -> FileLock {
        FileLock { owner, start, end: start, is_write, pid: 0 }
    }

    #[test]
    fn the_wait_that_would_close_a_circle_is_refused() {
        let (mut locks, mut waits, now) = (Locks::default(), Waits::default(), Instant::now());
        // Owners of two mounts, some with the same number. Each has the byte of its place in one file or another.
        let owners: [Owner; 4] = [(1, 1), (1, 2), (2, 1), (2, 2)];
        let place = |at: usize| (7 + at as u64 % 2, at as u64);
        for (at, (mount, owner)) in owners.into_iter().enumerate() {
            assert_eq!(locks.take(place(at).0, mount, lock(owner, place(at).1, true)), Locked::Done);
        }
        let wait = |waits: &mut Waits, locks: &Locks, who: usize, of: usize, now| {
            let ((mount, owner), (ino, byte)) = (owners[who], place(of));
            waits.begin(locks, mount, ino, lock(owner, byte, false), now)
        };
        assert!(wait(&mut waits, &locks, 0, 1, now) && wait(&mut waits, &locks, 1, 2, now));
        assert!(wait(&mut waits, &locks, 2, 3, now), "a chain is no circle");
        assert!(wait(&mut waits, &locks, 0, 1, now), "it says again that it waits");
        assert!(!wait(&mut waits, &locks, 3, 0, now), "a circle of four");
        assert!(!wait(&mut waits, &locks, 3, 1, now) && !wait(&mut waits, &locks, 3, 2, now), "smaller ones");
        assert!(wait(&mut waits, &locks, 2, 3, now), "the others wait on");
        // An owner may wait for several locks: one way is enough.
        assert!(wait(&mut waits, &locks, 1, 3, now) && !wait(&mut waits, &locks, 3, 0, now));
        // One that has not said so for long waits no longer, nor one whose lock is free, nor a mount that is gone.
        assert!(wait(&mut waits, &locks, 3, 0, now + LIFE));
        let mut waits = Waits::default();
        assert!(wait(&mut waits, &locks, 0, 2, now));
        locks.free(place(2).0, 2, (1, 0, 99));
        assert!(wait(&mut waits, &locks, 2, 0, now), "the first one gets its lock when it asks again");
        let mut waits = Waits::default();
        assert!(wait(&mut waits, &locks, 0, 1, now) && !wait(&mut waits, &locks, 1, 0, now));
        waits.forget_mount(1);
        assert!(wait(&mut waits, &locks, 1, 0, now));
    }

    #[test]
    fn two_readers_that_both_want_to_write_are_a_circle() {
        let (mut locks, mut waits, now) = (Locks::default(), Waits::default(), Instant::now());
        [1, 2].iter().for_each(|mount| _ = locks.take(7, *mount, lock(1, 0, false)));
        assert!(waits.begin(&locks, 1, 7, lock(1, 0, true), now));
        assert!(!waits.begin(&locks, 2, 7, lock(1, 0, true), now));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let (mut locks, mut waits, now) = (Locks::default(), Waits::default(), Instant::now());
        _ = locks.take(7, 1, FileLock { end: u64::MAX, ..lock(0, 0, true) });
        for owner in 0..10_000 {
            for byte in 0..3 {
                assert!(waits.begin(&locks, 2, 7, lock(owner, byte, true), now));
            }
        }
        for byte in 0..100 {
            assert!(waits.begin(&locks, 2, 7, lock(0, byte, true), now));
        }
        assert_eq!((waits.owners.len(), waits.owners[&(2, 0)].len()), (OWNERS_MAX, WAITS_MAX));
        assert!(waits.begin(&locks, 3, 7, lock(1, 0, true), now + LIFE));
        assert_eq!(waits.owners.len(), 1, "late ones make room");
    }
}
