//! Temporary.
use lodestone_crash::{Config, Mode, Profile, run_target};
#[test]
fn explore() {
    for target in lodestone_proof::engine::targets() {
        if ["db-together", "db-together-rounds", "db-mixed", "db-backup"].contains(&target.name().as_str()) {
            for profile in [Profile::Adr, Profile::Eadr, Profile::Block] {
                let begin = std::time::Instant::now();
                let config = Config { profile, mode: Mode::Representative, nested_depth: 0, states_max: 3000, ..Config::default() };
                let report = run_target(target.as_ref(), &config, &mut |_| {});
                println!("{report} {:?}", begin.elapsed());
            }
        }
    }
}
#[test]
#[ignore = "long"]
fn exhaust() {
    let only = std::env::var("ONLY").unwrap_or_default();
    for target in lodestone_proof::engine::targets() {
        if target.name() == only {
            for profile in [Profile::Adr, Profile::Eadr, Profile::Block] {
                let begin = std::time::Instant::now();
                let config = Config { profile, mode: Mode::Reading, nested_depth: 1, ..Config::default() };
                let report = run_target(target.as_ref(), &config, &mut |_| {});
                println!("{report} {:?}", begin.elapsed());
            }
        }
    }
}
#[test]
#[ignore = "long"]
fn bugs() {
    for bug in lodestone_proof::engine::bugs() {
        if bug.name.starts_with("engine-part") || bug.name.starts_with("engine-together") {
            println!("{}", bug.must_be_found_after(&mut Default::default()));
        }
    }
}
