//! The map that the runner drives, with any kind of transactions.
//!
//! A [`MapOn`] joins a structure of [`crate::structures`] with a transactional memory. Peers in other languages
//! implement [`Driver`] themselves. The runner is compiled for each driver, so no call is virtual.

use lodestone_workload::engine::{EngineError, Environment};
use lodestone_workload::mix::OperationKind;

use crate::mix::value_of;
use crate::structures::{Entries, Get, Insert, Map, ReadAll, Remove};
use crate::tm::{Statistics, TransactionalMemory, Worker};

/// A map that many threads work on.
pub trait Driver: Sync {
    /// One thread's access.
    type Session<'d>: Session
    where
        Self: 'd;

    /// Name of the engine, for results.
    fn engine(&self) -> String;

    /// Name of the structure, for results.
    fn structure(&self) -> &str;

    /// Opens a session, on the thread that will use it.
    ///
    /// # Errors
    /// If there are no more.
    fn session(&self) -> Result<Self::Session<'_>, EngineError>;

    /// Most sessions at a time.
    fn threads_max(&self) -> usize;

    /// Where it runs, and the meaning of a commit.
    fn environment(&self) -> Environment;

    /// Whether the counters of `lodestone-pmem` see its work.
    fn is_counted(&self) -> bool;

    /// The content of the map. Called while no session is open.
    ///
    /// # Errors
    /// Those of the engine.
    fn entries(&self) -> Result<Entries, EngineError>;
}

/// One thread's access to a [`Driver`].
pub trait Session {
    /// The value of `key`.
    ///
    /// # Errors
    /// Those of the engine.
    fn get(&mut self, key: u64) -> Result<Option<u64>, EngineError>;

    /// Adds `key`. Returns false, and changes nothing, if it is present.
    ///
    /// # Errors
    /// Those of the engine.
    fn insert(&mut self, key: u64, value: u64) -> Result<bool, EngineError>;

    /// Removes `key`. Returns false if it is absent.
    ///
    /// # Errors
    /// Those of the engine.
    fn remove(&mut self, key: u64) -> Result<bool, EngineError>;

    /// Does an operation of a mix: a remove, an insert of the key's own value, or else a read. Returns whether it
    /// changed the map.
    ///
    /// # Errors
    /// Those of the engine.
    #[inline]
    fn apply(&mut self, kind: OperationKind, key: u64) -> Result<bool, EngineError> {
        match kind {
            OperationKind::Insert => self.insert(key, value_of(key)),
            OperationKind::Remove => self.remove(key),
            _ => {
                std::hint::black_box(self.get(key)?);
                Ok(false)
            }
        }
    }

    /// Commits and aborts so far.
    fn statistics(&self) -> Statistics {
        Statistics::default()
    }
}

/// A structure on a transactional memory.
#[derive(Debug)]
pub struct MapOn<'m, M, S: Map> {
    memory: &'m M,
    map: S,
    handle: S::Handle,
}

impl<'m, M: TransactionalMemory, S: Map> MapOn<'m, M, S> {
    /// Makes the structure at word 0 of the memory's root.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn create(memory: &'m M, map: S) -> Result<Self, EngineError> {
        let handle = map.create(memory, 0)?;
        Ok(Self { memory, map, handle })
    }
}

impl<M: TransactionalMemory, S: Map> Driver for MapOn<'_, M, S> {
    type Session<'d>
        = MapSession<'d, M::Worker<'d>, S>
    where
        Self: 'd;

    fn engine(&self) -> String {
        self.memory.name()
    }

    fn structure(&self) -> &str {
        self.map.name()
    }

    fn session(&self) -> Result<Self::Session<'_>, EngineError> {
        Ok(MapSession { worker: self.memory.worker()?, handle: &self.handle })
    }

    fn threads_max(&self) -> usize {
        self.memory.workers_max()
    }

    fn environment(&self) -> Environment {
        self.memory.environment()
    }

    fn is_counted(&self) -> bool {
        self.memory.environment().domain.is_some()
    }

    fn entries(&self) -> Result<Entries, EngineError> {
        self.memory.worker()?.read(&mut ReadAll::<S> { map: &self.handle })
    }
}

/// A session of a [`MapOn`].
#[derive(Debug)]
pub struct MapSession<'d, W, S: Map> {
    worker: W,
    handle: &'d S::Handle,
}

impl<W: Worker, S: Map> Session for MapSession<'_, W, S> {
    #[inline]
    fn get(&mut self, key: u64) -> Result<Option<u64>, EngineError> {
        self.worker.read(&mut Get::<S> { map: self.handle, key })
    }

    #[inline]
    fn insert(&mut self, key: u64, value: u64) -> Result<bool, EngineError> {
        self.worker.update(&mut Insert::<S> { map: self.handle, key, value })
    }

    #[inline]
    fn remove(&mut self, key: u64) -> Result<bool, EngineError> {
        self.worker.update(&mut Remove::<S> { map: self.handle, key })
    }

    fn statistics(&self) -> Statistics {
        self.worker.statistics()
    }
}
