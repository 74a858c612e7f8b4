//! `--log` and `--log-format`: events on standard error.

use crate::common::{Done, Place};
use serde_json::Value;

/// A place with a database of one table.
fn place() -> Place {
    let place = Place::new();
    place.run(["pool", "create", "shop.pool", "--size", "32MiB"]).ok();
    place.run(["db", "create", "shop.pool", "t (k u64, v i64) key (k)", "--log-bytes", "1MiB"]).ok();
    place
}

/// The events in `done`, one a line.
fn events(done: &Done) -> Vec<Value> {
    done.stderr.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}

fn named<'e>(events: &'e [Value], message: &str) -> Option<&'e Value> {
    events.iter().find(|event| event["message"] == message)
}

#[test]
fn nothing_is_printed_unless_asked_for() {
    let done = place().run(["db", "tables", "shop.pool"]);
    assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""));
}

#[test]
fn events_as_lines_of_json() {
    let done = place().run(["db", "tables", "shop.pool", "--log", "debug", "--log-format", "json"]);
    let events = events(&done);
    let opened = named(&events, "database opened").expect("the event");
    assert_eq!((opened["level"].as_str(), opened["target"].as_str()), (Some("INFO"), Some("lodestone::open")));
    assert_eq!((opened["was_clean"].as_bool(), opened["rows"].as_u64()), (Some(true), Some(2)), "{opened}");
    assert!(opened["path"].as_str().is_some_and(|path| path.ends_with("shop.pool")) && opened["timestamp"].is_string());
    assert!(named(&events, "open phase").is_some() && named(&events, "pool opened").is_some());
    assert!(done.ok().contains('t'), "results stay on standard output");
}

#[test]
fn a_target_has_a_level_of_its_own() {
    let place = place();
    let args = ["--log", "lodestone::pool=info", "--log-format=json", "db", "tables", "shop.pool"];
    let events = events(&place.run(args));
    assert!(!events.is_empty() && events.iter().all(|event| event["target"] == "lodestone::pool"), "{events:?}");
}

#[test]
fn the_environment_asks_too_and_an_option_has_the_last_word() {
    let place = place();
    let run = |args: &[&str]| {
        let mut command = place.command(args);
        let output = command.env("LODESTONE_LOG", "info").env("LODESTONE_LOG_FORMAT", "text").output().expect("run");
        String::from_utf8(output.stderr).expect("text")
    };
    let text = run(&["db", "tables", "shop.pool"]);
    assert!(text.contains("INFO lodestone::open: database opened path="), "{text}");
    assert_eq!(run(&["--log", "off", "db", "tables", "shop.pool"]), "");
    let done = place.command(["db", "tables", "shop.pool"]).env("LODESTONE_LOG", "loud").output().expect("run");
    let text = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(
        done.status.code() == Some(2) && text.contains("LODESTONE_LOG=loud") && text.contains("no level"),
        "{text}"
    );
}

#[test]
fn mistakes_are_wrong_usage() {
    place().run(["--log", "lodestone::rounds=info", "db", "tables", "shop.pool"]).fails_with(&["lodestone::round,"]);
}

#[test]
fn commands_of_the_laboratory_take_the_options_before_their_names() {
    let place = Place::new();
    let done = place.run(["--log", "info", "bench", "index", "--help"]);
    assert!(done.ok().contains("--index"));
}
