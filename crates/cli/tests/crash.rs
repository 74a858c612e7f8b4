//! The explorer from the shell: what is printed, and with which code it ends.

mod common;

use common::Place;

fn keys(object: &serde_json::Value) -> Vec<&str> {
    object.as_object().expect("object").keys().map(String::as_str).collect()
}

#[test]
fn a_run_prints_the_agreed_keys() {
    let place = Place::new();
    let listed = place.json(["crash", "list"]);
    assert!(listed.iter().any(|target| target["target"] == "pool-create"), "{listed:?}");
    let objects = place.json(["crash", "run", "pool-create", "--profile", "adr,eadr"]);
    assert_eq!(objects.len(), 2);
    let mut expected =
        ["target", "profile", "mode", "bound", "states", "exhausted", "nested_depth", "violations", "seed", "seconds"];
    expected.sort_unstable();
    assert_eq!(keys(&objects[0]), expected);
    assert_eq!((&objects[0]["violations"], &objects[0]["exhausted"]), (&0.into(), &true.into()));
    assert_eq!(objects[1]["profile"], "eadr");
}

#[test]
fn a_bound_that_is_too_small_is_told() {
    let place = Place::new();
    let objects = place.json(["crash", "run", "pool-create", "--bound", "10"]);
    assert_eq!((&objects[0]["exhausted"], &objects[0]["bound"]), (&false.into(), &10.into()));
}

#[test]
fn names_and_tokens_that_mean_nothing_are_refused() {
    let place = Place::new();
    place.run(["crash", "run", "no-such-target"]).fails_with(&["`no-such-target`", "crash list"]);
    place.run(["crash", "run", "--all", "--profile", "xdr"]).fails_with(&["xdr", "adr"]);
    place.run(["crash", "run"]).fails_with(&["--all"]);
    place.run(["crash", "replay", "gibberish"]).fails_with(&["token"]);
}
