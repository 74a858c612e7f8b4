//! The importer against a store in memory that is killed at every change and loses all changes that were not durable.

use std::fs;

use super::*;
use crate::import_store::memory::MemoryStore;

const ROWS: u64 = 23;

fn quiet() -> Output {
    Output::new(false, true)
}

/// A folder with a source of [`ROWS`] rows, some of them bad, and the place of its rejects.
fn source() -> (tempfile::TempDir, Request) {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("rows.csv");
    let mut text = String::from("id,name\n");
    for row in 0..ROWS {
        match row % 7 {
            3 => text.push_str("a,b,c\n"),
            5 => text.push_str(&format!("{row},\"two\nlines\"\n")),
            _ => text.push_str(&format!("{},name {row}\n", row % 20)),
        }
    }
    fs::write(&path, text).expect("write");
    let request = Request {
        path: Some(path),
        format: Format::Csv(CsvFormat { delimiter: b',', has_header: true }),
        selection: Selection::default(),
        batch_rows: 4,
        rejects: Some(folder.path().join("rejects.csv")),
        overwrite: true,
        restart: false,
    };
    (folder, request)
}

fn rejects_of(request: &Request) -> String {
    fs::read_to_string(request.rejects.as_ref().expect("rejects")).expect("read")
}

#[test]
fn an_import_counts_rows_and_keeps_bad_ones() {
    let (_folder, request) = source();
    let store = MemoryStore::default();
    let summary = import(&store, &request, &quiet()).expect("import");
    assert_eq!((summary.rows, summary.rejected), (20, 3));
    assert_eq!(summary.rows - summary.replaced, store.rows().len() as u64);
    assert_eq!(rejects_of(&request), "id,name\na,b,c\na,b,c\na,b,c\n");
    assert_eq!(store.rows()[&b"5"[..]], br#"{"name":"two\nlines"}"#);
    assert_eq!(store.marks(), 0, "a finished import leaves no mark");
}

#[test]
fn an_import_killed_anywhere_goes_on_to_the_same_end() {
    let (_folder, request) = source();
    let whole = MemoryStore::default();
    let expected = import(&whole, &request, &quiet()).expect("import");
    let expected_rejects = rejects_of(&request);
    let mut kills = 0;
    for changes in 0.. {
        for survivors in 0..=5 {
            let store = MemoryStore::default();
            store.fail_after(changes);
            if import(&store, &request, &quiet()).is_ok() {
                assert!(changes > 20, "the import makes more changes than rows");
                assert!(kills > 100);
                return;
            }
            kills += 1;
            let store = store.crash(survivors);
            let again = import(&store, &request, &quiet()).expect("second run");
            assert_eq!(store.rows(), whole.rows(), "after {changes} changes, {survivors} survived");
            assert_eq!((again.rows, again.rejected), (expected.rows, expected.rejected));
            assert_eq!(rejects_of(&request), expected_rejects, "after {changes} changes, {survivors} survived");
        }
    }
}

#[test]
fn a_source_that_changed_is_not_continued() {
    let (_folder, mut request) = source();
    let store = MemoryStore::default();
    store.fail_after(12);
    let message = format!("{:#}", import(&store, &request, &quiet()).expect_err("killed"));
    assert!(message.contains("run the same command again"), "{message}");
    let store = store.crash(0);
    let path = request.path.clone().expect("path");
    let text = fs::read_to_string(&path).expect("read");

    request.selection.key = Some("name".into());
    let message = format!("{:#}", import(&store, &request, &quiet()).expect_err("other key"));
    assert!(message.contains("--restart"), "{message}");
    request.selection.key = None;

    fs::write(&path, text.replacen("name 0", "name Z", 1)).expect("write");
    let message = format!("{:#}", import(&store, &request, &quiet()).expect_err("changed"));
    assert!(message.contains("changed") && message.contains("--restart"), "{message}");

    request.restart = true;
    let summary = import(&store, &request, &quiet()).expect("restart");
    assert_eq!((summary.rows, summary.resumed_at_line), (20, 1));
}

#[test]
fn a_source_that_grew_is_continued() {
    let (_folder, request) = source();
    let store = MemoryStore::default();
    store.fail_after(12);
    assert!(import(&store, &request, &quiet()).is_err());
    let store = store.crash(0);
    let path = request.path.clone().expect("path");
    let mut text = fs::read_to_string(&path).expect("read");
    text.push_str("100,late\n");
    fs::write(&path, text).expect("write");
    let summary = import(&store, &request, &quiet()).expect("import");
    assert!(summary.resumed_at_line > 1);
    assert_eq!(summary.rows, 21);
    assert!(store.rows().contains_key(&b"100"[..]));
}

#[test]
fn rows_that_do_not_fit_are_rejected_by_line() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("rows.jsonl");
    let long = "x".repeat(5000);
    fs::write(&path, format!("{{\"key\":\"{long}\"}}\n{{\"key\":\"a\",\"v\":\"{long}\"}}\n{{\"key\":\"b\",\"v\":1}}"))
        .expect("write");
    let (_other, template) = source();
    let request = Request {
        path: Some(path),
        format: Format::JsonLines,
        rejects: Some(folder.path().join("rejects")),
        ..template
    };
    let store = MemoryStore::default();
    let summary = import(&store, &request, &quiet()).expect("import");
    assert_eq!((summary.rows, summary.rejected), (1, 2));
    assert_eq!(store.rows()[&b"b"[..]], br#"{"v":1}"#);
}
