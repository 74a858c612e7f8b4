//! Transactions with a record in each of several logs: after a crash all of their records count, or none.
//!
//! A record names the places of all of them. Another one is *there* if its log has a record of the same tick at its
//! place, which names places as well, or if its place is before the position from which the log is read: then a kept
//! checkpoint has its rows, and it was published after the fence of all of them (`commit/by_table.rs`).
//!
//! A record that does not count stays in its log until it is truncated, and is judged anew by each open. It never
//! counts later: the next record at the place that lacks one has a later tick. And a checkpoint of a later life, before
//! whose cut that place is, has the record that did not count before its cut as well.

use std::collections::{BTreeMap, BTreeSet};

use lodestone_pmem::planted;
use lodestone_txn::{Tick, Writer};
use lodestone_wal::{Found, Kept};

/// The records of a log that are parts of transactions.
#[derive(Debug, Default)]
pub struct Parts {
    /// By position: the tick, and the places of all.
    found: BTreeMap<u64, (Tick, Vec<(Writer, u64)>)>,
}

impl Parts {
    /// Notes a record, if it is one of several.
    pub fn note(&mut self, found: &Found<'_>) {
        if let Some(places) = found.entries().next().and_then(|first| first.places()) {
            self.found.insert(found.position, (found.tick, places));
        }
    }
}

/// Takes out the records whose transactions are not whole. `logs` and `records` are those of `writers`. `from`: the
/// position from which a log was read.
pub fn remove_incomplete(writers: &[Writer], logs: &[Parts], from: impl Fn(Writer) -> u64, records: &mut [Kept]) {
    if planted::active("engine-part-counts-alone") {
        return;
    }
    let is_there = |tick: Tick, (writer, position): &(Writer, u64)| {
        let log = writers.iter().position(|of| of == writer).map(|number| &logs[number]);
        let found = log.and_then(|log| log.found.get(position));
        *position < from(*writer) || found.is_some_and(|(of, _)| *of == tick)
    };
    for (log, records) in logs.iter().zip(records) {
        let is_lost = |(tick, places): &&(Tick, Vec<(Writer, u64)>)| !places.iter().all(|place| is_there(*tick, place));
        let lost: BTreeSet<Tick> = log.found.values().filter(is_lost).map(|(tick, _)| *tick).collect();
        if !lost.is_empty() {
            records.remove(&lost);
        }
    }
}
