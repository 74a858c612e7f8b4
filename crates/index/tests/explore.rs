//! The crash explorer on every kind of change of the ordered map: exhausted, with recovery crashed again.

use lodestone_crash::{Config, Mode, Profile, audit_target, run_target};
use lodestone_index::explore::targets;

#[test]
fn every_target_is_clean_under_every_profile() {
    for target in targets() {
        for profile in [Profile::Adr, Profile::Eadr, Profile::Block] {
            let config = Config { profile, ..Config::default() };
            let report = run_target(target.as_ref(), &config, &mut |_| {});
            println!("{report}");
            report.expect_exhausted();
        }
    }
}

#[test]
fn every_combination_of_every_line_up_to_a_bound() {
    for target in targets() {
        // The reading mode above is as complete; here the map shows it, the other structures sample it.
        let states_max = if target.name().starts_with("map") { 30_000 } else { 2000 };
        let config = Config { mode: Mode::Exhaustive, nested_depth: 0, states_max, ..Config::default() };
        let report = run_target(target.as_ref(), &config, &mut |_| {});
        println!("{report}");
        report.expect_clean();
    }
}

#[test]
fn every_flush_and_fence_is_needed_or_excused() {
    for target in targets() {
        let config = Config { nested_depth: 0, ..Config::default() };
        let report = audit_target(target.as_ref(), &config, &mut |_, _| {}).expect("clean without a mutation");
        println!("{report}");
        report.expect_clean();
    }
}
