//! Runs of a target: inputs one after the other, until one fails or the time is over.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::corpus::Corpus;
use crate::input::{Features, Input};
use crate::mutation::mutate;
use crate::targets::Target;

/// An input that takes so much time of a processor is a failure: work for one input is bounded.
const INPUT_TIME_MAX: Duration = Duration::from_secs(5);
/// The input that runs, and the time of a processor when it began.
static UNDER_WAY: Mutex<Option<(Duration, Vec<u8>)>> = Mutex::new(None);
/// Tries to make a failing input shorter.
const SHORTER_TRIES: usize = 4_000;

/// A failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The input, as short as it could be made.
    pub input: Vec<u8>,
    /// The fault that it shows.
    pub reason: String,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Inputs so far.
    pub inputs: u64,
    /// Inputs of the corpus.
    pub corpus: usize,
    /// Different things that were seen.
    pub features: usize,
}

/// Time of a processor that this process has had. Time of the wall passes too while others use the processors.
#[must_use]
pub fn processor_time() -> Duration {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(tv_sec).unwrap_or(0), u32::try_from(tv_nsec).unwrap_or(0))
}

fn set_under_way(input: Option<(Duration, &[u8])>) {
    *UNDER_WAY.lock().unwrap_or_else(PoisonError::into_inner) = input.map(|(since, input)| (since, input.to_vec()));
}

/// The input that has taken more than `most` of a processor: it may never end, so nothing else would tell of it.
#[must_use]
pub fn stuck(most: Duration) -> Option<Vec<u8>> {
    let under_way = UNDER_WAY.lock().unwrap_or_else(PoisonError::into_inner);
    let taken = |since: &Duration| processor_time().saturating_sub(*since);
    under_way.as_ref().filter(|(since, _)| taken(since) > most).map(|(_, input)| input.clone())
}

/// Why `input` fails, and what was seen.
#[must_use]
pub fn fails(target: &Target, input: &[u8]) -> (Option<String>, Features) {
    let mut features = Features::default();
    let started = processor_time();
    set_under_way(Some((started, input)));
    let judged = catch_unwind(AssertUnwindSafe(|| (target.run)(&mut Input::new(input), &mut features)));
    set_under_way(None);
    let taken = processor_time().saturating_sub(started);
    let reason = match judged {
        Ok(Ok(())) if taken > INPUT_TIME_MAX => Some(format!("it took {taken:?} of a processor")),
        Ok(Ok(())) => None,
        Ok(Err(reason)) => Some(reason),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
            Some(format!("a panic: {}", text.unwrap_or("without a text")))
        }
    };
    (reason, features)
}

/// The shortest input with the same kind of failure that a number of tries finds.
#[must_use]
pub fn shortest(target: &Target, failure: Failure) -> Failure {
    let kind = |reason: &str| reason.chars().filter(|letter| !letter.is_ascii_digit()).take(40).collect::<String>();
    let wanted = kind(&failure.reason);
    let mut best = failure;
    let mut left = SHORTER_TRIES;
    let mut size = best.input.len().max(1);
    while size > 0 && left > 0 {
        let mut at = 0;
        let mut is_shorter = false;
        while at < best.input.len() && left > 0 {
            left -= 1;
            let mut input = best.input.clone();
            input.drain(at..(at + size).min(best.input.len()));
            match fails(target, &input).0.filter(|reason| kind(reason) == wanted) {
                Some(reason) => (best, is_shorter) = (Failure { input, reason }, true),
                None => at += size,
            }
        }
        size = if is_shorter && size == 1 { 1 } else { size / 2 };
    }
    for at in 0..best.input.len() {
        let mut input = best.input.clone();
        if std::mem::take(&mut input[at]) == 0 || left == 0 {
            continue;
        }
        left -= 1;
        if let Some(reason) = fails(target, &input).0.filter(|reason| kind(reason) == wanted) {
            best = Failure { input, reason };
        }
    }
    best
}

/// A run.
#[derive(Debug)]
pub struct Run<'t> {
    target: &'t Target,
    random: ChaCha8Rng,
    seen: Features,
    progress: Progress,
}

impl<'t> Run<'t> {
    /// A run whose inputs are drawn from a seed.
    #[must_use]
    pub fn new(target: &'t Target, seed: u64) -> Self {
        let (seen, progress) = (Features::default(), Progress::default());
        Self { target, random: ChaCha8Rng::seed_from_u64(seed), seen, progress }
    }

    /// How far it is.
    #[must_use]
    pub const fn progress(&self) -> Progress {
        self.progress
    }

    fn one(&mut self, input: &[u8]) -> (Option<Failure>, bool) {
        let (reason, features) = fails(self.target, input);
        let is_new = self.seen.join(&features);
        self.progress.inputs += 1;
        self.progress.features = self.seen.len();
        (reason.map(|reason| Failure { input: input.to_vec(), reason }), is_new)
    }

    /// All inputs of the corpus, once.
    #[must_use]
    pub fn replay(&mut self, corpus: &Corpus) -> Option<Failure> {
        self.progress.corpus = corpus.inputs.len();
        corpus.inputs.iter().find_map(|input| self.one(input).0)
    }

    /// So many new inputs; those that show something new join the corpus.
    ///
    /// # Errors
    /// A corpus that cannot be written.
    pub fn go_on(&mut self, corpus: &mut Corpus, inputs: u64) -> Result<Option<Failure>> {
        for _ in 0..inputs {
            let input = mutate(&mut self.random, &corpus.inputs);
            let (failure, is_new) = self.one(&input);
            if failure.is_some() {
                return Ok(failure);
            }
            if is_new {
                corpus.keep(input)?;
                self.progress.corpus = corpus.inputs.len();
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_is_stuck_while_it_runs() {
        let target = Target {
            run: |_, _| match stuck(Duration::ZERO) {
                Some(input) if input == [1, 2] => Err("seen while it runs".to_owned()),
                other => Err(format!("{other:?}")),
            },
            ..*crate::targets::target("packet").expect("it exists")
        };
        assert_eq!(fails(&target, &[1, 2]).0.as_deref(), Some("seen while it runs"));
        assert_eq!(stuck(Duration::ZERO), None, "it has ended");
    }
}
