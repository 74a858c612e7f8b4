//! The intended change of one pair: one path serves insert, update, upsert, compare-and-swap and removal.

use lodestone_width::to_u64;

use super::key::KeyRef;
use crate::error::{Error, Result};
use crate::layout::KEY_BYTES_MAX;
use crate::medium::IndexMemory;
use crate::traits::Swap;

/// A change of one pair: one action if the key is there, one if it is not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    /// The new value; `None` removes.
    pub(crate) value: Option<u64>,
    /// Whether a pair that is not there is made.
    pub(crate) inserts: bool,
    /// Whether a pair that is there is changed.
    pub(crate) changes: bool,
    /// Changes only a pair that has this value.
    pub(crate) expected: Option<u64>,
}

impl Wish {
    /// Inserts or replaces.
    pub(crate) const fn upsert(value: u64) -> Self {
        Self { value: Some(value), inserts: true, changes: true, expected: None }
    }

    /// Inserts, and leaves a pair that is there.
    pub(crate) const fn insert(value: u64) -> Self {
        Self { changes: false, ..Self::upsert(value) }
    }

    /// Replaces, and makes no new pair.
    pub(crate) const fn update(value: u64) -> Self {
        Self { inserts: false, ..Self::upsert(value) }
    }

    /// Replaces the value `expected`.
    pub(crate) const fn exchange(expected: u64, value: u64) -> Self {
        Self { expected: Some(expected), ..Self::update(value) }
    }

    /// Removes.
    pub(crate) const fn remove() -> Self {
        Self { value: None, inserts: false, changes: true, expected: None }
    }

    /// Whether it changes a pair with the value `found`.
    pub(crate) fn applies_to(self, found: u64) -> bool {
        self.changes && self.expected.is_none_or(|expected| expected == found)
    }
}

/// The report of a compare-and-swap that expected `current` and found `found`.
pub(crate) fn swap_of(found: Option<u64>, current: u64) -> Swap {
    match found {
        None => Swap::Absent,
        Some(found) if found == current => Swap::Done,
        Some(found) => Swap::Differs(found),
    }
}

/// Whether a change with `key` may be tried at all.
///
/// # Errors
/// When the key is too long or the pool is read-only.
#[inline]
pub(crate) fn changeable(medium: IndexMemory<'_>, key: KeyRef<'_>) -> Result<()> {
    if let KeyRef::Bytes(bytes) = key
        && bytes.len() > KEY_BYTES_MAX
    {
        return Err(Error::TooLong { what: "key", bytes: to_u64(bytes.len()), bytes_max: to_u64(KEY_BYTES_MAX) });
    }
    if medium.memory.is_read_only() {
        return Err(Error::ReadOnly { path: medium.path.to_owned(), what: "a change of an index" });
    }
    Ok(())
}
