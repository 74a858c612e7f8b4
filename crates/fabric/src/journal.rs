//! The circular log of this crate, for floors above that keep a log of their own: keepers of the registry.
//!
//! A payload that was [settled](Journal::settle) is there after any crash, or the open fails: its loss is damage and
//! never the end of the journal. Of payloads that were not settled a crash keeps some first ones.

use lodestone_pmem::{Memory, PmAddr};

use crate::error::Result;
use crate::log::{Log, LogKind};

/// The purpose of a journal: three letters on the medium, and its name in errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalKind {
    /// The letters.
    pub magic: [u8; 3],
    /// The name.
    pub name: &'static str,
}

impl JournalKind {
    const fn log(self) -> LogKind {
        LogKind { magic: self.magic, name: self.name }
    }
}

/// The journal. The layout on the medium is that of rings (`log.rs`).
#[derive(Debug)]
pub struct Journal {
    log: Log,
}

impl Journal {
    /// Makes an empty journal in `bytes` bytes at `at`: durable on return.
    ///
    /// # Errors
    /// A range that is too small or not aligned to 64 bytes; a device that failed.
    pub fn create(kind: JournalKind, memory: &Memory, at: PmAddr, bytes: u64, salt: u64) -> Result<Self> {
        let log = Log::create(kind.log(), memory, at, bytes, salt)?;
        memory.durable()?;
        Ok(Self { log })
    }

    /// Opens the journal and passes each payload to `visit`, with its position. The first that does not count for
    /// `visit` is the end. Everything after the end is void from now on.
    ///
    /// # Errors
    /// No journal in the range, another version, or damage to what was settled; a device that failed.
    pub fn open(
        kind: JournalKind,
        memory: &Memory,
        at: PmAddr,
        bytes: u64,
        salt: u64,
        visit: &mut dyn FnMut(u64, &[u8]) -> bool,
    ) -> Result<Self> {
        let mut log =
            Log::open(kind.log(), memory, at, bytes, salt, &mut |found| visit(found.position, found.payload))?;
        if !memory.is_read_only() {
            // As that of a ring: each entry was flushed when it was appended, so what is seen is persistent.
            log.cut(log.end(), |_| {});
            memory.durable()?;
        }
        Ok(Self { log })
    }

    /// Whether a payload of so many bytes has room.
    #[must_use]
    pub fn has_room(&self, bytes: usize) -> bool {
        self.log.has_room(bytes)
    }

    /// Bytes that the journal can hold, heads of payloads included.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        self.log.capacity()
    }

    /// Bytes in use.
    #[must_use]
    pub const fn used(&self) -> u64 {
        self.log.end() - self.log.begin()
    }

    /// Appends a payload, and returns its position. A crash may lose it before it is [settled](Self::settle).
    ///
    /// # Errors
    /// [`Error::Full`](crate::Error::Full).
    pub fn append(&mut self, payload: &[u8]) -> Result<u64> {
        self.log.append(&[payload], payload.len(), 0)
    }

    /// Makes everything durable that was appended.
    ///
    /// # Errors
    /// A device that failed: nothing may be told of what was appended.
    pub fn settle(&mut self) -> Result<()> {
        self.log.settle();
        Ok(self.log.memory().durable()?)
    }

    /// Payloads before `position` are not needed any more. They have been settled.
    pub fn trim(&mut self, position: u64) {
        self.log.trim(position, 0, 0);
    }
}
