//! The crash explorer's targets for the tree: creation and every kind of change, with leaves of six pairs.

use std::ops::{Bound, ControlFlow};

use lodestone_crash::planted::Bug;
use lodestone_crash::{Redundant, Target};
use lodestone_index::{Direction, FpTree, IndexKey, OrderedIndex, Result, TreeOptions};

use super::cell_target::CellOp::{Put, Read, Remove};
use super::cell_target::{CellOp, CellTarget, ScriptKey, puts};
use super::index_target::{IndexOp, IndexTarget, inserts};

fn contents<K: ScriptKey + ?Sized>(tree: &FpTree<K>) -> Result<Vec<(Vec<u8>, u64)>> {
    let read = |direction| -> Result<Vec<(Vec<u8>, u64)>> {
        let mut all = Vec::new();
        tree.scan(Bound::Unbounded, Bound::Unbounded, direction, |key, value| {
            all.push((key.with_bytes(<[u8]>::to_vec), value));
            ControlFlow::Continue(())
        })?;
        Ok(all)
    };
    let all = read(Direction::Ascending)?;
    let mut back = read(Direction::Descending)?;
    back.reverse();
    assert_eq!(all, back, "both directions show the same");
    Ok(all)
}

fn target<K: ScriptKey + ?Sized>(
    name: &'static str,
    before: Option<Vec<CellOp>>,
    script: &[CellOp],
) -> CellTarget<FpTree<K>> {
    let options = TreeOptions { lines_per_leaf: 2, rebuild_threads: 1 };
    CellTarget { name, options, contents, before, script: script.to_vec(), threads: Vec::new(), redundant: Vec::new() }
}

/// Two leaves. The left one has room for the right one's pairs.
fn fill_and_thin() -> Vec<CellOp> {
    let mut ops = puts([10, 20, 30, 40, 50, 60, 35]);
    ops.extend([Remove(10), Remove(20)]);
    ops
}

/// A merge whose left leaf takes pairs.
fn merge<K: ScriptKey + ?Sized>(name: &'static str, script: &[CellOp]) -> CellTarget<FpTree<K>> {
    let reason = "one call later it still comes before the action's record is whole, and half a record is none";
    CellTarget {
        redundant: vec![Redundant::new("late fence at crates/index/src/fptree/structure.rs", 1, reason)],
        ..target(name, Some(fill_and_thin()), script)
    }
}

/// Leaves that are loaded at once after others.
fn loads<K: IndexKey + ?Sized>(family: &str) -> Vec<Box<dyn Target>> {
    let load = |name, before, script| -> Box<dyn Target> {
        let options = TreeOptions { lines_per_leaf: 2, rebuild_threads: 1 };
        let target = IndexTarget::<FpTree<K>>::new(&format!("{family}-{name}"), options, before, script);
        Box::new(IndexTarget { append: |tree: &FpTree<K>, pairs| tree.load_leaf_of(pairs, false), ..target })
    };
    vec![
        load("load", Some(inserts([10, 20, 30])), vec![IndexOp::Append(40, 4), IndexOp::Append(50, 3)]),
        load(
            "load-full",
            Some(inserts([10, 20, 30, 40, 50, 60])),
            vec![IndexOp::Append(70, 5), IndexOp::Insert(71, 1)],
        ),
    ]
}

/// The targets of the tree.
pub(crate) fn targets() -> Vec<Box<dyn Target>> {
    let mut all = loads::<u64>("fptree");
    all.extend(loads::<[u8]>("fptree-strings"));
    all.extend(changes());
    all
}

fn changes() -> Vec<Box<dyn Target>> {
    vec![
        Box::new(target::<u64>("fptree-create", None, &[Put(10, 1)])),
        // Two lines of three. The later keys leave their full home line.
        Box::new(target::<u64>("fptree-insert", Some(vec![]), &puts([10, 20, 15, 30, 5]))),
        Box::new(target::<u64>("fptree-update", Some(puts(1..=6)), &[Put(1, 2), Put(1, 3), Put(4, 2)])),
        Box::new(target::<u64>("fptree-split", Some(puts([10, 20, 30, 40, 50, 60])), &puts([15, 45, 46]))),
        Box::new(target::<u64>("fptree-append", Some(puts(1..=6)), &puts(7..=9))),
        Box::new(merge::<u64>("fptree-merge", &[Remove(60), Remove(50), Remove(40), Remove(35)])),
        Box::new(target::<[u8]>("fptree-strings", Some(puts([10, 20, 30, 40])), &[Put(50, 1), Put(20, 2), Remove(30)])),
        Box::new(target::<[u8]>("fptree-strings-split", Some(puts(1..=6)), &[Put(7, 1), Remove(2), Put(8, 1)])),
        Box::new(merge::<[u8]>("fptree-strings-merge", &[Remove(60), Remove(50), Remove(40)])),
    ]
}

/// Trees that threads change under a deterministic scheduler while the trace records: for `explore_schedules`.
#[must_use]
pub fn fptree_threaded() -> Vec<CellTarget<FpTree<u64>>> {
    let with = |name, before: Vec<CellOp>, threads: &[&[CellOp]]| CellTarget {
        threads: threads.iter().map(|ops| ops.to_vec()).collect(),
        ..target::<u64>(name, Some(before), &[])
    };
    vec![
        with("fptree-threads-read", puts(1..=3), &[&[Put(1, 2), Put(1, 3), Put(1, 4)], &[Read(1), Read(1), Read(1)]]),
        with("fptree-threads-update", puts(1..=3), &[&[Put(1, 2), Put(2, 2)], &[Put(1, 3), Remove(2)], &[Put(1, 4)]]),
        with(
            "fptree-threads-split",
            puts([10, 20, 30, 40, 50]),
            &[&[Put(15, 1), Put(16, 1)], &[Put(45, 1), Put(20, 2)]],
        ),
        with(
            "fptree-threads-merge",
            puts([10, 20, 30, 40, 50, 60, 35]),
            &[&[Remove(60), Remove(50), Remove(40)], &[Remove(35), Put(36, 1)]],
        ),
    ]
}

fn named(name: &str) -> Box<dyn Target> {
    let found = targets().into_iter().find(|target| target.name() == name);
    found.expect("a bug names a target that is there")
}

/// Bugs that can be planted in the tree, and again those of the cell lines below it.
pub(crate) fn bugs() -> Vec<Bug> {
    let mut all = vec![
        Bug::new("cells-header-before-pair", "bitmap and fingerprint are there, the pair is not", || {
            named("fptree-insert")
        }),
        Bug::new("fptree-leaf-not-flushed", "half a leaf is lost", || named("fptree-split")),
        Bug::new("fptree-split-in-two-actions", "scans show keys twice, and a removal leaves one behind", || {
            named("fptree-split")
        }),
        Bug::without(
            "fptree-merge-without-fence",
            "pairs that moved to the left leaf are lost",
            || named("fptree-merge"),
            "fptree/structure.rs",
            "may not overtake the pairs they name: it allocates nothing",
        ),
        Bug::new("fptree-load-unlinked", "the leaf of a crashed load leaks", || named("fptree-load")),
        Bug::new("fptree-lock-persisted", "no thread can change a leaf whose writer crashed", || {
            named("fptree-insert")
        }),
    ];
    // Each shows in the first recovery. Crashes inside recoveries would only multiply the states before it.
    all.iter_mut().for_each(|bug| bug.config.nested_depth = 0);
    all
}
