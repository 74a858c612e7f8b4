//! `lodestone media` and `--profile` as a user runs them.

use crate::common::Place;

#[test]
fn profiles_are_listed_shown_edited_and_used() {
    let place = Place::with_pool("16MiB");
    let list = place.run(["media", "profiles", "--json"]).ok();
    assert_eq!(list.lines().count(), 3, "{list}");
    assert!(list.contains("\"name\":\"optane\"") && list.contains("\"read_64_ns\":201.0"), "{list}");
    let text = place.run(["media", "show", "optane"]).ok();
    place.write("my.toml", text.replace("name = \"optane\"", "name = \"mine\""));
    let info = place.run(["pool", "info", "a.pool", "--profile", "my.toml", "--virtual-time"]).ok();
    assert!(info.contains("emulated: mine, virtual time"), "{info}");
    // Without comments, from the parsed profile.
    let again = place.run(["media", "show", "my.toml"]).ok();
    assert!(again.contains("name = \"mine\"") && again.contains("[instrument]"), "{again}");
}

#[test]
fn a_command_on_an_emulated_medium_says_so_and_what_it_charged() {
    let place = Place::with_pool("16MiB");
    let put = ["kv", "put", "a.pool", "key", "value", "--domain", "dax-emulated", "--profile", "optane"];
    let charged = |output: String| {
        let last = output.lines().last().expect("a line").to_owned();
        let value: serde_json::Value = serde_json::from_str(&last).expect("json");
        assert_eq!(value["emulated"], true, "{last}");
        value
    };
    let spinning = charged(place.run(put.iter().chain(&["--json"])).ok());
    assert_eq!(spinning["medium"], "optane, spinning");
    let first = charged(place.run(put.iter().chain(&["--virtual-time", "--json"])).ok());
    assert_eq!(first["medium"], "optane, virtual time");
    assert!(
        first["charged_ns"].as_u64() > Some(1000) && first["counts"]["blocks_written"].as_u64() > Some(0),
        "{first}"
    );
    let text = place.run(["kv", "get", "a.pool", "key", "--profile", "cxl"]);
    assert!(text.stderr.contains("emulated medium: cxl, spinning"), "{text:?}");
    assert_eq!(text.ok().trim(), "value");
    let plain = place.run(["kv", "get", "a.pool", "key", "--json"]).ok();
    assert!(!plain.contains("emulated"), "{plain}");
}

#[test]
fn a_benchmark_names_the_profile_as_its_medium() {
    let place = Place::new();
    let small = ["bench", "ycsb", "--records", "200", "--operations", "200", "--domain", "dax-emulated", "--json"];
    let output = place.run(small.iter().chain(&["--profile", "optane"])).ok();
    assert!(output.contains("\"media\":\"emulated: optane, spinning (on "), "{output}");
    place.run(small.iter().chain(&["--profile", "optane", "--virtual-time"])).fails_with(&["--virtual-time"]);
}

/// Whether a text promises that anything survives. On a file system in memory it says that nothing does.
fn promises(text: &str) -> bool {
    text.replace("nothing in this pool survives", "").contains("survives")
}

/// The instructions of `dax` on a medium that keeps nothing: no output calls that `dax`, or promises anything.
#[test]
fn the_emulated_domain_is_named_everywhere_and_promises_nothing() {
    let place = Place::new();
    let emulated = ["--domain", "dax-emulated"];
    let create = ["pool", "create", "a.pool", "--size", "16MiB"];
    let text = place.run(create.iter().chain(&emulated)).ok();
    assert!(text.contains("dax-emulated domain: NOT durable") && !promises(&text), "{text}");
    let created = place.json(["pool", "create", "a.pool", "--size", "16MiB", "--overwrite"].iter().chain(&emulated));
    assert_eq!(created[0]["domain"], "dax-emulated");
    assert!(created[0]["promise"].as_str().is_some_and(|text| text.starts_with("NOT durable")), "{created:?}");
    let put = place.json(["kv", "put", "a.pool", "key", "value"].iter().chain(&emulated));
    assert_eq!(put[0]["domain"], "dax-emulated");
    let info = place.json(["pool", "info", "a.pool"].iter().chain(&emulated));
    assert_eq!(info[0]["domain"], "dax-emulated");
    assert!(info[0]["promise"].as_str().is_some_and(|text| text.starts_with("NOT durable")), "{info:?}");
    let text = place.run(["pool", "info", "a.pool"].iter().chain(&emulated)).ok();
    assert!(text.contains("dax-emulated: NOT durable") && !promises(&text), "{text}");
    place.write("rows.csv", "id,name\n1,one\n");
    let import = place.run(["kv", "import", "a.pool", "rows.csv", "--key", "id"].iter().chain(&emulated)).ok();
    assert!(import.contains("dax-emulated domain"), "{import}");
    let report = place.run(["torture", "writer", "t.pool", "--ops", "20"].iter().chain(&emulated)).ok();
    place.write("report", report);
    let verify = ["torture", "verify", "t.pool", "report"];
    assert_eq!(place.json(verify.iter().chain(&emulated))[0]["domain"], "dax-emulated");
    let model = place.json(["media", "probe", "--profile", "dram", "--quick", "--size", "1MiB", "--sections", "fence"]);
    assert_eq!(model[0]["target"]["domain"], "dax-emulated");
}

#[test]
fn kills_and_benchmarks_take_a_profile_and_name_it() {
    let place = Place::new();
    let emulated = ["--profile", "dram"];
    let kill = ["torture", "kill", "--kills", "3", "--domain", "dax-emulated", "--virtual-time"];
    let killed = place.json(kill.iter().chain(&emulated));
    assert_eq!((&killed[0]["domain"], &killed[0]["medium"]), (&"dax-emulated".into(), &"dram, virtual time".into()));
    assert!(killed[0]["promise"].as_str().is_some_and(|text| text.starts_with("NOT durable")), "{killed:?}");
    let stm = ["bench", "stm", "--operations", "50", "--keys", "50", "--buckets", "64", "--engine", "stm,tl2-redo"];
    for line in place.json(stm.iter().chain(&emulated)).iter().filter(|line| line.get("bench").is_some()) {
        assert!(
            line["media"].as_str().is_some_and(|media| media.starts_with("emulated: dram, spinning (on ")),
            "{line}"
        );
    }
    assert!(place.run(stm.iter().chain(&emulated)).ok().contains("medium emulated: dram, spinning"));
    let substrate = ["bench", "substrate", "--rounds", "3", "--no-device"];
    let lines = place.json(substrate.iter().chain(&emulated));
    let measured: Vec<_> = lines.iter().filter(|line| line["bench"] == "substrate").collect();
    assert_eq!((measured.len(), &lines.last().expect("a line")["emulated"]), (4, &true.into()));
    for line in measured {
        assert_eq!(line["media"], "emulated: dram, spinning (on DRAM of this process)");
        assert!(line["holds"].is_null() && line["ratio_max"].is_null(), "nothing is judged: {line}");
    }
    place.run(substrate.iter().chain(&emulated).chain(&["--assert"])).fails_with(&["--assert", "--profile"]);
    assert_eq!(std::fs::read_dir(place.path("")).expect("folder").count(), 0, "nothing is left behind");
}

#[test]
fn every_command_that_takes_a_profile_refuses_an_unknown_one() {
    let place = Place::new();
    for words in [
        &["demo"][..],
        &["torture", "kill"],
        &["torture", "writer", "a.pool"],
        &["bench", "substrate"],
        &["bench", "stm"],
        &["bench", "ycsb"],
        &["bench", "agents"],
        &["media", "probe"],
        &["media", "verify"],
        &["pool", "create", "a.pool"],
        &["kv", "get", "a.pool", "key"],
    ] {
        place.run(words.iter().chain(&["--profile", "optain"])).fails_with(&["`optain`", "dram, optane, cxl"]);
    }
    assert_eq!(std::fs::read_dir(place.path("")).expect("folder").count(), 0, "and leaves nothing behind");
}

#[test]
fn wrong_profiles_are_refused_with_the_names_or_the_key() {
    let place = Place::with_pool("16MiB");
    let info = |profile: &str| place.run(["pool", "info", "a.pool", "--profile", profile]);
    info("optain").fails_with(&["`optain`", "dram, optane, cxl"]);
    info("missing.toml").fails_with(&["missing.toml", "No such file"]);
    let text = place.run(["media", "show", "dram"]).ok();
    place.write("bad.toml", text.replace("threads_half = 8.0", "threads_half = -1"));
    info("bad.toml").fails_with(&["bad.toml", "`mixed.threads_half`", "expected a number", "found -1"]);
    place.run(["pool", "info", "a.pool", "--virtual-time"]).fails_with(&["--profile"]);
    place.run(["media", "verify", "--profile", "cxl"]).fails_with(&["no paper measured CXL"]);
}

#[test]
fn verify_ends_with_a_finding_when_a_profile_is_bent() {
    let place = Place::new();
    let good = place.run(["media", "verify", "--profile", "dram", "--json"]).ok();
    assert!(good.lines().last().is_some_and(|line| line.contains("\"holds\":true")), "{good}");
    let text = place.run(["media", "show", "optane"]).ok();
    place.write("bent.toml", text.replace("read_factor = 10.0", "read_factor = 5.0"));
    let bent = place.run(["media", "verify", "--profile", "bent.toml"]).finding();
    let wrong: Vec<&str> = bent.stdout.lines().filter(|line| line.contains("DOES NOT HOLD")).collect();
    assert!(
        matches!(wrong.as_slice(), [line] if line.contains("random read 256 B: local against remote")),
        "{wrong:?}"
    );
}

#[test]
fn hardware_transactions_are_aborted_where_the_caches_end_and_by_flushes() {
    let place = Place::new();
    let mut words = vec!["sim", "htm", "--sizes", "32KiB,33KiB", "--times-ns", "100", "--transactions", "20"];
    words.extend(["--profiles", "optane", "--interrupt-ns", "0"]);
    let lines = place.json(words.clone());
    assert_eq!((&lines[0]["kind"], &lines[0]["figures"]), (&"model".into(), &"predicted".into()));
    let rate = |kind: &str, access: &str, bytes: u64, order: &str| {
        let mut fits = lines.iter().filter(|line| line["kind"] == kind && line["access"] == access);
        let line = fits.find(|line| line["bytes"] == bytes && line["order"] == order);
        line.and_then(|line| line["abort_rate"].as_f64()).expect("a rate")
    };
    let stores = [32 << 10, 33 << 10].map(|bytes| rate("size", "store", bytes, "sequential"));
    let loads = [32 << 10, 33 << 10].map(|bytes| rate("size", "load", bytes, "sequential"));
    assert_eq!((stores, loads), ([0.0, 1.0], [0.0, 0.0]));
    let instructions = ["none", "load", "store", "stream", "flush"].map(|access| rate("time", access, 64, "random"));
    assert_eq!(instructions, [0.0, 0.0, 0.0, 1.0, 1.0]);
    let text = place.run(words).ok();
    assert!(text.starts_with("assumed: a model: stores in 32 KiB of 8 ways"), "{text}");
    place.run(["sim", "htm", "--sizes", "32KiB", "--profiles", "tape"]).fails_with(&["tape"]);
}

#[test]
fn a_benchmark_in_emulated_regions_counts_their_aborts() {
    let place = Place::new();
    let mut words = vec!["bench", "tpcc", "--items", "200", "--customers", "10", "--operations", "300"];
    words.extend(["--ways", "sync,emulated:0.9", "--durability", "process", "--log-bytes", "4MiB"]);
    let lines: Vec<_> = place.json(words).into_iter().filter(|line| line["kind"] == "run").collect();
    let of = |way: &str| lines.iter().find(|line| line["way"] == way).expect("a run").clone();
    assert!(of("sync")["regions"].is_null());
    let emulated = of("emulated:0.9");
    let count = |name: &str| emulated[name].as_u64().expect("a count");
    assert!(count("region_conflicts") > count("regions") && count("region_fallbacks") > 0, "{emulated}");
    place.run(["bench", "tpcc", "--ways", "emulated:7"]).fails_with(&["0 to 1"]);
}
