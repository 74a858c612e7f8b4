//! Data: fragments to records, records to pages, and their exposure in order.

use lodestone_pmem::planted;
use lodestone_width::{to_u64, to_usize};

use super::{Loose, Receiver, WINDOW_RECORDS};
use crate::applylog::{Applied, Standing};
use crate::assembly::Assembly;
use crate::effect::Outbound;
use crate::error::Result;
use crate::ids::{Moment, Sequence};
use crate::packet::{PACKET_SYNC, Packet};
use crate::record::{FLAG_SYNC, Form, Merge, RecordHead};

impl Receiver {
    pub(super) fn data(&mut self, now: Moment, packet: &Packet<'_>, out: &mut Outbound) -> Result<()> {
        let head = packet.head;
        if !self.is_mine(now, &head, out) {
            return Ok(());
        }
        self.stable = self.stable.max(head.stable);
        if head.sequence <= self.exposed && !planted::active("fabric-applied-records-placed-again") {
            // Sent again although it is applied: the report was lost.
            self.report.now |= head.has(PACKET_SYNC) && self.report.records == 0;
            self.counts.dropped += 1;
            return Ok(());
        }
        if head.sequence.0 > self.exposed.0 + WINDOW_RECORDS || self.lacks_source(now, out) {
            self.counts.dropped += 1;
            return Ok(());
        }
        self.newest = self.newest.max(head.sequence);
        if let Some((record, body)) = self.assemble(packet) {
            self.whole(record, body)?;
        }
        self.expose(now)?;
        self.finish_copy(now)?;
        self.gap.look(now);
        Ok(())
    }

    /// Adds a fragment. Returns the record when that makes it whole and its checksum holds.
    fn assemble(&mut self, packet: &Packet<'_>) -> Option<(RecordHead, Vec<u8>)> {
        let (sequence, bytes) = (packet.head.sequence, u64::from(packet.head.record_bytes));
        match self.loose.get(&sequence.0) {
            Some(Loose::Held(..) | Loose::Placed { .. }) => {
                self.counts.dropped += 1;
                return None;
            }
            Some(Loose::Partial(_)) => {}
            // The next record in order is taken in any case: without it nothing moves.
            None if sequence != self.exposed.next() && !self.has_room_for(bytes) => {
                self.counts.without_room += 1;
                return None;
            }
            None => {
                self.insert(sequence, Loose::Partial(Assembly::new(packet)));
            }
        }
        let Some(Loose::Partial(assembly)) = self.loose.get_mut(&sequence.0) else { return None };
        let before = assembly.buffer_bytes();
        let is_whole = assembly.add(packet);
        self.loose_bytes = self.loose_bytes + assembly.buffer_bytes() - before;
        if !is_whole {
            return None;
        }
        let record = assembly.finish(self.options.salt).map(|(head, body)| (head, body.to_vec()));
        self.remove(sequence);
        let fits = record.filter(|(head, body)| {
            head.sequence == sequence
                && head.group == self.options.group
                && head.term <= packet.head.term
                && head.reuse < head.sequence
                && head.check_form(body, self.pages.page_bytes(), self.pages.pages()).is_ok()
        });
        self.counts.refused += u64::from(fits.is_none());
        fits
    }

    /// Whether so many bytes are within the credit that this member granted.
    fn has_room_for(&self, bytes: u64) -> bool {
        self.loose_bytes + bytes <= u64::from(self.credit()) || planted::active("fabric-memory-without-limit")
    }

    fn insert(&mut self, sequence: Sequence, loose: Loose) {
        self.loose_bytes += bytes_of(&loose);
        self.counts.loose_bytes_max = self.counts.loose_bytes_max.max(self.loose_bytes);
        self.loose.insert(sequence.0, loose);
    }

    pub(super) fn remove(&mut self, sequence: Sequence) -> Option<Loose> {
        let loose = self.loose.remove(&sequence.0)?;
        self.loose_bytes -= bytes_of(&loose);
        Some(loose)
    }

    /// A whole record: its pages are written at once if that is allowed.
    fn whole(&mut self, head: RecordHead, body: Vec<u8>) -> Result<()> {
        let sequence = head.sequence;
        let is_early = self.log.standing() == Standing::Active || planted::active("fabric-joiner-places-early");
        let may_place = is_early && head.form() == Form::Pages && self.makes_settled(head.reuse, false)?;
        let loose = if may_place { self.place(head, &body)? } else { Loose::Held(head, body) };
        self.insert(sequence, loose);
        Ok(())
    }

    /// Whether a crash from now on looks at no page that a record up to `reuse` freed. Makes it so, by a fence of its
    /// own, when everything up to there is durable, or also when `exposed` is enough.
    fn makes_settled(&mut self, reuse: Sequence, exposed: bool) -> Result<bool> {
        if self.log.settled() >= reuse || planted::active("fabric-mark-forgotten") {
            return Ok(true);
        }
        if exposed {
            self.fence_exposed()?;
        }
        if self.tail < reuse {
            return Ok(false);
        }
        if !self.log.has_room_for_mark() {
            self.trim_log()?;
            if !self.log.has_room_for_mark() {
                return Ok(false);
            }
        }
        self.log.mark(self.tail)?;
        self.pages.settle()?;
        // The mark, before the page that it speaks of is written again.
        self.log.memory().fence();
        self.log.memory().durable()?;
        self.log.fenced();
        self.tail = self.exposed;
        self.counts.mark_fences += 1;
        Ok(true)
    }

    /// Where the page of a record is on this member: all members of a unit have the same place for it, so one address
    /// in the record is enough (paper 5 has addresses that differ by node, and one head for all).
    fn page_for(&self, page: u64) -> u64 {
        if planted::active("fabric-pages-differ-by-member") && self.options.node.0.is_multiple_of(2) {
            return 1 + page % (self.pages.pages() - 1);
        }
        page
    }

    /// Writes the pages of a record.
    fn place(&mut self, head: RecordHead, body: &[u8]) -> Result<Loose> {
        let kept = body.get(..head.kept_bytes()).unwrap_or(body);
        let size = to_usize(self.pages.page_bytes());
        let mut checksums = Vec::new();
        for (pair, bytes) in head.pairs(kept).zip(body.get(kept.len()..).unwrap_or(&[]).chunks_exact(size)) {
            checksums.push(self.pages.write(self.page_for(pair.new), bytes)?);
        }
        Ok(Loose::Placed { head, kept: kept.to_vec(), checksums })
    }

    /// Applies records as long as the next one is whole.
    pub(super) fn expose(&mut self, now: Moment) -> Result<()> {
        loop {
            let next = self.exposed.next();
            let head = match self.loose.get(&next.0) {
                Some(Loose::Held(head, _) | Loose::Placed { head, .. }) => *head,
                _ => return Ok(()),
            };
            if planted::active("fabric-global-sequence") && !self.follows_by_operation(&head) {
                return Ok(());
            }
            if self.waits_for_old(next) {
                return Ok(());
            }
            if !self.log.has_room(&head) {
                self.trim_log()?;
                if !self.log.has_room(&head) {
                    return Ok(());
                }
            }
            if head.form() != Form::Inline
                && matches!(self.loose.get(&next.0), Some(Loose::Held(..)))
                && !self.makes_settled(head.reuse, true)?
            {
                return Ok(());
            }
            let placed = match self.remove(next) {
                Some(Loose::Held(head, body)) => self.place_now(head, &body)?,
                Some(loose) => loose,
                None => return Ok(()),
            };
            let Loose::Placed { head, kept, checksums } = placed else { return Ok(()) };
            let applied = Applied { head, stable: self.stable.min(self.tail), kept, checksums };
            self.log.append(&applied, self.tail)?;
            applied.pages().for_each(|(pair, crc)| self.pages.note(pair.new, crc));
            self.note_written(&applied);
            self.exposed = next;
            self.note_exposed(now, head.has(FLAG_SYNC));
        }
    }

    /// The gap rule of paper 5, whose numbers are of all units together: each unit sees some of them only, so the next
    /// one may never come. Here for its planted bug.
    fn follows_by_operation(&self, head: &RecordHead) -> bool {
        let last = self.log.entry(self.exposed).map_or(0, |applied| applied.head.operation);
        head.operation <= last + 1 || last == 0
    }

    /// Writes the pages of the next record in order.
    fn place_now(&mut self, head: RecordHead, body: &[u8]) -> Result<Loose> {
        match head.form() {
            Form::Inline => Ok(Loose::Placed { head, kept: body.to_vec(), checksums: Vec::new() }),
            Form::Pages => self.place(head, body),
            Form::Merge => {
                let Some(merge) = Merge::of(body) else {
                    return Ok(Loose::Held(head, body.to_vec()));
                };
                // The old page is on the members alone, so they copy it, each for itself.
                let size = to_usize(self.pages.page_bytes());
                let is_fresh = merge.pair.old == 0 || planted::active("fabric-merge-without-old");
                let mut page = if is_fresh { vec![0; size] } else { self.pages.read(merge.pair.old)? };
                let at = to_usize(merge.at);
                if let Some(target) = page.get_mut(at..at + merge.bytes.len()) {
                    target.copy_from_slice(merge.bytes);
                }
                let checksums = vec![self.pages.write(self.page_for(merge.pair.new), &page)?];
                let kept = body.get(..head.kept_bytes()).unwrap_or(body).to_vec();
                Ok(Loose::Placed { head, kept, checksums })
            }
        }
    }
}

fn bytes_of(loose: &Loose) -> u64 {
    match loose {
        Loose::Partial(assembly) => assembly.buffer_bytes(),
        Loose::Held(_, body) => to_u64(crate::record::RECORD_HEAD_BYTES + body.len()),
        // Heads and numbers of pages: small beside the payload, which is in its place.
        Loose::Placed { kept, .. } => to_u64(kept.len()),
    }
}
