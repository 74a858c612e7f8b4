//! The corpora that are checked in, and some new inputs for each target. And the engine finds, keeps and shortens.

use lodestone_fuzz::{Corpus, Failure, Features, Input, Run, TARGETS, Target, fails, hex, shortest, unhex};

/// New inputs for each target: one second of all together.
const INPUTS: u64 = 600;

#[test]
fn no_target_fails() {
    for target in &TARGETS {
        let mut corpus = Corpus::parse(target.corpus).expect("a corpus that was checked in");
        let mut run = Run::new(target, 11);
        let failure = run.replay(&corpus).or_else(|| run.go_on(&mut corpus, INPUTS).expect("no file is written"));
        if let Some(failure) = failure {
            let failure = shortest(target, failure);
            let again = format!("cargo xtask fuzz {} --input {}", target.name, hex(&failure.input));
            panic!("{}: {}\nsee it again: {again}", target.name, failure.reason);
        }
        println!("{}: {:?}", target.name, run.progress());
        assert!(run.progress().features > 3, "{}: inputs get past the first refusal", target.name);
    }
}

/// Fails when the input has a 7 that a 9 follows somewhere.
fn wrong(input: &mut Input<'_>, features: &mut Features) -> Result<(), String> {
    let bytes = input.rest();
    let seven = bytes.iter().position(|byte| *byte == 7);
    features.saw("seven", u64::from(seven.is_some()));
    match seven.filter(|seven| bytes[*seven..].contains(&9)) {
        Some(_) => Err(format!("7 and 9 in {} bytes", bytes.len())),
        None => Ok(()),
    }
}

const WRONG: Target = Target { name: "wrong", about: "fails", run: wrong, corpus: "" };

#[test]
fn a_failing_input_is_found_and_made_short() {
    let mut run = Run::new(&WRONG, 1);
    let found = run.go_on(&mut Corpus::default(), 1_000_000).expect("no file is written").expect("it is found");
    let found = shortest(&WRONG, found);
    assert_eq!(found, Failure { input: vec![7, 9], reason: "7 and 9 in 2 bytes".to_owned() });
    assert_eq!(unhex(&hex(&found.input)), Some(found.input));
}

#[test]
fn a_panic_is_a_failure() {
    fn panics(_: &mut Input<'_>, _: &mut Features) -> Result<(), String> {
        panic!("as planned")
    }
    let target = Target { run: panics, ..WRONG };
    assert_eq!(fails(&target, &[]).0.as_deref(), Some("a panic: as planned"));
}

#[test]
fn corpora_are_text() {
    let corpus = Corpus::parse("# of a test\n00ff\n\n 7 \n");
    assert!(corpus.is_err(), "an odd number of digits");
    let corpus = Corpus::parse("# of a test\n00ff\n\n 07 \n").expect("two inputs");
    assert_eq!(corpus.inputs, [vec![0, 255], vec![7]]);
}
