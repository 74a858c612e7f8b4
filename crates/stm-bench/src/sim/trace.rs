//! Records the work of a real engine's transactions, as a transactional memory around another one.
//!
//! Objects are numbered by first use. If a transaction was tried several times, the last attempt counts; the recorder
//! runs on one thread, so there is only one. Counters of the persistence primitives are read before and after.

use std::cell::RefCell;
use std::collections::HashMap;

use lodestone_pmem::thread_counters;
use lodestone_workload::engine::EngineError;

use crate::driver::Session;
use crate::mix::Stream;
use crate::structures::{Get, Insert, Map, Remove};
use crate::tm::{Object, ReadBody, Reading, Ref, Statistics, TransactionalMemory, UpdateBody, Worker, Writing};

/// The work of one transaction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Transaction {
    /// Objects read, in order.
    pub reads: Vec<u32>,
    /// Objects changed, made or freed.
    pub writes: Vec<u32>,
    /// Lines flushed.
    pub flushes: u32,
    /// Fences.
    pub fences: u32,
}

/// The work of many transactions, one after the other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trace {
    /// The transactions.
    pub transactions: Vec<Transaction>,
    /// Objects that occur are numbered from 0 to below this.
    pub objects: u32,
}

impl Trace {
    /// The mean of a figure over all transactions.
    #[must_use]
    pub fn mean(&self, figure: impl Fn(&Transaction) -> usize) -> f64 {
        let sum: usize = self.transactions.iter().map(figure).sum();
        sum as f64 / self.transactions.len().max(1) as f64
    }
}

/// Records `count` operations of a mix on a loaded map.
///
/// # Errors
/// Those of the engine.
pub fn record<M: TransactionalMemory, S: Map>(
    memory: &M,
    handle: &S::Handle,
    stream: &mut Stream,
    count: u64,
) -> Result<Trace, EngineError> {
    let mut session = RecordingSession::<M::Worker<'_>, S> {
        worker: memory.worker()?,
        handle,
        numbers: RefCell::new(HashMap::new()),
        trace: Trace::default(),
    };
    for _ in 0..count {
        let (kind, key) = stream.next_operation();
        session.apply(kind, key)?;
    }
    session.trace.objects = u32::try_from(session.numbers.borrow().len()).unwrap_or(u32::MAX);
    Ok(session.trace)
}

struct RecordingSession<'d, W, S: Map> {
    worker: W,
    handle: &'d S::Handle,
    numbers: RefCell<HashMap<u64, u32>>,
    trace: Trace,
}

impl<W: Worker, S: Map> RecordingSession<'_, W, S> {
    fn noted<T>(
        &mut self,
        run: impl FnOnce(&mut W, &mut Transaction, &RefCell<HashMap<u64, u32>>) -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        let mut transaction = Transaction::default();
        let before = thread_counters();
        let out = run(&mut self.worker, &mut transaction, &self.numbers)?;
        let delta = thread_counters() - before;
        transaction.flushes = u32::try_from(delta.flushes).unwrap_or(u32::MAX);
        transaction.fences = u32::try_from(delta.fences).unwrap_or(u32::MAX);
        self.trace.transactions.push(transaction);
        Ok(out)
    }
}

impl<W: Worker, S: Map> Session for RecordingSession<'_, W, S> {
    fn get(&mut self, key: u64) -> Result<Option<u64>, EngineError> {
        let map = self.handle;
        self.noted(|worker, noted, numbers| worker.read(&mut Noting { body: Get::<S> { map, key }, noted, numbers }))
    }

    fn insert(&mut self, key: u64, value: u64) -> Result<bool, EngineError> {
        let map = self.handle;
        self.noted(|worker, noted, numbers| {
            worker.update(&mut Noting { body: Insert::<S> { map, key, value }, noted, numbers })
        })
    }

    fn remove(&mut self, key: u64) -> Result<bool, EngineError> {
        let map = self.handle;
        self.noted(|worker, noted, numbers| {
            worker.update(&mut Noting { body: Remove::<S> { map, key }, noted, numbers })
        })
    }

    fn statistics(&self) -> Statistics {
        self.worker.statistics()
    }
}

/// A body whose accesses are recorded.
struct Noting<'a, B> {
    body: B,
    noted: &'a mut Transaction,
    numbers: &'a RefCell<HashMap<u64, u32>>,
}

impl<B: ReadBody> ReadBody for Noting<'_, B> {
    type Out = B::Out;

    fn run<X: Reading>(&mut self, tx: &mut X) -> Result<B::Out, X::Abort> {
        *self.noted = Transaction::default();
        self.body.run(&mut NotingAccess { tx, noted: self.noted, numbers: self.numbers })
    }
}

impl<B: UpdateBody> UpdateBody for Noting<'_, B> {
    type Out = B::Out;

    fn run<X: Writing>(&mut self, tx: &mut X) -> Result<B::Out, X::Abort> {
        *self.noted = Transaction::default();
        self.body.run(&mut NotingAccess { tx, noted: self.noted, numbers: self.numbers })
    }
}

struct NotingAccess<'a, X> {
    tx: &'a mut X,
    noted: &'a mut Transaction,
    numbers: &'a RefCell<HashMap<u64, u32>>,
}

impl<X> NotingAccess<'_, X> {
    fn number(&self, raw: u64) -> u32 {
        let mut numbers = self.numbers.borrow_mut();
        let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
        *numbers.entry(raw).or_insert(next)
    }

    fn note_write(&mut self, raw: u64) {
        let number = self.number(raw);
        if !self.noted.writes.contains(&number) {
            self.noted.writes.push(number);
        }
    }
}

impl<X: Reading> Reading for NotingAccess<'_, X> {
    type Abort = X::Abort;

    fn read<T: Object>(&mut self, at: Ref<T>) -> Result<T, X::Abort> {
        let number = self.number(at.to_raw());
        self.noted.reads.push(number);
        self.tx.read(at)
    }
}

impl<X: Writing> Writing for NotingAccess<'_, X> {
    fn write<T: Object>(&mut self, at: Ref<T>, change: impl FnOnce(&mut T)) -> Result<(), X::Abort> {
        self.note_write(at.to_raw());
        self.tx.write(at, change)
    }

    fn alloc<T: Object>(&mut self, value: T) -> Result<Ref<T>, X::Abort> {
        let made = self.tx.alloc(value)?;
        self.note_write(made.to_raw());
        Ok(made)
    }

    fn free<T: Object>(&mut self, at: Ref<T>) -> Result<(), X::Abort> {
        self.note_write(at.to_raw());
        self.tx.free(at)
    }
}
