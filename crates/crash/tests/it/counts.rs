//! The states of small traces, counted by hand, and compared with an independent enumeration of the fault model.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use lodestone_crash::{
    Config, CrashMedium, History, Mode, Outcome, Profile, Recovered, Report, Target, pool_targets, run_target,
};
use lodestone_pmem::PmAddr;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// One step of a trace on four words: two lines with two words each.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Store(usize, u64),
    Stream(usize, u64),
    Flush(usize),
    Fence,
    Durable,
}
use Step::{Durable, Fence, Flush, Store, Stream};

const WORDS: usize = 4;
type Image = [u64; WORDS];

/// Word `index`: words 0 and 1 share a line, 2 and 3 another.
fn place(index: usize) -> PmAddr {
    PmAddr::new(0, 4096 + (index as u64 / 2) * 64 + (index as u64 % 2) * 8)
}

/// Runs the steps without marks and collects every image that recovery is shown.
struct Trace {
    steps: Vec<Step>,
    images: Arc<Mutex<BTreeSet<Image>>>,
}

impl Target for Trace {
    fn name(&self) -> String {
        "trace".into()
    }

    fn script_len(&self) -> usize {
        0
    }

    fn op_text(&self, _op: usize) -> String {
        String::new()
    }

    fn prepare(&self, _medium: &CrashMedium) -> Outcome {
        Ok(())
    }

    fn run(&self, medium: &CrashMedium, _ops: &[usize]) -> Outcome {
        let memory = medium.memory();
        for step in &self.steps {
            match *step {
                Store(word, value) => memory.store(place(word), value),
                Stream(word, value) => memory.stream(place(word), &value.to_le_bytes()),
                Flush(line) => memory.flush(place(line * 2), 8),
                Fence => memory.fence(),
                Durable => memory.durable()?,
            }
        }
        Ok(())
    }

    fn recover(&self, medium: &CrashMedium) -> Outcome<Box<dyn Recovered + '_>> {
        let memory = medium.memory();
        let image = std::array::from_fn(|word| memory.load(place(word)));
        self.images.lock().expect("lock").insert(image);
        Ok(Box::new(Anything))
    }
}

struct Anything;

impl Recovered for Anything {
    fn judge(&mut self, _history: &History) -> Outcome {
        Ok(())
    }
}

fn explore(steps: &[Step], profile: Profile, mode: Mode) -> (Report, BTreeSet<Image>) {
    let target = Trace { steps: steps.to_vec(), images: Arc::default() };
    let report = run_target(&target, &Config { profile, mode, ..Config::default() }, &mut |_| {}).expect_clean();
    let images = target.images.lock().expect("lock").clone();
    (report, images)
}

#[test]
fn hand_counted_states_of_the_adr_profile() {
    let cases: &[(&[Step], u64)] = &[
        // Nothing stored: the baseline alone.
        (&[], 1),
        // One word: lost or kept.
        (&[Store(0, 1)], 2),
        // Two words of one line: a prefix, 3 states and not 4.
        (&[Store(0, 1), Store(1, 1)], 3),
        // Two lines: independent.
        (&[Store(0, 1), Store(2, 1)], 4),
        // Streamed words of one line: any subset.
        (&[Stream(0, 1), Stream(1, 1)], 4),
        // Flush without fence changes nothing.
        (&[Store(0, 1), Flush(0), Store(2, 1)], 4),
        // Fence without flush changes nothing.
        (&[Store(0, 1), Fence, Store(2, 1)], 4),
        // Persisted first: {}, {0}, {0,2}.
        (&[Store(0, 1), Flush(0), Fence, Store(2, 1)], 3),
        // A flush covers only the stores before it: {}, {0}, {0,1} even after the fence.
        (&[Store(0, 1), Flush(0), Store(1, 1), Fence], 3),
        // A fence is enough for streamed words: {}, {0}, {0,2}.
        (&[Stream(0, 1), Fence, Store(2, 1)], 3),
        // Overwriting: 0, 1 or 2 in the word.
        (&[Store(0, 1), Store(0, 2)], 3),
        // Storing a word that is already there makes no new state.
        (&[Store(0, 0), Store(2, 0)], 1),
    ];
    for (steps, states) in cases {
        let (report, images) = explore(steps, Profile::Adr, Mode::Exhaustive);
        assert!(report.exhausted);
        assert_eq!((report.states, images.len() as u64), (*states, *states), "{steps:?}");
    }
}

#[test]
fn hand_counted_states_of_the_other_profiles() {
    let steps = [Store(0, 1), Store(2, 1), Flush(1), Flush(0), Store(1, 1), Durable, Store(3, 1), Flush(1)];
    // eADR: one state per store, and the start.
    assert_eq!(explore(&steps, Profile::Eadr, Mode::Exhaustive).0.states, 5);
    // Block: start, line 1, lines 1 and 0, then line 1 again with its second word; word 1 was never flushed.
    let (report, images) = explore(&steps, Profile::Block, Mode::Exhaustive);
    assert_eq!(report.states, 4);
    assert_eq!(images, BTreeSet::from([[0, 0, 0, 0], [0, 0, 1, 0], [1, 0, 1, 0], [1, 0, 1, 1]]));
}

/// The ADR fault model written down a second time, by its axioms. A crash after `steps` keeps a subset of the stores: a
/// prefix of the ordinary stores of each line, with all the certain ones.
fn by_axioms(steps: &[Step]) -> BTreeSet<Image> {
    let stores: Vec<usize> = (0..steps.len()).filter(|&at| matches!(steps[at], Store(..) | Stream(..))).collect();
    let word = |at: usize| match steps[at] {
        Store(word, _) | Stream(word, _) => word,
        _ => unreachable!("a store"),
    };
    let streamed = |at: usize| matches!(steps[at], Stream(..));
    let fenced = |from: usize| steps[from..].contains(&Fence);
    let certain = |at: usize| {
        let flush = |flush: &usize| steps[*flush] == Flush(word(at) / 2) && fenced(*flush);
        if streamed(at) { fenced(at) } else { (at..steps.len()).any(|later| flush(&later)) }
    };
    let mut images = BTreeSet::new();
    for subset in 0..1_u32 << stores.len() {
        let kept: BTreeMap<usize, bool> =
            stores.iter().enumerate().map(|(rank, &at)| (at, subset >> rank & 1 == 1)).collect();
        let allowed = stores.iter().all(|&at| {
            let prefix =
                |earlier: &&usize| **earlier < at && !streamed(**earlier) && word(**earlier) / 2 == word(at) / 2;
            (kept[&at] || !certain(at))
                && (!kept[&at] || streamed(at) || stores.iter().filter(prefix).all(|earlier| kept[earlier]))
        });
        if allowed {
            let mut image = [0; WORDS];
            for &at in stores.iter().filter(|at| kept[at]) {
                if let Store(word, value) | Stream(word, value) = steps[at] {
                    image[word] = value;
                }
            }
            images.insert(image);
        }
    }
    images
}

#[test]
fn random_traces_have_exactly_the_states_of_the_axioms() {
    let mut random = ChaCha8Rng::seed_from_u64(7);
    for round in 0..400 {
        let steps: Vec<Step> = (0..random.random_range(1..12))
            .map(|number| match random.random_range(0..10) {
                0..=3 => Store(random.random_range(0..WORDS), number + 1),
                4 => Stream(random.random_range(0..WORDS), number + 1),
                5..=7 => Flush(random.random_range(0..2)),
                _ => Fence,
            })
            .collect();
        let expected: BTreeSet<Image> = (0..=steps.len()).flat_map(|end| by_axioms(&steps[..end])).collect();
        for mode in [Mode::Exhaustive, Mode::Reading] {
            let (report, images) = explore(&steps, Profile::Adr, mode);
            assert!(report.exhausted);
            assert_eq!(images, expected, "round {round}, {mode}: {steps:?}");
        }
        let (_, sample) = explore(&steps, Profile::Adr, Mode::Representative);
        assert!(sample.is_subset(&expected), "round {round}: {steps:?}");
    }
}

/// A bound that cuts off most states leaves the sample some of each crash point.
#[test]
fn the_crash_points_of_a_sample_share_the_bound() {
    let sample = |states_max| {
        let config = Config { mode: Mode::Representative, nested_depth: 0, states_max, ..Config::default() };
        run_target(pool_targets()[0].as_ref(), &config, &mut |_| {}).expect_clean()
    };
    let whole = sample(u64::MAX);
    assert!(whole.states > 4 * whole.points, "{whole}");
    let bounded = sample(2 * whole.points);
    assert_eq!(bounded.points, whole.points, "{bounded}");
    assert!((whole.points..=2 * whole.points).contains(&bounded.states), "{bounded}");
}
