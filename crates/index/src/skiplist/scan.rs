//! Reading in order, verifying, and the list as an index.
//!
//! Ascending: batches along the list, each begun by a search after the last key that was shown. Descending: starting
//! after the last node of the upper level before the end, a stretch is read forwards and shown backwards. Then comes
//! the stretch before it, up to that node. The reader is pinned while it copies, never while the visitor runs.

use std::borrow::Borrow;
use std::ops::{Bound, ControlFlow};

use lodestone_store::{Object, Store};

use crate::anchor::{self, ANCHOR_BYTES};
use crate::bulk;
use crate::change::Change;
use crate::check::{IndexReport, Owned};
use crate::circle::Walk;
use crate::error::Result;
use crate::fastfair::keys;
use crate::map::Durability;
use crate::scan::Direction;
use crate::skiplist::{KIND_STRINGS, KIND_WORDS, NodeAt, REMOVED, SkipList, SkipListOptions, Spot};
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
    /// Copies the keys after `spot` that are in the range, at most `limit` pairs.
    fn copy(&self, mut spot: Spot, start: Bound<&K>, end: Bound<&K>, limit: usize, pairs: &mut Pairs<K>) -> Result<()> {
        pairs.clear();
        let (mut walk, mut last): (_, Option<K::Owned>) = (Walk::new(), None);
        while pairs.len() < limit {
            let next = self.next(spot)?;
            // The link proves that the next node is there, and nothing between. The content of a node rests on the
            // line that it shares with its own link.
            self.settle(spot)?;
            let Some(at) = next else { return Ok(()) };
            self.goes_on(&mut walk, at)?;
            let key = self.key_of(at)?;
            // The reader continues after this key, so it must not be before the last one.
            if last.as_ref().is_some_and(|last| *last >= key) {
                return Err(self.medium().damaged(at.0, "node of a list", "its key does not ascend"));
            }
            let (starts, ends) = is_within(key.borrow(), start, end);
            if !ends {
                return Ok(());
            }
            if starts {
                pairs.push((key.clone(), self.value_of(at)?));
            }
            last = Some(key);
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
                self.copy(self.spot_before(from)?, from, end, BATCH, &mut pairs)?;
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
            // A stretch ends with the node that the one after it was read from: it is shown by way of the link to it,
            // which it rests on.
            let (to, before) = match &until {
                Some(until) => (Bound::Included(until.borrow()), Bound::Excluded(until.borrow())),
                None => (end, end),
            };
            let stretch = {
                let _pin = self.readers.pin();
                let stretch = self.upper.before_with_key(before);
                let spot = stretch.as_ref().map_or(self.head(), |(_, node)| node.spot());
                self.copy(spot, start, to, usize::MAX, &mut pairs)?;
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

    fn check_all(&self) -> IndexReport {
        self.readers.collect();
        let mut report = IndexReport::default();
        let mut owned = Owned::new(&self.heap);
        owned.own(&mut report, self.anchor.at, ANCHOR_BYTES, "anchor of a list");
        let kind = if K::IS_WORD { &KIND_WORDS } else { &KIND_STRINGS };
        if let Err(error) = anchor::verify(self.medium(), kind, self.anchor.at) {
            report.find_error(self.anchor.at, error);
        }
        if let Err(error) = self.check_nodes(&mut report, &mut owned) {
            report.find_error(self.anchor.at, error);
        }
        report.set_blocks(owned.into_blocks());
        report
    }

    fn check_nodes(&self, report: &mut IndexReport, owned: &mut Owned<'_>) -> Result<()> {
        let (mut spot, mut last): (_, Option<K::Owned>) = (self.head(), None);
        while let Some(node) = self.next(spot)? {
            let key = self.key_of(node)?;
            keys::block_value(self.medium(), node.block())?;
            let bytes = NodeAt::bytes(Borrow::<K>::borrow(&key).key_bytes());
            let ascends = last.as_ref().is_none_or(|last| *last < key);
            if !owned.own(report, node.0, bytes, "node of a list") || !ascends {
                report.find(node.0, "node of a list: its key does not ascend");
                return Ok(());
            }
            if self.heap.memory().load(node.mark()) == REMOVED {
                report.find(node.0, "node of a list: is marked as removed");
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

    crate::change::operations_by_change!();

    fn len(&self) -> Result<u64> {
        self.ascend(Bound::Unbounded, Bound::Unbounded, &mut |_, _| ControlFlow::Continue(()))
    }

    fn is_empty(&self) -> Result<bool> {
        let is_empty = self.next(self.head())?.is_none();
        self.settle(self.head())?;
        Ok(is_empty)
    }

    fn check(&self) -> IndexReport {
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

    fn open_index(store: &Store, name: &str, _: &SkipListOptions, durability: Durability) -> Result<Self> {
        Self::open(store, name, durability)
    }

    fn open_object(object: Object, _: &SkipListOptions, durability: Durability) -> Result<Self> {
        Self::open_object(object, durability)
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use std::task::{Context, Waker};

    use lodestone_pmem::{DomainChoice, LINE_BYTES, Pool, PoolOptions, checked};

    use lodestone_pmem::PmAddr;

    use super::*;
    use crate::skiplist::is_upper;

    type Outcome = std::result::Result<(), Box<dyn std::error::Error>>;

    fn store(folder: &tempfile::TempDir) -> std::result::Result<Store, Box<dyn std::error::Error>> {
        let options = PoolOptions { domain: DomainChoice::Block, ..PoolOptions::default() };
        Ok(Store::over(&Pool::create(folder.path().join("a.pool"), &options)?)?)
    }

    #[track_caller]
    fn assert_durable(list: &SkipList<u64>) {
        let memory = list.heap.memory();
        let link = memory.flushed_at(list.head().link, LINE_BYTES);
        let mut task = Context::from_waker(Waker::noop());
        assert!(memory.poll_durable(link, &mut task).is_ready(), "a power failure would take the change back");
    }

    /// The state while a writer waits for its commit group, of which the one before took the new node, but not the link
    /// to it.
    #[test]
    fn a_key_of_the_upper_level_is_shown_when_the_link_to_it_is_durable() -> Outcome {
        let folder = tempfile::tempdir()?;
        let list = SkipList::<u64>::open(&store(&folder)?, "list", Durability::Sync)?;
        let key = (0..).find(|key: &u64| is_upper(key)).ok_or("a key")?;
        let mut action = list.heap.action();
        let node = NodeAt(action.alloc(NodeAt::bytes(8))?);
        let mut words = [0; 16];
        words[..8].copy_from_slice(&checked::encode_addr(node.0, PmAddr::NULL).to_le_bytes());
        list.heap.memory().write(node.0, &words);
        key.with_bytes(|key| crate::fastfair::keys::write_block(list.medium(), node.block(), key, 7));
        // Somebody else closes the group.
        list.heap.memory().durable()?;
        let head = list.head();
        action.set(head.link, SkipList::<u64>::encoded(head, node.0));
        action.commit()?;
        list.upper.insert(&key, node.0);
        let last = list.outermost(Direction::Descending)?;
        assert_eq!(last, Some((key, 7)));
        assert_durable(&list);
        Ok(())
    }

    #[test]
    fn a_list_is_told_empty_when_the_removal_is_durable() -> Outcome {
        let folder = tempfile::tempdir()?;
        let list = SkipList::<u64>::open(&store(&folder)?, "list", Durability::Sync)?;
        list.insert(&5, 50)?;
        // As a removal whose writer waits for its commit group.
        let head = list.head();
        list.heap.memory().store(head.link, SkipList::<u64>::encoded(head, PmAddr::NULL));
        list.heap.memory().persist(head.link, 8);
        assert!(list.is_empty()?);
        assert_durable(&list);
        Ok(())
    }
}
