//! Tests of the runner on a script that counts its own calls.

use std::sync::atomic::AtomicUsize;

use super::*;

/// Every third operation is of class `rare`.
#[derive(Default)]
struct Counting {
    sessions: AtomicUsize,
    steps: AtomicU64,
    finished: AtomicUsize,
    /// The thread that fails, and after how many operations.
    fault: Option<(usize, u64, bool)>,
}

struct Work<'s> {
    script: &'s Counting,
    fault: Option<(u64, bool)>,
    drawn: u64,
    steps: u64,
    settled: u64,
    /// Steps since the last drain.
    under_way: u64,
}

impl Script for Counting {
    const CLASSES: &'static [&'static str] = &["common", "never", "rare"];
    type Tally = u64;
    type Session<'s> = Work<'s>;

    fn session(&self, thread: usize) -> Result<Work<'_>> {
        self.sessions.fetch_add(1, Ordering::Relaxed);
        let fault = self.fault.filter(|fault| fault.0 == thread).map(|fault| (fault.1, fault.2));
        Ok(Work { script: self, fault, drawn: 0, steps: 0, settled: 0, under_way: 0 })
    }

    fn finish(&self) -> Result<()> {
        self.finished.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn counters(&self) -> EngineCounters {
        EngineCounters { fences: Some(self.steps.load(Ordering::Relaxed)), ..EngineCounters::default() }
    }
}

impl Session for Work<'_> {
    type Tally = u64;

    fn draw(&mut self) {
        self.drawn += 1;
    }

    fn step(&mut self) -> Result<usize> {
        assert!(self.drawn == self.steps + 1 && self.settled == self.steps, "draw, step, settle: in turn");
        match self.fault {
            Some((at, true)) if at == self.steps => panic!("planted panic"),
            Some((at, false)) if at == self.steps => return Err(EngineError::new("planted failure")),
            _ => {}
        }
        self.steps += 1;
        self.under_way += 1;
        self.script.steps.fetch_add(1, Ordering::Relaxed);
        Ok(if self.steps.is_multiple_of(3) { 2 } else { 0 })
    }

    fn settle(&mut self) -> Result<()> {
        self.settled += 1;
        Ok(())
    }

    fn drain(&mut self) -> Result<()> {
        self.under_way = 0;
        Ok(())
    }

    fn mark(&mut self) {
        assert_eq!(self.under_way, 0, "the warm-up leaves nothing to the measured phase");
        (self.drawn, self.steps, self.settled) = (0, 0, 0);
    }

    fn tally(self) -> u64 {
        assert_eq!(self.under_way, 0, "all that was begun has ended");
        self.steps
    }
}

#[test]
fn operations_are_shared_out_and_one_of_so_many_is_timed() {
    let script = Counting::default();
    let plan = Plan { time_one_of: 4, ..Plan::new(3, Length::Operations(1_001)) };
    let mut moments = Vec::new();
    let (outcome, tallies) = run(&script, &plan, &mut |moment| moments.push(moment)).unwrap();
    assert_eq!((outcome.operations, outcome.threads, tallies), (1_001, 3, vec![334, 334, 333]));
    assert_eq!(outcome.latency.len(), 84 + 84 + 84);
    let classes: Vec<_> = outcome.latency_by_class.iter().map(|(name, _)| *name).collect();
    assert_eq!(classes, ["common", "rare"]);
    assert_eq!(outcome.counters.fences, Some(1_001));
    assert_eq!((moments.first(), moments.last()), (Some(&Moment::Start), Some(&Moment::End(1_001))));
    assert_eq!(script.finished.load(Ordering::Relaxed), 1);
    assert_eq!(outcome.samples.last().map(|sample| sample.1), Some(1_001));
}

#[test]
fn a_warm_up_is_not_counted_and_the_time_ends_a_run() {
    let script = Counting::default();
    let length = Length::Time(Duration::from_millis(40));
    let brief = Duration::from_millis(10);
    let plan = Plan { warm_up: brief, sample_interval: brief, ..Plan::new(2, length) };
    let (outcome, tallies) = run(&script, &plan, &mut |_| {}).unwrap();
    assert!(script.steps.load(Ordering::Relaxed) > outcome.operations);
    assert_eq!(outcome.counters.fences, Some(outcome.operations));
    assert_eq!(tallies.iter().sum::<u64>(), outcome.operations);
    assert!(outcome.latency.is_empty());
    // A worker that begins late has fewer seconds.
    let (seconds, elapsed, samples) = (outcome.seconds, outcome.elapsed, &outcome.samples);
    assert!(seconds > 0.0 && elapsed >= brief && samples.len() > 1, "{seconds} s, {elapsed:?}, {samples:?}");
    assert!(outcome.samples.is_sorted_by(|a, b| a.0 <= b.0 && a.1 <= b.1));

    let nothing = Plan::new(2, Length::OperationsWithin(1_000, Duration::ZERO));
    assert_eq!(run(&script, &nothing, &mut |_| {}).unwrap().0.operations, 0);
    let within = Plan::new(2, Length::OperationsWithin(1_000, Duration::from_secs(60)));
    assert_eq!(run(&script, &within, &mut |_| {}).unwrap().0.operations, 1_000);
}

#[test]
fn an_error_or_a_panic_of_one_thread_ends_all() {
    let endless = Plan::new(3, Length::Operations(u64::MAX));
    for (panics, message) in [(false, "planted failure"), (true, "panicked")] {
        for warm_up in [Duration::ZERO, Duration::from_millis(5)] {
            let script = Counting { fault: Some((1, 100, panics)), ..Counting::default() };
            let plan = Plan { warm_up, ..endless.clone() };
            let error = run(&script, &plan, &mut |_| {}).map(|found| found.1).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
            assert_eq!(script.finished.load(Ordering::Relaxed), 0);
        }
    }
    assert!(run(&Counting::default(), &Plan::new(0, Length::Operations(1)), &mut |_| {}).is_err());
}

#[test]
fn shares_are_even_and_the_first_take_the_rest() {
    assert_eq!((0..4).map(|index| share_of(10, 4, index)).collect::<Vec<_>>(), [3, 3, 2, 2]);
}
