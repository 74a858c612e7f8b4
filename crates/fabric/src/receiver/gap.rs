//! Missing records: asked for again and again until they are there.
//!
//! One request for each gap is not enough: the request or its answer can be lost too. And a gap is seen only when a
//! later packet arrives, so the sender's beats say what the newest record is (paper 5, section 2.4, has neither).

use lodestone_pmem::planted;

use super::{Loose, Receiver, WINDOW_RECORDS};
use crate::effect::Outbound;
use crate::ids::{Moment, Sequence};
use crate::message::{Missing, NACK_WORDS_MAX};
use crate::packet::{Kind, PacketHead};

/// How long a gap may be before it is one: packets overtake each other.
const FIRST_NS: u64 = 50_000;
const AGAIN_NS: u64 = 1_000_000;
const AGAIN_NS_MAX: u64 = 8_000_000;

const _: () = assert!(WINDOW_RECORDS <= 64 * lodestone_width::to_u64(NACK_WORDS_MAX), "a map covers the window");

/// When to ask next.
#[derive(Debug, Default)]
pub(super) struct Gap {
    due: Option<Moment>,
    /// Pause after the next request; 0 before the first one.
    pause_ns: u64,
    /// Whether this gap was asked for already.
    asked: bool,
}

impl Gap {
    /// Something arrived that may show a gap.
    pub(super) fn look(&mut self, now: Moment) {
        if self.due.is_none() {
            self.due = Some(now.plus(FIRST_NS));
        }
    }

    /// A record was applied: what is missing now is another gap.
    pub(super) fn progress(&mut self, now: Moment) {
        (self.pause_ns, self.asked) = (0, false);
        self.due = Some(now.plus(FIRST_NS));
    }

    /// Nothing is known to be missing.
    pub(super) fn rest(&mut self) {
        *self = Self::default();
    }

    pub(super) const fn wake_at(&self) -> Option<Moment> {
        self.due
    }

    /// Whether a request is due; the next one is after a longer pause.
    fn is_due(&mut self, now: Moment) -> bool {
        if self.due.is_none_or(|due| now < due) {
            return false;
        }
        self.pause_ns = if self.pause_ns == 0 { AGAIN_NS } else { (2 * self.pause_ns).min(AGAIN_NS_MAX) };
        self.due = Some(now.plus(self.pause_ns));
        let is_first = !std::mem::replace(&mut self.asked, true);
        is_first || !planted::active("fabric-one-nack")
    }
}

impl Receiver {
    pub(super) fn ask_for_missing(&mut self, now: Moment, out: &mut Outbound) {
        if self.exposed >= self.newest || self.is_waiting() || !self.follows() {
            self.gap.rest();
            return;
        }
        if !self.gap.is_due(now) {
            return;
        }
        let first = self.exposed.next();
        let missing = self.missing(first);
        if missing.map.iter().all(|word| *word == 0) {
            return;
        }
        let head = PacketHead { sequence: first, credit: self.credit(), ..self.head(Kind::Nack) };
        out.to_node(self.sender, head.packet([&missing.to_payload(), &[]]));
        self.counts.nacks += 1;
    }

    fn missing(&self, first: Sequence) -> Missing {
        let last = self.newest.0.min(self.exposed.0 + WINDOW_RECORDS);
        let mut map = vec![0_u64; NACK_WORDS_MAX];
        for sequence in first.0..=last {
            let is_missing = matches!(self.loose.get(&sequence), None | Some(Loose::Partial(_)));
            let distance = sequence - first.0;
            if let Some(word) = usize::try_from(distance / 64).ok().and_then(|word| map.get_mut(word)) {
                *word |= u64::from(is_missing) << (distance % 64);
            }
        }
        let fragments = match self.loose.get(&first.0) {
            Some(Loose::Partial(assembly)) => assembly.missing(),
            _ => u64::MAX,
        };
        Missing { fragments, map }
    }
}
