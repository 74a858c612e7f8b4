//! The store under the crash explorer: every target, every profile, in full; every mutant killed or excused.

use lodestone_crash::{Config, Mode, Profile, audit_target, run_target};
use lodestone_store::explore::targets;

fn explore_all(profile: Profile, nested_depth: u32) {
    let config = Config { profile, mode: Mode::Reading, nested_depth, ..Config::default() };
    for target in targets() {
        println!("{}", run_target(target.as_ref(), &config, &mut |_| {}).expect_exhausted());
    }
}

#[test]
fn every_crash_state_that_recovery_can_tell_apart_is_right_and_so_is_each_in_a_crashed_recovery() {
    explore_all(Profile::Adr, 1);
}

#[test]
fn every_crash_state_with_persistent_caches_is_right() {
    explore_all(Profile::Eadr, 1);
}

#[test]
fn every_prefix_of_flushes_is_right() {
    explore_all(Profile::Block, 1);
}

#[test]
fn every_mutant_is_killed_or_excused() {
    let mut clean = true;
    for target in targets() {
        let report = audit_target(target.as_ref(), &Config::default(), &mut |_, _| {}).expect("clean");
        println!("{report}");
        clean &= report.is_clean();
    }
    assert!(clean, "see above");
}
