//! The directory in DRAM: a copy of the nodes on the medium, read when a search first needs it.
//!
//! 1. A node resolves [`HashShape::node_bits`] bits of a hash. Its entry names a segment, a further node, or nothing
//!    yet.
//! 2. Who finds nothing reads the medium's entry under the structure lock and enters it. So opening an index reads
//!    none.
//! 3. A split replaces its segment's entries; where they are one, a new node is hung in. No node is ever doubled,
//!    copied or freed, so a structure change costs the same at every size.
//!
//! Descriptors of segments stay where they are until the index is dropped. A dead one is given to a later segment; a
//! reader that still holds it finds that its stamp is old or that it covers other hashes. So no thread counts readers.

use std::sync::OnceLock;

use lodestone_pmem::sync::atomic::{AtomicU64, Ordering};
use lodestone_pmem::sync::{Mutex, MutexGuard, lock};
use lodestone_pmem::{PmAddr, WORD_BYTES};
use lodestone_width::{to_u64, to_usize};

use crate::cells::{Arena, VersionLock};
use crate::error::Result;
use crate::hash::layout::{Cover, Entry, HashShape, read_cover};
use crate::medium::IndexMemory;

/// A segment as DRAM sees it.
#[derive(Debug)]
pub(crate) struct Segment {
    at: AtomicU64,
    cover: AtomicU64,
    /// One for each bucket.
    pub(crate) locks: Box<[VersionLock]>,
    /// For changes of the stash, which all buckets share; taken after a bucket's lock.
    pub(crate) stash: Mutex<()>,
    /// For structure changes, the birth included; taken before any bucket's lock. Of two, that of the descriptor with
    /// the smaller number first: which one has the smaller hashes changes with their lives.
    pub(crate) structure: Mutex<()>,
    /// Removals since the segment was last counted.
    pub(crate) removals: AtomicU64,
}

impl Segment {
    fn new(buckets: u32) -> Self {
        Self {
            at: AtomicU64::new(0),
            cover: AtomicU64::new(0),
            locks: (0..buckets).map(|_| VersionLock::default()).collect(),
            stash: Mutex::new(()),
            structure: Mutex::new(()),
            removals: AtomicU64::new(0),
        }
    }

    /// Its address. It means something only while a stamp of one of its locks is true.
    #[inline]
    pub(crate) fn at(&self) -> PmAddr {
        PmAddr::from_raw(self.at.load(Ordering::Acquire))
    }

    /// Its cover; as [`at`](Self::at).
    #[inline]
    pub(crate) fn cover(&self) -> Cover {
        Cover::unpack(self.cover.load(Ordering::Acquire))
    }

    /// Whether it is no part of the index any more.
    pub(crate) fn is_dead(&self) -> bool {
        self.locks[0].is_dead()
    }
}

/// A node: the entries of the directory below `depth` bits.
#[derive(Debug)]
struct Node {
    at: PmAddr,
    depth: u32,
    entries: Box<[AtomicU64]>,
}

/// The target of an entry in DRAM, in the low two bits; the index is above. 0: not asked yet.
const IS_SEGMENT: u64 = 1;
const IS_NODE: u64 = 2;

/// Counts and dead descriptors.
#[derive(Debug, Default)]
struct Stock {
    nodes: usize,
    segments: usize,
    dead: Vec<usize>,
}

/// The directory.
#[derive(Debug)]
pub(crate) struct Directory {
    shape: HashShape,
    /// Start value of the hash, which every segment names.
    seed: u64,
    nodes: Arena<OnceLock<Node>>,
    segments: Arena<OnceLock<Segment>>,
    stock: Mutex<Stock>,
}

/// A directory node and the stretch of its entries that one segment has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stretch {
    node: usize,
    first: usize,
    pub(crate) count: usize,
}

/// The successors of a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fresh {
    pub(crate) at: PmAddr,
    pub(crate) cover: Cover,
}

impl Directory {
    /// The directory whose first node is at `root`.
    pub(crate) fn new(shape: HashShape, seed: u64, root: PmAddr) -> Self {
        let (nodes, segments, stock) = (Arena::new(), Arena::new(), Mutex::new(Stock::default()));
        let directory = Self { shape, seed, nodes, segments, stock };
        directory.add_node(&mut lock(&directory.stock), root, 0);
        directory
    }

    fn add_node(&self, stock: &mut Stock, at: PmAddr, depth: u32) -> usize {
        let entries = (0..1 << self.shape.node_bits).map(|_| AtomicU64::new(0)).collect();
        let index = stock.nodes;
        self.nodes.put(index, Node { at, depth, entries });
        stock.nodes += 1;
        index
    }

    /// A descriptor for `fresh` with its structure lock, to be held until the directory names it: who has the
    /// descriptor from a former life and waits to split it finds it whole and in its place.
    fn add_segment<'d>(&'d self, stock: &mut Stock, fresh: Fresh) -> (usize, MutexGuard<'d, ()>) {
        // Not waited for, with `stock` locked: who holds one may wait for another whose holder waits for `stock`.
        let lock_of = |index: usize| self.segments.get(index).structure.try_lock().ok();
        let found = (0..stock.dead.len()).rev().find_map(|place| Some((place, lock_of(stock.dead[place])?)));
        let (index, structure) = match found {
            Some((place, structure)) => (stock.dead.swap_remove(place), structure),
            None => {
                let index = stock.segments;
                self.segments.put(index, Segment::new(self.shape.table.buckets));
                stock.segments += 1;
                (index, lock(&self.segments.get(index).structure))
            }
        };
        let segment = self.segments.get(index);
        segment.at.store(fresh.at.to_raw(), Ordering::Release);
        segment.cover.store(fresh.cover.pack(), Ordering::Release);
        segment.removals.store(0, Ordering::Relaxed);
        for lock in &segment.locks {
            if lock.is_dead() {
                lock.revive();
            }
        }
        (index, structure)
    }

    /// Index of the entry of `node` for `hash`.
    #[inline]
    fn slot(&self, node: &Node, hash: u64) -> usize {
        to_usize(hash << node.depth >> (64 - self.shape.node_bits))
    }

    /// The segment that covers `hash` at this moment; ask it again under a stamp or a lock.
    ///
    /// # Errors
    /// When the directory on the medium is damaged there.
    #[inline]
    pub(crate) fn find(&self, medium: IndexMemory<'_>, hash: u64) -> Result<(usize, &Segment)> {
        let mut node = self.nodes.get(0);
        loop {
            let slot = self.slot(node, hash);
            let entry = node.entries[slot].load(Ordering::Acquire);
            let index = to_usize(entry >> 2);
            match entry & 3 {
                IS_SEGMENT => return Ok((index, self.segments.get(index))),
                IS_NODE => node = self.nodes.get(index),
                _ => self.read_entry(medium, node, slot, hash)?,
            }
        }
    }

    /// Enters what the medium says about entry `slot` of `node`.
    #[cold]
    fn read_entry(&self, medium: IndexMemory<'_>, node: &Node, slot: usize, hash: u64) -> Result<()> {
        let mut stock = lock(&self.stock);
        if node.entries[slot].load(Ordering::Acquire) != 0 {
            return Ok(());
        }
        let at = node.at.plus(to_u64(slot) * WORD_BYTES);
        let bits = self.shape.node_bits;
        match Entry::read(medium, at, self.shape)? {
            Entry::Node(child) => {
                if node.depth + 2 * bits > 64 {
                    return Err(medium.damaged(at, "entry of a hash directory", "names a node deeper than any can be"));
                }
                let index = self.add_node(&mut stock, child, node.depth + bits);
                node.entries[slot].store(to_u64(index) << 2 | IS_NODE, Ordering::Release);
            }
            Entry::Segment(segment) => {
                let cover = read_cover(medium, segment, self.shape, self.seed)?;
                if !cover.covers(hash) || !(node.depth..=node.depth + bits).contains(&cover.depth) {
                    return Err(medium.damaged(at, "entry of a hash directory", "names a segment of other hashes"));
                }
                let (index, _structure) = self.add_segment(&mut stock, Fresh { at: segment, cover });
                let (first, count) = self.stretch_in(node, cover);
                for entry in &node.entries[first..first + count] {
                    entry.store(to_u64(index) << 2 | IS_SEGMENT, Ordering::Release);
                }
            }
        }
        Ok(())
    }

    /// First entry and number of entries of `node` for the hashes of `cover`.
    fn stretch_in(&self, node: &Node, cover: Cover) -> (usize, usize) {
        let count = 1 << (node.depth + self.shape.node_bits - cover.depth);
        (self.slot(node, cover.prefix) / count * count, count)
    }

    /// The entries of the segment that covers `cover`, which the caller keeps from splitting.
    pub(crate) fn stretch(&self, cover: Cover) -> Stretch {
        let mut index = 0;
        loop {
            let node = self.nodes.get(index);
            let entry = node.entries[self.slot(node, cover.prefix)].load(Ordering::Acquire);
            if entry & 3 == IS_SEGMENT {
                let (first, count) = self.stretch_in(node, cover);
                return Stretch { node: index, first, count };
            }
            index = to_usize(entry >> 2);
        }
    }

    /// The segment with this index.
    pub(crate) fn segment(&self, index: usize) -> &Segment {
        self.segments.get(index)
    }

    /// Whether the segment that covers `cover` has a neighbour below the same node.
    pub(crate) fn has_buddy(&self, cover: Cover) -> bool {
        self.nodes.get(self.stretch(cover).node).depth < cover.depth
    }

    /// Whether one node names the segments that cover `low` and `high`. A node that one segment fills stays: the
    /// entries above could name the segment, but a reader may be on its way through the node.
    pub(crate) fn are_siblings(&self, low: Cover, high: Cover) -> bool {
        self.stretch(low).node == self.stretch(high).node
    }

    /// The entries of the segment that covers `cover` and of its neighbour below the same node.
    pub(crate) fn stretch_with_buddy(&self, cover: Cover) -> Stretch {
        let stretch = self.stretch(cover);
        let count = 2 * stretch.count;
        Stretch { first: stretch.first / count * count, count, ..stretch }
    }

    /// Addresses on the medium of a stretch's entries.
    pub(crate) fn words(&self, stretch: Stretch) -> impl Iterator<Item = PmAddr> {
        let at = self.nodes.get(stretch.node).at;
        (stretch.first..stretch.first + stretch.count).map(move |slot| at.plus(to_u64(slot) * WORD_BYTES))
    }

    /// Lets `stretch` name the halves `fresh` instead of the dead segments `old`; when it is a single entry, by way of
    /// a new node that is at `child`.
    pub(crate) fn replace(&self, stretch: Stretch, child: Option<PmAddr>, fresh: &[Fresh], old: &[usize]) {
        let mut stock = lock(&self.stock);
        let mut births = Vec::with_capacity(fresh.len());
        let mut added = Vec::with_capacity(fresh.len());
        for &fresh in fresh {
            let (index, structure) = self.add_segment(&mut stock, fresh);
            added.push(to_u64(index) << 2 | IS_SEGMENT);
            births.push(structure);
        }
        let node = self.nodes.get(stretch.node);
        let fill = |entries: &[AtomicU64]| {
            for (half, entries) in entries.chunks(entries.len() / added.len()).enumerate() {
                entries.iter().for_each(|entry| entry.store(added[half], Ordering::Release));
            }
        };
        match child {
            None => fill(&node.entries[stretch.first..stretch.first + stretch.count]),
            Some(at) => {
                let index = self.add_node(&mut stock, at, node.depth + self.shape.node_bits);
                fill(&self.nodes.get(index).entries);
                node.entries[stretch.first].store(to_u64(index) << 2 | IS_NODE, Ordering::Release);
            }
        }
        // Last: an entry that still named a dead descriptor could lead to its next life.
        stock.dead.extend_from_slice(old);
    }

    /// Bytes of DRAM that the directory takes.
    pub(crate) fn dram_bytes(&self) -> u64 {
        let stock = lock(&self.stock);
        let node = size_of::<OnceLock<Node>>() + (size_of::<AtomicU64>() << self.shape.node_bits);
        let segment = size_of::<OnceLock<Segment>>() + to_usize(self.shape.table.buckets) * size_of::<VersionLock>();
        to_u64(stock.nodes * node + stock.segments * segment)
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    /// A descriptor with two buckets could be found alive in one and dead in the other, or alive and not yet in the
    /// directory.
    #[test]
    fn a_descriptor_lives_again_only_under_a_structure_lock_that_nobody_else_has() {
        let table = crate::cells::Shape { buckets: 2, lines: 1, stash: 1 };
        let shape = HashShape { kind: crate::cells::KeyKind::Number, node_bits: 1, table };
        let directory = Directory::new(shape, 1, PmAddr::new(0, 4096));
        let whole = Cover::of(0, 0);
        let fresh = |cover: &Cover| Fresh { at: PmAddr::new(0, 8192), cover: *cover };
        let all = Stretch { node: 0, first: 0, count: 2 };
        directory.replace(all, None, &[fresh(&whole)], &[]);
        let first = directory.segment(0);
        let waiting = lock(&first.structure);
        first.locks.iter().for_each(|lock| assert!(lock.freeze()));
        first.locks.iter().for_each(VersionLock::kill);
        directory.replace(all, None, &whole.halves().each_ref().map(fresh), &[0]);
        directory.replace(all, None, &[fresh(&whole)], &[]);
        assert!(first.is_dead(), "somebody waits to split it");
        drop(waiting);
        let (index, birth) = directory.add_segment(&mut lock(&directory.stock), fresh(&whole));
        assert!(index == 0 && !first.is_dead(), "used again");
        assert!(first.structure.try_lock().is_err(), "nobody changes it before the directory names it");
        drop(birth);
    }
}
