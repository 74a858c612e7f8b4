//! The reading-driven mode sees everything that the exhaustive mode sees. On random programs with random recoveries
//! that read, decide and store, both modes show the judge exactly the same observations, crashes of the recovery
//! included.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use lodestone_crash::{Config, CrashMedium, History, Mode, Outcome, Recovered, Report, Target, run_target};
use lodestone_pmem::{Memory, PmAddr};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

const WORDS: usize = 16;

/// Word `index`: two words to a line.
fn place(index: usize) -> PmAddr {
    PmAddr::new(0, 4096 + (index as u64 / 2) * 64 + (index as u64 % 2) * 8)
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Store(usize, u64),
    Stream(usize, u64),
    /// Stores the second word's value plus one into the first.
    Copy(usize, usize),
    Flush(usize),
    Fence,
    /// Skips the next two steps if the word is even.
    SkipIfEven(usize),
}

fn random_step(random: &mut ChaCha8Rng) -> Step {
    let word = random.random_range(0..WORDS);
    match random.random_range(0..12) {
        0..=3 => Step::Store(word, random.random_range(1..5)),
        4 => Step::Stream(word, random.random_range(1..5)),
        5..=6 => Step::Copy(word, random.random_range(0..WORDS)),
        7..=8 => Step::Flush(word),
        9 => Step::Fence,
        _ => Step::SkipIfEven(word),
    }
}

fn execute(memory: &Memory, steps: &[Step]) {
    let mut skip = 0;
    for step in steps {
        if skip > 0 {
            skip -= 1;
            continue;
        }
        match *step {
            Step::Store(word, value) => memory.store(place(word), value),
            Step::Stream(word, value) => memory.stream(place(word), &value.to_le_bytes()),
            Step::Copy(to, from) => memory.store(place(to), memory.load(place(from)) + 1),
            Step::Flush(word) => memory.flush(place(word), 8),
            Step::Fence => memory.fence(),
            Step::SkipIfEven(word) if memory.load(place(word)).is_multiple_of(2) => skip = 2,
            Step::SkipIfEven(_) => {}
        }
    }
}

/// The judge's observation: the words it read, in order, and how many operations were acknowledged and begun.
type Observation = (Vec<(usize, u64)>, usize, usize);

struct Program {
    ops: Vec<Vec<Step>>,
    recovery: Vec<Step>,
    seen: Arc<Mutex<BTreeSet<Observation>>>,
}

impl Target for Program {
    fn name(&self) -> String {
        "program".into()
    }

    fn script_len(&self) -> usize {
        self.ops.len()
    }

    fn op_text(&self, op: usize) -> String {
        format!("{:?}", self.ops[op])
    }

    fn prepare(&self, _medium: &CrashMedium) -> Outcome {
        Ok(())
    }

    fn run(&self, medium: &CrashMedium, ops: &[usize]) -> Outcome {
        for &op in ops {
            medium.begin(op);
            execute(&medium.memory(), &self.ops[op]);
            medium.ack(op)?;
        }
        Ok(())
    }

    fn recover(&self, medium: &CrashMedium) -> Outcome<Box<dyn Recovered + '_>> {
        execute(&medium.memory(), &self.recovery);
        Ok(Box::new(Judge { memory: medium.memory(), seen: &self.seen }))
    }
}

struct Judge<'a> {
    memory: Memory,
    seen: &'a Mutex<BTreeSet<Observation>>,
}

impl Recovered for Judge<'_> {
    /// Reads along a path that depends on the words read, and leaves some words unread.
    fn judge(&mut self, history: &History) -> Outcome {
        let mut at = 0;
        let mut read = Vec::new();
        for _ in 0..3 {
            let value = self.memory.load(place(at));
            read.push((at, value));
            at = (at + 1 + value as usize) % WORDS;
        }
        self.seen.lock().expect("lock").insert((read, history.acked().len(), history.begun().len()));
        Ok(())
    }
}

fn observe(ops: &[Vec<Step>], recovery: &[Step], mode: Mode, nested_depth: u32) -> (Report, BTreeSet<Observation>) {
    let program = Program { ops: ops.to_vec(), recovery: recovery.to_vec(), seen: Arc::default() };
    let config = Config { mode, nested_depth, states_max: 400_000, ..Config::default() };
    let report = run_target(&program, &config, &mut |_| {}).expect_clean();
    let seen = program.seen.lock().expect("lock").clone();
    (report, seen)
}

#[test]
fn both_modes_show_the_same_observations() {
    let mut random = ChaCha8Rng::seed_from_u64(42);
    let (mut exhaustive, mut reading, mut compared) = (0, 0, 0);
    for round in 0..150 {
        let mut steps = |most: usize| -> Vec<Step> {
            (0..random.random_range(1..most)).map(|_| random_step(&mut random)).collect()
        };
        let ops = vec![steps(12), steps(12)];
        let recovery = steps(6);
        for nested_depth in [0, 1, 2] {
            let (full, expected) = observe(&ops, &recovery, Mode::Exhaustive, nested_depth);
            let (read, seen) = observe(&ops, &recovery, Mode::Reading, nested_depth);
            if !full.exhausted {
                continue;
            }
            assert!(read.exhausted, "round {round}: {read}");
            assert_eq!(seen, expected, "round {round}, depth {nested_depth}: {ops:?}, recovery {recovery:?}");
            let (_, sample) = observe(&ops, &recovery, Mode::Representative, nested_depth);
            assert!(sample.is_subset(&expected), "round {round}");
            exhaustive += full.states;
            reading += read.states;
            compared += 1;
        }
    }
    println!("{compared} comparisons: {exhaustive} states in full, {reading} driven by reading");
    assert!(compared > 400, "{compared}");
    assert!(reading * 2 < exhaustive, "{reading} states against {exhaustive}: nothing is saved");
}
