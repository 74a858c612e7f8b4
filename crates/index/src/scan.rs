//! Ranges: `scan`, iterators, first and last.
//!
//! A range is read in batches, none larger than a leaf:
//! 1. The leaf that covers the next key is locked and ordered, and the batch's keys and values are copied out and
//!    verified.
//! 2. The lock is released.
//! 3. Unless relaxed, the batch waits until the data that it depends on is durable.
//! 4. The visitor sees the copies. No lock is held, so it may use the map.
//!
//! Guarantee under concurrent change: keys come in strictly ascending (or descending) order. A key that is in the map
//! from before the scan began until it ended comes exactly once, with a value that it had meanwhile. A key that is
//! inserted or removed meanwhile may or may not come. Each batch is the state of its stretch of keys at one moment.

use std::ops::{Bound, Range};
use std::sync::{Arc, PoisonError};

use crate::error::Result;
use crate::leaf::{Leaf, LeafState};
use crate::map::{Durability, OrderedMap};
use crate::medium::IndexMemory;
use crate::record_map::Visit;

/// A batch ends after the record that makes it larger than this.
const BATCH_BYTES_MAX: usize = 256 << 10;
/// Records in the first batch of a scan; each further batch may be twice as large.
const BATCH_RECORDS_FIRST: usize = 16;

/// Which way a range is read.
///
/// ```
/// use lodestone_index::{Direction, Durability, FastFair, OrderedIndex, PointIndex};
/// use lodestone_pmem::{DomainChoice, PoolOptions};
/// use lodestone_store::Store;
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.pool");
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// let store = Store::create(&path, &options)?;
/// use std::ops::{Bound, ControlFlow};
///
/// let tree = FastFair::<u64>::open(&store, "tree", &Default::default(), Durability::Sync)?;
/// for key in 1..=9 {
///     tree.insert(&key, key)?;
/// }
/// let mut top = Vec::new();
/// tree.scan(Bound::Unbounded, Bound::Excluded(&9), Direction::Descending, |key, _| {
///     top.push(*key);
///     if top.len() < 3 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
/// })?;
/// assert_eq!(top, [8, 7, 6]);
/// # Ok::<(), lodestone_index::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the smallest key up.
    Ascending,
    /// From the largest key down.
    Descending,
}

/// Copies of neighbouring records.
#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    pairs: Vec<(Range<usize>, Range<usize>)>,
}

/// An owned bound.
type Edge = Bound<Vec<u8>>;

fn edge_ref(edge: &Edge) -> Bound<&[u8]> {
    edge.as_ref().map(|key| &key[..])
}

/// The rest of a range, and how it is read.
#[derive(Debug)]
struct Cursor {
    start: Edge,
    end: Edge,
    direction: Direction,
    durability: Durability,
    batch_records: usize,
    done: bool,
}

/// Whether `key` comes before a range that begins at `start`.
#[inline]
pub(crate) fn is_before_start<K: Ord + ?Sized>(key: &K, start: Bound<&K>) -> bool {
    match start {
        Bound::Unbounded => false,
        Bound::Included(bound) => key < bound,
        Bound::Excluded(bound) => key <= bound,
    }
}

/// Whether `key` comes after a range that ends at `end`.
#[inline]
pub(crate) fn is_behind_end<K: Ord + ?Sized>(key: &K, end: Bound<&K>) -> bool {
    match end {
        Bound::Unbounded => false,
        Bound::Included(bound) => key > bound,
        Bound::Excluded(bound) => key >= bound,
    }
}

impl Cursor {
    fn new(start: Bound<&[u8]>, end: Bound<&[u8]>, direction: Direction, durability: Durability) -> Self {
        let (start, end) = (start.map(<[u8]>::to_vec), end.map(<[u8]>::to_vec));
        Self { start, end, direction, durability, batch_records: BATCH_RECORDS_FIRST, done: false }
    }

    /// Replaces `batch` by the next records of the range; empty only at its end.
    fn advance(&mut self, map: &OrderedMap, batch: &mut Batch) -> Result<()> {
        batch.bytes.clear();
        batch.pairs.clear();
        while batch.pairs.is_empty() && !self.done {
            let leaf = match self.direction {
                Direction::Ascending => self.ascend(map, batch)?,
                Direction::Descending => self.descend(map, batch)?,
            };
            if self.durability == Durability::Sync {
                // No caller sees data that could still be lost. The absence of keys depends on the leaf as well.
                let memory = map.heap.memory();
                memory.wait_durable(memory.flushed_at(leaf.at.0, leaf.bytes()))?;
            }
        }
        self.batch_records = self.batch_records.saturating_mul(2);
        Ok(())
    }

    fn ascend(&mut self, map: &OrderedMap, batch: &mut Batch) -> Result<Arc<Leaf>> {
        let medium = map.medium();
        loop {
            let from: &[u8] = match &self.start {
                Bound::Included(key) | Bound::Excluded(key) => key,
                Bound::Unbounded => b"",
            };
            let leaf = map.leaf_of(from);
            let state = leaf.read_ordered(medium)?;
            if !state.covers(from) {
                continue;
            }
            let rank = rank(&state, medium, |key| is_before_start(key, edge_ref(&self.start)))?;
            for at in state.in_order().skip(rank) {
                if !self.take(medium, at, batch)? {
                    self.done = true;
                    break;
                }
                if self.is_full(batch) {
                    self.start = Bound::Excluded(batch.last_key().to_vec());
                    break;
                }
            }
            if !self.done && !self.is_full(batch) {
                match &state.upper {
                    Some(upper) if !is_behind_end(&upper[..], edge_ref(&self.end)) => {
                        self.start = Bound::Included(upper.to_vec());
                    }
                    _ => self.done = true,
                }
            }
            drop(state);
            return Ok(leaf);
        }
    }

    fn descend(&mut self, map: &OrderedMap, batch: &mut Batch) -> Result<Arc<Leaf>> {
        let medium = map.medium();
        loop {
            let leaf = last_leaf_of(map, &self.end);
            let state = leaf.read_ordered(medium)?;
            if !reaches(&state, &self.end) {
                continue;
            }
            let rank = rank(&state, medium, |key| !is_behind_end(key, edge_ref(&self.end)))?;
            for at in state.in_order().take(rank).rev() {
                if !self.take(medium, at, batch)? {
                    self.done = true;
                    break;
                }
                if self.is_full(batch) {
                    self.end = Bound::Excluded(batch.last_key().to_vec());
                    break;
                }
            }
            if !self.done && !self.is_full(batch) {
                self.end = Bound::Excluded(leaf.low.to_vec());
                self.done = leaf.low.is_empty() || is_below(&leaf.low, &self.start);
            }
            drop(state);
            return Ok(leaf);
        }
    }

    fn is_full(&self, batch: &Batch) -> bool {
        batch.pairs.len() >= self.batch_records || batch.bytes.len() >= BATCH_BYTES_MAX
    }

    /// Copies the record at `at` into `batch`; `false` when its key is outside the range.
    fn take(&self, medium: IndexMemory<'_>, at: lodestone_pmem::PmAddr, batch: &mut Batch) -> Result<bool> {
        let begin = batch.bytes.len();
        let head = medium.append_key(at, &mut batch.bytes)?;
        let key = &batch.bytes[begin..];
        if is_before_start(key, edge_ref(&self.start)) || is_behind_end(key, edge_ref(&self.end)) {
            batch.bytes.truncate(begin);
            return Ok(false);
        }
        let middle = batch.bytes.len();
        medium.append_value(at, head, &mut batch.bytes)?;
        batch.pairs.push((begin..middle, middle..batch.bytes.len()));
        Ok(true)
    }
}

impl Batch {
    fn pair(&self, index: usize) -> Option<(&[u8], &[u8])> {
        self.pairs.get(index).map(|(key, value)| (&self.bytes[key.clone()], &self.bytes[value.clone()]))
    }

    fn last_key(&self) -> &[u8] {
        self.pairs.last().map_or(&[], |(key, _)| &self.bytes[key.clone()])
    }
}

/// Number of records of the leaf, in order, for which `is_left` holds.
fn rank(state: &LeafState, medium: IndexMemory<'_>, is_left: impl Fn(&[u8]) -> bool) -> Result<usize> {
    let mut key = Vec::new();
    let (mut low, mut high) = (0, state.count());
    while low < high {
        let middle = low.midpoint(high);
        if let Some(at) = state.in_order().nth(middle) {
            medium.key(at, &mut key)?;
        }
        if is_left(&key) { low = middle + 1 } else { high = middle }
    }
    Ok(low)
}

/// Whether no key below `low` can be in a range that begins at `start`.
fn is_below(low: &[u8], start: &Edge) -> bool {
    match start {
        Bound::Unbounded => false,
        Bound::Included(key) | Bound::Excluded(key) => low <= &key[..],
    }
}

/// The leaf that holds the largest keys before `end`.
fn last_leaf_of(map: &OrderedMap, end: &Edge) -> Arc<Leaf> {
    let directory = map.directory.read().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(match end {
        Bound::Unbounded => directory.last(),
        Bound::Included(key) => directory.find(key),
        Bound::Excluded(key) => directory.find_before(key).unwrap_or_else(|| directory.find(key)),
    })
}

/// Whether the leaf, found by [`last_leaf_of`], still reaches up to `end`.
fn reaches(state: &LeafState, end: &Edge) -> bool {
    state.alive
        && match (end, &state.upper) {
            (_, None) => true,
            (Bound::Unbounded, Some(_)) => false,
            (Bound::Included(key), Some(upper)) => key[..] < upper[..],
            (Bound::Excluded(key), Some(upper)) => key[..] <= upper[..],
        }
}

impl OrderedMap {
    /// Shows `visit` the records from `start` to `end` in ascending order until it breaks. Returns how many it saw.
    /// Each record is durable before it is shown. See the module text for the guarantee under concurrent change.
    ///
    /// # Errors
    /// [`crate::Error::Damaged`] at the first leaf with a record that does not verify, after everything before that
    /// leaf was shown; [`crate::Error::Pool`] when the pool is poisoned.
    pub fn scan(&self, start: Bound<&[u8]>, end: Bound<&[u8]>, visit: &mut Visit<'_>) -> Result<u64> {
        self.scan_with(start, end, Direction::Ascending, Durability::Sync, visit)
    }

    /// As [`scan`](Self::scan), in the given direction, and with the choice to see data that could still be lost.
    ///
    /// # Errors
    /// As [`scan`](Self::scan).
    pub fn scan_with(
        &self,
        start: Bound<&[u8]>,
        end: Bound<&[u8]>,
        direction: Direction,
        durability: Durability,
        visit: &mut Visit<'_>,
    ) -> Result<u64> {
        let mut cursor = Cursor::new(start, end, direction, durability);
        let mut batch = Batch::default();
        let mut seen = 0;
        loop {
            cursor.advance(self, &mut batch)?;
            if batch.pairs.is_empty() {
                return Ok(seen);
            }
            for index in 0..batch.pairs.len() {
                let Some((key, value)) = batch.pair(index) else { continue };
                seen += 1;
                if visit(key, value).is_break() {
                    return Ok(seen);
                }
            }
        }
    }

    /// The records from `start` to `end`, ascending.
    ///
    /// ```no_run
    /// # use std::ops::Bound;
    /// # fn example(map: &lodestone_index::OrderedMap) -> lodestone_index::Result<()> {
    /// for pair in map.range(Bound::Included(b"a"), Bound::Excluded(b"b")) {
    ///     let (key, value) = pair?;
    ///     println!("{key:?} {value:?}");
    /// }
    /// # Ok(()) }
    /// ```
    pub fn range(&self, start: Bound<&[u8]>, end: Bound<&[u8]>) -> Records<'_> {
        self.records_of(start, end, Direction::Ascending)
    }

    /// The records from `end` down to `start`, descending.
    pub fn range_descending(&self, start: Bound<&[u8]>, end: Bound<&[u8]>) -> Records<'_> {
        self.records_of(start, end, Direction::Descending)
    }

    /// All records whose key starts with `prefix`, ascending.
    pub fn prefix(&self, prefix: &[u8]) -> Records<'_> {
        let mut end = prefix.to_vec();
        while end.pop_if(|last| *last == 0xFF).is_some() {}
        match end.last_mut() {
            Some(last) => {
                *last += 1;
                self.range(Bound::Included(prefix), Bound::Excluded(&end))
            }
            None => self.range(Bound::Included(prefix), Bound::Unbounded),
        }
    }

    fn records_of(&self, start: Bound<&[u8]>, end: Bound<&[u8]>, direction: Direction) -> Records<'_> {
        let cursor = Cursor::new(start, end, direction, Durability::Sync);
        Records { map: self, cursor, batch: Batch::default(), position: 0 }
    }

    /// The record with the smallest key.
    ///
    /// # Errors
    /// As [`scan`](Self::scan).
    pub fn first(&self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        self.end_record(Direction::Ascending)
    }

    /// The record with the largest key.
    ///
    /// # Errors
    /// As [`scan`](Self::scan).
    pub fn last(&self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        self.end_record(Direction::Descending)
    }

    fn end_record(&self, direction: Direction) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        let mut records = self.records_of(Bound::Unbounded, Bound::Unbounded, direction);
        records.cursor.batch_records = 1;
        records.next().transpose()
    }
}

/// Iterator over a range of an [`OrderedMap`]. It returns copies of keys and values, each durable before it is
/// returned.
///
/// ```
/// use lodestone_index::OrderedMap;
/// use lodestone_pmem::{DomainChoice, PoolOptions};
/// use lodestone_store::Store;
///
/// use std::ops::Bound;
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.pool");
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// let store = Store::create(&path, &options)?;
/// let map = OrderedMap::open(&store, "map")?;
/// for key in [b"b", b"c", b"a"] {
///     map.insert(key, b"value")?;
/// }
/// let from_b = map.range(Bound::Included(b"b"), Bound::Unbounded);
/// let keys = from_b.map(|record| Ok(record?.0)).collect::<lodestone_index::Result<Vec<_>>>()?;
/// assert_eq!(keys, [b"b", b"c"]);
/// # Ok::<(), lodestone_index::Error>(())
/// ```
#[derive(Debug)]
pub struct Records<'m> {
    map: &'m OrderedMap,
    cursor: Cursor,
    batch: Batch,
    position: usize,
}

impl Iterator for Records<'_> {
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.position == self.batch.pairs.len() {
            self.position = 0;
            if let Err(error) = self.cursor.advance(self.map, &mut self.batch) {
                // After an error the range ends: skipped records could not be distinguished from missing ones.
                self.cursor.done = true;
                self.batch = Batch::default();
                return Some(Err(error));
            }
        }
        let pair = self.batch.pair(self.position)?;
        self.position += 1;
        Some(Ok((pair.0.to_vec(), pair.1.to_vec())))
    }
}
