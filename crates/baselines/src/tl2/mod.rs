//! The baselines: TL2 (transactional locking with one global clock) made durable by an undo or by a redo log.
//!
//! 1. A version word in DRAM guards the objects that hash to it: it holds a version from the global clock, or a lock. A
//!    transaction notes the clock when it starts, and aborts at an object that is newer (there is no extension).
//! 2. Changes go to working copies. With a **redo** log the objects are locked at commit. With an **undo** log they are
//!    locked at their first change. The old content is then made persistent in the log before the transaction
//!    continues, which costs a fence for each object.
//! 3. The commit locks, draws a version from the clock, validates its reads, and makes the changes durable:
//!    - redo: record, **fence** (decides), objects in place, **fence**, end of the record, **fence**;
//!    - undo: objects in place, **fence**, end of the log (decides), **fence**.
//! 4. Locks are released last: no thread sees a change that a crash could still undo.
//! 5. Recovery replays the record or restores the logged contents, for each worker's log, and reads the block headers.
//!
//! Allocation is part of the transaction: a block's header word says whether it is taken, and is logged like any word.
//!
//! Invariants: versions and locks are in DRAM and mean nothing in the next life. Until a log has ended, it names only
//! objects that its transaction has locked.

pub mod blocks;
mod clock;
mod layout;
mod log;
mod recover;
mod transaction;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use lodestone_heap::{Heap, HeapOptions};
use lodestone_pmem::{Memory, Pool};
use lodestone_workload::engine::{EngineError, Environment};

pub use clock::{Clock, ClockKind};
use layout::{Geometry, HEADER_BYTES};
pub use transaction::{Tl2Transaction, Tl2Worker};

use blocks::Blocks;
use lodestone_stm_bench::tm::{Ref, Root, TransactionalMemory};

/// The log that makes the transactions durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogKind {
    /// Old contents before the change.
    Undo,
    /// New contents before the change.
    Redo,
}

/// Options of the format and the operation of a [`Tl2`].
#[derive(Debug, Clone)]
pub struct Tl2Options {
    /// The log.
    pub log: LogKind,
    /// The clock.
    pub clock: ClockKind,
    /// Bytes for objects. Persistent.
    pub object_bytes: u64,
    /// Bytes of a page, which holds objects of one size; a multiple of 64. Persistent.
    pub page_bytes: u64,
    /// Logs, one for each worker at a time. Persistent.
    pub workers: u64,
    /// Bytes of a log, a multiple of 64: the largest transaction. Persistent.
    pub log_bytes: u64,
    /// Version words, a power of two.
    pub version_words: usize,
}

impl Tl2Options {
    /// Room for the structures of the benchmark.
    #[must_use]
    pub fn new(log: LogKind, clock: ClockKind) -> Self {
        Self {
            log,
            clock,
            object_bytes: 64 << 20,
            page_bytes: 64 << 10,
            workers: 64,
            log_bytes: 32 << 10,
            version_words: 1 << 16,
        }
    }

    /// So small that every crash state can be explored.
    #[must_use]
    pub fn small(log: LogKind) -> Self {
        Self {
            object_bytes: 1920,
            page_bytes: 192,
            workers: 2,
            log_bytes: 512,
            version_words: 16,
            ..Self::new(log, ClockKind::Add)
        }
    }
}

/// A durable TL2 on its own pool.
#[derive(Debug)]
pub struct Tl2 {
    pool: Pool,
    memory: Memory,
    kind: LogKind,
    geometry: Geometry,
    clock: Clock,
    /// `version << 1`, or `worker << 1 | 1` while locked.
    versions: Box<[AtomicU64]>,
    blocks: Blocks,
    /// Logs that no worker holds. The one that was idle longest is next, so that all of them are used.
    idle_logs: Mutex<VecDeque<u64>>,
}

impl Tl2 {
    /// Opens the TL2 of `pool`. Formats it on first use, otherwise finishes or undoes the transactions that a crash
    /// interrupted.
    ///
    /// # Errors
    /// If the pool is too small, its content is damaged, or it was made for the other log.
    pub fn open(pool: &Pool, heap_options: &HeapOptions, options: &Tl2Options) -> Result<Self, EngineError> {
        let heap = Heap::open(pool, heap_options).map_err(EngineError::new)?;
        let geometry = layout::open_or_format(&heap, options)?;
        let memory = pool.memory().clone();
        recover::recover(&memory, &geometry, options.log)?;
        let blocks = Blocks::read(&memory, &geometry)?;
        Ok(Self {
            pool: pool.clone(),
            memory,
            kind: options.log,
            geometry,
            clock: Clock::new(options.clock),
            versions: (0..options.version_words.next_power_of_two()).map(|_| AtomicU64::new(0)).collect(),
            blocks,
            idle_logs: Mutex::new((0..geometry.workers).collect()),
        })
    }

    /// The pool below.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Blocks that are taken, by the count of their headers.
    #[must_use]
    pub fn blocks_taken(&self) -> u64 {
        Blocks::count_taken(&self.memory, &self.geometry)
    }

    /// The version word that guards the object at `raw`. Objects of neighbouring blocks have different ones.
    #[inline]
    fn version_word(&self, raw: u64) -> (u32, &AtomicU64) {
        let index = ((raw >> 4) ^ (raw >> 20)) as usize & (self.versions.len() - 1);
        (index as u32, &self.versions[index])
    }

    fn lease_log(&self) -> Option<u64> {
        self.idle_logs.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    fn return_log(&self, log: u64) {
        self.idle_logs.lock().unwrap_or_else(PoisonError::into_inner).push_back(log);
    }
}

impl TransactionalMemory for Tl2 {
    type Worker<'m> = Tl2Worker<'m>;

    fn name(&self) -> String {
        let log = match self.kind {
            LogKind::Undo => "undo",
            LogKind::Redo => "redo",
        };
        format!("tl2-{log}/{}", self.clock.kind().name())
    }

    fn worker(&self) -> Result<Tl2Worker<'_>, EngineError> {
        let none =
            || EngineError::new(format!("all {} logs are in use; format with more workers", self.geometry.workers));
        Ok(Tl2Worker::new(self, self.lease_log().ok_or_else(none)?))
    }

    fn root(&self) -> Ref<Root> {
        Ref::from_raw(self.geometry.area.plus(HEADER_BYTES).to_raw())
    }

    fn workers_max(&self) -> usize {
        usize::try_from(self.geometry.workers).unwrap_or(usize::MAX)
    }

    fn environment(&self) -> Environment {
        let info = self.pool.info();
        Environment {
            domain: Some(info.domain_label()),
            media: Some(info.media_label()),
            durability: Some("sync".into()),
        }
    }
}

/// Whether a version word is locked.
#[inline]
fn is_locked(word: u64) -> bool {
    word & 1 != 0
}

/// Releases a version word with a new version.
#[inline]
fn release(word: &AtomicU64, version: u64) {
    word.store(version << 1, Ordering::Release);
}
