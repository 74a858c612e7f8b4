//! The judge of several groups under one order: the volume is a prefix of operations, each whole.
//!
//! - **P2**: every operation in the log of a term has its payloads in the logs of the units of that term, and they were
//!   made in the term that made the operation.
//! - **P1**: an operation is acknowledged only when quorums of the units have its payloads. The judge of each group
//!   demands that acknowledged records are in all later logs, so the payloads of acknowledged operations are too.
//!
//! The state of the files follows from the operations alone. Payloads whose operation was cut are told to the judges of
//! the units.

use std::collections::{BTreeMap, BTreeSet};

use foldhash::HashMap;
use lodestone_fabric::{GroupId, Sequence, Term};

use crate::oracle::Oracle;

/// A file that an operation wrote, and where.
#[derive(Clone, Copy, Debug)]
pub struct Wrote {
    /// The file.
    pub file: u64,
    /// The operation.
    pub operation: Sequence,
    /// The unit.
    pub unit: GroupId,
    /// The payload.
    pub sequence: Sequence,
    /// The page.
    pub page: u64,
}

/// All operations that were made, and the judges of the units.
#[derive(Default)]
pub struct Orders {
    made: HashMap<(Term, Sequence), Vec<Wrote>>,
    /// Judges of the units.
    pub units: BTreeMap<GroupId, Oracle>,
}

impl Orders {
    /// The sender of `term` made an operation.
    pub fn made(&mut self, term: Term, operation: Sequence, wrote: Vec<Wrote>) {
        self.made.insert((term, operation), wrote);
    }

    /// The files that an operation wrote.
    #[must_use]
    pub fn wrote(&self, made_in: Term, operation: Sequence) -> &[Wrote] {
        self.made.get(&(made_in, operation)).map_or(&[], Vec::as_slice)
    }

    /// The files after the operations of `term`.
    #[must_use]
    pub fn state(&self, operations: &Oracle, term: Term) -> BTreeMap<u64, Wrote> {
        let all = operations.log(term, 0, u64::MAX).flat_map(|(operation, made_in)| self.wrote(made_in, operation));
        all.map(|wrote| (wrote.file, *wrote)).collect()
    }

    /// The sender of `term` is ready: its logs are known in all groups.
    pub fn adopted(&mut self, operations: &mut Oracle, term: Term) {
        let mut named: BTreeMap<GroupId, BTreeSet<Sequence>> = BTreeMap::new();
        let mut missing = None;
        for (operation, made_in) in operations.log(term, 0, u64::MAX) {
            for wrote in self.made.get(&(made_in, operation)).map_or(&[][..], Vec::as_slice) {
                named.entry(wrote.unit).or_default().insert(wrote.sequence);
                let found = self.units.get(&wrote.unit).and_then(|unit| unit.record(term, wrote.sequence));
                let found = found.map(|found| found.0);
                if found != Some(made_in) && missing.is_none() {
                    missing = Some((operation, made_in, *wrote, found));
                }
            }
        }
        if let Some((operation, made_in, wrote, found)) = missing {
            operations.fail(|| {
                format!(
                    "P2: operation {operation} of {made_in} is in the log of {term}; its payload is {} of {}, and that \
                     log has there {found:?}",
                    wrote.sequence, wrote.unit
                )
            });
        }
        for (group, unit) in &mut self.units {
            let named = named.remove(group).unwrap_or_default();
            let orphans =
                unit.log(term, 0, u64::MAX).map(|found| found.0).filter(|sequence| !named.contains(sequence)).collect();
            unit.set_orphans(term, orphans);
        }
    }

    /// The sender of `term` acknowledged the operations after `from`, up to `last`.
    pub fn acknowledged(&self, operations: &mut Oracle, term: Term, from: Sequence, last: Sequence) {
        let log: Vec<(Sequence, Term)> = operations.log(term, from.0, last.0).collect();
        for (operation, made_in) in log {
            for wrote in self.wrote(made_in, operation) {
                let has = |unit: &Oracle| unit.is_acknowledged(term, wrote.sequence);
                if !self.units.get(&wrote.unit).is_some_and(has) {
                    operations.fail(|| {
                        format!(
                            "P1: operation {operation} was acknowledged in {term}, its payload {} of {} is not",
                            wrote.sequence, wrote.unit
                        )
                    });
                    return;
                }
            }
        }
    }

    /// The first violation of a unit.
    #[must_use]
    pub fn violation(&self) -> Option<String> {
        let found = |(group, unit): (&GroupId, &Oracle)| unit.violation.as_ref().map(|text| format!("{group}: {text}"));
        self.units.iter().find_map(found)
    }
}
