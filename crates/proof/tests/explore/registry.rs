//! Keepers of the registry under the crash explorer: every target, every profile, in full; every mutant killed.

use lodestone_crash::{Config, Mode, Profile};
use lodestone_proof::registry::targets;

#[test]
#[ignore = "`make prove` runs it"]
fn every_crash_state_is_right_and_so_is_each_in_a_crashed_open() {
    crate::common::exhaust(&targets(), Profile::Adr, Mode::Reading, 1);
}

#[test]
#[ignore = "`make prove` runs it"]
fn every_prefix_of_flushes_is_right_and_so_is_every_state_with_persistent_caches() {
    crate::common::exhaust(&targets(), Profile::Block, Mode::Reading, 1);
    crate::common::exhaust(&targets(), Profile::Eadr, Mode::Reading, 1);
}

#[test]
#[ignore = "`make prove` runs it"]
fn every_mutant_is_killed_or_excused() {
    crate::common::audit(&targets(), |_| Config::default());
}
