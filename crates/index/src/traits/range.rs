//! An iterator over any ordered index, from both ends, made of scans.
//!
//! Each end has a batch of copies. When it is used up, a scan reads the next keys after the last one returned: as many
//! as before and half as many again. So no lock is held between two steps, and the guarantee of [`OrderedIndex`] holds
//! for the iteration as a whole: every batch begins strictly after the keys already returned.

use std::borrow::Borrow;
use std::collections::VecDeque;
use std::fmt;
use std::ops::{Bound, ControlFlow};

use crate::error::Result;
use crate::scan::Direction;
use crate::traits::{IndexKey, OrderedIndex, PointIndex};

/// Pairs in the first batch of an end.
const BATCH_FIRST: usize = 16;
/// Most pairs in a batch.
const BATCH_MAX: usize = 1024;

type Owned<I> = <<I as PointIndex>::Key as IndexKey>::Owned;

/// An iterator over a range of an index; see [`OrderedIndex::range`].
///
/// ```
/// use lodestone_index::{Durability, FastFair, OrderedIndex, PointIndex};
/// use lodestone_pmem::{DomainChoice, PoolOptions};
/// use lodestone_store::Store;
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.pool");
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// let store = Store::create(&path, &options)?;
/// use std::ops::Bound;
///
/// let tree = FastFair::<u64>::open(&store, "tree", &Default::default(), Durability::Sync)?;
/// for key in 1..=5 {
///     tree.insert(&key, 10 * key)?;
/// }
/// let mut range = tree.range(Bound::Excluded(&1), Bound::Unbounded);
/// assert_eq!(range.next().transpose()?, Some((2, 20)));
/// assert_eq!(range.next_back().transpose()?, Some((5, 50)));
/// assert_eq!(range.count(), 2);
/// # Ok::<(), lodestone_index::Error>(())
/// ```
pub struct Range<'i, I: OrderedIndex> {
    index: &'i I,
    /// The part that neither end has read yet.
    start: Bound<Owned<I>>,
    end: Bound<Owned<I>>,
    front: VecDeque<(Owned<I>, u64)>,
    back: VecDeque<(Owned<I>, u64)>,
    batch: usize,
    exhausted: bool,
}

impl<I: OrderedIndex> fmt::Debug for Range<'_, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Range").field("start", &self.start).field("end", &self.end).finish_non_exhaustive()
    }
}

impl<'i, I: OrderedIndex> Range<'i, I> {
    pub(crate) fn new(index: &'i I, start: Bound<&I::Key>, end: Bound<&I::Key>) -> Self {
        let (start, end) = (start.map(IndexKey::to_key), end.map(IndexKey::to_key));
        let (front, back) = (VecDeque::new(), VecDeque::new());
        Self { index, start, end, front, back, batch: BATCH_FIRST, exhausted: false }
    }

    /// Reads the next batch at the end that `direction` goes on from.
    fn fill(&mut self, direction: Direction) -> Result<()> {
        let mut batch = VecDeque::with_capacity(self.batch);
        let limit = self.batch;
        let (start, end) = (self.start.as_ref().map(Borrow::borrow), self.end.as_ref().map(Borrow::borrow));
        self.index.scan(start, end, direction, |key, value| {
            batch.push_back((key.to_key(), value));
            if batch.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        self.exhausted = batch.len() < limit;
        self.batch = (self.batch + self.batch / 2).min(BATCH_MAX);
        if let Some((last, _)) = batch.back() {
            match direction {
                Direction::Ascending => self.start = Bound::Excluded(last.clone()),
                Direction::Descending => self.end = Bound::Excluded(last.clone()),
            }
        }
        match direction {
            Direction::Ascending => self.front = batch,
            Direction::Descending => self.back = batch,
        }
        Ok(())
    }

    fn step(&mut self, direction: Direction) -> Option<Result<(Owned<I>, u64)>> {
        let is_empty = match direction {
            Direction::Ascending => self.front.is_empty(),
            Direction::Descending => self.back.is_empty(),
        };
        if is_empty
            && !self.exhausted
            && let Err(error) = self.fill(direction)
        {
            self.exhausted = true;
            self.front.clear();
            self.back.clear();
            return Some(Err(error));
        }
        // Pairs that one end has read and not returned are the other end's last.
        let found = match direction {
            Direction::Ascending => self.front.pop_front().or_else(|| self.back.pop_back()),
            Direction::Descending => self.back.pop_front().or_else(|| self.front.pop_back()),
        };
        found.map(Ok)
    }
}

impl<I: OrderedIndex> Iterator for Range<'_, I> {
    type Item = Result<(Owned<I>, u64)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(Direction::Ascending)
    }
}

impl<I: OrderedIndex> DoubleEndedIterator for Range<'_, I> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(Direction::Descending)
    }
}
