//! Help, version, completions, exit codes of wrong usage.

use crate::common::Place;

#[test]
fn help_says_how_and_with_which_codes() {
    let place = Place::new();
    let help = place.run(["--help"]).ok();
    for part in ["pool", "kv", "crash", "completions", "Examples:", "Exit codes:", "--json"] {
        assert!(help.contains(part), "{part}");
    }
    assert!(help.contains("torture") && help.contains("man "), "{help}");
    assert!(place.run(["kv", "import", "--help"]).ok().contains("--rejects"));
    assert_eq!(place.run(["--version"]).ok(), format!("lodestone {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn wrong_usage_ends_with_two() {
    let place = Place::new();
    place.run(["fly"]).fails_with(&["fly"]);
    place.run(["kv", "get"]).fails_with(&["--help"]);
    place.run(["pool", "create", "a.pool", "--sise", "1MiB"]).fails_with(&["--size"]);
    let objects = place.command(["pool", "info", "none.pool", "--json"]).output().expect("run");
    assert!(objects.stdout.is_empty());
    let error: serde_json::Value = serde_json::from_slice(&objects.stderr).expect("one JSON object");
    assert!(error["error"].as_str().is_some_and(|text| text.contains("none.pool")), "{error}");
}

#[test]
fn shells_get_completions() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = place.run(["completions", shell]).ok();
        assert!(script.contains("lodestone") && script.contains("import"), "{shell}");
    }
}
