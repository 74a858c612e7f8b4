//! Creating and opening a hash index: the anchor and the first segment's header are read, whatever the size.

use std::hash::{BuildHasher, RandomState};
use std::marker::PhantomData;

use lodestone_heap::{Action, Heap};
use lodestone_pmem::{PmAddr, WORD_BYTES, checked};
use lodestone_store::{Object, Store};

use crate::anchor::{self, Anchor, AnchorAt, First};
use crate::cells::{Image, KeyKind, Shape};
use crate::error::Result;
use crate::hash::directory::Directory;
use crate::hash::layout::{Cover, Entry, HashShape, SegmentHeader, compare_first_segment, hash_anchor, node_bits_max};
use crate::hash::map::HashIndex;
use crate::map::Durability;
use crate::medium::IndexMemory;
use crate::traits::IndexKey;

const WHAT: &str = "anchor of a hash index";

/// How to create a hash index. An existing one keeps what it was created with.
///
/// ```
/// use lodestone_index::{Durability, HashIndex, HashOptions, OpenIndex, PointIndex};
/// use lodestone_pmem::{DomainChoice, PoolOptions};
/// use lodestone_store::Store;
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.pool");
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// let store = Store::create(&path, &options)?;
/// // 64 segments to begin with: many threads write at once while it is small.
/// let chosen = HashOptions { initial_depth: 6, ..HashOptions::default() };
/// let hash = HashIndex::<u64>::open_index(&store, "hash", &chosen, Durability::Sync)?;
/// hash.insert(&1, 10)?;
/// assert_eq!(hash.get(&1)?, Some(10));
/// # Ok::<(), lodestone_index::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct HashOptions {
    /// Buckets of a segment. With the other defaults a segment fills a block of 16,320 bytes, four to a heap chunk.
    pub buckets: u16,
    /// Lines of a bucket, each with room for three pairs.
    pub lines_per_bucket: u8,
    /// Lines of a segment for keys whose bucket is full.
    pub stash_lines: u16,
    /// Segments to begin with, as a power of two: more let more threads write at once while the index is small.
    pub initial_depth: u32,
    /// Start value of the hash, its low 48 bits; `None`: a random one, so that an attacker cannot choose keys that
    /// crowd one segment.
    pub seed: Option<u64>,
}

impl Default for HashOptions {
    fn default() -> Self {
        Self { buckets: 30, lines_per_bucket: 8, stash_lines: 11, initial_depth: 3, seed: None }
    }
}

impl HashOptions {
    /// Segments so small that a few keys split them. For tests.
    #[must_use]
    pub fn small() -> Self {
        Self { buckets: 1, lines_per_bucket: 2, stash_lines: 1, initial_depth: 0, seed: Some(1) }
    }
}

impl HashOptions {
    /// Shape of a new index in `heap`.
    fn shape<K: IndexKey + ?Sized>(&self, heap: &Heap) -> HashShape {
        let table = Shape {
            buckets: u32::from(self.buckets),
            lines: u32::from(self.lines_per_bucket),
            stash: u32::from(self.stash_lines),
        };
        assert!(table.home_lines() > 0 && table.stash > 0, "a segment has buckets, lines and a stash");
        let shape = HashShape { kind: KeyKind::of::<K>(), node_bits: node_bits_max(heap), table };
        assert!(self.initial_depth <= shape.node_bits, "the first segments fit one directory node");
        shape
    }
}

impl<K: IndexKey + ?Sized> HashIndex<K> {
    /// Opens the index `name`, or creates it. Durable on return. It reads one header of an existing index and stores
    /// nothing.
    ///
    /// # Errors
    /// [`Error::AlreadyOpen`](crate::Error::AlreadyOpen) when this process has it open;
    /// [`Error::ReadOnly`](crate::Error::ReadOnly) when the pool is and there is no such index;
    /// [`Error::WrongKind`](crate::Error::WrongKind) when the name is that of something else or an index with other
    /// keys; [`Error::Damaged`](crate::Error::Damaged) when the header does not verify;
    /// [`Error::Heap`](crate::Error::Heap) when a new index finds no space; [`Error::Pool`](crate::Error::Pool) when
    /// the name is not 1 to 40 bytes or all roots are taken.
    pub fn open(store: &Store, name: &str) -> Result<Self> {
        Self::open_with(store, name, &HashOptions::default())
    }

    /// As [`open`](Self::open), with options for an index that does not exist yet.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    ///
    /// # Panics
    /// When the options ask for no bucket, no line or no stash, or for more segments than one directory node names.
    pub fn open_with(store: &Store, name: &str, options: &HashOptions) -> Result<Self> {
        let (heap, shape) = (store.heap(), options.shape::<K>(store.heap()));
        let make = |action: &mut Action<'_>, owner| build(heap, action, owner, shape, options);
        let anchor = anchor::open(store, name, hash_anchor(shape.kind), shape.encode(), make)?;
        Self::attach(heap, anchor)
    }

    /// Opens an index that is claimed already: with its object, or as part of another one.
    pub(crate) fn open_at(heap: &Heap, at: PmAddr, object: Option<Object>) -> Result<Self> {
        Self::attach(heap, anchor::attach(heap, hash_anchor(KeyKind::of::<K>()), at, object)?)
    }

    /// Reserves and writes an index without a name, as part of `action`.
    pub(crate) fn make(heap: &Heap, action: &mut Action<'_>, above: PmAddr, options: &HashOptions) -> Result<PmAddr> {
        let shape = options.shape::<K>(heap);
        let make = |action: &mut Action<'_>, owner| build(heap, action, owner, shape, options);
        anchor::make(heap, action, (hash_anchor(shape.kind), above), shape.encode(), make)
    }

    fn attach(heap: &Heap, anchor: Anchor) -> Result<Self> {
        let medium = IndexMemory::of(heap, anchor.at);
        let found = HashShape::decode(anchor.options).ok_or_else(|| {
            let finding = format!("{:#x} are no options of a hash index", anchor.options);
            medium.damaged(anchor.at, WHAT, finding)
        })?;
        if found.kind != KeyKind::of::<K>() {
            return Err(medium.damaged(anchor.at, WHAT, "its options are those of other keys"));
        }
        let shape = found;
        let words = AnchorAt(anchor.at);
        let (root, seed) = (medium.link(words.head(), WHAT, shape.node_bytes())?, medium.word(words.second(), WHAT)?);
        if root.is_null() {
            return Err(medium.damaged(words.head(), WHAT, "names no directory node"));
        }
        compare_first_segment(medium, root, shape, seed)?;
        heap.memory().durable()?;
        let (heap, directory, durability) = (heap.clone(), Directory::new(shape, seed, root), Durability::Sync);
        Ok(Self { heap, anchor, root, seed, shape, directory, durability, _keys: PhantomData })
    }
}

/// Reserves and writes the first node and the first segments.
fn build(
    heap: &Heap,
    action: &mut Action<'_>,
    owner: PmAddr,
    shape: HashShape,
    options: &HashOptions,
) -> Result<First> {
    let (memory, depth) = (heap.memory(), options.initial_depth);
    let root = action.alloc(shape.node_block_bytes())?;
    let seed = options.seed.unwrap_or_else(|| RandomState::new().hash_one(root)) % checked::PAYLOAD_LIMIT;
    let mut bytes = Vec::new();
    let entries_each = 1_u64 << (shape.node_bits - depth);
    for number in 0..1_u64 << depth {
        let cover = Cover::of(if depth == 0 { 0 } else { number << (64 - depth) }, depth);
        let segment = action.alloc(shape.segment_bytes())?;
        let header = SegmentHeader::new(cover, shape, seed);
        write_segment(IndexMemory::of(heap, owner), header, segment, &Image::empty(shape.table_at(segment)));
        for slot in number * entries_each..(number + 1) * entries_each {
            bytes.extend_from_slice(&Entry::Segment(segment).encode(root.plus(slot * WORD_BYTES)).to_le_bytes());
        }
    }
    // The action that publishes the node may not overtake its content: its first fence comes between.
    memory.write_back(root, &bytes);
    Ok(First { head: root, second: seed })
}

/// Writes a segment and starts its write-back; the action that publishes it fences.
pub(crate) fn write_segment(medium: IndexMemory<'_>, header: SegmentHeader, at: PmAddr, image: &Image) {
    let mut bytes = Vec::new();
    image.append_bytes(&mut bytes);
    let table = image.at().first;
    // The entries that name the segment may not overtake its content: the action's first fence comes between.
    medium.memory.write_back(at, &header.encode(medium.owner, at));
    if lodestone_pmem::planted::active("hash-segment-not-flushed") {
        medium.memory.write(table, &bytes);
    } else {
        medium.memory.write_back(table, &bytes);
    }
}
