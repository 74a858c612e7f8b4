//! Filling the hash from the tree while other threads work, and comparing the two.
//!
//! 1. The tree is cut into ranges of keys (a hint that may be out of date: the ranges cover every key all the same).
//! 2. A filling thread takes a range and goes through it in batches. Before a batch it notes each stripe's number of
//!    completed changes. Then it scans, and fills each pair in under its stripe's lock.
//! 3. *The number is the same*: no change of a key of this stripe completed since before the scan read the pair. None
//!    is under way either, because the lock is held. So the pair is what the tree holds. *It differs*: the tree is
//!    asked again, under the lock.
//! 4. The last range done makes every stripe complete.
//!
//! The number is counted up after the change of the tree and before the lock is released: a change that the scan missed
//! comes after the note.

use std::borrow::Borrow;
use std::ops::{Bound, ControlFlow};

use lodestone_pmem::planted;
use lodestone_pmem::sync::atomic::{AtomicBool, Ordering};
use lodestone_pmem::sync::{Mutex, lock};
use lodestone_width::to_u64;

use crate::check::IndexReport;
use crate::error::Result;
use crate::hybrid_plus::index::Shared;
use crate::scan::Direction;
use crate::traits::{IndexKey, OrderedIndex, PointIndex};

/// Ranges to begin with: enough that threads end together and progress is told finely.
const RANGES_WANTED: usize = 256;
/// Pairs of a batch: the notes of all stripes cost about as much as the search for its beginning.
const BATCH_KEYS: usize = if cfg!(feature = "shuttle") { 2 } else { 1024 };

/// The ranges, and the threads that go through them.
pub(super) struct Rebuild<K: IndexKey + ?Sized> {
    /// Done, or given up because of damage: operations need not help any more.
    is_over: AtomicBool,
    ranges: Mutex<Option<Ranges<K>>>,
    /// Held by an operation that fills along with its work: one at a time.
    cursor: Mutex<Option<Cursor<K>>>,
}

struct Ranges<K: IndexKey + ?Sized> {
    /// Where each range but the first begins.
    starts: Vec<K::Owned>,
    next: usize,
    /// Begun and left.
    left: Vec<Cursor<K>>,
}

/// A range in work. If that ends early, by damage or a panic, another thread can continue.
struct Taken<'s, K: IndexKey + ?Sized> {
    shared: &'s Shared<K>,
    cursor: Option<Cursor<K>>,
}

impl<K: IndexKey + ?Sized> Drop for Taken<'_, K> {
    fn drop(&mut self) {
        if let (Some(cursor), Some(ranges)) = (self.cursor.take(), &mut *lock(&self.shared.rebuild.ranges)) {
            ranges.left.push(cursor);
        }
    }
}

/// The progress within a range.
struct Cursor<K: IndexKey + ?Sized> {
    from: Bound<K::Owned>,
    end: Bound<K::Owned>,
    /// The number of changes that each stripe had completed before the batch.
    changes: Vec<u64>,
}

impl<K: IndexKey + ?Sized> Rebuild<K> {
    pub(super) fn new() -> Self {
        Self { is_over: AtomicBool::new(false), ranges: Mutex::new(None), cursor: Mutex::new(None) }
    }

    /// Whether there is nothing left that operations could do.
    #[inline]
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

impl<K: IndexKey + ?Sized> Shared<K> {
    /// The loop of a thread of the index.
    pub(super) fn fill_all(&self) {
        let _running = self.progress.run();
        if self.fill_ranges(|| self.stops.load(std::sync::atomic::Ordering::Acquire)).is_err() {
            self.progress.fail();
        }
    }

    /// Fills in the rest, on this thread.
    pub(super) fn fill_rest(&self) -> Result<()> {
        // Announced: another one who waits must not take what is in work here for done.
        self.progress.announce(1);
        let _running = self.progress.run();
        let begun = lock(&self.rebuild.cursor).take();
        if begun.is_some() {
            self.finish_range(begun, || false)?;
        }
        self.fill_ranges(|| false)
    }

    /// Fills in up to `keys` pairs, unless another thread does.
    pub(super) fn fill_some(&self, keys: usize) {
        let Ok(mut cursor) = self.rebuild.cursor.try_lock() else { return };
        let mut step = || {
            if cursor.is_none() {
                *cursor = self.next_range()?;
            }
            let Some(begun) = &mut *cursor else { return Ok(()) };
            let (count, is_over) = self.fill_batch(begun, keys)?;
            self.progress.add_keys(count);
            if is_over {
                *cursor = None;
                self.range_done();
            }
            Result::Ok(())
        };
        if step().is_err() {
            // The damage is reported to operations that need the data there, and to waiting threads.
            self.rebuild.is_over.store(true, Ordering::Relaxed);
            self.progress.fail();
        }
    }

    fn fill_ranges(&self, stops: impl Fn() -> bool) -> Result<()> {
        while let Some(cursor) = self.next_range()? {
            self.finish_range(Some(cursor), &stops)?;
            if stops() {
                return Ok(());
            }
        }
        Ok(())
    }

    fn finish_range(&self, cursor: Option<Cursor<K>>, stops: impl Fn() -> bool) -> Result<()> {
        let mut taken = Taken { shared: self, cursor };
        while let Some(cursor) = &mut taken.cursor {
            let (count, is_over) = self.fill_batch(cursor, BATCH_KEYS)?;
            self.progress.add_keys(count);
            if is_over {
                taken.cursor = None;
                self.range_done();
            } else if stops() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// The next range, or `None` when all are taken.
    fn next_range(&self) -> Result<Option<Cursor<K>>> {
        let mut ranges = lock(&self.rebuild.ranges);
        if ranges.is_none() {
            let starts = self.tree.range_starts(RANGES_WANTED)?;
            self.progress.set_parts(to_u64(starts.len()) + 1);
            *ranges = Some(Ranges { starts, next: 0, left: Vec::new() });
        }
        let Some(Ranges { starts, next, left }) = &mut *ranges else { return Ok(None) };
        if let Some(cursor) = left.pop() {
            return Ok(Some(cursor));
        }
        let number = *next;
        if number > starts.len() {
            return Ok(None);
        }
        *next += 1;
        let from = number.checked_sub(1).map_or(Bound::Unbounded, |before| Bound::Included(starts[before].clone()));
        let end = starts.get(number).map_or(Bound::Unbounded, |end| Bound::Excluded(end.clone()));
        Ok(Some(Cursor { from, end, changes: Vec::new() }))
    }

    fn range_done(&self) {
        if self.progress.part_done() {
            self.stripes.iter().for_each(|stripe| stripe.write().set_complete(true));
            self.rebuild.is_over.store(true, Ordering::Relaxed);
            self.progress.warm();
        }
    }

    /// Loads `sorted` into the tree, which is empty, then into the hash. Between the two a key that is not in the hash
    /// may be in the tree.
    pub(super) fn load(&self, sorted: impl Iterator<Item = (K::Owned, u64)>) -> Result<u64> {
        self.stripes.iter().for_each(|stripe| stripe.write().set_complete(false));
        let loaded = self.tree.bulk_load(sorted);
        // A load that failed left what came before the failure.
        let mut whole = Cursor { from: Bound::Unbounded, end: Bound::Unbounded, changes: Vec::new() };
        while !self.fill_batch(&mut whole, BATCH_KEYS)?.1 {}
        self.stripes.iter().for_each(|stripe| stripe.write().set_complete(true));
        loaded
    }

    /// Fills in the next pairs, `limit` at most; how many, and whether the range is at its end.
    fn fill_batch(&self, cursor: &mut Cursor<K>, limit: usize) -> Result<(u64, bool)> {
        let Cursor { from, end, changes } = cursor;
        // Before the tree is read.
        changes.clear();
        changes.extend(self.stripes.iter().map(|stripe| stripe.changes()));
        let (mut count, mut last, mut outcome) = (0, None, Ok(()));
        let (start, stop) = (from.as_ref().map(Borrow::borrow), end.as_ref().map(Borrow::borrow));
        self.tree.scan(start, stop, Direction::Ascending, |key, value| {
            outcome = self.fill(key, value, changes);
            count += 1;
            if count == limit || outcome.is_err() {
                last = Some(key.to_key());
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        outcome?;
        let is_over = last.is_none();
        if let Some(last) = last {
            *from = Bound::Excluded(last);
        }
        Ok((to_u64(count), is_over))
    }

    /// Fills in a pair that a scan read after `changes` were noted.
    fn fill(&self, key: &K, value: u64, changes: &[u64]) -> Result<()> {
        let hash = self.hash(key);
        let number = self.stripe_number(hash);
        let stripe = &self.stripes[number];
        let mut writing = stripe.write();
        if writing.get(hash, key).is_none() {
            let is_still = stripe.changes() == changes[number] || planted::active("hybrid-plus-late-fill");
            let value = if is_still { Ok(Some(value)) } else { self.tree.get(key) };
            match value {
                Ok(Some(value)) => writing.put(hash, key, value),
                Ok(None) => {}
                Err(error) => {
                    // The entry here is right, the key is missing as before.
                    writing.finish_fill();
                    return Err(error);
                }
            }
        }
        writing.finish_fill();
        Ok(())
    }

    /// Notes in `report` where hash and tree disagree. Call it while no thread changes the index.
    pub(super) fn compare(&self, report: &mut IndexReport) {
        let at = self.tree.anchor.at;
        let is_complete = self.stripes.iter().all(|stripe| stripe.is_complete());
        let count = || self.stripes.iter().map(|stripe| stripe.count()).sum::<u64>();
        let (before, mut found) = (count(), 0);
        let scanned = self.tree.scan(Bound::Unbounded, Bound::Unbounded, Direction::Ascending, |key, value| {
            let hash = self.hash(key);
            let writing = self.stripe(hash).write();
            let in_dram = writing.get(hash, key);
            writing.finish_fill();
            found += u64::from(in_dram.is_some());
            if in_dram.is_some_and(|in_dram| in_dram != value) || (in_dram.is_none() && is_complete) {
                report.find(at, format!("{key:?} has {value} in the tree and {in_dram:?} in DRAM"));
            }
            ControlFlow::Continue(())
        });
        if let Err(error) = scanned {
            return report.find_error(at, error);
        }
        // The hash may be filled meanwhile. Pairs that it held before the scan were found, and it holds the found pairs
        // after the scan.
        let after = count();
        if !(before..=after).contains(&found) {
            report.find(at, format!("DRAM holds {before} to {after} keys, {found} of them in the tree"));
        }
    }
}
