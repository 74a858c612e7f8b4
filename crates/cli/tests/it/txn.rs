//! `kv txn` as a user runs it: all or nothing, errors with line numbers, exit codes. A pool check knows the memory.

use crate::common::Place;

#[test]
fn a_script_happens_whole_or_not_at_all() {
    let place = Place::with_pool("16MiB");
    place.feed(b"put alice 100\nput bob 5\nput \"a long key with blanks\" \"x\\x00y\"\n", ["kv", "txn", "a.pool"]).ok();
    place.write("move", "expect alice 100\nadd alice -30\nadd bob 30\nget alice\ndelete nobody\nabsent nobody\n");
    assert_eq!(place.run(["kv", "txn", "a.pool", "move"]).ok(), "70\n");
    // The same again: alice no longer has 100, so nothing of it happens.
    let failed = place.run(["kv", "txn", "a.pool", "move"]).finding();
    assert!(failed.stderr.contains("line 1: key `alice` holds `70`, expected `100`"), "{failed:?}");
    let late = b"add alice -70\ncas bob 34 0\n";
    assert!(place.feed(late, ["kv", "txn", "a.pool", "-"]).finding().stderr.contains("line 2"));
    let shown = place.feed(b"scan\nget nobody", ["kv", "txn", "a.pool"]).ok();
    assert_eq!(shown, "a long key with blanks\tx\\0y\nalice\t70\nbob\t35\n(absent)\n");
    assert!(place.run(["pool", "check", "a.pool"]).ok().contains("a.pool"));
    // The records of the map, not the objects of its memory.
    let checked = place.run(["kv", "check", "a.pool"]).ok();
    assert!(checked.contains("3 records in a memory of ") && checked.contains("everything verifies"), "{checked}");
}

#[test]
fn what_cannot_be_understood_changes_nothing_and_says_where() {
    let place = Place::with_pool("16MiB");
    place.feed(b"put a 1\nput b\n", ["kv", "txn", "a.pool"]).fails_with(&["standard input, line 2", "put"]);
    place.feed(b"put a 1\nfly\n", ["kv", "txn", "a.pool"]).fails_with(&["line 2", "`fly` is no step"]);
    place.feed(b"", ["kv", "txn", "a.pool"]).fails_with(&["no steps"]);
    place.run(["kv", "txn", "a.pool", "missing"]).fails_with(&["missing: reading the script failed"]);
    place.feed(b"put n x\n", ["kv", "txn", "a.pool"]).ok();
    let failed = place.feed(b"add n 1\n", ["kv", "txn", "a.pool"]).finding();
    assert!(failed.stderr.contains("`x` is no whole number"), "{failed:?}");
    assert_eq!(place.feed(b"scan", ["kv", "txn", "a.pool"]).ok(), "n\tx\n");
}

#[test]
fn a_repair_keeps_what_transactions_wrote() {
    let place = Place::with_pool("16MiB");
    place.run(["kv", "put", "a.pool", "beside", "it"]).ok();
    place.feed(b"put kept yes\n", ["kv", "txn", "a.pool"]).ok();
    place.run(["pool", "repair", "a.pool"]).ok();
    assert_eq!(place.feed(b"get kept\n", ["kv", "txn", "a.pool"]).ok(), "yes\n");
    assert_eq!(place.run(["kv", "get", "a.pool", "beside"]).ok(), "it\n");
    place.run(["pool", "check", "a.pool"]).ok();
}

#[test]
fn the_bank_is_right_after_every_kill() {
    let place = Place::new();
    for domain in ["process", "block"] {
        let objects = place.json(["torture", "bank", "--kills", "12", "--domain", domain, "--transfers", "2000"]);
        let [summary] = &objects[..] else { panic!("one summary: {objects:?}") };
        assert_eq!((&summary["kills"], &summary["domain"]), (&12.into(), &domain.into()), "{summary}");
        assert_eq!(summary["wrong"], serde_json::json!([]), "{summary}");
        assert!(summary["transfers"].as_u64() >= Some(2000), "{summary}");
        assert!(summary["acked"].as_u64() > Some(0), "the kills hit a load: {summary}");
    }
}
