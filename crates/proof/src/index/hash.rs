//! The crash explorer's targets for the hash index: creation and every kind of change, with segments of nine pairs.

use lodestone_crash::Target;
use lodestone_crash::planted::Bug;
use lodestone_index::{HashIndex, HashOptions, Result};

use super::cell_target::CellOp::{Put, Read, Remove};
use super::cell_target::{CellOp, CellTarget, ScriptKey, puts};

fn contents<K: ScriptKey + ?Sized>(index: &HashIndex<K>) -> Result<Vec<(Vec<u8>, u64)>> {
    let mut all = Vec::new();
    index.for_each(|key, value| all.push((key.with_bytes(<[u8]>::to_vec), value)))?;
    Ok(all)
}

fn target<K: ScriptKey + ?Sized>(
    name: &'static str,
    before: Option<Vec<CellOp>>,
    script: &[CellOp],
) -> CellTarget<HashIndex<K>> {
    let options = HashOptions::small();
    CellTarget { name, options, contents, before, script: script.to_vec(), threads: Vec::new(), redundant: Vec::new() }
}

/// A target for a random program.
pub(crate) fn random_target<K: ScriptKey + ?Sized>(
    options: HashOptions,
    before: Vec<CellOp>,
    script: Vec<CellOp>,
) -> CellTarget<HashIndex<K>> {
    CellTarget { options, script, ..target("", Some(before), &[]) }
}

/// The targets of the hash index.
pub(crate) fn targets() -> Vec<Box<dyn Target>> {
    vec![
        Box::new(target::<u64>("hash-create", None, &[Put(10, 1)])),
        // Two lines of three. The later keys leave their full home line.
        Box::new(target::<u64>("hash-insert", Some(puts(1..=2)), &puts(3..=7))),
        Box::new(target::<u64>("hash-update", Some(puts(1..=6)), &[Put(1, 2), Put(1, 3), Put(4, 2), Put(5, 2)])),
        Box::new(target::<u64>(
            "hash-remove",
            Some(puts(1..=6)),
            &[Remove(1), Remove(99), Put(1, 2), Remove(6), Put(7, 1)],
        )),
        // Nine pairs fit. The tenth splits, and further ones deepen the directory below its node of eight entries.
        Box::new(target::<u64>("hash-split", Some(puts(1..=9)), &puts(10..=12))),
        Box::new(target::<u64>("hash-deepen", Some(puts(1..=60)), &puts(61..=64))),
        Box::new(target::<u64>("hash-merge", Some(puts(1..=10)), &(1..=8).map(Remove).collect::<Vec<_>>())),
        Box::new(target::<[u8]>("hash-strings", Some(puts(1..=4)), &[Put(5, 1), Put(2, 2), Remove(3), Put(3, 2)])),
        Box::new(target::<[u8]>("hash-strings-split", Some(puts(1..=9)), &[Put(10, 1), Remove(2)])),
        Box::new(target::<[u8]>("hash-strings-create", None, &[Put(10, 1)])),
    ]
}

/// Indexes that threads change under a deterministic scheduler while the trace records: for `explore_schedules`.
#[must_use]
pub fn hash_threaded() -> Vec<CellTarget<HashIndex<u64>>> {
    let with = |name, before: Vec<CellOp>, threads: &[&[CellOp]]| CellTarget {
        threads: threads.iter().map(|ops| ops.to_vec()).collect(),
        ..target::<u64>(name, Some(before), &[])
    };
    vec![
        with(
            "hash-threads-update",
            puts(1..=4),
            &[&[Put(1, 2), Put(2, 2)], &[Put(1, 3), Remove(2)], &[Put(1, 4), Put(5, 1)]],
        ),
        with("hash-threads-read", puts(1..=3), &[&[Put(1, 2), Put(1, 3), Put(1, 4)], &[Read(1), Read(1), Read(1)]]),
        with("hash-threads-split", puts(1..=8), &[&[Put(9, 1), Put(10, 1)], &[Put(11, 1), Put(1, 2)]]),
        with("hash-threads-merge", puts(1..=10), &[&(1..=5).map(Remove).collect::<Vec<_>>(), &[Remove(6), Put(7, 2)]]),
    ]
}

fn named(name: &str) -> Box<dyn Target> {
    let found = targets().into_iter().find(|target| target.name() == name);
    found.expect("a bug names a target that is there")
}

/// Bugs that can be planted in the hash index and in the cell lines below it.
pub(crate) fn bugs() -> Vec<Bug> {
    let mut all = vec![
        Bug::new("cells-header-before-pair", "a begun insert reads as damage after a crash", || named("hash-insert")),
        Bug::new("cells-level-behind-pair", "a pair is there and no search leads to it", || named("hash-insert")),
        Bug::new("cells-update-in-place", "an acknowledged value is lost by a crashed update", || named("hash-update")),
        Bug::new("cells-record-not-flushed", "an acknowledged string reads as damage", || named("hash-strings")),
        Bug::new("hash-segment-not-flushed", "the directory names a segment that is not there", || named("hash-split")),
        Bug::new("hash-segment-leaked", "a crashed split leaks its new segments", || named("hash-split")),
        Bug::new("hash-lock-persisted", "no thread can change a segment whose writer crashed", || named("hash-insert")),
    ];
    // Each shows in the first recovery. Crashes inside recoveries would only multiply the states before it.
    all.iter_mut().for_each(|bug| bug.config.nested_depth = 0);
    all
}
