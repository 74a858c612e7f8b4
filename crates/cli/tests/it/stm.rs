//! Benchmarks and the model of transactional memories: exact counts are judged. Times are not.

use crate::common::Place;
use serde_json::Value;

fn figure(line: &Value, key: &str) -> f64 {
    line[key].as_f64().unwrap_or_else(|| panic!("`{key}` is no number in {line}"))
}

#[test]
fn every_engine_keeps_to_its_fences_and_its_clock() {
    let place = Place::new();
    let mut words = vec!["bench", "stm", "--structure", "hash,btree", "--engine"];
    words.extend(["stm,dram,dram-lock,tl2-undo,tl2-redo", "--mode", "one-fence,address-log,scan"]);
    words.extend(["--clock", "thread,mutex,add,cas", "--updates", "80", "--operations", "1000"]);
    words.extend(["--keys", "200", "--buckets", "100", "--durability", "process"]);
    let lines = place.json(words);
    // Twelve kinds of stm, two of DRAM, three clocks of each TL2, on two structures.
    assert_eq!(lines.len(), 2 * (12 + 2 + 6));
    for line in &lines {
        let engine = line["engine"].as_str().expect("a name");
        // One thread meets no other. A fresh one of stm restarts when it first sees the loader's versions.
        let aborts_max = if engine.starts_with("stm") { 0.01 } else { 0.0 };
        assert!(figure(line, "aborts_per_commit") <= aborts_max, "{line}");
        assert!((300.0..500.0).contains(&(1000.0 * figure(line, "changes_per_op"))), "{line}");
        if engine.starts_with("dram") {
            assert!(line["fences_per_change"].is_null(), "{line}");
            continue;
        }
        let (fences, ticks) = (figure(line, "fences_per_change"), figure(line, "shared_rmws_per_change"));
        match engine.split('/').next() {
            // Growing takes a few extra fences, in a run as short as this.
            Some("stm-one-fence") => assert!((1.0..1.1).contains(&fences), "{line}"),
            Some("tl2-redo") => assert!((3.0..3.1).contains(&fences), "{line}"),
            Some("tl2-undo") => assert!((3.0..4.1).contains(&fences), "{line}"),
            _ => assert!((2.0..4.1).contains(&fences), "{line}"),
        }
        match engine.split('/').nth(1) {
            Some("thread") => assert_eq!(ticks, 0.0, "{line}"),
            _ => assert!(ticks >= 1.0, "{line}"),
        }
    }
}

#[test]
fn the_model_says_what_it_assumes_and_how_wrong_it_is() {
    let place = Place::new();
    let mut words = vec!["sim", "stm", "--engine", "tl2-redo", "--structure", "list", "--updates", "80"];
    words.extend(["--threads", "1,36,40", "--transactions", "500", "--seconds", "0.05", "--durability", "process"]);
    let lines = place.json(words);
    let kind = |wanted: &'static str| lines.iter().filter(move |line| line["kind"] == wanted);
    assert_eq!(kind("model").count(), 1);
    assert!(kind("assumption").count() >= 5);
    assert_eq!(kind("validation").count(), 3);
    assert!(kind("validation").all(|line| figure(line, "error").is_finite()));
    assert_eq!(kind("clock-alone").count(), 9);
    assert_eq!(kind("result").count(), 12);
    let shares: Vec<f64> =
        kind("result").filter(|line| line["clock"] == "thread").map(|line| figure(line, "clock_share")).collect();
    assert_eq!(shares, [0.0; 3]);
}

#[test]
fn ycsb_runs_on_transactional_memories_and_loses_no_record() {
    let place = Place::new();
    for engine in ["stm", "tl2-undo", "tl2-redo"] {
        let mut words = vec!["bench", "ycsb", "--engine", engine, "--workload", "a,b,c,d", "--threads", "2"];
        words.extend(["--records", "500", "--operations", "400", "--verify", "--durability", "process"]);
        let lines = place.json(words);
        assert_eq!(lines.len(), 4);
        assert!(lines.iter().all(|line| line["missing"] == 0 && line["operations"] == 400), "{lines:?}");
    }
}

/// A disk's time is no software cost. Without a place the pools are in memory, and the first line says so.
#[test]
fn transactions_run_in_memory_unless_told_and_say_so_first() {
    if !std::path::Path::new("/dev/shm").is_dir() {
        return;
    }
    let place = Place::new();
    let bench = ["bench", "stm", "--engine", "stm", "--operations", "200", "--keys", "100"];
    let text = place.run(bench).ok();
    assert!(text.starts_with("domain dax-emulated, medium tmpfs, in /dev/shm: NOT durable"), "{text}");
    assert_eq!(place.json(bench)[0]["domain"], "dax-emulated");
    let asked = place.json(bench.into_iter().chain(["--domain", "block"]));
    assert_eq!(asked[0]["domain"], "block", "what was asked for counts");

    let sim = ["sim", "stm", "--transactions", "200", "--seconds", "0.02", "--threads", "1,36"];
    let lines = place.json(sim);
    assert_eq!((&lines[0]["kind"], &lines[0]["domain"]), (&"calibration".into(), &"dax-emulated".into()));
    for line in &lines {
        let expected = match line["kind"].as_str().expect("a kind") {
            "calibration" | "model" | "assumption" => "input",
            "validation" => "measured and predicted",
            _ => "predicted",
        };
        assert_eq!(line["figures"], expected, "{line}");
    }
    let text = place.run(sim).ok();
    assert!(text.starts_with("calibrated here: domain dax-emulated, medium tmpfs"), "{text}");
    for table in ["threads here", "clock alone", "clock share"] {
        let (_, after) = text.split_once(table).unwrap_or_else(|| panic!("`{table}` is missing in {text}"));
        let labels = after.lines().nth(1).expect("the labels under the names");
        assert!(labels.contains("input") && labels.contains("predicted"), "{table}: {labels}");
    }
}
