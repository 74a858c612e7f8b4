//! Verifying a map over an index on its medium.
//!
//! Anchor and intents verify. The index verifies by itself. Each record that the index names is an allocated block
//! large enough, verifies, has the index's key, and is named once. In a pool that is open for writing no intent is set;
//! in a read-only view a crash may have left some, and what they name is owned.

use std::ops::{Bound, ControlFlow};

use crate::anchor::{self, ANCHOR_BYTES};
use crate::check::{IndexReport, Owned};
use crate::layout::RecordHead;
use crate::records::table::{Intent, intent_bytes};
use crate::records::{IndexedRecords, KIND, RecordIndex};
use crate::scan::Direction;

impl<I: RecordIndex> IndexedRecords<I> {
    pub(super) fn check_all(&self) -> IndexReport {
        self.readers.collect();
        let mut report = self.index.check();
        let keys = report.records;
        report.records = 0;
        let mut owned = Owned::new(&self.heap);
        for (block, bytes) in report.sized_blocks() {
            owned.adopt(block, bytes);
        }
        owned.own(&mut report, self.anchor.at, ANCHOR_BYTES, "anchor of a map over an index");
        owned.own(&mut report, self.intents, intent_bytes(self.stripes.len()), "intents of a map over an index");
        if let Err(error) = anchor::verify(self.medium(), &KIND, self.anchor.at) {
            report.find_error(self.anchor.at, error);
        }
        self.check_records(&mut report, &mut owned);
        if report.is_intact() && keys != report.records {
            report.find(self.anchor.at, format!("{keys} keys in the index, {} records", report.records));
        }
        self.check_intents(&mut report, &mut owned);
        report.set_blocks(owned.into_blocks());
        report
    }

    fn check_records(&self, report: &mut IndexReport, owned: &mut Owned<'_>) {
        let scanned = self.index.scan(Bound::Unbounded, Bound::Unbounded, Direction::Ascending, |key, word| {
            match self.record_at(word) {
                Ok(at) => {
                    let value = self.value_at(at, key);
                    let bytes = value.as_ref().map_or(RecordHead::BYTES, |(head, _)| head.record_bytes());
                    owned.own(report, at, bytes, "record");
                    match value {
                        Ok(_) => report.records += 1,
                        Err(error) => report.find_error(at, error),
                    }
                }
                Err(error) => report.find_error(self.anchor.at, error),
            }
            ControlFlow::Continue(())
        });
        if let Err(error) = scanned {
            report.find_error(self.anchor.at, error);
        }
    }

    fn check_intents(&self, report: &mut IndexReport, owned: &mut Owned<'_>) {
        for number in 0..self.stripes.len() {
            let at = self.intent(number);
            match at.load(self.medium()) {
                Ok(Intent::NONE) => {}
                Ok(intent) => {
                    for record in [intent.new, intent.old] {
                        if !record.is_null() && !owned.has(record) {
                            owned.own(report, record, RecordHead::BYTES, "record of an intent");
                        }
                    }
                    if !self.heap.memory().is_read_only() {
                        report.find(at.at(), "intent of a map: a change that could not be finished");
                    }
                }
                Err(error) => report.find_error(at.at(), error),
            }
        }
    }
}
