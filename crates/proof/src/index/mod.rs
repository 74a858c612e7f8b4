//! The crash explorer's targets for the ordered map: creation and every kind of change, with leaves so small that a few
//! operations split and merge them.
//!
//! After a crash, recovery and a crash inside recovery, each target judges:
//! - the map opens within its bound;
//! - scan, point reads and count agree, and show exactly the acknowledged operations and each begun one whole or not at
//!   all;
//! - the check of the map is clean, and the blocks that the map owns are exactly those that the heap holds;
//! - it keeps working.

mod acs;
mod cell_target;
mod fastfair;
mod fptree;
mod hash;
mod hybrid;
mod hybrid_plus;
mod index_target;
mod programs;
mod records;
mod skiplist;

use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;
use std::ops::{Bound, ControlFlow};

use lodestone_crash::planted::Bug;
use lodestone_crash::{Failure, Outcome, Redundant, SiteKey, Structure, Target};
use lodestone_heap::HeapOptions;
use lodestone_index::{IndexReport, MapOptions, OrderedMap, RecordMap, Result};
use lodestone_pmem::{PmAddr, Pool, PoolOptions};
use lodestone_store::{Force, Store, StoreOptions};

pub use cell_target::{CellOp, CellTarget};
pub use fptree::fptree_threaded;
pub use hash::hash_threaded;
pub use programs::{PROGRAM_KINDS, program, program_name};

/// An operation on the map. Keys are numbers, values `bytes` bytes that tell key and version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapOp {
    /// Inserts or updates a key.
    Insert {
        /// The key.
        key: u8,
        /// The number that distinguishes this value.
        version: u8,
        /// Length of the value.
        bytes: usize,
    },
    /// Removes a key.
    Remove {
        /// The key.
        key: u8,
    },
}

/// Inserts with a value that, with its record's head, takes two lines.
pub(crate) const fn insert(key: u8, version: u8) -> MapOp {
    MapOp::Insert { key, version, bytes: 60 }
}

pub(crate) const fn remove(key: u8) -> MapOp {
    MapOp::Remove { key }
}

fn key_of(key: u8) -> [u8; 2] {
    [b'k', key]
}

fn value_of(key: u8, version: u8, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| if at % 2 == 0 { key } else { version }).collect()
}

/// A map that the targets try. Its parts are as small as they can be.
pub trait TargetMap: RecordMap + Sized + 'static {
    /// The part of the file paths whose flushes and fences the mutation audit covers.
    const AUDITED: &'static str;

    /// Deepest crash in recovery that is explored where the run creates the map.
    const CREATION_DEPTH_MAX: u32 = u32::MAX;

    /// How the heap is made.
    fn heap_options() -> HeapOptions;

    /// Makes a map. A later creation may take its freed blocks.
    ///
    /// # Errors
    /// As the map's own open.
    fn open_old(store: &Store, size: usize) -> Result<Self> {
        Self::open_small(store, "map", size)
    }

    /// Opens or makes the map. `size` is the size of its parts.
    ///
    /// # Errors
    /// As the map's own open.
    fn open_small(store: &Store, name: &str, size: usize) -> Result<Self>;
}

impl TargetMap for OrderedMap {
    const AUDITED: &'static str = "index/src/";

    fn heap_options() -> HeapOptions {
        HeapOptions::small()
    }

    fn open_small(store: &Store, name: &str, size: usize) -> Result<Self> {
        Self::open_with(store, name, &MapOptions { slots_per_leaf: size })
    }
}

/// A script on a map with the content that `before` left.
pub struct MapTarget<M = OrderedMap> {
    name: &'static str,
    size: usize,
    /// `None`: not even the map exists, and the run creates it.
    before: Option<Vec<MapOp>>,
    script: Vec<MapOp>,
    threads: Vec<Vec<MapOp>>,
    redundant: fn() -> Vec<Redundant>,
    map: PhantomData<fn() -> M>,
}

/// An opened map with its heap.
pub struct MapHandle<M = OrderedMap> {
    store: Store,
    map: M,
}

impl<M: TargetMap> MapTarget<M> {
    pub(crate) fn new(name: &'static str, size: usize, before: &[MapOp], script: &[MapOp]) -> Self {
        Self::on(name, size, Some(before.to_vec()), script)
    }

    /// A target whose script begins with the creation of the map.
    pub(crate) fn created(name: &'static str, size: usize, script: &[MapOp]) -> Self {
        Self::on(name, size, None, script)
    }

    fn on(name: &'static str, size: usize, before: Option<Vec<MapOp>>, script: &[MapOp]) -> Self {
        let script = script.to_vec();
        Self { name, size, before, script, threads: Vec::new(), redundant: Vec::new, map: PhantomData }
    }

    /// Sets the operations of each thread, for schedules.
    pub(crate) fn with_threads(self, threads: &[&[MapOp]]) -> Self {
        Self { threads: threads.iter().map(|ops| ops.to_vec()).collect(), ..self }
    }

    fn change(map: &M, op: &MapOp) -> Outcome {
        match *op {
            MapOp::Insert { key, version, bytes } => {
                map.insert_relaxed(&key_of(key), &value_of(key, version, bytes))?;
            }
            MapOp::Remove { key } => {
                map.remove_relaxed(&key_of(key))?;
            }
        }
        Ok(())
    }
}

impl<M: TargetMap> Structure for MapTarget<M> {
    type Op = MapOp;
    type Handle = MapHandle<M>;
    type View = BTreeMap<Vec<u8>, Vec<u8>>;

    fn name(&self) -> String {
        self.name.into()
    }

    fn options(&self) -> PoolOptions {
        pool_options()
    }

    fn script(&self) -> Vec<MapOp> {
        self.script.clone()
    }

    fn setup(&self, pool: &Pool) -> Outcome {
        let store = Store::over_with(pool, &StoreOptions::with_heap(M::heap_options()))?;
        let Some(before) = &self.before else {
            // Free blocks that still look like a finished map of this name. It will be created in them, if the heap
            // returns them again.
            let old = M::open_old(&store, self.size)?;
            Self::change(&old, &insert(77, 7))?;
            let blocks = old.check().blocks;
            drop(old);
            return forget(&store, "map", blocks);
        };
        let map = M::open_small(&store, "map", self.size)?;
        before.iter().try_for_each(|op| Self::change(&map, op))
    }

    fn open(&self, pool: &Pool) -> Outcome<MapHandle<M>> {
        let store = Store::over_with(pool, &StoreOptions::with_heap(M::heap_options()))?;
        let map = M::open_small(&store, "map", self.size)?;
        Ok(MapHandle { store, map })
    }

    fn apply(&self, handle: &MapHandle<M>, op: &MapOp) -> Outcome {
        Self::change(&handle.map, op)
    }

    fn view(&self, handle: &MapHandle<M>) -> Outcome<Self::View> {
        let map = &handle.map;
        let mut view = BTreeMap::new();
        let mut last: Option<Vec<u8>> = None;
        let mut ascends = true;
        map.scan(Bound::Unbounded, Bound::Unbounded, &mut |key, value| {
            ascends &= last.as_deref().is_none_or(|last| last < key);
            last = Some(key.to_vec());
            view.insert(key.to_vec(), value.to_vec());
            ControlFlow::Continue(())
        })?;
        Failure::unless(ascends, || "a scan does not ascend".into())?;
        let len = map.len()?;
        Failure::unless(len == view.len() as u64, || format!("a scan shows {} records of {len}", view.len()))?;
        for op in self.before.iter().flatten().chain(&self.script).chain(self.threads.iter().flatten()) {
            let (MapOp::Insert { key, .. } | MapOp::Remove { key }) = *op;
            let found = map.get(&key_of(key))?;
            Failure::unless(found.as_ref() == view.get(&key_of(key)[..]), || {
                format!("key {key}: point read and scan disagree")
            })?;
        }
        Ok(view)
    }

    fn model(&self, ops: &[MapOp]) -> Self::View {
        let mut view = BTreeMap::new();
        for op in self.before.iter().flatten().chain(ops) {
            match *op {
                MapOp::Insert { key, version, bytes } => {
                    view.insert(key_of(key).to_vec(), value_of(key, version, bytes))
                }
                MapOp::Remove { key } => view.remove(&key_of(key)[..]),
            };
        }
        view
    }

    fn audit(&self, handle: &MapHandle<M>) -> Outcome {
        judge_check(handle.map.check(), &handle.store)
    }

    fn more(&self) -> Vec<MapOp> {
        vec![insert(200, 9), insert(201, 9), remove(200)]
    }

    fn threads(&self) -> Vec<Vec<MapOp>> {
        self.threads.clone()
    }

    fn audits(&self, site: &SiteKey) -> bool {
        site.file.contains(M::AUDITED)
    }

    fn redundant(&self) -> Vec<Redundant> {
        (self.redundant)()
    }

    fn nested_depth_max(&self) -> u32 {
        if self.before.is_none() { M::CREATION_DEPTH_MAX } else { u32::MAX }
    }
}

/// A target's demand on a structure's check: it found nothing, and the blocks that the structure owns are those that
/// the heap holds.
pub(crate) fn judge_check(report: IndexReport, store: &Store) -> Outcome {
    Failure::unless(report.is_intact(), || {
        report.findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    })?;
    let owned: BTreeSet<PmAddr> = report.blocks.into_iter().chain(store.own_blocks()).collect();
    let mut held = BTreeSet::new();
    store.heap().for_each_block(|at, _| {
        held.insert(at);
    });
    Failure::unless(owned == held, || {
        let leaked: Vec<_> = held.difference(&owned).collect();
        let dangling: Vec<_> = owned.difference(&held).collect();
        format!("leaked {leaked:?}, owned but not allocated {dangling:?}")
    })
}

/// Drops the object `name` and clears its blocks, so that a new object in their place looks empty until it is written.
pub(crate) fn forget(store: &Store, name: &str, blocks: Vec<PmAddr>) -> Outcome {
    let sized: Vec<_> = blocks.into_iter().map(|at| (at, store.heap().block_bytes(at).unwrap_or(0))).collect();
    store.drop_object(name, Force::No)?;
    for (at, bytes) in sized {
        store.memory().zero(at, bytes);
        store.memory().persist(at, bytes);
    }
    Ok(())
}

/// The pool of every target: small, so that a state is cheap.
pub(crate) fn pool_options() -> PoolOptions {
    PoolOptions { size_bytes: 64 << 10, journal_bytes: 0, reserve_bytes: 4 << 20, ..PoolOptions::default() }
}

/// The targets of every structure of this crate.
#[must_use]
pub fn targets() -> Vec<Box<dyn Target>> {
    let mut all = map_targets();
    all.extend(fastfair::targets());
    all.extend(skiplist::targets());
    all.extend(hash::targets());
    all.extend(fptree::targets());
    all.extend(acs::targets());
    all.extend(hybrid::targets());
    all.extend(hybrid_plus::targets());
    all.extend(records::targets());
    all
}

pub use acs::acs_threaded;
pub use fastfair::{RACES as FASTFAIR_RACES, threaded as fastfair_threaded};
pub use hybrid::hybrid_threaded;
pub use hybrid_plus::hybrid_plus_threaded;
pub use records::threaded as records_threaded;
pub use skiplist::threaded as skiplist_threaded;

/// The targets of the ordered map.
#[must_use]
pub fn map_targets() -> Vec<Box<dyn Target>> {
    let full = [insert(10, 1), insert(20, 1), insert(30, 1)];
    // The slots of the sixth and seventh record are in the leaf's second line.
    let two_lines: Vec<MapOp> = (1..=7).map(|number| insert(number * 10, 1)).collect();
    vec![
        Box::new(MapTarget::<OrderedMap>::created("map-create", 3, &[insert(10, 1)])),
        Box::new(MapTarget::<OrderedMap>::new("map-insert", 3, &[], &[insert(10, 1), insert(20, 1), insert(15, 1)])),
        Box::new(MapTarget::<OrderedMap>::new(
            "map-update",
            3,
            &full,
            &[insert(20, 2), insert(20, 3), MapOp::Insert { key: 10, version: 2, bytes: 700 }, insert(10, 3)],
        )),
        Box::new(MapTarget::<OrderedMap>::new(
            "map-remove",
            8,
            &two_lines,
            &[remove(60), remove(99), insert(60, 2), remove(10)],
        )),
        Box::new(MapTarget::<OrderedMap>::new("map-split", 3, &full, &[insert(15, 1), insert(40, 1), insert(12, 1)])),
        Box::new(MapTarget::<OrderedMap>::new(
            "map-append",
            2,
            &[],
            &[insert(10, 1), insert(20, 1), insert(30, 1), insert(40, 1)],
        )),
        Box::new(MapTarget::<OrderedMap>::new(
            "map-merge",
            4,
            &[insert(10, 1), insert(20, 1), insert(30, 1), insert(40, 1), insert(50, 1)],
            &[remove(10), remove(40), remove(50), remove(30), remove(20)],
        )),
        Box::new(MapTarget::<OrderedMap>::new(
            "map-mixed",
            2,
            &[insert(10, 1), insert(20, 1)],
            &[insert(15, 1), insert(20, 2), remove(10), insert(30, 1), remove(15), insert(10, 2), remove(20)],
        )),
    ]
}

/// Maps that threads change under a deterministic scheduler while the trace records: for `explore_schedules`.
#[must_use]
pub fn threaded() -> Vec<MapTarget> {
    let with = |name, slots, before: &[MapOp], threads: &[&[MapOp]]| {
        MapTarget::new(name, slots, before, &[]).with_threads(threads)
    };
    vec![
        with(
            "map-threads-update",
            3,
            &[insert(10, 1), insert(20, 1)],
            &[&[insert(10, 2), insert(20, 2)], &[insert(20, 3), remove(10)], &[insert(10, 4)]],
        ),
        with(
            "map-threads-split",
            2,
            &[insert(10, 1), insert(20, 1)],
            &[&[insert(15, 1), insert(12, 1)], &[insert(20, 2), insert(17, 1)]],
        ),
        with(
            "map-threads-merge",
            2,
            &[insert(10, 1), insert(20, 1), insert(30, 1), insert(40, 1)],
            &[&[remove(40), remove(20)], &[remove(30), insert(35, 1)]],
        ),
    ]
}

fn target(name: &str) -> Box<dyn Target> {
    let found = targets().into_iter().find(|target| target.name() == name);
    found.expect("a bug names a target that is there")
}

/// Bugs that can be planted in the structures of this crate, each with the target that must find it.
#[must_use]
pub fn bugs() -> Vec<Bug> {
    let mut all = map_bugs();
    all.extend(fastfair::bugs());
    all.extend(skiplist::bugs());
    all.extend(hash::bugs());
    all.extend(fptree::bugs());
    all.extend(hybrid::bugs());
    all.extend(hybrid_plus::bugs());
    all.extend(records::bugs());
    all
}

/// Bugs that can be planted in the map, and one in the heap that the map shows. Each is listed with the target that
/// must find it.
#[must_use]
pub fn map_bugs() -> Vec<Bug> {
    let lost = "an acknowledged or begun insert reads as damage after a crash";
    vec![
        Bug::new("index-record-not-flushed", lost, || target("map-insert")),
        Bug::new("index-slot-before-record", lost, || target("map-insert")),
        Bug::new("index-update-frees-first", "a crashed update leaves a record that the heap gives away again", || {
            target("map-update")
        }),
        Bug::new("index-remove-flushes-wrong-line", "an acknowledged removal comes back, its record freed", || {
            target("map-remove")
        }),
        Bug::new("index-split-content-not-flushed", "half a leaf is lost", || target("map-split")),
        Bug::new("index-split-leaves-duplicate", "scans show keys twice, and a removal leaves one behind", || {
            target("map-split")
        }),
        Bug::new("index-merge-unlinks-first", "the records of a merged leaf are lost and leak", || target("map-merge")),
        Bug::new("heap-record-before-contents", lost, || target("map-insert")),
    ]
}
