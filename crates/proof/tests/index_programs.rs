//! Crash states of random programs: histories that no target foresees. Longer runs: `lodestone crash fuzz`.

use lodestone_crash::{Config, Profile, run_target};
use lodestone_proof::index::{PROGRAM_KINDS, program, program_name};

fn survive(programs: std::ops::RangeInclusive<u64>) {
    for kind in PROGRAM_KINDS {
        let (mut states, mut exhausted) = (0, 0);
        for number in programs.clone() {
            let profile = if number % 4 == 0 { Profile::Block } else { Profile::Adr };
            let config = Config { profile, states_max: 300, nested_depth: (number % 2) as u32, ..Config::default() };
            let target = program(&program_name(kind, number)).expect("a kind that there is");
            let report = run_target(target.as_ref(), &config, &mut |_| {});
            assert!(report.found.is_empty(), "{report}");
            states += report.states;
            exhausted += u64::from(report.exhausted);
        }
        println!("{kind}: {states} states, {exhausted} programs exhausted");
        assert!(states > 100, "{kind}: the programs do nothing");
    }
}

#[test]
fn random_programs_survive_their_crashes() {
    survive(1..=6);
}

#[test]
#[ignore = "`make prove` runs it"]
fn further_random_programs_survive_their_crashes() {
    survive(7..=18);
}

#[test]
fn names_lead_to_programs_and_nothing_else() {
    for kind in PROGRAM_KINDS {
        let name = program_name(kind, u64::MAX);
        let texts = || {
            let target = program(&name).expect("a kind that there is");
            (0..target.script_len()).map(|op| target.op_text(op)).collect::<Vec<_>>()
        };
        assert_eq!(texts(), texts(), "{name} is the same each time");
        assert!(!texts().is_empty());
    }
    for name in ["index-random-fastfair", "index-random-fastfair-x", "index-random-none-1", "fastfair-1"] {
        assert!(program(name).is_none(), "{name}");
    }
}
