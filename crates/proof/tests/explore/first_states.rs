//! The first crash states of every target of every floor, in each profile: a change that breaks a protocol shows here
//! within seconds. The other tests of this crate, which `make prove` runs, exhaust the same targets.

use lodestone_crash::{Config, Profile};

use crate::common;

fn first_states(profile: Profile) {
    for floor in lodestone_proof::floors() {
        let config = Config { profile, nested_depth: 1, states_max: 50, ..Config::default() };
        common::sample(&(floor.targets)(), &config);
    }
}

#[test]
fn where_flushed_lines_survive() {
    first_states(Profile::Adr);
}

#[test]
fn where_caches_survive() {
    first_states(Profile::Eadr);
}

#[test]
fn where_groups_are_whole() {
    first_states(Profile::Block);
}
