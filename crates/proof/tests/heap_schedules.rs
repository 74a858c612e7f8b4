//! Two threads on one heap under a deterministic scheduler, each schedule with its crash states. Nothing leaks, and no
//! block has two owners. All acknowledged operations took effect, in an order that agrees with real time.

use lodestone_crash::schedules::{ScheduleConfig, Scheduler, explore_schedules};
use lodestone_proof::heap::heap_threads;

fn config(scheduler: Scheduler, schedules: u64) -> ScheduleConfig {
    ScheduleConfig { scheduler, schedules, ..ScheduleConfig::default() }
}

#[test]
fn random_schedules_of_two_threads_are_right() {
    for arenas in [1, 2] {
        println!("{}", explore_schedules(heap_threads(arenas), &config(Scheduler::Random, 30)).expect_clean());
    }
}

#[test]
fn schedules_with_few_switches_are_right() {
    for arenas in [1, 2] {
        println!("{}", explore_schedules(heap_threads(arenas), &config(Scheduler::Pct, 60)).expect_clean());
    }
}

/// Between the end of one thread's action and its next fence the other thread changes the same word.
#[cfg(feature = "planted-bugs")]
#[test]
fn an_end_of_record_that_is_not_fenced_is_found() {
    let mut config = config(Scheduler::Random, 400);
    config.crash.planted = Some("heap-record-end-not-fenced".into());
    let report = explore_schedules(heap_threads(1), &config);
    println!("{report}");
    assert!(!report.is_clean(), "no schedule rolled the other thread's change back: {report}");
}
