//! One workload, many engines: the interface that the runner needs of a key-value engine, ours or a peer.
//!
//! - All threads of a run share an [`Engine`]. Each thread uses its own [`Session`], made on that thread.
//! - A call returns when the engine's chosen durability holds for it. With synced writes, the write would then survive
//!   power loss.
//! - Figures that an engine cannot know are `None` and become `null` in results. They are never guessed.

use std::error::Error;
use std::fmt;

/// An error of an engine, unchanged.
#[derive(Debug)]
pub struct EngineError(Box<dyn Error + Send + Sync>);

impl EngineError {
    /// Wraps an engine's error, or a text.
    pub fn new(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(source.into())
    }
}

impl fmt::Display for EngineError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl Error for EngineError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

/// The outcome of a call.
pub type Result<T, E = EngineError> = std::result::Result<T, E>;

/// A key-value engine under test.
pub trait Engine: Send + Sync {
    /// One thread's access.
    type Session<'a>: Session
    where
        Self: 'a;

    /// Short name for results, for example `lodestone` or `rocksdb`.
    fn name(&self) -> &str;

    /// Opens a session; called on the thread that will use it.
    ///
    /// # Errors
    /// If the engine is out of sessions or failed before.
    fn session(&self) -> Result<Self::Session<'_>>;

    /// A session for the load phase. It may acknowledge earlier than [`Engine::session`], because
    /// [`Engine::finish_load`] is called before the measurement starts.
    ///
    /// # Errors
    /// As [`Engine::session`].
    fn load_session(&self) -> Result<Self::Session<'_>> {
        self.session()
    }

    /// Makes all loaded records durable and lets background work settle.
    ///
    /// # Errors
    /// If the records could not be made durable.
    fn finish_load(&self) -> Result<()> {
        Ok(())
    }

    /// Where the engine ran, and the meaning of an acknowledgement.
    fn environment(&self) -> Environment {
        Environment::default()
    }

    /// Counters since the engine was opened. The runner takes differences, so they must not wrap or decrease.
    fn counters(&self) -> EngineCounters {
        EngineCounters::default()
    }

    /// Space used now.
    fn footprint(&self) -> Footprint {
        Footprint::default()
    }
}

/// One thread's access to an engine.
pub trait Session {
    /// Reads the value of `key` into `value` (cleared first). Returns false if there is none.
    ///
    /// # Errors
    /// Any error of the engine.
    fn read(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool>;

    /// Inserts a record; an existing one is replaced.
    ///
    /// # Errors
    /// Any error of the engine.
    fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Replaces the value of an existing record. Returns false if there is none.
    ///
    /// # Errors
    /// Any error of the engine.
    fn update(&mut self, key: &[u8], value: &[u8]) -> Result<bool>;

    /// Reads up to `count` records in key order from the first key that is not below `start`. Returns how many it read.
    /// An engine must load the bytes of each key and value for the caller, not only step over the record.
    ///
    /// # Errors
    /// Any error of the engine.
    fn scan(&mut self, start: &[u8], count: usize) -> Result<usize>;

    /// Removes a record. Returns false if there is none.
    ///
    /// # Errors
    /// Any error of the engine.
    fn remove(&mut self, key: &[u8]) -> Result<bool>;

    /// Reads a record, lets `change` make the new value from the old one, and writes it. Returns false if there is no
    /// record. `value` is the caller's buffer. An engine that has a transaction for this overrides the method.
    ///
    /// # Errors
    /// Any error of the engine.
    fn read_modify_write(
        &mut self,
        key: &[u8],
        value: &mut Vec<u8>,
        change: &mut dyn FnMut(&mut Vec<u8>),
    ) -> Result<bool> {
        if !self.read(key, value)? {
            return Ok(false);
        }
        change(value);
        self.update(key, value)
    }
}

/// Where an engine ran, and the meaning of an acknowledgement. Printed with every figure.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Environment {
    /// Persistence domain: `dax`, `eadr`, `block`, `process` or `traced`.
    pub domain: Option<String>,
    /// The medium, for example a file system's name or an emulated profile, labelled as such.
    pub media: Option<String>,
    /// The failure that an acknowledged write survives: `sync` power loss, `process` the death of the process.
    pub durability: Option<String>,
}

/// Events since the engine was opened; `None` if the engine cannot count them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EngineCounters {
    /// Ordering fences.
    pub fences: Option<u64>,
    /// Flushed cache lines.
    pub flushes: Option<u64>,
    /// Bytes written to persistent memory or its journal.
    pub pm_bytes: Option<u64>,
    /// 256-byte media blocks written.
    pub media_blocks: Option<u64>,
    /// Device syncs.
    pub syncs: Option<u64>,
    /// Attempts that were rolled back and tried again.
    pub aborts: Option<u64>,
    /// Attempts that took effect.
    pub commits: Option<u64>,
}

impl EngineCounters {
    /// The sums, field by field. A figure that only one side knows is the sum.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let sum = |one: Option<u64>, other: Option<u64>| match (one, other) {
            (Some(one), Some(other)) => Some(one + other),
            (one, other) => one.or(other),
        };
        Self {
            fences: sum(self.fences, other.fences),
            flushes: sum(self.flushes, other.flushes),
            pm_bytes: sum(self.pm_bytes, other.pm_bytes),
            media_blocks: sum(self.media_blocks, other.media_blocks),
            syncs: sum(self.syncs, other.syncs),
            aborts: sum(self.aborts, other.aborts),
            commits: sum(self.commits, other.commits),
        }
    }

    /// The events since `earlier`, field by field.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let difference = |later: Option<u64>, before: Option<u64>| Some(later?.saturating_sub(before.unwrap_or(0)));
        Self {
            fences: difference(self.fences, earlier.fences),
            flushes: difference(self.flushes, earlier.flushes),
            pm_bytes: difference(self.pm_bytes, earlier.pm_bytes),
            media_blocks: difference(self.media_blocks, earlier.media_blocks),
            syncs: difference(self.syncs, earlier.syncs),
            aborts: difference(self.aborts, earlier.aborts),
            commits: difference(self.commits, earlier.commits),
        }
    }
}

/// Space that an engine uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Bytes of persistent memory or of files, without preallocated free space.
    pub pm_bytes: Option<u64>,
    /// Bytes of DRAM that the engine itself uses.
    pub dram_bytes: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_keep_the_unknown_unknown() {
        let before = EngineCounters { fences: Some(5), ..EngineCounters::default() };
        let after = EngineCounters { fences: Some(12), syncs: Some(3), ..EngineCounters::default() };
        let delta = after.since(&before);
        assert_eq!((delta.fences, delta.syncs, delta.flushes), (Some(7), Some(3), None));
        let sum = after.plus(&delta);
        assert_eq!((sum.fences, sum.syncs, sum.flushes), (Some(19), Some(6), None));
    }
}
