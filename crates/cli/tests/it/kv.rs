//! The `kv` commands as a user runs them: records in, records out, the same bytes.

use std::io::Read;
use std::process::Stdio;

use crate::common::Place;

#[test]
fn records_go_in_and_come_out() {
    let place = Place::with_pool("8MiB");
    place.run(["kv", "put", "a.pool", "b", "two"]).ok();
    place.run(["kv", "put", "a.pool", "a", "-1"]).ok();
    place.feed(b"from a pipe", ["kv", "put", "a.pool", "c", "-"]).ok();
    place.write("value", b"\x00\xFFraw\n");
    place.run(["kv", "put", "a.pool", "--hex", "64ff", "00"]).ok();
    place.run(["kv", "put", "a.pool", "file", "@value"]).ok();
    assert_eq!(place.run(["kv", "get", "a.pool", "a"]).ok(), "-1\n");
    assert_eq!(place.run(["kv", "get", "a.pool", "c", "--raw"]).ok(), "from a pipe");
    assert_eq!(place.run(["kv", "get", "a.pool", "--hex", "66696c65"]).ok(), "00ff7261770a\n");
    assert_eq!(place.run(["kv", "count", "a.pool"]).ok(), "5\n");
    assert_eq!(place.run(["kv", "scan", "a.pool", "--from", "b", "--to", "c"]).ok(), "b\ttwo\n");
    assert_eq!(place.run(["kv", "scan", "a.pool", "--limit", "2", "--keys-only"]).ok(), "a\nb\n");
    assert_eq!(place.run(["kv", "scan", "a.pool", "--prefix", "d"]).ok(), "d\\xff\t\\0\n");
    assert_eq!(place.run(["kv", "count", "a.pool", "--prefix", "f"]).ok(), "1\n");
    let objects = place.json(["kv", "scan", "a.pool", "--prefix", "d"]);
    assert_eq!(objects, [serde_json::json!({"key_hex": "64ff", "value": "\u{0}"})]);
    place.run(["kv", "del", "a.pool", "b"]).ok();
    place.run(["kv", "del", "a.pool", "b"]).finding();
    let missing = place.run(["kv", "get", "a.pool", "b"]).finding();
    assert!(missing.stderr.contains("no key `b`") && missing.stdout.is_empty());
    assert_eq!(place.run(["kv", "get", "a.pool", "b", "--json"]).finding().stdout, "{\"key\":\"b\"}\n");
    assert!(place.run(["kv", "check", "a.pool"]).ok().contains("everything verifies"));
}

#[test]
fn maps_of_one_pool_are_apart() {
    let place = Place::with_pool("8MiB");
    place.run(["kv", "put", "a.pool", "k", "one", "--map", "first"]).ok();
    place.run(["kv", "put", "a.pool", "k", "two", "--map", "second"]).ok();
    assert_eq!(place.run(["kv", "get", "a.pool", "k", "--map", "first"]).ok(), "one\n");
    place.run(["kv", "get", "a.pool", "k"]).fails_with(&["a.pool", "no map `main`", "pool info"]);
    place.run(["kv", "get", "a.pool", "k", "--map", "lodestone.imports"]).fails_with(&["lodestone."]);
}

#[test]
fn reading_changes_no_byte() {
    let place = Place::with_pool("8MiB");
    place.run(["kv", "put", "a.pool", "k", "v"]).ok();
    let before = std::fs::read(place.path("a.pool")).expect("read");
    place.run(["kv", "get", "a.pool", "k"]).ok();
    place.run(["kv", "scan", "a.pool"]).ok();
    place.run(["kv", "export", "a.pool"]).ok();
    place.run(["pool", "info", "a.pool"]).ok();
    assert!(std::fs::read(place.path("a.pool")).expect("read") == before);
}

#[test]
fn exports_are_imported_as_the_same_map() {
    let place = Place::with_pool("8MiB");
    place.run(["kv", "put", "a.pool", "plain", "text, with \"quotes\"\nand lines"]).ok();
    place.run(["kv", "put", "a.pool", "object", "{\"x\":1.50}"]).ok();
    place.run(["kv", "put", "a.pool", "empty", ""]).ok();
    place.run(["kv", "put", "a.pool", "--hex", "ff00", "fe"]).ok();
    let original = place.run(["kv", "scan", "a.pool", "--hex"]).ok();
    for format in ["csv", "jsonl"] {
        let file = format!("out.{format}");
        place.run(["kv", "export", "a.pool", "--format", format, "--output", &file]).ok();
        place.run(["kv", "import", "a.pool", &file, "--key", "key", "--value", "value", "--map", format]).ok();
        assert_eq!(place.run(["kv", "scan", "a.pool", "--hex", "--map", format]).ok(), original, "{format}");
    }
}

#[test]
fn flat_exports_are_what_was_imported() {
    let place = Place::with_pool("8MiB");
    let csv = "id,name,city\n1,Ann,Ulm\n2,\"Bob, Jr\",\n";
    place.write("people.csv", csv);
    place.run(["kv", "import", "a.pool", "people.csv", "--key", "id"]).ok();
    assert_eq!(place.run(["kv", "export", "a.pool", "--format", "csv", "--flat", "id"]).ok(), csv);
    let json = place.run(["kv", "export", "a.pool", "--flat", "id"]).ok();
    assert_eq!(json.lines().next(), Some("{\"id\":\"1\",\"name\":\"Ann\",\"city\":\"Ulm\"}"));
    place.feed(json.as_bytes(), ["kv", "import", "a.pool", "-", "--format", "jsonl", "--key", "id", "--map", "b"]).ok();
    assert_eq!(place.run(["kv", "scan", "a.pool"]).ok(), place.run(["kv", "scan", "a.pool", "--map", "b"]).ok());
    place.run(["kv", "put", "a.pool", "3", "no object"]).ok();
    place.run(["kv", "export", "a.pool", "--flat", "id"]).fails_with(&["`3`", "--flat"]);
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let place = Place::with_pool("16MiB");
    let rows: String = (0..20_000).map(|row| format!("{row},some text that makes the row longer\n")).collect();
    place.write("rows.csv", rows);
    place.run(["kv", "import", "a.pool", "rows.csv", "--no-header"]).ok();
    for args in
        [&["kv", "scan", "a.pool"][..], &["kv", "export", "a.pool", "--format", "csv"], &["kv", "export", "a.pool"]]
    {
        let mut child =
            place.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("run lodestone");
        let mut first = [0; 16];
        child.stdout.take().expect("pipe").read_exact(&mut first).expect("first bytes");
        let done = child.wait_with_output().expect("wait");
        assert_eq!((done.status.code(), done.stderr.len()), (Some(0), 0), "{args:?} {done:?}");
    }
}

#[test]
fn a_full_pool_says_so_and_goes_on_after_growing() {
    let place = Place::with_pool("8MiB");
    let rows: String = (0..60_000).map(|row| format!("{row},{row:0>200}\n")).collect();
    place.write("rows.csv", rows);
    let message = place.run(["kv", "import", "a.pool", "rows.csv", "--no-header"]).fails_with(&[
        "a.pool",
        "no room",
        "pool grow",
        "run the same command again",
    ]);
    assert!(message.contains("rows.csv"), "{message}");
    place.run(["kv", "check", "a.pool"]).ok();
    place.run(["pool", "grow", "a.pool", "--size", "64MiB"]).ok();
    let summary = place.json(["kv", "import", "a.pool", "rows.csv", "--no-header"]);
    assert!(summary[0]["resumed_at_line"].as_u64() > Some(1), "{summary:?}");
    assert_eq!(place.run(["kv", "count", "a.pool"]).ok(), "60000\n");
}
