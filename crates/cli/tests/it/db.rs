//! The `db` commands: tables from the shell, and the answer to every bad input.

use std::process::Stdio;

use crate::common::Place;

const ACCOUNTS: &str = "accounts (id u64, owner text, cents i64, note text null) key (id)";

/// A pool with the table `accounts` and three rows.
fn shop() -> Place {
    let place = Place::with_pool("16MiB");
    assert_eq!(place.run(["db", "create", "a.pool", ACCOUNTS]).ok().trim(), ACCOUNTS);
    let rows = [
        r#"{"id":7,"owner":"alice","cents":500}"#,
        r#"{"id":8,"owner":"bob","cents":-20,"note":"asks for \"more\""}"#,
        r#"{"id":18446744073709551615,"owner":"","cents":0,"note":null}"#,
    ];
    place.run(["db", "put", "a.pool", "accounts", rows[0], rows[1], rows[2]]).ok();
    place
}

#[test]
fn rows_are_put_read_scanned_and_removed() {
    let place = shop();
    assert_eq!(
        place.run(["db", "get", "a.pool", "accounts", "7"]).ok(),
        "{\"id\":7,\"owner\":\"alice\",\"cents\":500,\"note\":null}\n"
    );
    let missing = place.run(["db", "get", "a.pool", "accounts", "9"]).finding();
    assert!(missing.stdout.is_empty() && missing.stderr.contains("no row with the key (9)"), "{missing:?}");
    let ids = |args: &[&str]| {
        let all = ["db", "scan", "a.pool", "accounts"].iter().chain(args);
        let text = place.run(all).ok();
        let id = |line: &str| serde_json::from_str::<serde_json::Value>(line).expect("JSON")["id"].to_string();
        text.lines().map(id).collect::<Vec<_>>()
    };
    assert_eq!(ids(&[]), ["7", "8", "18446744073709551615"]);
    assert_eq!(ids(&["--reverse", "--limit", "2"]), ["18446744073709551615", "8"]);
    assert_eq!(ids(&["--from", "8"]), ["8", "18446744073709551615"]);
    assert_eq!(ids(&["--to", "8"]), ["7"]);
    assert_eq!(ids(&["--prefix", "8"]), ["8"]);
    place.run(["db", "del", "a.pool", "accounts", "8"]).ok();
    place.run(["db", "del", "a.pool", "accounts", "8"]).finding();
    assert_eq!(ids(&[]), ["7", "18446744073709551615"]);
    let tables = place.json(["db", "tables", "a.pool"]);
    assert_eq!((&tables[0]["schema"], &tables[0]["rows"]), (&ACCOUNTS.into(), &2.into()));
    assert!(place.run(["db", "tables", "a.pool"]).ok().contains("(id u64, owner text"));
    let checked = place.json(["db", "check", "a.pool"]);
    assert_eq!((&checked[0]["rows"], &checked[0]["findings"]), (&2.into(), &serde_json::json!([])));
}

#[test]
fn a_composite_key_is_scanned_by_its_first_column() {
    let place = Place::with_pool("16MiB");
    let orders = "orders (customer text, number u64, paid bool) key (customer, number)";
    place.run(["db", "create", "a.pool", orders]).ok();
    let lines: String = (0..2500_u32)
        .map(|row| format!("{{\"customer\":\"c{}\",\"number\":{row},\"paid\":{}}}\n", row % 7, row % 2 == 0))
        .collect();
    place.write("orders.jsonl", &lines);
    let done = place.json(["db", "import", "a.pool", "orders", "orders.jsonl", "--batch", "400"]);
    assert_eq!((&done[0]["rows"], &done[0]["transactions"]), (&2500.into(), &7.into()));
    let of_one = place.run(["db", "scan", "a.pool", "orders", "--prefix", "c3"]).ok();
    assert_eq!(of_one.lines().count(), (0..2500).filter(|row| row % 7 == 3).count());
    let few = place.run(["db", "scan", "a.pool", "orders", "--from", "c6", "2400", "--limit", "2"]).ok();
    assert_eq!(few.lines().count(), 2);
    // An import takes the output of a scan, in both directions.
    for reverse in [&[][..], &["--reverse"]] {
        let all = place.run(["db", "scan", "a.pool", "orders"].iter().chain(reverse)).ok();
        assert_eq!(all.lines().count(), 2500);
        place.run(["pool", "create", "b.pool", "--size", "16MiB", "--overwrite"]).ok();
        place.run(["db", "create", "b.pool", orders]).ok();
        place.feed(all.as_bytes(), ["db", "import", "b.pool", "orders", "-"]).ok();
        let again = place.run(["db", "scan", "b.pool", "orders"].iter().chain(reverse)).ok();
        assert!(again == all, "the same rows in the same order");
    }
}

#[test]
fn a_table_moves_to_another_pool_by_its_schema_and_an_exported_file() {
    let place = shop();
    place.run(["db", "create", "a.pool", "marks (at f64, raw bytes) key (at)"]).ok();
    let marks = [r#"{"at":-0.5,"raw":"00ff"}"#, r#"{"at":"NaN","raw":""}"#];
    place.run(["db", "put", "a.pool", "marks", marks[0], marks[1]]).ok();
    let lines: String = (100..2600).map(|id| format!("{{\"id\":{id},\"owner\":\"o\",\"cents\":{id}}}\n")).collect();
    place.feed(lines.as_bytes(), ["db", "import", "a.pool", "accounts", "-"]).ok();
    assert_eq!(place.run(["db", "schema", "a.pool"]).ok(), format!("{ACCOUNTS}\nmarks (at f64, raw bytes) key (at)\n"));
    let described = &place.json(["db", "schema", "a.pool", "accounts"])[0];
    assert_eq!(described["columns"][3], serde_json::json!({"name": "note", "type": "text", "nullable": true}));
    assert_eq!((&described["key"], &described["schema"]), (&serde_json::json!(["id"]), &ACCOUNTS.into()));

    place.run(["pool", "create", "b.pool", "--size", "16MiB"]).ok();
    for (table, rows) in [("accounts", 2503), ("marks", 2)] {
        let file = format!("{table}.jsonl");
        let export = ["db", "export", "a.pool", table, "-o", &file];
        assert_eq!(place.json(export)[0]["rows"], rows);
        let schema = place.run(["db", "schema", "a.pool", table]).ok();
        place.run(["db", "create", "b.pool", schema.trim()]).ok();
        place.run(["db", "import", "b.pool", table, &file]).ok();
        assert_eq!(place.read(&file), place.run(["db", "scan", "b.pool", table]).ok());
        // A file that is there stays as it is, unless the user says otherwise.
        let before = place.write(&file, "mine");
        place.run(export).fails_with(&[&file, "--overwrite"]);
        assert_eq!(std::fs::read_to_string(before).expect("the file is there"), "mine");
        place.run(export.into_iter().chain(["--overwrite"])).ok();
        assert_eq!(place.read(&file), place.run(["db", "scan", "b.pool", table]).ok());
    }
    let rows = place.run(["db", "scan", "a.pool", "accounts"]).ok();
    place.run(["db", "export", "a.pool", "accounts", "-o", "a.pool", "--overwrite"]).fails_with(&["would destroy"]);
    place.run(["db", "export", "a.pool", "accounts", "-o", "none/x"]).fails_with(&["none/x"]);
    place.run(["db", "schema", "a.pool", "nothing"]).fails_with(&["no table `nothing`", "accounts, marks"]);
    assert_eq!(place.run(["db", "scan", "a.pool", "accounts"]).ok(), rows);
}

#[test]
fn bad_input_is_an_error_that_says_what_and_where_and_changes_nothing() {
    let place = shop();
    let before = place.run(["db", "scan", "a.pool", "accounts"]).ok();
    let row = r#"{"id":1,"owner":"x","cents":1}"#;
    let put = ["db", "put", "a.pool", "accounts", row];
    place.run(put.into_iter().chain([r#"{"id":2,"owner":"x"}"#])).fails_with(&["row 2", "`cents i64` is missing"]);
    place.run(put.into_iter().chain([r#"{"id":"2"}"#])).fails_with(&["row 2", "`id u64` cannot hold"]);
    place.run(put.into_iter().chain([r#"{"id":7,"owner":"","cents":0}"#, "--new"])).fails_with(&["key (7)"]);
    place.run(["db", "put", "a.pool", "accounts", "7"]).fails_with(&["row 1", "JSON object"]);
    place.run(["db", "put", "a.pool", "nothing", row]).fails_with(&["a.pool", "no table `nothing`", "accounts"]);
    place.run(["db", "get", "a.pool", "accounts", "seven"]).fails_with(&["`id u64` cannot hold `seven`"]);
    place.run(["db", "get", "a.pool", "accounts", "7", "8"]).fails_with(&["(id)", "2 values"]);
    place.run(["db", "create", "a.pool", "accounts (id u64) key (id)"]).fails_with(&["accounts", "column 1"]);
    place.run(["db", "create", "a.pool", "t (id u32) key (id)"]).fails_with(&["`u32` is no type"]);
    place.run(["db", "get", "a.pool", "--db", "other", "accounts", "7"]).fails_with(&["no database `other`"]);
    place.run(["db", "get", "none.pool", "accounts", "7"]).fails_with(&["none.pool"]);
    let empty = Place::with_pool("8MiB");
    empty.run(["db", "tables", "a.pool"]).fails_with(&["a.pool", "db create"]);
    empty.run(["kv", "put", "a.pool", "k", "v", "--map", "tables"]).ok();
    empty.run(["db", "tables", "a.pool"]).fails_with(&["a.pool", "tables"]);
    assert_eq!(place.run(["db", "scan", "a.pool", "accounts"]).ok(), before);
}

#[test]
fn an_import_names_the_bad_line_and_where_to_go_on() {
    let place = shop();
    let line = |id: u32| format!("{{\"id\":{id},\"owner\":\"o\",\"cents\":1}}\n");
    let lines: String = (100..105).map(line).collect::<String>() + "{\"id\":105}\n" + &line(106);
    place.write("rows.jsonl", &lines);
    let import = ["db", "import", "a.pool", "accounts", "rows.jsonl", "--batch", "2"];
    place.run(import).fails_with(&["rows.jsonl: line 6", "`owner text` is missing", "lines 1 to 4", "--skip 4"]);
    assert_eq!(place.run(["db", "scan", "a.pool", "accounts", "--from", "100"]).ok().lines().count(), 4 + 1);
    place.write("rows.jsonl", lines.replace("{\"id\":105}", &line(105)));
    let done = place.json(import.into_iter().chain(["--skip", "4"]));
    assert_eq!(done[0]["rows"], 3, "{done:?}");
    place.run(["db", "import", "a.pool", "accounts", "absent.jsonl"]).fails_with(&["absent.jsonl"]);
}

/// Pages take what a small log cannot hold.
#[test]
fn a_small_log_holds_an_import_and_checkpoints_are_shown() {
    let place = Place::with_pool("16MiB");
    place.run(["db", "create", "a.pool", "t (k u64, v text) key (k)", "--log-bytes", "64KiB"]).ok();
    let lines: String = (0..5000).map(|k| format!("{{\"k\":{k},\"v\":\"{k}\"}}\n")).collect();
    place.feed(lines.as_bytes(), ["db", "import", "a.pool", "t", "-", "--batch", "10"]).ok();
    assert_eq!(place.run(["db", "scan", "a.pool", "t"]).ok().lines().count(), 5000);
    let info = &place.json(["db", "info", "a.pool"])[0];
    let number = |field: &str| info[field].as_u64().unwrap_or_else(|| panic!("no {field} in {info}"));
    assert!(number("checkpoints") >= 5 && number("records_read") < 400, "{info}");
    assert!(number("log_bytes_used") <= number("log_bytes_max") && number("log_bytes_max") <= 64 << 10, "{info}");
    assert!(number("rows") == 5002 && number("pages") > number("pages_free"), "{info}");
    assert!(place.run(["db", "info", "a.pool"]).ok().contains("closed in order"));
    place.run(["db", "checkpoint", "a.pool"]).ok();
    let again = &place.json(["db", "checkpoint", "a.pool"])[0];
    assert_eq!((&again["images"], &again["pages"]), (&0.into(), &0.into()));
    assert_eq!(place.json(["db", "info", "a.pool"])[0]["records_read"], 0);
    place.run(["db", "check", "a.pool"]).ok();
    place.run(["pool", "check", "a.pool"]).ok();
    place.run(["db", "info", "a.pool", "--db", "none"]).fails_with(&["a.pool", "no database `none`", "db create"]);
}

/// The pages of a new database have the size that it is made with, and keep it.
#[test]
fn pages_of_another_size() {
    let place = Place::with_pool("16MiB");
    let create = ["db", "create", "a.pool", "t (k u64, v text) key (k)", "--page-bytes"];
    place.run(create.iter().chain(&["12KiB"])).fails_with(&["--page-bytes", "power of two", "16KiB"]);
    place.run(create.iter().chain(&["32KiB"])).ok();
    place.run(create.iter().chain(&["4KiB"])).ok();
    let lines: String = (0..300).map(|k| format!("{{\"k\":{k},\"v\":\"{}\"}}\n", "v".repeat(1000))).collect();
    place.feed(lines.as_bytes(), ["db", "import", "a.pool", "t", "-"]).ok();
    assert!(place.run(["db", "info", "a.pool"]).ok().contains("of 32 KiB"));
    assert_eq!(place.run(["db", "scan", "a.pool", "t", "--cache", "64KiB"]).ok().lines().count(), 300);
    place.run(["db", "check", "a.pool"]).ok();
}

/// A full pool is an error with a way out, and what was acknowledged stays.
#[test]
fn a_full_pool_and_a_killed_import_lose_nothing() {
    let place = Place::with_pool("12MiB");
    let table = "t (k u64, v text) key (k)";
    place.run(["db", "create", "a.pool", table, "--log-bytes", "128KiB"]).ok();
    let line = |k| format!("{{\"k\":{k},\"v\":\"{}\"}}\n", "v".repeat(1000));
    place.write("wide.jsonl", (0..10_000).map(line).collect::<String>());
    let import = ["db", "import", "a.pool", "t", "wide.jsonl", "--batch", "10"];
    let text = place.run(import).fails_with(&["a.pool", "no room", "pool grow", "--skip"]);
    let stored = text.split("--skip ").nth(1).and_then(|rest| rest.split(' ').next()).expect("a number").to_owned();
    let count = || place.run(["db", "scan", "a.pool", "t"]).ok().lines().count().to_string();
    assert_eq!(count(), stored);
    place.run(["db", "check", "a.pool"]).ok();
    place.run(["pool", "grow", "a.pool", "--size", "48MiB"]).ok();
    place.run(import.iter().copied().chain(["--skip", &stored])).ok();
    assert_eq!(count(), "10000");
    let lines: String = (0..2000).map(|k| format!("{{\"k\":{k},\"v\":\"{k}\"}}\n")).collect();
    for kill in 0..6 {
        place.run(["pool", "create", "b.pool", "--size", "16MiB", "--overwrite"]).ok();
        place.run(["db", "create", "b.pool", table]).ok();
        place.write("rows.jsonl", &lines);
        let import = ["db", "import", "b.pool", "t", "rows.jsonl", "--batch", "7"];
        let mut child = place.command(import).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("run");
        std::thread::sleep(std::time::Duration::from_millis(10 + 20 * kill));
        child.kill().expect("a child");
        child.wait().expect("a child");
        let rows = place.run(["db", "scan", "b.pool", "t"]).ok().lines().count();
        assert!(rows == 2000 || rows.is_multiple_of(7), "{rows} rows: whole transactions");
        place.run(["db", "check", "b.pool"]).ok();
        place.run(import).ok();
        assert_eq!(place.run(["db", "scan", "b.pool", "t"]).ok().lines().count(), 2000);
    }
}

#[test]
fn columns_are_added_renamed_and_dropped() {
    let place = shop();
    let column = |words: &[&str]| place.run(["db", "column"].iter().chain(words));
    let refused = column(&["add", "a.pool", "accounts", "visits i64"]).fails_with(&["--default"]);
    assert!(refused.contains("may not be null"), "{refused}");
    column(&["add", "a.pool", "accounts", "visits i64", "--default", "many"]).fails_with(&["`visits i64`", "`many`"]);
    column(&["add", "a.pool", "accounts", "visits"]).fails_with(&["is no `name type`"]);
    let changed = column(&["add", "a.pool", "accounts", "visits i64", "--default", "-1"]).ok();
    assert!(changed.contains("visits i64"), "{changed}");
    column(&["rename", "a.pool", "accounts", "visits", "seen"]).ok();
    column(&["drop", "a.pool", "accounts", "note"]).ok();
    column(&["drop", "a.pool", "accounts", "id"]).fails_with(&["its key has the column `id`"]);
    column(&["drop", "a.pool", "accounts", "note"]).fails_with(&["note"]);
    column(&["drop", "a.pool", "nothing", "note"]).fails_with(&["no table `nothing`"]);
    let rows = place.json(["db", "scan", "a.pool", "accounts"]);
    assert!(rows.iter().all(|row| row["seen"] == -1 && row.get("note").is_none()), "{rows:?}");
    let added = r#"{"id":9,"owner":"carol","cents":1,"seen":5}"#;
    place.run(["db", "put", "a.pool", "accounts", added]).ok();
    assert_eq!(place.json(["db", "get", "a.pool", "accounts", "9"])[0]["seen"], 5);
    place.run(["db", "check", "a.pool"]).ok();
}

#[test]
fn an_index_whose_building_was_killed_is_built_to_its_end() {
    let place = Place::new();
    place.run(["pool", "create", "a.pool", "--size", "64MiB", "--domain", "process"]).ok();
    place.run(["db", "create", "a.pool", "t (k u64, v text) key (k)"]).ok();
    let rows: String = (0..20_000).map(|key| format!("{{\"k\":{key},\"v\":\"{}\"}}\n", key % 100)).collect();
    place.write("rows", rows);
    place.run(["db", "import", "a.pool", "t", "rows"]).ok();
    let add = ["db", "index", "add", "a.pool", "t", "index by_v (v)"];
    for wait in [10, 20, 40] {
        let mut child = place.command(add).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("run");
        std::thread::sleep(std::time::Duration::from_millis(wait));
        child.kill().expect("it runs, or has ended");
        child.wait().expect("a child");
        place.run(["db", "check", "a.pool"]).ok();
        let described = place.json(["db", "schema", "a.pool", "t"]);
        match described[0]["indexes"].get(0).map(|index| index["being_built"] == true) {
            Some(false) => {
                place.run(["db", "index", "drop", "a.pool", "t", "by_v"]).ok();
            }
            Some(true) => {
                let scan = ["db", "scan", "a.pool", "t", "--index", "by_v"];
                place.run(scan).fails_with(&["`by_v`", "is being built"]);
            }
            None => {}
        }
    }
    place.run(add).ok();
    assert_eq!(place.run(["db", "scan", "a.pool", "t", "--index", "by_v", "--prefix", "7"]).ok().lines().count(), 200);
    place.run(["db", "check", "a.pool"]).ok();
}

#[test]
fn indexes_are_added_scanned_and_dropped() {
    let place = shop();
    let changed = place.run(["db", "index", "add", "a.pool", "accounts", "index by_owner (owner)"]).ok();
    assert_eq!(changed.trim(), format!("{ACCOUNTS} index by_owner (owner)"));
    let refused = place.run(["db", "index", "add", "a.pool", "accounts", "by_cents (cents)"]).fails_with(&[]);
    assert!(refused.contains("is no `index NAME"), "{refused}");
    place.run(["db", "index", "add", "a.pool", "accounts", "unique by_note (note)"]).ok();
    let again = r#"{"id":9,"owner":"carol","cents":1,"note":"asks for \"more\""}"#;
    let refused = place.run(["db", "put", "a.pool", "accounts", again]).fails_with(&[]);
    assert!(refused.contains("unique index `by_note`") && refused.contains("asks for"), "{refused}");
    let scan = |args: &[&str]| {
        let text = place.run(["db", "scan", "a.pool", "accounts", "--index", "by_owner"].iter().chain(args)).ok();
        let owner = |line: &str| serde_json::from_str::<serde_json::Value>(line).expect("JSON")["owner"].to_string();
        text.lines().map(owner).collect::<Vec<_>>()
    };
    assert_eq!(scan(&[]), [r#""""#, r#""alice""#, r#""bob""#]);
    assert_eq!(scan(&["--from", "alice", "--reverse"]), [r#""bob""#, r#""alice""#]);
    assert_eq!(scan(&["--prefix", "bob"]), [r#""bob""#]);
    let refused = place.run(["db", "scan", "a.pool", "accounts", "--index", "by_x"]).fails_with(&[]);
    assert!(refused.contains("has no index `by_x`"), "{refused}");
    let described = place.json(["db", "schema", "a.pool", "accounts"]);
    assert_eq!(described[0]["indexes"][0]["unique"], true);
    place.run(["db", "check", "a.pool"]).ok();
    let left = place.run(["db", "index", "drop", "a.pool", "accounts", "by_note"]).ok();
    assert!(!left.contains("by_note"), "{left}");
    assert_eq!(left.trim(), format!("{ACCOUNTS} index by_owner (owner)"));
    assert_eq!(place.run(["db", "schema", "a.pool", "accounts"]).ok(), left);
    for index in [&["add", "a.pool", "nothing", "index by_x (x)"], &["drop", "a.pool", "nothing", "by_x"]] {
        place.run(["db", "index"].iter().chain(index)).fails_with(&["no table `nothing`", "accounts"]);
    }
    place.run(["db", "index", "drop", "a.pool", "accounts", "by_note"]).fails_with(&["by_note"]);
    place.run(["db", "index", "add", "a.pool", "accounts", "index by_x (x)"]).fails_with(&["`x`"]);
    place.run(["db", "index", "add", "a.pool", "accounts", "index by_owner (cents)"]).fails_with(&["by_owner"]);
    place.run(["db", "put", "a.pool", "accounts", again]).ok();
}

#[test]
fn tables_are_renamed_and_dropped() {
    let place = shop();
    place.run(["db", "rename", "a.pool", "accounts", "customers"]).ok();
    let refused = place.run(["db", "get", "a.pool", "accounts", "7"]).fails_with(&[]);
    assert!(refused.contains("the database has: customers"), "{refused}");
    assert!(place.run(["db", "get", "a.pool", "customers", "7"]).ok().contains("alice"));
    let refused = place.run(["db", "drop", "a.pool", "customers"]).fails_with(&[]);
    assert!(refused.contains("repeat the command with --yes"), "{refused}");
    place.run(["db", "drop", "a.pool", "customers", "--yes"]).ok();
    assert_eq!(place.json(["db", "tables", "a.pool"]).len(), 0);
    place.run(["db", "check", "a.pool"]).ok();
}

#[test]
fn a_backup_is_verified_and_replaces_nothing_unasked() {
    let place = shop();
    let made = place.run(["db", "backup", "a.pool", "b.pool"]).ok();
    assert!(made.contains("b.pool: verified, 3 rows"), "{made}");
    assert!(place.run(["db", "get", "b.pool", "accounts", "7"]).ok().contains("alice"));
    place.run(["db", "backup", "a.pool", "b.pool"]).fails_with(&["b.pool", "--overwrite"]);
    let again = place.json(["db", "backup", "a.pool", "b.pool", "--overwrite"]);
    assert_eq!((&again[0]["rows"], &again[0]["findings"]), (&3.into(), &serde_json::json!([])));
    place.run(["db", "backup", "a.pool", "c.pool", "--db", "other"]).fails_with(&["no database `other`"]);
}

#[test]
fn a_feed_goes_on_where_it_ended() {
    let place = shop();
    let feed = |args: &[&str]| {
        let text = place.run(["db", "feed", "a.pool"].iter().chain(args)).ok();
        let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
        lines.collect::<Vec<_>>()
    };
    let first = feed(&[]);
    let last = first.last().expect("a position")["position"].as_str().expect("a text").to_owned();
    let put = &first[first.len() - 2]["changes"];
    assert_eq!((&put[0]["table"], &put[0]["key"]["id"]), (&"accounts".into(), &7.into()));
    assert_eq!((&put[1]["row"]["owner"], put.as_array().map(Vec::len)), (&"bob".into(), Some(3)));
    assert_eq!(feed(&["--after", &last]).len(), 1, "nothing but the position");
    place.run(["db", "del", "a.pool", "accounts", "7"]).ok();
    let after = feed(&["--after", &last]);
    assert_eq!((after.len(), &after[0]["changes"][0]["row"]), (2, &serde_json::Value::Null));
    place.run(["db", "feed", "a.pool", "--after", "abc"]).fails_with(&["`abc` is no position of a feed"]);
}

/// A log that is used again does not have the old transactions any more.
#[test]
fn a_feed_refuses_a_position_whose_transactions_are_gone() {
    let place = Place::with_pool("16MiB");
    place.run(["db", "create", "a.pool", "t (k u64, v text) key (k)", "--log-bytes", "64KiB"]).ok();
    let text = place.run(["db", "feed", "a.pool"]).ok();
    let last: serde_json::Value = serde_json::from_str(text.lines().last().expect("a line")).expect("JSON");
    let last = last["position"].as_str().expect("a text");
    let lines: String = (0..5000).map(|k| format!("{{\"k\":{k},\"v\":\"{k}\"}}\n")).collect();
    place.feed(lines.as_bytes(), ["db", "import", "a.pool", "t", "-", "--batch", "10"]).ok();
    place.run(["db", "feed", "a.pool", "--after", last]).fails_with(&["a.pool", "truncated", "begin a new feed"]);
    assert!(place.run(["db", "feed", "a.pool"]).ok().lines().count() > 1, "the oldest that the logs have");
}

#[test]
fn a_feed_has_the_transactions_of_all_tables_in_their_order() {
    let place = shop();
    place.run(["db", "create", "a.pool", "marks (at text, n i64) key (at)"]).ok();
    place.run(["db", "put", "a.pool", "marks", r#"{"at":"a \"b\"","n":-1}"#]).ok();
    place.run(["db", "put", "a.pool", "accounts", r#"{"id":1,"owner":"x","cents":1}"#]).ok();
    place.run(["db", "del", "a.pool", "marks", "a \"b\""]).ok();
    let text = place.run(["db", "feed", "a.pool"]).ok();
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let changes: Vec<_> = lines.iter().filter_map(|line| line["changes"].as_array()).flatten().collect();
    let mark = serde_json::json!({"at": "a \"b\"", "n": -1});
    let account = serde_json::json!({"id": 1, "owner": "x", "cents": 1, "note": null});
    let expected = [
        serde_json::json!({"table": "marks", "key": {"at": "a \"b\""}, "row": mark}),
        serde_json::json!({"table": "accounts", "key": {"id": 1}, "row": account}),
        serde_json::json!({"table": "marks", "key": {"at": "a \"b\""}, "row": null}),
    ];
    assert!(changes.iter().skip(3).copied().eq(&expected), "{text}");
    let ticks: Vec<u64> = lines.iter().filter_map(|line| line["tick"].as_u64()).collect();
    assert!(ticks.len() == lines.len() - 1 && ticks.is_sorted_by(|tick, next| tick < next), "{text}");
    assert!(lines.iter().all(|line| line["tick"].is_null() || line["writer"].as_u64() < Some(1024)), "{text}");
}

#[test]
fn a_table_with_rows_in_cells_is_one_like_others() {
    let place = Place::with_pool("16MiB");
    let run = |arguments: &[&str]| place.run(arguments.iter().copied());
    run(&["db", "create", "a.pool", "--dual", "c (k u64, n i64) key (k)"]).ok();
    run(&["db", "create", "a.pool", "t (k u64) key (k)"]).ok();
    for n in 1..5 {
        run(&["db", "put", "a.pool", "c", &format!("{{\"k\": 1, \"n\": {n}}}")]).ok();
    }
    assert!(run(&["db", "get", "a.pool", "c", "1"]).ok().contains("\"n\":4"));
    let tables = place.json(["db", "tables", "a.pool"]);
    let dual: Vec<_> = tables.iter().map(|found| (found["table"].clone(), found["dual"].clone())).collect();
    assert_eq!(dual, [("c".into(), true.into()), ("t".into(), serde_json::Value::Null)]);
    assert!(run(&["db", "tables", "a.pool"]).ok().contains("dual"));
    run(&["pool", "check", "a.pool"]).ok();
    run(&["db", "check", "a.pool"]).ok();
}

#[test]
fn a_table_and_a_range_of_its_keys_move_to_other_nodes() {
    let place = Place::new();
    let nodes = ["--virtual-nodes", "2"];
    let run = |args: &[&str]| place.run(args.iter().chain(&nodes));
    let create = ["pool", "create", "a.pool", "--parts-per-node", "--size", "32MiB", "--domain", "process"];
    run(&create).ok();
    run(&["db", "create", "a.pool", "--on-node", "0", "t (k u64, v text) key (k)"]).ok();
    let rows: String = (0..2000).map(|k| format!("{{\"k\":{k},\"v\":\"some text for the row {k}\"}}\n")).collect();
    place.write("rows.jsonl", &rows);
    run(&["db", "import", "a.pool", "t", "rows.jsonl"]).ok();
    run(&["db", "checkpoint", "a.pool"]).ok();
    let moved = run(&["db", "move", "a.pool", "t", "1", "--from", "500", "--to", "1500"]).ok();
    assert!(moved.contains("leaves moved to part 1 on node 1"), "{moved}");
    let tables = place.json(["db", "tables", "a.pool"].iter().chain(&nodes));
    let ranges = serde_json::json!([{"from": "(500)", "part": 1, "node": 1}, {"from": "(1500)", "part": 0, "node": 0}]);
    assert_eq!((&tables[0]["part"], &tables[0]["ranges"]), (&0.into(), &ranges));
    let pages = |number: usize| tables[0]["pages"][number].as_u64().unwrap_or(0);
    assert!(pages(0) > 3 && pages(1) > 3 && tables[0]["pages_elsewhere"].is_null(), "{tables:?}");
    let text = run(&["db", "tables", "a.pool"]).ok();
    assert!(text.contains("0; from (500): 1; from (1500): 0"), "{text}");
    run(&["db", "move", "a.pool", "t", "1", "--from", "5", "--to", "5"]).fails_with(&["the range has no keys"]);
    run(&["db", "move", "a.pool", "t", "7"]).fails_with(&["node 7"]);
    run(&["db", "move", "a.pool", "t", "1"]).ok();
    let tables = place.json(["db", "tables", "a.pool"].iter().chain(&nodes));
    assert!(tables[0]["ranges"].is_null() && tables[0]["pages"][0] == 0, "{tables:?}");
    assert!(!run(&["db", "tables", "a.pool"]).ok().contains("kept in DRAM"));
    run(&["db", "keep", "a.pool", "t"]).ok();
    assert_eq!(place.json(["db", "tables", "a.pool"].iter().chain(&nodes))[0]["kept"], true);
    assert!(run(&["db", "tables", "a.pool"]).ok().contains("kept in DRAM"));
    assert!(run(&["db", "keep", "a.pool", "t", "--not"]).ok().contains("in the cache like others"));
    assert!(place.json(["db", "tables", "a.pool"].iter().chain(&nodes))[0]["kept"].is_null());
    run(&["db", "keep", "a.pool", "u"]).fails_with(&["no table `u`"]);
    let checked = place.json(["db", "check", "a.pool"].iter().chain(&nodes));
    let nothing = serde_json::json!([]);
    assert_eq!(
        (&checked[0]["rows"], &checked[0]["findings"], &checked[0]["notes"]),
        (&2000.into(), &nothing, &nothing)
    );
}
