//! Volumes of files under the crash explorer.
//!
//! With caches that survive, and with any prefix of flushes, every state is judged. With single lines that are lost the
//! states of a batch are more than there is time for: the log of an operation is exhausted, batches are sampled.

use lodestone_crash::{Config, Mode, Profile};
use lodestone_proof::fs::targets;

#[test]
#[ignore = "`make prove` runs it"]
fn states_with_lost_lines_are_right() {
    let config = Config { states_max: 3_000, nested_depth: 0, ..Config::default() };
    crate::common::sample_and_reach_the_end(&targets(), &config);
    // Crashes inside the recovery.
    crate::common::sample(&targets(), &Config { states_max: 1_000, ..Config::default() });
}

#[test]
#[ignore = "`make prove` runs it"]
fn every_crash_state_with_persistent_caches_is_right() {
    crate::common::exhaust(&targets(), Profile::Eadr, Mode::Reading, 0);
}

#[test]
#[ignore = "`make prove` runs it"]
fn every_prefix_of_flushes_is_right() {
    crate::common::exhaust(&targets(), Profile::Block, Mode::Reading, 0);
}

#[test]
#[ignore = "`make prove` runs it"]
fn every_mutant_is_killed_or_excused() {
    let mode = Mode::Representative;
    let sample = Config { states_max: 2_000, states_max_wins: true, nested_depth: 0, mode, ..Config::default() };
    crate::common::audit(&targets(), |_| sample.clone());
}
