//! The crash explorer on every kind of transaction, with recovery crashed again, up to a bound. `lodestone crash run`
//! goes further.

use lodestone_crash::{Config, Mode, Profile};
use lodestone_proof::stm::targets;

#[test]
#[ignore = "`make prove` runs it"]
fn every_target_is_clean_under_every_profile() {
    for profile in [Profile::Adr, Profile::Eadr, Profile::Block] {
        for (nested_depth, states_max) in [(0, 5000), (1, 1000)] {
            crate::common::sample(&targets(), &Config { profile, nested_depth, states_max, ..Config::default() });
        }
    }
    let config = Config { states_max: 1, ..Config::default() };
    crate::common::sample_and_reach_the_end(&targets(), &config);
}

#[test]
#[ignore = "`make prove` runs it"]
fn every_flush_and_fence_is_needed_or_excused() {
    crate::common::audit(&targets(), |name| {
        // The effects of recovery show only when the next recovery is crashed into. A sample of that runs here;
        // `lodestone crash mutants` has all.
        let sample = Config { mode: Mode::Representative, states_max: 10_000, ..Config::default() };
        match name {
            // The sample must reach the states in which a loser that is renewed too late counts.
            "stm-renew-losers" => Config { states_max: 40_000, states_max_wins: true, ..sample },
            _ if name.starts_with("stm-pair") => sample,
            _ => Config { nested_depth: 0, states_max: 40_000, ..Config::default() },
        }
    });
}
