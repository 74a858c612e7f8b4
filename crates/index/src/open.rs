//! Creating and opening a map.
//!
//! *Create.* The header block must be allocated and named by a root, and no crash may leave it allocated and unnamed:
//! 1. header and first leaf are reserved in the heap; the header is written, its `live` word as 0, and fenced;
//! 2. the root is set, kind *pending*, to the reserved header;
//! 3. the leaf is written, and one heap action allocates both blocks and sets `live` to 1;
//! 4. the root's kind is set to *live*.
//!
//! A later open that finds a pending root finishes step 4 when `live` is 1 (the action is persistent) in a header made under its name, else
//! starts again: nothing was allocated, and nobody was told of the map. (What was not allocated may be another map's header by now.)
//!
//! *Open.* Walks the leaves from the first: reads of each its frame, its link and its slot words (to count), not the
//! records; stores nothing. Bound: one visit per leaf, enforced by the ascending lower bounds, so a damaged link cannot
//! make it run for ever.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use lodestone_heap::Heap;
use lodestone_pmem::sync::RwLock;
use lodestone_pmem::{PmAddr, WORD_BYTES, checked, planted};

use crate::anchor::name_mark;
use crate::directory::Directory;
use crate::error::{Error, Result};
use crate::layout::{
    HEADER_BYTES, HEADER_MAGIC, HeaderAt, KIND_LIVE, KIND_PENDING, LeafAt, MAP_VERSION, SLOTS_DEFAULT, SLOTS_LIMIT,
    encode_leaf,
};
use crate::leaf::Leaf;
use crate::map::{Durability, OrderedMap};
use crate::medium::Medium;
use crate::root_kind;

/// How to create a map. An existing map keeps what it was created with.
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

/// The claim of an open map on its header: two maps in DRAM over the same leaves would destroy them.
#[derive(Debug)]
pub(crate) struct Only {
    claim: (usize, PmAddr),
}

/// Headers of the maps that are open in this process, each with the identity of its open pool. Never held while anything
/// else is waited for, so it need not be a lock of the scheduler.
static OPEN: Mutex<BTreeSet<(usize, PmAddr)>> = Mutex::new(BTreeSet::new());

/// The claim of whoever is opening the map of a name, from the look at the root until the map's header is claimed: two that find no root would
/// both make a map, and the root would name one of them only.
#[derive(Debug)]
pub(crate) struct Opening {
    claim: (usize, String),
}

/// Names that are being opened in this process; as [`OPEN`].
static OPENING: Mutex<BTreeSet<(usize, String)>> = Mutex::new(BTreeSet::new());

/// What tells open pools from each other: the path's bytes stand at one place as long as the pool is open, and the map keeps it open.
fn identity_of(heap: &Heap) -> usize {
    heap.pool().path().as_os_str().as_encoded_bytes().as_ptr() as usize
}

impl Opening {
    /// Claims `name`.
    ///
    /// # Errors
    /// [`Error::AlreadyOpen`] when another thread is opening it.
    pub(crate) fn claim(heap: &Heap, name: &str) -> Result<Self> {
        let claim = (identity_of(heap), name.to_owned());
        let is_free = OPENING.lock().unwrap_or_else(PoisonError::into_inner).insert(claim.clone());
        if is_free || planted::active("index-open-twice") {
            return Ok(Self { claim });
        }
        Err(Error::AlreadyOpen { path: heap.pool().path().to_owned(), name: name.to_owned() })
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        OPENING.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.claim);
    }
}

impl Only {
    /// Claims `header`, or `None` when an open map has it.
    pub(crate) fn claim(heap: &Heap, header: PmAddr) -> Option<Self> {
        let claim = (identity_of(heap), header);
        let is_free = OPEN.lock().unwrap_or_else(PoisonError::into_inner).insert(claim);
        // Only a claim that was made may be given back: a value that is dropped here would give back another map's.
        is_free.then(|| Self { claim })
    }
}

impl Drop for Only {
    fn drop(&mut self) {
        OPEN.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.claim);
    }
}

impl OrderedMap {
    /// Opens the map under the root `name`, or creates it there. Durable on return.
    ///
    /// # Errors
    /// [`Error::AlreadyOpen`] when this process has the map open; [`Error::ReadOnly`] when the pool is and there is no such
    /// map; [`Error::WrongKind`] when the root holds something else; [`Error::Damaged`] when header, links or bounds do not
    /// verify (damaged records do not prevent an open); [`Error::Heap`] when a new map finds no space; [`Error::Pool`]
    /// when the name is not 1 to 40 bytes or all roots are taken.
    pub fn open(heap: &Heap, name: &str) -> Result<Self> {
        Self::open_with(heap, name, &MapOptions::default())
    }

    /// As [`open`](Self::open), with options for a map that does not exist yet.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    ///
    /// # Panics
    /// When the options ask for fewer than 2 or more than 64 slots per leaf.
    pub fn open_with(heap: &Heap, name: &str, options: &MapOptions) -> Result<Self> {
        assert!((2..=SLOTS_LIMIT).contains(&options.slots_per_leaf), "a leaf has 2 to 64 slots");
        let pool = heap.pool();
        let medium = Medium { memory: heap.memory(), path: pool.path() };
        let opening = Opening::claim(heap, name)?;
        let header = match pool.root(name)? {
            Some((KIND_LIVE, header)) => header,
            Some((KIND_PENDING, header)) if is_published(medium, name, header) => {
                if !heap.memory().is_read_only() {
                    pool.set_root(name, KIND_LIVE, header)?;
                }
                header
            }
            // Of whatever kind: a creation that a crash cut short keeps no name from another.
            Some((kind, at)) if !root_kind::is_unmade(medium, name, kind, at) => {
                return Err(Error::wrong_kind(pool, name, kind, KIND_LIVE));
            }
            _ if heap.memory().is_read_only() => {
                return Err(Error::ReadOnly { path: pool.path().to_owned(), what: "the creation of a map" });
            }
            _ => create(heap, name, options.slots_per_leaf)?,
        };
        let only = Only::claim(heap, header)
            .ok_or_else(|| Error::AlreadyOpen { path: pool.path().to_owned(), name: name.to_owned() })?;
        drop(opening);
        let map = attach(heap, medium, header, only)?;
        heap.memory().durable()?;
        Ok(map)
    }
}

/// Whether the header at `header` was made under the root `name`, by an action that is persistent.
pub(crate) fn is_published(medium: Medium<'_>, name: &str, header: PmAddr) -> bool {
    medium.memory.contains(header, HEADER_BYTES)
        && header.offset().is_multiple_of(WORD_BYTES)
        && verify_header(medium, HeaderAt(header)).is_ok()
        && medium.word(HeaderAt(header).live(), "live mark of a map").is_ok_and(|live| live == 1)
        && medium.word(HeaderAt(header).name(), "name mark of a map").is_ok_and(|mark| mark == name_mark(name))
}

/// Slots per new leaf, from a header that verifies.
pub(crate) fn verify_header(medium: Medium<'_>, header: HeaderAt) -> Result<usize> {
    let (magic, shape) = (medium.memory.load(header.magic()), medium.memory.load(header.shape()));
    if magic != HEADER_MAGIC {
        return Err(medium.damaged(header.magic(), "map header", "no map magic"));
    }
    if medium.word(header.crc(), "checksum of a map header")? != header_crc(magic, shape) {
        return Err(medium.damaged(header.shape(), "map header", "checksum mismatch"));
    }
    let (version, slots) = (shape as u32, (shape >> 32) as usize);
    if version != MAP_VERSION || !(2..=SLOTS_LIMIT).contains(&slots) {
        let finding = format!("version {version} with {slots} slots per leaf; use the program version that wrote it");
        return Err(medium.damaged(header.shape(), "map header", finding));
    }
    Ok(slots)
}

fn header_crc(magic: u64, shape: u64) -> u64 {
    u64::from(crc32c::crc32c_append(crc32c::crc32c(&magic.to_le_bytes()), &shape.to_le_bytes()))
}

fn create(heap: &Heap, name: &str, slots: usize) -> Result<PmAddr> {
    let memory = heap.memory();
    let mut action = heap.action();
    let at = action.alloc(HEADER_BYTES)?;
    let (header, leaf) = (HeaderAt(at), LeafAt(action.alloc(LeafAt::bytes(slots, 0))?));
    let shape = u64::from(MAP_VERSION) | (slots as u64) << 32;
    let mut words = [0; 8];
    words[0] = HEADER_MAGIC;
    words[1] = shape;
    words[2] = checked::encode_addr(header.head(), leaf.0);
    words[3] = checked::encode(header.live(), 0);
    words[4] = checked::encode(header.crc(), header_crc(HEADER_MAGIC, shape));
    words[5] = checked::encode(header.name(), name_mark(name));
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    memory.write_back(at, &bytes);
    // The pending root may not overtake the header's `live` word of 0: an old 1 there would pass for a finished map.
    memory.fence();
    if !planted::active("index-create-unnamed") {
        heap.pool().set_root(name, KIND_PENDING, at)?;
    }
    // The action that publishes the leaf may not overtake its content: its first fence comes between.
    memory.write_back(leaf.0, &encode_leaf(leaf, slots, b"", PmAddr::NULL, &[]));
    action.set(header.live(), checked::encode(header.live(), 1));
    action.commit()?;
    heap.pool().set_root(name, KIND_LIVE, at)?;
    Ok(at)
}

fn attach(heap: &Heap, medium: Medium<'_>, header: PmAddr, only: Only) -> Result<OrderedMap> {
    if !medium.memory.contains(header, HEADER_BYTES) || !header.offset().is_multiple_of(WORD_BYTES) {
        return Err(medium.damaged(header, "root of a map", "is no place in the pool where a map can be"));
    }
    let slots_per_leaf = verify_header(medium, HeaderAt(header))?;
    let mut next = medium.link(HeaderAt(header).head(), "link to the first leaf", LeafAt::bytes(1, 0))?;
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
        records += (0..frame.slots).filter(|&slot| !matches!(medium.slot(leaf, slot), Ok(PmAddr::NULL))).count() as u64;
        frames.push((leaf, frame.slots, frame.low));
        next = medium.link(leaf.next(), "link to the next leaf", LeafAt::bytes(1, 0))?;
    }
    if frames.is_empty() {
        return Err(medium.damaged(HeaderAt(header).head(), "link to the first leaf", "is null"));
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
        header,
        slots_per_leaf,
        directory: RwLock::new(Directory::new(leaves)),
        records: AtomicU64::new(records),
        index_durability: Durability::Sync,
        _only: only,
    })
}
