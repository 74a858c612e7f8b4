//! What an index offers to the workload: words under keys, one session for each thread.
//!
//! The runner is compiled for each target, so no call goes through a table.

use lodestone_index::IndexKey;
use lodestone_workload::engine::{EngineCounters, EngineError, Environment};

/// The outcome of a call.
pub type Result<T> = std::result::Result<T, EngineError>;

/// An index under test.
pub trait Target: Sync {
    /// What it is asked by.
    type Key: IndexKey + ?Sized;
    /// One thread's way in.
    type Session<'t>: Session<Key = Self::Key>
    where
        Self: 't;

    /// Name for results.
    fn name(&self) -> String;

    /// Opens a session, on the thread that will use it.
    ///
    /// # Errors
    /// The target's.
    fn session(&self) -> Result<Self::Session<'_>>;

    /// A session for the load, which may be acknowledged earlier: [`Target::finish_load`] follows.
    ///
    /// # Errors
    /// The target's.
    fn load_session(&self) -> Result<Self::Session<'_>> {
        self.session()
    }

    /// Makes what was loaded durable.
    ///
    /// # Errors
    /// The target's.
    fn finish_load(&self) -> Result<()> {
        Ok(())
    }

    /// Whether it can be read in order of its keys.
    fn is_ordered(&self) -> bool;

    /// Number of keys; `None` when it does not know.
    ///
    /// # Errors
    /// The target's.
    fn keys_now(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    /// Where it ran and what an acknowledgement meant.
    fn environment(&self) -> Environment {
        Environment::default()
    }

    /// Counts of persistence events, of the whole process.
    fn counters(&self) -> EngineCounters {
        EngineCounters::default()
    }

    /// Counts of its own since it was opened, for example the hits of a cache.
    fn counts(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

/// One thread's way into a [`Target`].
pub trait Session {
    /// What it is asked by.
    type Key: IndexKey + ?Sized;

    /// The value of `key`.
    ///
    /// # Errors
    /// The target's.
    fn get(&mut self, key: &Self::Key) -> Result<Option<u64>>;

    /// Gives `key` a value if it has none; whether it did.
    ///
    /// # Errors
    /// The target's.
    fn insert(&mut self, key: &Self::Key, value: u64) -> Result<bool>;

    /// Changes the value of `key` if it is there; whether it is.
    ///
    /// # Errors
    /// The target's.
    fn update(&mut self, key: &Self::Key, value: u64) -> Result<bool>;

    /// Removes `key`; whether it was there.
    ///
    /// # Errors
    /// The target's.
    fn remove(&mut self, key: &Self::Key) -> Result<bool>;

    /// Reads up to `count` keys with their values from the first that is not below `start`; how many.
    ///
    /// # Errors
    /// The target's; an index without an order has none to read in.
    fn scan(&mut self, start: &Self::Key, count: u64) -> Result<u64>;
}

/// The error of a scan of an index that has no order.
#[must_use]
pub fn unordered(name: &str) -> EngineError {
    EngineError::new(format!("{name} keeps no order: it cannot scan; leave scans out of the mix"))
}
