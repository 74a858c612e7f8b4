//! The pages under the crash explorer: every target, every profile, in full; every mutant killed or excused.

use lodestone_crash::{Config, Mode, Profile};
use lodestone_proof::pages::targets;

#[test]
fn every_crash_state_is_right_and_so_is_each_in_a_crashed_open() {
    crate::common::exhaust(&targets(), Profile::Adr, Mode::Reading, 1);
}

#[test]
fn every_crash_state_with_persistent_caches_is_right() {
    crate::common::exhaust(&targets(), Profile::Eadr, Mode::Reading, 1);
}

#[test]
fn every_mutant_is_killed_or_excused() {
    crate::common::audit(&targets(), |_| Config::default());
}
