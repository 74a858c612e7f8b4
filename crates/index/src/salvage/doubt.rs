//! Doubtful records: key and value verify, and nothing says any more whether the record was removed or replaced.
//!
//! They are told by themselves, never among the records that came out. A key that came out is not in doubt: a structure
//! has one record of a key.

use std::collections::{HashMap, HashSet};

use lodestone_heap::Heap;
use lodestone_pmem::PmAddr;
use lodestone_store::{Lost, LostKeys};

use super::Haul;

/// Why a record is doubtful that the heap may have freed.
pub(super) const UNLISTED: &str = "nothing says whether this record still counts: neither a link nor the heap's tables";
/// Why a pair is doubtful whose leaf or segment has no header.
pub(super) const HEADLESS: &str = "nothing says whether this record still counts: the header beside it is damaged";
/// Why a record is doubtful that no index names.
pub(super) const UNNAMED: &str = "nothing says whether this record still counts: neither the index nor an intent";
/// Why records of one key are doubtful.
pub(super) const TWICE: &str = "nothing says which of several records of this key counts";

/// A doubtful record. The key is in bytes that order as keys do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Doubt {
    pub(crate) key: Vec<u8>,
    pub(crate) word: u64,
    pub(crate) at: Option<PmAddr>,
    pub(crate) reason: String,
}

impl Doubt {
    pub(super) fn new(key: Vec<u8>, word: u64, at: PmAddr, reason: &str) -> Self {
        Self { key, word, at: Some(at), reason: reason.to_owned() }
    }
}

/// Keys from the first, before the second.
type Between<'l> = (Option<&'l [u8]>, Option<&'l [u8]>);

/// The keys that may be missing, by the losses of a structure.
pub(super) struct Missing<'l> {
    keys: HashSet<&'l [u8]>,
    ranges: Vec<Between<'l>>,
}

impl<'l> Missing<'l> {
    pub(super) fn of(lost: &'l [Lost]) -> Self {
        let mut missing = Self { keys: HashSet::new(), ranges: Vec::new() };
        for lost in lost {
            match &lost.keys {
                LostKeys::Key(key) | LostKeys::Doubtful(key, _) => drop(missing.keys.insert(key)),
                LostKeys::Between(from, to) => missing.ranges.push((from.as_deref(), to.as_deref())),
                LostKeys::Unknown => missing.ranges.push((None, None)),
            }
        }
        missing
    }

    pub(super) fn has(&self, key: &[u8]) -> bool {
        let is_in = |(from, to): &Between<'_>| from.is_none_or(|from| from <= key) && to.is_none_or(|to| key < to);
        self.keys.contains(key) || self.ranges.iter().any(is_in)
    }
}

/// Puts the doubtful records in order, without those whose keys came out. A lost key of which there is a doubtful
/// record is told once, as doubtful.
pub(super) fn settle(haul: &mut Haul) {
    let is_out = |key: &[u8]| haul.pairs.binary_search_by(|pair| pair.key.as_slice().cmp(key)).is_ok();
    haul.doubtful.retain(|doubt| !is_out(&doubt.key));
    haul.doubtful.sort_by(|left, right| (&left.key, left.word).cmp(&(&right.key, right.word)));
    haul.doubtful.dedup_by(|left, right| (&left.key, left.word) == (&right.key, right.word));
    let mut reasons: HashMap<&[u8], Option<String>> = HashMap::new();
    haul.doubtful.iter().for_each(|doubt| drop(reasons.insert(&doubt.key, None)));
    haul.lost.retain_mut(|lost| match &lost.keys {
        LostKeys::Key(key) => match reasons.get_mut(key.as_slice()) {
            Some(reason) => {
                *reason = Some(std::mem::take(&mut lost.reason));
                false
            }
            None => true,
        },
        _ => true,
    });
    let reasons: Vec<Option<String>> =
        haul.doubtful.iter().map(|doubt| reasons.get(doubt.key.as_slice()).cloned().flatten()).collect();
    for (doubt, reason) in haul.doubtful.iter_mut().zip(reasons) {
        if let Some(reason) = reason {
            doubt.reason = format!("{reason}; {}", doubt.reason);
        }
    }
}

/// Every place where a block of at least `bytes` bytes can begin, at a multiple of `align`, in memory of which the heap
/// cannot say what is allocated; with the bytes that it can have at most.
pub(super) fn unknown_places(heap: &Heap, align: u64, bytes: u64) -> impl Iterator<Item = (PmAddr, u64)> {
    let places = heap.unknown_blocks().into_iter().flat_map(|blocks| blocks.places());
    places.filter(move |(at, room)| at.offset().is_multiple_of(align) && *room >= bytes)
}

/// The memory of which the heap cannot say what is allocated there: disjoint ranges, ascending.
pub(super) fn unknown_ranges(heap: &Heap) -> Vec<(PmAddr, u64)> {
    let mut ranges: Vec<_> = heap.unknown_blocks().into_iter().map(|blocks| blocks.range()).collect();
    ranges.sort_unstable();
    let mut merged: Vec<(PmAddr, u64)> = Vec::with_capacity(ranges.len());
    for (at, bytes) in ranges {
        match merged.last_mut() {
            Some((start, room)) if start.part() == at.part() && at.offset() <= start.offset() + *room => {
                *room = (*room).max(at.offset() + bytes - start.offset());
            }
            _ => merged.push((at, bytes)),
        }
    }
    merged
}

/// The block at `at` of which the heap cannot say whether it is allocated: its bytes, or the bytes that it can have at
/// most. `None` where no such block can begin.
pub(super) fn unknown_block(heap: &Heap, at: PmAddr) -> Option<Unlisted> {
    heap.unknown_blocks().into_iter().find_map(|blocks| {
        let (_, bytes) = blocks.places().find(|(place, _)| *place == at)?;
        Some(if blocks.block_bytes().is_some() { Unlisted::Sized(bytes) } else { Unlisted::AtMost(bytes) })
    })
}

/// Bytes of a block of which the heap cannot say whether it is allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unlisted {
    /// So many, if there is one.
    Sized(u64),
    /// Not more than so many.
    AtMost(u64),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doubt(key: &[u8], word: u64) -> Doubt {
        Doubt { key: key.to_vec(), word, at: None, reason: "doubt".to_owned() }
    }

    #[test]
    fn a_key_that_came_out_is_not_in_doubt_and_one_that_is_in_doubt_is_told_once() {
        let mut haul = Haul::default();
        haul.add(b"out".to_vec(), 1);
        haul.add(b"twice".to_vec(), 2);
        haul.add(b"twice".to_vec(), 3);
        haul.lose_key(b"gone".to_vec(), PmAddr::new(0, 64), "its line");
        haul.lose_key(b"lost".to_vec(), PmAddr::new(0, 64), "its line");
        haul.doubt_missing([doubt(b"out", 4), doubt(b"gone", 5), doubt(b"gone", 6), doubt(b"gone", 6)]);
        haul.doubt_missing([doubt(b"whole", 7)]);
        haul.doubtful.push(doubt(b"out", 8));
        let haul = haul.settle();
        assert_eq!(haul.pairs.iter().map(|pair| pair.word).collect::<Vec<_>>(), [1]);
        let doubtful: Vec<_> = haul.doubtful.iter().map(|doubt| (&doubt.key[..], doubt.word)).collect();
        assert_eq!(doubtful, [(&b"gone"[..], 5), (b"gone", 6), (b"twice", 2), (b"twice", 3)]);
        assert_eq!(haul.doubtful[0].reason, "its line; doubt");
        assert_eq!(haul.lost.len(), 1);
        assert_eq!(haul.lost[0].keys, LostKeys::Key(b"lost".to_vec()));
    }

    #[test]
    fn only_keys_that_may_be_missing_are_in_doubt() {
        let mut haul = Haul::default();
        haul.lose_between((Some(b"b".to_vec()), Some(b"d".to_vec())), None, true, "a leaf");
        let lost = std::mem::take(&mut haul.lost);
        let missing = Missing::of(&lost);
        assert_eq!([b"a", b"b", b"c", b"d"].map(|key| missing.has(key)), [false, true, true, false]);
        haul.lose_at(None, false, "anything");
        assert!(Missing::of(&haul.lost).has(b"a"));
    }
}
