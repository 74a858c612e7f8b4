//! Maps over an index, made by `--index`: the same commands with the same answers. The kind is known from then on.

use crate::common::Place;

const KINDS: [&str; 5] = ["fastfair", "fptree", "skiplist", "hybrid", "hybrid-plus"];

#[test]
fn every_command_works_over_every_index() {
    for kind in KINDS {
        let place = Place::with_pool("16MiB");
        place.run(["kv", "put", "a.pool", "b", "two", "--index", kind]).ok();
        let line = &place.json(["kv", "put", "a.pool", "b", "more"])[0];
        assert_eq!((&line["replaced"], &line["value_bytes"]), (&true.into(), &4.into()), "{kind}");
        place.run(["kv", "put", "a.pool", "a", "one", "--index", kind]).ok();
        place.run(["kv", "put", "a.pool", "--hex", "64ff", "00"]).ok();
        assert_eq!(place.run(["kv", "get", "a.pool", "b"]).ok(), "more\n", "{kind}");
        assert_eq!(place.run(["kv", "scan", "a.pool", "--from", "a", "--to", "c"]).ok(), "a\tone\nb\tmore\n", "{kind}");
        assert_eq!(place.run(["kv", "count", "a.pool"]).ok(), "3\n");
        assert_eq!(place.run(["kv", "count", "a.pool", "--prefix", "b"]).ok(), "1\n");
        place.run(["kv", "del", "a.pool", "b"]).ok();
        place.run(["kv", "del", "a.pool", "b"]).finding();
        place.run(["kv", "get", "a.pool", "b"]).finding();
        let check = place.run(["kv", "check", "a.pool"]).ok();
        assert!(check.contains(&format!("a map over the index {kind}: 2 records: everything verifies")), "{check}");
        let report = &place.json(["kv", "check", "a.pool"])[0];
        assert_eq!(report["kind"], format!("a map over the index {kind}"));
        assert!(report["pm_bytes"].as_u64() > Some(4096) && report.get("dram_bytes").is_none(), "{report}");
        let info = place.run(["pool", "info", "a.pool"]).ok();
        assert!(info.contains(&format!("main: a map over the index {kind}")), "{info}");
        let checked = &place.json(["pool", "check", "a.pool"])[0];
        assert_eq!((&checked["clean"], &checked["records"]), (&true.into(), &2.into()));
        assert_eq!(checked["objects"].as_array().map(Vec::len), Some(1), "{checked}");
        assert_eq!(checked["ownership_checked"], true, "{checked}");
    }
}

#[test]
fn rows_go_in_and_out_the_same_as_with_the_default() {
    let place = Place::with_pool("32MiB");
    let rows: String = (0..2000).map(|row| format!("{},{row:0>60}\n", row * 7919 % 2003)).collect();
    place.write("rows.csv", rows);
    let import = |map: &str, kind: &str| {
        let args = ["kv", "import", "a.pool", "rows.csv", "--no-header", "--map", map, "--index", kind];
        place.json(args)[0]["rows"].clone()
    };
    assert_eq!(import("plain", "ordered-map"), 2000);
    let wanted = place.run(["kv", "export", "a.pool", "--map", "plain", "--format", "csv"]).ok();
    for kind in KINDS {
        assert_eq!(import(kind, kind), 2000);
        assert_eq!(place.run(["kv", "export", "a.pool", "--map", kind, "--format", "csv"]).ok(), wanted, "{kind}");
    }
    let checked = &place.json(["pool", "check", "a.pool"])[0];
    assert_eq!(checked["clean"], true);
    assert_eq!(checked["objects"].as_array().map(Vec::len), Some(7), "six maps and the imports' own");
    assert_eq!(checked["ownership_checked"], true);
    place.run(["pool", "repair", "a.pool"]).ok();
    assert_eq!(place.run(["kv", "export", "a.pool", "--map", "fptree", "--format", "csv"]).ok(), wanted);
}

#[test]
fn the_kind_of_a_map_does_not_change() {
    let place = Place::with_pool("16MiB");
    place.run(["kv", "put", "a.pool", "k", "v"]).ok();
    let refused = ["`main`", "an ordered map", "fastfair", "--index"];
    place.run(["kv", "put", "a.pool", "k", "w", "--index", "fastfair"]).fails_with(&refused);
    place.run(["kv", "put", "a.pool", "k", "w", "--index", "ordered-map"]).ok();
    place.run(["kv", "put", "a.pool", "k", "v", "--map", "tree", "--index", "fptree"]).ok();
    let other = ["kv", "put", "a.pool", "k", "w", "--map", "tree", "--index", "ordered-map"];
    place.run(other).fails_with(&["`tree`", "fptree", "ordered-map"]);
    assert_eq!(place.run(["kv", "get", "a.pool", "k", "--map", "tree"]).ok(), "v\n");
    assert_eq!(place.run(["kv", "get", "a.pool", "k"]).ok(), "w\n");
    place.run(["kv", "put", "a.pool", "k", "w", "--index", "btree"]).fails_with(&["btree", "hybrid-plus"]);
    place.run(["kv", "get", "a.pool", "k", "--map", "tree.index"]).fails_with(&["tree.index"]);
    assert!(place.run(["pool", "info", "a.pool"]).ok().contains("main: an ordered map"));
}

#[test]
fn reading_changes_no_byte() {
    let place = Place::with_pool("8MiB");
    place.run(["kv", "put", "a.pool", "k", "v", "--index", "fastfair"]).ok();
    let before = std::fs::read(place.path("a.pool")).expect("read");
    place.run(["kv", "get", "a.pool", "k"]).ok();
    place.run(["kv", "scan", "a.pool"]).ok();
    place.run(["kv", "check", "a.pool"]).ok();
    place.run(["pool", "check", "a.pool"]).ok();
    assert!(std::fs::read(place.path("a.pool")).expect("read") == before);
}

#[test]
fn a_full_pool_says_so_and_an_import_goes_on_after_growing() {
    let place = Place::with_pool("8MiB");
    let rows: String = (0..20_000).map(|row| format!("{row},{row:0>200}\n")).collect();
    place.write("rows.csv", rows);
    let import = ["kv", "import", "a.pool", "rows.csv", "--no-header", "--index", "fastfair"];
    place.run(import).fails_with(&["a.pool", "no room", "pool grow"]);
    place.run(["kv", "check", "a.pool"]).ok();
    place.run(["pool", "grow", "a.pool", "--size", "64MiB"]).ok();
    place.run(import).ok();
    assert_eq!(place.run(["kv", "count", "a.pool"]).ok(), "20000\n");
    place.run(["pool", "check", "a.pool"]).ok();
}
