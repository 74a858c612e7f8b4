//! The layers: each structure with words and with strings as keys, the hybrids on top of them, and maps over indexes.

use lodestone_crash::hostile::Tally;
use lodestone_store::Store;

use super::subject::{Hashed, Mapped, Ordered, Subject};
use super::{Open, run};
use crate::error::Result;
use crate::fastfair::{FastFair, FastFairOptions};
use crate::fptree::{FpTree, TreeOptions};
use crate::hash::{HashIndex, HashOptions};
use crate::hybrid::{Hybrid, HybridOptions};
use crate::hybrid_plus::{HybridPlus, HybridPlusOptions};
use crate::map::{Durability, OrderedMap};
use crate::open::MapOptions;
use crate::records::{IndexedRecords, RecordsOptions};
use crate::skiplist::SkipList;
use crate::traits::{IndexKey, OpenIndex, OrderedIndex};

/// Numbers, as bytes in order.
fn words() -> Vec<Vec<u8>> {
    (1..=120_u64).map(|number| (number * 37).to_be_bytes().to_vec()).collect()
}

/// Strings: some short, some that share more than eight bytes.
fn strings() -> Vec<Vec<u8>> {
    let name = |number: u64| match number % 3 {
        0 => format!("k{number:03}"),
        _ => format!("a-long-common-prefix-{number:03}"),
    };
    (1..=100).map(|number| name(number).into_bytes()).collect()
}

fn ordered<I: OpenIndex + OrderedIndex + 'static>(store: &Store, options: &I::Options) -> Result<Box<dyn Subject>> {
    Ok(Box::new(Ordered(I::open_index(store, "index", options, Durability::Sync)?)))
}

fn hashed<K: IndexKey + ?Sized>(store: &Store) -> Result<Box<dyn Subject>> {
    Ok(Box::new(Hashed(HashIndex::<K>::open_with(store, "index", &HashOptions::small())?)))
}

fn fptree<K: IndexKey + ?Sized>(store: &Store) -> Result<Box<dyn Subject>> {
    ordered::<FpTree<K>>(store, &TreeOptions { lines_per_leaf: 2, rebuild_threads: 1 })
}

/// Kinds of damage that change what the index holds and nothing of how: another key between the same neighbours,
/// another value, a pair less in a node. Sealed again, they are an index that somebody could have made, where no block
/// is lost.
const CONTENTS: [&str; 13] = [
    "record: key",
    "record: key length",
    "record: value",
    "record: value length",
    "key block: key",
    "key block: length",
    "key block: value",
    "node: key",
    "node: second word",
    "node: slots",
    "node: order",
    "node: pending",
    "several",
];

/// Runs a layer; every wrong answer must have been reported, except where contents were changed.
fn run_told(name: &'static str, cases: u64, open: Open, keys: &[Vec<u8>], is_ordered: bool) -> Tally {
    let tally = run(name, cases, open, keys, is_ordered);
    let is_structure = |kind: &str| !CONTENTS.contains(&kind) && !kind.starts_with("cell line");
    let unreported = tally.wrong_unreported(is_structure);
    assert_eq!(unreported, 0, "{name}: structure was damaged, answers were wrong, and the check says nothing: {tally}");
    tally
}

#[test]
fn ordered_map() {
    let open = |store: &Store| -> Result<Box<dyn Subject>> {
        Ok(Box::new(Mapped(OrderedMap::open_with(store, "index", &MapOptions { slots_per_leaf: 4 })?)))
    };
    run_told("ordered_map", 250, open, &strings(), true);
}

#[test]
fn fastfair_words() {
    run_told(
        "fastfair_words",
        250,
        |store| ordered::<FastFair<u64>>(store, &FastFairOptions::with_lines(3)),
        &words(),
        true,
    );
}

#[test]
fn fastfair_strings() {
    let open = |store: &Store| ordered::<FastFair<[u8]>>(store, &FastFairOptions::with_lines(3));
    run_told("fastfair_strings", 250, open, &strings(), true);
}

#[test]
fn fptree_words() {
    run_told("fptree_words", 250, fptree::<u64>, &words(), true);
}

#[test]
fn fptree_strings() {
    run_told("fptree_strings", 250, fptree::<[u8]>, &strings(), true);
}

#[test]
fn hash_words() {
    run_told("hash_words", 250, hashed::<u64>, &words(), false);
}

#[test]
fn hash_strings() {
    run_told("hash_strings", 250, hashed::<[u8]>, &strings(), false);
}

#[test]
fn skiplist_words() {
    run_told("skiplist_words", 250, |store| ordered::<SkipList<u64>>(store, &Default::default()), &words(), true);
}

#[test]
fn skiplist_strings() {
    run_told("skiplist_strings", 250, |store| ordered::<SkipList<[u8]>>(store, &Default::default()), &strings(), true);
}

#[test]
fn hybrid() {
    run_told("hybrid", 200, |store| ordered::<Hybrid<u64>>(store, &HybridOptions::small()), &words(), true);
}

#[test]
fn hybrid_plus() {
    run_told(
        "hybrid_plus",
        200,
        |store| ordered::<HybridPlus<u64>>(store, &HybridPlusOptions::small()),
        &words(),
        true,
    );
}

#[test]
fn records() {
    let open = |store: &Store| -> Result<Box<dyn Subject>> {
        let options = RecordsOptions { stripes: 2, index: FastFairOptions::with_lines(3) };
        Ok(Box::new(Mapped(IndexedRecords::<FastFair<[u8]>>::open(store, "index", &options, Durability::Sync)?)))
    };
    run_told("records", 200, open, &strings(), true);
}
