//! The pool layer under the explorer: every target, every profile, in full.

use lodestone_crash::{Config, Mode, PoolCreate, Profile, Report, Target, audit_target, pool_targets, run_target};

fn explore_all(profile: Profile, mode: Mode) -> Vec<Report> {
    let config = Config { profile, mode, ..Config::default() };
    pool_targets().iter().map(|target| run_target(target.as_ref(), &config, &mut |_| {})).collect()
}

#[test]
fn every_crash_state_of_the_pool_is_right() {
    for &profile in Profile::ALL {
        for &mode in Mode::ALL {
            for report in explore_all(profile, mode) {
                println!("{report}");
                let report = report.expect_clean();
                assert!(report.exhausted || mode == Mode::Representative, "{report}");
            }
        }
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
    for report in reports {
        report.expect_clean();
    }
}
