//! Snapshot epochs: what a long reader may see while others go on committing.
//!
//! 1. A snapshot takes the present epoch and begins the next one. Only snapshots write the epoch word.
//! 2. A committer reads the epoch after it has marked all its objects "committing" and before it validates; its versions
//!    belong to that epoch. Epochs change rarely, so a thread only notes at which of its ticks it first saw a new epoch
//!    ([`Transitions`]): the epoch of a version follows from its writer and tick, and nothing is stored per version.
//! 3. A snapshot of epoch `s` sees exactly the versions of epochs up to `s`. Write-read, write-write and read-write
//!    dependencies all carry the epoch monotonically (validation comes after reading the epoch, and an overwriter marks
//!    before it reads the epoch), so this set is closed under dependencies: the snapshot is a serializable cut.

use std::collections::BTreeMap;

use crossbeam_utils::CachePadded;
use lodestone_pmem::count_shared_rmws;
use lodestone_pmem::sync::atomic::{AtomicU64, Ordering};
use lodestone_pmem::sync::{Mutex, lock};

use crate::tick::{Tick, Writer};

/// Transitions that a thread remembers. More snapshots than this beside one long one make it start again.
const REMEMBERED: usize = 32;

/// At which ticks one thread first saw new epochs: a ring of the last ones. Written by the thread alone.
#[derive(Debug)]
pub struct Transitions {
    /// Number of transitions ever noted.
    count: AtomicU64,
    ring: [(AtomicU64, AtomicU64); REMEMBERED],
}

impl Default for Transitions {
    fn default() -> Self {
        Self { count: AtomicU64::new(0), ring: std::array::from_fn(|_| (AtomicU64::new(0), AtomicU64::new(0))) }
    }
}

impl Transitions {
    fn note(&self, epoch: u64, tick: Tick) {
        let count = self.count.load(Ordering::Relaxed);
        let (epoch_of, tick_of) = &self.ring[count as usize % REMEMBERED];
        // A reader that meets a half-written entry finds another count afterwards.
        epoch_of.store(epoch, Ordering::Release);
        tick_of.store(tick.0, Ordering::Release);
        self.count.store(count + 1, Ordering::Release);
    }

    /// The newest epoch noted.
    fn newest(&self) -> u64 {
        let count = self.count.load(Ordering::Relaxed);
        if count == 0 { 0 } else { self.ring[(count - 1) as usize % REMEMBERED].0.load(Ordering::Relaxed) }
    }

    /// Whether the version of `tick` belongs to `epoch` or an earlier one; `None` when that is forgotten.
    fn is_visible(&self, tick: Tick, epoch: u64) -> Option<bool> {
        loop {
            let count = self.count.load(Ordering::Acquire);
            let oldest = count.saturating_sub(REMEMBERED as u64 - 1);
            // The first tick of an epoch behind the snapshot's.
            let mut first_later = None;
            for number in (oldest..count).rev() {
                let (epoch_of, tick_of) = &self.ring[number as usize % REMEMBERED];
                if epoch_of.load(Ordering::Acquire) <= epoch {
                    break;
                }
                first_later = Some((number, tick_of.load(Ordering::Acquire)));
            }
            if self.count.load(Ordering::Acquire) != count {
                continue;
            }
            return match first_later {
                None => Some(true),
                Some((_, first)) if tick.0 >= first => Some(false),
                // An even earlier transition behind the snapshot's epoch may be forgotten.
                Some((number, _)) if number == oldest && oldest > 0 => None,
                Some(_) => Some(true),
            };
        }
    }
}

/// The epoch word, the active snapshots and the transitions of all threads.
#[derive(Debug)]
pub struct Epochs {
    epoch: CachePadded<AtomicU64>,
    /// Snapshots that are active, by epoch. Locked when one begins or ends.
    active: Mutex<BTreeMap<u64, usize>>,
    /// Oldest active epoch, `u64::MAX` when there is none.
    oldest: CachePadded<AtomicU64>,
    threads: Box<[CachePadded<Transitions>]>,
}

impl Epochs {
    /// No snapshot yet; `threads` thread ids.
    #[must_use]
    pub fn new(threads: u16) -> Self {
        Self {
            epoch: CachePadded::new(AtomicU64::new(1)),
            active: Mutex::new(BTreeMap::new()),
            oldest: CachePadded::new(AtomicU64::new(u64::MAX)),
            threads: (0..threads).map(|_| CachePadded::new(Transitions::default())).collect(),
        }
    }

    /// The present epoch: what a committer reads after marking and before validating.
    #[must_use]
    #[inline]
    pub fn present(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Notes that the versions of `writer` from `tick` on belong to `epoch`. Call it before the first of them is
    /// published; it costs a comparison when the epoch did not change.
    #[inline]
    pub fn note(&self, writer: Writer, epoch: u64, tick: Tick) {
        let transitions = &self.threads[writer.index()];
        if transitions.newest() != epoch {
            transitions.note(epoch, tick);
        }
    }

    /// Whether the version that `writer` committed at `tick` in this life belongs to `epoch` or an earlier one; `None`
    /// when too many snapshots began since to tell.
    #[must_use]
    pub fn is_visible(&self, writer: Writer, tick: Tick, epoch: u64) -> Option<bool> {
        self.threads.get(writer.index()).map_or(Some(true), |thread| thread.is_visible(tick, epoch))
    }

    /// Begins a snapshot: of everything committed up to now.
    #[must_use]
    pub fn begin(&self) -> SnapshotGuard<'_> {
        count_shared_rmws(1);
        let mut active = lock(&self.active);
        let epoch = self.epoch.fetch_add(1, Ordering::AcqRel);
        *active.entry(epoch).or_insert(0) += 1;
        self.oldest.store(active.keys().next().copied().unwrap_or(u64::MAX), Ordering::Release);
        SnapshotGuard { epochs: self, epoch }
    }

    /// Epoch of the oldest active snapshot, `u64::MAX` when there is none.
    #[must_use]
    #[inline]
    pub fn oldest_active(&self) -> u64 {
        self.oldest.load(Ordering::Acquire)
    }

    /// Epochs of all active snapshots.
    #[must_use]
    pub fn active(&self) -> Vec<u64> {
        lock(&self.active).keys().copied().collect()
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
        let mut active = lock(&self.epochs.active);
        if let Some(count) = active.get_mut(&self.epoch) {
            *count -= 1;
            if *count == 0 {
                active.remove(&self.epoch);
            }
        }
        self.epochs.oldest.store(active.keys().next().copied().unwrap_or(u64::MAX), Ordering::Release);
    }
}

#[cfg(test)]
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
        assert_eq!([10, 19, 20, 30].map(|tick| seen(tick, first.epoch())), [true, true, false, false].map(Some));
        assert_eq!([10, 20, 29, 30].map(|tick| seen(tick, second.epoch())), [true, true, true, false].map(Some));
        assert_eq!(epochs.oldest_active(), first.epoch());
        drop(first);
        assert_eq!(epochs.oldest_active(), second.epoch());
        drop(second);
        assert_eq!(epochs.oldest_active(), u64::MAX);
    }

    #[test]
    fn what_is_forgotten_is_not_guessed() {
        let epochs = Epochs::new(1);
        let writer = Writer::default();
        epochs.note(writer, epochs.present(), Tick(10));
        let old = epochs.begin();
        for tick in 20..20 + 2 * REMEMBERED as u64 {
            drop(epochs.begin());
            epochs.note(writer, epochs.present(), Tick(tick));
        }
        assert_eq!(epochs.is_visible(writer, Tick(15), old.epoch()), None);
        assert_eq!(epochs.is_visible(writer, Tick(1000), old.epoch()), Some(false));
    }
}
