//! Changing a map over an index: put, remove, and the end of a change that an error or a crash cut short.
//!
//! Each change holds the lock of its key's stripe from the look at the index until the stripe's intent is cleared.

use lodestone_pmem::sync::{MutexGuard, lock};
use lodestone_pmem::{PmAddr, planted};
use lodestone_width::{to_u64, to_usize};

use crate::error::{Error, Result, committed};
use crate::layout::{KEY_BYTES_MAX, VALUE_BYTES_MAX, record_bytes};
use crate::map::{limit, write_record};
use crate::records::table::{Intent, IntentAt};
use crate::records::{IndexedRecords, RecordIndex};

/// A stripe whose keys no other thread changes.
struct Held<'m> {
    intent: IntentAt,
    /// Whether the intent could not be resolved.
    stuck: MutexGuard<'m, bool>,
}

impl<I: RecordIndex> IndexedRecords<I> {
    fn hold(&self, key: &[u8]) -> Result<Held<'_>> {
        if self.heap.memory().is_read_only() {
            return Err(Error::ReadOnly { path: self.heap.pool().path().to_owned(), what: "a change" });
        }
        let number = to_usize(xxhash_rust::xxh3::xxh3_64(key) % to_u64(self.stripes.len()));
        let (intent, stuck) = (self.intent(number), lock(&self.stripes[number]));
        if *stuck {
            let finding = "an earlier change could not be finished: its record or the index is damaged";
            return Err(self.medium().damaged(intent.at(), "intent of a map", finding));
        }
        Ok(Held { intent, stuck })
    }

    /// Sets `key` to `value`; whether it replaced an older value.
    pub(super) fn put(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        limit("key", key.len(), KEY_BYTES_MAX.min(self.index.key_bytes_max()))?;
        limit("value", value.len(), VALUE_BYTES_MAX)?;
        match self.put_once(key, value) {
            Err(error) if error.is_full() => {
                // The missing room may be in blocks that wait for readers.
                self.readers.collect();
                self.put_once(key, value)
            }
            other => other,
        }
    }

    fn put_once(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        let mut held = self.hold(key)?;
        let old = self.record_of(key)?;
        let mut action = self.heap.action();
        let new = action.alloc(record_bytes(key.len(), value.len()))?;
        write_record(self.medium(), new, key, value);
        let intent = Intent { new, old };
        if !planted::active("records-intent-not-set") {
            held.intent.set(&mut action, intent);
        }
        if planted::active("records-old-freed-first") && !old.is_null() {
            action.free(old)?;
        }
        let (took_effect, outcome) = committed(action.commit());
        if !took_effect {
            return outcome.map(|()| false);
        }
        // Until the end says otherwise, so that a panic in the index leaves the stripe closed.
        *held.stuck = true;
        let outcome = outcome.and_then(|()| self.index.upsert(key, new.to_raw()).map(|_| ()));
        self.end(held, intent, outcome, old).map(|()| !old.is_null())
    }

    /// Removes `key`; whether it was there.
    pub(super) fn take(&self, key: &[u8]) -> Result<bool> {
        let mut held = self.hold(key)?;
        let old = self.record_of(key)?;
        if old.is_null() {
            return Ok(false);
        }
        let intent = Intent { new: PmAddr::NULL, old };
        let mut action = self.heap.action();
        held.intent.set(&mut action, intent);
        let (took_effect, outcome) = committed(action.commit());
        if !took_effect {
            return outcome.map(|()| false);
        }
        // Until the end says otherwise, so that a panic in the index leaves the stripe closed.
        *held.stuck = true;
        let outcome = outcome.and_then(|()| self.index.remove(key).map(|_| ()));
        self.end(held, intent, outcome, old).map(|()| true)
    }

    /// Ends a change whose intent is set: as planned, or, after an error, by what the index says.
    fn end(&self, mut held: Held<'_>, intent: Intent, outcome: Result<()>, freed: PmAddr) -> Result<()> {
        match outcome {
            Ok(()) => {
                let ended = self.finish(held.intent, intent, freed);
                *held.stuck = !self.is_cleared(held.intent);
                ended
            }
            Err(error) => {
                // The error that came first is the one to tell; what cannot be resolved now the next open tries again.
                *held.stuck = self.resolve(held.intent).is_err();
                Err(error)
            }
        }
    }

    fn is_cleared(&self, at: IntentAt) -> bool {
        at.load(self.medium()).is_ok_and(|intent| intent == Intent::NONE)
    }

    /// Ends the change of an intent, whatever came of it. One that is not set needs nothing.
    pub(super) fn resolve(&self, at: IntentAt) -> Result<()> {
        let medium = self.medium();
        let intent = at.load(medium)?;
        if intent == Intent::NONE {
            return Ok(());
        }
        let mut key = Vec::new();
        medium.key(if intent.new.is_null() { intent.old } else { intent.new }, &mut key)?;
        let current = self.record_of(&key)?;
        let freed = if current == intent.new {
            intent.old
        } else if current == intent.old {
            intent.new
        } else {
            return Err(medium.damaged(
                at.at(),
                "intent of a map",
                format!("its key's record is {current}, neither of its two"),
            ));
        };
        self.finish(at, intent, freed)
    }

    /// Frees `freed`, unless it is null, and clears the intent, in one step.
    fn finish(&self, at: IntentAt, intent: Intent, freed: PmAddr) -> Result<()> {
        if freed.is_null() {
            at.let_go(self.heap.memory(), intent);
            return Ok(());
        }
        let mut action = self.heap.action();
        let mut outcome = Ok(());
        let is_replaced = freed == intent.old && !intent.new.is_null();
        if !is_replaced || !planted::active("records-old-freed-first") {
            // A block that the heap's damaged metadata do not show cannot be freed, and the intent ends all the same.
            outcome = action.free(freed).map_err(Error::from);
        }
        at.set(&mut action, Intent::NONE);
        let (blocks, committed) = action.commit_keeping();
        self.readers.retire(blocks);
        outcome.and(committed.map_err(Error::from))
    }
}
