//! Long scans over several nodes: the leaves of each node are read by a thread there, ahead of the scan (paper 4,
//! section 2.1: the work goes to the data).
//!
//! 1. A scan begins alone. When it has met [`COLD_LEAVES_MIN`] leaves that are not in DRAM, and rows before its end are
//!    on other nodes, it starts a *reader* for each node with such rows. So small scans stay as they are.
//! 2. The keys that are left are divided by the ranges of the [place](crate::placement) of the table. A reader takes
//!    those of its node in the order of their keys, leaf after leaf. All readers work side by side. Each stops when it
//!    is so many leaves ahead of the scan ([`WINDOW_MAX`], [`CACHE_SHARE`]).
//! 3. The scan takes the leaves in the order of all keys. Keys that no part is named for it reads itself, and so every
//!    leaf that has changed since a reader looked at it.
//!
//! **Nothing else is moved to the readers.** The scan accepts each row, grows its range and validates as if it had
//! looked for the leaf itself a moment ago: a look of a reader counts only while it is current. So reads, phantoms and
//! snapshots are those of a scan without readers, and so are its rows, their order and its errors.
//!
//! A reader that fails hands its error on in the place of the leaf. The scan returns it when it comes there, and ends
//! all readers. They end as well when the scan is dropped.
//!
//! In a simulation one thread is all of them: a leaf is read when it is asked for, and the reads tell when it was ready
//! ([`FarReads::read_ahead`]).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::convert::Infallible;
use std::sync::{Arc, PoisonError};
use std::thread::{self, JoinHandle};

use lodestone_pages::FarReads;
use lodestone_pmem::sync::atomic::Ordering;
use lodestone_pmem::sync::{Condvar, Mutex, lock};
use lodestone_pmem::{Topology, work};

use crate::core::Core;
use crate::error::{Error, Result};
use crate::placement::Place;
use crate::tree::{Segment, Tree};

/// A scan that meets fewer leaves that are not in DRAM has no readers: to start a thread takes as long as to read
/// several leaves.
const COLD_LEAVES_MIN: u32 = 16;
/// Most leaves of a reader that wait for the scan, where all rows may stay in DRAM.
const WINDOW_MAX: usize = 4096;
/// Those of all readers have at most this share of a cache with a bound.
const CACHE_SHARE: usize = 8;

/// Whether a scan has readers.
#[derive(Debug, Default)]
pub enum Readers {
    /// Not yet: it has met so many leaves that are not in DRAM.
    Counting(u32),
    /// It never will.
    #[default]
    None,
    /// It has.
    Some(Box<Ahead>),
}

impl Readers {
    /// Those of a scan that has not begun.
    pub fn of(core: &Core) -> Self {
        if core.scan_readers && core.memory.part_count() > 1 { Self::Counting(0) } else { Self::None }
    }

    /// The leaf that begins with the first key of the range, if a reader has it. Starts readers when they are due.
    ///
    /// # Errors
    /// The error of the reader.
    pub fn take(
        &mut self,
        core: &Core,
        tree: &Arc<Tree>,
        (from, to): (&[u8], Option<&[u8]>),
    ) -> Result<Option<Segment>> {
        if let Self::Counting(met) = self
            && tree.is_cold_at(from)
        {
            *met += 1;
            if *met >= COLD_LEAVES_MIN {
                *self = Ahead::begin(core, tree, from, to).map_or(Self::None, |ahead| Self::Some(Box::new(ahead)));
            }
        }
        match self {
            Self::Some(ahead) => ahead.take(core, from),
            Self::Counting(_) | Self::None => Ok(None),
        }
    }
}

/// Keys of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stretch {
    from: Vec<u8>,
    to: Option<Vec<u8>>,
    node: Option<usize>,
}

/// The keys from `from` to before `to`, by the nodes that `node_of` names for parts.
fn stretches(
    place: &Place,
    (from, to): (&[u8], Option<&[u8]>),
    node_of: impl Fn(u16) -> Option<usize>,
) -> Vec<Stretch> {
    let is_inside = |key: &[u8]| key > from && to.is_none_or(|to| key < to);
    let borders = place.ranges().iter().map(|(low, _)| &low[..]).filter(|low| is_inside(low));
    let mut found: Vec<Stretch> = Vec::new();
    for low in std::iter::once(from).chain(borders) {
        let node = place.at(low).and_then(&node_of);
        match found.last_mut() {
            Some(last) if last.node == node => continue,
            Some(last) => last.to = Some(low.to_vec()),
            None => {}
        }
        found.push(Stretch { from: low.to_vec(), to: to.map(<[u8]>::to_vec), node });
    }
    found
}

/// Reads the images of all cold leaves, as a check does: several threads side by side, each first those of its node.
/// Returns the errors of each tree.
pub fn load_all(core: &Core) -> Vec<(u32, Vec<Error>)> {
    let pool = core.heap.pool();
    let node_of = |part: u16| pool.part_nodes().get(usize::from(part))?.index;
    let of = |tree: Arc<Tree>| {
        let all = stretches(&core.placements.place(tree.number), (&[], None), node_of);
        all.into_iter().map(move |stretch| (tree.clone(), stretch))
    };
    let pieces: Vec<(Arc<Tree>, Stretch)> = core.trees().into_iter().flat_map(of).collect();
    let load = |number: usize| {
        let (tree, stretch) = &pieces[number];
        Ok::<_, Infallible>((tree.number, tree.load_between(&stretch.from, stretch.to.as_deref())))
    };
    let node_of = |number: usize| pieces[number].1.node;
    let threads = work::threads(&core.memory);
    let Ok(errors) = work::each_near(pool.topology(), threads, pieces.len(), &node_of, load);
    errors
}

/// The leaves of some stretches, in order.
#[derive(Debug)]
struct Walk {
    tree: Arc<Tree>,
    stretches: VecDeque<Stretch>,
}

impl Walk {
    /// The rows of the next leaf. Nothing follows an error.
    fn next(&mut self) -> Option<Result<Segment>> {
        let stretch = self.stretches.front_mut()?;
        let found = self.tree.first_segment(&stretch.from, stretch.to.as_deref(), usize::MAX);
        match &found {
            Ok(Segment { to: Some(end), .. }) if stretch.to.as_ref() != Some(end) => stretch.from.clone_from(end),
            Ok(_) => drop(self.stretches.pop_front()),
            Err(_) => self.stretches.clear(),
        }
        Some(found)
    }
}

/// The leaves that a reader has read and the scan has not taken.
#[derive(Debug, Default)]
struct Shelf {
    ready: VecDeque<Result<Segment>>,
    /// The reader has ended.
    is_over: bool,
    /// The reader must end.
    is_ending: bool,
}

type SharedShelf = Arc<(Mutex<Shelf>, Condvar)>;

/// Says so when the reader ends, also by a panic.
struct Reading(SharedShelf);

impl Drop for Reading {
    fn drop(&mut self) {
        lock(&self.0.0).is_over = true;
        self.0.1.notify_all();
    }
}

impl Reading {
    /// Reads until all is read, or the scan has ended.
    fn run(&self, mut walk: Walk, window: usize) {
        let (shelf, changed) = &*self.0;
        while let Some(found) = walk.next() {
            let mut shelf = lock(shelf);
            while shelf.ready.len() >= window && !shelf.is_ending {
                shelf = changed.wait(shelf).unwrap_or_else(PoisonError::into_inner);
            }
            if shelf.is_ending {
                return;
            }
            shelf.ready.push_back(found);
            drop(shelf);
            changed.notify_all();
        }
    }
}

/// A thread that reads.
#[derive(Debug)]
struct Reader {
    shelf: SharedShelf,
    thread: Option<JoinHandle<()>>,
}

impl Reader {
    /// `None`: the system has no more threads.
    fn begin(topology: &Topology, node: usize, walk: Walk, window: usize) -> Option<Self> {
        let shelf = SharedShelf::default();
        let (reading, topology) = (Reading(shelf.clone()), topology.clone());
        let work = move || {
            // A thread that may not run there reads the same leaves from afar.
            let _ = topology.pin_thread(node);
            reading.run(walk, window);
        };
        let thread = thread::Builder::new().name(format!("lodestone-scan-{node}")).spawn(work).ok();
        thread.is_some().then_some(Self { shelf, thread })
    }

    /// Waits for the next leaf.
    fn next(&self) -> Option<Result<Segment>> {
        let (shelf, changed) = &*self.shelf;
        let mut shelf = lock(shelf);
        while shelf.ready.is_empty() && !shelf.is_over {
            shelf = changed.wait(shelf).unwrap_or_else(PoisonError::into_inner);
        }
        let found = shelf.ready.pop_front();
        changed.notify_all();
        found
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        lock(&self.shelf.0).is_ending = true;
        self.shelf.1.notify_all();
        // A panic of the reader has left the rest to the scan.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// A reader of a simulation.
#[derive(Debug)]
struct Simulated {
    node: usize,
    walk: Walk,
    began_ns: u64,
    /// When the scan took the last leaves, as many as may wait for it.
    taken_ns: VecDeque<u64>,
    window: usize,
}

impl Simulated {
    fn next(&mut self, far: &dyn FarReads) -> Option<Result<Segment>> {
        // It has read as soon as there was room.
        let is_full = self.taken_ns.len() >= self.window;
        let room_ns = if is_full { self.taken_ns.pop_front() } else { None };
        let mut found = None;
        let taken_ns = far.read_ahead(self.node, room_ns.unwrap_or(self.began_ns), &mut || found = self.walk.next())?;
        self.taken_ns.push_back(taken_ns);
        found
    }
}

/// Who reads for a node.
#[derive(Debug)]
enum Hand {
    Thread(Reader),
    Simulated(Simulated),
}

/// The leaves of a node.
#[derive(Debug)]
struct Lane {
    hand: Hand,
    /// The next one, which the scan has not come to.
    held: Option<Segment>,
}

impl Lane {
    fn next(&mut self, core: &Core) -> Result<Option<Segment>> {
        if let Some(held) = self.held.take() {
            return Ok(Some(held));
        }
        match &mut self.hand {
            Hand::Thread(reader) => reader.next(),
            Hand::Simulated(reader) => core.ground.source.far().and_then(|far| reader.next(far)),
        }
        .transpose()
    }

    /// The leaf that begins with `from`, if it is as it was read.
    fn take(&mut self, core: &Core, from: &[u8]) -> Result<Option<Segment>> {
        while let Some(segment) = self.next(core)? {
            if segment.to.as_deref().is_some_and(|to| to <= from) {
                // The scan has read it itself.
                continue;
            }
            if &segment.from[..] > from {
                self.held = Some(segment);
                break;
            }
            return Ok((segment.from == from && segment.look.is_current()).then_some(segment));
        }
        Ok(None)
    }
}

/// The readers of a scan.
#[derive(Debug)]
pub struct Ahead {
    /// The keys that are left.
    stretches: VecDeque<Stretch>,
    /// By node.
    lanes: BTreeMap<usize, Lane>,
}

impl Ahead {
    /// Readers for the keys from `from` to before `to`. `None`: all of them are near, or there is one thread.
    fn begin(core: &Core, tree: &Arc<Tree>, from: &[u8], to: Option<&[u8]>) -> Option<Self> {
        let (pool, far) = (core.heap.pool(), core.ground.source.far());
        let began_ns = far.and_then(|far| far.read_ahead(0, 0, &mut || ()));
        if began_ns.is_none() && work::threads(&core.memory) == 1 {
            return None;
        }
        let node_of = |part: u16| pool.part_nodes().get(usize::from(part))?.index;
        let stretches = VecDeque::from(stretches(&core.placements.place(tree.number), (from, to), node_of));
        let here = pool.topology().node_of_thread();
        let nodes: BTreeSet<usize> = stretches.iter().filter_map(|stretch| stretch.node).collect();
        if nodes.iter().all(|node| *node == here) {
            return None;
        }
        let window = window(core, nodes.len());
        let lane = |node: usize| {
            let own = stretches.iter().filter(|stretch| stretch.node == Some(node)).cloned();
            let walk = Walk { tree: tree.clone(), stretches: own.collect() };
            let hand = match began_ns {
                Some(began_ns) => {
                    Hand::Simulated(Simulated { node, walk, began_ns, taken_ns: VecDeque::new(), window })
                }
                None => Hand::Thread(Reader::begin(pool.topology(), node, walk, window)?),
            };
            Some((node, Lane { hand, held: None }))
        };
        let lanes = nodes.into_iter().filter_map(lane).collect();
        Some(Self { stretches, lanes })
    }

    /// The leaf that begins with `from`, if a reader has it.
    fn take(&mut self, core: &Core, from: &[u8]) -> Result<Option<Segment>> {
        let is_passed = |stretch: &Stretch| stretch.to.as_deref().is_some_and(|to| to <= from);
        while self.stretches.front().is_some_and(is_passed) {
            self.stretches.pop_front();
        }
        let node = self.stretches.front().and_then(|stretch| stretch.node);
        let Some(lane) = node.and_then(|node| self.lanes.get_mut(&node)) else { return Ok(None) };
        let found = lane.take(core, from)?;
        core.leaves_ahead.fetch_add(u64::from(found.is_some()), Ordering::Relaxed);
        Ok(found)
    }
}

/// How many leaves of each reader may wait for the scan. They stay in DRAM until it takes them.
fn window(core: &Core, readers: usize) -> usize {
    let leaves_max =
        core.ground.cache.as_ref().map_or(usize::MAX, |cache| cache.leaves_max(core.ground.leaf_size.bytes_max));
    (leaves_max / CACHE_SHARE / readers.max(1)).clamp(1, WINDOW_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_are_those_of_the_ranges() {
        let mut place = Place::default().whole(Some(0));
        place.set(vec![3], Some(vec![5]), Some(1));
        place.set(vec![7], None, Some(2));
        // Two parts are on one node, and a part may have none.
        let node_of = |part: u16| [Some(0), Some(1), Some(1)][usize::from(part)];
        let of = |from: &[u8], to: Option<&[u8]>| -> Vec<_> {
            let found = stretches(&place, (from, to), node_of);
            let key = |key: &[u8]| key.first().copied().unwrap_or(0);
            found.iter().map(|found| (key(&found.from), found.to.as_deref().map(key), found.node)).collect()
        };
        assert_eq!(
            of(&[], None),
            [(0, Some(3), Some(0)), (3, Some(5), Some(1)), (5, Some(7), Some(0)), (7, None, Some(1))]
        );
        assert_eq!(of(&[4], Some(&[6])), [(4, Some(5), Some(1)), (5, Some(6), Some(0))]);
        assert_eq!(of(&[3], Some(&[5])), [(3, Some(5), Some(1))]);
        place.set(vec![5], Some(vec![7]), Some(2));
        let one = stretches(&place, (&[3], None), node_of);
        assert_eq!((one.len(), one[0].to.as_deref()), (1, None), "parts of one node are one stretch");
        assert!(stretches(&Place::default(), (&[], None), node_of).iter().all(|stretch| stretch.node.is_none()));
    }
}
