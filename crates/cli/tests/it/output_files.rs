//! Files that commands make: complete under their name or absent, and never over another file unless requested.

use std::fs;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::common::Place;
use rustix::process::Signal;

/// Names in the folder of `place`, sorted.
fn names(place: &Place) -> Vec<String> {
    let entries = fs::read_dir(place.path("")).expect("folder");
    let mut names: Vec<_> =
        entries.map(|entry| entry.expect("entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn an_export_replaces_no_file_unless_asked() {
    let place = Place::with_pool("8MiB");
    place.run(["kv", "put", "a.pool", "k", "v"]).ok();
    place.write("out.jsonl", "mine\n");
    let export = ["kv", "export", "a.pool", "--output", "out.jsonl"];
    place.run(export).fails_with(&["out.jsonl", "exists", "--overwrite"]);
    assert_eq!(place.read("out.jsonl"), "mine\n");
    place.run(export.into_iter().chain(["--overwrite"])).ok();
    assert_eq!(place.read("out.jsonl"), "{\"key\":\"k\",\"value\":\"v\"}\n");
    assert_eq!(place.run(["kv", "export", "a.pool", "-o", "/dev/stdout", "-q"]).ok().lines().count(), 2);
}

#[test]
fn an_export_that_fails_leaves_nothing_and_keeps_the_old_file() {
    let place = Place::with_pool("8MiB");
    place.run(["kv", "put", "a.pool", "1", "{\"a\":1}"]).ok();
    place.run(["kv", "put", "a.pool", "2", "no object"]).ok();
    let export = ["kv", "export", "a.pool", "--flat", "id", "--output", "out.jsonl"];
    place.run(export).fails_with(&["`2`"]);
    assert_eq!(names(&place), ["a.pool"], "no half file, under no name");
    place.write("out.jsonl", "old\n");
    place.run(export.into_iter().chain(["--overwrite"])).fails_with(&["`2`"]);
    assert_eq!((place.read("out.jsonl").as_str(), names(&place)), ("old\n", vec!["a.pool".into(), "out.jsonl".into()]));
}

#[test]
fn rejects_replace_no_file_unless_asked_and_appear_whole() {
    let place = Place::with_pool("8MiB");
    place.write("rows.csv", "id,name\n1,Ann\n2,too,many\n");
    place.write("bad.csv", "mine\n");
    let import = ["kv", "import", "a.pool", "rows.csv", "--rejects", "bad.csv"];
    place.run(import).fails_with(&["bad.csv", "exists", "--overwrite"]);
    assert_eq!(place.read("bad.csv"), "mine\n");
    place.run(import.into_iter().chain(["--overwrite"])).finding();
    assert_eq!(place.read("bad.csv"), "id,name\n2,too,many\n");
    assert_eq!(names(&place), ["a.pool", "bad.csv", "rows.csv"]);
    // Nothing was rejected, so the file of an earlier import would be wrong.
    place.write("rows.csv", "id,name\n1,Ann\n");
    place.run(import.into_iter().chain(["--overwrite"])).ok();
    assert_eq!(names(&place), ["a.pool", "rows.csv"]);
}

#[test]
fn rejects_of_an_import_that_cannot_go_on_leave_no_file() {
    let place = Place::with_pool("8MiB");
    let mut rows = b"id,name\n1,a,b\n2,".to_vec();
    rows.extend_from_slice(&[b'\xff'; 40]);
    rows.push(b'\n');
    // A map of another kind is refused after the file of rejects was opened.
    place.run(["kv", "put", "a.pool", "k", "v"]).ok();
    let import = ["kv", "import", "a.pool", "-", "--format", "csv", "--rejects", "bad.csv", "--key", "zip"];
    place.feed(&rows, import).fails_with(&["`zip`"]);
    assert_eq!(names(&place), ["a.pool"]);
}

#[test]
fn a_profile_and_a_page_replace_nothing_else() {
    let place = Place::new();
    place.write("orders.csv", "id,name\n");
    let page = ["bench", "ycsb", "--records", "100", "--operations", "100", "--path", "/dev/shm", "--domain"];
    place.run(page.into_iter().chain(["dax-emulated", "--html", "orders.csv"])).fails_with(&["orders.csv", "no page"]);
    assert_eq!(place.read("orders.csv"), "id,name\n");
}

/// Waits until `ready` or fails after half a minute.
#[track_caller]
fn wait_until(what: &str, mut ready: impl FnMut() -> bool) {
    let started = Instant::now();
    while !ready() {
        assert!(started.elapsed() < Duration::from_secs(30), "{what} did not come");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Exit code, signal and standard error of a command.
type Ended = (Option<i32>, Option<i32>, String);

/// Runs `args`, sends SIGINT as soon as `ready` holds, and returns the end of the command.
#[track_caller]
fn interrupted(place: &Place, args: &[&str], mut ready: impl FnMut() -> bool) -> Ended {
    ended_by(Signal::INT, place, args, |_| ready())
}

/// Runs `args`, sends `signal` as soon as `ready` holds for the process, and returns the end of the command.
#[track_caller]
fn ended_by(signal: Signal, place: &Place, args: &[&str], mut ready: impl FnMut(u32) -> bool) -> Ended {
    let mut child = place.command(args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("run lodestone");
    let mut ended = None;
    wait_until("the moment for the signal", || {
        ended = child.try_wait().expect("status");
        ready(child.id()) || ended.is_some()
    });
    assert!(ended.is_none(), "the command is long enough to be interrupted: {ended:?}");
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), signal).expect("signal");
    let mut said = String::new();
    child.stderr.take().expect("pipe").read_to_string(&mut said).expect("read");
    let status = child.wait().expect("wait");
    (status.code(), status.signal(), said)
}

#[test]
fn ctrl_c_in_an_import_says_what_is_durable_and_how_to_go_on() {
    let place = Place::with_pool("64MiB");
    let rows = (0..400_000).map(|row| if row % 100 == 42 { format!("{row}\n") } else { format!("{row},name {row}\n") });
    place.write("rows.csv", String::from("id,name\n") + &rows.collect::<String>());
    let import = ["kv", "import", "a.pool", "rows.csv", "--rejects", "bad.csv", "--batch", "500", "-q"];
    let partial = place.path("bad.csv.partial");
    let (code, signal, said) =
        interrupted(&place, &import, || fs::metadata(&partial).is_ok_and(|found| found.len() > 200));
    assert_eq!((code, signal), (Some(130), None), "{said}");
    for part in ["interrupted:", "rows.csv", "durable", "run the same command again", "bad.csv.partial"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let told: u64 =
        said.split("before line ").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok()).expect("line");
    assert!(!place.path("bad.csv").exists(), "no half file under the final name");
    let summary = place.json(import);
    let summary = summary.last().expect("summary");
    assert!(summary["resumed_at_line"].as_u64() >= Some(told), "what was told is there: {summary} {said}");
    assert_eq!((&summary["rows"], &summary["rejected"]), (&396_000.into(), &4_000.into()));
    assert_eq!(place.read("bad.csv").lines().count(), 4_001);
    assert_eq!(names(&place), ["a.pool", "bad.csv", "rows.csv"]);
}

#[test]
fn ctrl_c_leaves_no_half_file_and_no_temporary_folder() {
    let place = Place::with_pool("64MiB");
    let rows = (0..300_000).map(|row| format!("{row},name {row}\n")).collect::<String>();
    place.write("rows.csv", rows);
    // No row was rejected yet, so no mark depends on the file of rejects.
    let import = ["kv", "import", "a.pool", "rows.csv", "--no-header", "--map", "b", "--rejects", "bad.csv", "-q"];
    let (code, _, said) = interrupted(&place, &import, || place.path("bad.csv.partial").exists());
    assert_eq!((code, names(&place)), (Some(130), vec!["a.pool".into(), "rows.csv".into()]), "{said}");
    place.run(["kv", "import", "a.pool", "rows.csv", "--no-header", "--domain", "process"]).ok();
    let is_making = |suffix: &'static str| {
        let folder = place.path("");
        move || {
            let entries = fs::read_dir(&folder).expect("folder").flatten();
            entries.into_iter().any(|entry| {
                let name = entry.file_name().to_string_lossy().into_owned();
                name.starts_with('.') && name.ends_with(suffix)
            })
        }
    };
    // The file has no name before it is whole, so not even SIGKILL leaves one.
    let (export, folder) = (["kv", "export", "a.pool", "-o", "out.jsonl"], place.path(""));
    let has_unnamed = |process: u32| {
        let open = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
        let mut open = open.filter_map(|entry| fs::read_link(entry.path()).ok());
        open.any(|path| path.starts_with(&folder) && path.to_string_lossy().ends_with(" (deleted)"))
    };
    let (code, _, said) = ended_by(Signal::INT, &place, &export, has_unnamed);
    assert_eq!(code, Some(130), "{said}");
    assert!(said.contains("out.jsonl") && said.contains("not made"), "{said}");
    assert_eq!(names(&place), ["a.pool", "rows.csv"]);
    let (_, signal, said) = ended_by(Signal::KILL, &place, &export, has_unnamed);
    assert_eq!((signal, names(&place)), (Some(9), vec!["a.pool".into(), "rows.csv".into()]), "{said}");

    let (code, _, said) =
        interrupted(&place, &["pool", "backup", "a.pool", "b.pool", "--json"], is_making(".creating"));
    assert_eq!(code, Some(130), "{said}");
    let told: serde_json::Value = serde_json::from_str(&said).expect("one JSON object");
    assert_eq!((&told["error"], &told["signal"]), (&"interrupted".into(), &2.into()));
    assert!(told["hint"].as_str().is_some_and(|hint| hint.contains("b.pool")), "{told}");
    assert_eq!(names(&place), ["a.pool", "rows.csv"]);

    // The guided run works in a temporary folder.
    fs::create_dir(place.path("tmp")).expect("folder");
    let temporary = place.path("tmp");
    let mut command = place.command(["demo", "--seconds", "60"]);
    let mut child =
        command.env("TMPDIR", &temporary).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("run");
    let count = || fs::read_dir(&temporary).expect("folder").count();
    wait_until("the temporary folder", || count() > 0);
    std::thread::sleep(Duration::from_millis(300));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("signal");
    let mut said = String::new();
    child.stderr.take().expect("pipe").read_to_string(&mut said).expect("read");
    assert_eq!(child.wait().expect("wait").code(), Some(130));
    assert!(said.contains("interrupted: the pools of this run are removed"), "{said}");
    assert_eq!(count(), 0, "nothing is left behind");
}

#[test]
fn an_import_into_a_file_that_was_removed_fails() {
    let place = Place::with_pool("64MiB");
    let rows = (0..300_000).map(|row| format!("{row},name {row}\n")).collect::<String>();
    place.write("rows.csv", rows);
    let import = ["kv", "import", "a.pool", "rows.csv", "--no-header", "--batch", "200", "--rejects", "bad.csv"];
    let child = place.command(import).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("run lodestone");
    wait_until("the import", || ["bad.csv", "bad.csv.partial"].iter().any(|name| place.path(name).exists()));
    fs::rename(place.path("a.pool"), place.path("b.pool")).expect("rename");
    let done = child.wait_with_output().expect("wait");
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(2), "{said}");
    assert!(said.contains("a.pool") && said.contains("removed, renamed or replaced"), "{said}");
}
