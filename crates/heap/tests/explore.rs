//! The heap under the crash explorer: every target, every profile, in full; every mutant killed or excused.

use lodestone_crash::{Config, Mode, Profile, audit_target, run_target};
use lodestone_heap::explore::heap_targets;

/// Explores every target whose name `wanted` accepts and demands that every state of the mode was judged and is right.
fn explore_all(profile: Profile, mode: Mode, nested_depth: u32, wanted: impl Fn(&str) -> bool) {
    let config = Config { profile, mode, nested_depth, ..Config::default() };
    for target in heap_targets().into_iter().filter(|target| wanted(&target.name())) {
        println!("{}", run_target(target.as_ref(), &config, &mut |_| {}).expect_exhausted());
    }
}

#[test]
fn every_crash_state_that_recovery_can_tell_apart_is_right_and_so_is_each_in_two_crashed_recoveries() {
    explore_all(Profile::Adr, Mode::Reading, 2, |name| name != "heap-grow-pool");
    // Most of its states are the pool's, which has targets of its own.
    explore_all(Profile::Adr, Mode::Reading, 1, |name| name == "heap-grow-pool");
}

#[test]
fn every_combination_of_every_line_is_right() {
    // The others have more open lines than anyone can enumerate without looking at what recovery reads.
    let small = ["heap-alloc", "heap-order", "heap-record", "heap-lanes", "heap-recover"];
    explore_all(Profile::Adr, Mode::Exhaustive, 1, |name| small.contains(&name));
}

#[test]
fn every_crash_state_with_persistent_caches_is_right() {
    explore_all(Profile::Eadr, Mode::Reading, 1, |_| true);
}

#[test]
fn every_prefix_of_flushes_is_right() {
    explore_all(Profile::Block, Mode::Reading, 1, |_| true);
}

#[test]
fn every_mutant_is_killed_or_excused() {
    let (mut mutants, mut clean) = (0, true);
    for target in heap_targets() {
        let report = audit_target(target.as_ref(), &Config::default(), &mut |_, _| {}).expect("clean");
        println!("{report}");
        mutants += report.mutants;
        clean &= report.is_clean();
    }
    assert!(clean, "see above");
    assert!(mutants > 60, "only {mutants} mutants: some target does not answer for its files any more");
}
