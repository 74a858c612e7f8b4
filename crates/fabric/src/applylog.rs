//! The log of a member: what it has applied, and what it has promised. The recovery of a member is its scan.
//!
//! ```text
//! payload of an entry   head of the record 64, stable 8, kept part of its body, checksum 4 of each page
//! mark                  no payload: its `settled` alone counts
//! ```
//!
//! The kept part is the whole body of an inline record, and otherwise the numbers of its pages. Together with the
//! pages the record can be made again, for a sender that takes over.
//!
//! *The tail after a crash.* Entries and pages of the last batch are written unordered, then fenced. So an entry of the
//! last batch counts only if its pages have their checksums. Older entries count without a look at the pages: such a
//! page may hold newer bytes by now, of a record that was placed early and then lost. Each entry says how far the
//! log was durable when it was written (`settled`), so the scan knows which entries are older. A page is written again
//! only when the record that freed it is below a `settled` that is durable itself ([`ApplyLog::mark`]).

use std::collections::VecDeque;

use lodestone_pmem::{Memory, PmAddr, planted};
use lodestone_width::to_usize;

use crate::error::{Error, Result};
use crate::ids::{Sequence, Term, ViewNumber};
use crate::log::{Found, Log, LogKind};
use crate::pages::PageArea;
use crate::record::{Form, PagePair, RECORD_HEAD_BYTES, RecordHead};
use crate::terms::Terms;

const KIND: LogKind = LogKind { magic: *b"LFA", name: "log of applied records" };

/// Bytes of a mark in the log.
const MARK_BYTES: usize = 64;

/// How far a member is in its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It has applied nothing, or follows the view.
    Active,
    /// It joins and lacks pages.
    Copying,
    /// It joins and has the pages, and replays in order.
    Replaying,
}

impl Standing {
    const fn code(self) -> u32 {
        match self {
            Self::Active => 0,
            Self::Copying => 1,
            Self::Replaying => 2,
        }
    }

    const fn from_code(code: u32) -> Self {
        match code {
            1 => Self::Copying,
            2 => Self::Replaying,
            _ => Self::Active,
        }
    }
}

/// An entry, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Head of the record.
    pub head: RecordHead,
    /// Every active member had everything up to here when the record was applied.
    pub stable: Sequence,
    /// Kept part of its body.
    pub kept: Vec<u8>,
    /// Checksums of its pages.
    pub checksums: Vec<u32>,
}

impl Applied {
    fn decode(payload: &[u8]) -> Option<Self> {
        let head = RecordHead::from_bytes(payload)?;
        let (stable, rest) = payload.get(RECORD_HEAD_BYTES..)?.split_first_chunk::<8>()?;
        let stable = Sequence(u64::from_le_bytes(*stable));
        let (kept, checksums) = rest.split_at_checked(head.kept_bytes())?;
        let count = if head.form() == Form::Inline { 0 } else { to_usize(head.count) };
        let checksums: Vec<u32> =
            checksums.chunks_exact(4).filter_map(|c| c.try_into().ok()).map(u32::from_le_bytes).collect();
        (checksums.len() == count).then(|| Self { head, stable, kept: kept.to_vec(), checksums })
    }

    /// Whether its numbers are possible after `last`, for an area of so many pages. A fitting checksum is no proof.
    fn follows(&self, last: Option<&Self>, settled: u64, pages: u64) -> bool {
        let (head, sequence) = (&self.head, self.head.sequence);
        let is_next = last.is_none_or(|last| sequence == last.head.sequence.next() && head.term >= last.head.term);
        let is_inside = |pair: PagePair| pair.new > 0 && pair.new < pages && pair.old < pages;
        is_next
            && sequence > Sequence(0)
            && sequence < Sequence::MAX
            && settled < sequence.0
            && self.stable <= sequence
            && head.reuse < sequence
            && head.pairs(&self.kept).all(is_inside)
    }

    /// The pages and their checksums.
    pub fn pages(&self) -> impl Iterator<Item = (PagePair, u32)> + '_ {
        self.head.pairs(&self.kept).zip(self.checksums.iter().copied())
    }
}

/// The log.
#[derive(Debug)]
pub struct ApplyLog {
    log: Log,
    terms: Terms,
    first: Sequence,
    positions: VecDeque<u64>,
    /// `settled` of the newest entry.
    settled_newest: Sequence,
    /// `settled` of the newest durable entry.
    settled_durable: Sequence,
    /// The newest `stable` of an entry that the open found.
    stable: Sequence,
}

impl ApplyLog {
    /// Makes an empty log in `bytes` bytes at `at`.
    ///
    /// # Errors
    /// [`Error::RangeTooSmall`](crate::Error::RangeTooSmall).
    pub fn create(memory: &Memory, at: PmAddr, bytes: u64, salt: u64) -> Result<Self> {
        let log = Log::create(KIND, memory, at, bytes, salt)?;
        let none = Sequence(0);
        Ok(Self {
            log,
            terms: Terms::default(),
            first: none,
            positions: VecDeque::new(),
            settled_newest: none,
            settled_durable: none,
            stable: none,
        })
    }

    /// Opens the log: the longest run of entries that count. Notes the checksums of their pages in `pages`.
    ///
    /// # Errors
    /// [`Error::NoLog`](crate::Error::NoLog); [`Error::Damaged`](crate::Error::Damaged); a device that failed.
    pub fn open(memory: &Memory, at: PmAddr, bytes: u64, salt: u64, pages: &mut PageArea) -> Result<Self> {
        // First the run of whole entries, for the newest `settled` in it; then the pages of those above it.
        let mut settled = 0;
        let mut visit = |found: &Found<'_>| {
            settled = settled.max(found.settled);
            found.payload.is_empty() || Applied::decode(found.payload).is_some()
        };
        let whole = Log::open(KIND, memory, at, bytes, salt, &mut visit)?;
        let cut = whole.durable_cut();
        if planted::active("fabric-scan-reads-settled-pages") {
            settled = 0;
        }
        let mut entries: VecDeque<(u64, Applied)> = VecDeque::new();
        let mut failed = None;
        let mut visit = |found: &Found<'_>| {
            let Some(applied) = Applied::decode(found.payload) else { return found.payload.is_empty() };
            if !applied.follows(entries.back().map(|entry| &entry.1), found.settled, pages.pages()) {
                return false;
            }
            let is_settled = found.end <= cut || applied.head.sequence.0 <= settled;
            let mut holds = true;
            for (pair, crc) in applied.pages().filter(|_| !is_settled) {
                match pages.verifies(pair.new, crc) {
                    Ok(verifies) => holds &= verifies || planted::active("fabric-scan-trusts-pages"),
                    Err(error) => failed = Some(error),
                }
            }
            if holds {
                entries.push_back((found.position, applied));
            }
            holds
        };
        let mut log = Log::open(KIND, memory, at, bytes, salt, &mut visit)?;
        if let Some(error) = failed {
            return Err(error);
        }
        let first = Sequence(log.head().first);
        let is_first = entries.front().is_none_or(|entry| entry.1.head.sequence == first.next());
        if !is_first || log.head().standing > Standing::Replaying.code() {
            let field = if is_first { "its standing" } else { "its first sequence" };
            return Err(Error::Impossible { what: KIND.name, at, field });
        }
        let end = log.end();
        log.cut(end, |_| {});
        let mut terms = Terms::starting(first, Term(log.head().first_term));
        for (_, applied) in &entries {
            terms.push(applied.head.term);
            applied.pages().for_each(|(pair, crc)| pages.note(pair.new, crc));
        }
        let last = terms.last().1;
        let positions = entries.iter().map(|entry| entry.0).collect();
        // Everything before the cut is settled from now on.
        let stable = entries.iter().map(|entry| entry.1.stable).max().unwrap_or(first);
        Ok(Self { log, terms, first, positions, settled_newest: last, settled_durable: last, stable })
    }

    /// Terms of the applied records.
    #[must_use]
    pub const fn terms(&self) -> &Terms {
        &self.terms
    }

    /// The last applied record.
    #[must_use]
    pub fn last(&self) -> Sequence {
        self.terms.last().1
    }

    /// The newest term that was promised, and the newest whose view was entered.
    #[must_use]
    pub fn promised(&self) -> (Term, Term) {
        (Term(self.log.head().promised), Term(self.log.head().viewed))
    }

    /// The view that was entered last.
    #[must_use]
    pub fn view(&self) -> ViewNumber {
        ViewNumber(self.log.head().view)
    }

    /// How far the member is.
    #[must_use]
    pub fn standing(&self) -> Standing {
        Standing::from_code(self.log.head().standing)
    }

    /// Every active member has everything up to here, as far as the open found.
    #[must_use]
    pub fn stable(&self) -> Sequence {
        self.stable.max(self.first)
    }

    /// The memory of the log.
    #[must_use]
    pub const fn memory(&self) -> &Memory {
        self.log.memory()
    }

    /// Whether an entry for a record has room, and a mark before it.
    #[must_use]
    pub fn has_room(&self, head: &RecordHead) -> bool {
        self.log.has_room(MARK_BYTES + RECORD_HEAD_BYTES + 8 + head.kept_bytes() + 4 * to_usize(head.count))
    }

    /// Whether a mark has room.
    #[must_use]
    pub fn has_room_for_mark(&self) -> bool {
        self.log.has_room(0)
    }

    /// Appends the next applied record: not fenced. `settled`: everything up to it is durable.
    ///
    /// # Errors
    /// [`Error::Full`](crate::Error::Full).
    pub fn append(&mut self, applied: &Applied, settled: Sequence) -> Result<()> {
        let crcs: Vec<u8> = applied.checksums.iter().flat_map(|crc| crc.to_le_bytes()).collect();
        let pieces: [&[u8]; 4] = [&applied.head.to_bytes(), &applied.stable.0.to_le_bytes(), &applied.kept, &crcs];
        let position = self.log.append(&pieces, usize::MAX, settled.0)?;
        self.positions.push_back(position);
        self.terms.push(applied.head.term);
        self.settled_newest = settled;
        Ok(())
    }

    /// Everything that was appended is durable now.
    pub fn fenced(&mut self) {
        self.settled_durable = self.settled_newest;
    }

    /// The sequence below which a crash does not look at pages any more.
    #[must_use]
    pub const fn settled(&self) -> Sequence {
        self.settled_durable
    }

    /// Appends a mark that everything up to `settled` is durable. It counts after the next fence.
    ///
    /// # Errors
    /// [`Error::Full`](crate::Error::Full).
    pub fn mark(&mut self, settled: Sequence) -> Result<()> {
        self.log.append(&[], 0, settled.0)?;
        self.settled_newest = settled;
        Ok(())
    }

    /// The entry of a record.
    #[must_use]
    pub fn entry(&self, sequence: Sequence) -> Option<Applied> {
        let index = to_usize(sequence.0.checked_sub(self.first.0 + 1)?);
        Applied::decode(&self.log.payload(*self.positions.get(index)?)?)
    }

    /// Bytes of the entries after `sequence`.
    #[must_use]
    pub fn bytes_after(&self, sequence: Sequence) -> u64 {
        let index = to_usize(sequence.0.saturating_sub(self.first.0));
        self.positions.get(index).map_or(0, |position| self.log.end() - position)
    }

    /// Gives up the entries up to `up_to`, which every member has. Their checksums go to the table of `pages` first.
    ///
    /// # Errors
    /// A device that failed.
    pub fn trim(&mut self, up_to: Sequence, pages: &mut PageArea) -> Result<()> {
        let up_to = up_to.min(self.last());
        let Some(count) = up_to.0.checked_sub(self.first.0).filter(|count| *count > 0) else { return Ok(()) };
        let sums: Vec<(u64, u32)> = (self.first.0 + 1..=up_to.0)
            .filter_map(|sequence| self.entry(Sequence(sequence)))
            .flat_map(|applied| applied.pages().map(|(pair, crc)| (pair.new, crc)).collect::<Vec<_>>())
            .collect();
        pages.save(sums.into_iter());
        // The table has the checksums before the entries with them are given up.
        self.log.memory().fence();
        let position = self.positions.get(to_usize(count)).copied().unwrap_or(self.log.end());
        self.positions.drain(..to_usize(count));
        self.terms.forget_below(up_to);
        self.first = up_to;
        self.log.trim(position, up_to.0, self.terms.term_of(up_to).unwrap_or_default().0);
        Ok(())
    }

    /// Promises to follow `term`: durable on return. Everything applied was fenced before.
    pub fn promise(&mut self, term: Term) {
        self.log.change_head(|head| head.promised = term.0);
    }

    /// Enters a view of `term` with the records up to `last` alone: durable on return, in one step. Everything applied
    /// was fenced before.
    pub fn enter(&mut self, term: Term, view: ViewNumber, last: Sequence, standing: Standing) {
        let keep = to_usize(last.0.saturating_sub(self.first.0));
        let end = self.positions.get(keep).copied().unwrap_or(self.log.end());
        self.log.cut(end, |head| {
            head.promised = head.promised.max(term.0);
            (head.viewed, head.view, head.standing) = (term.0, view.0, standing.code());
        });
        self.positions.truncate(keep);
        self.terms.cut(last);
        let last = self.last();
        (self.settled_newest, self.settled_durable) = (last, last);
    }

    /// Begins anew after the record `base`, with all pages to be copied: durable on return.
    pub fn restart(&mut self, term: Term, view: ViewNumber, base: (Sequence, Term)) {
        self.log.restart(|head| {
            head.promised = head.promised.max(term.0);
            (head.viewed, head.view, head.standing) = (term.0, view.0, Standing::Copying.code());
            (head.first, head.first_term) = (base.0.0, base.1.0);
        });
        self.positions.clear();
        self.terms = Terms::starting(base.0, base.1);
        (self.first, self.settled_newest, self.settled_durable) = (base.0, base.0, base.0);
    }

    /// Changes how far the member is: durable on return. All copies were fenced before.
    pub fn stand(&mut self, standing: Standing) {
        self.log.change_head(|head| head.standing = standing.code());
    }
}
