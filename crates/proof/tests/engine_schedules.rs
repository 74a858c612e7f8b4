//! Interleavings of transactions over tables, and their crashes.

use lodestone_crash::schedules::{ScheduleConfig, Scheduler, explore_schedules};
use lodestone_proof::engine::threaded;

#[test]
fn every_schedule_survives_its_crashes() {
    for (scheduler, schedules) in [(Scheduler::Random, 16), (Scheduler::Pct, 8)] {
        for tables in threaded() {
            // Those with rounds have many more states each.
            let (share, states_max) = if tables.has_rounds() { (2, 300) } else { (1, 1000) };
            let mut config = ScheduleConfig { scheduler, schedules: schedules / share, ..ScheduleConfig::default() };
            config.crash.states_max = states_max;
            let report = explore_schedules(tables, &config);
            println!("{report}");
            report.expect_clean();
        }
    }
}
