//! Runs of seeds on the sound code. Programs that plant bugs use `seeds.rs` without these.

use lodestone_fabric::Term;
use lodestone_registry::Answer;

use crate::seeds::{VOLUME, run_seed};

fn judge_all(seeds: std::ops::Range<u64>) {
    let (mut crashes, mut answered, mut terms, mut held) = (0, 0, 0, 0);
    for seed in seeds {
        let run = run_seed(seed, 60).unwrap_or_else(|violation| panic!("{violation}"));
        crashes += run.world.crashes();
        answered += run.history.calls.iter().filter(|call| call.answer.is_some()).count();
        held += run.history.calls.iter().filter(|call| matches!(call.answer, Some(Answer::Held(_)))).count();
        terms += run.world.newest_table().and_then(|table| table.state(VOLUME)).map_or(Term(0), |state| state.term).0;
    }
    println!("{answered} answers, {terms} terms, {held} leases, {crashes} crashes");
    assert!(crashes > 0 && terms > 0 && held > 0, "the faults and the requests happen");
}

#[test]
#[ignore = "`make prove` runs it"]
fn twenty_seeds_are_linearizable() {
    judge_all(0..20);
}

#[test]
#[ignore = "`make prove` runs it"]
fn a_hundred_seeds_are_linearizable() {
    judge_all(1_000..1_100);
}

#[test]
fn a_seed_repeats() {
    let run = |seed| {
        let run = run_seed(seed, 40).unwrap_or_else(|violation| panic!("{violation}"));
        (run.world.now(), run.world.crashes(), format!("{:?}", run.history))
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
}
