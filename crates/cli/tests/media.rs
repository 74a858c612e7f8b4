//! `lodestone media` and `--profile` as a user has them.

mod common;

use common::Place;

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
