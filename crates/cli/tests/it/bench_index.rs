//! `bench index`: exact counts and the shape of the records are judged. Times are not.

use crate::common::Place;
use serde_json::Value;

fn figure(line: &Value, key: &str) -> f64 {
    line[key].as_f64().unwrap_or_else(|| panic!("`{key}` is no number in {line}"))
}

const ALL: &str =
    "fastfair,fptree,skiplist,hash,hybrid,hybrid-plus,acs-fastfair,acs-hash,btreemap-lock,crossbeam-skiplist";

/// The keys of every line beside those of every benchmark.
const FIGURES: [&str; 12] = [
    "latency_ns_p90",
    "latency_ns_p99_99",
    "media_blocks_read_per_op",
    "media_blocks_written_per_op",
    "missing_per_op",
    "cpu_ns_per_op",
    "load_ops_per_s",
    "keys_at_end",
    "key",
    "distribution",
    "samples_ops_per_s",
    "machine",
];

#[test]
fn every_index_runs_every_mix_and_counts_what_it_does() {
    let place = Place::new();
    let mut words = vec!["bench", "index", "--index", ALL];
    words.extend(["--mix", "search,insert,d", "--mix", "read=50,update=20,remove=30", "--records", "2000"]);
    words.extend(["--operations", "2000", "--threads", "1,2", "--durability", "process"]);
    let lines = place.json(words);
    assert_eq!(lines.len(), 10 * 4 * 2);
    for line in &lines {
        for key in FIGURES {
            assert!(line.get(key).is_some(), "no `{key}` in {line}");
        }
        assert_eq!(figure(line, "operations"), 2000.0, "{line}");
        let is_in_dram = line["domain"].is_null();
        assert_eq!(line["fences_per_op"].is_null(), is_in_dram, "{line}");
        assert_eq!(line["pm_bytes_per_record"].is_null(), is_in_dram, "{line}");
        if is_in_dram {
            continue;
        }
        let fences = figure(line, "fences_per_op");
        match line["workload"].as_str() {
            Some("search") => assert_eq!(fences, 0.0, "{line}"),
            Some("insert") => {
                assert!((1.0..6.0).contains(&fences), "{line}");
                assert_eq!(figure(line, "keys_at_end"), 4000.0, "{line}");
            }
            _ => {}
        }
        assert!((16.0..200.0).contains(&figure(line, "pm_bytes_per_record")), "{line}");
    }
}

#[test]
fn a_modelled_medium_counts_its_blocks() {
    let place = Place::new();
    let mut words = vec!["bench", "index", "--index", "hash", "--mix", "search,update", "--records", "20000"];
    words.extend(["--operations", "2000", "--domain", "dax-emulated", "--profile", "optane", "--key", "bytes:24"]);
    let lines = place.json(words);
    assert_eq!(lines.len(), 3, "two runs and the model");
    assert!(figure(&lines[0], "media_blocks_read_per_op") > 0.1, "{}", lines[0]);
    assert!(figure(&lines[1], "media_blocks_written_per_op") > 0.0, "{}", lines[1]);
    assert!(lines[0]["media"].as_str().is_some_and(|text| text.contains("optane")), "{}", lines[0]);
}

#[test]
fn a_cache_says_how_often_it_answers() {
    let place = Place::new();
    let mut words = vec!["bench", "index", "--index", "acs-fastfair,fastfair", "--mix", "search", "--records", "5000"];
    words.extend(["--operations", "50000", "--durability", "process", "--distribution", "zipfian:0.99,uniform"]);
    words.extend(["--cache-mode", "serial", "--cache", "10%"]);
    let lines = place.json(words);
    assert!(figure(&lines[0], "cache_hit_rate") > 0.5, "{}", lines[0]);
    assert!((0.05..0.15).contains(&figure(&lines[1], "cache_hit_rate")), "{}", lines[1]);
    assert!(lines[2]["cache_hit_rate"].is_null(), "{}", lines[2]);
}

#[test]
fn what_cannot_be_run_is_refused_with_its_reason() {
    let place = Place::new();
    for (words, reason) in [
        (vec!["--index", "btree"], "unknown index"),
        (vec!["--mix", "read=50,insert=20"], "add up to 70"),
        (vec!["--mix", "reed=100"], "not understood"),
        (vec!["--index", "map"], "takes strings"),
        (vec!["--index", "hash", "--mix", "scan"], "cannot scan"),
        (vec!["--key", "bytes:4"], "no kind of key"),
        (vec!["--distribution", "self-similar:0.7"], "0 < skew < 0.5"),
        (vec!["--distribution", "zipfian:1.2"], "theta"),
        (vec!["--cache", "0%"], "no size of a cache"),
        (vec!["--records", "0"], "0"),
        (vec!["--threads", "0"], "0"),
        (vec!["--operations", "5", "--seconds", "1"], "cannot be used with"),
        (vec!["--seconds", "1e19", "--warm-up", "1e19"], "--seconds needs"),
        (vec!["--seconds", "1", "--warm-up", "1e19"], "--warm-up needs"),
        (vec!["--seconds", "-1"], "unexpected argument"),
        (vec!["--seconds=-1"], "--seconds needs"),
        (vec!["--open", "--mix", "insert"], "cannot be used with"),
        (vec!["--open", "--distribution", "uniform"], "cannot be used with"),
        (vec!["--open", "--threads", "2"], "cannot be used with"),
        (vec!["--open", "--operations", "100"], "cannot be used with"),
        (vec!["--open", "--load", "sorted"], "cannot be used with"),
    ] {
        let mut all = vec!["bench", "index", "--durability", "process"];
        all.extend(words);
        place.run(all).fails_with(&[reason]);
    }
}

#[test]
fn an_index_survives_kills_with_writers_and_readers_in_it() {
    for (index, key, domain) in [
        ("fastfair", "u64", "process"),
        ("fptree", "u64", "dax-emulated"),
        ("skiplist", "bytes:12", "process"),
        ("hash", "u64", "block"),
        ("hybrid", "u64", "process"),
        ("hybrid-plus", "u64", "process"),
        ("acs-fptree", "u64", "process"),
        ("map", "bytes:12", "process"),
    ] {
        let place = Place::new();
        let mut words = vec!["torture", "index", "--index", index, "--key", key, "--domain", domain, "--kills", "3"];
        words.extend(["--records", "300", "--load-ms-max", "20"]);
        let lines = place.json(words);
        let [summary] = &lines[..] else { panic!("one summary: {lines:?}") };
        assert_eq!((figure(summary, "kills"), figure(summary, "lost")), (3.0, 0.0), "{summary}");
        assert_eq!(summary["wrong"], Value::Array(Vec::new()), "{summary}");
        assert!(figure(summary, "acked") > 0.0, "{summary}");
    }
    let place = Place::new();
    place.run(["torture", "index", "--index", "map", "--kills", "1"]).fails_with(&["takes strings"]);
    place.run(["torture", "index", "--index", "none"]).fails_with(&["unknown index"]);
}

#[test]
fn a_kill_test_without_a_kill_does_not_say_that_anything_holds() {
    let place = Place::new();
    let index = ["torture", "index", "--index", "fastfair", "--domain", "process", "--records", "64"];
    place.run(index.into_iter().chain(["--kills", "0"])).fails_with(&["--kills"]);
    place.run(index.into_iter().chain(["--seconds", "0"])).fails_with(&["--seconds needs a positive number"]);
    place.run(["torture", "kill", "--kills", "0"]).fails_with(&["--kills"]);
    place.run(["torture", "bank", "--kills", "0"]).fails_with(&["--kills 0 without --transfers"]);
    // However short the time, there is one.
    let lines = place.json(index.into_iter().chain(["--seconds", "1e-9", "--load-ms-max", "1"]));
    assert_eq!(lines[0]["kills"], 1, "{lines:?}");
}

#[test]
fn an_opening_is_measured_after_a_clean_end_and_after_a_kill() {
    let place = Place::new();
    let mut words = vec!["bench", "index", "--index", "fptree,hybrid-plus", "--open", "--records", "3000"];
    words.extend(["--durability", "process", "--pool-size", "32MiB"]);
    let lines = place.json(words);
    let after: Vec<_> = lines.iter().map(|line| line["after"].as_str().expect("a word")).collect();
    assert_eq!(after, ["clean", "kill", "clean", "kill"]);
    for line in &lines {
        let time = |key| figure(line, key);
        assert!(time("first_answer_ms") > 0.0 && time("full_speed_ms") >= time("first_answer_ms"), "{line}");
        assert!(time("reads_per_s") > 0.0 && time("warm_ms") > 0.0, "{line}");
    }
    // On an ordinary file too, where a kill takes changes that were not durable yet: the loader waits for it.
    let lines = place.json(["bench", "index", "--index", "fptree", "--open", "--records", "2000"]);
    assert_eq!(lines.len(), 2, "{lines:?}");
    place.run(["bench", "index", "--index", "btreemap-lock", "--open"]).fails_with(&["nothing to open again"]);
}
