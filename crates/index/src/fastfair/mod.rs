//! FAST & FAIR: a B+-tree that is wholly in persistent memory and is usable the moment it is opened (paper 2, section
//! 3). The structure is the one of FAST'18, with its known faults repaired.
//!
//! **Kept from the published design.** *FAST*: entries are moved by eight-byte stores, relying on the order of stores
//! within a line, without a log. Readers of the medium can tolerate every intermediate state. *FAIR*: nodes are
//! rebalanced in place, and every node knows its right sibling and its high key. So a search that comes to the wrong
//! node goes right.
//!
//! **Changed.** The published leaf is one dense array. An insert shifts half of it, and each line it passes costs a
//! flush and a fence (4.2 lines and 7.7 fences per insert, splits included, as counted in the authors' program). Here
//! the unit of the shift is the line, because the line is the unit in which the medium keeps order:
//!
//! 1. A leaf is a list of lines of three entries, in the order that a word of its header states.
//! 2. An insert goes into the line that covers its key: the entry's words, then the line's own meta word, all in one
//!    line: **one flush, one fence**, whatever the position.
//! 3. A line that is full moves its upper entries to a free line of the leaf. The copy is written and fenced, then the
//!    order word links it, then the old line drops them: two more lines and fences. A crash in between leaves entries
//!    in both lines. Readers tolerate it, and the first writer after the crash drops the copies (`repair`) before it
//!    changes anything in the leaf.
//! 4. A leaf without a free line splits: one action of the heap allocates the right half, cuts the order word, sets
//!    link and bounds and enters the new leaf into the parent. A removal that leaves little merges a leaf with its
//!    sibling, in one action as well; the root grows and shrinks likewise. So a crash sees each of them whole or not at
//!    all.
//! 5. A value is changed in place: pending mark, value, meta word, in one line: one flush, one fence. A removal is one
//!    meta word.
//!
//! **The cost of an insert, argued** (random keys; lines flushed, fences): itself 1 and 1. A leaf of 11 lines takes
//! about 18 inserts between two splits; 5 or 6 of them split a line, 2 and 2 more each, and one begins a line, 1 and 1
//! more. The split of a leaf: 9 lines of the new leaf, 1 of the old one's header, record and its end 4, allocation 1,
//! parent 1 to 3, with 4 fences. That is about 1 + 0.65 + 0.9 = 2.6 lines and 1 + 0.65 + 0.2 = 1.9 fences. One fence
//! per insert is the least any durable index can do.
//!
//! | operation, keys that are words | lines flushed | fences | instructions |
//! | --- | ---: | ---: | ---: |
//! | insert of a random key, structure changes included | 2.57 | 1.89 | 2,960 |
//! | lookup | 0 | 0 | 1,090 |
//! | update, removal | 1 | 1 | |
//! | scan of 100 keys | 0 | 0 | 14,100 |
//!
//! Lines and fences are asserted by `tests/costs.rs`. Instructions were counted by valgrind in the example `raw` with
//! 60,000 keys, in a release build:
//! `valgrind --tool=callgrind --toggle-collect='*PointIndex*FastFair*::insert' raw POOL_FILE 60000 fastfair`. They
//! include the checks of everything that is read.
//!
//! **Readers** take no lock, and in shared memory they store only their pin (`reclaim`). They read a node between two
//! looks at its version (`locks`), so they never see a shift half done and never a neighbour's value. A writer makes
//! its change persistent before it releases the version, so no answer depends on data that a crash could lose (durable
//! linearizability).
//!
//! **The guides.** Where keys are words, a guide in DRAM (`guide`) names the leaf for a key, so a search touches the
//! medium in the leaf only. All the leaf's lines are requested at once, and the answer counts only if the leaf's bounds
//! cover the key. The guide starts empty and learns from searches. These go through the inner nodes where the guide has
//! no better place. So the tree is open at once, and gaps in the guide cost time only. The guide also names the leaves
//! that follow, so a scan has several of them on their way. A second guide names the nodes above the leaves, for
//! splits. By the size of their nodes the guides take one and a half bytes of DRAM per key, and up to twice that where
//! their memory has just grown.
//!
//! **Strings** as keys: see `keys`. An insert or a removal allocates or frees the key's block, so it is one action of
//! the heap.
//!
//! **Structure changes** lock the two or three nodes that change; lookups and other writers go on in all others. Leaves
//! split side by side (one in about 18 inserts does); the rare other changes are made by one thread at a time
//! (`structure`).
//!
//! Damage: lines, bounds, links and blocks carry checks that include their place, cheap enough (`fold`) to be computed
//! at every read. A lookup verifies the data that its answer depends on, and each address before it follows it. The
//! leaf's bounds tell whether an inner node led to the right leaf.

mod bulk;
mod check;
pub(crate) mod keys;
pub(crate) mod locks;
pub(crate) mod node;
mod parts;
mod point;
mod read;
mod scan;
mod structure;
mod write;

use std::marker::PhantomData;

use lodestone_heap::{Action, Heap};
use lodestone_pmem::PmAddr;
use lodestone_pmem::sync::Mutex;
use lodestone_pmem::sync::atomic::{AtomicU64, Ordering};
use lodestone_store::{Object, Store};
use lodestone_width::to_usize;

use crate::anchor::{self, Anchor, AnchorAt, AnchorKind, First};
use crate::error::Result;
use crate::fastfair::locks::Stripes;
use crate::fastfair::node::{LINES_MAX, NewNode, NodeAt};
use crate::guide::Guide;
use crate::kinds::{FASTFAIR_STRINGS, FASTFAIR_WORDS};
use crate::map::Durability;
use crate::medium::IndexMemory;
use crate::reclaim::Readers;
use crate::traits::IndexKey;

/// Anchors of trees with words as keys.
pub(crate) const KIND_WORDS: AnchorKind =
    AnchorKind { magic: u64::from_le_bytes(*b"LDSTFFTW"), version: 4, kind: &FASTFAIR_WORDS };
/// Anchors of trees with strings as keys.
pub(crate) const KIND_STRINGS: AnchorKind =
    AnchorKind { magic: u64::from_le_bytes(*b"LDSTFFTS"), version: 4, kind: &FASTFAIR_STRINGS };

/// A stamp that no node has: the life of an opening that never writes.
const NO_LIFE: u64 = 0;

/// How to create a tree. An existing one keeps what it was created with.
///
/// ```
/// use lodestone_index::{Durability, FastFair, FastFairOptions, PointIndex};
/// use lodestone_pmem::{DomainChoice, PoolOptions};
/// use lodestone_store::Store;
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.pool");
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// let store = Store::create(&path, &options)?;
/// // Small nodes: a test of a few keys changes the structure.
/// let tree = FastFair::<u64>::open(&store, "tree", &FastFairOptions::with_lines(2), Durability::Sync)?;
/// for key in 0..100 {
///     tree.insert(&key, key)?;
/// }
/// assert!(tree.check().leaves > 10);
/// # Ok::<(), lodestone_index::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FastFairOptions {
    /// Entry lines of a node, 2 to 11. Fewer than the default of 11 make sense in tests only: structure changes come
    /// sooner.
    pub lines_per_node: usize,
}

impl Default for FastFairOptions {
    fn default() -> Self {
        Self { lines_per_node: LINES_MAX }
    }
}

impl FastFairOptions {
    /// Nodes of `lines_per_node` entry lines.
    #[must_use]
    pub fn with_lines(lines_per_node: usize) -> Self {
        Self { lines_per_node }
    }

    /// The options in the anchor.
    fn options_word(&self) -> u32 {
        assert!((2..=LINES_MAX).contains(&self.lines_per_node), "a node has 2 to 11 lines");
        u32::try_from(self.lines_per_node).unwrap_or(u32::MAX)
    }
}

/// A durable B+-tree from keys (`u64` or `[u8]`) to words. See the module for the design,
/// [`PointIndex`](crate::PointIndex) and
/// [`OrderedIndex`](crate::OrderedIndex) for the operations.
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
/// let tree = FastFair::<u64>::open(&store, "tree", &Default::default(), Durability::Sync)?;
/// assert!(tree.insert(&17, 1)?);
/// assert_eq!(tree.upsert(&17, 2)?, Some(1));
/// tree.insert(&4, 3)?;
/// assert_eq!(tree.first()?, Some((4, 3)));
/// assert!(tree.check().is_intact());
/// # Ok::<(), lodestone_index::Error>(())
/// ```
pub struct FastFair<K: IndexKey + ?Sized> {
    pub(crate) heap: Heap,
    pub(crate) anchor: Anchor,
    pub(crate) lines: usize,
    pub(crate) durability: Durability,
    /// Number of this life; [`NO_LIFE`] in a read-only pool.
    boot: u64,
    /// The root, as in the anchor: readers need not go there.
    root: AtomicU64,
    stripes: Stripes,
    readers: Readers,
    /// Leaves by their lower bounds, where keys are words.
    guide: Guide,
    /// The nodes above the leaves, likewise.
    parents: Guide,
    /// Held for every change of the structure but the split of a leaf whose parent has room.
    changing: Mutex<()>,
    key: PhantomData<fn(&K)>,
}

impl<K: IndexKey + ?Sized> std::fmt::Debug for FastFair<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FastFair").field("anchor", &self.anchor).field("lines", &self.lines).finish_non_exhaustive()
    }
}

impl<K: IndexKey + ?Sized> FastFair<K> {
    const ANCHOR: &'static AnchorKind = if K::IS_WORD { &KIND_WORDS } else { &KIND_STRINGS };

    /// Opens the tree `name`, or creates it. Reads the anchor and the root only, however large the tree.
    ///
    /// # Errors
    /// As [`OpenIndex::open_index`](crate::OpenIndex::open_index).
    ///
    /// # Panics
    /// When the options ask for fewer than 2 or more than 11 lines.
    pub fn open(store: &Store, name: &str, options: &FastFairOptions, durability: Durability) -> Result<Self> {
        let (heap, lines) = (store.heap(), options.options_word());
        let anchor =
            anchor::open(store, name, Self::ANCHOR, lines, |action, owner| Self::build(heap, action, owner, options))?;
        Self::attach(heap, anchor, durability)
    }

    /// Opens a tree whose object is claimed already.
    pub(crate) fn open_object(object: Object, durability: Durability) -> Result<Self> {
        let (heap, at) = (object.heap().clone(), object.at());
        Self::attach(&heap, anchor::attach(&heap, Self::ANCHOR, at, Some(object))?, durability)
    }

    /// Opens a tree that is part of an object that is claimed already.
    pub(crate) fn open_below(heap: &Heap, at: PmAddr, durability: Durability) -> Result<Self> {
        Self::attach(heap, anchor::attach(heap, Self::ANCHOR, at, None)?, durability)
    }

    /// Reserves and writes a tree without a name, as part of `action`.
    pub(crate) fn make(
        heap: &Heap,
        action: &mut Action<'_>,
        above: PmAddr,
        options: &FastFairOptions,
    ) -> Result<PmAddr> {
        anchor::make(heap, action, (Self::ANCHOR, above), options.options_word(), |action, owner| {
            Self::build(heap, action, owner, options)
        })
    }

    fn build(heap: &Heap, action: &mut Action<'_>, owner: PmAddr, options: &FastFairOptions) -> Result<First> {
        let (lines, stamp) = (options.lines_per_node, heap.pool().boot());
        let root = action.alloc(NodeAt::bytes(lines))?;
        let leaf = NewNode { level: 0, lines, next: PmAddr::NULL, low: 0, high: 0, stamp, entries: &[] };
        leaf.write(IndexMemory::of(heap, owner), root);
        Ok(First { head: root, second: 0 })
    }

    fn attach(heap: &Heap, anchor: Anchor, durability: Durability) -> Result<Self> {
        let (medium, stamp) = (IndexMemory::of(heap, anchor.at), heap.pool().boot());
        let lines = to_usize(anchor.options);
        if !(2..=LINES_MAX).contains(&lines) {
            return Err(medium.damaged(anchor.at, "anchor of a tree", format!("{lines} lines per node")));
        }
        let root = medium.link(AnchorAt(anchor.at).head(), "link to the root of a tree", NodeAt::bytes(lines))?;
        let header = node::Header::load(medium, root)?;
        header.compare_lines(medium, lines)?;
        heap.memory().durable()?;
        Ok(Self {
            heap: heap.clone(),
            anchor,
            lines,
            durability,
            // Leftovers of a crash stay as they are: this opening repairs nothing.
            boot: if heap.memory().is_read_only() { NO_LIFE } else { stamp },
            root: AtomicU64::new(root.to_raw()),
            stripes: Stripes::new(),
            readers: Readers::new(heap),
            guide: Guide::new(),
            parents: Guide::new(),
            changing: Mutex::new(()),
            key: PhantomData,
        })
    }

    /// Bytes of DRAM that the tree takes at present: its guide, and the versions of its nodes.
    #[must_use]
    pub fn dram_bytes(&self) -> u64 {
        self.guide.dram_bytes() + self.parents.dram_bytes() + self.stripes.dram_bytes()
    }

    pub(crate) fn medium(&self) -> IndexMemory<'_> {
        IndexMemory::of(&self.heap, self.anchor.at)
    }

    #[inline]
    fn root(&self) -> PmAddr {
        PmAddr::from_raw(self.root.load(Ordering::Acquire))
    }

    /// Waits until the data at `at` would survive power loss, if the tree was opened so.
    #[inline]
    fn settle(&self, at: PmAddr, bytes: u64) -> Result<()> {
        if self.durability == Durability::Sync {
            let memory = self.heap.memory();
            memory.wait_durable(memory.flushed_at(at, bytes))?;
        }
        Ok(())
    }
}
