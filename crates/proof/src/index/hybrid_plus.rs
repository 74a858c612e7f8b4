//! The crash explorer's targets: changes and structure changes. The judge's index fills its hash along with the judge's
//! reads, one pair at a time. So every state is read with a cold hash, with each half-filled one and with a warm one.
//!
//! The hybrid itself stores and flushes nothing on the medium, so it has no flushes and fences to audit. The tree's
//! targets audit those of the tree.

use lodestone_crash::Target;
use lodestone_crash::planted::Bug;
use lodestone_index::{HybridPlus, HybridPlusOptions, IndexKey, WarmUp};

use super::index_target::{IndexOp, IndexTarget, inserts, removes};

fn target<K: IndexKey + ?Sized>(
    name: &str,
    keys_per_operation: usize,
    before: Option<Vec<IndexOp>>,
    script: Vec<IndexOp>,
) -> IndexTarget<HybridPlus<K>> {
    let options = HybridPlusOptions::small().with_warm_up(WarmUp::WithOperations { keys: keys_per_operation });
    let target = IndexTarget::new(&format!("index-hybrid-plus-{name}"), options, before, script);
    IndexTarget { audited: "index/src/hybrid_plus/", ..target }
}

fn ascending(count: u8) -> Vec<IndexOp> {
    inserts((1..=count).map(|number| number * 4))
}

/// The hash stays cold. The tree answers, and the hash holds only the entries that operations put into it.
fn cold() -> IndexTarget<HybridPlus<u64>> {
    let changes = [inserts([20, 10]), vec![IndexOp::Update(20, 7)], removes([20])].concat();
    target("cold", 0, Some(inserts([40, 50])), changes)
}

/// The targets.
pub(crate) fn targets() -> Vec<Box<dyn Target>> {
    vec![
        Box::new(target::<u64>("create", 1, None, inserts([10]))),
        // As many keys as the judge's first reads fill in, and some more.
        Box::new(target::<u64>(
            "change",
            1,
            Some(inserts([40, 50, 60, 70])),
            [inserts([20]), vec![IndexOp::Update(40, 7)], removes([50])].concat(),
        )),
        Box::new(cold()),
        Box::new(target::<u64>("split", 1, Some(ascending(6)), inserts([13]))),
        Box::new(target::<u64>("merge", 2, Some(ascending(7)), removes([28, 24]))),
        Box::new(target::<[u8]>("text", 1, Some(inserts([40])), [inserts([20]), removes([40])].concat())),
    ]
}

/// Indexes that threads change under a deterministic scheduler while the trace records: for `explore_schedules`.
#[must_use]
pub fn hybrid_plus_threaded() -> Vec<IndexTarget<HybridPlus<u64>>> {
    let with = |name: &str, before, threads| IndexTarget { threads, ..target(name, 1, Some(before), Vec::new()) };
    vec![
        with(
            "threads-key",
            inserts([10, 20]),
            vec![
                vec![IndexOp::Update(10, 1), IndexOp::Remove(10)],
                vec![IndexOp::Update(10, 2), IndexOp::Insert(30, 3)],
            ],
        ),
        with("threads-split", ascending(6), vec![inserts([13]), removes([12, 8])]),
    ]
}

/// Bugs that can be planted here and that a crash shows. Those that only interleavings show are in
/// `tests/hybrid_planted_schedules.rs`.
pub(crate) fn bugs() -> Vec<Bug> {
    vec![Bug::new("hybrid-plus-miss-is-absent", "keys are gone until the hash is warm", || Box::new(cold()))]
}
