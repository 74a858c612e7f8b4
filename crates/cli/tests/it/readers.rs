//! Commands that read: each of them has `--read-only` and `--wait`, and every option that a message names exists.

use std::fs;
use std::io::Read;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::common::Place;
use lodestone_pmem::{Pool, PoolOptions};

/// Every command that reads a pool, with the pool `a.pool`.
const READERS: [&[&str]; 9] = [
    &["pool", "info", "a.pool"],
    &["pool", "check", "a.pool"],
    &["pool", "copy", "a.pool", "copy.pool"],
    &["pool", "backup", "a.pool", "backup.pool"],
    &["kv", "get", "a.pool", "k"],
    &["kv", "scan", "a.pool"],
    &["kv", "count", "a.pool"],
    &["kv", "check", "a.pool"],
    &["kv", "export", "a.pool"],
];

/// A writer that has `a.pool` open.
fn writer(place: &Place) -> Child {
    let mut writer = place
        .command(["torture", "writer", "a.pool"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("run a writer");
    let mut first = [0; 16];
    writer.stdout.as_mut().expect("pipe").read_exact(&mut first).expect("the writer has the pool open");
    // No process reads on: the writer stops at a full pipe and keeps the pool.
    writer
}

fn end(mut writer: Child) {
    writer.kill().expect("kill");
    writer.wait().expect("wait");
}

#[test]
fn every_command_that_reads_takes_both_options_and_changes_no_byte() {
    let place = Place::with_pool("8MiB");
    place.run(["kv", "put", "a.pool", "k", "v"]).ok();
    let before = fs::read(place.path("a.pool")).expect("read");
    for reader in READERS {
        place.run(reader.iter().copied().chain(["--read-only", "--wait", "0.5"])).ok();
        assert!(fs::read(place.path("a.pool")).expect("read") == before, "{reader:?}");
        assert!(place.run(reader[..2].iter().copied().chain(["--help"])).ok().contains("--wait"), "{reader:?}");
    }
    place.run(["kv", "get", "a.pool", "k", "--wait", "soon"]).fails_with(&["`soon`", "seconds"]);
    place.run(["kv", "get", "a.pool", "k", "--wait", "-1"]).fails_with(&["`-1`", "seconds"]);
}

#[test]
fn a_command_waits_for_a_pool_that_is_in_use_and_no_longer_than_asked() {
    let place = Place::new();
    let held = writer(&place);
    let started = Instant::now();
    let message = place.run(["kv", "count", "a.pool", "--map", "torture", "--wait", "0.4"]).fails_with(&[
        "a.pool",
        "open in process",
        "waited 0.4 s",
        "--wait SECONDS",
    ]);
    assert!(started.elapsed() >= Duration::from_millis(400), "{message}");
    for reader in READERS.iter().filter(|reader| reader[1] != "info") {
        place.run(reader.iter().copied()).fails_with(&["a.pool", "--wait SECONDS"]);
    }
    // Readers and writers that wait, and get the pool when it is free.
    let waiting: [&[&str]; 3] = [
        &["pool", "check", "a.pool", "--wait", "60"],
        &["kv", "put", "a.pool", "k", "v", "--wait", "60"],
        &["pool", "backup", "a.pool", "backup.pool", "--wait", "60"],
    ];
    let children = waiting.map(|args| {
        place.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("run a waiting command")
    });
    std::thread::sleep(Duration::from_millis(100));
    end(held);
    for (args, child) in waiting.iter().zip(children) {
        let done = child.wait_with_output().expect("wait");
        assert_eq!(done.status.code(), Some(0), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
    }
    assert_eq!(place.run(["kv", "get", "a.pool", "k"]).ok(), "v\n");
}

#[test]
fn a_pool_that_was_never_used_is_read_without_a_change() {
    let place = Place::new();
    let options = PoolOptions { size_bytes: 8 << 20, journal_bytes: 1 << 20, ..PoolOptions::default() };
    drop(Pool::create(place.path("a.pool"), &options).expect("pool"));
    let before = fs::read(place.path("a.pool")).expect("read");
    for more in [&["--read-only"][..], &[]] {
        let args = ["kv", "count", "a.pool"].iter().chain(more).copied().collect::<Vec<_>>();
        place.run(args).fails_with(&["a.pool", "there is no map `main`"]);
        assert!(fs::read(place.path("a.pool")).expect("read") == before, "not a byte");
    }
}

#[test]
fn errors_are_objects_with_a_hint_under_json() {
    let place = Place::with_pool("8MiB");
    let error = |args: &[&str]| -> serde_json::Value {
        let done = place.command(args).arg("--json").output().expect("run");
        assert_eq!((done.status.code(), done.stdout.len()), (Some(2), 0), "{args:?} {done:?}");
        let text = String::from_utf8(done.stderr).expect("text");
        assert_eq!(text.lines().count(), 1, "one object: {text}");
        let object: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert!(object["hint"].as_str().is_some_and(|hint| !hint.is_empty()), "{object}");
        object
    };
    let unknown = error(&["pool", "create", "b.pool", "--sise", "1MiB"]);
    assert!(unknown["error"].as_str().is_some_and(|text| text.contains("--sise")), "{unknown}");
    assert!(unknown["hint"].as_str().is_some_and(|text| text.contains("--size")), "{unknown}");
    let there = error(&["pool", "create", "a.pool"]);
    assert!(there["error"].as_str().is_some_and(|text| text.contains("a.pool") && !text.contains("choose")), "{there}");
    assert!(there["hint"].as_str().is_some_and(|text| text.contains("--overwrite")), "{there}");
    error(&["fly"]);
    error(&["kv", "get"]);
    error(&["kv", "import", "a.pool", "none.csv"]);
    // Help is no error, and stays text.
    assert!(place.run(["kv", "--json", "--help"]).ok().contains("Usage:"));
}

#[test]
fn a_pool_in_memory_promises_no_more_than_memory_keeps() {
    let Ok(folder) = tempfile::tempdir_in("/dev/shm") else { return };
    let pool = folder.path().join("a.pool");
    let pool = pool.to_str().expect("text");
    let place = Place::new();
    let made = place.run(["pool", "create", pool, "--size", "8MiB", "--journal", "1MiB"]).ok();
    assert!(made.contains("tmpfs") && !made.contains(": survives power loss"), "{made}");
    assert!(made.contains("nothing in this pool survives power loss"), "{made}");
    let info = place.json(["pool", "info", pool]);
    let promise = info[0]["promise"].as_str().expect("text");
    assert!(!promise.starts_with("survives power loss"), "{promise}");
    // On a disk the pool is unchanged.
    let made = place.run(["pool", "create", "b.pool", "--size", "8MiB", "--journal", "1MiB"]).ok();
    assert!(made.contains("is memory") || made.contains(": survives power loss"), "{made}");
}

#[test]
fn man_pages_are_written_for_every_command() {
    let place = Place::new();
    let written = place.run(["man", "--out", "man"]).ok();
    assert!(written.contains("man pages"), "{written}");
    let page = place.read("man/lodestone-kv-import.1");
    assert!(page.contains(".TH") && page.contains("\\-\\-rejects") && page.contains("Examples"), "{page}");
    assert!(place.path("man/lodestone.1").exists() && place.path("man/lodestone-pool-check.1").exists());
    place.run(["man", "--out", "man"]).fails_with(&["exists", "--overwrite"]);
    place.run(["man", "--out", "man", "--overwrite"]).ok();
}

#[test]
fn keys_are_escaped_and_told_apart() {
    let place = Place::with_pool("8MiB");
    let keys: [&[u8]; 6] = [b"k\xff", b"k\\xff", b"0x6bff", b"a\tb", b"a\\tb", b"a\nb"];
    for key in keys {
        let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        place.run(["kv", "put", "a.pool", "--hex", &hex, "76"]).ok();
    }
    let scanned = place.run(["kv", "scan", "a.pool", "--keys-only"]).ok();
    let mut lines: Vec<&str> = scanned.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["0x6bff", r"a\\tb", r"a\nb", r"a\tb", r"k\\xff", r"k\xff"]);
    let missing = place.run(["kv", "get", "a.pool", "a\u{1b}[31m"]).finding().stderr;
    assert!(missing.contains(r"no key `a\u{1b}[31m`"), "{missing:?}");
}

/// Progress is drawn on a terminal, on standard error only.
#[test]
fn a_check_shows_on_a_terminal_that_it_works() {
    let place = Place::new();
    let held = writer(&place);
    let binary = env!("CARGO_BIN_EXE_lodestone");
    let on_terminal = |arguments: &str| {
        let command = format!("{binary} {arguments}");
        let mut script = std::process::Command::new("script");
        script.args(["-qec", &command, "/dev/null"]).current_dir(place.path("")).stdin(Stdio::null());
        // Without it there is nothing to see.
        script.env("TERM", "xterm");
        script.output().ok().map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    // The pool is in use, so the check takes as long as it waits. On a busy machine the thread that draws may come
    // late.
    let mut shown = String::new();
    for seconds in [1, 4, 16] {
        let Some(found) = on_terminal(&format!("pool check a.pool --wait {seconds}")) else { return end(held) };
        shown = found;
        if shown.contains("\u{1b}[2K") {
            break;
        }
    }
    assert!(shown.contains("check ") && shown.contains("\u{1b}[2K"), "{shown:?}");
    let quiet = on_terminal("pool check a.pool --wait 0.5 --quiet").expect("script");
    assert!(!quiet.contains("\u{1b}[2K"), "{quiet:?}");
    end(held);
}
