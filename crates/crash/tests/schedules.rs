//! Interleavings and crashes together: a correct shared log is clean, and two wrong ones are caught, each from one
//! seed.

use lodestone_crash::schedules::{ScheduleConfig, Scheduler, explore_schedules};
use lodestone_crash::{Config, Mode, Outcome, Structure};
use lodestone_pmem::sync::{Mutex, lock};
use lodestone_pmem::{PmAddr, Pool};

#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// Record, fence, length, fence, all under the lock.
    Right,
    /// The lock is released before record and length are persistent, so another thread publishes data that may be lost.
    ReleasedEarly,
    /// No lock at all.
    Unlocked,
}

/// A log that two threads append to: a length word and one line for each record.
struct SharedLog(Way);

struct Handle {
    pool: Pool,
    at: PmAddr,
    lock: Mutex<()>,
}

impl Handle {
    fn record(&self, index: u64) -> PmAddr {
        self.at.plus(64 + index * 64)
    }

    fn append(&self, value: u64, persists: bool) -> u64 {
        let memory = self.pool.memory();
        let len = memory.load(self.at);
        memory.store(self.record(len), value);
        if persists {
            // The length may not overtake the record that it publishes.
            memory.persist(self.record(len), 8);
        }
        memory.store(self.at, len + 1);
        len
    }
}

impl Structure for SharedLog {
    type Op = u64;
    type Handle = Handle;
    type View = Vec<u64>;

    fn name(&self) -> String {
        "shared-log".into()
    }

    fn script(&self) -> Vec<u64> {
        vec![1, 2]
    }

    fn threads(&self) -> Vec<Vec<u64>> {
        vec![vec![1, 2], vec![3]]
    }

    fn open(&self, pool: &Pool) -> Outcome<Handle> {
        Ok(Handle { pool: pool.clone(), at: pool.heap_area(0).0, lock: Mutex::new(()) })
    }

    fn apply(&self, log: &Handle, value: &u64) -> Outcome {
        let memory = log.pool.memory();
        match self.0 {
            Way::Right => {
                let _guard = lock(&log.lock);
                log.append(*value, true);
                // The caller is told, and other threads read the length: it must be persistent first.
                memory.persist(log.at, 8);
            }
            Way::ReleasedEarly => {
                let guard = lock(&log.lock);
                let index = log.append(*value, false);
                drop(guard);
                memory.flush(log.record(index), 8);
                memory.fence();
                memory.persist(log.at, 8);
            }
            Way::Unlocked => {
                log.append(*value, true);
                memory.persist(log.at, 8);
            }
        }
        Ok(())
    }

    fn view(&self, log: &Handle) -> Outcome<Vec<u64>> {
        let memory = log.pool.memory();
        Ok((0..memory.load(log.at)).map(|index| memory.load(log.record(index))).collect())
    }

    fn model(&self, appended: &[u64]) -> Vec<u64> {
        appended.to_vec()
    }
}

fn config(scheduler: Scheduler) -> ScheduleConfig {
    ScheduleConfig { scheduler, schedules: 60, ..ScheduleConfig::default() }
}

#[test]
fn a_correct_shared_log_is_clean_under_every_schedule_tried() {
    for scheduler in [Scheduler::Random, Scheduler::Pct] {
        let report = explore_schedules(SharedLog(Way::Right), &config(scheduler)).expect_clean();
        println!("{report}");
        assert!(report.schedules_distinct > 3, "{report}");
        assert!(report.states > report.schedules * 10, "{report}");
    }
}

#[test]
fn wrong_ones_are_caught_and_found_again_from_their_seed_alone() {
    for way in [Way::ReleasedEarly, Way::Unlocked] {
        for scheduler in [Scheduler::Random, Scheduler::Pct] {
            let report = explore_schedules(SharedLog(way), &config(scheduler));
            println!("{report}\n");
            let (seed, violation) = report.found.expect("a violation");
            let alone = ScheduleConfig { seed, schedules: 1, ..config(scheduler) };
            let (again, repeated) = explore_schedules(SharedLog(way), &alone).found.expect("the same seed shows it");
            assert_eq!((again, repeated.token, repeated.message), (seed, violation.token, violation.message));
        }
    }
}

/// An operation on the two words of [`Copies`].
#[derive(Clone, Copy, Debug)]
enum CopyOp {
    /// Adds one to the source.
    Add,
    /// Copies the source to the target.
    Copy,
}

/// A source and a target word on two lines. With `released_early` the lock is released before the word is persistent.
/// Each thread alone is right, but a copy of a word that could still be lost may survive its source.
struct Copies {
    released_early: bool,
}

impl Structure for Copies {
    type Op = CopyOp;
    type Handle = Handle;
    type View = (u64, u64);

    fn name(&self) -> String {
        "copies".into()
    }

    fn script(&self) -> Vec<CopyOp> {
        vec![CopyOp::Add, CopyOp::Copy, CopyOp::Add]
    }

    fn threads(&self) -> Vec<Vec<CopyOp>> {
        vec![vec![CopyOp::Add, CopyOp::Add], vec![CopyOp::Copy]]
    }

    fn open(&self, pool: &Pool) -> Outcome<Handle> {
        Ok(Handle { pool: pool.clone(), at: pool.heap_area(0).0, lock: Mutex::new(()) })
    }

    fn apply(&self, words: &Handle, op: &CopyOp) -> Outcome {
        let memory = words.pool.memory();
        let guard = lock(&words.lock);
        let source = memory.load(words.at);
        let (at, value) = match op {
            CopyOp::Add => (words.at, source + 1),
            CopyOp::Copy => (words.at.plus(64), source),
        };
        memory.store(at, value);
        if self.released_early {
            drop(guard);
            memory.persist(at, 8);
        } else {
            // No thread may read the word and act on it before it is persistent.
            memory.persist(at, 8);
            drop(guard);
        }
        Ok(())
    }

    fn view(&self, words: &Handle) -> Outcome<(u64, u64)> {
        Ok((words.pool.memory().load(words.at), words.pool.memory().load(words.at.plus(64))))
    }

    fn model(&self, ops: &[CopyOp]) -> (u64, u64) {
        ops.iter().fold((0, 0), |(source, target), op| match op {
            CopyOp::Add => (source + 1, target),
            CopyOp::Copy => (source, source),
        })
    }
}

#[test]
fn a_mistake_that_only_two_threads_show_is_caught() {
    for scheduler in [Scheduler::Random, Scheduler::Pct] {
        let _ = explore_schedules(Copies { released_early: false }, &config(scheduler)).expect_clean();
        let report = explore_schedules(Copies { released_early: true }, &config(scheduler));
        println!("{report}\n");
        let (_, violation) = report.found.expect("a violation");
        assert!(violation.account.contains("LOST"), "{}", violation.account);
    }
}

/// The same structure with one thread only.
struct Alone(Copies);

impl Structure for Alone {
    type Op = CopyOp;
    type Handle = Handle;
    type View = (u64, u64);

    fn name(&self) -> String {
        "alone".into()
    }
    fn script(&self) -> Vec<CopyOp> {
        self.0.script()
    }
    fn threads(&self) -> Vec<Vec<CopyOp>> {
        vec![self.0.script()]
    }
    fn open(&self, pool: &Pool) -> Outcome<Handle> {
        self.0.open(pool)
    }
    fn apply(&self, words: &Handle, op: &CopyOp) -> Outcome {
        self.0.apply(words, op)
    }
    fn view(&self, words: &Handle) -> Outcome<(u64, u64)> {
        self.0.view(words)
    }
    fn model(&self, ops: &[CopyOp]) -> (u64, u64) {
        self.0.model(ops)
    }
}

#[test]
fn and_one_thread_alone_does_not_show_it() {
    let crash = Config { mode: Mode::Exhaustive, nested_depth: 1, ..config(Scheduler::Random).crash };
    let alone = ScheduleConfig { schedules: 3, crash, ..config(Scheduler::Random) };
    let _ = explore_schedules(Alone(Copies { released_early: true }), &alone).expect_clean();
}
