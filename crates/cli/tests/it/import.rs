//! The importer as a user runs it: bad rows, wrong options, and SIGKILL in the middle.

use crate::common::Place;

/// Rows of a source with one bad row in each hundred.
fn rows(count: u64) -> String {
    let mut text = String::from("id,name,total\n");
    for row in 0..count {
        if row % 100 == 42 {
            text.push_str(&format!("{row},too few\n"));
        } else {
            text.push_str(&format!("{row},\"name, {row}\",{}\n", row * 7));
        }
    }
    text
}

#[test]
fn bad_rows_are_told_by_line_and_kept() {
    let place = Place::with_pool("16MiB");
    place.write("rows.csv", rows(250));
    let done = place.run(["kv", "import", "a.pool", "rows.csv", "--rejects", "bad.csv"]).finding();
    for line in [44, 144, 244] {
        assert!(done.stderr.contains(&format!("line {line}: 2 fields")), "{}", done.stderr);
    }
    assert!(done.stdout.contains("247 rows imported") && done.stdout.contains("3 skipped"), "{}", done.stdout);
    assert_eq!(place.read("bad.csv"), "id,name,total\n42,too few\n142,too few\n242,too few\n");
    let objects = place.json(["kv", "import", "a.pool", "rows.csv"]);
    assert_eq!(objects[0], serde_json::json!({"event": "rejected", "line": 44, "reason": objects[0]["reason"]}));
    let summary = objects.last().expect("summary");
    assert_eq!((&summary["rows"], &summary["replaced"], &summary["rejected"]), (&247.into(), &247.into(), &3.into()));
}

#[test]
fn a_killed_import_goes_on_to_the_same_map() {
    let place = Place::with_pool("32MiB");
    const ROWS: u64 = 30_000;
    place.write("rows.csv", rows(ROWS));
    let command = ["kv", "import", "a.pool", "rows.csv", "--rejects", "bad.csv", "--batch", "50"];
    let mut kills = 0;
    let mut resumed = 0;
    // Each life is killed as soon as its progress shows: the file of rejects in the making has grown.
    for life in 0..8_u64 {
        let mut child = place.command(command).stderr(std::process::Stdio::null()).spawn().expect("run");
        let seen = std::fs::metadata(place.path("bad.csv.partial")).map_or(0, |meta| meta.len());
        loop {
            if child.try_wait().expect("status").is_some() {
                break;
            }
            let now = std::fs::metadata(place.path("bad.csv.partial")).map_or(0, |meta| meta.len());
            if now > seen + life * 40 {
                child.kill().expect("kill");
                child.wait().expect("wait");
                kills += 1;
                break;
            }
            std::thread::yield_now();
        }
    }
    assert!(kills > 2, "the import is long enough to be killed");
    let objects = place.json(command);
    let summary = objects.last().expect("summary");
    resumed += u64::from(summary["resumed_at_line"].as_u64() > Some(1));
    assert_eq!(summary["rejected"], ROWS / 100);
    assert_eq!(summary["rows"], ROWS - ROWS / 100);
    assert!(resumed > 0, "the last life went on where one before was killed: {summary}");
    assert_eq!(place.run(["kv", "count", "a.pool"]).ok(), format!("{}\n", ROWS - ROWS / 100));
    let expected: String = (0..ROWS / 100).map(|hundred| format!("{},too few\n", hundred * 100 + 42)).collect();
    assert_eq!(place.read("bad.csv"), format!("id,name,total\n{expected}"));
    assert_eq!(place.run(["kv", "get", "a.pool", "29999"]).ok(), "{\"name\":\"name, 29999\",\"total\":\"209993\"}\n");
    place.run(["kv", "check", "a.pool"]).ok();
}

#[test]
fn wrong_options_change_nothing_and_say_what_is_right() {
    let place = Place::with_pool("8MiB");
    place.write("rows.csv", rows(5));
    place.write("rows.txt", rows(5));
    place.write("empty.csv", "");
    let before = std::fs::read(place.path("a.pool")).expect("read");
    place.run(["kv", "import", "a.pool", "none.csv"]).fails_with(&["none.csv", "check the path"]);
    place.run(["kv", "import", "a.pool", "rows.txt"]).fails_with(&["rows.txt", "--format"]);
    place.run(["kv", "import", "a.pool", "rows.csv", "--delimiter", "ab"]).fails_with(&["`ab`", "one byte"]);
    for kept in ["a.pool", "rows.csv"] {
        let rejects = ["kv", "import", "a.pool", "rows.csv", "--rejects", kept];
        place.run(rejects).fails_with(&[kept, "destroy", "another file"]);
    }
    place.run(["kv", "export", "a.pool", "--output", "./a.pool"]).fails_with(&["a.pool", "destroy"]);
    assert!(std::fs::read(place.path("a.pool")).expect("read") == before, "the pool was not touched");
    assert_eq!(place.read("rows.csv"), rows(5));
    place.run(["kv", "import", "a.pool", "rows.csv", "--key", "zip"]).fails_with(&["rows.csv", "`zip`", "id, name"]);
    place.run(["kv", "import", "a.pool", "empty.csv"]).fails_with(&["empty.csv", "empty"]);
    place.run(["kv", "import", "none.pool", "rows.csv"]).fails_with(&["none.pool"]);
}

#[test]
fn tabulators_and_system_files_are_read() {
    let place = Place::with_pool("8MiB");
    place.write("a.tsv", "k\tv\n1\tone, two\n");
    place.run(["kv", "import", "a.pool", "a.tsv", "--value", "v", "--rejects", "none"]).ok();
    assert!(!place.path("none").exists(), "no row, no file");
    assert_eq!(place.run(["kv", "get", "a.pool", "1"]).ok(), "one, two\n");
    let passwd = ["kv", "import", "a.pool", "/etc/passwd", "--format", "csv", "--delimiter", ":", "--no-header"];
    place.run(passwd).ok();
    assert!(place.run(["kv", "get", "a.pool", "root"]).ok().contains("\"column_3\":\"0\""));
}

#[test]
fn columns_of_one_name_are_refused() {
    let place = Place::with_pool("8MiB");
    place.write("rows.csv", "id,name,total,name\n1,Ann,7,Beth\n");
    let import = ["kv", "import", "a.pool", "rows.csv"];
    place.run(import).fails_with(&["rows.csv", "columns 2 and 4", "`name`"]);
    place.run(import.into_iter().chain(["--value", "4"])).ok();
    assert_eq!(place.run(["kv", "get", "a.pool", "1"]).ok(), "Beth\n");
}

#[test]
fn a_batch_of_no_rows_is_refused() {
    let place = Place::with_pool("8MiB");
    place.write("rows.csv", rows(5));
    place.run(["kv", "import", "a.pool", "rows.csv", "--batch", "0"]).fails_with(&["--batch"]);
}

#[test]
fn a_field_above_16_mib_is_one_bad_row_and_the_import_ends() {
    let place = Place::with_pool("8MiB");
    let long = "x".repeat((16 << 20) + 100);
    place.write("rows.csv", format!("id,name\n1,Ann\n2,{long}\n3,Cid\n"));
    let done = place.run(["kv", "import", "a.pool", "rows.csv", "--rejects", "bad.csv"]).finding();
    assert!(done.stderr.contains("line 3: the line has 16777"), "{}", done.stderr);
    assert!(done.stdout.contains("2 rows imported") && done.stdout.contains("1 skipped"), "{}", done.stdout);
    assert!(place.read("bad.csv") == format!("id,name\n2,{long}\n"), "the whole row is kept");
    assert_eq!(place.run(["kv", "count", "a.pool"]).ok(), "2\n");
    // JSON Lines, and from a pipe.
    let lines = format!("{{\"key\":\"a\"}}\n{{\"key\":\"b\",\"v\":\"{long}\"}}\n{{\"key\":\"c\"}}\n");
    let import = ["kv", "import", "a.pool", "-", "--format", "jsonl", "--map", "json"];
    let done = place.feed(lines.as_bytes(), import).finding();
    assert!(done.stderr.contains("line 2") && done.stdout.contains("2 rows imported"), "{done:?}");
}
