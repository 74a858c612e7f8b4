//! Interleavings of a cache and its index: fills, hits, changes and growth, under random schedules and schedules with
//! few changes of priority; every history is linearizable, and in the end the cache says what the index says.
//!
//! Run with `cargo test -p lodestone-index --features shuttle --test acs_schedules`; a failure prints the schedule.

mod conformance;

#[path = "cached/scenarios.rs"]
mod scenarios;

#[test]
fn the_known_races_are_closed() {
    for scenario in scenarios::known() {
        scenarios::explore(&scenario, 1, 400);
    }
}

#[test]
fn drawn_scenarios_are_linearizable() {
    for seed in 0..90 {
        scenarios::explore(&scenarios::drawn(seed), seed, 60);
    }
}
