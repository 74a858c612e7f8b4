//! `lodestone media probe` as a user runs it: its measurements, the files that it leaves alone, and its errors. Sizes
//! and repetitions are tiny. No figure is judged, except those of a model, which are exact.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;

use crate::common::Place;
use serde_json::Value;

/// The shortest run of everything on real memory.
const TINY: [&str; 6] = ["--quick", "--repetition-ms", "1", "--size", "4MiB", "--quiet"];

fn probe<'a>(words: &[&'a str]) -> Vec<&'a str> {
    ["media", "probe"].into_iter().chain(words.iter().copied()).chain(TINY).collect()
}

fn one(place: &Place, words: &[&str]) -> Value {
    let lines = place.json(probe(words));
    assert_eq!(lines.len(), 1, "one object");
    let result = lines.into_iter().next().expect("one line");
    assert_eq!((&result["format"], &result["version"]), (&"lodestone-probe".into(), &1.into()));
    result
}

fn cells<'a>(result: &'a Value, matches: impl Fn(&Value) -> bool + 'a) -> Vec<&'a Value> {
    result["cells"].as_array().expect("cells").iter().filter(|cell| matches(cell)).collect()
}

#[test]
fn a_folder_is_measured_with_a_temporary_file_that_is_gone_afterwards() {
    let place = Place::new();
    let result = one(&place, &["."]);
    assert_eq!((&result["target"]["kind"], &result["target"]["read_only"]), (&"temporary file".into(), &false.into()));
    for section in ["latency", "fence", "instruction", "compare"] {
        assert!(!cells(&result, |cell| cell["section"] == section).is_empty(), "{section}");
    }
    for cell in cells(&result, |_| true) {
        assert!(cell["latency_ns"]["median"].as_f64() > Some(0.0), "{cell}");
        assert!(cell["bandwidth_bytes_per_s"]["median"].as_f64() > Some(0.0), "{cell}");
    }
    assert!(!cells(&result, |cell| cell["access"] == "buffered_sync").is_empty(), "fdatasync");
    assert_eq!(std::fs::read_dir(place.path("")).expect("folder").count(), 0, "nothing is left behind");
}

#[test]
fn data_is_refused_by_name_and_stays_as_it_is() {
    let place = Place::with_pool("8MiB");
    place.write("thesis.txt", "my thesis\n".repeat(20_000));
    let before = std::fs::read(place.path("a.pool")).expect("pool");
    place.run(probe(&["thesis.txt"])).fails_with(&["thesis.txt", "200000 bytes", "text file", "--overwrite-data"]);
    place.run(probe(&["a.pool"])).fails_with(&["a.pool", "Lodestone pool", "--overwrite-data"]);
    let result = one(&place, &["a.pool", "--read-only"]);
    assert!(!cells(&result, |_| true).is_empty());
    assert!(cells(&result, |cell| cell["operation"] == "write" && cell["subject"] != "dram").is_empty());
    assert!(result["notes"].to_string().contains("read-only"), "{}", result["notes"]);
    assert_eq!(std::fs::read(place.path("a.pool")).expect("pool"), before, "not a byte changed");
    assert!(place.read("thesis.txt").starts_with("my thesis"));
}

#[test]
fn data_that_may_go_goes_and_an_empty_file_stays_empty() {
    let place = Place::new();
    place.write("old", vec![7; 4 << 20]);
    let result = one(&place, &["old", "--overwrite-data", "--sections", "latency"]);
    assert!(!cells(&result, |cell| cell["operation"] == "write").is_empty());
    let left = std::fs::read(place.path("old")).expect("file");
    assert!(left.len() == 4 << 20 && left.iter().any(|byte| *byte != 7), "same length, other content");
    place.write("empty", "");
    let result = one(&place, &["empty", "--sections", "latency"]);
    assert!(result["notes"].to_string().contains("empty and stays so"), "{}", result["notes"]);
    assert_eq!(std::fs::metadata(place.path("empty")).expect("file").len(), 0);
}

/// Open files of the process `pid` that have no name any more.
fn unnamed_files(pid: u32) -> usize {
    let Ok(open) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return 0 };
    let links = open.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
    links.filter(|link| link.to_string_lossy().ends_with(" (deleted)")).count()
}

#[test]
fn a_probe_that_is_ended_by_a_signal_leaves_nothing_behind() {
    for (target, left) in [(".", 0), ("empty", 1)] {
        let place = Place::new();
        if target == "empty" {
            place.write("empty", "");
        }
        // Repetitions of a minute: it is still at work when the signal comes.
        let words = ["media", "probe", target, "--quick", "--repetition-ms", "60000", "--size", "4MiB", "--quiet"];
        let mut child = place.command(words).spawn().expect("probe");
        while unnamed_files(child.id()) == 0 {
            assert!(child.try_wait().expect("child").is_none(), "it ended before it began");
            std::thread::yield_now();
        }
        let sent = std::process::Command::new("sh").arg("-c").arg(format!("kill -TERM {}", child.id())).status();
        assert!(sent.is_ok_and(|status| status.success()));
        assert_eq!(child.wait().expect("child").signal(), Some(15));
        let files: Vec<_> = std::fs::read_dir(place.path("")).expect("folder").flatten().collect();
        assert_eq!(files.len(), left, "{target}: {files:?}");
        assert!(files.iter().all(|file| file.metadata().is_ok_and(|found| found.len() == 0)), "{target}");
    }
}

#[test]
fn virtual_nodes_give_a_spinning_model_a_far_node() {
    let place = Place::new();
    let nodes = ["--profile", "optane", "--spinning", "--sections", "nodes", "--virtual-nodes"];
    if std::thread::available_parallelism().is_ok_and(|count| count.get() > 1) {
        let result = one(&place, &[&nodes[..], &["2"]].concat());
        assert_eq!((&result["machine"]["nodes"], &result["machine"]["nodes_virtual"]), (&2.into(), &true.into()));
        assert!(!cells(&result, |cell| cell["place"] == "far").is_empty(), "{}", result["notes"]);
    }
    place.run(probe(&[&nodes[..], &["4096"]].concat())).fails_with(&["4096"]);
    place.run(probe(&[".", "--virtual-nodes", "2"])).fails_with(&["--profile"]);
}

#[test]
fn a_pool_in_use_is_left_alone() {
    let place = Place::with_pool("8MiB");
    let options = lodestone_pmem::PoolOptions::default();
    let _open = lodestone_pmem::Pool::open(place.path("a.pool"), &options).expect("open");
    place.run(probe(&["a.pool", "--overwrite-data"])).fails_with(&["a.pool", "is open in process"]);
}

#[test]
fn what_cannot_be_measured_is_told_with_the_next_step() {
    let place = Place::new();
    place.write("small", "x");
    std::fs::write(place.path("page"), vec![1; 8192]).expect("file");
    std::os::unix::net::UnixListener::bind(place.path("socket")).expect("socket");
    place.run(probe(&["missing"])).fails_with(&["missing", "existing file or a device"]);
    place.run(probe(&["missing/deeper"])).fails_with(&["missing/deeper"]);
    place.run(["media", "probe", "page", "--overwrite-data"]).fails_with(&["page", "8192 bytes are too few"]);
    place.run(["media", "probe", "small", "--read-only"]).fails_with(&["small", "too few"]);
    place.run(["media", "probe", "page", "--overwrite-data", "--size", "1GiB"]).fails_with(&["--size"]);
    place.run(probe(&["socket"])).fails_with(&["socket", "neither a file nor a device"]);
    place.run(probe(&["/dev/null"])).fails_with(&["/dev/null", "dax"]);
    place.run(probe(&[".", "--read-only"])).fails_with(&["folder", "nothing to read"]);
    place.run(["media", "probe", ".", "--size", "1KiB"]).fails_with(&["size", "64KiB"]);
    place.run(["media", "probe", ".", "--size", "8388607TiB", "--sections", "latency"]).fails_with(&["free", "--size"]);
    place.run(["media", "probe", "--dram", "--size", "8388607TiB"]).fails_with(&["available", "--size"]);
    place.run(probe(&[".", "--threads", "0"])).fails_with(&["threads", "1 to 256"]);
    place.run(probe(&[".", "--sections", "latency,speed"])).fails_with(&["`speed`", "latency, threads"]);
    place.run(probe(&["--profile", "floppy"])).fails_with(&["floppy", "optane"]);
    place.run(probe(&["--profile", "missing.toml"])).fails_with(&["missing.toml"]);
    place.run(probe(&[])).fails_with(&["TARGET"]);
    place.run(probe(&["--dram", "."])).fails_with(&["--dram"]);
    place.run(probe(&["--dram", "--read-only"])).fails_with(&["--read-only"]);
    place.run(probe(&[".", "--html", "no/such/folder/page.html", "--sections", "latency"])).fails_with(&["page.html"]);
    assert_eq!(std::fs::read_dir(place.path("")).expect("folder").count(), 3, "nothing new is left behind");
}

#[test]
fn a_page_never_replaces_the_target() {
    let place = Place::new();
    place.write("old", vec![7; 1 << 20]);
    place.run(probe(&["old", "--read-only", "--html", "old"])).fails_with(&["old", "destroy"]);
    assert_eq!(std::fs::read(place.path("old")).expect("file"), vec![7; 1 << 20]);
}

#[test]
fn permissions_are_told() {
    let place = Place::new();
    let path = place.write("locked", "data that is long enough".repeat(10_000));
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o000)).expect("permissions");
    if std::fs::File::open(&path).is_ok() {
        println!("this user may open everything: only the names are checked");
        place.run(probe(&["locked"])).fails_with(&["locked"]);
        return;
    }
    place.run(probe(&["locked", "--read-only"])).fails_with(&["locked", "may not read"]);
    place.run(probe(&["locked", "--overwrite-data"])).fails_with(&["locked", "may not write"]);
}

/// A process that may use one processor measures, names the parts it leaves out, and hangs nowhere.
#[test]
fn one_thread_degrades_with_a_note() {
    let place = Place::new();
    let result = one(&place, &["--dram", "--threads", "1", "--sections", "latency,threads,mixed,nodes"]);
    let notes = result["notes"].to_string();
    assert!(notes.contains("one thread only") && notes.contains("need two threads"), "{notes}");
    assert!(cells(&result, |cell| cell["section"] == "mixed").is_empty());
    let many = one(&place, &["--dram", "--threads", "9", "--sections", "mixed"]);
    assert!(!cells(&many, |cell| cell["threads"] == 4 && cell["beside_threads"] == 1).is_empty());
}

#[test]
fn a_dry_run_says_what_it_would_do_and_does_nothing() {
    let place = Place::new();
    place.write("empty", "");
    let plan = place.json(["media", "probe", "empty", "--dry-run", "--size", "64MiB"]);
    let plan = plan.first().expect("a plan");
    assert!(plan["cells"].as_u64() > Some(100) && plan["seconds"].as_f64() > Some(1.0), "{plan}");
    assert!(plan["written_bytes"].as_u64() >= Some(64 << 20), "{plan}");
    assert_eq!(std::fs::metadata(place.path("empty")).expect("file").len(), 0);
    let text = place.run(["media", "probe", "--profile", "optane", "--dry-run"]).ok();
    assert!(text.contains("latency") && text.contains("1, 2, 4, 8, 16"), "{text}");
}

#[test]
fn a_profile_gives_the_papers_tables_exactly_and_every_time() {
    let place = Place::new();
    let words = ["media", "probe", "--profile", "optane", "--quick", "--sections", "latency,compare", "--threads", "2"];
    let runs = [(); 2].map(|()| place.json(words).remove(0));
    assert_eq!(runs[0]["cells"], runs[1]["cells"]);
    let latency = |subject: &str, operation: &str, bytes: u64| {
        let found = cells(&runs[0], |cell| {
            cell["subject"] == subject
                && cell["operation"] == operation
                && cell["access_bytes"] == bytes
                && cell["pattern"] == "random"
                && cell["threads"] == 1
        });
        found[0]["latency_ns"]["median"].as_f64().expect("a latency").round()
    };
    // Paper 2, Tables 3, 5, 7 and 8.
    assert_eq!((latency("target", "read", 64), latency("target", "write", 64)), (201.0, 190.0));
    assert_eq!((latency("target", "read", 8), latency("target", "write", 8)), (200.0, 658.0));
    assert_eq!((latency("dram", "read", 256), latency("dram", "write", 256)), (57.0, 200.0));
    assert!(runs[0]["target"]["emulated"].to_string().contains("optane"));
    let text = place.run(words).ok();
    assert!(text.contains("Table 3") && text.contains("EMULATED") && text.contains("verdict"), "{text}");
}

#[test]
fn a_spinning_profile_takes_real_time() {
    let place = Place::new();
    let result = one(&place, &["--profile", "optane", "--spinning", "--sections", "latency", "--threads", "1"]);
    assert!(result["target"]["emulated"].to_string().contains("spinning"));
    assert!(result["method"]["repetition_ns"].as_u64() > Some(0));
}
