//! The tests that every floor runs on its targets.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;

use lodestone_crash::{Config, Mode, Profile, Target, audit_target, run_target};

/// Judges the targets on all processors: the last test of this program would otherwise run on one of them alone.
fn each(targets: &[Box<dyn Target>], judge: impl Fn(&dyn Target) + Sync) {
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(target) = targets.get(next.fetch_add(1, Ordering::Relaxed)) {
            judge(target.as_ref());
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
}

/// Explores every target and demands that every state of the mode was judged and is right.
pub fn exhaust(targets: &[Box<dyn Target>], profile: Profile, mode: Mode, nested_depth: u32) {
    let config = Config { profile, mode, nested_depth, ..Config::default() };
    each(targets, |target| println!("{}", run_target(target, &config, &mut |_| {}).expect_exhausted()));
}

/// Explores every target within the bounds of `config`, whether or not that exhausts it.
pub fn sample(targets: &[Box<dyn Target>], config: &Config) {
    each(targets, |target| println!("{}", run_target(target, config, &mut |_| {}).expect_clean()));
}

/// As [`sample`], and then with a few states of each crash point: those of the first ones alone may exceed the bound.
pub fn sample_and_reach_the_end(targets: &[Box<dyn Target>], config: &Config) {
    sample(targets, config);
    let config = Config { mode: Mode::Representative, states_max: u64::MAX, states_max_wins: true, ..config.clone() };
    sample(targets, &config);
}

/// Drops and moves every flush and fence that the targets cover. Returns the number of mutants.
pub fn audit(targets: &[Box<dyn Target>], config: impl Fn(&str) -> Config + Sync) -> u64 {
    let (mutants, clean) = (AtomicU64::new(0), AtomicBool::new(true));
    each(targets, |target| {
        let report = audit_target(target, &config(&target.name()), &mut |_, _| {}).expect("clean");
        println!("{report}");
        mutants.fetch_add(report.mutants as u64, Ordering::Relaxed);
        clean.fetch_and(report.is_clean(), Ordering::Relaxed);
    });
    assert!(clean.into_inner(), "a mutant survived, see above");
    mutants.into_inner()
}
