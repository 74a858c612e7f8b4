//! The crash explorer's targets: changes, with the tree rebuilt by the judge's first range, and updates that wait in
//! the queue when ranges come. Splits and merges of the hash concern the hash alone and have their own targets.
//!
//! The hybrid itself stores and flushes nothing on the medium, so it has no flushes and fences to audit. The hash's
//! targets audit those of the hash.

use lodestone_crash::Target;
use lodestone_crash::planted::Bug;
use lodestone_index::{Hybrid, HybridOptions, IndexKey};

use super::index_target::{IndexOp, IndexTarget, inserts, removes};

fn target<K: IndexKey + ?Sized>(
    name: &str,
    before: Option<Vec<IndexOp>>,
    script: Vec<IndexOp>,
) -> IndexTarget<Hybrid<K>> {
    let target = IndexTarget::new(&format!("index-hybrid-{name}"), HybridOptions::small(), before, script);
    IndexTarget { audited: "index/src/hybrid/", ..target }
}

fn changes() -> Vec<IndexOp> {
    [inserts([20, 10]), vec![IndexOp::Update(20, 7)], removes([20])].concat()
}

/// The targets.
pub(crate) fn targets() -> Vec<Box<dyn Target>> {
    vec![
        // The creation is the hash's, and explored there.
        Box::new(target::<u64>("first", Some(Vec::new()), inserts([10]))),
        Box::new(target::<u64>("change", Some(inserts([40])), changes())),
        Box::new(target::<[u8]>("text", Some(inserts([40])), [inserts([20]), removes([40])].concat())),
    ]
}

/// Indexes that threads change under a deterministic scheduler while the trace records: for `explore_schedules`.
#[must_use]
pub fn hybrid_threaded() -> Vec<IndexTarget<Hybrid<u64>>> {
    let with = |name: &str, before, threads| IndexTarget { threads, ..target(name, Some(before), Vec::new()) };
    vec![
        with(
            "threads-key",
            inserts([10, 20]),
            vec![
                vec![IndexOp::Update(10, 1), IndexOp::Remove(10)],
                vec![IndexOp::Update(10, 2), IndexOp::Insert(30, 3)],
            ],
        ),
        with("threads-split", inserts(1..=9), vec![inserts([10, 11]), removes([1, 2])]),
    ]
}

/// Bugs that can be planted here and that a crash shows. Those that only interleavings show are in
/// `tests/hybrid_planted_schedules.rs`.
pub(crate) fn bugs() -> Vec<Bug> {
    vec![Bug::new("hybrid-no-drain", "a range misses what was acknowledged", || {
        Box::new(target::<u64>("change", Some(inserts([40])), changes()))
    })]
}
