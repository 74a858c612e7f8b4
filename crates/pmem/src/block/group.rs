//! The open commit group: flushed lines, copied at flush time, in shards.
//!
//! **Why copies are made under a lock per line.** Two threads may flush one line in the same group. If each copied into
//! a buffer of its own, either copy could miss the other thread's store. The later copy would then lose a fenced store.
//! Here the copier holds the shard's lock. The second copier sees everything that the first one saw, so the later copy
//! always replaces the earlier.
//!
//! **Why a line never lands in an earlier group than a line it depends on.** A flush copies the line first. Then it
//! reads the number of the open group. Both happen under the shard's lock:
//!
//! 1. Let line B contain a value that its writer stored after fencing line A, and let A have joined group g.
//! 2. A's flusher read "g is open" before the fence, so before B's value was stored.
//! 3. A copy of B with that value was loaded (acquire) after it was stored; the number read after the copy is >= g.
//!
//! So B's copy joins g or a later group: a line that depends on A never lands in an earlier group than A.
//!
//! **Why closing loses nothing.** The committer first opens group g+1, then takes the shards of g one by one under
//! their locks. A flusher that read g holds its shard's lock until the copy is in, so the committer waits for it. A
//! flusher that locks the shard after the committer took it reads at least g+1.
//!
//! Invariants: two groups exist at a time (the open one and the one being collected), told apart by parity; within a
//! group a line occurs once.

use crossbeam_utils::CachePadded;
use lodestone_width::to_usize;

use super::areas::{self, Areas};
use super::record::Record;
use crate::addr::{LINE_BYTES, LineAddr, PmAddr};
use crate::memory::Memory;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, interleave, lock};

/// Number of shards; a power of two.
const SHARDS: usize = 16;
/// Slots in the table "which group flushed this line last"; a power of two, a multiple of the shards.
#[cfg(not(feature = "shuttle"))]
const RECENT_SLOTS: usize = 1 << 16;
#[cfg(feature = "shuttle")]
const RECENT_SLOTS: usize = 1 << 6;

/// Lines of one group in one shard.
#[derive(Debug, Default)]
struct ShardLines {
    addrs: Vec<u64>,
    data: Vec<[u64; 8]>,
    /// Open-addressing table over `addrs`: 0 is empty, else index + 1. Used only when there are many lines.
    table: Vec<u32>,
}

/// Up to this many lines a linear search is faster than a table.
const LINEAR_LINES_MAX: usize = 16;

impl ShardLines {
    fn position(&self, addr: u64) -> Option<usize> {
        if self.table.is_empty() {
            return self.addrs.iter().position(|found| *found == addr);
        }
        let mask = self.table.len() - 1;
        let mut slot = to_usize(hash(addr)) & mask;
        while self.table[slot] != 0 {
            let index = to_usize(self.table[slot]) - 1;
            if self.addrs[index] == addr {
                return Some(index);
            }
            slot = (slot + 1) & mask;
        }
        None
    }

    /// Stores the copy; `true` when the line is new in the group.
    fn put(&mut self, addr: u64, words: [u64; 8]) -> bool {
        if let Some(index) = self.position(addr) {
            self.data[index] = words;
            return false;
        }
        self.addrs.push(addr);
        self.data.push(words);
        if self.addrs.len() > LINEAR_LINES_MAX {
            if self.table.len() < self.addrs.len() * 2 {
                self.rebuild_table();
            } else {
                insert(&mut self.table, addr, self.addrs.len());
            }
        }
        true
    }

    fn rebuild_table(&mut self) {
        self.table = vec![0; (self.addrs.len() * 4).next_power_of_two()];
        for (index, addr) in self.addrs.iter().enumerate() {
            insert(&mut self.table, *addr, index + 1);
        }
    }

    fn clear(&mut self) {
        self.addrs.clear();
        self.data.clear();
        self.table.clear();
    }
}

fn insert(table: &mut [u32], addr: u64, index_plus_one: usize) {
    let mask = table.len() - 1;
    let mut slot = to_usize(hash(addr)) & mask;
    while table[slot] != 0 {
        slot = (slot + 1) & mask;
    }
    table[slot] = u32::try_from(index_plus_one).unwrap_or(u32::MAX);
}

fn hash(addr: u64) -> u64 {
    (addr / LINE_BYTES).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20
}

/// The result of a flush of one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Joined {
    /// It is in the group with this number.
    Group(u64),
    /// Its shard of this group is full: commit that group, then flush again.
    Full(u64),
}

/// The open group and the one being collected.
#[derive(Debug)]
pub(crate) struct Groups {
    open: CachePadded<AtomicU64>,
    shards: Box<[CachePadded<Mutex<[ShardLines; 2]>>]>,
    shard_lines_max: usize,
    recent: Box<[AtomicU64]>,
    areas: Areas,
}

impl Groups {
    /// Starts with `first` as the open group; no group ever has more than `lines_max` lines.
    pub(crate) fn new(first: u64, lines_max: u64) -> Self {
        Self {
            open: CachePadded::new(AtomicU64::new(first)),
            shards: (0..SHARDS).map(|_| CachePadded::new(Mutex::default())).collect(),
            // One half for flushed lines, one for log areas.
            shard_lines_max: usize::try_from(lines_max / 2).unwrap_or(usize::MAX) / SHARDS,
            recent: (0..RECENT_SLOTS).map(|_| AtomicU64::new(0)).collect(),
            areas: Areas::new(lines_max / 2),
        }
    }

    /// Number of the open group.
    pub(crate) fn open_group(&self) -> u64 {
        self.open.load(Ordering::Acquire)
    }

    /// Copies `line` into the open group.
    #[inline]
    pub(crate) fn join(&self, memory: &Memory, line: LineAddr) -> Joined {
        let addr = line.start().to_raw();
        let hash = to_usize(hash(addr));
        let mut shard = lock(&self.shards[hash % SHARDS]);
        // First the copy, then the number: see the module's argument.
        let words = memory.raw_line(line);
        interleave();
        let group = self.open.load(Ordering::Acquire);
        let lines = &mut shard[to_usize(group % 2)];
        let is_full = lines.addrs.len() >= self.shard_lines_max && lines.position(addr).is_none();
        if is_full || self.areas.has(line, group) {
            return Joined::Full(group);
        }
        lines.put(addr, words);
        // Guarded by the shard's lock: slots of `recent` are divided among the shards in the same way as lines.
        self.recent[hash % RECENT_SLOTS].store(group, Ordering::Release);
        Joined::Group(group)
    }

    /// Notes that `line` was flushed and is in no group, because `group`, which was full, is never committed.
    pub(crate) fn leave_out(&self, line: LineAddr, group: u64) {
        let hash = to_usize(hash(line.start().to_raw()));
        let _shard = lock(&self.shards[hash % SHARDS]);
        self.recent[hash % RECENT_SLOTS].fetch_max(group, Ordering::AcqRel);
    }

    /// As [`leave_out`](Self::leave_out), for a run that begins at `at`.
    pub(crate) fn leave_out_area(&self, at: PmAddr, bytes: u64, group: u64) {
        self.areas.leave_out(at, bytes, group);
    }

    /// Puts a run of a log area into the open group: see [`areas`].
    pub(crate) fn join_area(&self, at: PmAddr, bytes: &[u8]) -> Joined {
        self.areas.join(&self.open, at, bytes)
    }

    /// Most bytes of a run that joins at once.
    pub(crate) fn area_bytes_max(&self) -> usize {
        self.areas.bytes_max()
    }

    /// The newest group that holds `line`, or a later one (lines share slots); 0 when there was none.
    pub(crate) fn last_group(&self, line: LineAddr) -> u64 {
        let flushed = self.recent[to_usize(hash(line.start().to_raw())) % RECENT_SLOTS].load(Ordering::Acquire);
        flushed.max(self.areas.last_group(line))
    }

    /// Whether the open group has lines.
    pub(crate) fn is_dirty(&self) -> bool {
        self.is_used(self.open_group())
    }

    fn is_used(&self, group: u64) -> bool {
        let side = to_usize(group % 2);
        self.shards.iter().any(|shard| !lock(shard)[side].addrs.is_empty()) || self.areas.is_used(group)
    }

    /// Whether the open group has such a line.
    pub(crate) fn any(&self, is_such: impl Fn(LineAddr) -> bool) -> bool {
        let group = self.open_group();
        let side = to_usize(group % 2);
        let line = |addr: &u64| PmAddr::from_raw(*addr).line();
        self.shards.iter().any(|shard| lock(shard)[side].addrs.iter().map(line).any(&is_such))
            || self.areas.any(group, is_such)
    }

    /// The newest group that has lines: every line that any thread has flushed is in it or in an earlier one.
    pub(crate) fn newest_used(&self) -> u64 {
        let group = self.open_group();
        // A group that is being closed loses its lines to the committer; the number moves before that.
        if self.is_used(group) || self.open_group() != group { group } else { group - 1 }
    }

    /// Closes the open group and moves its lines to `record`. One caller at a time.
    pub(crate) fn close(&self, record: &mut Record) -> u64 {
        let group = self.open.load(Ordering::Relaxed);
        self.open.store(group + 1, Ordering::SeqCst);
        for shard in &self.shards {
            interleave();
            let mut shard = lock(shard);
            let lines = &mut shard[to_usize(group % 2)];
            lines.addrs.iter().zip(&lines.data).for_each(|(addr, words)| record.push(*addr, words));
            lines.clear();
        }
        interleave();
        // After the shards: a flusher that still joins this group finds its line here, if a run has it.
        let runs = self.areas.take(group);
        // Both have a line that was flushed first and appended then.
        record.drop_lines(|line| areas::covers(&runs, line));
        areas::lines(&runs).for_each(|(line, bytes)| record.push_bytes(line, bytes));
        group
    }
}

/// The shard of a line.
#[cfg(all(test, feature = "shuttle"))]
pub(super) fn shard_of(line: LineAddr) -> usize {
    to_usize(hash(line.start().to_raw())) % SHARDS
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::block::record::Life;
    use crate::error::Result;

    #[test]
    fn a_line_occurs_once_with_its_latest_copy_and_groups_are_bounded() -> Result<()> {
        let memory = Memory::anonymous(1 << 20)?;
        let groups = Groups::new(9, 16 * 40);
        let mut joined = 0;
        for round in 1..=2 {
            for line in 0..400 {
                let at = PmAddr::new(0, line * 64);
                memory.store(at, round * 1000 + line);
                if groups.join(&memory, at.line()) == Joined::Group(9) {
                    joined += 1;
                }
            }
        }
        let mut record = Record::default();
        assert_eq!(groups.close(&mut record), 9);
        record.seal(&Life::default(), 0, 9);
        let lines: BTreeMap<u64, u8> =
            record.entries().map(|(line, bytes)| (line.start().to_raw(), bytes[0])).collect();
        assert_eq!(lines.len() as u64, record.lines());
        assert_eq!(joined, 2 * lines.len());
        assert!(lines.len() <= 16 * 40);
        assert!(lines.iter().all(|(addr, byte)| u64::from(*byte) == (2000 + addr / 64) % 256));
        assert_eq!(groups.open_group(), 10);
        Ok(())
    }
}
