//! The crash explorer on every kind of change of the map and of each index: exhausted, with recovery crashed again.

use lodestone_crash::{Config, Mode, Profile};
use lodestone_proof::index::targets;

#[test]
#[ignore = "`make prove` runs it"]
fn every_target_is_clean_under_every_profile() {
    // With persistent caches the code makes the same stores. So the states after crashed recoveries are among those of
    // ADR, which has all.
    for (profile, nested_depth) in [(Profile::Adr, 1), (Profile::Eadr, 0), (Profile::Block, 1)] {
        crate::common::exhaust(&targets(), profile, Mode::Reading, nested_depth);
    }
}

#[test]
#[ignore = "`make prove` runs it"]
fn every_combination_of_every_line_up_to_a_bound() {
    // The reading mode above is as complete. Here the map shows it, and a sample of the other structures is drawn.
    let config = |states_max| Config { mode: Mode::Exhaustive, nested_depth: 0, states_max, ..Config::default() };
    let (maps, others): (Vec<_>, Vec<_>) = targets().into_iter().partition(|target| target.name().starts_with("map"));
    crate::common::sample(&maps, &config(30_000));
    crate::common::sample(&others, &config(2000));
}

#[test]
#[ignore = "`make prove` runs it"]
fn every_flush_and_fence_is_needed_or_excused() {
    crate::common::audit(&targets(), |_| Config { nested_depth: 0, ..Config::default() });
}
