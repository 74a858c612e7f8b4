//! The crash explorer on collections that change together.
//!
//! Opening a memory after a crash makes version words anew in every line that it looks at. Under the profile `adr` each of them may
//! have been lost or not, so those states, and crashes of the recovery, are drawn at random; the others are exhausted.

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
fn states_where_lines_are_lost_and_crashes_of_the_recovery_drawn_at_random() {
    for target in targets() {
        for (profile, nested_depth, states_max) in
            [(Profile::Adr, 0, 4_000), (Profile::Adr, 1, 1_500), (Profile::Eadr, 1, 1_000), (Profile::Block, 1, 1_000)]
        {
            let mode = Mode::Representative;
            let config = Config { profile, mode, states_max, nested_depth, ..Config::default() };
            let report = run_target(target.as_ref(), &config, &mut |_| {});
            println!("{report}");
            report.expect_clean();
        }
    }
}
