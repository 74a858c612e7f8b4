//! The logs under the crash explorer: every target, every profile, in full; every mutant killed or excused.

use lodestone_crash::{Config, Mode, Profile};
use lodestone_proof::wal::targets;

#[test]
#[ignore = "`make prove` runs it"]
fn every_crash_state_is_right_and_so_is_each_in_a_crashed_open() {
    // Pieces of a record, and a new directory, are lines that may all be lost: more states than there is time for.
    let is_large = |name: &str| name.starts_with("wal-pieces") || name == "wal-create";
    let (large, others): (Vec<_>, Vec<_>) = targets().into_iter().partition(|target| is_large(&target.name()));
    crate::common::exhaust(&others, Profile::Adr, Mode::Reading, 1);
    crate::common::sample_and_reach_the_end(&large, &Config { states_max: 20_000, ..Config::default() });
    let pieces: Vec<_> = large.into_iter().filter(|target| target.name() != "wal-create").collect();
    crate::common::exhaust(&pieces, Profile::Adr, Mode::Reading, 0);
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
    crate::common::audit(&targets(), bounded);
}

/// Most states of a new log are lines of its directory that nothing leads to. Those of pieces are so many that some
/// mutants would be killed after the bound only: a sample has states of each crash point.
fn bounded(name: &str) -> Config {
    let states_max = if name == "wal-create" { 20_000 } else { Config::default().states_max };
    let mode = if name.starts_with("wal-pieces") { Mode::Representative } else { Mode::Reading };
    Config { states_max, mode, ..Config::default() }
}
