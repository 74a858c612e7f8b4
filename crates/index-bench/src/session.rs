//! One thread of a run: it executes its tape, operation by operation, and checks every answer.
//!
//! Inserts are of new records: thread `t` of `n` inserts `first_new_record + t`, `first_new_record + t + n`, and so on.
//! Removes are of loaded records: thread `t` removes `t`, `t + n`, and so on, each once. Records are scattered over the
//! keys. Reads and updates may therefore meet a record that was removed. The tally says how many did.

use std::iter::Sum;

use lodestone_workload::engine::EngineError;
use lodestone_workload::mix::OperationKind;
use lodestone_workload::race;
use lodestone_workload::random::Random;
use lodestone_workload::ycsb::InsertLedger;

use crate::key::{KeyMaker, belongs, value_of};
use crate::runner::Spec;
use crate::tape::Tape;
use crate::target::{Result, Session};

/// Operations between two checks of the other threads' inserts.
const LOOK_INTERVAL: u64 = 64;

/// A thread's counts in the measured phase, or those of all threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Inserts since the load, warm-up included.
    pub inserted: u64,
    /// Removals since the load, warm-up included.
    pub removed: u64,
    /// Reads and updates of removed records.
    pub missing: u64,
    /// Keys that scans read.
    pub scanned: u64,
}

impl Sum for Tally {
    fn sum<I: Iterator<Item = Self>>(tallies: I) -> Self {
        tallies.fold(Self::default(), |sum, next| Self {
            inserted: sum.inserted + next.inserted,
            removed: sum.removed + next.removed,
            missing: sum.missing + next.missing,
            scanned: sum.scanned + next.scanned,
        })
    }
}

/// One thread at work.
pub(crate) struct Work<'a, S, M> {
    spec: &'a Spec,
    ledger: &'a InsertLedger,
    thread: usize,
    session: S,
    keys: M,
    tape: Tape,
    random: Random,
    population: u64,
    version: u32,
    removals: u64,
    tally: Tally,
}

impl<'a, S: Session, M: KeyMaker<Key = S::Key>> Work<'a, S, M> {
    pub(crate) fn new(session: S, keys: M, spec: &'a Spec, thread: usize, ledger: &'a InsertLedger) -> Result<Self> {
        let share = spec.plan.operations_of(thread).map_or(u64::MAX, |share| share.max(1));
        let tape = Tape::draw(&spec.mix, spec.distribution, spec.records, spec.seed, thread as u64, share);
        Ok(Self {
            spec,
            ledger,
            thread,
            session,
            keys,
            tape: tape.map_err(EngineError::new)?,
            random: Random::for_stream(spec.seed ^ 0x5CA9, thread as u64),
            population: spec.records,
            version: 1 + thread as u32,
            removals: 0,
            tally: Tally::default(),
        })
    }

    #[inline]
    fn read(&mut self, record: u64) -> Result<bool> {
        match self.session.get(self.keys.key(record))? {
            Some(value) if belongs(record, value) => Ok(true),
            Some(value) => Err(wrong_value(record, value)),
            None => Ok(false),
        }
    }

    #[inline]
    fn update(&mut self, record: u64) -> Result<bool> {
        self.version = self.version.wrapping_add(1);
        self.session.update(self.keys.key(record), value_of(record, self.version))
    }

    fn insert(&mut self) -> Result<bool> {
        let threads = self.spec.plan.threads as u64;
        let record = self.spec.first_new_record + self.thread as u64 + self.tally.inserted * threads;
        let is_new = self.session.insert(self.keys.key(record), value_of(record, 0))?;
        if !is_new {
            return Err(EngineError::new(format!("record {record} is new, but the index says that its key is there")));
        }
        self.tally.inserted += 1;
        self.ledger.finish(self.thread, self.tally.inserted);
        if self.tally.inserted.is_multiple_of(LOOK_INTERVAL) {
            self.population = self.ledger.watermark();
        }
        Ok(true)
    }

    fn remove(&mut self) -> Result<bool> {
        let record = self.thread as u64 + self.removals * self.spec.plan.threads as u64;
        if record >= self.spec.records {
            return Ok(false);
        }
        self.removals += 1;
        let was_there = self.session.remove(self.keys.key(record))?;
        if !was_there {
            return Err(EngineError::new(format!(
                "record {record} was loaded and not removed, but its key is not there"
            )));
        }
        self.tally.removed += 1;
        Ok(true)
    }
}

impl<S: Session, M: KeyMaker<Key = S::Key>> race::Session for Work<'_, S, M> {
    type Tally = Tally;

    #[inline]
    fn step(&mut self) -> Result<usize> {
        let (kind, record) = self.tape.next_operation(self.population);
        let found = match kind {
            OperationKind::Read => self.read(record)?,
            OperationKind::Update => self.update(record)?,
            OperationKind::ReadModifyWrite => self.read(record)? && self.update(record)?,
            OperationKind::Insert => self.insert()?,
            OperationKind::Remove => self.remove()?,
            OperationKind::Scan => {
                let (least, most) = (*self.spec.scan_keys.start(), *self.spec.scan_keys.end());
                let count = least + self.random.below(most - least + 1);
                self.tally.scanned += self.session.scan(self.keys.key(record), count)?;
                true
            }
        };
        self.tally.missing += u64::from(!found);
        Ok(kind.index())
    }

    fn mark(&mut self) {
        (self.tally.missing, self.tally.scanned) = (0, 0);
    }

    fn tally(self) -> Tally {
        self.tally
    }
}

/// The error of a value that was never written under its key.
fn wrong_value(record: u64, value: u64) -> EngineError {
    EngineError::new(format!("record {record} holds {value:#x}, which was never its value; run the index's check"))
}
