//! The place of a group in the order of a volume: it is alone, has the operations, or has payloads of them.
//!
//! A group by itself acknowledges what a quorum has. In a volume a record is part of an operation, and an operation
//! counts as a whole. `volume` says how far that is; a sender then holds back what is beyond:
//!
//! - operations are acknowledged up to the first whose payload is not;
//! - nothing in a unit is stable before its operation is acknowledged. Otherwise pages that it freed would be written
//!   again, and a takeover that cuts the operation would bring back the file that had them;
//! - a takeover of the operations waits for those of the units, and cuts at the first operation without payload. It
//!   gives operations up only when each unit has acknowledged the first record of its term: then every later log of the
//!   units has their payloads. Otherwise no later takeover could look at them any more.

use std::collections::BTreeMap;

use lodestone_pmem::planted;

use super::{Phase, Sender};
use crate::effect::Outbound;
use crate::error::Result;
use crate::ids::{GroupId, Moment, Sequence, Term};
use crate::outbox::Outbox;
use crate::record::{FLAG_PAYLOADS, Payloads, RecordHead};
use crate::terms::Terms;

/// The part that a group plays in its volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Place {
    /// No other group exists.
    #[default]
    Alone,
    /// The operations, which name payloads in units.
    Operations,
    /// Payloads.
    Unit,
}

/// Place and limits.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) place: Place,
    /// Nothing beyond is acknowledged.
    pub(super) acknowledged_max: Sequence,
    /// Nothing beyond is stable.
    pub(super) stable_max: Sequence,
    /// Whether members may change.
    pub(super) may_change: bool,
    /// The adopted logs of the units, once all have one. For the operations alone.
    units: Option<BTreeMap<GroupId, PayloadLog>>,
    /// Whether every later log of the units has what is in those. For the operations alone.
    units_settled: bool,
}

impl Default for Order {
    fn default() -> Self {
        let none = Sequence(u64::MAX);
        let (acknowledged_max, stable_max) = (none, none);
        let (units, units_settled) = (None, false);
        Self { place: Place::Alone, acknowledged_max, stable_max, may_change: true, units, units_settled }
    }
}

impl Order {
    /// A takeover begins: nothing of the former term counts.
    pub(super) fn begin(&mut self) {
        *self = Self { place: self.place, ..Self::default() };
        if self.place != Place::Alone {
            (self.stable_max, self.may_change) = (Sequence(0), false);
        }
        if self.place == Place::Operations {
            self.acknowledged_max = Sequence(0);
        }
    }

    /// Whether the takeover waits for the units.
    pub(super) const fn is_waiting(&self) -> bool {
        matches!(self.place, Place::Operations) && self.units.is_none()
    }

    /// Whether operations may be given up before they are acknowledged.
    pub(super) fn may_give_up(&self) -> bool {
        let is_settled = self.units_settled || planted::active("fabric-operations-given-up-early");
        self.place == Place::Operations && is_settled
    }

    /// Whether some payload of an operation is in no adopted log.
    fn lacks_payload(&self, head: &RecordHead, body: &[u8]) -> bool {
        if self.place != Place::Operations
            || !head.has(FLAG_PAYLOADS)
            || planted::active("fabric-operations-taken-whole")
        {
            return false;
        }
        // An operation whose list is damaged was never submitted.
        let Some(payloads) = Payloads::of(body) else { return true };
        let has = |unit: GroupId, sequence| {
            self.units.as_ref().and_then(|units| units.get(&unit)).is_some_and(|log| log.has(sequence, head.term))
        };
        payloads.places().any(|(unit, sequence)| !has(unit, sequence))
    }
}

/// The adopted log of a unit, to look for payloads.
#[derive(Clone, Debug)]
pub(crate) struct PayloadLog {
    /// Everything up to here is stable. So its operations were acknowledged, and no other one names its places.
    known: Sequence,
    /// Logs, and how far each is equal to the adopted one.
    logs: Vec<(Terms, Sequence)>,
}

impl PayloadLog {
    pub(super) fn new<'t>(known: Sequence, adopted: &Terms, others: impl Iterator<Item = &'t Terms>) -> Self {
        let mut logs = vec![(adopted.clone(), adopted.last().1)];
        logs.extend(others.filter_map(|log| Some((log.clone(), log.common(adopted)?))));
        Self { known, logs }
    }

    /// Whether the record at `sequence` is there and was made in `term`.
    fn has(&self, sequence: Sequence, term: Term) -> bool {
        let is_in = |(log, common): &(Terms, Sequence)| *common >= sequence && log.term_of(sequence) == Some(term);
        sequence <= self.known || self.logs.iter().any(is_in)
    }
}

impl Sender {
    /// Gives the group its place in a volume.
    pub(crate) fn set_place(&mut self, place: Place) {
        self.order.place = place;
        self.order.begin();
    }

    /// How far the volume has come: what may be acknowledged, and be stable.
    pub(crate) fn limit(&mut self, acknowledged_max: Sequence, stable_max: Sequence, may_change: bool) {
        let order = &mut self.order;
        let is_new = (order.acknowledged_max, order.stable_max) != (acknowledged_max, stable_max);
        (order.acknowledged_max, order.stable_max, order.may_change) = (acknowledged_max, stable_max, may_change);
        if is_new && matches!(self.phase, Phase::Sending) {
            self.advance();
        }
    }

    /// The units have adopted their logs: the takeover of the operations goes on.
    pub(crate) fn units_adopted(
        &mut self,
        now: Moment,
        units: BTreeMap<GroupId, PayloadLog>,
        out: &mut Outbound,
    ) -> Result<()> {
        self.order.units = Some(units);
        self.adopt_if_enough(now, out)
    }

    /// Each unit has acknowledged the first record of this term: operations may be given up, if the ring needs that.
    pub(crate) fn units_settled(&mut self, now: Moment, out: &mut Outbound) -> Result<()> {
        if std::mem::replace(&mut self.order.units_settled, true) {
            return Ok(());
        }
        self.adopt_if_enough(now, out)
    }

    /// Whether it is the operations' and waits for the units.
    pub(crate) const fn waits_for_units(&self) -> bool {
        matches!(self.phase, Phase::Gathering(_)) && self.order.is_waiting()
    }

    /// Whether the first record of this term is acknowledged.
    pub(crate) fn has_begun(&self) -> bool {
        self.is_sending() && self.acked > self.base
    }

    /// The log that this unit has adopted.
    pub(crate) const fn payload_log(&self) -> Option<&PayloadLog> {
        self.payload_log.as_ref()
    }

    /// The first operation of the ring after `from`, and up to `last`, without its payload.
    pub(super) fn first_incomplete(&self, from: Sequence, last: Sequence) -> Result<Option<Sequence>> {
        if self.order.place != Place::Operations {
            return Ok(None);
        }
        for sequence in (from.max(self.ring.first()).0 + 1..=last.0).map(Sequence) {
            if let Some((head, body)) = self.ring.record(sequence)?
                && self.is_incomplete(&head, &body)
            {
                return Ok(Some(sequence));
            }
        }
        Ok(None)
    }

    pub(super) fn is_incomplete(&self, head: &RecordHead, body: &[u8]) -> bool {
        self.order.lacks_payload(head, body)
    }
}
