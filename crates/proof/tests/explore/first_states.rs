//! The first crash states of every target of every floor, in each profile: a change that breaks a protocol shows here
//! within seconds. The other tests of this crate, which `make prove` runs, exhaust the same targets.

use lodestone_crash::{Config, Profile};

#[test]
fn the_first_states_of_every_target_are_right() {
    for floor in lodestone_proof::floors() {
        for profile in [Profile::Adr, Profile::Eadr, Profile::Block] {
            let config = Config { profile, nested_depth: 1, states_max: 60, ..Config::default() };
            crate::common::sample(&(floor.targets)(), &config);
        }
    }
}
