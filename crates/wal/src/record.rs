//! The entries of a transaction.
//!
//! ```text
//! entry (to a multiple of 8): tree 4, key bytes 2, kind 2, value bytes 4, key, value
//! ```
//!
//! Invariant: a record has whole entries only, so [`Entries`] stops at the end and nowhere else. It checks all lengths
//! all the same: bytes of the medium never make it panic.

use lodestone_txn::{Tick, Writer};
use lodestone_width::{const_usize, exact_u16, exact_u32, to_u64, u16_to_u64};

use crate::error::{Error, Result};
use crate::layout::RECORD_HEAD_BYTES;

/// Bytes of an entry before its key.
pub const ENTRY_HEAD_BYTES: usize = 12;
/// Longest key.
const KEY_BYTES_MAX: usize = const_usize(u16_to_u64(u16::MAX));
/// Longest value: 64 MiB.
const VALUE_BYTES_MAX: usize = 64 << 20;

/// The effect of an entry on its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// The row has this value.
    Put,
    /// The row is gone.
    Delete,
    /// Bytes of the row changed; the value names the version below and the bytes.
    Delta,
    /// The transaction also wrote this cell, which must hold its version.
    Member,
    /// The entries after it, up to the next one of this kind, are of the transaction whose tick is the value.
    Commit,
    /// The record is a part of a transaction, and counts only if all parts are whole: those at these positions of these
    /// logs. It is the first entry of each.
    Together,
}

impl EntryKind {
    const fn code(self) -> u16 {
        match self {
            Self::Put => 1,
            Self::Delete => 2,
            Self::Delta => 3,
            Self::Member => 4,
            Self::Commit => 5,
            Self::Together => 6,
        }
    }

    const fn from_code(code: u16) -> Option<Self> {
        match code {
            1 => Some(Self::Put),
            2 => Some(Self::Delete),
            3 => Some(Self::Delta),
            4 => Some(Self::Member),
            5 => Some(Self::Commit),
            6 => Some(Self::Together),
            _ => None,
        }
    }
}

/// One change of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'r> {
    /// The tree that holds the row.
    pub tree: u32,
    /// The kind of the change.
    pub kind: EntryKind,
    /// The key of the row.
    pub key: &'r [u8],
    /// The new value; empty for a deleted row.
    pub value: &'r [u8],
}

/// Bytes of a place in the value of [`EntryKind::Together`]: the number of the writer, zeroes, the position.
const PLACE_BYTES: usize = 16;

impl<'r> Entry<'r> {
    /// The places of all parts of the transaction, if the entry is of that kind.
    ///
    /// ```
    /// use lodestone_txn::Writer;
    /// use lodestone_wal::Record;
    ///
    /// let mut record = Record::new();
    /// let places = [0, 7].map(|number| (Writer::new(number).unwrap(), 640));
    /// record.together(&places)?;
    /// assert_eq!(record.iter().next().unwrap().places(), Some(places.to_vec()));
    /// # Ok::<(), lodestone_wal::Error>(())
    /// ```
    #[must_use]
    pub fn places(&self) -> Option<Vec<(Writer, u64)>> {
        if self.kind != EntryKind::Together || !self.value.len().is_multiple_of(PLACE_BYTES) {
            return None;
        }
        let place = |bytes: &[u8]| {
            let (writer, position) = bytes.split_at(PLACE_BYTES / 2);
            let number = u16::try_from(u64::from_le_bytes(writer.try_into().ok()?)).ok()?;
            Some((Writer::new(number)?, u64::from_le_bytes(position.try_into().ok()?)))
        };
        self.value.chunks(PLACE_BYTES).map(place).collect()
    }
}

/// The changes of one transaction, encoded as the log holds them. Reuse one: it keeps its memory.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// Room for the header, then entries. Padding follows when it is appended.
    pub(crate) bytes: Vec<u8>,
    pub(crate) entries: u32,
}

impl Record {
    /// No changes.
    #[must_use]
    pub fn new() -> Self {
        Self { bytes: vec![0; RECORD_HEAD_BYTES], entries: 0 }
    }

    /// Takes all changes out.
    pub fn clear(&mut self) {
        self.bytes.truncate(0);
        self.bytes.resize(RECORD_HEAD_BYTES, 0);
        self.entries = 0;
    }

    /// Whether it has no changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Bytes of the entries.
    #[must_use]
    pub fn entry_bytes(&self) -> u64 {
        to_u64(self.bytes.len() - RECORD_HEAD_BYTES)
    }

    /// Adds a row with its new value.
    ///
    /// # Errors
    /// [`Error::EntryTooLarge`] for a key above 65,535 bytes or a value above 64 MiB. The record is as before.
    pub fn put(&mut self, tree: u32, key: &[u8], value: &[u8]) -> Result<()> {
        self.push(&Entry { tree, kind: EntryKind::Put, key, value })
    }

    /// Adds a row that is gone.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn delete(&mut self, tree: u32, key: &[u8]) -> Result<()> {
        self.push(&Entry { tree, kind: EntryKind::Delete, key, value: &[] })
    }

    /// Adds an entry of any kind.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn push(&mut self, entry: &Entry<'_>) -> Result<()> {
        for (what, bytes, limit) in
            [("key", entry.key.len(), KEY_BYTES_MAX), ("value", entry.value.len(), VALUE_BYTES_MAX)]
        {
            if bytes > limit {
                return Err(Error::EntryTooLarge { what, bytes, limit });
            }
        }
        let key_bytes = exact_u16(entry.key.len());
        let value_bytes = exact_u32(entry.value.len());
        self.bytes.extend(entry.tree.to_le_bytes());
        self.bytes.extend(key_bytes.to_le_bytes());
        self.bytes.extend(entry.kind.code().to_le_bytes());
        self.bytes.extend(value_bytes.to_le_bytes());
        self.bytes.extend(entry.key);
        self.bytes.extend(entry.value);
        let end = (self.bytes.len() - RECORD_HEAD_BYTES).next_multiple_of(8) + RECORD_HEAD_BYTES;
        self.bytes.resize(end, 0);
        self.entries += 1;
        Ok(())
    }

    /// Says that the record is a part of a transaction whose parts are at these places. Before all other entries.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn together(&mut self, places: &[(Writer, u64)]) -> Result<()> {
        let place = |(writer, position): &(Writer, u64)| [u64::from(writer.number()), *position].map(u64::to_le_bytes);
        let value: Vec<u8> = places.iter().flat_map(place).flatten().collect();
        self.push(&Entry { tree: 0, kind: EntryKind::Together, key: &[], value: &value })
    }

    /// Adds the changes in `other` as those of the transaction of `tick`. So one record has several transactions, all
    /// of them or none.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    ///
    /// ```
    /// use lodestone_txn::{Tick, Writer};
    /// use lodestone_wal::{EntryKind, Record};
    ///
    /// let (mut group, mut one) = (Record::new(), Record::new());
    /// one.put(1, b"alice", b"100")?;
    /// group.join(&one, Tick(7))?;
    /// let kinds: Vec<EntryKind> = group.iter().map(|entry| entry.kind).collect();
    /// assert_eq!(kinds, [EntryKind::Commit, EntryKind::Put]);
    /// # Ok::<(), lodestone_wal::Error>(())
    /// ```
    pub fn join(&mut self, other: &Self, tick: Tick) -> Result<()> {
        self.push(&Entry { tree: 0, kind: EntryKind::Commit, key: &[], value: &tick.0.to_le_bytes() })?;
        self.append(other);
        Ok(())
    }

    /// Adds the changes in `other`, which are those of several transactions or of the same one.
    pub fn append(&mut self, other: &Self) {
        self.bytes.extend(&other.bytes[RECORD_HEAD_BYTES..]);
        self.entries += other.entries;
    }

    /// The changes, in the order in which they were added.
    #[must_use]
    pub fn iter(&self) -> Entries<'_> {
        Entries { rest: &self.bytes[RECORD_HEAD_BYTES..] }
    }
}

/// The entries of a record.
#[derive(Clone, Debug)]
pub struct Entries<'r> {
    pub(crate) rest: &'r [u8],
}

impl<'r> Iterator for Entries<'r> {
    type Item = Entry<'r>;

    fn next(&mut self) -> Option<Entry<'r>> {
        let head = self.rest.first_chunk::<ENTRY_HEAD_BYTES>()?;
        let [t0, t1, t2, t3, k0, k1, c0, c1, v0, v1, v2, v3] = *head;
        let key_bytes = usize::from(u16::from_le_bytes([k0, k1]));
        let value_bytes = usize::try_from(u32::from_le_bytes([v0, v1, v2, v3])).ok()?;
        let kind = EntryKind::from_code(u16::from_le_bytes([c0, c1]))?;
        let key_end = ENTRY_HEAD_BYTES + key_bytes;
        let end = key_end + value_bytes;
        let key = self.rest.get(ENTRY_HEAD_BYTES..key_end)?;
        let value = self.rest.get(key_end..end)?;
        self.rest = self.rest.get(end.next_multiple_of(8)..)?;
        Some(Entry { tree: u32::from_le_bytes([t0, t1, t2, t3]), kind, key, value })
    }
}

impl Entries<'_> {
    /// The number of entries, if the bytes are whole entries to the end.
    pub(crate) fn count_whole(mut self) -> Option<u32> {
        let mut count = 0;
        while self.next().is_some() {
            count += 1;
        }
        self.rest.is_empty().then_some(count)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Tree, whether it is a deletion, key and value.
    type Change = (u32, bool, Vec<u8>, Vec<u8>);

    fn changes() -> impl Strategy<Value = Vec<Change>> {
        let bytes = |most| prop::collection::vec(any::<u8>(), 0..most);
        prop::collection::vec((any::<u32>(), any::<bool>(), bytes(40), bytes(300)), 0..20)
    }

    proptest! {
        #[test]
        fn entries_come_back(mut changes in changes()) {
            let mut record = Record::new();
            for (tree, is_delete, key, value) in &mut changes {
                if *is_delete {
                    value.clear();
                    record.delete(*tree, key)?;
                } else {
                    record.put(*tree, key, value)?;
                }
            }
            let change = |found: Entry<'_>| {
                (found.tree, found.kind == EntryKind::Delete, found.key.to_vec(), found.value.to_vec())
            };
            prop_assert_eq!(record.iter().map(change).collect::<Vec<_>>(), changes.clone());
            prop_assert_eq!(record.iter().count_whole(), Some(changes.len() as u32));
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Entries { rest: &bytes }.count_whole();
        }
    }

    #[test]
    fn keys_and_values_that_are_too_long_are_refused() {
        let mut record = Record::new();
        assert!(matches!(record.put(1, &vec![0; 65_536], b""), Err(Error::EntryTooLarge { what: "key", .. })));
        assert!(record.is_empty() && record.entry_bytes() == 0);
    }
}
