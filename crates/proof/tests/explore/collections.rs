//! The crash explorer on collections that change together, in each commit mode.
//!
//! Where caches survive or groups are whole, every state that needs no crash of the recovery is judged. Lines that are
//! lost one by one, and crashes of the recovery, make more states than a test has time for. `lodestone crash run
//! --target collections` walks through the first of them. A sample is drawn here.

use lodestone_crash::{Config, Mode, Profile};
use lodestone_proof::collections::targets;

#[test]
#[ignore = "`make prove` runs it"]
fn every_state_where_caches_survive_or_groups_are_whole() {
    for profile in [Profile::Eadr, Profile::Block] {
        crate::common::exhaust(&targets(), profile, Mode::Reading, 0);
    }
}

#[test]
#[ignore = "`make prove` runs it"]
fn lost_lines_and_crashes_of_the_recovery_drawn_at_random() {
    for (profile, nested_depth) in [(Profile::Adr, 0), (Profile::Adr, 1), (Profile::Eadr, 1), (Profile::Block, 1)] {
        let config = Config { profile, nested_depth, mode: Mode::Representative, ..Config::default() };
        crate::common::sample(&targets(), &config);
    }
}
