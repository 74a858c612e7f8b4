//! The logs under the crash explorer: every target, every profile, in full; every mutant killed or excused.

use lodestone_crash::{Config, Mode, Profile};
use lodestone_proof::wal::targets;

#[test]
#[ignore = "`make prove` runs it"]
fn every_crash_state_is_right_and_so_is_each_in_a_crashed_open() {
    // The pieces of a record are lines that may all be lost: more states than there is time for.
    let (pieces, others): (Vec<_>, Vec<_>) = targets().into_iter().partition(|target| target.name() == "wal-pieces");
    crate::common::exhaust(&others, Profile::Adr, Mode::Reading, 1);
    crate::common::sample(&pieces, &Config { nested_depth: 1, ..Config::default() });
}

#[test]
fn every_crash_state_with_persistent_caches_is_right() {
    crate::common::exhaust(&targets(), Profile::Eadr, Mode::Reading, 1);
}

#[test]
fn every_prefix_of_flushes_is_right() {
    crate::common::exhaust(&targets(), Profile::Block, Mode::Reading, 1);
}

#[test]
#[ignore = "`make prove` runs it"]
fn every_mutant_is_killed_or_excused() {
    crate::common::audit(&targets(), |_| Config::default());
}
