//! The crash explorer's targets for maps over an index. Creation and every kind of change run over a tree with small
//! nodes and two stripes, so that keys share an intent. One script of every kind of change runs over each other index,
//! because the protocol relies on the index's promises about its changes. The judgements are listed in
//! [`explore`](crate::index).

use lodestone_crash::Target;
use lodestone_crash::planted::Bug;
use lodestone_heap::HeapOptions;
use lodestone_index::{
    Durability, FastFair, FastFairOptions, FpTree, Hybrid, HybridOptions, HybridPlus, HybridPlusOptions,
    IndexedRecords, OpenIndex, RecordIndex, RecordsOptions, Result, SkipList, TreeOptions,
};
use lodestone_store::Store;

use super::{MapOp, MapTarget, TargetMap, insert, remove};

type Records = IndexedRecords<FastFair<[u8]>>;

/// An index as small as it can be made.
pub trait SmallIndex: RecordIndex + 'static {
    /// Whether the mutation audit tries the map's flushes and fences over this index. Over one is enough.
    const IS_AUDITED: bool = false;

    /// How it is made.
    fn small() -> <Self as OpenIndex>::Options;
}

impl SmallIndex for FastFair<[u8]> {
    const IS_AUDITED: bool = true;

    fn small() -> FastFairOptions {
        FastFairOptions::with_lines(2)
    }
}

impl SmallIndex for FpTree<[u8]> {
    fn small() -> TreeOptions {
        TreeOptions { lines_per_leaf: 1, rebuild_threads: 1 }
    }
}

impl SmallIndex for SkipList<[u8]> {
    fn small() -> <Self as OpenIndex>::Options {
        Default::default()
    }
}

impl SmallIndex for Hybrid<[u8]> {
    fn small() -> HybridOptions {
        HybridOptions::small()
    }
}

impl SmallIndex for HybridPlus<[u8]> {
    fn small() -> HybridPlusOptions {
        HybridPlusOptions::small()
    }
}

impl<I: SmallIndex> TargetMap for IndexedRecords<I> {
    const AUDITED: &'static str = if I::IS_AUDITED { "index/src/records/" } else { "audited over another index" };

    // An open that creates the map overwrites everything that a crash left open. Crashing it once more has too many
    // states.
    const CREATION_DEPTH_MAX: u32 = 0;

    fn heap_options() -> HeapOptions {
        let mut options = HeapOptions::small();
        // A merge of a tree sets the words of a whole node.
        options.lane_bytes = 1024;
        options
    }

    fn open_old(store: &Store, size: usize) -> Result<Self> {
        // Its table takes another block, so that the new map's block is made where nothing like it was.
        Self::open_small(store, "map", 2 * size)
    }

    fn open_small(store: &Store, name: &str, size: usize) -> Result<Self> {
        let mut options = RecordsOptions::new(I::small());
        options.stripes = size;
        Self::open(store, name, &options, Durability::Relaxed)
    }
}

/// The targets of maps over an index.
#[must_use]
pub fn targets() -> Vec<Box<dyn Target>> {
    let two = [insert(10, 1), insert(20, 1)];
    let long = MapOp::Insert { key: 10, version: 3, bytes: 700 };
    let mut all: Vec<Box<dyn Target>> = vec![
        Box::new(MapTarget::<Records>::created("index-records-create", 2, &[insert(10, 1)])),
        Box::new(MapTarget::<Records>::new("index-records-insert", 2, &[], &[insert(10, 1), remove(10)])),
        Box::new(MapTarget::<Records>::new("index-records-update", 2, &two, &[insert(20, 2), long, insert(20, 3)])),
        Box::new(MapTarget::<Records>::new("index-records-remove", 2, &two, &[remove(20), insert(20, 2), remove(10)])),
        Box::new(MapTarget::<Records>::new(
            "index-records-stripe",
            1,
            &[insert(10, 1)],
            &[insert(20, 1), remove(10), insert(20, 2)],
        )),
    ];
    all.extend([
        over::<FpTree<[u8]>>("index-records-over-fptree"),
        over::<SkipList<[u8]>>("index-records-over-skiplist"),
        over::<Hybrid<[u8]>>("index-records-over-hybrid"),
        over::<HybridPlus<[u8]>>("index-records-over-hybrid-plus"),
    ]);
    all
}

/// A new key, a new record for a key, a removal.
fn over<I: SmallIndex>(name: &'static str) -> Box<dyn Target> {
    let script = [insert(20, 1), insert(10, 2), remove(10)];
    Box::new(MapTarget::<IndexedRecords<I>>::new(name, 2, &[insert(10, 1)], &script))
}

/// Maps that threads change under a deterministic scheduler while the trace records.
#[must_use]
pub fn threaded() -> Vec<MapTarget<Records>> {
    let two = [insert(10, 1), insert(20, 1)];
    let with = |name, stripes, threads: &[&[MapOp]]| MapTarget::new(name, stripes, &two, &[]).with_threads(threads);
    vec![
        with("index-records-threads-key", 2, &[&[insert(10, 2), remove(10)], &[insert(10, 3)], &[insert(20, 4)]]),
        with("index-records-threads-stripe", 1, &[&[insert(10, 2)], &[remove(20), insert(30, 1)]]),
    ]
}

fn named(name: &str) -> Box<dyn Target> {
    let found = targets().into_iter().find(|target| target.name() == name);
    found.expect("a bug names a target that is there")
}

/// Bugs that can be planted in maps over an index, each with the target that must find it.
#[must_use]
pub fn bugs() -> Vec<Bug> {
    vec![
        Bug::new("records-intent-not-set", "a record that no index names leaks", || named("index-records-insert")),
        Bug::new("records-intent-half-set", "an intent that was let go comes back and frees a record in use", || {
            named("index-records-insert")
        }),
        Bug::new("records-old-freed-first", "the index names a record that is given out again", || {
            named("index-records-update")
        }),
        Bug::new(
            "records-no-recovery",
            "an intent outlives its change, and the next one of its stripe meets it",
            || named("index-records-remove"),
        ),
    ]
}
