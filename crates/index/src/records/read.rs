//! Reading a map over an index.
//!
//! A scan goes by batches: under a pin it copies records, then shows them without one. So the visitor may change the
//! map and take its time. The next batch begins strictly after the last key shown.

use std::ops::{Bound, ControlFlow};

use lodestone_pmem::PmAddr;

use crate::check::IndexReport;
use crate::error::Result;
use crate::layout::RecordHead;
use crate::record_map::{RecordMap, Visit};
use crate::records::{IndexedRecords, RecordIndex};
use crate::scan::Direction;

/// Records in the first batch of a scan, and the most in a later one.
const BATCH_FIRST: usize = 16;
const BATCH_MAX: usize = 1024;
/// Bytes after which a batch ends.
const BATCH_BYTES: usize = 1 << 20;

type Pair = (Vec<u8>, Vec<u8>);

impl<I: RecordIndex> IndexedRecords<I> {
    /// Address of the record that the index names for `key`; null when it has none.
    pub(super) fn record_of(&self, key: &[u8]) -> Result<PmAddr> {
        match self.index.get(key)? {
            Some(word) => self.record_at(word),
            None => Ok(PmAddr::NULL),
        }
    }

    /// The address in a word of the index.
    pub(super) fn record_at(&self, word: u64) -> Result<PmAddr> {
        let at = PmAddr::from_raw(word);
        if at.is_null() || !at.offset().is_multiple_of(8) || !self.heap.memory().contains(at, RecordHead::BYTES) {
            return Err(self.medium().damaged(at, "record", "the index names a place where none can be"));
        }
        Ok(at)
    }

    /// The value in the record at `at`, which must be `key`'s. The caller has a pin.
    pub(super) fn value_at(&self, at: PmAddr, key: &[u8]) -> Result<(RecordHead, Vec<u8>)> {
        let medium = self.medium();
        let Some(head) = medium.match_key(at, key)? else {
            return Err(medium.damaged(at, "record", "has another key than the index says"));
        };
        let mut value = Vec::new();
        medium.append_value(at, head, &mut value)?;
        Ok((head, value))
    }

    /// At most `records` records from `start` on, and the error after them.
    fn batch(&self, start: Bound<&[u8]>, end: Bound<&[u8]>, records: usize) -> (Vec<Pair>, Result<()>) {
        let (mut pairs, mut bytes, mut outcome) = (Vec::new(), 0, Ok(()));
        let _pin = self.readers.pin();
        let scanned = self.index.scan(start, end, Direction::Ascending, |key, word| {
            match self.record_at(word).and_then(|at| self.value_at(at, key)) {
                Ok((_, value)) => {
                    bytes += key.len() + value.len();
                    pairs.push((key.to_vec(), value));
                }
                Err(error) => outcome = Err(error),
            }
            if outcome.is_ok() && pairs.len() < records && bytes < BATCH_BYTES {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        (pairs, outcome.and(scanned.map(|_| ())))
    }
}

impl<I: RecordIndex> RecordMap for IndexedRecords<I> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let _pin = self.readers.pin();
        let at = self.record_of(key)?;
        if at.is_null() { Ok(None) } else { self.value_at(at, key).map(|(_, value)| Some(value)) }
    }

    fn insert(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.put(key, value)
    }

    fn remove(&self, key: &[u8]) -> Result<bool> {
        self.take(key)
    }

    fn scan(&self, start: Bound<&[u8]>, end: Bound<&[u8]>, visit: &mut Visit<'_>) -> Result<u64> {
        let (mut seen, mut records) = (0, BATCH_FIRST);
        let mut from = start.map(<[u8]>::to_vec);
        loop {
            let (pairs, outcome) = self.batch(from.as_ref().map(Vec::as_slice), end, records);
            for (key, value) in &pairs {
                seen += 1;
                if visit(key, value).is_break() {
                    return Ok(seen);
                }
            }
            outcome?;
            let Some((last, _)) = pairs.into_iter().next_back() else { return Ok(seen) };
            from = Bound::Excluded(last);
            records = (2 * records).min(BATCH_MAX);
        }
    }

    fn len(&self) -> Result<u64> {
        self.index.len()
    }

    fn is_empty(&self) -> Result<bool> {
        self.index.is_empty()
    }

    fn sync(&self) -> Result<()> {
        self.index.sync()
    }

    fn check(&self) -> IndexReport {
        self.check_all()
    }
}
