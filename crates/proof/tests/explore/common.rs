//! The tests that every floor runs on its targets.

use lodestone_crash::{Config, Mode, Profile, Target, audit_target, run_target};

/// Explores every target and demands that every state of the mode was judged and is right.
pub fn exhaust(targets: &[Box<dyn Target>], profile: Profile, mode: Mode, nested_depth: u32) {
    let config = Config { profile, mode, nested_depth, ..Config::default() };
    for target in targets {
        println!("{}", run_target(target.as_ref(), &config, &mut |_| {}).expect_exhausted());
    }
}

/// Explores every target within the bounds of `config`, whether or not that exhausts it.
pub fn sample(targets: &[Box<dyn Target>], config: &Config) {
    for target in targets {
        println!("{}", run_target(target.as_ref(), config, &mut |_| {}).expect_clean());
    }
}

/// As [`sample`], and then with a few states of each crash point: those of the first ones alone may exceed the bound.
pub fn sample_and_reach_the_end(targets: &[Box<dyn Target>], config: &Config) {
    sample(targets, config);
    let config = Config { mode: Mode::Representative, states_max: u64::MAX, states_max_wins: true, ..config.clone() };
    sample(targets, &config);
}

/// Drops and moves every flush and fence that the targets cover. Returns the number of mutants.
pub fn audit(targets: &[Box<dyn Target>], config: impl Fn(&str) -> Config) -> u64 {
    let (mut mutants, mut clean) = (0, true);
    for target in targets {
        let report = audit_target(target.as_ref(), &config(&target.name()), &mut |_, _| {}).expect("clean");
        println!("{report}");
        mutants += report.mutants as u64;
        clean &= report.is_clean();
    }
    assert!(clean, "a mutant survived, see above");
    mutants
}
