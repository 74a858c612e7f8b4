//! The pool layer under the explorer: every target, every profile, in full.

use lodestone_crash::{
    Config, Mode, PoolCreate, Profile, Target, audit_target, calls_nobody_audits, pool_targets, run_target,
};

#[test]
fn every_crash_state_of_the_pool_is_right() {
    for target in pool_targets() {
        for &profile in Profile::ALL {
            for mode in [Mode::Reading, Mode::Representative] {
                let config = Config { profile, mode, ..Config::default() };
                let report = run_target(target.as_ref(), &config, &mut |_| {}).expect_clean();
                println!("{report}");
                assert_eq!(report.exhausted, mode == Mode::Reading, "{report}");
            }
        }
    }
}

/// Every combination of the possible contents of every line, read or not. For creation only the first states: its
/// header has a hundred thousand half-made states, all of which lack the magic.
#[test]
fn every_combination_of_every_line_is_right() {
    for target in pool_targets() {
        let config = Config { mode: Mode::Exhaustive, states_max: 12_000, ..Config::default() };
        let report = run_target(target.as_ref(), &config, &mut |_| {}).expect_clean();
        println!("{report}");
        assert_eq!(report.exhausted, report.target != "pool-create", "{report}");
    }
}

#[test]
fn a_half_made_pool_is_refused_as_unfinished() {
    let target = PoolCreate { opens_without_magic: true };
    for &profile in Profile::ALL {
        let config = Config { profile, mode: Mode::Representative, ..Config::default() };
        run_target(&target, &config, &mut |_| {}).expect_clean();
    }
}

#[test]
fn every_mutant_of_the_pool_is_killed_or_excused() {
    let mut reports = Vec::new();
    for target in pool_targets() {
        let target: &dyn Target = target.as_ref();
        let report = audit_target(target, &Config::default(), &mut |_, _| {}).expect("clean");
        println!("{report}");
        reports.push(report);
    }
    assert_eq!(calls_nobody_audits(&reports), Vec::<String>::new());
    for report in reports {
        report.expect_clean();
    }
}
