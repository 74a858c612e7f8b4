//! Cuts beside commits under the deterministic scheduler, and each rule of the protocol broken.
//!
//! Rows are locks with a history: which records changed them, in order. A commit locks one row or two. After a cut the
//! history of each row is copied, as a round copies rows.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use lodestone_pmem::sync::{Mutex, lock};
use lodestone_txn::Writer;

use super::Cuts;

/// A record by writer and position.
type RecordId = (usize, u64);

/// The rule that a run breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    Nothing,
    EpochBeforeLocks,
    EndAfterUnlock,
    PositionsBeforeEpoch,
    EndBeforeEpoch,
}

struct Model {
    cuts: Cuts,
    rows: [Mutex<Vec<RecordId>>; 2],
    broken: Broken,
}

impl Model {
    fn commit(&self, writer: Writer, position: u64, rows: &[usize]) {
        let early = self.cuts.epoch();
        let mut locks: Vec<_> = rows.iter().map(|row| lock(&self.rows[*row])).collect();
        let epoch = if self.broken == Broken::EpochBeforeLocks { early } else { self.cuts.epoch() };
        if self.broken == Broken::EndBeforeEpoch {
            self.cuts.ends(writer, position + 1);
        }
        self.cuts.begins(writer, epoch, position);
        if self.broken != Broken::EndAfterUnlock {
            self.cuts.ends(writer, position + 1);
        }
        locks.iter_mut().for_each(|row| row.push((writer.index(), position)));
        drop(locks);
        self.cuts.ends(writer, position + 1);
    }

    /// A cut, and the rows as they are after it.
    fn cut(&self) -> (Vec<u64>, [Vec<RecordId>; 2]) {
        let positions = if self.broken == Broken::PositionsBeforeEpoch {
            let positions = self.cuts.positions(self.cuts.epoch());
            self.cuts.raise();
            positions
        } else {
            self.cuts.cut().1
        };
        (positions, [0, 1].map(|row| lock(&self.rows[row]).clone()))
    }
}

/// Three writers, whose commits are built on each other in both rows, beside two cuts.
fn commits_and_cuts(broken: Broken) {
    let rows = [(); 2].map(|()| Mutex::new(Vec::new()));
    let model = Arc::new(Model { cuts: Cuts::new(3, []), rows, broken });
    let plans: [&[&[usize]]; 3] = [&[&[0], &[0, 1]], &[&[0, 1]], &[&[1], &[0]]];
    let writers: Vec<_> = (0..)
        .zip(plans)
        .map(|(number, plan)| {
            let model = model.clone();
            let writer = Writer::new(number).expect("a writer");
            shuttle::thread::spawn(move || {
                (0..).zip(plan).for_each(|(position, rows)| model.commit(writer, position, rows));
            })
        })
        .collect();
    let cuts = [model.cut(), model.cut()];
    writers.into_iter().for_each(|writer| writer.join().expect("no panic"));
    for (positions, copied) in &cuts {
        let is_below = |record: &RecordId| record.1 < positions[record.0];
        for (row, copied) in model.rows.iter().zip(copied) {
            let history = lock(row);
            let below = history.iter().take_while(|record| is_below(record)).count();
            assert!(!history[below..].iter().any(is_below), "{history:?} is not closed below {positions:?}");
            assert!(below <= copied.len(), "{history:?}: a record below {positions:?} is not in {copied:?}");
        }
    }
}

fn explore(broken: Broken, schedules: usize) {
    shuttle::check_random(move || commits_and_cuts(broken), schedules);
    shuttle::check_pct(move || commits_and_cuts(broken), schedules, 4);
}

#[test]
fn records_below_a_cut_are_closed_and_copied() {
    explore(Broken::Nothing, 20_000);
}

#[test]
fn each_broken_rule_is_found() {
    use Broken::{EndAfterUnlock, EndBeforeEpoch, EpochBeforeLocks, PositionsBeforeEpoch};
    for broken in [EpochBeforeLocks, EndAfterUnlock, PositionsBeforeEpoch, EndBeforeEpoch] {
        let outcome = catch_unwind(AssertUnwindSafe(|| explore(broken, 20_000)));
        assert!(outcome.is_err(), "{broken:?} is not found");
    }
}
