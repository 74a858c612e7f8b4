//! The crash explorer on every kind of transaction, with recovery crashed again, up to a bound; `lodestone crash run`
//! goes further.

use lodestone_crash::{Config, Mode, Profile, audit_target, run_target};
use lodestone_stm::explore::targets;

#[test]
fn every_target_is_clean_under_every_profile() {
    for target in targets() {
        for profile in [Profile::Adr, Profile::Eadr, Profile::Block] {
            for (nested_depth, states_max) in [(0, 5000), (1, 1000)] {
                let config = Config { profile, nested_depth, states_max, ..Config::default() };
                let report = run_target(target.as_ref(), &config, &mut |_| {});
                println!("{report}");
                report.expect_clean();
            }
        }
    }
}

#[test]
fn every_flush_and_fence_is_needed_or_excused() {
    for target in targets() {
        // What recovery does shows only when the next one is crashed into: a sample of that; `lodestone crash mutants`
        // has all.
        let in_recovery = ["stm-pair", "stm-renew-losers"].iter().any(|name| target.name().starts_with(name));
        let config = match in_recovery {
            true => Config { mode: Mode::Representative, states_max: 10_000, ..Config::default() },
            false => Config { nested_depth: 0, states_max: 40_000, ..Config::default() },
        };
        let report = audit_target(target.as_ref(), &config, &mut |_, _| {}).expect("clean without a mutation");
        println!("{report}");
        report.expect_clean();
    }
}
