//! Planted bugs of the heap: the explorer finds each, with a reproducer that replays. None is found in the clean tree.

use lodestone_crash::Target;
use lodestone_crash::planted::Bug;
use lodestone_proof::heap::heap_targets;

fn target(name: &str) -> Box<dyn Target> {
    heap_targets().into_iter().find(|target| target.name() == name).expect("a target of that name")
}

fn found(bug: &Bug) {
    let violation = bug.must_be_found();
    println!("{}: {}\n{violation}\n", bug.name, bug.harm);
}

#[test]
fn record_before_contents() {
    found(&Bug::new("heap-record-before-contents", "replay publishes a block without its contents", || {
        target("heap-alloc")
    }));
}

#[test]
fn apply_before_the_record_is_fenced() {
    let harm = "half an action survives, nothing repeats the rest";
    let reason = "stores in place may not overtake the record";
    let alloc = || target("heap-alloc");
    found(&Bug::without("heap-apply-before-fence", harm, alloc, "heap/src/commit.rs", reason));
}

#[test]
fn end_of_record_not_fenced() {
    found(&Bug::new("heap-record-end-not-fenced", "replay rolls a later store back", || target("heap-lanes")));
}

#[test]
fn record_without_checksum() {
    found(&Bug::new("heap-record-without-checksum", "a torn record is replayed", || target("heap-record")));
}

#[test]
fn bitmap_before_record() {
    found(&Bug::new("heap-bitmap-before-record", "a block is allocated that nothing points to: a leak", || {
        target("heap-alloc")
    }));
}

#[test]
fn free_published_before_unlink() {
    found(&Bug::new("heap-free-before-unlink", "a block that is still linked is given out again", || {
        target("heap-order")
    }));
}

#[test]
fn slab_published_before_its_bitmap() {
    found(&Bug::new("heap-slab-before-bitmap", "a slab with a garbage bitmap", || target("heap-growth")));
}

#[test]
fn lane_lock_on_the_medium() {
    found(&Bug::new("heap-lane-lock-persisted", "recovery meets a lock of the dead: no lane is usable", || {
        target("heap-alloc")
    }));
}

#[test]
fn recovery_ends_records_early() {
    let harm = "a crash in recovery loses what it repeated";
    let reason = "The end of a record may not overtake the words it repeats";
    let alloc = || target("heap-alloc");
    found(&Bug::without("heap-recovery-ends-early", harm, alloc, "heap/src/recover.rs", reason));
}

#[test]
fn header_before_lanes() {
    let harm = "a crash while formatting leaves a heap without lanes";
    let reason = "The header says that lanes, root words and zones word are there";
    let format = || target("heap-format");
    found(&Bug::without("heap-header-first", harm, format, "heap/src/format.rs", reason));
}
