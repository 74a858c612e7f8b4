//! Reading blocks of a map from the medium: every word is verified before it is believed.
//!
//! 1. An address comes from a checked word, and the range it names is checked to lie inside the pool.
//! 2. Lengths come from a head, are checked to be plausible and to lie inside the pool, then against the checksum.
//! 3. A failed check returns [`Error::Damaged`] with the place; this module never panics on bytes of the medium.

use std::path::Path;

use lodestone_heap::Heap;
use lodestone_pmem::{Memory, PmAddr, checked};
use lodestone_width::to_usize;

use crate::error::{Error, Result};
use crate::layout::{KEY_BYTES_MAX, LeafAt, RecordHead, decode_shape, low_check};

/// A pool's memory with the path that messages name, and the structure whose blocks are read.
#[derive(Clone, Copy)]
pub(crate) struct IndexMemory<'a> {
    pub(crate) memory: &'a Memory,
    pub(crate) path: &'a Path,
    /// Place of the structure's anchor: checksums of its blocks begin with it, so no block of another one verifies.
    pub(crate) owner: PmAddr,
}

/// The words of a leaf that never change while it is published.
pub(crate) struct LeafFrame {
    pub(crate) slots: usize,
    pub(crate) low: Box<[u8]>,
}

impl<'a> IndexMemory<'a> {
    /// The memory of `heap`, for blocks of the structure whose anchor is at `owner`.
    pub(crate) fn of(heap: &'a Heap, owner: PmAddr) -> Self {
        Self { memory: heap.memory(), path: heap.pool().path(), owner }
    }
}

impl IndexMemory<'_> {
    pub(crate) fn damaged(self, at: PmAddr, what: &'static str, finding: impl Into<String>) -> Error {
        Error::damaged(self.path, at, what, finding)
    }

    /// The payload of the checked word at `at`.
    pub(crate) fn word(self, at: PmAddr, what: &'static str) -> Result<u64> {
        checked::decode(at, self.memory.load(at)).ok_or_else(|| self.damaged(at, what, "checksum mismatch"))
    }

    /// The address in the checked word at `at`; null, or at least `bytes` bytes before the pool's end.
    pub(crate) fn link(self, at: PmAddr, what: &'static str, bytes: u64) -> Result<PmAddr> {
        let word = self.memory.load(at);
        let target = checked::decode_addr(at, word).ok_or_else(|| self.damaged(at, what, "checksum mismatch"))?;
        if !target.is_null() && !self.memory.contains(target, bytes) {
            return Err(self.damaged(at, what, format!("points to {target}, outside the pool")));
        }
        Ok(target)
    }

    /// Slots and lower bound of the leaf at `leaf`.
    pub(crate) fn leaf_frame(self, leaf: LeafAt) -> Result<LeafFrame> {
        let payload = self.word(leaf.shape(), "leaf shape")?;
        let inside = |bytes| self.memory.contains(leaf.0, bytes);
        let Some((slots, low_bytes)) = decode_shape(payload).filter(|&(slots, low)| inside(LeafAt::bytes(slots, low)))
        else {
            return Err(self.damaged(
                leaf.shape(),
                "leaf shape",
                format!("{payload:#x} is no shape that fits the pool"),
            ));
        };
        let mut low = vec![0; low_bytes].into_boxed_slice();
        self.memory.read(leaf.low(slots), &mut low);
        if self.word(leaf.low_crc(), "checksum of a leaf's lower bound")? != low_check(self.owner, &low) {
            return Err(self.damaged(leaf.low(slots), "lower bound of a leaf", "checksum mismatch"));
        }
        Ok(LeafFrame { slots, low })
    }

    /// The address of the record in `slot`, null when the slot is free.
    pub(crate) fn slot(self, leaf: LeafAt, slot: usize) -> Result<PmAddr> {
        self.link(leaf.slot(slot), "slot of a leaf", RecordHead::BYTES)
    }

    /// Reads and verifies the key of the record at `at`; it replaces the content of `key`.
    pub(crate) fn key(self, at: PmAddr, key: &mut Vec<u8>) -> Result<RecordHead> {
        key.clear();
        self.append_key(at, key)
    }

    /// Reads and verifies the key of the record at `at`; it is appended to `out`, or nothing is on an error.
    #[inline]
    pub(crate) fn append_key(self, at: PmAddr, out: &mut Vec<u8>) -> Result<RecordHead> {
        let head = self.head(at)?;
        let start = out.len();
        out.resize(start + to_usize(head.key_bytes), 0);
        self.memory.read(RecordHead::key_at(at), &mut out[start..]);
        if head.key_crc == RecordHead::key_crc(self.owner, at, &out[start..], head.value_bytes) {
            return Ok(head);
        }
        out.truncate(start);
        Err(self.damaged(at, "key of a record", "checksum mismatch"))
    }

    #[inline]
    fn head(self, at: PmAddr) -> Result<RecordHead> {
        let head = RecordHead::from_words(self.memory.load(at), self.memory.load(at.plus(8)));
        if head.is_plausible() && self.memory.contains(at, head.record_bytes()) {
            Ok(head)
        } else {
            Err(self.damaged(at, "head of a record", "lengths that cannot be"))
        }
    }

    /// The head of the record at `at` if its key is `key`, verified; `None` when it verifies as another key.
    #[inline]
    pub(crate) fn match_key(self, at: PmAddr, key: &[u8]) -> Result<Option<RecordHead>> {
        const SHORT: usize = 64;
        let head = self.head(at)?;
        if to_usize(head.key_bytes) == key.len()
            && head.key_crc == RecordHead::key_crc(self.owner, at, key, head.value_bytes)
        {
            let mut short = [0; SHORT];
            let mut long = Vec::new();
            let found = if key.len() <= SHORT {
                &mut short[..key.len()]
            } else {
                long.resize(key.len(), 0);
                &mut long[..]
            };
            self.memory.read(RecordHead::key_at(at), found);
            if found == key {
                return Ok(Some(head));
            }
        }
        // Another key, or a damaged one: a key that is present must never be reported absent.
        self.key(at, &mut Vec::with_capacity(KEY_BYTES_MAX.min(key.len())))?;
        Ok(None)
    }

    /// Reads and verifies the value of the record at `at`; it is appended to `out`, or nothing is on an error.
    #[inline]
    pub(crate) fn append_value(self, at: PmAddr, head: RecordHead, out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        out.resize(start + to_usize(head.value_bytes), 0);
        self.memory.read(at.plus(head.value_offset()), &mut out[start..]);
        if head.value_crc == crc32c::crc32c_append(head.key_crc, &out[start..]) {
            Ok(())
        } else {
            out.truncate(start);
            Err(self.damaged(at.plus(head.value_offset()), "value of a record", "checksum mismatch"))
        }
    }
}
