//! The command that a violation prints must show it again, also if the target is code of a test.

use std::process::Command;

use lodestone_crash::{Config, Explore, Failure, Profile, REPLAY_VARIABLE, replay};

/// A mark that is persistent before the value that it announces. Its name needs quotes in a shell.
fn own_target() -> Explore {
    Explore::new("my own target")
        .config(Config { nested_depth: 0, ..Config::default() })
        .op("publish", |pool| {
            let (at, memory) = (pool.heap_area(0).0, pool.memory());
            memory.store(at, 42);
            memory.store(at.plus(64), 1);
            memory.persist(at.plus(64), 8);
            memory.persist(at, 8);
            Ok(())
        })
        .check(|pool, _| {
            let (at, memory) = (pool.heap_area(0).0, pool.memory());
            let (value, mark) = (memory.load(at), memory.load(at.plus(64)));
            Failure::unless(mark == 0 || value == 42, || format!("the mark is set, the value is {value}"))
        })
}

/// A user's test, except for its verdict: the child process below runs it.
#[test]
fn a_test_with_a_target_of_its_own() {
    let report = own_target().run();
    println!("states={} violations={}", report.states, report.violations);
    for violation in &report.found {
        println!("{violation}");
    }
}

/// Runs that test in a separate process, with `token` to be replayed.
fn run_again(token: &str) -> String {
    let binary = std::env::current_exe().expect("the test binary");
    let mut command = Command::new(binary);
    command.args(["a_test_with_a_target_of_its_own", "--exact", "--nocapture"]).env(REPLAY_VARIABLE, token);
    let output = command.output().expect("run the test again");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn the_printed_command_of_an_own_target_replays_it() {
    let violation = own_target().run().expect_violation();
    let test = "the_printed_command_of_an_own_target_replays_it -- --exact --nocapture";
    let expected = format!("{REPLAY_VARIABLE}='{}' cargo test -p lodestone-crash {test}", violation.token);
    assert_eq!(violation.command, expected);
    assert!(violation.to_string().ends_with(&format!("see it again: {expected}")), "{violation}");

    let said = run_again(&violation.token);
    assert!(said.contains("states=1 violations=1"), "the crash is replayed, nothing is explored: {said}");
    assert!(said.contains(&violation.message), "{said}");
    assert!(violation.account.lines().all(|line| said.contains(line)), "{said}");
}

#[test]
fn a_token_that_shows_nothing_is_told_and_a_foreign_one_is_left_alone() {
    let violation = own_target().run().expect_violation();
    // Everything survives: there is no violation in this crash.
    let (head, _) = violation.token.rsplit_once('~').expect("fields");
    let gone = run_again(&format!("{head}~k3"));
    assert!(gone.contains("is gone") && gone.contains("violations=1"), "{gone}");
    let foreign = run_again(&violation.token.replace("my own target", "another"));
    assert!(!foreign.contains("is gone") && !foreign.contains("states=1 "), "{foreign}");
    let damaged = run_again("my own target~adr");
    assert!(damaged.contains("cannot be replayed") && damaged.contains("copy the whole token"), "{damaged}");
}

#[test]
fn a_replay_of_an_unknown_target_says_how_its_own_test_replays_it() {
    let violation = own_target().profile(Profile::Adr).run().expect_violation();
    let message = replay(&violation.token, &[]).expect_err("no such target").to_string();
    assert!(message.contains("cargo test") && message.contains(REPLAY_VARIABLE), "{message}");
}
