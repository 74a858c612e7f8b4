//! Reading in order, verifying, and the list as an index.
//!
//! Ascending: batches along the list, each begun by a search behind the last key that was shown. Descending: from the last node
//! of the upper level before the end, a stretch is read forwards and shown backwards; then the stretch before it. The reader is
//! pinned while it copies, never while the visitor runs.

use std::borrow::Borrow;
use std::collections::HashSet;
use std::ops::{Bound, ControlFlow};

use lodestone_heap::Heap;
use lodestone_pmem::PmAddr;

use crate::anchor::{self, ANCHOR_BYTES};
use crate::bulk;
use crate::change::Change;
use crate::check::CheckReport;
use crate::error::Result;
use crate::fastfair::keys;
use crate::layout::KEY_BYTES_MAX;
use crate::map::Durability;
use crate::scan::Direction;
use crate::skiplist::{KIND_STRINGS, KIND_WORDS, NodeAt, SkipList, SkipListOptions, Spot};
use crate::traits::{IndexKey, OpenIndex, OrderedIndex, PointIndex, Swap};

/// Pairs in a batch of an ascending scan.
const BATCH: usize = 64;

type Pairs<K> = Vec<(<K as IndexKey>::Owned, u64)>;

fn is_within<K: Ord + ?Sized>(key: &K, start: Bound<&K>, end: Bound<&K>) -> (bool, bool) {
    let starts = match start {
        Bound::Unbounded => true,
        Bound::Included(bound) => key >= bound,
        Bound::Excluded(bound) => key > bound,
    };
    let ends = match end {
        Bound::Unbounded => true,
        Bound::Included(bound) => key <= bound,
        Bound::Excluded(bound) => key < bound,
    };
    (starts, ends)
}

impl<K: IndexKey + ?Sized> SkipList<K> {
    /// Copies from `node` on, or from behind `spot`, what lies in the range, at most `limit` pairs.
    fn copy(
        &self,
        (mut spot, mut node): (Spot, Option<NodeAt>),
        start: Bound<&K>,
        end: Bound<&K>,
        limit: usize,
        pairs: &mut Pairs<K>,
    ) -> Result<()> {
        pairs.clear();
        while pairs.len() < limit {
            let next = match node.take() {
                Some(node) => Some(node),
                None => {
                    let next = self.next(spot)?;
                    // That nothing is between rests on the link, that the pair is there on the line that it shares with it.
                    self.settle(spot)?;
                    next
                }
            };
            let Some(at) = next else { return Ok(()) };
            let key = self.key_of(at)?;
            let (starts, ends) = is_within(key.borrow(), start, end);
            if !ends {
                return Ok(());
            }
            if starts {
                pairs.push((key, self.value_of(at)?));
            }
            spot = at.spot();
        }
        self.settle(spot)
    }

    fn ascend(
        &self,
        start: Bound<&K>,
        end: Bound<&K>,
        visit: &mut impl FnMut(&K, u64) -> ControlFlow<()>,
    ) -> Result<u64> {
        let (mut pairs, mut seen, mut last): (Pairs<K>, u64, Option<K::Owned>) = (Vec::new(), 0, None);
        loop {
            let from = last.as_ref().map_or(start, |last| Bound::Excluded(last.borrow()));
            {
                let _pin = self.readers.pin();
                self.copy((self.spot_before(from)?, None), from, end, BATCH, &mut pairs)?;
            }
            for (key, value) in &pairs {
                seen += 1;
                if visit(key.borrow(), *value).is_break() {
                    return Ok(seen);
                }
            }
            if pairs.len() < BATCH {
                return Ok(seen);
            }
            last = pairs.pop().map(|(key, _)| key);
        }
    }

    fn descend(
        &self,
        start: Bound<&K>,
        end: Bound<&K>,
        visit: &mut impl FnMut(&K, u64) -> ControlFlow<()>,
    ) -> Result<u64> {
        let (mut pairs, mut seen, mut until): (Pairs<K>, u64, Option<K::Owned>) = (Vec::new(), 0, None);
        loop {
            let to = until.as_ref().map_or(end, |until| Bound::Excluded(until.borrow()));
            let stretch = {
                let _pin = self.readers.pin();
                let stretch = self.upper.before_with_key(to);
                let node = stretch.as_ref().map(|(_, node)| *node);
                self.copy((self.head(), node), start, to, usize::MAX, &mut pairs)?;
                stretch
            };
            for (key, value) in pairs.iter().rev() {
                seen += 1;
                if visit(key.borrow(), *value).is_break() {
                    return Ok(seen);
                }
            }
            match stretch {
                Some((key, _)) if is_within(key.borrow(), start, Bound::Unbounded).0 => until = Some(key),
                _ => return Ok(seen),
            }
        }
    }

    fn check_all(&self) -> CheckReport {
        self.readers.collect();
        let mut report = CheckReport::default();
        let mut owned = HashSet::from([self.anchor.at]);
        if self.heap.block_bytes(self.anchor.at).is_none_or(|bytes| bytes < ANCHOR_BYTES) {
            report.find(self.anchor.at, "anchor of a list: is not an allocated block");
        }
        let kind = if K::IS_WORD { &KIND_WORDS } else { &KIND_STRINGS };
        if let Err(error) = anchor::verify(self.medium(), kind, self.anchor.at) {
            report.find_error(self.anchor.at, error);
        }
        if let Err(error) = self.check_nodes(&mut report, &mut owned) {
            report.find_error(self.anchor.at, error);
        }
        report.blocks = owned.into_iter().collect();
        report
    }

    fn check_nodes(&self, report: &mut CheckReport, owned: &mut HashSet<PmAddr>) -> Result<()> {
        let (mut spot, mut last): (_, Option<K::Owned>) = (self.head(), None);
        while let Some(node) = self.next(spot)? {
            let key = self.key_of(node)?;
            keys::block_value(self.medium(), node.block())?;
            if !owned.insert(node.0) || last.as_ref().is_some_and(|last| *last >= key) {
                report.find(node.0, "node of a list: its key does not ascend");
                return Ok(());
            }
            let wanted = NodeAt::bytes(Borrow::<K>::borrow(&key).key_bytes());
            if self.heap.block_bytes(node.0).is_none_or(|bytes| bytes < wanted) {
                report.find(node.0, "node of a list: is not an allocated block that holds it");
            }
            report.records += 1;
            last = Some(key);
            spot = node.spot();
        }
        Ok(())
    }
}

impl<K: IndexKey + ?Sized> PointIndex for SkipList<K> {
    type Key = K;

    fn get(&self, key: &K) -> Result<Option<u64>> {
        self.lookup(key)
    }

    fn insert(&self, key: &K, value: u64) -> Result<bool> {
        let put_new = |found: Option<u64>| if found.is_none() { Change::Put } else { Change::Keep };
        Ok(self.change(key, value, put_new)?.is_none())
    }

    fn update(&self, key: &K, value: u64) -> Result<Option<u64>> {
        self.change(key, value, |found| if found.is_some() { Change::Put } else { Change::Keep })
    }

    fn upsert(&self, key: &K, value: u64) -> Result<Option<u64>> {
        self.change(key, value, |_| Change::Put)
    }

    fn remove(&self, key: &K) -> Result<Option<u64>> {
        self.change(key, 0, |_| Change::Remove)
    }

    fn compare_and_swap(&self, key: &K, current: u64, new: u64) -> Result<Swap> {
        let swap = |found: Option<u64>| if found == Some(current) { Change::Put } else { Change::Keep };
        Ok(match self.change(key, new, swap)? {
            None => Swap::Absent,
            Some(found) if found == current => Swap::Done,
            Some(found) => Swap::Differs(found),
        })
    }

    fn len(&self) -> Result<u64> {
        self.ascend(Bound::Unbounded, Bound::Unbounded, &mut |_, _| ControlFlow::Continue(()))
    }

    fn is_empty(&self) -> Result<bool> {
        Ok(self.next(self.head())?.is_none())
    }

    fn key_bytes_max(&self) -> usize {
        if K::IS_WORD { size_of::<u64>() } else { KEY_BYTES_MAX }
    }

    fn sync(&self) -> Result<()> {
        Ok(self.heap.memory().durable()?)
    }

    fn check(&self) -> CheckReport {
        self.check_all()
    }
}

impl<K: IndexKey + ?Sized> OrderedIndex for SkipList<K> {
    fn scan(
        &self,
        start: Bound<&K>,
        end: Bound<&K>,
        direction: Direction,
        mut visit: impl FnMut(&K, u64) -> ControlFlow<()>,
    ) -> Result<u64> {
        match direction {
            Direction::Ascending => self.ascend(start, end, &mut visit),
            Direction::Descending => self.descend(start, end, &mut visit),
        }
    }
    fn bulk_load<S>(&self, sorted: S) -> Result<u64>
    where
        S: IntoIterator<Item = (K::Owned, u64)>,
    {
        bulk::load_sorted(self, self.bulk_pairs(), sorted.into_iter(), |pairs, _| self.load_stretch(pairs))
    }
}

impl<K: IndexKey + ?Sized> OpenIndex for SkipList<K> {
    type Options = SkipListOptions;

    fn open_index(heap: &Heap, name: &str, _: &SkipListOptions, durability: Durability) -> Result<Self> {
        Self::open(heap, name, durability)
    }
}
