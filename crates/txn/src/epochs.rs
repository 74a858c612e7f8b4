//! Snapshot epochs: which versions a long reader may see while other threads continue to commit.
//!
//! 1. A snapshot takes the present epoch and begins the next one. Only snapshots write the epoch word.
//! 2. A committer reads the epoch after it has marked all its objects "committing" and before it validates. Its
//!    versions belong to that epoch. Epochs change rarely, so a thread only notes the tick at which it first saw a new
//!    epoch (a transition). The epoch of a version follows from its writer and tick, and nothing is stored per version.
//! 3. A snapshot of epoch `s` sees exactly the versions of epochs up to `s`. Epochs never fall along a write-read,
//!    write-write or read-write dependency: validation comes after reading the epoch, and an overwriter marks before it
//!    reads the epoch. The set is therefore closed under dependencies, and the snapshot is a serializable cut.
//! 4. A snapshot is *active* from before its epoch ends until its guard is dropped. If it sees a version that is not
//!    the newest, a version of a later epoch superseded that one. A thread that overwrites such an old version has seen
//!    the later one. It has therefore seen the end of the snapshot's epoch, and so finds the snapshot active
//!    ([`Epochs::any_active`] is one relaxed load). [`Epochs::seen_between`] then tells it which versions to keep.
//!
//! Invariants:
//! - per thread, the epochs and ticks of the transitions rise;
//! - the first transition after the epoch of an active snapshot is never forgotten, so every question of an active
//!   snapshot has an answer. A thread remembers at most a constant number of transitions more than there are active
//!   snapshots.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use crossbeam_utils::CachePadded;
use lodestone_pmem::sync::atomic::{AtomicU64, Ordering, fence};
use lodestone_pmem::sync::{Mutex, lock};
use lodestone_pmem::{count_shared_rmws, planted};

use crate::tick::{Tick, Writer};

/// Transitions that a thread collects before it forgets those that no active snapshot needs.
#[cfg(not(feature = "shuttle"))]
const REMEMBERED: usize = 64;
#[cfg(feature = "shuttle")]
const REMEMBERED: usize = 2;

/// A thread saw a new epoch with the transaction of this tick.
#[derive(Clone, Copy, Debug)]
struct Transition {
    epoch: u64,
    first: Tick,
}

/// The ticks at which one thread first saw new epochs. Only that thread writes them.
#[derive(Debug, Default)]
struct Transitions {
    /// The newest epoch noted; stored after the entry.
    newest: AtomicU64,
    entries: Mutex<Vec<Transition>>,
}

impl Transitions {
    /// The tick of the thread's first version that is later than `epoch`; `None` if there is none yet.
    fn first_after(&self, epoch: u64) -> Option<Tick> {
        // A thread that saw a version also sees the transition that was noted before the version was published.
        if self.newest.load(Ordering::Acquire) <= epoch {
            return None;
        }
        let entries = lock(&self.entries);
        let number = entries.partition_point(|entry| entry.epoch <= epoch);
        entries.get(number).map(|entry| entry.first)
    }
}

/// The epoch word, the active snapshots and the transitions of all threads.
#[derive(Debug)]
pub struct Epochs {
    epoch: CachePadded<AtomicU64>,
    /// Epochs of the active snapshots. Locked when one begins or ends.
    active: Mutex<BTreeSet<u64>>,
    /// Oldest and newest active epoch; `u64::MAX` and 0 if there is none.
    bounds: CachePadded<(AtomicU64, AtomicU64)>,
    threads: Box<[CachePadded<Transitions>]>,
}

impl Epochs {
    /// No snapshots yet; room for `threads` thread ids.
    #[must_use]
    pub fn new(threads: u16) -> Self {
        Self {
            epoch: CachePadded::new(AtomicU64::new(1)),
            active: Mutex::new(BTreeSet::new()),
            bounds: CachePadded::new((AtomicU64::new(u64::MAX), AtomicU64::new(0))),
            threads: (0..threads).map(|_| CachePadded::new(Transitions::default())).collect(),
        }
    }

    /// The present epoch, which a committer reads after marking and before validating.
    #[must_use]
    #[inline]
    pub fn present(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Notes that the versions of `writer` from `tick` on belong to `epoch`. Call it before the first of them is
    /// published. It costs one comparison if the epoch did not change.
    #[inline]
    pub fn note(&self, writer: Writer, epoch: u64, tick: Tick) {
        // Relaxed: only the holder of the id writes it.
        if self.threads[writer.index()].newest.load(Ordering::Relaxed) != epoch {
            self.note_new(writer, epoch, tick);
        }
    }

    #[cold]
    fn note_new(&self, writer: Writer, epoch: u64, tick: Tick) {
        let thread = &self.threads[writer.index()];
        let is_full = lock(&thread.entries).len() >= REMEMBERED;
        // A snapshot that becomes active later has this epoch or a later one, so it needs none of the old entries.
        let active = if is_full { self.active() } else { Vec::new() };
        let mut entries = lock(&thread.entries);
        if is_full {
            let mut needed: Vec<usize> =
                active.iter().map(|&epoch| entries.partition_point(|entry| entry.epoch <= epoch)).collect();
            needed.dedup();
            let kept = needed.into_iter().filter_map(|number| entries.get(number).copied()).collect();
            *entries = kept;
        }
        entries.push(Transition { epoch, first: tick });
        thread.newest.store(epoch, Ordering::Release);
    }

    /// The tick of the first version of `writer` that is later than `epoch`; `None` if there is none yet. Once present,
    /// the answer stays the same while the snapshot of `epoch` is active.
    #[must_use]
    pub fn first_after(&self, writer: Writer, epoch: u64) -> Option<Tick> {
        self.threads.get(writer.index())?.first_after(epoch)
    }

    /// Whether the version that `writer` committed at `tick` in this life belongs to `epoch` or an earlier one. `epoch`
    /// must be that of an active snapshot.
    #[must_use]
    pub fn is_visible(&self, writer: Writer, tick: Tick, epoch: u64) -> bool {
        self.first_after(writer, epoch).is_none_or(|first| tick < first)
    }

    /// Begins a snapshot of everything committed up to now.
    #[must_use]
    pub fn begin(&self) -> SnapshotGuard<'_> {
        SnapshotGuard { epochs: self, epoch: self.open() }
    }

    /// As [`begin`](Self::begin), without a guard: the caller [closes](Self::close) the epoch that is returned.
    #[must_use]
    pub fn open(&self) -> u64 {
        count_shared_rmws(1);
        let mut active = lock(&self.active);
        // The epoch changes only under this lock.
        let epoch = self.epoch.load(Ordering::Relaxed);
        active.insert(epoch);
        if !planted::active("txn-active-late") {
            self.publish_bounds(&active);
        }
        // After the bounds: a thread that sees the later epoch also sees that this snapshot is active.
        self.epoch.fetch_add(1, Ordering::AcqRel);
        // A committer marks, then reads the epoch. A snapshot changes the epoch, then looks for marks. At least one of
        // them sees the other.
        fence(Ordering::SeqCst);
        if planted::active("txn-active-late") {
            lodestone_pmem::sync::interleave();
            self.publish_bounds(&active);
        }
        epoch
    }

    /// Ends the snapshot of `epoch`.
    pub fn close(&self, epoch: u64) {
        let mut active = lock(&self.active);
        active.remove(&epoch);
        self.publish_bounds(&active);
    }

    fn publish_bounds(&self, active: &BTreeSet<u64>) {
        self.bounds.0.store(active.first().copied().unwrap_or(u64::MAX), Ordering::Release);
        self.bounds.1.store(active.last().copied().unwrap_or(0), Ordering::Release);
    }

    /// Whether an active snapshot may need a version that is about to be overwritten. Call it while holding the
    /// object's lock.
    #[must_use]
    #[inline(always)]
    pub fn any_active(&self) -> bool {
        // Relaxed: see step 4 of the module.
        self.bounds.0.load(Ordering::Relaxed) != u64::MAX
    }

    /// Epoch of the oldest active snapshot; `u64::MAX` if there is none.
    #[must_use]
    #[inline]
    pub fn oldest_active(&self) -> u64 {
        self.bounds.0.load(Ordering::Acquire)
    }

    /// Epoch of the newest active snapshot; 0 if there is none.
    #[must_use]
    #[inline]
    pub fn newest_active(&self) -> u64 {
        self.bounds.1.load(Ordering::Acquire)
    }

    /// Number of active snapshots.
    #[must_use]
    pub fn active_count(&self) -> usize {
        lock(&self.active).len()
    }

    /// Epochs of all active snapshots, ascending.
    #[must_use]
    pub fn active(&self) -> Vec<u64> {
        lock(&self.active).iter().copied().collect()
    }

    /// The first active snapshot after `after` and up to `last`.
    #[must_use]
    pub fn next_active(&self, after: u64, last: u64) -> Option<u64> {
        lock(&self.active).range(after + 1..).next().copied().filter(|&epoch| epoch <= last)
    }

    /// Epochs of the oldest and newest active snapshots that see the version `older` of an object but not `newer`, the
    /// version that superseded it.
    #[must_use]
    pub fn seen_between(&self, older: (Writer, Tick), newer: (Writer, Tick)) -> Option<(u64, u64)> {
        let active = self.active();
        let sees =
            |&&epoch: &&u64| self.is_visible(older.0, older.1, epoch) && !self.is_visible(newer.0, newer.1, epoch);
        let first = *active.iter().find(sees)?;
        let last = active.iter().rev().find(sees).copied().unwrap_or(first);
        Some((first, last))
    }
}

/// The view of one epoch, as far as it is decided: the first later tick of each thread, remembered once it exists.
#[derive(Debug, Default)]
pub struct Horizon {
    epoch: u64,
    /// By thread id; `u64::MAX` while the thread has committed nothing later.
    firsts: Vec<u64>,
}

impl Horizon {
    /// Switches to `epoch`, which must be that of an active snapshot, and forgets the former one.
    #[inline]
    pub fn turn_to(&mut self, epoch: u64) {
        if self.epoch != epoch {
            self.epoch = epoch;
            self.firsts.fill(u64::MAX);
        }
    }

    /// Whether the epoch sees the version that `writer` committed at `tick` in this life.
    #[inline]
    #[must_use]
    pub fn sees(&mut self, epochs: &Epochs, writer: Writer, tick: Tick) -> bool {
        match self.firsts.get(writer.index()) {
            Some(&first) if first != u64::MAX => tick.0 < first,
            _ => self.sees_new(epochs, writer, tick),
        }
    }

    fn sees_new(&mut self, epochs: &Epochs, writer: Writer, tick: Tick) -> bool {
        let Some(first) = epochs.first_after(writer, self.epoch) else { return true };
        if self.firsts.is_empty() {
            self.firsts.resize(epochs.threads.len(), u64::MAX);
        }
        if let Some(known) = self.firsts.get_mut(writer.index()) {
            *known = first.0;
        }
        tick < first
    }
}

/// The view of one epoch for threads that share a snapshot: as [`Horizon`], for good.
#[derive(Debug)]
pub struct SharedHorizon {
    epoch: u64,
    /// By thread id; `u64::MAX` while it is not known that the thread has committed something later. Each is set once,
    /// and says nothing about other memory. Made when the first one is known.
    firsts: OnceLock<Box<[std::sync::atomic::AtomicU64]>>,
}

impl SharedHorizon {
    /// That of `epoch`, which must be active.
    #[must_use]
    pub fn new(epoch: u64) -> Self {
        Self { epoch, firsts: OnceLock::new() }
    }

    /// The epoch.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Whether the epoch sees the version that `writer` committed at `tick` in this life.
    #[inline]
    #[must_use]
    pub fn sees(&self, epochs: &Epochs, writer: Writer, tick: Tick) -> bool {
        let known = self.firsts.get().and_then(|firsts| firsts.get(writer.index()));
        match known.map_or(u64::MAX, |first| first.load(Ordering::Relaxed)) {
            u64::MAX => self.sees_new(epochs, writer, tick),
            first => tick.0 < first,
        }
    }

    fn sees_new(&self, epochs: &Epochs, writer: Writer, tick: Tick) -> bool {
        let Some(first) = epochs.first_after(writer, self.epoch) else { return true };
        let unknown = || std::sync::atomic::AtomicU64::new(u64::MAX);
        let firsts = self.firsts.get_or_init(|| epochs.threads.iter().map(|_| unknown()).collect());
        if let Some(known) = firsts.get(writer.index()) {
            known.store(first.0, Ordering::Relaxed);
        }
        tick < first
    }
}

/// An active snapshot; ends when dropped.
#[derive(Debug)]
pub struct SnapshotGuard<'e> {
    epochs: &'e Epochs,
    epoch: u64,
}

impl SnapshotGuard<'_> {
    /// Epoch of the snapshot.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }
}

impl Drop for SnapshotGuard<'_> {
    fn drop(&mut self) {
        self.epochs.close(self.epoch);
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_visible_to_snapshots_of_its_epoch_and_later_ones() {
        let epochs = Epochs::new(1);
        let writer = Writer::default();
        epochs.note(writer, epochs.present(), Tick(10));
        let first = epochs.begin();
        epochs.note(writer, epochs.present(), Tick(20));
        epochs.note(writer, epochs.present(), Tick(21));
        let second = epochs.begin();
        epochs.note(writer, epochs.present(), Tick(30));
        let seen = |tick, epoch| epochs.is_visible(writer, Tick(tick), epoch);
        assert_eq!([10, 19, 20, 30].map(|tick| seen(tick, first.epoch())), [true, true, false, false]);
        assert_eq!([10, 20, 29, 30].map(|tick| seen(tick, second.epoch())), [true, true, true, false]);
        let mut horizon = Horizon::default();
        for snapshot in [&first, &second, &first] {
            horizon.turn_to(snapshot.epoch());
            let shared = SharedHorizon::new(snapshot.epoch());
            for tick in [10, 19, 20, 29, 30] {
                assert_eq!(horizon.sees(&epochs, writer, Tick(tick)), seen(tick, snapshot.epoch()), "tick {tick}");
                assert_eq!(shared.sees(&epochs, writer, Tick(tick)), seen(tick, snapshot.epoch()), "tick {tick}");
            }
        }
        let (one, two) = (first.epoch(), second.epoch());
        let between = |older, newer| epochs.seen_between((writer, Tick(older)), (writer, Tick(newer)));
        assert_eq!(between(10, 20), Some((one, one)));
        assert_eq!(between(10, 30), Some((one, two)));
        assert_eq!(between(20, 30), Some((two, two)));
        assert_eq!((between(20, 21), between(30, 31)), (None, None));
        assert_eq!((epochs.oldest_active(), epochs.newest_active()), (one, two));
        assert_eq!((epochs.next_active(one, two), epochs.next_active(two, u64::MAX)), (Some(two), None));
        drop(first);
        assert_eq!((epochs.oldest_active(), epochs.any_active()), (two, true));
        drop(second);
        assert_eq!((epochs.oldest_active(), epochs.newest_active(), epochs.any_active()), (u64::MAX, 0, false));
    }

    #[test]
    fn what_an_active_snapshot_needs_is_never_forgotten() {
        let epochs = Epochs::new(1);
        let writer = Writer::default();
        epochs.note(writer, epochs.present(), Tick(10));
        let old = epochs.begin();
        let mut later = None;
        for tick in 20..20 + 10 * REMEMBERED as u64 {
            if tick == 40 {
                later = Some(epochs.begin());
            } else {
                drop(epochs.begin());
            }
            epochs.note(writer, epochs.present(), Tick(tick));
            let entries = lock(&epochs.threads[0].entries).len();
            assert!(entries <= REMEMBERED + 2, "{entries} transitions are remembered");
        }
        let seen = |tick, snapshot: &SnapshotGuard<'_>| epochs.is_visible(writer, Tick(tick), snapshot.epoch());
        assert_eq!([10, 19, 20, 1000].map(|tick| seen(tick, &old)), [true, true, false, false]);
        let later = later.expect("begun at tick 40");
        assert_eq!([10, 39, 40, 1000].map(|tick| seen(tick, &later)), [true, true, false, false]);
    }
}
