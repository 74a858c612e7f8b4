//! The explorer from the shell: its output and exit codes.

use crate::common::Place;

fn keys(object: &serde_json::Value) -> Vec<&str> {
    object.as_object().expect("object").keys().map(String::as_str).collect()
}

/// The objects without the summary at the end.
fn reports_of(mut objects: Vec<serde_json::Value>) -> Vec<serde_json::Value> {
    let summary = objects.pop().expect("a summary");
    assert_eq!(summary["event"], "summary");
    objects
}

#[test]
fn a_run_prints_the_agreed_keys() {
    let place = Place::new();
    let listed = place.json(["crash", "list"]);
    assert!(listed.iter().any(|target| target["target"] == "pool-create"), "{listed:?}");
    let objects = place.json(["crash", "run", "pool-create", "--profile", "adr,eadr"]);
    assert_eq!(objects.len(), 3, "two runs and a summary");
    let mut expected =
        ["target", "profile", "mode", "bound", "states", "exhausted", "nested_depth", "violations", "seed", "seconds"];
    expected.sort_unstable();
    assert_eq!(keys(&objects[0]), expected);
    assert_eq!((&objects[0]["violations"], &objects[0]["exhausted"]), (&0.into(), &true.into()));
    assert_eq!(objects[1]["profile"], "eadr");
}

/// Every target of every floor under every profile, a few states of each: the command is tested, not the floors.
#[test]
fn everything_is_explored_and_holds() {
    let place = Place::new();
    let listed = place.json(["crash", "list"]);
    // One process for each profile: they share nothing.
    let explored = |profile| reports_of(place.json(["crash", "run", "--all", "--profile", profile, "--bound", "12"]));
    let reports: Vec<serde_json::Value> = std::thread::scope(|scope| {
        let runs = ["adr", "eadr", "block"].map(|profile| scope.spawn(move || explored(profile)));
        runs.into_iter().flat_map(|run| run.join().expect("no panic")).collect()
    });
    assert_eq!(reports.len(), listed.len() * 3);
    for report in &reports {
        assert_eq!(report["violations"], 0, "{report}");
        assert!(report["exhausted"] == true || report["states"].as_u64() > Some(10), "{report}");
    }
    for layer in ["pool-", "heap-", "map-", "fastfair-", "stm-", "collections-"] {
        let explored =
            |report: &serde_json::Value| report["target"].as_str().is_some_and(|name| name.starts_with(layer));
        assert!(reports.iter().any(explored), "{layer}");
    }
}

#[test]
fn a_bound_that_is_too_small_is_told() {
    let place = Place::new();
    let objects = place.json(["crash", "run", "pool-create", "--bound", "10"]);
    assert_eq!((&objects[0]["exhausted"], &objects[0]["bound"]), (&false.into(), &10.into()));
}

#[test]
fn a_floor_and_an_option_name_targets_too() {
    let place = Place::new();
    let names = |arguments: &[&str]| -> Vec<String> {
        let all = ["crash", "run", "--depth", "0", "--bound", "50", "--profile", "block"];
        let reports = reports_of(place.json(all.iter().chain(arguments).copied()));
        reports.iter().filter_map(|report| report["target"].as_str().map(str::to_owned)).collect()
    };
    assert_eq!(names(&["--target", "pool-create,pool-boot"]), ["pool-create", "pool-boot"]);
    assert_eq!(names(&["pool"]), names(&["--target", "pool"]));
    assert!(names(&["pool"]).len() > 2);
}

#[test]
fn names_and_tokens_that_mean_nothing_are_refused() {
    let place = Place::new();
    place.run(["crash", "run", "no-such-target"]).fails_with(&["`no-such-target`", "crash list"]);
    place.run(["crash", "run", "--all", "--profile", "xdr"]).fails_with(&["xdr", "adr"]);
    place.run(["crash", "run"]).fails_with(&["--all"]);
    place.run(["crash", "replay", "gibberish"]).fails_with(&["token"]);
}

/// A target's own bound must not override the user's, and the last line must say which runs were left out.
#[test]
fn the_bound_of_the_user_wins_and_the_end_names_what_was_not_exhausted() {
    let place = Place::new();
    let own = |arguments: &[&str]| {
        let all = ["crash", "run", "--target", "collections-insert", "--profile", "block", "--depth", "0"];
        place.json(all.iter().chain(arguments).copied())
    };
    let capped = own(&[]);
    let raised = own(&["--bound", "5000"]);
    assert_eq!(capped[0]["bound"], 3000, "this target has a bound of its own: {}", capped[0]);
    assert_eq!(raised[0]["bound"], 5000, "the bound that was asked for counts: {}", raised[0]);

    let small = place.json(["crash", "run", "pool-create", "pool-boot", "--bound", "10"]);
    let summary = small.last().expect("summary");
    assert_eq!((&summary["event"], &summary["targets"]), (&"summary".into(), &2.into()));
    let left = summary["not_exhausted"].as_array().expect("list");
    assert!(left.iter().any(|one| one["target"] == "pool-create" && one["bound"] == 10), "{summary}");
    let text = place.run(["crash", "run", "pool-create", "--bound", "10"]).ok();
    let last = text.lines().last().expect("a verdict");
    for part in ["no violation found", "1 of 1 run was not exhausted", "pool-create (adr", "raise --bound"] {
        assert!(last.contains(part), "{part}: {last}");
    }
    let text = place.run(["crash", "run", "pool-create"]).ok();
    assert!(text.lines().last().is_some_and(|last| last.contains("every state of every run was judged")), "{text}");
}

#[test]
fn a_token_of_a_foreign_target_says_who_can_replay_it() {
    let place = Place::new();
    place.run(["crash", "replay", "my-target~adr~0~-~-~k3"]).fails_with(&[
        "`my-target`",
        "LODESTONE_REPLAY=",
        "cargo test",
    ]);
}
