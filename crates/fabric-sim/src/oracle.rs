//! The judges: the promises of the fabric, checked against everything that happened.
//!
//! | promise | judge | planted, and found by it |
//! | --- | --- | --- |
//! | P1: an acknowledged record survives crashes, and losses for good of fewer than a quorum | `adopted`: it is in the log of every later term. `restart` (`world/faults.rs`): a member has after a crash what it reported, and keeps its promise | `fabric-acknowledged-at-send`, `fabric-tail-is-received` |
//! | P2: a prefix of operations, each whole | `judge_member`: the log of a member is a prefix of its sender's, and its pages are the state after it. `orders.rs`: operations have their payloads | `fabric-view-cuts-nothing`, `fabric-operations-taken-whole` |
//! | P3: reads are linearizable | `judge_reads`: nothing older than what was told before (writes have the order of the log); and a search for any order (`linear.rs`) | `fabric-no-lease` |
//! | P4: one record under one number | `acknowledge` | the tests of this file |
//! | P5: damage shows | `judge_member`: a page with a flipped bit has a checksum that does not fit. `told` (`world/clients.rs`): no read returns it | `fabric-damaged-page-read` |
//! | P6: progress | `missing` (`world.rs`): when the faults have ended, everything is acknowledged, and all members are equal | `fabric-buffer-freed-at-send`, `fabric-global-sequence` |
//! | P7: bounds | `judge` (`world/dispatch.rs`): a member takes no more memory than its credit, and drops nothing on a calm network | `fabric-memory-without-limit`, `fabric-no-credit` |
//! | P8: nothing is dropped without a line | `adopted` (`world/clients.rs`): a sender says which records it cut off its own ring | `fabric-cut-not-told` |

use std::collections::{BTreeMap, BTreeSet};

use foldhash::HashMap;
use lodestone_fabric::{Form, Merge, NodeId, PAIR_BYTES, PagePair, Receiver, RecordHead, Sequence, Term, Terms};

use crate::linear::{Action, Found, Operation, first_stale, search};

/// A record that was made.
#[derive(Clone, Debug)]
pub struct Made {
    /// When it was submitted.
    pub began: u64,
    /// The file; none for records without pages. An operation may write several.
    pub files: Vec<u64>,
    /// The page that it writes, and the one that it frees.
    pub pair: PagePair,
    /// The page after it.
    pub content: Vec<u8>,
}

/// A read of a file that is running or was answered.
#[derive(Clone, Copy, Debug)]
pub struct Observed {
    /// The file.
    pub file: u64,
    /// When it began.
    pub began: u64,
    /// When it was answered.
    pub ended: u64,
    /// The record whose bytes it returned; 0: the file was never written.
    pub sequence: u64,
}

/// Which pages of members are judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Judged {
    /// All: the group is alone.
    #[default]
    All,
    /// Those of terms whose operations are known: a unit.
    Known,
    /// None: operations have no pages.
    Nothing,
}

/// The part of a member that is judged now.
pub struct Seen<'k> {
    /// Records up to this one were judged before.
    pub from: u64,
    /// Whether all files are looked at, and not only those that newer records wrote.
    pub whole: bool,
    /// The files of the member.
    pub known: &'k mut Known,
    /// Pages of which a bit has flipped.
    pub flipped: &'k BTreeSet<u64>,
}

/// A violation, in words.
pub type Violation = String;

/// The terms that made the records of a log, the first record first. Term 0: nothing is known of the record.
#[derive(Clone, Debug, Default)]
struct LogOfTerm(Vec<Term>);

impl LogOfTerm {
    fn get(&self, sequence: Sequence) -> Option<Term> {
        let index = usize::try_from(sequence.0.checked_sub(1)?).ok()?;
        self.0.get(index).copied().filter(|term| *term > Term(0))
    }

    fn put(&mut self, sequence: Sequence, made_in: Term) {
        let Some(index) = sequence.0.checked_sub(1).and_then(|index| usize::try_from(index).ok()) else { return };
        if self.0.len() <= index {
            self.0.resize(index + 1, Term(0));
        }
        self.0[index] = made_in;
    }

    /// The records after `from`, up to `to`.
    fn between(&self, from: u64, to: u64) -> impl Iterator<Item = (Sequence, Term)> + '_ {
        let to = to.min(self.0.len() as u64);
        (from + 1..=to).filter_map(|sequence| Some((Sequence(sequence), self.get(Sequence(sequence))?)))
    }
}

/// The files after a prefix of the log of a term, with the records that wrote them and their pages.
#[derive(Clone, Debug, Default)]
pub struct Known {
    term: Term,
    upto: u64,
    files: BTreeMap<u64, (Sequence, u64)>,
}

impl Known {
    /// The files with their pages.
    pub fn files(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.files.iter().map(|(file, (_, page))| (*file, *page))
    }
}

/// Everything that happened.
#[derive(Default)]
pub struct Oracle {
    made: HashMap<(Term, Sequence), Made>,
    /// The log of each term.
    logs: BTreeMap<Term, LogOfTerm>,
    /// Term of each acknowledged record, the term that acknowledged it, and when.
    acknowledged: BTreeMap<Sequence, (Term, Term, u64)>,
    /// How far each term has acknowledged.
    acknowledged_in: BTreeMap<Term, Sequence>,
    reads: Vec<Observed>,
    /// Records of the log of a term whose operation is not in it; for units of a volume. No state refers to them.
    orphans: BTreeMap<Term, BTreeSet<Sequence>>,
    judged: Judged,
    /// The first violation.
    pub violation: Option<Violation>,
}

impl Oracle {
    /// A judge of nothing yet.
    #[must_use]
    pub fn new(judged: Judged) -> Self {
        Self { judged, ..Self::default() }
    }

    /// Notes a violation; the first one counts.
    pub fn fail(&mut self, violation: impl FnOnce() -> Violation) {
        if self.violation.is_none() {
            self.violation = Some(violation());
        }
    }

    /// A record was made by the sender of `term`.
    pub fn made(&mut self, term: Term, sequence: Sequence, made: Made) {
        self.made.insert((term, sequence), made);
        self.logs.entry(term).or_default().put(sequence, term);
    }

    /// The record at `sequence` in the log of `term`.
    #[must_use]
    pub fn record(&self, term: Term, sequence: Sequence) -> Option<(Term, &Made)> {
        let made_in = self.logs.get(&term)?.get(sequence)?;
        self.made.get(&(made_in, sequence)).map(|made| (made_in, made))
    }

    /// The sender of `term` adopted a log: what was acknowledged before must be in it.
    pub fn adopted(&mut self, term: Term, ring: &Terms, base: Sequence) {
        // Below the begin of the ring every member has everything. Logs that have the same record there are equal up to
        // it. The term that made it may have no log here: its sender crashed before it said that it had adopted one.
        let (begin, _) = ring.base();
        let mut log = LogOfTerm::default();
        let begin_term = ring.term_of(begin).unwrap_or_default();
        let has_begin = |log: &&LogOfTerm| log.get(begin) == Some(begin_term);
        if let Some(older) = self.logs.range(..term).rev().map(|(_, log)| log).find(has_begin) {
            older.between(0, begin.0).for_each(|(sequence, made_in)| log.put(sequence, made_in));
        }
        for sequence in (begin.0 + 1..=base.0).map(Sequence) {
            log.put(sequence, ring.term_of(sequence).unwrap_or_default());
        }
        for (sequence, (made_in, by, _)) in &self.acknowledged {
            if *by < term && log.get(*sequence) != Some(*made_in) && self.violation.is_none() {
                let found = log.get(*sequence);
                self.violation = Some(format!(
                    "P1: {sequence} of {made_in} was acknowledged in {by}, but the log of {term} (up to {base}) has {found:?}"
                ));
            }
        }
        self.logs.insert(term, log);
    }

    /// How far `term` has acknowledged.
    #[must_use]
    pub fn acknowledged_in(&self, term: Term) -> Sequence {
        self.acknowledged_in.get(&term).copied().unwrap_or_default()
    }

    /// The sender of `term` acknowledged everything up to `last`.
    pub fn acknowledge(&mut self, now: u64, term: Term, last: Sequence) {
        let from = self.acknowledged_in.insert(term, last).unwrap_or_default();
        for sequence in (from.0 + 1..=last.0).map(Sequence) {
            let Some(made_in) = self.logs.get(&term).and_then(|log| log.get(sequence)) else {
                self.fail(|| format!("P4: {sequence} was acknowledged in {term}, which has no such record"));
                return;
            };
            match self.acknowledged.get_mut(&sequence) {
                Some((other, _, _)) if *other != made_in => {
                    let other = *other;
                    self.fail(|| format!("P4: {sequence} was acknowledged as of {other} and as of {made_in}"));
                }
                Some((_, by, _)) => *by = (*by).min(term),
                None => {
                    self.acknowledged.insert(sequence, (made_in, term, now));
                }
            }
        }
    }

    /// Files and freed pages of the log of `term`, in order, for a sender that begins: {page written, page freed}.
    pub fn pairs(&self, term: Term) -> impl Iterator<Item = (Sequence, PagePair)> + '_ {
        self.log(term, 0, u64::MAX).filter_map(move |(sequence, made_in)| {
            let made = self.made.get(&(made_in, sequence))?;
            let is_orphan = self.orphans.get(&term).is_some_and(|orphans| orphans.contains(&sequence));
            (!made.files.is_empty() && !is_orphan).then_some((sequence, made.pair))
        })
    }

    /// The records of the log of `term` after `from` and up to `to`, with the terms that made them.
    pub fn log(&self, term: Term, from: u64, to: u64) -> impl Iterator<Item = (Sequence, Term)> + '_ {
        self.logs.get(&term).into_iter().flat_map(move |log| log.between(from, to))
    }

    /// No state of `term` refers to these records of its log.
    pub fn set_orphans(&mut self, term: Term, orphans: BTreeSet<Sequence>) {
        self.orphans.insert(term, orphans);
    }

    /// How many records were acknowledged.
    #[must_use]
    pub fn acknowledged_count(&self) -> usize {
        self.acknowledged.len()
    }

    /// Whether a record that the sender of `term` has is acknowledged.
    #[must_use]
    pub fn is_acknowledged(&self, term: Term, sequence: Sequence) -> bool {
        let in_log = self.logs.get(&term).and_then(|log| log.get(sequence));
        in_log.is_some() && self.acknowledged.get(&sequence).map(|entry| entry.0) == in_log
    }

    /// The state of files after the prefix of the log of `term` up to `last`: file to record and page.
    #[must_use]
    pub fn state(&self, term: Term, last: Sequence) -> BTreeMap<u64, (Sequence, u64)> {
        let mut known = Known::default();
        self.learn(&mut known, term, last, |_| {});
        known.files
    }

    /// Brings `known` to the prefix of the log of `term` up to `last`, and tells the files that are written on the way.
    fn learn(&self, known: &mut Known, term: Term, last: Sequence, mut tell: impl FnMut(u64)) {
        if known.term != term || known.upto > last.0 {
            *known = Known { term, ..Known::default() };
        }
        let orphans = self.orphans.get(&term);
        for (sequence, made_in) in self.log(term, known.upto, last.0) {
            if orphans.is_some_and(|orphans| orphans.contains(&sequence)) {
                continue;
            }
            for file in self.made.get(&(made_in, sequence)).into_iter().flat_map(|made| &made.files) {
                let page = self.made[&(made_in, sequence)].pair.new;
                known.files.insert(*file, (sequence, page));
                tell(*file);
            }
        }
        known.upto = last.0;
    }

    /// A member entered the view of `term` and has applied up to its exposed record. `known` is that of the member.
    pub fn judge_member(&mut self, name: NodeId, term: Term, receiver: &Receiver, seen: Seen<'_>) {
        let last = receiver.exposed();
        if let Some(differs) = self.difference(name, term, receiver, seen.from) {
            self.fail(|| differs);
            return;
        }
        let is_judged = match self.judged {
            Judged::All => true,
            Judged::Known => self.orphans.contains_key(&term),
            Judged::Nothing => false,
        };
        if !is_judged {
            return;
        }
        let mut written = BTreeSet::new();
        self.learn(seen.known, term, last, |file| {
            written.insert(file);
        });
        for (file, (sequence, page)) in &seen.known.files {
            if !seen.whole && !written.contains(file) {
                continue;
            }
            let expected = self.record(term, *sequence).map_or(&[][..], |found| &found.1.content);
            let found = receiver.pages().read(*page).unwrap_or_default();
            if found != expected && seen.flipped.contains(page) {
                let says = receiver
                    .pages()
                    .checksum(*page)
                    .is_none_or(|crc| !receiver.pages().verifies(*page, crc).unwrap_or(true));
                if !says {
                    self.fail(|| format!("P5: {name} has a damaged page {page}, and its checksum fits"));
                    return;
                }
                continue;
            }
            if found != expected {
                self.fail(|| {
                    format!(
                        "P2: {name} has applied up to {last} in {term}; file {file} is at page {page} by {sequence}, \
                         but that page has other bytes"
                    )
                });
                return;
            }
        }
    }

    /// The first record after `from` by which a member differs from the log of `term`.
    fn difference(&self, name: NodeId, term: Term, receiver: &Receiver, from: u64) -> Option<Violation> {
        let log = self.logs.get(&term);
        for sequence in (from + 1..=receiver.exposed().0).map(Sequence) {
            let Some(expected) = log.and_then(|log| log.get(sequence)) else {
                return Some(format!("P2: {name} has {sequence} in {term}, whose sender never had it"));
            };
            if !receiver.has(sequence, expected) {
                return Some(format!("P2: {name} differs from the sender of {term} at {sequence}, of {expected}"));
            }
        }
        None
    }

    /// The content of a page after a record on top of `old`.
    #[must_use]
    pub fn content(head: &RecordHead, body: &[u8], old: Option<&[u8]>, page_bytes: usize) -> Vec<u8> {
        match head.form() {
            Form::Inline => Vec::new(),
            Form::Pages => body.get(PAIR_BYTES..).unwrap_or(&[]).to_vec(),
            Form::Merge => {
                let mut page = old.map_or_else(|| vec![0; page_bytes], <[u8]>::to_vec);
                if let Some(merge) = Merge::of(body) {
                    let at = merge.at as usize;
                    page[at..at + merge.bytes.len()].copy_from_slice(merge.bytes);
                }
                page
            }
        }
    }

    /// A read was answered.
    pub fn read(&mut self, observed: Observed) {
        self.reads.push(observed);
    }

    /// Reads that were answered.
    #[must_use]
    pub fn read_count(&self) -> usize {
        self.reads.len()
    }

    /// Writes and reads of each file: acknowledged records, and answered reads.
    fn histories(&self) -> BTreeMap<u64, Vec<Operation>> {
        let mut histories: BTreeMap<u64, Vec<Operation>> = BTreeMap::new();
        for (sequence, (made_in, _, at)) in &self.acknowledged {
            let Some(made) = self.made.get(&(*made_in, *sequence)) else { continue };
            let operation = Operation { began: made.began, ended: Some(*at), action: Action::Write(sequence.0) };
            made.files.iter().for_each(|file| histories.entry(*file).or_default().push(operation));
        }
        for read in &self.reads {
            let action = Action::Read(read.sequence);
            let operation = Operation { began: read.began, ended: Some(read.ended), action };
            histories.entry(read.file).or_default().push(operation);
        }
        histories
    }

    /// Judges all reads, after the end of a run. Returns how many files have an order of their reads and writes by a
    /// search of so many steps, and for how many that was too few.
    pub fn judge_reads(&mut self, steps_max: u64) -> (u64, u64) {
        let lost = self
            .reads
            .iter()
            .find(|read| read.sequence != 0 && !self.acknowledged.contains_key(&Sequence(read.sequence)));
        if let Some(sequence) = lost.map(|read| read.sequence) {
            self.fail(|| format!("P3: a read returned record {sequence}, which was never acknowledged"));
        }
        let (mut searched, mut unsearched) = (0, 0);
        for (file, history) in self.histories() {
            if let Some((read, must)) = first_stale(&history) {
                self.fail(|| format!("P3: file {file}: {read:?} ended after record {must} was told"));
            }
            match search(&history, steps_max) {
                Found::Order => searched += 1,
                Found::GaveUp => unsearched += 1,
                Found::None => self.fail(|| format!("P3: the reads and writes of file {file} have no order")),
            }
        }
        (searched, unsearched)
    }

    /// Time from submission to acknowledgement: of half of the records, and of 99 of a hundred.
    #[must_use]
    pub fn told_ns(&self) -> (u64, u64) {
        let waited = self.acknowledged.iter().filter_map(|(sequence, (made_in, _, at))| {
            let made = self.made.get(&(*made_in, *sequence)).filter(|made| !made.files.is_empty())?;
            Some(at.saturating_sub(made.began))
        });
        let mut all: Vec<u64> = waited.collect();
        all.sort_unstable();
        let at = |share: usize| all.get((all.len() * share / 100).min(all.len().saturating_sub(1))).copied();
        (at(50).unwrap_or(0), at(99).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two terms whose senders made different records under one number, and both acknowledge it.
    #[test]
    fn two_records_under_one_number_are_noticed() {
        let made = || Made { began: 0, files: Vec::new(), pair: PagePair { new: 0, old: 0 }, content: Vec::new() };
        let mut oracle = Oracle::new(Judged::All);
        oracle.made(Term(1), Sequence(1), made());
        oracle.made(Term(2), Sequence(1), made());
        oracle.acknowledge(5, Term(1), Sequence(1));
        assert_eq!(oracle.violation, None);
        oracle.acknowledge(6, Term(2), Sequence(1));
        assert!(oracle.violation.is_some_and(|violation| violation.starts_with("P4")));
        let mut oracle = Oracle::new(Judged::All);
        oracle.acknowledge(5, Term(1), Sequence(1));
        assert!(oracle.violation.is_some_and(|violation| violation.starts_with("P4")), "a record that nobody made");
    }
}
