//! Interleavings of clients and agents under a deterministic scheduler, and crashes of them. There must be no lost
//! wake-up, no lost request, and no answer before its fence. Memory order is not explored: the scheduler is
//! sequentially consistent.

mod scheduled;

use lodestone_crash::schedules::{ScheduleConfig, Scheduler, explore_schedules};
use scheduled::{Marked, a_stop_in_the_middle, clients_and_an_agent};

const SCHEDULES: usize = 1000;

#[test]
fn no_schedule_loses_a_message_or_a_wake_up() {
    shuttle::check_random(clients_and_an_agent, SCHEDULES);
    shuttle::check_pct(clients_and_an_agent, SCHEDULES, 3);
}

#[test]
fn no_schedule_of_a_stop_leaves_a_request_in_between() {
    shuttle::check_random(a_stop_in_the_middle, SCHEDULES);
    shuttle::check_pct(a_stop_in_the_middle, SCHEDULES, 3);
}

#[test]
fn a_mark_by_an_agent_never_outlives_a_record_that_was_fenced_before() {
    for scheduler in [Scheduler::Random, Scheduler::Pct] {
        let mut config = ScheduleConfig { schedules: 60, scheduler, ..ScheduleConfig::default() };
        config.crash.states_max = 2000;
        println!("{}", explore_schedules(Marked { fences: true }, &config).expect_clean());
    }
}

/// The client's duty: without its own fence the agent's mark can be persistent before the client's record.
#[test]
fn a_client_that_does_not_fence_its_own_record_is_found_out() {
    let mut config = ScheduleConfig { schedules: 60, ..ScheduleConfig::default() };
    config.crash.states_max = 2000;
    let report = explore_schedules(Marked { fences: false }, &config);
    println!("{report}");
    assert!(report.found.is_some_and(|(_, found)| found.message.contains("is marked, and its record holds 0")));
}
