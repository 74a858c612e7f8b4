//! Reading in order: ranges both ways, first and last, all keys with a prefix.
//!
//! A scan holds the transaction, so the tree does not change during the scan. It keeps its leaf and the path to it. It
//! goes on from the nearest node on that path with a child that was not visited.

use std::cmp::Ordering;
use std::ops::Bound;

use lodestone_stm::{Tx, TxResult};

use super::{Leaf, Path, PmBTreeMap, Seek, TreeHeader};
use crate::bytes::Bytes;
use crate::item::{PmKey, PmValue};
use crate::node;
use crate::steps::Steps;
use crate::words::Words;

/// The direction of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Up,
    Down,
}

/// The end of a scan.
enum End<'b, K: PmKey> {
    Nothing,
    Key { key: &'b K::View, included: bool },
    Owned { key: Vec<u8>, compare: fn(&mut Tx<'_>, &[u64], &[u8]) -> TxResult<Ordering> },
}

/// Entries of a [`PmBTreeMap`] in order, or in descending order. At most one item is an error, and then it is the last.
///
/// ```
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # use lodestone_store::Store;
/// # let folder = tempfile::tempdir().unwrap();
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let store = Store::create(folder.path().join("a.pool"), &options)?;
/// # use lodestone_stm::Stm;
/// # let stm = Stm::open(&store)?;
/// use std::ops::Bound;
///
/// use lodestone_collections::PmBTreeMap;
///
/// let map = PmBTreeMap::<u64, u64>::open(&stm, "squares")?;
/// stm.update(|tx| (1..=9).try_for_each(|n| map.insert(tx, &n, &(n * n)).map(drop)))?;
/// let from_3 = Bound::Included(&3);
/// let found = stm.read(|tx| map.range(tx, from_3, Bound::Excluded(&6))?.collect::<Result<Vec<_>, _>>())?;
/// assert_eq!(found, [(3, 9), (4, 16), (5, 25)]);
/// # Ok::<(), lodestone_stm::Error>(())
/// ```
pub struct Range<'r, 't, 'b, K: PmKey, V> {
    tx: &'r mut Tx<'t>,
    map: PmBTreeMap<K, V>,
    header: TreeHeader,
    direction: Direction,
    path: Path,
    leaf: Leaf,
    /// Up: the next entry. Down: the entry above the next.
    position: usize,
    end: End<'b, K>,
    steps: Steps,
    is_over: bool,
}

impl<K: PmKey, V: PmValue> PmBTreeMap<K, V> {
    /// Entries with keys between the bounds, ascending.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn range<'r, 't, 'b>(
        &self,
        tx: &'r mut Tx<'t>,
        low: Bound<&'b K::View>,
        high: Bound<&'b K::View>,
    ) -> TxResult<Range<'r, 't, 'b, K, V>> {
        self.scan(tx, Direction::Up, low, end_at(high))
    }

    /// Entries with keys between the bounds, descending.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn range_down<'r, 't, 'b>(
        &self,
        tx: &'r mut Tx<'t>,
        low: Bound<&'b K::View>,
        high: Bound<&'b K::View>,
    ) -> TxResult<Range<'r, 't, 'b, K, V>> {
        self.scan(tx, Direction::Down, high, end_at(low))
    }

    /// All entries, ascending.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn iter<'r, 't>(&self, tx: &'r mut Tx<'t>) -> TxResult<Range<'r, 't, 'static, K, V>>
    where
        K::View: 'static,
    {
        self.range(tx, Bound::Unbounded, Bound::Unbounded)
    }

    /// The entry with the smallest key.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn first(&self, tx: &mut Tx<'_>) -> TxResult<Option<(K::Owned, V::Owned)>> {
        self.range(tx, Bound::Unbounded, Bound::Unbounded)?.next().transpose()
    }

    /// The entry with the largest key.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn last(&self, tx: &mut Tx<'_>) -> TxResult<Option<(K::Owned, V::Owned)>> {
        self.range_down(tx, Bound::Unbounded, Bound::Unbounded)?.next().transpose()
    }

    fn scan<'r, 't, 'b>(
        &self,
        tx: &'r mut Tx<'t>,
        direction: Direction,
        from: Bound<&K::View>,
        end: End<'b, K>,
    ) -> TxResult<Range<'r, 't, 'b, K, V>> {
        let header = tx.read(self.header)?;
        let (key, seek) = match (from, direction) {
            (Bound::Included(key) | Bound::Excluded(key), _) => (Some(key), Seek::Key(key)),
            (Bound::Unbounded, Direction::Up) => (None, Seek::First),
            (Bound::Unbounded, Direction::Down) => (None, Seek::Last),
        };
        let mut range = Range {
            map: *self,
            header,
            direction,
            path: Path::default(),
            leaf: Words([0; super::LEAF_WORDS]),
            position: 0,
            end,
            steps: Steps::new(tx, super::LEAF_WORDS),
            is_over: true,
            tx,
        };
        let Some(reached) = self.descend(range.tx, &header, &seek)? else { return Ok(range) };
        let found = match key {
            Some(key) => Some(Self::find(range.tx, &reached.leaf, key)?),
            None => None,
        };
        range.position = match (found, direction, from) {
            (None, Direction::Up, _) => 0,
            (None, Direction::Down, _) => node::count(&reached.leaf.0),
            (Some(Err(index)), _, _) => index,
            // Up: an excluded key is skipped. Down: an included one is below the position.
            (Some(Ok(index)), Direction::Up, Bound::Excluded(_)) => index + 1,
            (Some(Ok(index)), Direction::Down, Bound::Included(_)) => index + 1,
            (Some(Ok(index)), _, _) => index,
        };
        (range.path, range.leaf, range.is_over) = (reached.path, reached.leaf, false);
        Ok(range)
    }
}

impl<V: PmValue> PmBTreeMap<Bytes, V> {
    /// Entries whose keys begin with `prefix`, ascending.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn prefix<'r, 't>(&self, tx: &'r mut Tx<'t>, prefix: &[u8]) -> TxResult<Range<'r, 't, 'static, Bytes, V>> {
        let mut end = prefix.to_vec();
        // The smallest key above all that begin with the prefix: increment the last byte that can grow.
        let end = loop {
            match end.pop() {
                None => break End::Nothing,
                Some(u8::MAX) => {}
                Some(last) => {
                    end.push(last + 1);
                    break End::Owned { key: end, compare: <Bytes as PmKey>::compare };
                }
            }
        };
        self.scan(tx, Direction::Up, Bound::Included(prefix), end)
    }
}

fn end_at<K: PmKey>(bound: Bound<&K::View>) -> End<'_, K> {
    match bound {
        Bound::Unbounded => End::Nothing,
        Bound::Included(key) => End::Key { key, included: true },
        Bound::Excluded(key) => End::Key { key, included: false },
    }
}

impl<K: PmKey, V: PmValue> Range<'_, '_, '_, K, V> {
    /// Reads the next leaf. `false` after the last.
    fn next_leaf(&mut self) -> TxResult<bool> {
        while let Some((at, taken)) = self.path.inner.pop() {
            let inner = PmBTreeMap::<K, V>::read_inner(self.tx, at)?;
            let next = match self.direction {
                Direction::Up => Some(taken + 1).filter(|&next| next < node::count(&inner.0)),
                Direction::Down => taken.checked_sub(1),
            };
            let Some(next) = next else { continue };
            self.path.inner.push((at, next));
            let child = PmBTreeMap::<K, V>::child(&inner, next);
            let seek = if self.direction == Direction::Up { Seek::First } else { Seek::Last };
            let leaf = self.map.descend_from(self.tx, &self.header, child, &seek, &mut self.path)?;
            self.steps.come_to(leaf.addr())?;
            self.leaf = PmBTreeMap::<K, V>::read_leaf(self.tx, leaf)?;
            self.position = if self.direction == Direction::Up { 0 } else { node::count(&self.leaf.0) };
            return Ok(true);
        }
        Ok(false)
    }

    /// The next entry's index in the leaf, whatever its key.
    fn step(&mut self) -> TxResult<Option<usize>> {
        loop {
            let next = match self.direction {
                Direction::Up => Some(self.position).filter(|&next| next < node::count(&self.leaf.0)),
                Direction::Down => self.position.checked_sub(1),
            };
            match (next, self.direction) {
                (Some(next), Direction::Up) => {
                    self.position = next + 1;
                    return Ok(Some(next));
                }
                (Some(next), Direction::Down) => {
                    self.position = next;
                    return Ok(Some(next));
                }
                (None, _) if self.next_leaf()? => {}
                (None, _) => return Ok(None),
            }
        }
    }

    fn advance(&mut self) -> TxResult<Option<(K::Owned, V::Owned)>> {
        let Some(index) = self.step()? else { return Ok(None) };
        let (key, value) = node::entry(&self.leaf.0, PmBTreeMap::<K, V>::LEAF_ENTRY, index).split_at(K::WORDS);
        let (order, included) = match &self.end {
            End::Nothing => (Ordering::Less, true),
            End::Key { key: end, included } => (K::compare(self.tx, key, end)?, *included),
            End::Owned { key: end, compare } => (compare(self.tx, key, end)?, false),
        };
        let order = if self.direction == Direction::Down { order.reverse() } else { order };
        // Without an end, every entry is before it.
        let is_inside = matches!(self.end, End::Nothing)
            || match order {
                Ordering::Less => true,
                Ordering::Equal => included,
                Ordering::Greater => false,
            };
        if !is_inside {
            return Ok(None);
        }
        Ok(Some((K::load(self.tx, key)?, V::load(self.tx, value)?)))
    }
}

impl<K: PmKey, V: PmValue> Iterator for Range<'_, '_, '_, K, V> {
    type Item = TxResult<(K::Owned, V::Owned)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let next = self.advance().transpose();
        self.is_over = !matches!(next, Some(Ok(_)));
        next
    }
}

impl<K: PmKey, V> std::fmt::Debug for Range<'_, '_, '_, K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Range").field("direction", &self.direction).finish_non_exhaustive()
    }
}
