//! Calls: pages and records for others, and the pages that a joining member copies.

use lodestone_pmem::planted;
use lodestone_width::{exact_u32, to_u64};

use super::Receiver;
use crate::applylog::Standing;
use crate::effect::Outbound;
use crate::error::Result;
use crate::ids::{Moment, NodeId, Sequence};
use crate::message::{Call, Mode};
use crate::packet::{self, Kind, PACKET_ANSWER, PACKET_GONE, Packet, PacketHead};
use crate::record::{Form, PAIR_BYTES};

/// Pages that are asked for at a time.
const COPIES_AT_A_TIME: u64 = 16;
const COPY_AGAIN_NS: u64 = 2_000_000;

/// The copy of pages of a member that joins.
#[derive(Debug)]
pub(super) struct Copying {
    /// From whom; `None` after a restart, until a view says it.
    source: Option<NodeId>,
    /// Pages that are there, in order.
    done: Vec<bool>,
    asked: Option<Moment>,
}

impl Copying {
    /// Waits for a view.
    pub(super) const fn waiting() -> Self {
        Self { source: None, done: Vec::new(), asked: None }
    }

    /// Copies so many pages.
    pub(super) fn from(source: NodeId, pages: u64) -> Self {
        let mut done = vec![false; usize::try_from(pages).unwrap_or(usize::MAX)];
        // There is no page 0.
        done.iter_mut().take(1).for_each(|page| *page = true);
        Self { source: Some(source), done, asked: None }
    }

    /// Asks another member from now on: the former one may be gone. Pages that are there stay.
    pub(super) fn change_source(&mut self, source: NodeId) {
        if self.source.is_some_and(|present| present != source) {
            (self.source, self.asked) = (Some(source), None);
        }
    }

    pub(super) const fn is_waiting(&self) -> bool {
        self.source.is_none()
    }

    pub(super) fn wake_at(&self) -> Option<Moment> {
        self.source?;
        Some(self.asked.map_or(Moment(0), |asked| asked.plus(COPY_AGAIN_NS)))
    }

    fn missing(&self) -> impl Iterator<Item = u64> + '_ {
        self.done.iter().enumerate().filter(|page| !page.1).map(|page| to_u64(page.0))
    }
}

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
            (Mode::Later, _) if self.later.len() < 4 * usize::try_from(COPIES_AT_A_TIME).unwrap_or(64) => {
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
    pub(super) fn copy_more(&mut self, now: Moment, out: &mut Outbound) {
        let Some(copying) = &mut self.joining else { return };
        let Some(source) = copying.source else { return };
        if copying.asked.is_some_and(|asked| now.since(asked) < COPY_AGAIN_NS) {
            return;
        }
        copying.asked = Some(now);
        let wanted: Vec<u64> =
            copying.missing().take(usize::try_from(COPIES_AT_A_TIME).unwrap_or(usize::MAX)).collect();
        for page in wanted {
            let head = self.head(Kind::Request);
            let number = exact_u32(page % (1 << 32));
            out.to_node(source, head.packet([&Call::Copy(page).to_payload(number), &[]]));
        }
    }

    /// A page for a member that joins.
    pub(super) fn copied(&mut self, now: Moment, packet: &Packet<'_>) -> Result<()> {
        let Some((Call::Copy(page), _, bytes)) = Call::from_payload(packet.payload) else {
            self.counts.dropped += 1;
            return Ok(());
        };
        // The copy must be of a moment after the record where this member begins.
        let is_new = packet.head.sequence >= self.exposed;
        let is_whole = to_u64(bytes.len()) == u64::from(self.pages.page_bytes());
        let Some(copying) = self.joining.as_mut().filter(|_| is_new && is_whole) else {
            self.counts.dropped += 1;
            return Ok(());
        };
        let Some(done) = usize::try_from(page).ok().and_then(|page| copying.done.get_mut(page)) else {
            return Ok(());
        };
        if copying.source != Some(packet.head.source) || std::mem::replace(done, true) {
            return Ok(());
        }
        let crc = self.pages.write(page, bytes)?;
        // A page that its member knows to be damaged stays damaged here: with a right checksum it would be read.
        let is_known_bad = packet.head.has(PACKET_GONE) && !planted::active("fabric-copy-hides-damage");
        let crc = if is_known_bad { !crc } else { crc };
        self.pages.note(page, crc);
        self.pages.save(std::iter::once((page, crc)));
        let left = copying.missing().count();
        if left % usize::try_from(COPIES_AT_A_TIME).unwrap_or(16) == 0 {
            copying.asked = None;
        }
        if left == 0 {
            self.pages.settle()?;
            // All pages, before the log says that they are there.
            self.log.memory().fence();
            self.log.memory().durable()?;
            self.log.stand(Standing::Replaying);
            self.joining = None;
            self.report.now = true;
            self.gap.look(now);
        }
        Ok(())
    }
}
