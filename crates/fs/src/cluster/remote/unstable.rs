//! The operations of a mount that were answered and that may be lost still: no sync has covered them, and the metadata
//! node has not said that a quorum has them.
//!
//! They are few: before there are too many, an operation waits for a sync. When another metadata node leads they are
//! declared to it, and those that the takeover lost are sent again, in their order (`replays`).

use std::collections::{BTreeMap, HashSet};

use lodestone_width::to_u64;

use super::calls::Call;
use super::replays::{Declared, Fate, Place, changed, is_spoilt};
use crate::requests::Files;

/// Most operations. A mount has half as many more requests that wait for answers.
pub(crate) const PENDING_MAX: usize = 1024;
/// Most bytes of content and names.
const PENDING_BYTES_MAX: u64 = 16 << 20;

/// An operation that was answered.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) request: u64,
    /// The place that it had when it was answered: that of later ones in the log does not tell its order.
    pub(super) order: Place,
    /// The term whose log had it last.
    pub(super) since: u32,
    pub(super) call: Call,
    /// The files that were told with its answer.
    pub(super) files: Files,
}

/// The operations, by their places in the present log.
#[derive(Debug, Default)]
pub(super) struct Unstable {
    pending: BTreeMap<Place, Pending>,
    bytes: u64,
}

/// Bytes that a call takes while it is kept.
fn bytes_of(call: &Call) -> u64 {
    to_u64(match call {
        Call::Write { bytes, .. } | Call::Append { bytes, .. } => bytes.len(),
        Call::SetExtra { name, value, .. } => name.len() + value.len(),
        Call::Make { name, target, .. } => name.len() + target.len(),
        Call::Rename { from, to, .. } => from.1.len() + to.1.len(),
        Call::Link { name, .. } | Call::Remove { name, .. } | Call::RemoveExtra { name, .. } => name.len(),
        _ => 0,
    })
}

impl Unstable {
    /// Whether an operation has to wait for a sync first.
    pub(super) fn is_full(&self) -> bool {
        self.pending.len() >= PENDING_MAX || self.bytes >= PENDING_BYTES_MAX
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// The newest one.
    pub(super) fn newest(&self) -> Option<Place> {
        self.pending.last_key_value().map(|(place, _)| *place)
    }

    pub(super) fn keep(&mut self, place: Place, pending: Pending) {
        self.bytes += bytes_of(&pending.call);
        self.pending.insert(place, pending);
    }

    pub(super) fn take(&mut self, place: Place) -> Option<Pending> {
        let pending = self.pending.remove(&place)?;
        self.bytes -= bytes_of(&pending.call);
        Some(pending)
    }

    /// Those of a term up to a number are stable. Their requests.
    pub(super) fn settle(&mut self, (term, number): Place) -> Vec<u64> {
        let stable: Vec<Place> = self.pending.range((term, 0)..=(term, number)).map(|(place, _)| *place).collect();
        stable.into_iter().filter_map(|place| Some(self.take(place)?.request)).collect()
    }

    /// All of them, for the next metadata node.
    pub(super) fn declare(&self) -> Vec<Declared> {
        let declared = |pending: &Pending| Declared {
            request: pending.request,
            place: pending.order,
            since: pending.since,
            keys: changed(&pending.call, pending.files),
        };
        self.pending.values().map(declared).collect()
    }

    /// The fates of those that were declared to the metadata node of the term `term`: which are to be sent again, in
    /// order, and the requests of those that are lost.
    pub(super) fn sort(&mut self, term: u32, declared: &[Declared], fates: &[Fate]) -> (Vec<Place>, Vec<u64>) {
        // Some may have become stable meanwhile.
        let places: BTreeMap<u64, Place> =
            self.pending.iter().map(|(place, pending)| (pending.request, *place)).collect();
        let (mut again, mut lost) = (Vec::new(), Vec::new());
        for (one, fate) in declared.iter().zip(fates) {
            let Some(place) = places.get(&one.request).copied() else { continue };
            match fate {
                Fate::Again => again.push((one.place, place)),
                Fate::Lost => lost.extend(self.take(place).map(|pending| pending.request)),
                Fate::Kept(operation) => {
                    if let Some(pending) = self.take(place) {
                        self.keep((term, *operation), Pending { since: term, ..pending });
                    }
                }
            }
        }
        again.sort_unstable();
        (again.into_iter().map(|(_, place)| place).collect(), lost)
    }

    /// An operation was refused: of those that are to be sent after it, the ones that depend on it are lost, too. Their
    /// requests. The metadata node has forgotten them as well, but the next one would not know.
    pub(super) fn spoil(&mut self, refused: &Pending, after: &[Place]) -> Vec<u64> {
        let keys = |of: &Pending| changed(&of.call, of.files).into_iter().filter(|key| is_spoilt(*key));
        let (mut spoilt, mut lost): (HashSet<u64>, _) = (keys(refused).collect(), Vec::new());
        for place in after {
            let Some(pending) = self.pending.get(place) else { continue };
            if keys(pending).any(|key| spoilt.contains(&key)) {
                spoilt.extend(keys(pending));
                lost.extend(self.take(*place).map(|pending| pending.request));
            }
        }
        lost
    }

    #[cfg(test)]
    pub(super) fn all(&self) -> impl Iterator<Item = &Pending> {
        self.pending.values()
    }

    pub(super) fn get(&self, place: Place) -> Option<&Pending> {
        self.pending.get(&place)
    }
}
