//! The crash explorer's targets for maps over an index: creation and every kind of change, over a tree with small nodes and with
//! two stripes, so that keys share an intent. What each judges is said in [`explore`](crate::explore).

use lodestone_crash::planted::Bug;
use lodestone_crash::{Redundant, Target};
use lodestone_heap::{Heap, HeapOptions};

use crate::error::Result;
use crate::explore::{MapOp, MapTarget, TargetMap, insert, remove};
use crate::fastfair::{FastFair, FastFairOptions};
use crate::map::Durability;
use crate::records::{IndexedRecords, RecordsOptions};

type Records = IndexedRecords<FastFair<[u8]>>;

impl TargetMap for Records {
    const AUDITED: &'static str = "index/src/records/";

    fn heap_options() -> HeapOptions {
        let mut options = HeapOptions::small();
        // A merge of the tree sets the words of a whole node.
        options.lane_bytes = 1024;
        options
    }

    fn open_old(heap: &Heap, size: usize) -> Result<Self> {
        // Its table takes another block, so that the one of the new map is made where nothing like it stands.
        Self::open_small(heap, "old", 2 * size)
    }

    fn open_small(heap: &Heap, name: &str, size: usize) -> Result<Self> {
        let options = RecordsOptions { stripes: size, index: FastFairOptions::with_lines(2) };
        Self::open(heap, name, &options, Durability::Relaxed)
    }
}

/// The targets of maps over an index.
#[must_use]
pub fn targets() -> Vec<Box<dyn Target>> {
    let two = [insert(10, 1), insert(20, 1)];
    let long = MapOp::Insert { key: 10, version: 3, bytes: 700 };
    vec![
        Box::new(MapTarget::<Records>::created("index-records-create", 2, &[insert(10, 1)]).excusing(|| {
            let reason = "a creation fences the anchor before it fences and publishes the root: either fence will do";
            vec![Redundant::new("late flush at crates/index/src/records/table.rs", 1, reason)]
        })),
        Box::new(MapTarget::<Records>::new("index-records-insert", 2, &[], &[insert(10, 1), remove(10)])),
        Box::new(MapTarget::<Records>::new("index-records-update", 2, &two, &[insert(20, 2), long, insert(20, 3)])),
        Box::new(MapTarget::<Records>::new("index-records-remove", 2, &two, &[remove(20), insert(20, 2), remove(10)])),
        Box::new(MapTarget::<Records>::new(
            "index-records-stripe",
            1,
            &[insert(10, 1)],
            &[insert(20, 1), remove(10), insert(20, 2)],
        )),
    ]
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
