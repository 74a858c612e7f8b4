//! Which indexes a map can stand over, by name and by the code on the medium.
//!
//! Ordered ones alone, because a map shows its records in order; and none behind a cache in DRAM ([`Acs`](crate::Acs)): it serves a
//! program that stays, which can put it there itself.

use std::fmt;
use std::str::FromStr;

use lodestone_heap::Heap;
use lodestone_pmem::Pool;

use crate::anchor;
use crate::error::Result;
use crate::fastfair::FastFair;
use crate::fptree::FpTree;
use crate::hybrid::Hybrid;
use crate::hybrid_plus::HybridPlus;
use crate::map::Durability;
use crate::medium::Medium;
use crate::record_map::RecordMap;
use crate::records::{IndexedRecords, KIND, KIND_RECORDS, KIND_RECORDS_PENDING, RecordsOptions, decode_options};
use crate::skiplist::SkipList;
use crate::traits::{OpenIndex, OrderedIndex};

/// An index that a map can stand over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum IndexKind {
    /// [`FastFair`].
    FastFair,
    /// [`FpTree`].
    FpTree,
    /// [`SkipList`].
    SkipList,
    /// [`Hybrid`].
    Hybrid,
    /// [`HybridPlus`].
    HybridPlus,
}

impl IndexKind {
    /// Every kind.
    pub const ALL: [Self; 5] = [Self::FastFair, Self::FpTree, Self::SkipList, Self::Hybrid, Self::HybridPlus];

    /// Its name in commands and messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::FastFair => "fastfair",
            Self::FpTree => "fptree",
            Self::SkipList => "skiplist",
            Self::Hybrid => "hybrid",
            Self::HybridPlus => "hybrid-plus",
        }
    }

    /// What stands for it in a map's anchor.
    pub(crate) const fn code(self) -> u32 {
        match self {
            Self::FastFair => 1,
            Self::FpTree => 2,
            Self::SkipList => 3,
            Self::Hybrid => 4,
            Self::HybridPlus => 5,
        }
    }

    pub(crate) fn from_code(code: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }
}

impl fmt::Display for IndexKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for IndexKind {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let names = Self::ALL.map(Self::name).join(", ");
        let found = Self::ALL.into_iter().find(|kind| kind.name() == text);
        found.ok_or_else(|| format!("`{text}` is no index; the indexes are {names}"))
    }
}

/// An index that a map can stand over, with its kind.
pub trait RecordIndex: OpenIndex<Key = [u8]> + OrderedIndex {
    /// What stands on the medium for it.
    const KIND: IndexKind;
}

impl RecordIndex for FastFair<[u8]> {
    const KIND: IndexKind = IndexKind::FastFair;
}

impl RecordIndex for FpTree<[u8]> {
    const KIND: IndexKind = IndexKind::FpTree;
}

impl RecordIndex for SkipList<[u8]> {
    const KIND: IndexKind = IndexKind::SkipList;
}

impl RecordIndex for Hybrid<[u8]> {
    const KIND: IndexKind = IndexKind::Hybrid;
}

impl RecordIndex for HybridPlus<[u8]> {
    const KIND: IndexKind = IndexKind::HybridPlus;
}

/// Opens the map `name` over an index of this kind, or creates it.
///
/// # Errors
/// As [`IndexedRecords::open`].
pub fn open_records(heap: &Heap, name: &str, kind: IndexKind, durability: Durability) -> Result<Box<dyn RecordMap>> {
    fn open<I: RecordIndex + 'static>(heap: &Heap, name: &str, durability: Durability) -> Result<Box<dyn RecordMap>> {
        Ok(Box::new(IndexedRecords::<I>::open(heap, name, &RecordsOptions::default(), durability)?))
    }
    match kind {
        IndexKind::FastFair => open::<FastFair<[u8]>>(heap, name, durability),
        IndexKind::FpTree => open::<FpTree<[u8]>>(heap, name, durability),
        IndexKind::SkipList => open::<SkipList<[u8]>>(heap, name, durability),
        IndexKind::Hybrid => open::<Hybrid<[u8]>>(heap, name, durability),
        IndexKind::HybridPlus => open::<HybridPlus<[u8]>>(heap, name, durability),
    }
}

/// The kind of index below the map `name`; `None` when no map over an index has that name, or a crash came while it was made and
/// nothing of it is there.
///
/// # Errors
/// [`Error::Damaged`](crate::Error::Damaged) when its anchor does not verify; [`Error::Pool`](crate::Error::Pool).
pub fn index_of_map(pool: &Pool, name: &str) -> Result<Option<IndexKind>> {
    let medium = Medium { memory: pool.memory(), path: pool.path() };
    match pool.root(name)? {
        Some((KIND_RECORDS, at)) => {
            let options = anchor::verify(medium, &KIND, at)?;
            decode_options(medium, at, options).map(|(_, kind)| Some(kind))
        }
        // Whoever goes on with its creation takes the same index. Without the mark of its name it may be another map's anchor by now.
        Some((KIND_RECORDS_PENDING, at)) if anchor::is_published(medium, &KIND, name, at) => {
            let options = anchor::verify(medium, &KIND, at)?;
            decode_options(medium, at, options).map(|(_, kind)| Some(kind))
        }
        _ => Ok(None),
    }
}
