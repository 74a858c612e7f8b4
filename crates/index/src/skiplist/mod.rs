//! A persistent skip list: the bottom list of all keys is in the pool, the upper levels are in DRAM. (Paper 2, section
//! 3.2, evaluates one as the third index combined with its cache.)
//!
//! **Why the upper levels are not persistent.** They repeat only what the bottom list says. Every persistent level
//! would cost an insert another line and another order to keep. One walk over the list rebuilds them at open, so
//! recovery takes as long as reading the keys once. Because they are volatile they need not be towers either. One
//! sorted structure holds every eighth key (chosen by its hash, so that each open chooses the same), and a search walks
//! eight nodes on the average.
//!
//! 1. *Search*: the upper level names the last node of its own before the key; from there along the list.
//! 2. *Insert*: a node is reserved and written with the link to its successor; under the lock of its predecessor, which
//!    must still be linked and point to that successor, one heap action allocates it and sets the predecessor's link.
//!    Then it joins the upper level, still under the lock.
//! 3. *Remove*: under the locks of predecessor and node. The node leaves the upper level. One action sets the
//!    predecessor's link past it and frees it. It is marked for threads that are on it. The block goes back to the heap
//!    when no reader can be there.
//! 4. *Update*: the value's words in the node (see `fastfair::keys`): one line, one fence.
//!
//! Cost of an insert: the node's line, the heap's record (2), the allocation, the link and the end of the record: 6
//! lines and 4 fences; of a removal 5 and 3. A tree does better (see `fastfair`): a list node is a block of the heap, a
//! tree's entry is not.
//!
//! **Readers** take no lock. A link is changed only by a heap action, and the visible part of an action survives a
//! crash. (In the block domain, a thread that reports a link first waits for its writer, then for the medium.) A value
//! is read between two looks at its node's version. A reader on a node that was removed continues along that node's
//! link. Nodes that were in the list all the time are still ahead of it, because nothing was between the node and its
//! successor when it was removed. Nodes inserted later came while the reader was on its way.
//!
//! ```text
//! node:  0 next: checked address    8 mark: volatile, all ones once the node was removed    16 key block (as in `fastfair::keys`)
//! ```

mod bulk;
mod ops;
mod scan;
mod upper;

use std::borrow::Borrow;
use std::marker::PhantomData;

use lodestone_heap::{Action, Heap};
use lodestone_pmem::{Domain, LINE_BYTES, PmAddr, checked, planted};
use lodestone_store::{Object, Store};
use lodestone_width::to_u64;

use crate::anchor::{self, Anchor, AnchorAt, AnchorKind, First};
use crate::circle::Walk;
use crate::error::Result;
use crate::fastfair::keys;
use crate::fastfair::locks::Stripes;
use crate::kinds::{SKIPLIST_STRINGS, SKIPLIST_WORDS};
use crate::map::Durability;
use crate::medium::IndexMemory;
use crate::reclaim::Readers;
use crate::skiplist::upper::Upper;
use crate::traits::IndexKey;

pub(crate) const KIND_WORDS: AnchorKind =
    AnchorKind { magic: u64::from_le_bytes(*b"LDSTSKLW"), version: 3, kind: &SKIPLIST_WORDS };
pub(crate) const KIND_STRINGS: AnchorKind =
    AnchorKind { magic: u64::from_le_bytes(*b"LDSTSKLS"), version: 3, kind: &SKIPLIST_STRINGS };

/// One of how many keys is in the upper level.
const UPPER_ONE_OF: u32 = 8;
/// Mark of a removed node.
pub(crate) const REMOVED: u64 = u64::MAX;

/// How to create a skip list. Nothing can be chosen yet.
///
/// ```
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # use lodestone_store::Store;
/// # let folder = tempfile::tempdir().unwrap();
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let store = Store::create(folder.path().join("a.pool"), &options)?;
/// use lodestone_index::{Durability, OpenIndex, PointIndex, SkipList, SkipListOptions};
///
/// let list = SkipList::<u64>::open_index(&store, "list", &SkipListOptions::default(), Durability::Sync)?;
/// assert!(list.insert(&1, 10)?);
/// # Ok::<(), lodestone_index::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct SkipListOptions {}

/// A durable skip list from keys (`u64` or `[u8]`) to words. See the module for the design,
/// [`PointIndex`](crate::PointIndex) and
/// [`OrderedIndex`](crate::OrderedIndex) for the operations.
///
/// ```
/// use lodestone_index::{Durability, OrderedIndex, PointIndex, SkipList};
/// use lodestone_pmem::{DomainChoice, PoolOptions};
/// use lodestone_store::Store;
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.pool");
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// let store = Store::create(&path, &options)?;
/// let list = SkipList::<[u8]>::open(&store, "list", Durability::Sync)?;
/// list.insert(b"key", 1)?;
/// assert_eq!(list.remove(b"key")?, Some(1));
/// assert_eq!(list.first()?, None);
/// # Ok::<(), lodestone_index::Error>(())
/// ```
pub struct SkipList<K: IndexKey + ?Sized> {
    heap: Heap,
    anchor: Anchor,
    durability: Durability,
    upper: Upper<K>,
    stripes: Stripes,
    readers: Readers,
    key: PhantomData<fn(&K)>,
}

impl<K: IndexKey + ?Sized> std::fmt::Debug for SkipList<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SkipList").field("anchor", &self.anchor).finish_non_exhaustive()
    }
}

/// A place in the list that has a link: a node, or the anchor before the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    /// The target of a lock.
    pub(crate) at: PmAddr,
    /// The word with the link.
    pub(crate) link: PmAddr,
}

/// The words of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeAt(pub(crate) PmAddr);

impl NodeAt {
    pub(crate) fn spot(self) -> Spot {
        Spot { at: self.0, link: self.0 }
    }
    pub(crate) fn mark(self) -> PmAddr {
        self.0.plus(8)
    }
    /// The places of key and value.
    pub(crate) fn block(self) -> PmAddr {
        self.0.plus(16)
    }
    /// Bytes of a node; at least a line, so that it starts one.
    pub(crate) fn bytes(key_bytes: usize) -> u64 {
        (48 + to_u64(key_bytes)).max(LINE_BYTES)
    }
}

/// A list without a node.
const EMPTY: First = First { head: PmAddr::NULL, second: 0 };

/// Whether a key is in the upper level.
fn is_upper<K: IndexKey + ?Sized>(key: &K) -> bool {
    key.with_bytes(|bytes| (crc32c::crc32c(bytes) >> 7).is_multiple_of(UPPER_ONE_OF))
}

impl<K: IndexKey + ?Sized> SkipList<K> {
    const ANCHOR: &'static AnchorKind = if K::IS_WORD { &KIND_WORDS } else { &KIND_STRINGS };

    /// Opens the list `name`, or creates it, and builds the upper level by a walk over all keys.
    ///
    /// # Errors
    /// As [`OpenIndex::open_index`](crate::OpenIndex::open_index).
    pub fn open(store: &Store, name: &str, durability: Durability) -> Result<Self> {
        let anchor = anchor::open(store, name, Self::ANCHOR, 0, |_, _| Ok(EMPTY))?;
        Self::attach(store.heap(), anchor, durability)
    }

    /// Opens a list whose object is claimed already.
    pub(crate) fn open_object(object: Object, durability: Durability) -> Result<Self> {
        let (heap, at) = (object.heap().clone(), object.at());
        Self::attach(&heap, anchor::attach(&heap, Self::ANCHOR, at, Some(object))?, durability)
    }

    /// Opens a list that is part of an object that is claimed already.
    pub(crate) fn open_below(heap: &Heap, at: PmAddr, durability: Durability) -> Result<Self> {
        Self::attach(heap, anchor::attach(heap, Self::ANCHOR, at, None)?, durability)
    }

    /// Reserves and writes a list without a name, as part of `action`.
    pub(crate) fn make(heap: &Heap, action: &mut Action<'_>, above: PmAddr) -> Result<PmAddr> {
        anchor::make(heap, action, (Self::ANCHOR, above), 0, |_, _| Ok(EMPTY))
    }

    fn attach(heap: &Heap, anchor: Anchor, durability: Durability) -> Result<Self> {
        let list = Self {
            heap: heap.clone(),
            anchor,
            durability,
            upper: Upper::new(),
            stripes: Stripes::new(),
            readers: Readers::new(heap),
            key: PhantomData,
        };
        list.build_upper()?;
        heap.memory().durable()?;
        Ok(list)
    }

    fn build_upper(&self) -> Result<()> {
        let (mut spot, mut last) = (self.head(), None);
        while let Some(node) = self.next(spot)? {
            let key = self.key_of(node)?;
            // Ascending keys keep a damaged link from making this run for ever.
            if last.as_ref().is_some_and(|last| *last >= key) {
                return Err(self.medium().damaged(node.0, "node of a list", "its key does not ascend"));
            }
            // Nothing leads to a node that was removed, and changes wait until nothing does.
            if self.heap.memory().load(node.mark()) == REMOVED {
                return Err(self.medium().damaged(node.mark(), "node of a list", "is marked as removed"));
            }
            if is_upper::<K>(key.borrow()) {
                self.upper.insert(key.borrow(), node.0);
            }
            last = Some(key);
            spot = node.spot();
        }
        Ok(())
    }

    fn medium(&self) -> IndexMemory<'_> {
        IndexMemory::of(&self.heap, self.anchor.at)
    }

    fn head(&self) -> Spot {
        Spot { at: self.anchor.at, link: AnchorAt(self.anchor.at).head() }
    }

    /// The node that a link leads to.
    #[inline]
    fn next(&self, spot: Spot) -> Result<Option<NodeAt>> {
        let next = self.medium().link(spot.link, "link of a list", NodeAt::bytes(0))?;
        Ok((!next.is_null()).then_some(NodeAt(next)))
    }

    /// Notes the next node of a walk, which must not have come to it before.
    #[inline]
    fn goes_on(&self, walk: &mut Walk, node: NodeAt) -> Result<()> {
        if walk.goes_on(node.0) {
            return Ok(());
        }
        Err(self.medium().damaged(node.0, "node of a list", "links lead from it in a circle"))
    }

    fn key_of(&self, node: NodeAt) -> Result<K::Owned> {
        let key = keys::with_block_key(self.medium(), node.block(), K::from_bytes)?;
        key.ok_or_else(|| self.medium().damaged(node.0, "key of a list", "is no key of this kind"))
    }

    /// The value of a node at one moment.
    fn value_of(&self, node: NodeAt) -> Result<u64> {
        self.stripes.read(node.0, || keys::block_value(self.medium(), node.block()))
    }

    fn encoded(spot: Spot, target: PmAddr) -> u64 {
        checked::encode_addr(spot.link, target)
    }

    /// Waits until the line of `spot`, its link included, would survive power loss as it was read, if the list was
    /// opened so.
    fn settle(&self, spot: Spot) -> Result<()> {
        if self.durability == Durability::Sync {
            let memory = self.heap.memory();
            // Elsewhere what anyone sees of an action survives; explored schedules have no medium, and are judged by
            // this one's rule.
            let is_block = memory.domain() == Domain::Block || cfg!(feature = "shuttle");
            if is_block && !planted::active("skiplist-tells-unflushed") {
                // A link is seen between its store and its flush, and only what was flushed can be waited for: first
                // for its writer.
                self.stripes.read(spot.at, || Ok(()))?;
            }
            memory.wait_durable(memory.flushed_at(spot.link.line().start(), LINE_BYTES))?;
        }
        Ok(())
    }
}
