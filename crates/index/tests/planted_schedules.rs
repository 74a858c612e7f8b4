//! A bug that only interleavings show, in a process of its own: a planted bug is switched on for all threads.

use lodestone_crash::Structure;
use lodestone_crash::schedules::{ScheduleConfig, explore_schedules};
use lodestone_index::explore::threaded;

/// A thread goes on with a leaf that was split before it had the leaf's lock: its key lands in a leaf that does not cover
/// it, readers miss it, scans go back.
#[test]
fn a_lookup_that_ignores_structure_changes_is_found() {
    let split = || threaded().into_iter().find(|map| Structure::name(map) == "map-threads-split").expect("a split");
    let mut config = ScheduleConfig { schedules: 300, ..ScheduleConfig::default() };
    config.crash.states_max = 1000;
    config.crash.planted = Some("index-stale-leaf".into());
    let report = explore_schedules(split(), &config);
    println!("{report}");
    assert!(!report.is_clean(), "no schedule shows the bug");
}
