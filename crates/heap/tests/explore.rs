//! The heap under the crash explorer: every target, every profile, in full; every mutant killed or excused.

use lodestone_crash::{Config, Mode, Profile, audit_target, run_target};
use lodestone_heap::explore::heap_targets;

fn explore_all(profile: Profile, mode: Mode) {
    let config = Config { profile, mode, ..Config::default() };
    for target in heap_targets() {
        let report = run_target(target.as_ref(), &config, &mut |_| {});
        println!("{report}");
        if mode == Mode::Representative {
            report.expect_clean()
        } else {
            report.expect_exhausted()
        };
    }
}

#[test]
fn every_crash_state_that_recovery_can_tell_apart_is_right() {
    explore_all(Profile::Adr, Mode::Reading);
}

#[test]
fn every_crash_state_with_persistent_caches_is_right() {
    explore_all(Profile::Eadr, Mode::Reading);
}

#[test]
fn every_prefix_of_flushes_is_right() {
    explore_all(Profile::Block, Mode::Reading);
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
