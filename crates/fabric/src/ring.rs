//! The ring of a sender: whole records, kept until every member has them. It is the log and the send buffer in one.
//!
//! An entry of the log is a record: head and body. The entry's checksum covers the record's head, and that has the
//! checksum of the body. So a body is read once for its checksum, when the record is sealed.
//!
//! The ring also holds records of earlier terms that a takeover adopted: it is a whole log, not the tail of one.
//! Otherwise a sender that comes back alone could not tell which records its own ones follow.

use std::collections::VecDeque;

use lodestone_pmem::{Memory, PmAddr};
use lodestone_width::to_usize;

use crate::assembly::verified;
use crate::error::{Error, Result};
use crate::ids::{Sequence, Term};
use crate::log::{Log, LogKind};
use crate::outbox::Outbox;
use crate::record::{RECORD_HEAD_BYTES, RecordHead};
use crate::terms::Terms;

const KIND: LogKind = LogKind { magic: *b"LFR", name: "ring of records" };

/// The ring.
#[derive(Debug)]
pub struct Ring {
    log: Log,
    salt: u64,
    terms: Terms,
    /// Positions of the records, and after the last of them; the first is of the record after the base.
    positions: VecDeque<u64>,
    first: Sequence,
    fenced: Sequence,
}

impl Ring {
    /// Makes an empty ring in `bytes` bytes at `at`.
    ///
    /// # Errors
    /// [`Error::RangeTooSmall`].
    pub fn create(memory: &Memory, at: PmAddr, bytes: u64, salt: u64) -> Result<Self> {
        let log = Log::create(KIND, memory, at, bytes, salt)?;
        Ok(Self::of(log, salt, Sequence(0), Terms::default(), VecDeque::new()))
    }

    fn of(log: Log, salt: u64, first: Sequence, terms: Terms, positions: VecDeque<u64>) -> Self {
        let fenced = terms.last().1;
        Self { log, salt, terms, positions, first, fenced }
    }

    /// Opens the ring: its records up to the last whole one. Everything after it is void from now on.
    ///
    /// # Errors
    /// [`Error::NoLog`]; [`Error::Damaged`].
    pub fn open(memory: &Memory, at: PmAddr, bytes: u64, salt: u64) -> Result<Self> {
        let mut found: VecDeque<(u64, RecordHead)> = VecDeque::new();
        let mut log = Log::open(KIND, memory, at, bytes, salt, &mut |entry| {
            let Some((head, _)) = verified(entry.payload, salt) else { return false };
            let follows = head.sequence < Sequence::MAX
                && found.back().is_none_or(|(_, last)| head.sequence == last.sequence.next() && head.term >= last.term);
            if follows {
                found.push_back((entry.position, head));
            }
            follows
        })?;
        let end = log.end();
        log.cut(end, |_| {});
        let first = Sequence(log.head().first);
        if found.front().is_some_and(|(_, head)| head.sequence != first.next()) {
            return Err(Error::Impossible { what: KIND.name, at, field: "its first sequence" });
        }
        let mut terms = Terms::starting(first, Term(log.head().first_term));
        found.iter().for_each(|(_, head)| terms.push(head.term));
        Ok(Self::of(log, salt, first, terms, found.iter().map(|found| found.0).collect()))
    }

    /// Terms of the records.
    #[must_use]
    pub const fn terms(&self) -> &Terms {
        &self.terms
    }

    /// The last record.
    #[must_use]
    pub fn last(&self) -> Sequence {
        self.terms.last().1
    }

    /// The record before the first that is kept.
    #[must_use]
    pub const fn first(&self) -> Sequence {
        self.first
    }

    /// The last record that was fenced.
    #[must_use]
    pub const fn fenced(&self) -> Sequence {
        self.fenced
    }

    /// Bytes that the ring can hold.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        self.log.capacity()
    }

    /// Bytes of the records after `from`, up to `to`.
    #[must_use]
    pub fn bytes_between(&self, from: Sequence, to: Sequence) -> u64 {
        let position = |sequence: Sequence| {
            let index = to_usize(sequence.0.saturating_sub(self.first.0));
            self.positions.get(index).copied().unwrap_or(self.log.end())
        };
        position(to).saturating_sub(position(from))
    }

    /// Whether a record with so many bytes of body has room.
    #[must_use]
    pub fn has_room(&self, body_bytes: usize) -> bool {
        self.log.has_room(RECORD_HEAD_BYTES + body_bytes)
    }

    /// Bytes in use.
    #[must_use]
    pub const fn used(&self) -> u64 {
        self.log.end() - self.log.begin()
    }

    /// Appends a sealed record, which is the next one: streamed, not fenced.
    ///
    /// # Errors
    /// [`Error::Full`].
    pub fn append(&mut self, head: &RecordHead, body: &[u8]) -> Result<()> {
        debug_assert!(head.sequence == self.last().next(), "records have their places");
        let position = self.log.append(&[&head.to_bytes(), body], RECORD_HEAD_BYTES, 0)?;
        self.positions.push_back(position);
        self.terms.push(head.term);
        Ok(())
    }

    /// Everything that was appended survives after this call, and in the `block` domain after
    /// [`Memory::durable`](lodestone_pmem::Memory::durable).
    ///
    /// # Errors
    /// A device that failed.
    pub fn fence(&mut self) -> Result<()> {
        // Before a plain write is answered, and before the ring counts as a copy of its records.
        self.log.memory().fence();
        self.log.memory().durable()?;
        self.fenced = self.last();
        Ok(())
    }

    /// A fence of the same memory made everything durable that was appended.
    pub(crate) fn was_fenced(&mut self) {
        self.fenced = self.last();
    }

    /// The memory of the ring.
    pub(crate) const fn memory(&self) -> &Memory {
        self.log.memory()
    }

    /// Cuts off what comes after `last`: durable on return.
    ///
    /// # Errors
    /// A device that failed.
    pub fn cut(&mut self, last: Sequence) -> Result<()> {
        // A cut says that everything before it is there.
        self.fence()?;
        let keep = to_usize(last.0.saturating_sub(self.first.0));
        let end = self.positions.get(keep).copied().unwrap_or(self.log.end());
        self.log.cut(end, |_| {});
        self.positions.truncate(keep);
        self.terms.cut(last);
        self.fenced = self.last();
        Ok(())
    }

    /// Empties the ring, which goes on after `first`: durable on return.
    pub fn restart(&mut self, first: Sequence, term: Term) {
        self.log.restart(|head| (head.first, head.first_term) = (first.0, term.0));
        self.positions.clear();
        self.terms = Terms::starting(first, term);
        (self.first, self.fenced) = (first, first);
    }
}

impl Outbox for Ring {
    fn record(&self, sequence: Sequence) -> Result<Option<(RecordHead, Vec<u8>)>> {
        let index = sequence.0.checked_sub(self.first.0 + 1).map(to_usize);
        let Some(position) = index.and_then(|index| self.positions.get(index)) else { return Ok(None) };
        let damaged = || Error::Damaged {
            what: KIND.name,
            at: PmAddr::NULL,
            position: *position,
            durable: self.log.durable_cut(),
        };
        let payload = self.log.payload(*position).ok_or_else(damaged)?;
        let (head, body) = verified(&payload, self.salt).ok_or_else(damaged)?;
        Ok(Some((head, body.to_vec())))
    }

    fn release(&mut self, up_to: Sequence) {
        let up_to = up_to.min(self.last());
        let Some(count) = up_to.0.checked_sub(self.first.0).filter(|count| *count > 0) else { return };
        let position = self.positions.get(to_usize(count)).copied().unwrap_or(self.log.end());
        self.positions.drain(..to_usize(count));
        self.terms.forget_below(up_to);
        self.first = up_to;
        let term = self.terms.term_of(up_to).unwrap_or_default();
        self.log.trim(position, up_to.0, term.0);
    }
}
