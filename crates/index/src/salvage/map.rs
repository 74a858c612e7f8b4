//! Salvage of an ordered map: every record says itself whose it is, so leaves only name what is lost. A record that no
//! leaf names is doubtful where the heap does not say whether it is allocated.

use std::collections::HashMap;
use std::ops::ControlFlow;

use lodestone_heap::Heap;
use lodestone_pmem::PmAddr;
use lodestone_store::{Lost, VisitLost, VisitRecord};

use crate::anchor::AnchorAt;
use crate::layout::{LeafAt, RecordHead};
use crate::medium::{IndexMemory, LeafFrame};

use super::doubt::{Doubt, UNLISTED, unknown_places};
use super::{FoundRecord, Haul, blocks_of, follow, reason_of, record_at, records_among};

/// A leaf that verifies.
struct Leaf {
    at: LeafAt,
    frame: LeafFrame,
}

/// Shows every record of the map whose anchor is at `at` that verifies, in order; how many.
pub(crate) fn salvage_map(heap: &Heap, at: PmAddr, visit: &mut VisitRecord<'_>, lost: &mut VisitLost<'_>) -> u64 {
    let medium = IndexMemory::of(heap, at);
    let blocks = blocks_of(heap);
    let mut records: HashMap<PmAddr, FoundRecord> =
        records_among(medium, blocks.iter().copied()).into_iter().map(|record| (record.at, record)).collect();
    let mut haul = Haul::default();
    let leaves = leaves_among(medium, at, &blocks);
    for leaf in &leaves {
        for target in (0..leaf.frame.slots).filter_map(|slot| medium.slot(leaf.at, slot).ok()) {
            if !target.is_null() && !records.contains_key(&target) {
                records.extend(record_at(medium, target).map(|record| (target, record)));
            }
        }
    }
    name_lost(medium, at, &leaves, &records, &mut haul);
    for record in records.into_values() {
        match record.head {
            Ok(_) => haul.add(record.key, record.at.to_raw()),
            Err(error) => haul.lose_key(record.key, record.at, reason_of(&error)),
        }
    }
    if !haul.lost.is_empty() {
        haul.doubt_missing(unlisted(heap, medium));
    }
    show(medium, haul, visit, lost)
}

/// The records that verify in memory of which the heap says nothing.
pub(super) fn unlisted(heap: &Heap, medium: IndexMemory<'_>) -> impl Iterator<Item = Doubt> {
    // The smallest blocks begin at any multiple of 16.
    let found = records_among(medium, unknown_places(heap, 16, RecordHead::BYTES));
    let whole = found.into_iter().filter(|record| record.head.is_ok());
    whole.map(|record| Doubt::new(record.key, record.at.to_raw(), record.at, UNLISTED))
}

/// Shows the records at the words of `haul`, then tells of the lost and the doubtful; how many were shown.
pub(super) fn show(medium: IndexMemory<'_>, haul: Haul, visit: &mut VisitRecord<'_>, lost: &mut VisitLost<'_>) -> u64 {
    let mut haul = haul.settle();
    let (mut count, mut key, mut value) = (0, Vec::new(), Vec::new());
    for pair in std::mem::take(&mut haul.pairs) {
        let at = PmAddr::from_raw(pair.word);
        value.clear();
        match medium.key(at, &mut key).and_then(|head| medium.append_value(at, head, &mut value)) {
            Ok(()) => {
                count += 1;
                if visit(&key, &value) == ControlFlow::Break(()) {
                    return count;
                }
            }
            Err(error) => haul.lose_key(pair.key, at, reason_of(&error)),
        }
    }
    for Doubt { key: wanted, word, reason, .. } in std::mem::take(&mut haul.doubtful) {
        let at = PmAddr::from_raw(word);
        value.clear();
        match medium.key(at, &mut key).and_then(|head| medium.append_value(at, head, &mut value)) {
            Ok(()) => lost(Lost::doubtful(wanted, value.clone(), Some(at), reason)),
            Err(error) => haul.lose_key(wanted, at, reason_of(&error)),
        }
    }
    haul.lost.into_iter().for_each(lost);
    count
}

/// The leaves of the map among `blocks`, and those that links lead to, in order of keys.
fn leaves_among(medium: IndexMemory<'_>, anchor: PmAddr, blocks: &[(PmAddr, u64)]) -> Vec<Leaf> {
    let mut leaves = Vec::new();
    for &(at, bytes) in blocks.iter().filter(|(_, bytes)| *bytes >= LeafAt::bytes(2, 0)) {
        let at = LeafAt(at);
        if let Ok(frame) = medium.leaf_frame(at)
            && LeafAt::bytes(frame.slots, frame.low.len()) <= bytes
        {
            leaves.push(Leaf { at, frame });
        }
    }
    let links: Vec<PmAddr> =
        std::iter::once(AnchorAt(anchor).head()).chain(leaves.iter().map(|leaf| leaf.at.next())).collect();
    follow(medium, links, leaves.iter().map(|leaf| leaf.at.0).collect(), |at| {
        let at = LeafAt(at);
        let frame = medium.leaf_frame(at).ok()?;
        leaves.push(Leaf { at, frame });
        Some(at.next())
    });
    leaves.sort_by(|left, right| left.frame.low.cmp(&right.frame.low));
    leaves
}

/// Names what leaves say of records that are not there, and leaves that are not there.
fn name_lost(
    medium: IndexMemory<'_>,
    anchor: PmAddr,
    leaves: &[Leaf],
    records: &HashMap<PmAddr, FoundRecord>,
    haul: &mut Haul,
) {
    let mut link = (AnchorAt(anchor).head(), None);
    for (number, leaf) in leaves.iter().enumerate() {
        let upper = leaves.get(number + 1).map(|next| next.frame.low.to_vec());
        name_missing_leaf(medium, link, Some(leaf), haul);
        link = (leaf.at.next(), Some(leaf.frame.low.to_vec()));
        let range = || (Some(leaf.frame.low.to_vec()), upper.clone());
        let mut damaged_line = None;
        for slot in 0..leaf.frame.slots {
            match medium.slot(leaf.at, slot) {
                Ok(at) if at.is_null() || records.contains_key(&at) => {}
                Ok(at) => {
                    let reason = medium.key(at, &mut Vec::new()).err().map(|error| reason_of(&error));
                    let reason = reason.unwrap_or_else(|| "the record is not in a block of its own".to_owned());
                    haul.lose_between(range(), Some(at), true, reason);
                }
                Err(error) => {
                    let at = leaf.at.slot(slot);
                    if damaged_line.replace(at.line()) != Some(at.line()) {
                        // A record that such a slot named comes out by itself, if it is not damaged as well.
                        haul.lose_between(range(), Some(at), false, reason_of(&error));
                    }
                }
            }
        }
    }
    name_missing_leaf(medium, link, None, haul);
}

/// Names the keys between two leaves when `link`, which the keys from its low bound on follow, leads elsewhere than to
/// `next`.
fn name_missing_leaf(medium: IndexMemory<'_>, link: (PmAddr, Option<Vec<u8>>), next: Option<&Leaf>, haul: &mut Haul) {
    let (at, from) = link;
    let expected = next.map_or(PmAddr::NULL, |next| next.at.0);
    let to = next.map(|next| next.frame.low.to_vec());
    match medium.link(at, "link to a leaf", LeafAt::bytes(1, 0)) {
        Ok(found) if found == expected => {}
        Ok(found) => haul.lose_between((from, to), Some(found), false, "a leaf does not verify"),
        Err(error) => haul.lose_between((from, to), Some(at), false, reason_of(&error)),
    }
}
