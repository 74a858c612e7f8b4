//! The crash explorer on collections that change together, in each commit mode.
//!
//! Where caches survive or groups are whole, every state is judged that needs no crash of the recovery. Lines that are
//! lost one by one, and crashes of the recovery, make more states than a test has time for:
//! `lodestone crash run --target collections` walks through the first of them, and here a sample is drawn.

use lodestone_collections::explore::targets;
use lodestone_crash::{Config, Mode, Profile, run_target};

#[test]
fn every_state_where_caches_survive_or_groups_are_whole() {
    for target in targets() {
        for profile in [Profile::Eadr, Profile::Block] {
            let config = Config { profile, nested_depth: 0, ..Config::default() };
            let report = run_target(target.as_ref(), &config, &mut |_| {});
            println!("{report}");
            report.expect_exhausted();
        }
    }
}

#[test]
fn lost_lines_and_crashes_of_the_recovery_drawn_at_random() {
    for target in targets() {
        for (profile, nested_depth) in [(Profile::Adr, 0), (Profile::Adr, 1), (Profile::Eadr, 1), (Profile::Block, 1)] {
            let config =
                Config { profile, nested_depth, mode: Mode::Representative, states_max: 500, ..Config::default() };
            let report = run_target(target.as_ref(), &config, &mut |_| {});
            println!("{report}");
            report.expect_clean();
        }
    }
}
