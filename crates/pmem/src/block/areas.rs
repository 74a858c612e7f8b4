//! Log areas in a commit group: runs of whole lines that one thread appends and does not change until they are
//! discarded.
//!
//! A line that is flushed costs a lock and a search. A run costs one lock and one search, however long it is. Runs that
//! touch are kept as one. A run holds a copy of its bytes, which the appending thread made itself: no other thread
//! stores there.
//!
//! The argument of [`group`](super::group) holds for runs as it does for lines. A run is stored before its lock is
//! taken. Then the number of the open group is read, and the run joins that group, both under the lock. The committer
//! opens the next group before it takes the runs under the same lock.
//!
//! Invariant: within a group no line of a run occurs twice. A run that overlaps another one, and a flush of a line that
//! a run has, wait for the next group: so the order of two contents of a line is the order of their groups.

use std::collections::BTreeMap;
use std::ops::Range;

use lodestone_width::{to_u64, to_usize};

use super::group::Joined;
use crate::addr::{LINE_BYTES, LineAddr, PmAddr};
use crate::planted;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, interleave, lock};

/// Bytes of a place in the table "which group appended here last".
const PLACE_BYTES: u64 = 4096;
/// Slots of that table; a power of two.
#[cfg(not(feature = "shuttle"))]
const RECENT_SLOTS: usize = 1 << 12;
#[cfg(feature = "shuttle")]
const RECENT_SLOTS: usize = 1 << 4;

/// Runs of one group, by their first address.
pub(super) type Runs = BTreeMap<u64, Vec<u8>>;

#[derive(Debug, Default)]
struct Side {
    runs: Runs,
    bytes: u64,
}

impl Side {
    fn put(&mut self, at: u64, bytes: &[u8]) {
        self.bytes += to_u64(bytes.len());
        if let Some((start, run)) = self.runs.range_mut(..at).next_back()
            && start + to_u64(run.len()) == at
        {
            run.extend_from_slice(bytes);
        } else {
            self.runs.insert(at, bytes.to_vec());
        }
    }
}

/// The runs of the open group and of the one being collected.
#[derive(Debug)]
pub(super) struct Areas {
    sides: Mutex<[Side; 2]>,
    bytes_max: u64,
    /// Stored under the lock.
    recent: Box<[AtomicU64]>,
}

impl Areas {
    /// No group ever has more than `lines_max` lines in runs.
    pub(super) fn new(lines_max: u64) -> Self {
        Self {
            sides: Mutex::default(),
            bytes_max: lines_max * LINE_BYTES,
            recent: (0..RECENT_SLOTS).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Most bytes of a run that joins at once.
    pub(super) fn bytes_max(&self) -> usize {
        to_usize(self.bytes_max)
    }

    /// Puts `bytes`, which were stored at `at`, into the group that `open` has the number of.
    pub(super) fn join(&self, open: &AtomicU64, at: PmAddr, bytes: &[u8]) -> Joined {
        let too_early = planted::active("block-area-joins-late").then(|| open.load(Ordering::Acquire));
        interleave();
        let mut sides = lock(&self.sides);
        let group = too_early.unwrap_or_else(|| open.load(Ordering::Acquire));
        let (side, start) = (&mut sides[to_usize(group % 2)], at.to_raw());
        let range = start..start + to_u64(bytes.len());
        let is_full = side.bytes + to_u64(bytes.len()) > self.bytes_max;
        if is_full || overlaps(&side.runs, &range) {
            return Joined::Full(group);
        }
        side.put(start, bytes);
        self.note(&range, group);
        Joined::Group(group)
    }

    /// Notes that a run of `len` bytes at `at` is in no group, because `group`, which was full, is never committed.
    pub(super) fn leave_out(&self, at: PmAddr, len: u64, group: u64) {
        let _sides = lock(&self.sides);
        self.note(&(at.to_raw()..at.to_raw() + len), group);
    }

    /// Under the lock.
    fn note(&self, range: &Range<u64>, group: u64) {
        for place in range.start / PLACE_BYTES..=(range.end - 1) / PLACE_BYTES {
            self.slot(place).fetch_max(group, Ordering::AcqRel);
        }
    }

    /// Whether a run of `group`, which is open, has `line`.
    #[inline]
    pub(super) fn has(&self, line: LineAddr, group: u64) -> bool {
        let start = line.start().to_raw();
        // The thread that appended the line sees its own store here, and so does one that was told of the run.
        self.slot(start / PLACE_BYTES).load(Ordering::Acquire) >= group
            && covers(&lock(&self.sides)[to_usize(group % 2)].runs, line)
    }

    /// The newest group in which `line` was appended, or a later one (lines share slots); 0 when there was none.
    pub(super) fn last_group(&self, line: LineAddr) -> u64 {
        self.slot(line.start().to_raw() / PLACE_BYTES).load(Ordering::Acquire)
    }

    fn slot(&self, place: u64) -> &AtomicU64 {
        &self.recent[to_usize(place.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) % RECENT_SLOTS]
    }

    /// Whether `group` has runs.
    pub(super) fn is_used(&self, group: u64) -> bool {
        !lock(&self.sides)[to_usize(group % 2)].runs.is_empty()
    }

    /// Whether `group` has such a line.
    pub(super) fn any(&self, group: u64, is_such: impl Fn(LineAddr) -> bool) -> bool {
        lines(&lock(&self.sides)[to_usize(group % 2)].runs).any(|(line, _)| is_such(line))
    }

    /// Takes the runs of `group`, which is no longer open.
    pub(super) fn take(&self, group: u64) -> Runs {
        std::mem::take(&mut lock(&self.sides)[to_usize(group % 2)]).runs
    }
}

fn overlaps(runs: &Runs, range: &Range<u64>) -> bool {
    let before = runs.range(..range.end).next_back();
    before.is_some_and(|(start, bytes)| start + to_u64(bytes.len()) > range.start)
}

/// Whether a run has `line`.
pub(super) fn covers(runs: &Runs, line: LineAddr) -> bool {
    let start = line.start().to_raw();
    overlaps(runs, &(start..start + LINE_BYTES))
}

/// The lines of `runs` with their content.
pub(super) fn lines(runs: &Runs) -> impl Iterator<Item = (LineAddr, &[u8])> {
    runs.iter().flat_map(|(start, bytes)| {
        let starts = (*start..).step_by(to_usize(LINE_BYTES));
        starts.map(|start| PmAddr::from_raw(start).line()).zip(bytes.chunks_exact(to_usize(LINE_BYTES)))
    })
}
