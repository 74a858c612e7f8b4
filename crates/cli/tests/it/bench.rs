//! Benchmarks and the guided run: their output and exit codes. No figure is judged.

use crate::common::Place;

/// The keys that every benchmark's line has.
const KEYS: [&str; 23] = [
    "bench",
    "engine",
    "workload",
    "records",
    "operations",
    "threads",
    "seed",
    "domain",
    "media",
    "durability",
    "ops_per_s",
    "latency_ns_p50",
    "latency_ns_p99",
    "latency_ns_p99_9",
    "latency_ns_max",
    "fences_per_op",
    "flushes_per_op",
    "pm_bytes_per_op",
    "media_blocks_per_op",
    "syncs_per_op",
    "aborts_per_commit",
    "pm_bytes_per_record",
    "dram_bytes_per_record",
];

#[test]
fn every_workload_and_durability_prints_the_agreed_keys() {
    let place = Place::new();
    for durability in ["sync", "relaxed", "process"] {
        let small = ["--records", "500", "--operations", "100", "--threads", "2", "--verify"];
        let mut words = vec!["bench", "ycsb", "--workload", "all", "--durability", durability];
        words.extend(small);
        let lines = place.json(words);
        assert_eq!(lines.len(), 6, "one line for each of the workloads A to F");
        for line in &lines {
            for key in KEYS {
                assert!(line.get(key).is_some(), "`{key}` is missing in {line}");
            }
            assert_eq!(line["durability"], durability);
            assert_eq!(line["operations"], 100);
            assert_eq!(line["missing"], 0);
            let syncs = line["syncs_per_op"].as_f64().expect("syncs are counted");
            assert!(durability != "process" || syncs == 0.0, "the process domain syncs nothing: {line}");
        }
    }
    let left = std::fs::read_dir(place.path("")).expect("folder").count();
    assert_eq!(left, 0, "a benchmark leaves nothing behind");
}

#[test]
fn the_substrate_is_compared_on_a_file_and_in_memory() {
    let place = Place::new();
    let few = ["bench", "substrate", "--rounds", "3"];
    let in_memory = place.json(few.into_iter().chain(["--no-device"]));
    assert_eq!(in_memory.len(), 4, "persist and stream, on hot and on random lines");
    assert!(in_memory.iter().all(|line| line["bench"] == "substrate" && line["ratio"].as_f64() > Some(0.0)));
    let on_file = place.json(few.into_iter().chain(["--path", "scratch.pool"]));
    assert_eq!(on_file.len(), 6, "and durable() beside two bare ways");
    assert_eq!((&on_file[0]["domain"], &on_file[4]["domain"]), (&"dax-emulated".into(), &"block".into()));
    assert_eq!(std::fs::read_dir(place.path("")).expect("folder").count(), 0, "nothing is left behind");
    place.write("mine", "precious");
    place.run(["bench", "substrate", "--path", "mine"]).fails_with(&["mine", "of its own"]);
    assert_eq!(place.read("mine"), "precious");
}

#[test]
fn contradictions_and_nonsense_are_refused() {
    let place = Place::new();
    place.run(["bench", "ycsb", "--durability", "process", "--domain", "block"]).fails_with(&["--durability process"]);
    place.run(["bench", "ycsb", "--domain", "process"]).fails_with(&["--durability process"]);
    place.run(["bench", "ycsb", "--workload", "z"]).fails_with(&["`z`"]);
    place.run(["bench", "ycsb", "--theta", "1.5"]).fails_with(&["theta"]);
    place.run(["bench", "ycsb", "--records", "0"]).fails_with(&["records"]);
}

#[test]
fn the_guided_run_holds_and_writes_its_page() {
    let place = Place::new();
    let lines = place.json(["demo", "--seconds", "1", "--kills", "3", "--report", "page.html"]);
    let events = |name: &str| lines.iter().filter(|line| line["event"] == name).count();
    assert_eq!((events("step"), events("kill"), events("end")), (9, 3, 1));
    let end = lines.last().expect("an end");
    assert_eq!((&end["event"], &end["failed"]), (&"end".into(), &0.into()), "{end}");
    let imported = lines.iter().find(|line| line["event"] == "summary").expect("an import");
    assert!(imported["rows"].as_u64() >= Some(50_000), "{imported}");
    let page = std::fs::read_to_string(place.path("page.html")).expect("page");
    assert!(page.contains("A writer that is killed") && page.contains("</html>"));
    assert!(
        !page.contains("src=") && !page.contains("href=\"http") && !page.contains("<script"),
        "the page is self-contained"
    );
}

#[test]
fn transactions_on_a_database_print_the_agreed_keys_and_keep_their_rules() {
    let place = Place::new();
    let few = ["--operations", "300", "--threads", "1,2", "--log-bytes", "4MiB", "--pool-bytes", "256MiB"];
    for workload in [
        &["tpcc", "--warehouses", "2", "--items", "100", "--customers", "30"][..],
        &["tpcb", "--accounts", "200"],
        &["smallbank", "--customers", "200"],
    ] {
        let words = |more: &[&'static str]| [&["bench"], workload, &few, more].concat();
        let lines = place.json(words(&[]));
        assert_eq!(lines.len(), 2, "one line for each number of threads");
        for line in &lines {
            for key in KEYS {
                assert!(line.get(key).is_some(), "`{key}` is missing in {line}");
            }
            assert_eq!((&line["bench"], &line["engine"]), (&workload[0].into(), &"lodestone".into()));
            assert_eq!((&line["operations"], &line["rules_violated"]), (&300.into(), &0.into()));
            let fences = line["fences_per_op"].as_f64().expect("fences are counted");
            assert!((0.5..1.5).contains(&fences), "one fence for a change: {line}");
            let log = line["log_bytes_per_op"].as_f64().expect("the log is counted");
            assert!((64.0..4_352.0).contains(&log), "{line}");
        }
        let text = place.run(words(&["--engine", "memory"])).ok();
        assert!(text.contains("all rules hold"), "{text}");
    }
    let ycsb =
        ["bench", "ycsb", "--engine", "db", "--workload", "a,e", "--records", "500", "--operations", "200", "--verify"];
    for line in place.json(ycsb) {
        let found = (&line["engine"], &line["missing"], &line["loaded_before"]);
        assert_eq!(found, (&"lodestone-db".into(), &0.into(), &false.into()));
    }
    let file = ["bench", "ycsb", "--engine", "db", "--path", "loaded.pool", "--operations", "200"];
    place.run([&file[..], &["--records", "500", "--keep"]].concat()).ok();
    let lines = place.json([&file[..], &["--records", "500", "--loaded", "--verify"]].concat());
    assert_eq!((&lines[0]["missing"], &lines[0]["loaded_before"]), (&0.into(), &true.into()));
    assert!(lines[0]["load_ops_per_s"].is_null(), "nothing was loaded: {}", lines[0]);
    place.run([&file[..], &["--records", "600", "--loaded"]].concat()).fails_with(&["or fewer were"]);
    let absent = ["bench", "ycsb", "--engine", "db", "--path", "absent.pool", "--loaded"];
    place.run(absent).fails_with(&["absent.pool", "--keep"]);
    place.run(["bench", "ycsb", "--path", "loaded.pool", "--loaded"]).fails_with(&["--loaded is for --engine db"]);
}

#[test]
fn an_open_after_a_crash_is_measured_and_all_rows_are_compared() {
    let place = Place::new();
    for more in [&[][..], &["--whole-rows"]] {
        let words = ["bench", "recovery", "--rows", "300", "--updates", "1000", "--threads", "3"];
        let lines = place.json([&words[..], more].concat());
        let [line] = &lines[..] else { panic!("one line: {lines:?}") };
        // Three threads make 333 changes each.
        assert_eq!((&line["records"], &line["logs"]), (&999.into(), &3.into()), "{line}");
        let bytes = line["log_bytes"].as_u64().expect("the log is counted");
        assert!((999 * 64..999 * 512).contains(&bytes), "{line}");
        assert!(line["page_bytes"].as_u64() > Some(300 * 90), "{line}");
        assert!(line["open_seconds"].as_f64() > Some(0.0), "{line}");
    }
}

/// The pool that is made only to find out its domain takes no name, and does not stay.
#[test]
fn a_pool_that_is_kept_is_alone_and_whole() {
    let place = Place::new();
    let folder = place.path("kept");
    std::fs::create_dir(&folder).expect("a folder");
    let pool = folder.join("kept.pool").display().to_string();
    let words = ["bench", "recovery", "--rows", "300", "--updates", "10", "--keep", "--path", &pool];
    assert!(place.run(words).ok().contains("domain"));
    let names = std::fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("an entry").file_name());
    assert_eq!(names.collect::<Vec<_>>(), ["kept.pool"]);
    place.run(["db", "check", &pool]).ok();
    place.run(words).fails_with(&["a benchmark needs a pool file of its own"]);
}

#[test]
fn ways_of_a_commit_are_measured_in_turns_and_compared() {
    let place = Place::new();
    let few = ["--operations", "300", "--log-bytes", "4MiB", "--pool-bytes", "64MiB"];
    let ways = ["--ways", "sync,none,epoch:0.1ms,naive,late+flush,dual", "--turns", "2"];
    for workload in [
        &["tpcc", "--warehouses", "2", "--items", "100", "--customers", "30", "--threads", "2"][..],
        &["tpcb", "--accounts", "200", "--threads", "1,2"],
        &["smallbank", "--customers", "200", "--profile", "optane"],
    ] {
        let lines = place.json([&["bench"], workload, &few, &ways].concat());
        let of = |kind: &str| lines.iter().filter(|line| line["kind"] == kind).collect::<Vec<_>>();
        let (runs, medians, comparisons) = (of("run"), of("median"), of("comparison"));
        let of_threads = if workload.contains(&"1,2") { 2 } else { 1 };
        let expected = [2 * 6, 6, 5].map(|count| count * of_threads);
        assert_eq!([runs.len(), medians.len(), comparisons.len()], expected, "{workload:?}");
        let emulation = usize::from(workload.contains(&"optane"));
        assert_eq!(lines.len(), expected.iter().sum::<usize>() + emulation, "the emulation tells what it charged");
        let turn =
            |turn: usize| runs[6 * turn..6 * turn + 6].iter().map(|line| line["way"].as_str().unwrap_or_default());
        assert!(turn(0).eq(["sync", "none", "epoch:0.1ms", "naive", "late+flush", "dual"]), "{runs:?}");
        assert!(turn(1).eq(turn(0).rev()), "every second turn is in reverse order");
        for line in runs.iter().chain(&medians) {
            for key in KEYS {
                assert!(line.get(key).is_some(), "`{key}` is missing in {line}");
            }
            assert_eq!((&line["operations"], &line["rules_violated"]), (&300.into(), &0.into()));
            assert!(line["latency_ns_mean"].as_u64() > Some(0), "{line}");
            let is_modelled = line["media"].as_str().is_some_and(|medium| medium.contains("optane"));
            assert_eq!(is_modelled, workload.contains(&"optane"), "{line}");
            let (fences, log) = (line["fences_per_op"].as_f64(), line["log_bytes_per_op"].as_f64());
            let survives = line["durability"].as_str();
            match line["way"].as_str() {
                Some("none") => assert_eq!((fences, log, survives), (Some(0.0), Some(0.0), Some("none")), "{line}"),
                Some("epoch:0.1ms") => assert!(fences < Some(0.8) && log > Some(32.0), "one fence an epoch: {line}"),
                _ => assert!(fences > Some(0.5) && log > Some(32.0) && survives == Some("sync"), "{line}"),
            }
        }
        for line in comparisons {
            assert_eq!(line["way"], "sync");
            for key in ["throughput_ratio", "latency_mean_ratio", "latency_p50_ratio", "latency_p99_ratio", "domain"] {
                assert!(!line[key].is_null(), "`{key}` is missing in {line}");
            }
        }
    }
    let small = [&["bench", "smallbank", "--customers", "200"][..], &few].concat();
    let text = place.run(small.iter().chain(&["--ways", "sync,none"])).ok();
    assert!(text.contains("ratios of the first way") && text.contains("all rules hold"), "{text}");
    place.run(small.iter().chain(&["--ways", "quick"])).fails_with(&["`quick`"]);
    place.run(small.iter().chain(&["--engine", "memory", "--ways", "none"])).fails_with(&["--ways"]);
}
