//! The crash explorer on collections that change together.

use lodestone_collections::explore::targets;
use lodestone_crash::{Config, Profile, run_target};

#[test]
fn every_target_is_clean_under_every_profile() {
    for target in targets() {
        for profile in [Profile::Adr, Profile::Eadr, Profile::Block] {
            let config = Config { profile, states_max: 20_000, nested_depth: 1, ..Config::default() };
            let report = run_target(target.as_ref(), &config, &mut |_| {});
            println!("{report}");
            report.expect_clean();
        }
    }
}
