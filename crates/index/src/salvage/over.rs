//! Salvage of a map over an index: every record says itself whose it is, and the index says which record of a key
//! counts.
//!
//! A change writes the new record before the index names it, and frees the old one after. So a crash can leave two
//! records of a key, or one whose key was removed. Records that the index does not name come out only where the index
//! is damaged, they are the only ones of their keys, and the intent of their stripe says that no change was under way.
//! Otherwise they are doubtful. So are those that the index may have lost, in memory of which the heap says nothing.

use std::collections::{BTreeMap, HashMap, HashSet};

use lodestone_pmem::{PmAddr, checked};
use lodestone_store::{LostKeys, Object, VisitLost, VisitRecord};
use lodestone_width::{to_u64, to_usize};

use crate::anchor::{self, ANCHOR_BYTES, AnchorAt, AnchorKind};
use crate::cells::KeyKind;
use crate::fastfair::{self, FastFair};
use crate::fptree::{self, FpTree};
use crate::hash::{self, HashIndex};
use crate::medium::IndexMemory;
use crate::records::table::{IntentAt, intent_bytes};
use crate::records::{IndexKind, KIND, decode_options};
use crate::skiplist::{self, SkipList};

use super::doubt::{Doubt, UNNAMED};
use super::map::{show, unlisted};
use super::{FoundRecord, Haul, Salvage, blocks_of, reason_of, record_at, records_among};

/// The known parts of a map: others may be damaged.
struct Parts {
    index: Option<(IndexKind, PmAddr)>,
    stripes: Option<usize>,
    intents: Option<PmAddr>,
}

/// The kind of index below the map `object`, as far as anything says it.
pub(crate) fn index_kind_of(object: &Object) -> Option<IndexKind> {
    parts_of(IndexMemory::of(object.heap(), object.at()), object).index.map(|(kind, _)| kind)
}

/// Shows every record of the map `object` that verifies and counts, in order; how many.
pub(crate) fn salvage_over(object: &Object, visit: &mut VisitRecord<'_>, lost: &mut VisitLost<'_>) -> u64 {
    let (heap, at) = (object.heap(), object.at());
    let medium = IndexMemory::of(heap, at);
    let parts = parts_of(medium, object);
    let index = match parts.index {
        Some((IndexKind::FastFair | IndexKind::HybridPlus, at)) => FastFair::<[u8]>::haul(heap, at),
        Some((IndexKind::FpTree, at)) => FpTree::<[u8]>::haul(heap, at),
        Some((IndexKind::SkipList, at)) => SkipList::<[u8]>::haul(heap, at),
        Some((IndexKind::Hybrid, at)) => HashIndex::<[u8]>::haul(heap, at),
        None => {
            let mut haul = Haul::default();
            haul.lose_at(Some(at), false, "the anchor of the map does not say where its index is");
            haul
        }
    }
    .settle();
    let mut found: BTreeMap<Vec<u8>, Vec<FoundRecord>> = BTreeMap::new();
    for record in records_among(medium, blocks_of(heap)) {
        found.entry(record.key.clone()).or_default().push(record);
    }
    let mut haul = choose(medium, &parts, index, found);
    if !haul.lost.is_empty() {
        haul.doubt_missing(unlisted(heap, medium));
    }
    show(medium, haul, visit, lost)
}

/// Of the records that were found, those that count; and what is lost.
fn choose(medium: IndexMemory<'_>, parts: &Parts, index: Haul, found: BTreeMap<Vec<u8>, Vec<FoundRecord>>) -> Haul {
    let mut haul = Haul::default();
    let named: HashMap<Vec<u8>, PmAddr> =
        index.pairs.into_iter().map(|pair| (pair.key, PmAddr::from_raw(pair.word))).collect();
    let is_index_whole = index.lost.is_empty() && index.doubtful.is_empty();
    for (key, at) in &named {
        let record = found.get(key).and_then(|records| records.iter().find(|record| record.at == *at));
        // Blocks that the heap's damaged tables do not show are read where the index says.
        let unlisted = if record.is_none() { record_at(medium, *at).filter(|found| found.key == *key) } else { None };
        match record.or(unlisted.as_ref()).map(|record| &record.head) {
            Some(Ok(_)) => haul.add(key.clone(), at.to_raw()),
            Some(Err(error)) => haul.lose_key(key.clone(), *at, reason_of(error)),
            None => haul.lose_key(key.clone(), *at, "record: its head or key does not verify"),
        }
    }
    let mut out = HashSet::new();
    if !is_index_whole {
        let intents = Intents::read(medium, parts);
        for (key, records) in found.into_iter().filter(|(key, _)| !named.contains_key(key)) {
            match &records[..] {
                [record] if intents.lets(&key, record.at) => match &record.head {
                    Ok(_) => haul.add(key.clone(), record.at.to_raw()),
                    Err(error) => haul.lose_key(key.clone(), record.at, reason_of(error)),
                },
                records => doubt(&mut haul, &key, records),
            }
            out.insert(key);
        }
    }
    // A pair of the index that is in doubt, and whose record the heap does not list.
    for pair in index.doubtful.into_iter().filter(|pair| !out.contains(&pair.key)) {
        let at = PmAddr::from_raw(pair.word);
        match record_at(medium, at).filter(|found| found.key == pair.key).map(|record| record.head) {
            Some(Ok(_)) => haul.doubtful.push(Doubt { at: Some(at), ..pair }),
            Some(Err(error)) => haul.lose_key(pair.key, at, reason_of(&error)),
            None => haul.lose_key(pair.key, at, "record: its head or key does not verify"),
        }
    }
    // A key that the index lost is not lost where the record came out by itself.
    haul.lost.extend(index.lost.into_iter().filter_map(|mut lost| match &lost.keys {
        LostKeys::Key(key) if out.contains(key) => None,
        LostKeys::Key(_) => Some(lost),
        _ => {
            lost.is_certain = false;
            Some(lost)
        }
    }));
    haul
}

/// Notes the records of `key` of which nothing says whether they count.
fn doubt(haul: &mut Haul, key: &[u8], records: &[FoundRecord]) {
    for record in records {
        match &record.head {
            Ok(_) => haul.doubtful.push(Doubt::new(key.to_vec(), record.at.to_raw(), record.at, UNNAMED)),
            Err(error) => haul.lose_key(key.to_vec(), record.at, reason_of(error)),
        }
    }
}

/// The changes that were under way.
struct Intents<'m> {
    medium: IndexMemory<'m>,
    /// The table and its stripes, where they are known.
    table: Option<(PmAddr, usize)>,
}

impl<'m> Intents<'m> {
    fn read(medium: IndexMemory<'m>, parts: &Parts) -> Self {
        Self { medium, table: parts.intents.zip(parts.stripes) }
    }

    /// Whether the intent of the key's stripe verifies and does not name the record at `at`.
    fn lets(&self, key: &[u8], at: PmAddr) -> bool {
        let Some((table, stripes)) = self.table else { return false };
        let stripe = to_usize(xxhash_rust::xxh3::xxh3_64(key) % to_u64(stripes));
        let intent = IntentAt::new(table, stripe, stripes).load(self.medium);
        // An intent to write this record that was let go names it as the new one, and so does one that counts.
        intent.is_ok_and(|intent| intent.old != at && intent.new != at)
    }
}

/// The parts that the anchor of the map names, or, where it is damaged, the anchor of its index.
fn parts_of(medium: IndexMemory<'_>, object: &Object) -> Parts {
    let at = object.at();
    let words = AnchorAt(at);
    let options = anchor::verify(medium, &KIND, at).and_then(|options| decode_options(medium, at, options)).ok();
    let below = medium.link(words.second(), "link to the index of a map", ANCHOR_BYTES).ok();
    let stripes = options.map(|(stripes, _)| stripes);
    let intents = stripes.and_then(|count| {
        let table = medium.link(words.head(), "link to the intents of a map", intent_bytes(count)).ok();
        table.filter(|table| !table.is_null())
    });
    let index = match (options, below.filter(|below| !below.is_null())) {
        (Some((_, kind)), Some(below)) => Some((kind, below)),
        (options, _) => find_index(medium, object, options.map(|(_, kind)| kind)),
    };
    Parts { index, stripes, intents }
}

/// The anchors that an index below a map can have.
fn kinds_below() -> [(IndexKind, &'static AnchorKind); 4] {
    [
        (IndexKind::FastFair, &fastfair::KIND_STRINGS),
        (IndexKind::FpTree, fptree::layout::tree_anchor(KeyKind::Bytes)),
        (IndexKind::SkipList, &skiplist::KIND_STRINGS),
        (IndexKind::Hybrid, hash::layout::hash_anchor(KeyKind::Bytes)),
    ]
}

/// The index below a map whose anchor is damaged: its own anchor names the map.
fn find_index(medium: IndexMemory<'_>, object: &Object, kind: Option<IndexKind>) -> Option<(IndexKind, PmAddr)> {
    let names_map = |at: PmAddr| {
        let word = AnchorAt(at).above();
        checked::decode_addr(word, medium.memory.load(word)) == Some(object.at())
    };
    blocks_of(object.heap()).into_iter().filter(|(at, bytes)| *bytes >= ANCHOR_BYTES && names_map(*at)).find_map(
        |(at, _)| {
            let known = kinds_below().into_iter().find(|(_, kind)| anchor::verify(medium, kind, at).is_ok());
            known.map(|(known, _)| (kind.unwrap_or(known), at))
        },
    )
}
