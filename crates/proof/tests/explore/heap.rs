//! The heap under the crash explorer: every target, every profile, in full; every mutant killed or excused.

use lodestone_crash::{Config, Mode, Profile, Target};
use lodestone_proof::heap::heap_targets;

fn targets(wanted: impl Fn(&str) -> bool) -> Vec<Box<dyn Target>> {
    heap_targets().into_iter().filter(|target| wanted(&target.name())).collect()
}

#[test]
#[ignore = "`make prove` runs it"]
fn every_crash_state_that_recovery_can_tell_apart_is_right_and_so_is_each_in_two_crashed_recoveries() {
    crate::common::exhaust(&targets(|name| name != "heap-grow-pool"), Profile::Adr, Mode::Reading, 2);
    // Most of its states are the pool's, which has its own targets.
    crate::common::exhaust(&targets(|name| name == "heap-grow-pool"), Profile::Adr, Mode::Reading, 1);
}

#[test]
#[ignore = "`make prove` runs it"]
fn every_combination_of_every_line_is_right() {
    // The others have more open lines than can be enumerated without a look at the reads of recovery.
    let small = ["heap-alloc", "heap-order", "heap-record", "heap-lanes", "heap-recover"];
    crate::common::exhaust(&targets(|name| small.contains(&name)), Profile::Adr, Mode::Exhaustive, 1);
}

#[test]
fn every_crash_state_with_persistent_caches_is_right() {
    crate::common::exhaust(&heap_targets(), Profile::Eadr, Mode::Reading, 1);
}

#[test]
fn every_prefix_of_flushes_is_right() {
    crate::common::exhaust(&heap_targets(), Profile::Block, Mode::Reading, 1);
}

#[test]
#[ignore = "`make prove` runs it"]
fn every_mutant_is_killed_or_excused() {
    let mutants = crate::common::audit(&heap_targets(), |_| Config::default());
    assert!(mutants > 60, "only {mutants} mutants: some target does not answer for its files any more");
}
