//! Calls: pages and records for others, and the pages that a joining member copies.

use std::collections::HashSet;

use lodestone_pmem::planted;
use lodestone_width::{exact_u32, to_u64};

use super::copying::{COPIES_AT_A_TIME, Copying};
use super::{Loose, Receiver};
use crate::applylog::{Applied, Standing};
use crate::effect::Outbound;
use crate::error::Result;
use crate::ids::{Moment, NodeId, Sequence};
use crate::message::{Call, Mode};
use crate::packet::{self, Kind, PACKET_ANSWER, PACKET_GONE, Packet, PacketHead};
use crate::record::{Form, Merge, PAIR_BYTES};

impl Receiver {
    /// A call.
    pub(super) fn request(&mut self, packet: &Packet<'_>, out: &mut Outbound) -> Result<()> {
        let Some((call, number, _)) = Call::from_payload(packet.payload) else {
            self.counts.refused += 1;
            return Ok(());
        };
        match (call.mode(), call) {
            (Mode::NoReply, _) => {}
            // A sender that was replaced may not read records of a log that changes now.
            (_, Call::Record(_)) if packet.head.term != self.log.promised().0 => self.counts.dropped += 1,
            (Mode::Now, _) => self.answer(packet.head.source, call, number, out)?,
            (Mode::Later, _) if self.later.len() < 4 * COPIES_AT_A_TIME => {
                self.later.push_back((packet.head.source, call, number));
            }
            (Mode::Later, _) => self.counts.dropped += 1,
        }
        Ok(())
    }

    pub(super) fn answer_later(&mut self, out: &mut Outbound) -> Result<()> {
        for _ in 0..COPIES_AT_A_TIME {
            let Some((node, call, number)) = self.later.pop_front() else { break };
            self.answer(node, call, number, out)?;
        }
        Ok(())
    }

    fn answer(&mut self, node: NodeId, call: Call, number: u32, out: &mut Outbound) -> Result<()> {
        match call {
            Call::Record(sequence) => self.answer_record(node, sequence, out),
            Call::Page(page) | Call::Copy(page) => {
                // Pages of a member that joins are of no moment at all.
                if page >= self.pages.pages() || self.log.standing() != Standing::Active {
                    return Ok(());
                }
                // Its log may still be cut for the term that it has promised.
                if matches!(call, Call::Copy(_)) && !self.follows() {
                    return Ok(());
                }
                let bytes = self.pages.read(page)?;
                let mut head = PacketHead { flags: PACKET_ANSWER, sequence: self.tail, ..self.head(Kind::Reply) };
                let is_damaged = self.pages.checksum(page).is_some_and(|crc| crc32c::crc32c(&bytes) != crc)
                    && !planted::active("fabric-damaged-page-read");
                // The member that copies takes the bytes all the same: the page may be free, and half written by now.
                if is_damaged {
                    head.flags |= PACKET_GONE;
                }
                out.to_node(node, head.packet([&call.to_payload(number), &bytes]));
                Ok(())
            }
            Call::View => Ok(()),
        }
    }

    /// The whole record again, of its entry and its pages. Gone if a page was used again: then every member has it.
    fn answer_record(&mut self, node: NodeId, sequence: Sequence, out: &mut Outbound) -> Result<()> {
        let mut head = PacketHead { flags: PACKET_ANSWER, sequence, ..self.head(Kind::Reply) };
        if sequence > self.tail {
            return Ok(());
        }
        let whole = match self.log.entry(sequence) {
            Some(applied) => {
                let mut body = applied.kept.clone();
                for (pair, _) in applied.pages() {
                    let page = self.pages.read(pair.new)?;
                    match applied.head.form() {
                        Form::Merge => {
                            let half = |at: usize| {
                                let bytes = applied.kept.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
                                bytes.map_or(0, u32::from_le_bytes)
                            };
                            let at = usize::try_from(half(PAIR_BYTES)).unwrap_or(0);
                            let bytes = usize::try_from(half(PAIR_BYTES + 4)).unwrap_or(0);
                            body.extend(page.get(at..at.saturating_add(bytes)).unwrap_or(&[]));
                        }
                        _ => body.extend(page),
                    }
                }
                applied.head.verifies(self.options.salt, &body).then_some((applied.head, body))
            }
            None => None,
        };
        let Some((record, body)) = whole else {
            head.flags |= PACKET_GONE;
            out.to_node(node, head.packet([&[], &[]]));
            return Ok(());
        };
        let limit = self.options.payload_bytes_max;
        packet::fragments(&head, &record.to_bytes(), &body, limit, u64::MAX, &mut |bytes| out.to_node(node, bytes));
        Ok(())
    }

    /// Asks for the next pages, if this member joins.
    pub(super) fn copy_more(&mut self, now: Moment, out: &mut Outbound) -> Result<()> {
        self.finish_copy(now)?;
        let Some((source, wanted)) = self.joining.as_mut().and_then(|copying| copying.ask(now)) else {
            return Ok(());
        };
        for page in wanted {
            let head = self.head(Kind::Request);
            let number = exact_u32(page % (1 << 32));
            out.to_node(source, head.packet([&Call::Copy(page).to_payload(number), &[]]));
        }
        Ok(())
    }

    /// A page for a member that joins.
    pub(super) fn copied(&mut self, now: Moment, packet: &Packet<'_>) -> Result<()> {
        let Some((Call::Copy(page), _, bytes)) = Call::from_payload(packet.payload) else {
            self.counts.dropped += 1;
            return Ok(());
        };
        let is_whole = to_u64(bytes.len()) == u64::from(self.pages.page_bytes());
        // The copy must be of a moment after the record where this member began, and of a member that counts. Sequences
        // of another term say nothing of moments: the copy may be older than a page that this term wrote in its place.
        let is_of_term = self.follows() && packet.head.term == self.log.promised().0;
        let is_fit = is_whole && (is_of_term || planted::active("fabric-copy-of-an-older-term"));
        let takes = |copying: &Copying| copying.takes(packet.head.source, packet.head.sequence);
        let Some(copying) = self.joining.as_mut().filter(|copying| is_fit && takes(copying)) else {
            self.counts.dropped += 1;
            return Ok(());
        };
        copying.answered();
        // A record may have written it since then.
        let (is_new, is_urgent) = copying.note(page);
        if !is_new {
            return Ok(());
        }
        let crc = self.pages.write(page, bytes)?;
        // A page that its member knows to be damaged stays damaged here: with a right checksum it would be read.
        let is_known_bad = packet.head.has(PACKET_GONE) && !planted::active("fabric-copy-hides-damage");
        let crc = if is_known_bad { !crc } else { crc };
        self.pages.note(page, crc);
        self.pages.save(std::iter::once((page, crc)));
        if is_urgent {
            self.expose(now)?;
        }
        self.finish_copy(now)
    }

    /// Whether the next record needs the old bytes of a page that is not copied yet. Asks for it, and for what the
    /// records after it will need.
    pub(super) fn waits_for_old(&mut self, next: Sequence) -> bool {
        let Some(copying) = &mut self.joining else { return false };
        let old_of = |loose: &Loose| match loose {
            Loose::Held(head, body) if head.form() == Form::Merge => Merge::of(body).map(|merge| merge.pair.old),
            _ => None,
        };
        let waits = self.loose.get(&next.0).and_then(old_of).is_some_and(|old| copying.lacks(old));
        if !waits || planted::active("fabric-merge-before-its-old-page") {
            return false;
        }
        let mut written = HashSet::new();
        for loose in self.loose.values() {
            let Loose::Held(head, body) = loose else { continue };
            // A page need not be copied that a record before it writes.
            if let Some(old) = old_of(loose).filter(|old| !written.contains(old)) {
                copying.urge(old);
            }
            written.extend(head.pairs(body.get(..head.kept_bytes()).unwrap_or(body)).map(|pair| pair.new));
        }
        true
    }

    /// The pages of a record are there, whole: a copy of them would be older.
    pub(super) fn note_written(&mut self, applied: &Applied) {
        if planted::active("fabric-copy-over-a-newer-page") {
            return;
        }
        if let Some(copying) = &mut self.joining {
            applied.pages().for_each(|(pair, _)| _ = copying.note(pair.new));
        }
    }

    /// Copies from `sources` after a restart. It does not know any more what was copied, but what records wrote since
    /// this member began is in the log, as far as it was not given up. Its own tail was reported and stays: each page
    /// that counts there is still in place at others.
    pub(super) fn copy_again(&mut self, sources: Vec<NodeId>) {
        let mut copying = Copying::from(sources, self.exposed, self.pages.pages());
        let (first, _) = self.log.terms().base();
        for applied in (first.0 + 1..=self.exposed.0).filter_map(|sequence| self.log.entry(Sequence(sequence))) {
            applied.pages().for_each(|(pair, _)| _ = copying.note(pair.new));
        }
        self.joining = Some(copying);
    }

    /// When all pages are there, this member goes on as one that has them.
    pub(super) fn finish_copy(&mut self, now: Moment) -> Result<()> {
        if !self.joining.as_ref().is_some_and(Copying::is_whole) {
            return Ok(());
        }
        self.pages.settle()?;
        // All pages, before the log says that they are there.
        self.log.memory().fence();
        self.log.memory().durable()?;
        self.log.fenced();
        self.tail = self.exposed;
        self.log.stand(Standing::Replaying);
        self.joining = None;
        self.report.now = true;
        self.gap.look(now);
        Ok(())
    }
}
