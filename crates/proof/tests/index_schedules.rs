//! Interleavings of the indexes: threads change few keys under a deterministic scheduler while the trace records, and
//! the crash states of each schedule are judged by durable linearizability.
//!
//! Run with `cargo test -p lodestone-proof --features shuttle --test index_schedules`.

mod list_readers;
mod openings;

use lodestone_crash::Structure;
use lodestone_crash::schedules::{ScheduleConfig, Scheduler, explore_schedules};
use lodestone_proof::index::{
    acs_threaded, fastfair_threaded, fptree_threaded, hash_threaded, hybrid_plus_threaded, hybrid_threaded,
    records_threaded, skiplist_threaded, threaded,
};

fn every<S: Structure + 'static>(targets: impl Fn() -> Vec<S>) {
    every_within(400, &[(Scheduler::Random, 9), (Scheduler::Pct, 6)], targets);
}

fn every_within<S: Structure + 'static>(
    states_max: u64,
    schedulers: &[(Scheduler, u64)],
    targets: impl Fn() -> Vec<S>,
) {
    for &(scheduler, schedules) in schedulers {
        for target in targets() {
            let mut config = ScheduleConfig { scheduler, schedules, ..ScheduleConfig::default() };
            config.crash.states_max = states_max;
            let report = explore_schedules(target, &config);
            println!("{report}");
            report.expect_clean();
        }
    }
}

#[test]
fn every_schedule_of_the_tree_survives_its_crashes() {
    every(fastfair_threaded);
}

#[test]
fn every_schedule_of_the_list_survives_its_crashes() {
    every(skiplist_threaded);
}

#[test]
fn every_schedule_of_the_hash_index_survives_its_crashes() {
    every(hash_threaded);
}

#[test]
fn every_schedule_of_the_tree_of_leaves_survives_its_crashes() {
    every(fptree_threaded);
}

#[test]
fn every_schedule_of_a_map_over_an_index_survives_its_crashes() {
    every(records_threaded);
}

#[test]
fn what_a_cached_read_answered_survives_every_crash() {
    every(acs_threaded);
}

#[test]
fn every_schedule_of_the_ordered_map_survives_its_crashes() {
    every_within(1000, &[(Scheduler::Random, 20), (Scheduler::Pct, 10)], threaded);
}

#[test]
fn every_schedule_of_hybrid_plus_survives_its_crashes() {
    every_within(300, &[(Scheduler::Random, 12)], hybrid_plus_threaded);
}

#[test]
fn every_schedule_of_hybrid_survives_its_crashes() {
    every_within(300, &[(Scheduler::Random, 12)], hybrid_threaded);
}

#[test]
fn readers_of_a_list_tell_only_what_was_flushed() {
    list_readers::tell_only_what_was_flushed(1000);
}

#[test]
fn one_of_two_threads_makes_an_index() {
    openings::one_of_two_threads_makes_an_index(200);
}
