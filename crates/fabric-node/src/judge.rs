//! The judge: whether everything that was acknowledged is still there.
//!
//! 1. No two records are acknowledged under one sequence.
//! 2. The log of a term begins at or after everything that an earlier term acknowledged.
//! 3. A pool that a process left opens, and has of each acknowledged record up to its tail the right one: its term in
//!    the log, its bytes in its page.
//! 4. When all nodes are dead at once, the newest acknowledged record is at a quorum of members.
//!
//! The lines of different processes arrive in any order, so each rule holds for any order of them.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use lodestone_fabric::{NodeId, ReceiverOptions, Sequence};
use lodestone_pmem::DomainChoice;
use lodestone_width::to_u64;

use crate::content::{LIVE, page, page_of};
use crate::pools;

/// Acknowledged records that are remembered.
const REMEMBERED: u64 = 4 * LIVE;

/// The judge.
#[derive(Debug, Default)]
pub struct Judge {
    /// The term of each acknowledged record.
    acknowledged: BTreeMap<u64, u32>,
    /// The last record of each term that is acknowledged.
    last: BTreeMap<u32, u64>,
    /// The last adopted record of each term.
    bases: BTreeMap<u32, u64>,
    /// Acknowledged records, all of them.
    pub count: u64,
    /// Pages that were compared.
    pub compared: u64,
    /// The rules that were violated.
    pub violations: Vec<String>,
}

impl Judge {
    /// A term begins after `base`.
    pub fn ready(&mut self, term: u32, base: u64) {
        self.bases.insert(term, base);
        self.last.insert(term, base);
        let lost: Vec<u64> =
            self.acknowledged.range(base + 1..).filter(|(_, of)| **of < term).map(|(record, _)| *record).collect();
        if let Some(first) = lost.first() {
            self.violations.push(format!(
                "term {term} begins after {base}, but {} records from {first} on were acknowledged in earlier terms",
                lost.len()
            ));
        }
    }

    /// A term acknowledged everything up to `sequence`.
    pub fn acknowledge(&mut self, term: u32, sequence: u64) {
        let from = self.last.get(&term).copied().unwrap_or(sequence.saturating_sub(1));
        for record in from + 1..=sequence {
            if let Some(other) = self.acknowledged.insert(record, term).filter(|other| *other != term) {
                self.violations.push(format!("record {record} was acknowledged in term {other} and in term {term}"));
            }
        }
        if let Some((later, base)) = self.bases.range(term + 1..).find(|(_, base)| **base < sequence) {
            self.violations.push(format!("term {term} acknowledged {sequence}, but term {later} began after {base}"));
        }
        self.count += sequence.saturating_sub(from);
        self.last.insert(term, sequence.max(from));
        while self.acknowledged.len() > usize::try_from(REMEMBERED).unwrap_or(usize::MAX) {
            self.acknowledged.pop_first();
        }
    }

    /// The newest acknowledged record.
    pub fn newest(&self) -> u64 {
        self.acknowledged.last_key_value().map_or(0, |(record, _)| *record)
    }

    /// Opens the pool of a dead member and compares it. Returns its tail.
    ///
    /// # Errors
    /// A pool that does not open.
    pub fn inspect(&mut self, node: u16, path: &Path, domain: DomainChoice) -> Result<u64> {
        let options = ReceiverOptions { node: NodeId(node), ..ReceiverOptions::default() };
        let (_pool, receiver) = pools::receiver(path, domain, options)?;
        let tail = receiver.tail().0;
        let mut wrong = Vec::new();
        for (record, term) in self.acknowledged.range(tail.saturating_sub(LIVE - 1)..=tail) {
            let log_term = receiver.log().terms().term_of(Sequence(*record));
            if log_term.is_some_and(|found| found.0 != *term) {
                wrong.push(format!("record {record} is of {log_term:?}, but term {term} acknowledged it"));
                continue;
            }
            // The first record of a term has no page.
            if self.bases.get(term).is_none_or(|base| *record == base + 1) {
                continue;
            }
            self.compared += 1;
            if receiver.pages().read(page_of(*record))? != page(*term, *record) {
                wrong.push(format!("the page of record {record} of term {term} has other bytes"));
            }
        }
        if let Some(first) = wrong.first() {
            self.violations.push(format!("member {node}, tail {tail}: {} wrong, the first: {first}", wrong.len()));
        }
        Ok(tail)
    }

    /// All members are dead, with these tails.
    pub fn all_dead(&mut self, tails: &[u64]) {
        let newest = self.newest();
        let with_it = tails.iter().filter(|tail| **tail >= newest).count();
        let quorum = tails.len() / 2 + 1;
        if with_it < quorum {
            self.violations.push(format!(
                "record {newest} was acknowledged, but of the members only {} of {} have it: {tails:?}",
                to_u64(with_it),
                to_u64(tails.len())
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(steps: &[(char, u32, u64)]) -> usize {
        let mut judge = Judge::default();
        for (step, term, number) in steps {
            if *step == 'r' { judge.ready(*term, *number) } else { judge.acknowledge(*term, *number) }
        }
        judge.violations.len()
    }

    #[test]
    fn a_record_that_a_later_term_lacks_is_found_in_any_order() {
        assert_eq!(judge(&[('r', 1, 0), ('a', 1, 5), ('r', 2, 5), ('a', 2, 9)]), 0);
        assert_eq!(judge(&[('r', 1, 0), ('a', 1, 5), ('r', 2, 7), ('a', 2, 9)]), 0, "more than was acknowledged");
        assert_eq!(judge(&[('r', 1, 0), ('a', 1, 5), ('r', 2, 4)]), 1);
        assert_eq!(judge(&[('r', 1, 0), ('a', 1, 3), ('r', 2, 4), ('a', 1, 5)]), 1, "told late");
        assert_eq!(judge(&[('r', 1, 0), ('r', 2, 4), ('a', 2, 6), ('a', 1, 6)]), 3, "two for one place");
    }

    #[test]
    fn a_quorum_has_the_newest() {
        let mut judge = Judge::default();
        judge.ready(1, 0);
        judge.acknowledge(1, 5);
        judge.all_dead(&[5, 6, 2]);
        assert!(judge.violations.is_empty());
        judge.all_dead(&[5, 4, 2]);
        assert_eq!(judge.violations.len(), 1);
    }
}
