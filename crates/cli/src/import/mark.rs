//! The progress of an import: a small record beside the rows, written after each batch.
//!
//! The mark says which part of which source is in the map. It is stored after the rows of its batch (ordered, see
//! [`Store::set_mark`]), so a mark that survives a crash proves that its rows did. Rows after the mark may have
//! survived too. They are inserted again, which changes nothing, because a row's key decides its place.
//!
//! A mark is a JSON object: an import that was interrupted by one version can be read, and refused, by another.

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::import_store::ImportStore;

use super::lines::Position;

/// Version of the record. A record of another version is not continued.
const MARK_VERSION: u32 = 1;

/// The progress of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// [`MARK_VERSION`].
    version: u32,
    /// The way the source is read. A continued import must read it in the same way.
    pub reading: String,
    /// Bytes of the source that were imported.
    pub offset: u64,
    /// The next line, from 1.
    pub line: u64,
    /// CRC-32C of the bytes that were imported.
    pub crc: u32,
    /// Rows that are in the map.
    pub rows: u64,
    /// Of these, rows that replaced one.
    pub replaced: u64,
    /// Rows that were rejected.
    pub rejected: u64,
    /// Bytes of the file of rejected rows that belong to this mark.
    pub rejects_bytes: u64,
}

impl Mark {
    /// The mark of an import that has done nothing yet.
    pub fn start(reading: String) -> Self {
        Self { version: MARK_VERSION, reading, line: 1, ..Self::default() }
    }

    /// The position at which the import goes on.
    pub fn position(&self) -> Position {
        Position { offset: self.offset, line: self.line, crc: self.crc }
    }

    /// Moves to `position`.
    pub fn advance(&mut self, position: Position) {
        (self.offset, self.line, self.crc) = (position.offset, position.line, position.crc);
    }

    /// The mark of the source `name`, if an import of it was interrupted.
    pub fn load(store: &dyn ImportStore, name: &str) -> Result<Option<Self>> {
        let Some(bytes) = store.mark(name)? else { return Ok(None) };
        let mark: Self = serde_json::from_slice(&bytes)
            .with_context(|| format!("{name}: the progress mark in the pool cannot be read; import with --restart"))?;
        if mark.version != MARK_VERSION {
            bail!(
                "{name}: the progress mark in the pool has version {}, expected {MARK_VERSION}; import with --restart",
                mark.version
            );
        }
        Ok(Some(mark))
    }

    /// Stores the mark after every earlier change.
    pub fn save(&self, store: &dyn ImportStore, name: &str) -> Result<()> {
        store.set_mark(name, &serde_json::to_vec(self)?)
    }
}
