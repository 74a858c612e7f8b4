//! The interface of an index for the workload: words under keys, one session for each thread.
//!
//! The runner is compiled for each target, so no call goes through a table.

use lodestone_index::IndexKey;
use lodestone_workload::engine::{EngineCounters, EngineError, Environment};

/// The outcome of a call.
pub type Result<T> = std::result::Result<T, EngineError>;

/// An index under test.
pub trait Target: Sync {
    /// The type of its keys.
    type Key: IndexKey + ?Sized;
    /// One thread's access.
    type Session<'t>: Session<Key = Self::Key>
    where
        Self: 't;

    /// Name for results.
    fn name(&self) -> String;

    /// Opens a session, on the thread that will use it.
    ///
    /// # Errors
    /// Those of the target.
    fn session(&self) -> Result<Self::Session<'_>>;

    /// A session for the load. It may acknowledge earlier, because [`Target::finish_load`] follows.
    ///
    /// # Errors
    /// Those of the target.
    fn load_session(&self) -> Result<Self::Session<'_>> {
        self.session()
    }

    /// Makes the loaded records durable.
    ///
    /// # Errors
    /// Those of the target.
    fn finish_load(&self) -> Result<()> {
        Ok(())
    }

    /// Whether it can be read in order of its keys.
    fn is_ordered(&self) -> bool;

    /// Number of keys; `None` if the target does not know.
    ///
    /// # Errors
    /// Those of the target.
    fn keys_now(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    /// Where it ran, and the meaning of an acknowledgement.
    fn environment(&self) -> Environment {
        Environment::default()
    }

    /// Counts of persistence events, of the whole process.
    fn counters(&self) -> EngineCounters {
        EngineCounters::default()
    }

    /// The target's own counts since it was opened, for example the hits of a cache.
    fn counts(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

/// One thread's access to a [`Target`].
pub trait Session {
    /// The type of its keys.
    type Key: IndexKey + ?Sized;

    /// The value of `key`.
    ///
    /// # Errors
    /// Those of the target.
    fn get(&mut self, key: &Self::Key) -> Result<Option<u64>>;

    /// Inserts `key` with `value` if it is absent. Returns whether it did.
    ///
    /// # Errors
    /// Those of the target.
    fn insert(&mut self, key: &Self::Key, value: u64) -> Result<bool>;

    /// Changes the value of `key` if it is present. Returns whether it is.
    ///
    /// # Errors
    /// Those of the target.
    fn update(&mut self, key: &Self::Key, value: u64) -> Result<bool>;

    /// Removes `key`. Returns whether it was present.
    ///
    /// # Errors
    /// Those of the target.
    fn remove(&mut self, key: &Self::Key) -> Result<bool>;

    /// Reads up to `count` keys with their values, from the first key that is not below `start`. Returns their number.
    ///
    /// # Errors
    /// Those of the target. An index without an order cannot scan.
    fn scan(&mut self, start: &Self::Key, count: u64) -> Result<u64>;
}

/// The error of a scan of an index that has no order.
#[must_use]
pub fn unordered(name: &str) -> EngineError {
    EngineError::new(format!("{name} keeps no order: it cannot scan; leave scans out of the mix"))
}
