//! The judges: the promises of the fabric, checked against everything that happened.
//!
//! - **P1, P4**: a record that was acknowledged in a term is in the log of every later term, and no other record is
//!   acknowledged in its place.
//! - **P2**: the log of a member is a prefix of the log of the sender whose view it entered, and its pages are the
//!   state
//!   after that prefix.
//! - **P1 at a member**: after a crash it has everything that it reported, and keeps its promise.
//! - **P3**: reads are linearizable, file by file. Acknowledged writes of a file are ordered by their sequence. So a
//!   read returns a write that is not older than any that was acknowledged, or read, before it began.
//! - **P6**: when the faults have ended, everything is acknowledged and all members are equal. The world asks for that.
//! - **P7**: a member takes no more memory than the credit that it granted.
//! - **P8**: a sender says which records it cut off its own ring.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use lodestone_fabric::{Form, Merge, PAIR_BYTES, PagePair, Receiver, RecordHead, Sequence, Term, Terms};

/// A record that was made.
#[derive(Clone, Debug)]
pub struct Made {
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

/// A violation, in words.
pub type Violation = String;

/// Everything that happened.
#[derive(Default)]
pub struct Oracle {
    made: HashMap<(Term, Sequence), Made>,
    /// The log of each term.
    logs: BTreeMap<Term, BTreeMap<Sequence, Term>>,
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
        self.logs.entry(term).or_default().insert(sequence, term);
    }

    /// The record at `sequence` in the log of `term`.
    #[must_use]
    pub fn record(&self, term: Term, sequence: Sequence) -> Option<(Term, &Made)> {
        let made_in = *self.logs.get(&term)?.get(&sequence)?;
        self.made.get(&(made_in, sequence)).map(|made| (made_in, made))
    }

    /// The sender of `term` adopted a log: what was acknowledged before must be in it.
    pub fn adopted(&mut self, term: Term, ring: &Terms, base: Sequence) {
        // Below the begin of the ring every member has everything. Logs that have the same record there are equal up to
        // it. The term that made it may have no log here: its sender crashed before it said that it had adopted one.
        let (begin, _) = ring.base();
        let mut log = BTreeMap::new();
        let begin_term = ring.term_of(begin).unwrap_or_default();
        let has_begin = |log: &&BTreeMap<Sequence, Term>| log.get(&begin) == Some(&begin_term);
        if let Some(older) = self.logs.range(..term).rev().map(|(_, log)| log).find(has_begin) {
            log.extend(older.range(..=begin).map(|(sequence, made_in)| (*sequence, *made_in)));
        }
        for sequence in begin.0 + 1..=base.0 {
            log.insert(Sequence(sequence), ring.term_of(Sequence(sequence)).unwrap_or_default());
        }
        for (sequence, (made_in, by, _)) in &self.acknowledged {
            if *by < term && log.get(sequence) != Some(made_in) && self.violation.is_none() {
                let found = log.get(sequence);
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
            let Some(made_in) = self.logs.get(&term).and_then(|log| log.get(&sequence)).copied() else {
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
        let log = self.logs.get(&term).into_iter().flatten();
        log.filter_map(move |(sequence, made_in)| {
            let made = self.made.get(&(*made_in, *sequence))?;
            let is_orphan = self.orphans.get(&term).is_some_and(|orphans| orphans.contains(sequence));
            (!made.files.is_empty() && !is_orphan).then_some((*sequence, made.pair))
        })
    }

    /// The records of the log of `term`, with the terms that made them.
    pub fn log(&self, term: Term) -> impl Iterator<Item = (Sequence, Term)> + '_ {
        self.logs.get(&term).into_iter().flatten().map(|(sequence, made_in)| (*sequence, *made_in))
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
        let in_log = self.logs.get(&term).and_then(|log| log.get(&sequence));
        in_log.is_some() && self.acknowledged.get(&sequence).map(|entry| &entry.0) == in_log
    }

    /// The state of files after the prefix of the log of `term` up to `last`: file to record and page.
    #[must_use]
    pub fn state(&self, term: Term, last: Sequence) -> BTreeMap<u64, (Sequence, u64)> {
        self.written(term, 0, last)
    }

    /// Files that the records of `term` after `from` and up to `last` wrote.
    fn written(&self, term: Term, from: u64, last: Sequence) -> BTreeMap<u64, (Sequence, u64)> {
        let mut files = BTreeMap::new();
        let Some(log) = self.logs.get(&term).filter(|_| from < last.0) else { return files };
        for (sequence, made_in) in log.range(Sequence(from + 1)..=last) {
            let is_orphan = self.orphans.get(&term).is_some_and(|orphans| orphans.contains(sequence));
            if let Some(made) = self.made.get(&(*made_in, *sequence)).filter(|_| !is_orphan) {
                files.extend(made.files.iter().map(|file| (*file, (*sequence, made.pair.new))));
            }
        }
        files
    }

    /// A member entered the view of `term` and has applied up to its exposed record.
    pub fn judge_member(&mut self, name: &str, term: Term, receiver: &Receiver, from: u64, whole: bool) {
        let last = receiver.exposed();
        for sequence in (from + 1..=last.0).map(Sequence) {
            let Some(expected) = self.logs.get(&term).and_then(|log| log.get(&sequence)).copied() else {
                self.fail(|| format!("P2: {name} has {sequence} in {term}, whose sender never had it"));
                return;
            };
            if !receiver.has(sequence, expected) {
                self.fail(|| format!("P2: {name} differs from the sender of {term} at {sequence}, of {expected}"));
                return;
            }
        }
        let is_judged = match self.judged {
            Judged::All => true,
            Judged::Known => self.orphans.contains_key(&term),
            Judged::Nothing => false,
        };
        if !is_judged {
            return;
        }
        let files = self.written(term, if whole { 0 } else { from }, last);
        for (file, (sequence, page)) in files {
            let expected = self.record(term, sequence).map(|found| found.1.content.clone()).unwrap_or_default();
            let found = receiver.pages().read(page).unwrap_or_default();
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

    /// Judges all reads, after the end of a run.
    pub fn judge_reads(&mut self) {
        let reads = std::mem::take(&mut self.reads);
        // Everything that was told of each file, and when: acknowledged writes and answered reads.
        let mut told: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
        for (sequence, (made_in, _, at)) in &self.acknowledged {
            for file in self.made.get(&(*made_in, *sequence)).map_or(&[][..], |made| &made.files) {
                told.entry(*file).or_default().push((*at, sequence.0));
            }
        }
        for read in &reads {
            told.entry(read.file).or_default().push((read.ended, read.sequence));
        }
        for moments in told.values_mut() {
            moments.sort_unstable();
            let mut newest = 0;
            for moment in moments.iter_mut() {
                newest = newest.max(moment.1);
                moment.1 = newest;
            }
        }
        for read in &reads {
            let moments = told.get(&read.file).map_or(&[][..], Vec::as_slice);
            let before = moments.partition_point(|moment| moment.0 < read.began);
            let must = before.checked_sub(1).map_or(0, |last| moments[last].1);
            if read.sequence < must {
                self.fail(|| {
                    format!(
                        "P3: a read of file {} from {} to {} ns returned record {}, after record {must} was told",
                        read.file, read.began, read.ended, read.sequence
                    )
                });
            }
            let is_kept = read.sequence == 0 || self.acknowledged.contains_key(&Sequence(read.sequence));
            if !is_kept {
                self.fail(|| format!("P3: a read returned record {}, which was never acknowledged", read.sequence));
            }
        }
        self.reads = reads;
    }
}
