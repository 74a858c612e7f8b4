//! The structures of the benchmark: maps from `u64` to `u64`, written once over [`crate::tm`].
//!
//! | structure | objects | contention |
//! | --- | --- | --- |
//! | [`HashTable`] | a head for each bucket, chained nodes | low |
//! | [`SearchTree`] | nodes, unbalanced | every path starts at the root |
//! | [`SortedList`] | chained nodes in key order | every reader passes every earlier node |
//! | [`BTree`] | inner nodes and linked leaves of 14 entries | leaves; rarely inner nodes |
//!
//! An insert of a present key and a remove of an absent one change nothing: such a transaction ends as a reader.

mod btree;
mod hash;
mod list;
mod tree;

pub use btree::BTree;
pub use hash::HashTable;
pub use list::SortedList;
pub use tree::SearchTree;

use lodestone_stm::PmObject;
use lodestone_workload::engine::EngineError;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::tm::{Object, ReadBody, Reading, Ref, Root, TransactionalMemory, UpdateBody, Worker, Writing};

/// A map over transactions.
pub trait Map: Copy + Send + Sync + 'static {
    /// A thread's data in DRAM for finding the structure.
    type Handle: Send + Sync;

    /// Name for results.
    fn name(&self) -> &'static str;

    /// Makes an empty map whose start is in word `slot` of the root.
    ///
    /// # Errors
    /// Those of the engine.
    fn create<M: TransactionalMemory>(&self, memory: &M, slot: usize) -> Result<Self::Handle, EngineError>;

    /// Finds the map that [`create`](Self::create) made.
    ///
    /// # Errors
    /// Those of the engine.
    fn open<M: TransactionalMemory>(&self, memory: &M, slot: usize) -> Result<Self::Handle, EngineError>;

    /// The value of `key`.
    ///
    /// # Errors
    /// An abort.
    fn get<X: Reading>(map: &Self::Handle, tx: &mut X, key: u64) -> Result<Option<u64>, X::Abort>;

    /// Adds `key`. Returns false, and changes nothing, if it is present.
    ///
    /// # Errors
    /// An abort.
    fn insert<X: Writing>(map: &Self::Handle, tx: &mut X, key: u64, value: u64) -> Result<bool, X::Abort>;

    /// Removes `key`. Returns false if it is absent.
    ///
    /// # Errors
    /// An abort.
    fn remove<X: Writing>(map: &Self::Handle, tx: &mut X, key: u64) -> Result<bool, X::Abort>;

    /// Every entry, in the order of the structure, and the number of objects that hold them. For checks, not for speed.
    ///
    /// # Errors
    /// An abort.
    fn entries<X: Reading>(map: &Self::Handle, tx: &mut X) -> Result<Entries, X::Abort>;
}

/// The result of [`Map::entries`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entries {
    /// Keys and values.
    pub pairs: Vec<(u64, u64)>,
    /// Objects of the structure, including those of the handle's directory.
    pub objects: u64,
    /// The fault inside the structure, if there is one.
    pub fault: Option<String>,
}

/// Reads one key.
#[derive(Debug)]
pub struct Get<'h, M: Map> {
    /// The map.
    pub map: &'h M::Handle,
    /// The key.
    pub key: u64,
}

impl<M: Map> ReadBody for Get<'_, M> {
    type Out = Option<u64>;

    #[inline]
    fn run<X: Reading>(&mut self, tx: &mut X) -> Result<Option<u64>, X::Abort> {
        M::get(self.map, tx, self.key)
    }
}

/// Inserts one key.
#[derive(Debug)]
pub struct Insert<'h, M: Map> {
    /// The map.
    pub map: &'h M::Handle,
    /// The key.
    pub key: u64,
    /// Its value.
    pub value: u64,
}

impl<M: Map> UpdateBody for Insert<'_, M> {
    type Out = bool;

    #[inline]
    fn run<X: Writing>(&mut self, tx: &mut X) -> Result<bool, X::Abort> {
        M::insert(self.map, tx, self.key, self.value)
    }
}

/// Removes one key.
#[derive(Debug)]
pub struct Remove<'h, M: Map> {
    /// The map.
    pub map: &'h M::Handle,
    /// The key.
    pub key: u64,
}

impl<M: Map> UpdateBody for Remove<'_, M> {
    type Out = bool;

    #[inline]
    fn run<X: Writing>(&mut self, tx: &mut X) -> Result<bool, X::Abort> {
        M::remove(self.map, tx, self.key)
    }
}

/// Reads everything.
#[derive(Debug)]
pub struct ReadAll<'h, M: Map> {
    /// The map.
    pub map: &'h M::Handle,
}

impl<M: Map> ReadBody for ReadAll<'_, M> {
    type Out = Entries;

    fn run<X: Reading>(&mut self, tx: &mut X) -> Result<Entries, X::Abort> {
        M::entries(self.map, tx)
    }
}

/// A chained node: one entry.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, PmObject)]
#[pm(name = "bench.Node")]
pub(crate) struct Node {
    pub(crate) key: u64,
    /// [`Ref`] of the next node, 0 at the end.
    pub(crate) next: u64,
    pub(crate) value: u64,
}

impl Object for Node {}

/// A word that refers to the first node of something.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, PmObject)]
#[pm(name = "bench.Head")]
pub struct Head {
    /// [`Ref`] of the first node; 0 if there is none.
    pub first: u64,
}

impl Object for Head {}

/// Makes a [`Head`] and keeps it in a word of the root.
struct MakeHead {
    root: Ref<Root>,
    slot: usize,
}

impl UpdateBody for MakeHead {
    type Out = Ref<Head>;

    fn run<X: Writing>(&mut self, tx: &mut X) -> Result<Ref<Head>, X::Abort> {
        let head = tx.alloc(Head { first: 0 })?;
        let slot = self.slot;
        tx.write(self.root, |root| root.words[slot] = head.to_raw())?;
        Ok(head)
    }
}

/// Reads a word of the root.
struct FindHead {
    root: Ref<Root>,
    slot: usize,
}

impl ReadBody for FindHead {
    type Out = Ref<Head>;

    fn run<X: Reading>(&mut self, tx: &mut X) -> Result<Ref<Head>, X::Abort> {
        Ok(Ref::from_raw(tx.read(self.root)?.words[self.slot]))
    }
}

fn make_head<M: TransactionalMemory>(memory: &M, slot: usize) -> Result<Ref<Head>, EngineError> {
    memory.worker()?.update(&mut MakeHead { root: memory.root(), slot })
}

fn find_head<M: TransactionalMemory>(memory: &M, slot: usize) -> Result<Ref<Head>, EngineError> {
    let head = memory.worker()?.read(&mut FindHead { root: memory.root(), slot })?;
    if head.is_null() { Err(EngineError::new(format!("root word {slot} holds no structure"))) } else { Ok(head) }
}
