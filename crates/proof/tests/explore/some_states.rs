//! Some states of each crash point of every target of every floor, in each profile: a change that breaks a protocol
//! shows here within seconds. The other tests of this crate, which `make prove` runs, exhaust the same targets.

use lodestone_crash::{Config, Mode, Profile};

use crate::common;

fn some_states(profile: Profile) {
    for floor in lodestone_proof::floors() {
        let sample =
            Config { profile, mode: Mode::Representative, nested_depth: 0, states_max: 200, ..Config::default() };
        common::sample(&(floor.targets)(), &sample);
        // And crashes of the first recoveries.
        common::sample(&(floor.targets)(), &Config { nested_depth: 1, states_max: 30, ..sample });
    }
}

#[test]
fn where_flushed_lines_survive() {
    some_states(Profile::Adr);
}

#[test]
fn where_caches_survive() {
    some_states(Profile::Eadr);
}

#[test]
fn where_groups_are_whole() {
    some_states(Profile::Block);
}
