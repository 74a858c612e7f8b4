//! The crash explorer's targets for the tree: every kind of change, with nodes of two lines of three entries.

use lodestone_crash::planted::Bug;
use lodestone_crash::{Redundant, Target};
use lodestone_index::{FastFair, FastFairOptions, IndexKey};

use super::index_target::{IndexOp, IndexTarget, inserts, removes};

fn options() -> FastFairOptions {
    FastFairOptions::with_lines(2)
}

fn ascending(count: u8) -> Vec<IndexOp> {
    inserts((1..=count).map(|number| number * 4))
}

fn target<K: IndexKey + ?Sized>(
    family: &str,
    name: &str,
    before: Option<Vec<IndexOp>>,
    script: Vec<IndexOp>,
) -> Box<dyn Target> {
    target_of_lines::<K>(options(), family, name, before, script)
}

fn target_of_lines<K: IndexKey + ?Sized>(
    options: FastFairOptions,
    family: &str,
    name: &str,
    before: Option<Vec<IndexOp>>,
    script: Vec<IndexOp>,
) -> Box<dyn Target> {
    let target = IndexTarget::<FastFair<K>>::new(&format!("{family}-{name}"), options, before, script);
    let append = |tree: &FastFair<K>, pairs: &[(K::Owned, u64)]| tree.load_leaf_of(pairs, false);
    Box::new(IndexTarget { redundant: redundant_of(family, name), append, ..target })
}

/// The flushes and fences that a target can do without, and the reason why they exist.
fn redundant_of(family: &str, name: &str) -> fn() -> Vec<Redundant> {
    match (family, name) {
        ("fastfair", "line-high") => || {
            let reason = "the entry that moved here is the last one: the line after it covers its copy until one more removal, \
                          whose fence comes first (line-low needs this one)";
            vec![Redundant::new("at crates/index/src/fastfair/write.rs", 4, reason)]
        },
        ("fastfair", "shrink") => || {
            let reason = "the removal empties the leaf, and the action that merges it writes the same line again";
            vec![Redundant::new("at crates/index/src/fastfair/write.rs", 5, reason)]
        },
        ("fastfair-text", "empty-between") => || {
            let reason = "the next store goes into the new key's block, which nothing names yet; those to the line come after it";
            vec![Redundant::new("late fence at crates/index/src/fastfair/write.rs", 1, reason)]
        },
        ("fastfair-text", "change" | "line-low" | "line-high" | "empty-split" | "parent" | "root") => || {
            let reason = "the string that made the line split goes into the old line next, and its action flushes that line; \
                          another thread's change may come between";
            vec![Redundant::new("at crates/index/src/fastfair/write.rs", 5, reason)]
        },
        _ => Vec::new,
    }
}

fn family<K: IndexKey + ?Sized>(family: &str) -> Vec<Box<dyn Target>> {
    let target = |name, before, script| target::<K>(family, name, before, script);
    let changes = [inserts([20, 30, 10]), vec![IndexOp::Update(20, 7), IndexOp::Update(10, 8)], removes([20])].concat();
    let three =
        |name, before, script| target_of_lines::<K>(FastFairOptions::with_lines(3), family, name, Some(before), script);
    // Of three full lines the last one is emptied. A line that splits, or a key between two full lines, takes it.
    let emptied = [ascending(9), removes([28, 32, 36])].concat();
    // Leaves 4..24, 28..48, ... of a node that ascending keys filled.
    vec![
        three("empty-split", emptied.clone(), inserts([5])),
        three("empty-between", emptied, inserts([13])),
        target("create", None, inserts([10])),
        target("change", Some(inserts([40])), changes),
        target("line-low", Some(inserts([10, 20, 30])), [inserts([5]), removes([20, 30])].concat()),
        target("line-high", Some(inserts([10, 20, 30])), [inserts([25]), removes([25, 30])].concat()),
        target("append", Some(ascending(6)), inserts([28])),
        target("split", Some(ascending(6)), inserts([13])),
        target("parent", Some(ascending(20)), inserts([6])),
        target("root", Some(ascending(37)), inserts([6])),
        target("merge", Some(ascending(18)), removes([40, 28, 36, 48, 32, 44])),
        target("shrink", Some(ascending(7)), removes([28])),
    ]
}

/// The targets of trees.
#[must_use]
pub fn targets() -> Vec<Box<dyn Target>> {
    let mut all = family::<u64>("fastfair");
    all.extend(loads::<u64>("fastfair"));
    all.extend(family::<[u8]>("fastfair-text"));
    all.extend(loads::<[u8]>("fastfair-text"));
    all
}

/// Leaves that are loaded at once after others.
fn loads<K: IndexKey + ?Sized>(family: &str) -> [Box<dyn Target>; 2] {
    let mut portions = vec![IndexOp::Append(30, 6), IndexOp::Append(40, 5)];
    // One leaf of strings has as many crash states as ten of words.
    portions.truncate(if K::IS_WORD { 2 } else { 1 });
    let loads = [("load", ascending(6), portions), ("load-parent", ascending(36), vec![IndexOp::Append(150, 4)])];
    loads.map(|(name, before, script)| target::<K>(family, name, Some(before), script))
}

/// Trees that threads change under a deterministic scheduler while the trace records.
#[must_use]
pub fn threaded() -> Vec<IndexTarget<FastFair<u64>>> {
    let with = |name: &str, before, threads| IndexTarget {
        threads,
        ..IndexTarget::new(&format!("fastfair-threads-{name}"), options(), Some(before), Vec::new())
    };
    vec![
        with("line", inserts([10, 20, 30]), vec![inserts([15, 25]), vec![IndexOp::Remove(20), IndexOp::Update(10, 3)]]),
        with("split", ascending(6), vec![inserts([13]), inserts([14]), removes([12])]),
        with("merge", ascending(7), vec![removes([28]), inserts([30]), removes([24])]),
        // Leaves 4..24 and 28..48 under one parent. Both split side by side, and one of them twice.
        with("splits", ascending(12), vec![inserts([13, 14, 15]), inserts([33]), inserts([5])]),
        // A parent of six leaves is full. One of them splits it, others find that it does not cover them any more.
        with("parents", ascending(35), vec![inserts([6]), inserts([126]), inserts([30])]),
        // The last leaf but one goes, and the root with it, while the other one splits.
        with("shrink", ascending(7), vec![removes([28]), inserts([13, 14])]),
    ]
}

fn named(name: &str) -> Box<dyn Target> {
    let found = targets().into_iter().find(|target| target.name() == name);
    found.expect("a bug names a target that is there")
}

/// Bugs that only interleavings show, each with the target of [`threaded`] that must find it.
pub const RACES: [(&str, &str); 2] =
    [("fastfair-split-believes", "fastfair-threads-splits"), ("fastfair-shrink-believes", "fastfair-threads-shrink")];

/// Bugs that can be planted in the tree, each with the target that must find it.
#[must_use]
pub fn bugs() -> Vec<Bug> {
    vec![
        Bug::new("fastfair-meta-before-entry", "a crashed insert publishes what stood in the slot before", || {
            named("fastfair-change")
        }),
        Bug::new("fastfair-update-not-pending", "a crashed update reads as damage", || named("fastfair-change")),
        Bug::new("fastfair-remove-flushes-wrong-line", "an acknowledged removal comes back", || {
            named("fastfair-change")
        }),
        Bug::new("fastfair-line-not-flushed", "a linked line has lost its entries", || named("fastfair-line-high")),
        Bug::new("fastfair-line-shrinks-first", "entries that move between lines are lost", || {
            named("fastfair-line-low")
        }),
        Bug::new(
            "fastfair-empty-line-in-order",
            "entries stand where an empty line stood: other keys are not found",
            || named("fastfair-empty-between"),
        ),
        Bug::new("fastfair-no-repair", "a copy that a crash left cannot be removed: the key comes back", || {
            named("fastfair-line-low")
        }),
        Bug::new(
            "fastfair-node-not-flushed",
            "the header of a new node is lost (the published constructor's bug)",
            || named("fastfair-split"),
        ),
        Bug::new("fastfair-split-not-atomic", "half of a split root is not reachable from the new one", || {
            named("fastfair-split")
        }),
        Bug::new("fastfair-load-unlinked", "the leaf of a crashed load leaks", || named("fastfair-load")),
        Bug::new("fastfair-merge-unlinks-first", "the keys of a merged leaf are lost, its block leaks", || {
            named("fastfair-merge")
        }),
    ]
}
