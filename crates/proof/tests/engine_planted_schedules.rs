//! Bugs of the rounds that only interleavings show. One test: a bug is planted for the whole process.

use lodestone_crash::Structure;
use lodestone_crash::schedules::{ScheduleConfig, Scheduler, explore_schedules};
use lodestone_proof::engine::threaded;

#[test]
fn an_epoch_that_is_read_too_early_is_found() {
    // A deletion is truncated, and the insertion before it is not.
    let bug = "engine-epoch-before-locks";
    let target = threaded().into_iter().find(|target| target.name() == "db-threads-epochs").expect("a target");
    let mut config = ScheduleConfig { scheduler: Scheduler::Random, schedules: 4000, ..ScheduleConfig::default() };
    config.crash.states_max = 50;
    config.crash.planted = Some(bug.into());
    let report = explore_schedules(target, &config);
    println!("{bug}: {report}");
    assert!(!report.is_clean(), "no schedule shows {bug}");
}
