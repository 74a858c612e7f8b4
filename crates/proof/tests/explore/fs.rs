//! Volumes of files under the crash explorer.
//!
//! With caches that survive, and with any prefix of flushes, every state is judged. With single lines that are lost the
//! states of a batch are more than there is time for: the log of an operation is exhausted, batches are sampled.

use lodestone_crash::{Config, Mode, Profile};
use lodestone_proof::fs::targets;

#[test]
#[ignore = "`make prove` runs it"]
fn states_with_lost_lines_are_right() {
    crate::common::sample_and_reach_the_end(&targets(), &Config { states_max: 5_000, ..Config::default() });
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
    crate::common::audit(&targets(), |_| Config { states_max: 2_000, ..Config::default() });
}
