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
    use lodestone_pmem::planted;
    for name in ["engine-part-counts-alone", "engine-together-half-fenced"] {
        for (target_name, mode) in [("db-together", Mode::Representative), ("db-together", Mode::Reading)] {
            let target = lodestone_proof::engine::targets().into_iter().find(|t| t.name() == target_name).unwrap();
            planted::plant(Some(name));
            let begin = std::time::Instant::now();
            let config = Config { profile: Profile::Adr, mode, nested_depth: 0, states_max: 200_000, ..Config::default() };
            let report = run_target(target.as_ref(), &config, &mut |_| {});
            planted::plant(None);
            println!("{name} {mode:?}: {} {:?}", report.to_string().chars().take(600).collect::<String>(), begin.elapsed());
        }
    }
}
