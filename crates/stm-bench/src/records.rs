//! Records under byte-string keys, as YCSB needs them: a B+-tree over transactions whose values refer to records.
//!
//! Keys are the eight bytes of a record number, big-endian, so that their order in the tree is that of the numbers. A
//! record is one object: an update writes it and leaves the tree alone. Every operation is a separate transaction.

use lodestone_pmem::{Counters, process_counters};
use lodestone_stm::PmObject;
use lodestone_workload::engine::{self, Engine, EngineCounters, EngineError, Environment, Session};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::structures::{BTree, Map};
use crate::tm::{Object, ReadBody, Reading, Ref, TransactionalMemory, UpdateBody, Worker, Writing};

/// Words of a record's value.
const VALUE_WORDS: usize = 13;

/// Largest value, in bytes.
pub const VALUE_BYTES_MAX: usize = VALUE_WORDS * 8;

/// A value and its length.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, PmObject)]
#[pm(name = "bench.Record")]
struct Record {
    length: u64,
    value: [u64; VALUE_WORDS],
}

impl Object for Record {}

impl Record {
    fn new(value: &[u8]) -> engine::Result<Self> {
        let mut record = Self { length: value.len() as u64, value: [0; VALUE_WORDS] };
        let Some(place) = record.value.as_mut_bytes().get_mut(..value.len()) else {
            return Err(EngineError::new(format!("values have at most {VALUE_BYTES_MAX} bytes here")));
        };
        place.copy_from_slice(value);
        Ok(record)
    }

    fn bytes(&self) -> &[u8] {
        let length = usize::try_from(self.length).unwrap_or(VALUE_BYTES_MAX);
        &self.value.as_bytes()[..length.min(VALUE_BYTES_MAX)]
    }
}

fn key_word(key: &[u8]) -> engine::Result<u64> {
    let bytes = <[u8; 8]>::try_from(key);
    bytes.map(u64::from_be_bytes).map_err(|_| EngineError::new("this engine takes keys of 8 bytes only"))
}

type Tree = <BTree as Map>::Handle;

/// Records in a transactional memory.
#[derive(Debug)]
pub struct Records<M> {
    memory: M,
    tree: Tree,
    name: String,
}

impl<M: TransactionalMemory> Records<M> {
    /// An empty tree of records at word 0 of the memory's root.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn create(memory: M) -> Result<Self, EngineError> {
        let tree = BTree.create(&memory, 0)?;
        let name = memory.name();
        Ok(Self { memory, tree, name })
    }
}

impl<M: TransactionalMemory + Send> Engine for Records<M> {
    type Session<'a>
        = RecordSession<'a, M::Worker<'a>>
    where
        M: 'a;

    fn name(&self) -> &str {
        &self.name
    }

    fn session(&self) -> engine::Result<Self::Session<'_>> {
        Ok(RecordSession { worker: self.memory.worker()?, tree: &self.tree, is_relaxed: false })
    }

    fn load_session(&self) -> engine::Result<Self::Session<'_>> {
        Ok(RecordSession { is_relaxed: true, ..self.session()? })
    }

    fn finish_load(&self) -> engine::Result<()> {
        self.memory.settle()
    }

    fn environment(&self) -> Environment {
        self.memory.environment()
    }

    fn counters(&self) -> EngineCounters {
        if self.memory.environment().domain.is_none() {
            return EngineCounters::default();
        }
        engine_counters(&process_counters(), self.memory.environment().domain.as_deref() == Some("block"))
    }
}

/// The counters as the workload knows them. With a journal, it is what reaches the medium.
pub(crate) fn engine_counters(counters: &Counters, journal: bool) -> EngineCounters {
    EngineCounters {
        fences: Some(counters.fences),
        flushes: Some(counters.flushes),
        pm_bytes: Some(if journal { counters.journal_bytes } else { counters.pm_bytes() }),
        media_blocks: Some(counters.media_blocks),
        syncs: Some(counters.syncs),
        aborts: None,
        commits: None,
    }
}

/// A thread's access to [`Records`].
#[derive(Debug)]
pub struct RecordSession<'a, W> {
    worker: W,
    tree: &'a Tree,
    /// Whether inserts are durable only after [`TransactionalMemory::settle`].
    is_relaxed: bool,
}

struct Read<'a> {
    tree: &'a Tree,
    key: u64,
}

impl ReadBody for Read<'_> {
    type Out = Option<Record>;

    fn run<X: Reading>(&mut self, tx: &mut X) -> Result<Option<Record>, X::Abort> {
        match BTree::get(self.tree, tx, self.key)? {
            Some(raw) => tx.read(Ref::<Record>::from_raw(raw)).map(Some),
            None => Ok(None),
        }
    }
}

/// Writes a record. Returns whether there was one.
struct Put<'a> {
    tree: &'a Tree,
    key: u64,
    record: Record,
    insert: bool,
}

impl UpdateBody for Put<'_> {
    type Out = bool;

    fn run<X: Writing>(&mut self, tx: &mut X) -> Result<bool, X::Abort> {
        let new = self.record;
        if let Some(raw) = BTree::get(self.tree, tx, self.key)? {
            tx.write(Ref::<Record>::from_raw(raw), |record| *record = new)?;
            return Ok(true);
        }
        if self.insert {
            let made = tx.alloc(new)?;
            BTree::insert(self.tree, tx, self.key, made.to_raw())?;
        }
        Ok(false)
    }
}

struct Remove<'a> {
    tree: &'a Tree,
    key: u64,
}

impl UpdateBody for Remove<'_> {
    type Out = bool;

    fn run<X: Writing>(&mut self, tx: &mut X) -> Result<bool, X::Abort> {
        let Some(raw) = BTree::get(self.tree, tx, self.key)? else { return Ok(false) };
        BTree::remove(self.tree, tx, self.key)?;
        tx.free(Ref::<Record>::from_raw(raw))?;
        Ok(true)
    }
}

struct Scan<'a> {
    tree: &'a Tree,
    start: u64,
    count: usize,
}

impl ReadBody for Scan<'_> {
    type Out = usize;

    fn run<X: Reading>(&mut self, tx: &mut X) -> Result<usize, X::Abort> {
        let (mut seen, mut sum) = (0, 0_u8);
        if self.count == 0 {
            return Ok(0);
        }
        BTree::scan(self.tree, tx, self.start, |tx, _, raw| {
            let record = tx.read(Ref::<Record>::from_raw(raw))?;
            sum = record.bytes().iter().fold(sum, |sum, byte| sum ^ byte);
            seen += 1;
            Ok(seen < self.count)
        })?;
        std::hint::black_box(sum);
        Ok(seen)
    }
}

impl<W: Worker> Session for RecordSession<'_, W> {
    fn read(&mut self, key: &[u8], value: &mut Vec<u8>) -> engine::Result<bool> {
        value.clear();
        let found = self.worker.read(&mut Read { tree: self.tree, key: key_word(key)? })?;
        Ok(found.is_some_and(|record| {
            value.extend_from_slice(record.bytes());
            true
        }))
    }

    fn insert(&mut self, key: &[u8], value: &[u8]) -> engine::Result<()> {
        let (key, record) = (key_word(key)?, Record::new(value)?);
        let mut put = Put { tree: self.tree, key, record, insert: true };
        let done = if self.is_relaxed { self.worker.update_relaxed(&mut put) } else { self.worker.update(&mut put) };
        done.map(drop)
    }

    fn update(&mut self, key: &[u8], value: &[u8]) -> engine::Result<bool> {
        let (key, record) = (key_word(key)?, Record::new(value)?);
        self.worker.update(&mut Put { tree: self.tree, key, record, insert: false })
    }

    fn scan(&mut self, start: &[u8], count: usize) -> engine::Result<usize> {
        self.worker.read(&mut Scan { tree: self.tree, start: key_word(start)?, count })
    }

    fn remove(&mut self, key: &[u8]) -> engine::Result<bool> {
        self.worker.update(&mut Remove { tree: self.tree, key: key_word(key)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dram::{Dram, DramLock};
    use lodestone_workload::ycsb::{Runner, Spec, Workload};

    #[test]
    fn ycsb_finds_every_record_it_wrote() {
        for workload in [Workload::A, Workload::D, Workload::E, Workload::F] {
            let records = Records::create(Dram::new(8 << 20, DramLock::ReaderWriter)).expect("a tree");
            let spec = Spec { records: 1_234, operations: 3_000, threads: 2, ..Spec::new(workload) };
            Runner::new(&records, &spec).load().expect("load");
            let outcome = Runner::new(&records, &spec).verify_reads(true).run().expect("run");
            assert_eq!(outcome.missing, 0, "{workload:?}");
        }
    }

    #[test]
    fn records_come_and_go_and_keep_their_lengths() {
        let records = Records::create(Dram::new(1 << 20, DramLock::None)).expect("a tree");
        let mut session = records.session().expect("a session");
        let (key, mut value) = ([9; 8], Vec::new());
        assert!(!session.update(&key, b"nothing to update").expect("update"));
        assert!(!session.read(&key, &mut value).expect("read"));
        session.insert(&key, b"seven").expect("insert");
        assert!(session.update(&key, &[3; VALUE_BYTES_MAX]).expect("update"));
        assert!(session.read(&key, &mut value).expect("read") && value == [3; VALUE_BYTES_MAX]);
        assert_eq!(session.scan(&[0; 8], 10).expect("scan"), 1);
        assert!(
            session.insert(&key, &[0; VALUE_BYTES_MAX + 1]).is_err() && session.read(b"short", &mut value).is_err()
        );
        assert!(session.remove(&key).expect("remove") && !session.remove(&key).expect("remove"));
    }
}
