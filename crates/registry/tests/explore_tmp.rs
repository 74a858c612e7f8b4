#[path = "../../proof/src/registry.rs"]
mod targets;

use lodestone_crash::{Config, Mode, Profile, audit_target, run_target};

#[test]
fn exhaust() {
    for (profile, nested_depth) in [(Profile::Adr, 1), (Profile::Eadr, 1), (Profile::Block, 1)] {
        let config = Config { profile, mode: Mode::Reading, nested_depth, ..Config::default() };
        for target in targets::targets() {
            println!("{}", run_target(target.as_ref(), &config, &mut |_| {}).expect_exhausted());
        }
    }
}

#[test]
fn audit() {
    for target in targets::targets() {
        let report = audit_target(target.as_ref(), &Config::default(), &mut |_, _| {}).expect("clean");
        println!("{report}");
        assert!(report.is_clean());
    }
}

#[cfg(feature = "planted-bugs")]
#[test]
fn bugs() {
    for bug in targets::bugs() {
        println!("{}", bug.name);
    }
}
