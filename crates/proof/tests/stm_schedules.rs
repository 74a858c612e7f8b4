//! Interleavings and their crashes.

use lodestone_crash::schedules::{ScheduleConfig, Scheduler, explore_schedules};
use lodestone_proof::stm::threaded;

fn schedules_of(scheduler: Scheduler, schedules: u64) -> ScheduleConfig {
    let mut config = ScheduleConfig { scheduler, schedules, ..ScheduleConfig::default() };
    config.crash.states_max = 1000;
    config
}

#[test]
fn every_schedule_survives_its_crashes() {
    for (scheduler, schedules) in [(Scheduler::Random, 8), (Scheduler::Pct, 4)] {
        for registers in threaded() {
            let report = explore_schedules(registers, &schedules_of(scheduler, schedules));
            println!("{report}");
            report.expect_clean();
        }
    }
}
