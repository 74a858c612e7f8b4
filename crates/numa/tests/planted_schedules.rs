//! Bugs that only interleavings and crashes show, planted one at a time: each must be found. They need their own
//! process, because a planted bug is switched on for all threads. They are one test, because they share that switch.

mod scheduled;

use std::panic::{AssertUnwindSafe, catch_unwind};

use lodestone_crash::schedules::{ScheduleConfig, explore_schedules};
use lodestone_pmem::planted;
use scheduled::{Marked, a_stop_in_the_middle, clients_and_an_agent};

/// Runs `scenario` with the bug `name` and returns the scheduler's message about it.
fn found(name: &str, scenario: fn()) -> String {
    planted::plant(Some(name));
    let outcome = catch_unwind(AssertUnwindSafe(|| shuttle::check_random(scenario, 2000)));
    planted::plant(None);
    let why = outcome.expect_err("no schedule shows the bug");
    let text = why.downcast_ref::<String>().cloned();
    text.or_else(|| why.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

#[test]
fn each_planted_bug_is_found() {
    // A sleeper that does not check once more misses a request published before it slept.
    let text = found("numa-sleep-without-looking", clients_and_an_agent);
    assert!(text.contains("deadlock"), "{text}");
    // A stop that is obeyed at once drops requests submitted before it.
    let text = found("numa-stop-drops-requests", a_stop_in_the_middle);
    assert!(text.contains("submitted before the stop"), "{text}");
    // An answer before the fence: the caller was told that the write is persistent, and a crash loses it.
    let mut config = ScheduleConfig { schedules: 300, ..ScheduleConfig::default() };
    config.crash.states_max = 2000;
    config.crash.planted = Some("numa-answer-before-fence".into());
    let report = explore_schedules(Marked { fences: true }, &config);
    println!("{report}");
    assert!(!report.is_clean(), "no crash state shows the bug");
}
