//! The indexes that can be below a map, by name and by the code on the medium.
//!
//! Only ordered indexes, because a map shows its records in order. And no index with a cache in DRAM
//! ([`Acs`](crate::Acs)): a cache serves a program that keeps running, which can add it itself.

use std::fmt;
use std::str::FromStr;

use lodestone_heap::{Action, Heap};
use lodestone_pmem::PmAddr;
use lodestone_store::{Object, Store};

use crate::anchor;
use crate::error::Result;
use crate::fastfair::FastFair;
use crate::fptree::FpTree;
use crate::hash::HashIndex;
use crate::hybrid::Hybrid;
use crate::hybrid_plus::HybridPlus;
use crate::map::Durability;
use crate::medium::IndexMemory;
use crate::record_map::RecordMap;
use crate::records::{IndexedRecords, KIND, RecordsOptions, decode_options};
use crate::skiplist::SkipList;
use crate::traits::{OpenIndex, OrderedIndex};

/// An index that can be below a map.
///
/// ```
/// use lodestone_index::{Durability, IndexKind, open_records};
/// use lodestone_pmem::{DomainChoice, PoolOptions};
/// use lodestone_store::Store;
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.pool");
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// let store = Store::create(&path, &options)?;
/// for kind in IndexKind::ALL {
///     let map = open_records(&store, kind.name(), kind, Durability::Sync)?;
///     map.insert(b"key", b"value")?;
///     assert_eq!(map.get(b"key")?.as_deref(), Some(&b"value"[..]));
/// }
/// assert_eq!("hybrid".parse(), Ok(IndexKind::Hybrid));
/// # Ok::<(), lodestone_index::Error>(())
/// ```
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

    /// The code for it in a map's anchor.
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

/// An index that a map can be over, with its kind.
///
/// ```
/// use lodestone_index::{FastFair, IndexKind, RecordIndex};
///
/// /// The name for tools of any index that can be below a map.
/// fn name_of<I: RecordIndex>() -> &'static str {
///     I::KIND.name()
/// }
/// assert_eq!(name_of::<FastFair<[u8]>>(), IndexKind::FastFair.name());
/// ```
pub trait RecordIndex: OpenIndex<Key = [u8]> + OrderedIndex {
    /// The code for it on the medium.
    const KIND: IndexKind;

    /// Reserves and writes an index without a name, below the map whose anchor is at `above`, as part of `action`; its
    /// place.
    ///
    /// # Errors
    /// When the heap has no room.
    fn make_below(heap: &Heap, action: &mut Action<'_>, above: PmAddr, options: &Self::Options) -> Result<PmAddr>;

    /// Opens the index at `at`, which [`make_below`](Self::make_below) made. The caller has the claim on it.
    ///
    /// # Errors
    /// As [`OpenIndex::open_index`].
    fn open_below(heap: &Heap, at: PmAddr, options: &Self::Options, durability: Durability) -> Result<Self>;
}

impl RecordIndex for FastFair<[u8]> {
    const KIND: IndexKind = IndexKind::FastFair;

    fn make_below(heap: &Heap, action: &mut Action<'_>, above: PmAddr, options: &Self::Options) -> Result<PmAddr> {
        Self::make(heap, action, above, options)
    }

    fn open_below(heap: &Heap, at: PmAddr, _: &Self::Options, durability: Durability) -> Result<Self> {
        Self::open_below(heap, at, durability)
    }
}

impl RecordIndex for FpTree<[u8]> {
    const KIND: IndexKind = IndexKind::FpTree;

    fn make_below(heap: &Heap, action: &mut Action<'_>, above: PmAddr, options: &Self::Options) -> Result<PmAddr> {
        Self::make(heap, action, above, options)
    }

    fn open_below(heap: &Heap, at: PmAddr, options: &Self::Options, durability: Durability) -> Result<Self> {
        let mut tree = Self::open_at(heap, at, None, options)?;
        tree.durability = durability;
        Ok(tree)
    }
}

impl RecordIndex for SkipList<[u8]> {
    const KIND: IndexKind = IndexKind::SkipList;

    fn make_below(heap: &Heap, action: &mut Action<'_>, above: PmAddr, _: &Self::Options) -> Result<PmAddr> {
        Self::make(heap, action, above)
    }

    fn open_below(heap: &Heap, at: PmAddr, _: &Self::Options, durability: Durability) -> Result<Self> {
        Self::open_below(heap, at, durability)
    }
}

impl RecordIndex for Hybrid<[u8]> {
    const KIND: IndexKind = IndexKind::Hybrid;

    fn make_below(heap: &Heap, action: &mut Action<'_>, above: PmAddr, options: &Self::Options) -> Result<PmAddr> {
        HashIndex::<[u8]>::make(heap, action, above, &options.hash)
    }

    fn open_below(heap: &Heap, at: PmAddr, options: &Self::Options, durability: Durability) -> Result<Self> {
        let open = || {
            let mut hash = HashIndex::open_at(heap, at, None)?;
            hash.durability = durability;
            Ok(hash)
        };
        Self::over(open, options)
    }
}

impl RecordIndex for HybridPlus<[u8]> {
    const KIND: IndexKind = IndexKind::HybridPlus;

    fn make_below(heap: &Heap, action: &mut Action<'_>, above: PmAddr, options: &Self::Options) -> Result<PmAddr> {
        FastFair::<[u8]>::make(heap, action, above, &options.tree)
    }

    fn open_below(heap: &Heap, at: PmAddr, options: &Self::Options, durability: Durability) -> Result<Self> {
        Self::over(|| FastFair::open_below(heap, at, durability), options)
    }
}

/// Opens the map `name` over an index of this kind, or creates it.
///
/// # Errors
/// As [`IndexedRecords::open`].
pub fn open_records(store: &Store, name: &str, kind: IndexKind, durability: Durability) -> Result<Box<dyn RecordMap>> {
    fn open<I: RecordIndex + 'static>(store: &Store, name: &str, durability: Durability) -> Result<Box<dyn RecordMap>> {
        Ok(Box::new(IndexedRecords::<I>::open(store, name, &RecordsOptions::default(), durability)?))
    }
    match kind {
        IndexKind::FastFair => open::<FastFair<[u8]>>(store, name, durability),
        IndexKind::FpTree => open::<FpTree<[u8]>>(store, name, durability),
        IndexKind::SkipList => open::<SkipList<[u8]>>(store, name, durability),
        IndexKind::Hybrid => open::<Hybrid<[u8]>>(store, name, durability),
        IndexKind::HybridPlus => open::<HybridPlus<[u8]>>(store, name, durability),
    }
}

/// Opens a map over an index whose object is claimed already, whatever the index.
pub(crate) fn open_records_object(object: Object, durability: Durability) -> Result<Box<dyn RecordMap>> {
    fn open<I: RecordIndex + 'static>(object: Object, durability: Durability) -> Result<Box<dyn RecordMap>> {
        Ok(Box::new(IndexedRecords::<I>::open_object(object, &I::Options::default(), durability)?))
    }
    match index_of(&object)? {
        IndexKind::FastFair => open::<FastFair<[u8]>>(object, durability),
        IndexKind::FpTree => open::<FpTree<[u8]>>(object, durability),
        IndexKind::SkipList => open::<SkipList<[u8]>>(object, durability),
        IndexKind::Hybrid => open::<Hybrid<[u8]>>(object, durability),
        IndexKind::HybridPlus => open::<HybridPlus<[u8]>>(object, durability),
    }
}

/// The kind of index below a map over an index.
pub(crate) fn index_of(object: &Object) -> Result<IndexKind> {
    let medium = IndexMemory::of(object.heap(), object.at());
    let options = anchor::verify(medium, &KIND, object.at())?;
    decode_options(medium, object.at(), options).map(|(_, kind)| kind)
}
