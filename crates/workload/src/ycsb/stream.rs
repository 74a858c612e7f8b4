//! The operations of one thread, drawn one by one, and the ledger through which threads learn of each other's inserts.
//!
//! Invariants:
//! - The watermark of the ledger never shrinks, and *every* thread has acknowledged all its inserts below it.
//! - A stream never asks for a record at or above the watermark that it last saw, except to insert it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

use crate::keys::KeyChooser;
use crate::mix::{Mix, OperationKind};
use crate::random::Random;
use crate::ycsb::{Spec, SpecError};

/// Draws between two reads of the ledger.
const LOOK_INTERVAL: u32 = 16;

/// One operation; records are numbers that a [`crate::keys::KeyCodec`] turns into keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    /// The kind.
    pub kind: OperationKind,
    /// The record, or the first record of a scan.
    pub record: u64,
    /// Records of a scan; 1 for every other kind.
    pub count: usize,
}

/// The progress of each thread's inserts.
#[derive(Debug)]
pub struct InsertLedger {
    records: u64,
    finished: Box<[CachePadded<AtomicU64>]>,
}

impl InsertLedger {
    /// No thread has inserted anything yet, and `records` is the first new record.
    #[must_use]
    pub fn new(records: u64, threads: usize) -> Self {
        Self { records, finished: (0..threads).map(|_| CachePadded::default()).collect() }
    }

    /// Every record below this number exists.
    #[must_use]
    pub fn watermark(&self) -> u64 {
        // Acquire pairs with the release in `finish`: a thread that sees the count may read the records.
        let slowest = self.finished.iter().map(|count| count.load(Ordering::Acquire)).min();
        self.records + slowest.unwrap_or(0) * self.finished.len() as u64
    }

    /// Records that exist now, including those above the watermark.
    #[must_use]
    pub fn population(&self) -> u64 {
        let inserted: u64 = self.finished.iter().map(|count| count.load(Ordering::Acquire)).sum();
        self.records + inserted
    }

    /// Thread `thread` has finished `count` inserts so far.
    #[inline]
    pub fn finish(&self, thread: usize, count: u64) {
        // Release: a thread that sees the count may read the records.
        self.finished[thread].store(count, Ordering::Release);
    }
}

/// The state that the threads of a run share.
#[derive(Debug, Clone)]
pub struct Generator {
    mix: Mix,
    chooser: KeyChooser,
    scan_records_max: u64,
    records: u64,
    threads: usize,
    seed: u64,
    ledger: Arc<InsertLedger>,
}

impl Generator {
    /// Prepares the streams of `spec`.
    ///
    /// # Errors
    /// [`SpecError`] if the specification cannot be run.
    pub fn new(spec: &Spec) -> Result<Self, SpecError> {
        spec.validate()?;
        Ok(Self {
            mix: spec.workload.mix(),
            chooser: KeyChooser::new(spec.distribution, spec.records, spec.capacity())?,
            scan_records_max: spec.scan_records_max,
            records: spec.records,
            threads: spec.threads,
            seed: spec.seed,
            ledger: Arc::new(InsertLedger::new(spec.records, spec.threads)),
        })
    }

    /// The ledger of inserts.
    #[must_use]
    pub fn ledger(&self) -> &Arc<InsertLedger> {
        &self.ledger
    }

    /// The endless stream of operations of one thread.
    ///
    /// # Panics
    /// If `thread` is not below the specification's number of threads.
    #[must_use]
    pub fn stream(&self, thread: usize) -> OperationStream {
        assert!(thread < self.threads, "thread {thread} of {}", self.threads);
        let mut chooser = self.chooser.clone();
        chooser.start_at(self.records / self.threads as u64 * thread as u64);
        OperationStream {
            mix: self.mix.clone(),
            has_inserts: self.mix.share(OperationKind::Insert) > 0,
            chooser,
            random: Random::for_stream(self.seed, thread as u64),
            scan_records_max: self.scan_records_max,
            thread,
            threads: self.threads as u64,
            population: self.records,
            inserts_started: 0,
            inserts_finished: 0,
            draws_until_look: LOOK_INTERVAL,
            ledger: Arc::clone(&self.ledger),
        }
    }
}

/// The operations of one thread.
#[derive(Debug)]
pub struct OperationStream {
    mix: Mix,
    has_inserts: bool,
    chooser: KeyChooser,
    random: Random,
    scan_records_max: u64,
    thread: usize,
    threads: u64,
    /// Records that may be chosen: the watermark as last seen.
    population: u64,
    inserts_started: u64,
    inserts_finished: u64,
    draws_until_look: u32,
    ledger: Arc<InsertLedger>,
}

impl OperationStream {
    /// The next operation.
    #[inline]
    pub fn next_operation(&mut self) -> Operation {
        let kind = self.mix.choose(&mut self.random);
        if kind == OperationKind::Insert {
            let record = self.ledger.records + self.thread as u64 + self.inserts_started * self.threads;
            self.inserts_started += 1;
            return Operation { kind, record, count: 1 };
        }
        if self.has_inserts {
            self.look_at_ledger();
        }
        let record = self.chooser.choose(&mut self.random, self.population);
        let count = if kind == OperationKind::Scan {
            usize::try_from(self.random.below(self.scan_records_max) + 1).unwrap_or(usize::MAX)
        } else {
            1
        };
        Operation { kind, record, count }
    }

    /// Reports that the oldest unfinished insert of this stream took effect. Only then do streams choose its record.
    ///
    /// # Panics
    /// If no insert is unfinished.
    pub fn finish_insert(&mut self) {
        assert!(self.inserts_finished < self.inserts_started, "an insert must be drawn before it is finished");
        self.inserts_finished += 1;
        self.ledger.finish(self.thread, self.inserts_finished);
    }

    #[inline]
    fn look_at_ledger(&mut self) {
        self.draws_until_look -= 1;
        if self.draws_until_look == 0 {
            self.draws_until_look = LOOK_INTERVAL;
            self.population = self.ledger.watermark();
        }
    }
}
