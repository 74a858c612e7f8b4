//! Creating and opening a map.
//!
//! *Create.* Anchor, first leaf and name are made by one action of the heap (see `anchor`).
//!
//! *Open.* It walks the leaves from the first. It reads each leaf's frame, its link and its slot words (to count), but
//! not the records, and stores nothing. Bound: one visit per leaf, enforced by the ascending lower bounds, so a damaged
//! link cannot make it run for ever.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use lodestone_heap::{Action, Heap};
use lodestone_pmem::PmAddr;
use lodestone_pmem::sync::RwLock;
use lodestone_store::{Object, Store};
use lodestone_width::{to_u64, to_usize};

use crate::anchor::{self, Anchor, AnchorAt, First};
use crate::directory::Directory;
use crate::error::Result;
use crate::layout::{LeafAt, MAP_ANCHOR, SLOTS_DEFAULT, SLOTS_LIMIT, encode_leaf};
use crate::leaf::Leaf;
use crate::map::{Durability, OrderedMap};
use crate::medium::IndexMemory;

/// How to create a map. An existing map keeps what it was created with.
///
/// ```
/// use lodestone_index::{MapOptions, OrderedMap};
/// use lodestone_pmem::{DomainChoice, PoolOptions};
/// use lodestone_store::Store;
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.pool");
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// let store = Store::create(&path, &options)?;
/// // Leaves of four records: a test of a few keys splits them.
/// let map = OrderedMap::open_with(&store, "map", &MapOptions { slots_per_leaf: 4 })?;
/// for key in 0..20_u8 {
///     map.insert(&[key], b"")?;
/// }
/// assert!(map.stats().leaves >= 5);
/// # Ok::<(), lodestone_index::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct MapOptions {
    /// Slots of a leaf, 2 to 64. Fewer than the default of 60 make sense in tests only: structure changes come sooner.
    pub slots_per_leaf: usize,
}

impl Default for MapOptions {
    fn default() -> Self {
        Self { slots_per_leaf: SLOTS_DEFAULT }
    }
}

impl OrderedMap {
    /// Opens the map `name`, or creates it. Durable on return.
    ///
    /// # Errors
    /// [`Error::AlreadyOpen`](crate::Error::AlreadyOpen) when this process has the map open;
    /// [`Error::ReadOnly`](crate::Error::ReadOnly) when the pool is and there is no such map;
    /// [`Error::WrongKind`](crate::Error::WrongKind) when the name is that of something else;
    /// [`Error::Damaged`](crate::Error::Damaged) when anchor, links or bounds do not verify (damaged records do not
    /// prevent an open);
    /// [`Error::Heap`](crate::Error::Heap) when a new map finds no space; [`Error::Store`](crate::Error::Store) when
    /// the name is none.
    pub fn open(store: &Store, name: &str) -> Result<Self> {
        Self::open_with(store, name, &MapOptions::default())
    }

    /// As [`open`](Self::open), with options for a map that does not exist yet.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    ///
    /// # Panics
    /// When the options ask for fewer than 2 or more than 64 slots per leaf.
    pub fn open_with(store: &Store, name: &str, options: &MapOptions) -> Result<Self> {
        let slots = options.slots_per_leaf;
        assert!((2..=SLOTS_LIMIT).contains(&slots), "a leaf has 2 to 64 slots");
        let build = |action: &mut Action<'_>, owner| build(store.heap(), action, owner, slots);
        let anchor = anchor::open(store, name, &MAP_ANCHOR, u32::try_from(slots).unwrap_or(u32::MAX), build)?;
        let map = attach(store.heap(), anchor)?;
        store.memory().durable()?;
        Ok(map)
    }

    /// Opens a map whose object is claimed already.
    pub(crate) fn open_object(object: Object) -> Result<Self> {
        let (heap, at) = (object.heap().clone(), object.at());
        attach(&heap, anchor::attach(&heap, &MAP_ANCHOR, at, Some(object))?)
    }
}

/// Reserves and writes the first leaf.
fn build(heap: &Heap, action: &mut Action<'_>, owner: PmAddr, slots: usize) -> Result<First> {
    let leaf = LeafAt(action.alloc(LeafAt::bytes(slots, 0))?);
    // The action that publishes the leaf may not overtake its content: its first fence comes between.
    heap.memory().write_back(leaf.0, &encode_leaf(owner, leaf, slots, b"", PmAddr::NULL, &[]));
    Ok(First { head: leaf.0, second: 0 })
}

fn attach(heap: &Heap, anchor: Anchor) -> Result<OrderedMap> {
    let medium = IndexMemory::of(heap, anchor.at);
    let slots_per_leaf = to_usize(anchor.options);
    if !(2..=SLOTS_LIMIT).contains(&slots_per_leaf) {
        return Err(medium.damaged(anchor.at, "anchor of a map", format!("{slots_per_leaf} slots per leaf")));
    }
    let head = AnchorAt(anchor.at).head();
    let mut next = medium.link(head, "link to the first leaf", LeafAt::bytes(1, 0))?;
    let mut records = 0;
    let mut frames: Vec<(LeafAt, usize, Box<[u8]>)> = Vec::new();
    while !next.is_null() {
        let leaf = LeafAt(next);
        let frame = medium.leaf_frame(leaf)?;
        let ascends = frames.last().map_or(frame.low.is_empty(), |(_, _, low)| low[..] < frame.low[..]);
        if !ascends {
            return Err(medium.damaged(leaf.0, "leaf", "its lower bound does not ascend"));
        }
        // A damaged slot counts as a record until an operation needs it and reports it.
        records +=
            to_u64((0..frame.slots).filter(|&slot| !matches!(medium.slot(leaf, slot), Ok(PmAddr::NULL))).count());
        frames.push((leaf, frame.slots, frame.low));
        next = medium.link(leaf.next(), "link to the next leaf", LeafAt::bytes(1, 0))?;
    }
    if frames.is_empty() {
        return Err(medium.damaged(head, "link to the first leaf", "is null"));
    }
    let mut leaves = Vec::with_capacity(frames.len());
    let (mut next, mut upper) = (PmAddr::NULL, None);
    for (at, slots, low) in frames.into_iter().rev() {
        let bound = Some(low.clone());
        leaves.push(Arc::new(Leaf::unloaded(at, slots, low, next, upper)));
        (next, upper) = (at.0, bound);
    }
    leaves.reverse();
    Ok(OrderedMap {
        heap: heap.clone(),
        anchor,
        slots_per_leaf,
        directory: RwLock::new(Directory::new(leaves)),
        records: AtomicU64::new(records),
        index_durability: Durability::Sync,
    })
}
