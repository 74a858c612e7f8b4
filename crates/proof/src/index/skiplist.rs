//! The crash explorer's targets for the skip list.

use lodestone_crash::Target;
use lodestone_crash::planted::Bug;
use lodestone_index::{IndexKey, SkipList, SkipListOptions};

use super::index_target::{IndexOp, IndexTarget, inserts, removes};

fn family<K: IndexKey + ?Sized>(family: &str) -> Vec<Box<dyn Target>> {
    let target = |name: &str, before, script| -> Box<dyn Target> {
        let name = format!("{family}-{name}");
        let target = IndexTarget::<SkipList<K>>::new(&name, SkipListOptions::default(), before, script);
        Box::new(IndexTarget { append: |list: &SkipList<K>, pairs| list.load_stretch(pairs), ..target })
    };
    vec![
        target("create", None, inserts([10])),
        target("insert", Some(inserts([20])), inserts([10, 30, 25])),
        target("update", Some(inserts([10, 20])), vec![IndexOp::Update(20, 7), IndexOp::Update(20, 8)]),
        target("load", Some(inserts([10, 20])), vec![IndexOp::Append(30, 3), IndexOp::Append(40, 2)]),
        target("remove", Some(inserts([10, 20, 30, 40])), removes([20, 10, 40, 30])),
    ]
}

/// The targets of skip lists.
#[must_use]
pub fn targets() -> Vec<Box<dyn Target>> {
    let mut all = family::<u64>("skiplist");
    all.extend(family::<[u8]>("skiplist-text"));
    all
}

/// Lists that threads change under a deterministic scheduler while the trace records.
#[must_use]
pub fn threaded() -> Vec<IndexTarget<SkipList<u64>>> {
    let with = |name: &str, before, threads| IndexTarget {
        threads,
        ..IndexTarget::new(&format!("skiplist-threads-{name}"), SkipListOptions::default(), Some(before), Vec::new())
    };
    vec![
        with("insert", inserts([20]), vec![inserts([10, 15]), inserts([12]), inserts([13, 14])]),
        with("remove", inserts([10, 20, 30]), vec![removes([20, 10]), inserts([25]), removes([30])]),
    ]
}

fn named(name: &str) -> Box<dyn Target> {
    let found = targets().into_iter().find(|target| target.name() == name);
    found.expect("a bug names a target that is there")
}

/// Bugs that can be planted in the list, each with the target that must find it.
#[must_use]
pub fn bugs() -> Vec<Bug> {
    vec![
        Bug::new("skiplist-link-before-node", "the list leads into a block without an owner", || {
            named("skiplist-insert")
        }),
        Bug::new("skiplist-load-unlinked", "the nodes of a crashed load leak", || named("skiplist-load")),
        Bug::new("skiplist-frees-first", "a crashed removal leaves a node that the heap gives away again", || {
            named("skiplist-remove")
        }),
    ]
}
