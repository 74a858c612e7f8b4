//! Interleavings of transactions over tables, and their crashes.

use lodestone_crash::schedules::{ScheduleConfig, Scheduler, explore_schedules};
use lodestone_proof::engine::threaded;

#[test]
fn every_schedule_survives_its_crashes() {
    for (scheduler, schedules) in [(Scheduler::Random, 100), (Scheduler::Pct, 50)] {
        for tables in threaded() {
            let mut config = ScheduleConfig { scheduler, schedules, ..ScheduleConfig::default() };
            config.crash.states_max = 1000;
            let report = explore_schedules(tables, &config);
            println!("{report}");
            report.expect_clean();
        }
    }
}
