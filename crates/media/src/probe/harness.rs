//! Several threads that repeat accesses against the clock.
//!
//! 1. Every thread makes its [`Worker`], warms up, and finds its pace. The pace is the number of accesses between two
//!    reads of the clock, such that these reads take below a hundredth of the time.
//! 2. All threads meet before every repetition. Each then works until its time is over (at least one access), and notes
//!    the number of accesses and its own time.
//! 3. A repetition's latency is the time of all threads divided by their accesses. Its bandwidth is the sum of each
//!    thread's rate.
//!
//! Invariants: a thread that fails still meets the others, so no thread waits for ever, and the caller receives the
//! first failure. Each thread is pinned to its own processor while there are enough. Further threads share processors
//! in turn.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::error::Result;
use super::{Budget, Spread};

/// Most accesses between two reads of the clock.
const PACE_MAX: u64 = 1 << 30;

/// A thread's way to access the medium.
pub(super) trait Worker {
    /// Does `count` accesses.
    fn work(&mut self, count: u64) -> Result<()>;
}

/// Threads that do the same work.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    pub(super) threads: u32,
    pub(super) access_bytes: u64,
}

/// The work of a group of threads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Measured {
    pub(super) operations: u64,
    pub(super) latency_ns: Spread,
    pub(super) bandwidth_bytes_per_s: Spread,
}

/// Accesses and time of one thread in one repetition.
#[derive(Clone, Copy, Debug)]
struct Lap {
    operations: u64,
    time: Duration,
}

/// Processors that this process may use, ascending.
pub(super) fn allowed_processors() -> Vec<usize> {
    sched_getaffinity(None).map(|set| (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect()).unwrap_or_default()
}

/// Keeps the calling thread on `cpus`, if there are any. If this process has lost these processors meanwhile, the
/// thread simply runs elsewhere.
pub(super) fn pin_to(cpus: &[usize]) {
    let mut set = CpuSet::new();
    cpus.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU).for_each(|cpu| set.set(*cpu));
    if !cpus.is_empty() {
        let _ = sched_setaffinity(None, &set);
    }
}

/// Lets all threads of all `groups` work together. `make` returns the worker of thread `index` of group `group`. The
/// threads run on `cpus`, in turn; if `cpus` is empty, wherever the kernel places them.
pub(super) fn measure<'w>(
    groups: &[Group],
    budget: &Budget,
    cpus: &[usize],
    make: &(dyn Fn(usize, u32) -> Result<Box<dyn Worker + 'w>> + Sync),
) -> Result<Vec<Measured>> {
    let threads: Vec<(usize, u32)> =
        groups.iter().enumerate().flat_map(|(group, one)| (0..one.threads).map(move |index| (group, index))).collect();
    let barrier = Barrier::new(threads.len());
    let outcomes: Vec<Result<Vec<Lap>>> = std::thread::scope(|scope| {
        let spawn = |(number, (group, index)): (usize, &(usize, u32))| {
            let (barrier, group, index) = (&barrier, *group, *index);
            let cpu = cpus.get(number % cpus.len().max(1)).copied();
            scope.spawn(move || {
                pin_to(cpu.as_slice());
                run_thread(make(group, index), budget, barrier)
            })
        };
        let handles: Vec<_> = threads.iter().enumerate().map(spawn).collect();
        handles
            .into_iter()
            .map(|handle| handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    let mut laps: Vec<Vec<Vec<Lap>>> = vec![Vec::new(); groups.len()];
    for ((group, _), outcome) in threads.iter().zip(outcomes) {
        laps[*group].push(outcome?);
    }
    Ok(groups.iter().zip(&laps).map(|(group, laps)| summary(group.access_bytes, laps)).collect())
}

/// All repetitions of one thread.
fn run_thread<'w>(worker: Result<Box<dyn Worker + 'w>>, budget: &Budget, barrier: &Barrier) -> Result<Vec<Lap>> {
    let mut state = worker.and_then(|mut worker| {
        let pace = find_pace(worker.as_mut(), budget.repetition)?;
        Ok((worker, pace))
    });
    let mut laps = Vec::with_capacity(budget.repetitions as usize);
    for _ in 0..budget.repetitions {
        barrier.wait();
        if let Ok((worker, pace)) = &mut state {
            match lap(worker.as_mut(), *pace, budget.repetition) {
                Ok(done) => laps.push(done),
                Err(error) => state = Err(error),
            }
        }
    }
    state.map(|_| laps)
}

/// Warms up. Returns the number of accesses that takes about a hundredth of a repetition, at least one.
fn find_pace(worker: &mut (dyn Worker + '_), repetition: Duration) -> Result<u64> {
    let mut count = 1;
    let begin = Instant::now();
    loop {
        let start = Instant::now();
        worker.work(count)?;
        let took = start.elapsed();
        if took >= repetition / 100 && (begin.elapsed() >= repetition || count == 1) {
            return Ok(count);
        }
        if took < repetition / 100 && count < PACE_MAX {
            count *= 2;
        } else if count == PACE_MAX {
            return Ok(count);
        }
    }
}

fn lap(worker: &mut (dyn Worker + '_), pace: u64, repetition: Duration) -> Result<Lap> {
    let start = Instant::now();
    let mut operations = 0;
    loop {
        worker.work(pace)?;
        operations += pace;
        let time = start.elapsed();
        if time >= repetition {
            return Ok(Lap { operations, time });
        }
    }
}

fn summary(access_bytes: u64, threads: &[Vec<Lap>]) -> Measured {
    let repetitions = threads.first().map_or(0, Vec::len);
    let of_repetition = |number: usize| threads.iter().filter_map(move |laps| laps.get(number));
    let seconds = |lap: &Lap| lap.time.as_secs_f64().max(1e-12);
    let latency = |number| {
        let time: f64 = of_repetition(number).map(seconds).sum();
        let operations: u64 = of_repetition(number).map(|lap| lap.operations).sum();
        time * 1e9 / operations.max(1) as f64
    };
    let bandwidth = |number| {
        let rate = |lap: &Lap| lap.operations as f64 * access_bytes as f64 / seconds(lap);
        of_repetition(number).map(rate).sum::<f64>()
    };
    Measured {
        operations: threads.iter().flatten().map(|lap| lap.operations).sum(),
        latency_ns: Spread::of((0..repetitions).map(latency)).unwrap_or_default(),
        bandwidth_bytes_per_s: Spread::of((0..repetitions).map(bandwidth)).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::ProbeError;
    use std::sync::atomic::{AtomicU64, Ordering};

    struct Counting<'a>(&'a AtomicU64);

    impl Worker for Counting<'_> {
        fn work(&mut self, count: u64) -> Result<()> {
            for _ in 0..count {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        }
    }

    struct Failing;

    impl Worker for Failing {
        fn work(&mut self, _: u64) -> Result<()> {
            Err(ProbeError::Io { action: "reading", source: std::io::Error::other("bad sector") })
        }
    }

    const SHORT: Budget = Budget { repetition: Duration::from_micros(200), repetitions: 3, virtual_operations: 10 };

    #[test]
    fn all_threads_of_all_groups_work_in_every_repetition() {
        let counts = [AtomicU64::new(0), AtomicU64::new(0)];
        let groups = [Group { threads: 2, access_bytes: 8 }, Group { threads: 1, access_bytes: 64 }];
        let make = |group: usize, _| Ok(Box::new(Counting(&counts[group])) as Box<dyn Worker>);
        let measured = measure(&groups, &SHORT, &allowed_processors(), &make).expect("measured");
        assert_eq!(measured.len(), 2);
        for (measured, count) in measured.iter().zip(&counts) {
            assert!(
                measured.operations > 0 && measured.operations < count.load(Ordering::Relaxed),
                "the rest warmed up"
            );
            assert!(measured.latency_ns.median > 0.0 && measured.bandwidth_bytes_per_s.median > 0.0);
        }
    }

    #[test]
    fn a_thread_that_fails_ends_the_measurement_and_nobody_hangs() {
        let count = AtomicU64::new(0);
        let groups = [Group { threads: 3, access_bytes: 8 }];
        let make = |_, index| {
            let worker: Box<dyn Worker> = if index == 1 { Box::new(Failing) } else { Box::new(Counting(&count)) };
            Ok(worker)
        };
        let error = measure(&groups, &SHORT, &[], &make).expect_err("a failure").to_string();
        assert!(error.contains("bad sector") && error.contains("reading"), "{error}");
    }

    #[test]
    fn rates_add_up_and_latencies_are_of_one_thread() {
        let lap = |operations, ms| Lap { operations, time: Duration::from_millis(ms) };
        let threads = [vec![lap(1000, 1), lap(1000, 2)], vec![lap(3000, 1), lap(1000, 2)]];
        let measured = summary(64, &threads);
        assert_eq!(measured.operations, 6000);
        assert!((measured.latency_ns.min - 500.0).abs() < 1e-6, "{measured:?}");
        assert!((measured.latency_ns.max - 2000.0).abs() < 1e-6);
        assert!((measured.bandwidth_bytes_per_s.max - 4e6 * 64.0).abs() < 1.0);
    }
}
