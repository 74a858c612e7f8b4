//! Locks of files between mounts: the table, and how a lock of a range replaces others of its owner.
//!
//! An owner is a mount and a number that its kernel gives. A lock for writing excludes all locks of other owners in its
//! range, one for reading those for writing. A lock that an owner takes replaces what it had in the range, as POSIX
//! says; `flock` is a lock of the whole file.
//!
//! The metadata node has the table of all mounts, in memory. Each mount has one of its own locks, and tells them to the
//! next metadata node. For [`GRACE`] after a takeover nothing new is granted: mounts that had locks come first. A mount
//! that was away while another one may have had a lock in between does not get its own back, also if it is free now.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use crate::bytes::{Reader, Writer};

/// How long after a takeover no new lock is granted; not longer than a fourth of the lease of mounts.
pub(crate) const GRACE: Duration = Duration::from_secs(5);
/// Most locks of a file, of all owners.
const LOCKS_MAX: usize = 1 << 16;

/// A lock of a range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLock {
    /// The number of the owner in its mount.
    pub owner: u64,
    /// The first byte.
    pub start: u64,
    /// The last byte.
    pub end: u64,
    /// Whether it excludes those for reading, too.
    pub is_write: bool,
    /// The process that took it, on the machine of its mount.
    pub pid: u32,
}

impl FileLock {
    pub(crate) fn write(&self, out: &mut Writer) {
        out.u64(self.owner).u64(self.start).u64(self.end).u8(self.is_write.into()).u32(self.pid);
    }

    pub(crate) fn read(from: &mut Reader<'_>) -> Option<Self> {
        let (owner, start, end) = (from.u64()?, from.u64()?, from.u64()?);
        let is_write = from.u8().filter(|byte| *byte < 2)? == 1;
        let pid = from.u32()?;
        (start <= end).then_some(Self { owner, start, end, is_write, pid })
    }

    const fn meets(&self, start: u64, end: u64) -> bool {
        self.start <= end && start <= self.end
    }
}

/// How an attempt to lock ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Locked {
    /// The lock is there, or the range is free.
    Done,
    /// Another owner has a lock.
    Conflict,
    /// Not yet known: a takeover was a moment ago, or the request was late.
    Again,
    /// The file has too many locks.
    Full,
    /// Another owner has a lock, and waits for one of this owner: waiting would never end.
    Deadlock,
}

impl Locked {
    const ALL: [Self; 5] = [Self::Done, Self::Conflict, Self::Again, Self::Full, Self::Deadlock];

    /// Its number on the wire.
    pub(crate) const fn code(self) -> u64 {
        match self {
            Self::Done => 0,
            Self::Conflict => 1,
            Self::Again => 2,
            Self::Full => 3,
            Self::Deadlock => 4,
        }
    }

    pub(crate) fn of_code(code: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.code() == code)
    }
}

/// Locks of files, each with its mount.
#[derive(Clone, Debug, Default)]
pub(crate) struct Locks {
    files: HashMap<u64, Vec<(u64, FileLock)>>,
}

impl Locks {
    /// A lock of another owner that excludes `wanted`.
    pub(crate) fn conflict(&self, ino: u64, mount: u64, wanted: &FileLock) -> Option<FileLock> {
        self.conflicts(ino, mount, wanted).next().map(|(_, lock)| *lock)
    }

    /// The owners of all locks that exclude `wanted`.
    pub(crate) fn excluding(&self, ino: u64, mount: u64, wanted: &FileLock) -> Vec<(u64, u64)> {
        self.conflicts(ino, mount, wanted).map(|(other, lock)| (*other, lock.owner)).collect()
    }

    fn conflicts<'l>(
        &'l self,
        ino: u64,
        mount: u64,
        wanted: &'l FileLock,
    ) -> impl Iterator<Item = &'l (u64, FileLock)> {
        self.files.get(&ino).into_iter().flatten().filter(move |(other, lock)| {
            (*other, lock.owner) != (mount, wanted.owner)
                && lock.meets(wanted.start, wanted.end)
                && (lock.is_write || wanted.is_write)
        })
    }

    /// Takes a lock, if no other owner has one that excludes it.
    pub(crate) fn take(&mut self, ino: u64, mount: u64, wanted: FileLock) -> Locked {
        if self.conflict(ino, mount, &wanted).is_some() {
            return Locked::Conflict;
        }
        if self.files.get(&ino).is_some_and(|locks| locks.len() + 2 > LOCKS_MAX) {
            return Locked::Full;
        }
        self.free(ino, mount, (wanted.owner, wanted.start, wanted.end));
        let locks = self.files.entry(ino).or_default();
        // Neighbours of the same kind become one.
        let mut whole = wanted;
        locks.retain(|(other, lock)| {
            let is_own = (*other, lock.owner, lock.is_write) == (mount, wanted.owner, wanted.is_write);
            let touches = lock.end.checked_add(1) == Some(whole.start) || whole.end.checked_add(1) == Some(lock.start);
            if is_own && touches {
                (whole.start, whole.end) = (whole.start.min(lock.start), whole.end.max(lock.end));
            }
            !(is_own && touches)
        });
        locks.push((mount, whole));
        Locked::Done
    }

    /// Frees what an owner has in a range. A lock around it becomes two.
    pub(crate) fn free(&mut self, ino: u64, mount: u64, (owner, start, end): (u64, u64, u64)) {
        let Some(locks) = self.files.get_mut(&ino) else { return };
        let mut rests = Vec::new();
        locks.retain(|(other, lock)| {
            let is_cut = (*other, lock.owner) == (mount, owner) && lock.meets(start, end);
            if is_cut {
                let before = (lock.start < start).then(|| FileLock { end: start.saturating_sub(1), ..*lock });
                let after = (lock.end > end).then(|| FileLock { start: end.saturating_add(1), ..*lock });
                rests.extend(before.into_iter().chain(after).map(|rest| (mount, rest)));
            }
            !is_cut
        });
        locks.extend(rests);
        if locks.is_empty() {
            self.files.remove(&ino);
        }
    }

    /// Frees everything that a mount has.
    pub(crate) fn free_mount(&mut self, mount: u64) {
        self.files.retain(|_, locks| {
            locks.retain(|(other, _)| *other != mount);
            !locks.is_empty()
        });
    }

    /// All locks, by file.
    pub(crate) fn all(&self) -> Vec<(u64, FileLock)> {
        let all: BTreeMap<u64, &Vec<(u64, FileLock)>> = self.files.iter().map(|(ino, locks)| (*ino, locks)).collect();
        all.into_iter().flat_map(|(ino, locks)| locks.iter().map(move |(_, lock)| (ino, *lock))).collect()
    }

    /// Whether an owner has a lock of a file.
    pub(crate) fn has(&self, ino: u64, owner: u64) -> bool {
        self.files.get(&ino).is_some_and(|locks| locks.iter().any(|(_, lock)| lock.owner == owner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lodestone_width::to_usize;

    /// Random locks against a table with an entry for each byte and owner.
    #[test]
    fn locks_are_those_of_a_table_of_bytes() {
        let (bytes, owners) = (12_u64, 3_u64);
        for seed in 1..200_u64 {
            let (mut locks, mut plain) = (Locks::default(), vec![vec![0_u8; 12]; 6]);
            let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
            let mut below = |limit: u64| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 11) % limit
            };
            for _ in 0..60 {
                let (mount, owner, start) = (below(2), below(owners), below(bytes));
                let (end, kind) = (start + below(bytes - start), below(3));
                let wanted = FileLock { owner, start, end, is_write: kind == 2, pid: 0 };
                let own = to_usize(mount * owners + owner);
                let range = to_usize(start)..=to_usize(end);
                let others = plain.iter().enumerate().filter(|(other, _)| *other != own);
                let excluded = kind > 0
                    && others
                        .flat_map(|(_, line)| &line[range.clone()])
                        .any(|held| *held == 2 || (*held == 1 && kind == 2));
                assert_eq!(locks.conflict(7, mount, &wanted).is_some() && kind > 0, excluded, "seed {seed}");
                if kind == 0 {
                    locks.free(7, mount, (owner, start, end));
                } else {
                    let expected = if excluded { Locked::Conflict } else { Locked::Done };
                    assert_eq!(locks.take(7, mount, wanted), expected, "seed {seed}");
                }
                if !excluded {
                    plain[own][range].fill(u8::try_from(kind).expect("small"));
                }
                let mut found = vec![vec![0_u8; 12]; 6];
                for (mount, lock) in locks.files.get(&7).into_iter().flatten() {
                    let line = &mut found[to_usize(mount * owners + lock.owner)];
                    let held = &mut line[to_usize(lock.start)..=to_usize(lock.end)];
                    assert!(held.iter().all(|byte| *byte == 0), "seed {seed}: a byte is locked twice by one owner");
                    held.fill(if lock.is_write { 2 } else { 1 });
                }
                assert_eq!(found, plain, "seed {seed}");
            }
            locks.free_mount(0);
            assert!(locks.all().iter().all(|(_, lock)| locks.has(7, lock.owner)));
            locks.free_mount(1);
            assert!(locks.files.is_empty());
        }
    }
}
