//! The kinds of objects that this crate makes, for the store's registry: their names, how they are verified, and how
//! tools read their records.

use std::fmt;
use std::marker::PhantomData;
use std::ops::ControlFlow;

use lodestone_heap::Heap;
use lodestone_pmem::PmAddr;
use lodestone_store::{
    Acknowledge, Contents, Flaw, Kind, KindCode, KindError, Object, Records, Registered, Store, VisitLost, VisitRecord,
};

use crate::anchor::{self, AnchorKind};
use crate::cells::KeyKind;
use crate::check::IndexReport;
use crate::fastfair::{self, FastFair};
use crate::fptree::{self, FpTree};
use crate::hash::{self, HashIndex};
use crate::layout::MAP_ANCHOR;
use crate::map::{Durability, OrderedMap};
use crate::records::{self, IndexKind, index_of, open_records, open_records_object};
use crate::salvage::{Salvage, index_kind_of, salvage_index, salvage_map, salvage_over};
use crate::skiplist::{self, SkipList};
use crate::tool_records::{OfHash, OfIndex, OfMap};
use crate::traits::{IndexKey, OpenIndex, OrderedIndex, PointIndex};

macro_rules! register {
    ($($kind:ident),+) => { $(inventory::submit! { Registered(&$kind) })+ };
}
register!(ORDERED_MAP, INDEXED_RECORDS, FASTFAIR_WORDS, FASTFAIR_STRINGS, FPTREE_WORDS, FPTREE_STRINGS);
register!(HASH_WORDS, HASH_STRINGS, SKIPLIST_WORDS, SKIPLIST_STRINGS);

pub(crate) static ORDERED_MAP: IndexType<OrderedMap> = IndexType::new(
    *b"OMAP",
    "an ordered map",
    &ToolsOf { records: map_records, create: create_map, salvage: salvage_map_of },
);
pub(crate) static INDEXED_RECORDS: MapOverIndex = MapOverIndex;
pub(crate) static FASTFAIR_WORDS: IndexType<FastFair<u64>> =
    IndexType::new(*b"FFTW", "a FAST & FAIR tree with words as keys", &of_ordered::<FastFair<u64>>());
pub(crate) static FASTFAIR_STRINGS: IndexType<FastFair<[u8]>> =
    IndexType::new(*b"FFTS", "a FAST & FAIR tree with strings as keys", &of_ordered::<FastFair<[u8]>>());
pub(crate) static FPTREE_WORDS: IndexType<FpTree<u64>> =
    IndexType::new(*b"FPTW", "an FPTree with words as keys", &of_ordered::<FpTree<u64>>());
pub(crate) static FPTREE_STRINGS: IndexType<FpTree<[u8]>> =
    IndexType::new(*b"FPTS", "an FPTree with strings as keys", &of_ordered::<FpTree<[u8]>>());
pub(crate) static HASH_WORDS: IndexType<HashIndex<u64>> =
    IndexType::new(*b"HSHW", "a hash index with words as keys", &of_hash::<u64>());
pub(crate) static HASH_STRINGS: IndexType<HashIndex<[u8]>> =
    IndexType::new(*b"HSHS", "a hash index with strings as keys", &of_hash::<[u8]>());
pub(crate) static SKIPLIST_WORDS: IndexType<SkipList<u64>> =
    IndexType::new(*b"SKLW", "a skip list with words as keys", &of_ordered::<SkipList<u64>>());
pub(crate) static SKIPLIST_STRINGS: IndexType<SkipList<[u8]>> =
    IndexType::new(*b"SKLS", "a skip list with strings as keys", &of_ordered::<SkipList<[u8]>>());

/// Makes an object with this name, for the records of tools.
type CreateRecords = fn(&Store, &str) -> Result<Box<dyn Records>, KindError>;

/// How tools read, make and salvage the objects of a kind.
struct ToolsOf {
    records: fn(Object, Durability) -> Result<Box<dyn Records>, KindError>,
    /// Makes an object with this name.
    create: CreateRecords,
    salvage: fn(&Object, &mut VisitRecord<'_>, &mut VisitLost<'_>) -> u64,
}

const fn of_ordered<I>() -> ToolsOf
where
    I: OpenIndex + OrderedIndex + Salvage + 'static,
{
    ToolsOf { records: ordered::<I>, create: create_ordered::<I>, salvage: salvage_of::<I> }
}

const fn of_hash<K: IndexKey + ?Sized>() -> ToolsOf {
    ToolsOf { records: hashed::<K>, create: create_hash::<K>, salvage: salvage_of::<HashIndex<K>> }
}

fn salvage_of<I: Salvage>(object: &Object, visit: &mut VisitRecord<'_>, lost: &mut VisitLost<'_>) -> u64 {
    salvage_index::<I>(object.heap(), object.at(), visit, lost)
}

fn salvage_map_of(object: &Object, visit: &mut VisitRecord<'_>, lost: &mut VisitLost<'_>) -> u64 {
    salvage_map(object.heap(), object.at(), visit, lost)
}

fn map_records(object: Object, durability: Durability) -> Result<Box<dyn Records>, KindError> {
    Ok(Box::new(OfMap { map: Box::new(OrderedMap::open_object(object)?), durability }))
}

fn create_map(store: &Store, name: &str) -> Result<Box<dyn Records>, KindError> {
    Ok(Box::new(OfMap { map: Box::new(OrderedMap::open(store, name)?), durability: Durability::Relaxed }))
}

fn create_ordered<I>(store: &Store, name: &str) -> Result<Box<dyn Records>, KindError>
where
    I: OpenIndex + OrderedIndex + 'static,
{
    Ok(Box::new(OfIndex(I::open_index(store, name, &I::Options::default(), Durability::Relaxed)?)))
}

fn create_hash<K: IndexKey + ?Sized>(store: &Store, name: &str) -> Result<Box<dyn Records>, KindError> {
    Ok(Box::new(OfHash(HashIndex::<K>::open_index(store, name, &Default::default(), Durability::Relaxed)?)))
}

/// Puts the records that `salvage` recovers from a damaged object into a new one.
fn refill(
    new: &dyn Records,
    lost: &mut VisitLost<'_>,
    salvage: impl FnOnce(&mut VisitRecord<'_>, &mut VisitLost<'_>) -> u64,
) -> Result<u64, KindError> {
    let mut failed = None;
    let mut put = |key: &[u8], value: &[u8]| match new.insert(key, value) {
        Ok(_) => ControlFlow::Continue(()),
        Err(error) => {
            failed = Some(error);
            ControlFlow::Break(())
        }
    };
    let count = salvage(&mut put, lost);
    match failed {
        Some(error) => Err(error),
        None => new.sync().map(|()| count),
    }
}

fn ordered<I>(object: Object, durability: Durability) -> Result<Box<dyn Records>, KindError>
where
    I: OpenIndex + OrderedIndex + 'static,
{
    Ok(Box::new(OfIndex(I::open_object(object, &I::Options::default(), durability)?)))
}

fn hashed<K: IndexKey + ?Sized>(object: Object, durability: Durability) -> Result<Box<dyn Records>, KindError> {
    Ok(Box::new(OfHash(HashIndex::<K>::open_object(object, &Default::default(), durability)?)))
}

/// Whether an object of the kind `code` begins at `at`.
fn begins_at(code: KindCode, heap: &Heap, at: PmAddr) -> bool {
    let anchors: [&AnchorKind; 10] = [
        &MAP_ANCHOR,
        &records::KIND,
        &fastfair::KIND_WORDS,
        &fastfair::KIND_STRINGS,
        fptree::layout::tree_anchor(KeyKind::Number),
        fptree::layout::tree_anchor(KeyKind::Bytes),
        hash::layout::hash_anchor(KeyKind::Number),
        hash::layout::hash_anchor(KeyKind::Bytes),
        &skiplist::KIND_WORDS,
        &skiplist::KIND_STRINGS,
    ];
    anchors.into_iter().any(|anchor| anchor.kind.code() == code && anchor::begins_at(heap, anchor, at))
}

/// The kind of the objects that `I` opens.
pub(crate) struct IndexType<I> {
    code: [u8; 4],
    title: &'static str,
    tools: &'static ToolsOf,
    index: PhantomData<fn() -> I>,
}

impl<I> IndexType<I> {
    const fn new(code: [u8; 4], title: &'static str, tools: &'static ToolsOf) -> Self {
        Self { code, title, tools, index: PhantomData }
    }
}

impl<I> fmt::Debug for IndexType<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.title)
    }
}

impl<I: OpenIndex> Kind for IndexType<I> {
    fn code(&self) -> KindCode {
        KindCode(self.code)
    }

    fn title(&self) -> &'static str {
        self.title
    }

    fn examine(&self, object: Object) -> Result<Contents, KindError> {
        let index = I::open_object(object, &I::Options::default(), Durability::Relaxed)?;
        Ok(contents_of(PointIndex::check(&index)))
    }

    fn records(
        &self,
        object: Object,
        member: Option<&str>,
        acknowledge: Acknowledge,
    ) -> Result<Box<dyn Records>, KindError> {
        no_member(&object, member)?;
        (self.tools.records)(object, durability_of(acknowledge))
    }

    fn salvage(
        &self,
        object: Object,
        member: Option<&str>,
        visit: &mut VisitRecord<'_>,
        lost: &mut VisitLost<'_>,
    ) -> Result<u64, KindError> {
        no_member(&object, member)?;
        Ok((self.tools.salvage)(&object, visit, lost))
    }

    fn begins_at(&self, heap: &Heap, at: PmAddr) -> bool {
        begins_at(self.code(), heap, at)
    }

    fn rebuild(&self, object: Object, name: &str, lost: &mut VisitLost<'_>) -> Result<u64, KindError> {
        let new = (self.tools.create)(object.store(), name)?;
        refill(&*new, lost, |visit, lost| (self.tools.salvage)(&object, visit, lost))
    }
}

/// The kind of maps over an index.
#[derive(Debug)]
pub(crate) struct MapOverIndex;

impl Kind for MapOverIndex {
    fn code(&self) -> KindCode {
        KindCode(*b"IRMP")
    }

    fn title(&self) -> &'static str {
        "a map over an index"
    }

    fn describe(&self, object: &Object) -> String {
        match index_of(object) {
            Ok(index) => format!("a map over the index {index}"),
            Err(_) => self.title().to_owned(),
        }
    }

    fn examine(&self, object: Object) -> Result<Contents, KindError> {
        Ok(contents_of(open_records_object(object, Durability::Relaxed)?.check()))
    }

    fn records(
        &self,
        object: Object,
        member: Option<&str>,
        acknowledge: Acknowledge,
    ) -> Result<Box<dyn Records>, KindError> {
        no_member(&object, member)?;
        let durability = durability_of(acknowledge);
        Ok(Box::new(OfMap { map: open_records_object(object, durability)?, durability }))
    }

    fn salvage(
        &self,
        object: Object,
        member: Option<&str>,
        visit: &mut VisitRecord<'_>,
        lost: &mut VisitLost<'_>,
    ) -> Result<u64, KindError> {
        no_member(&object, member)?;
        Ok(salvage_over(&object, visit, lost))
    }

    fn begins_at(&self, heap: &Heap, at: PmAddr) -> bool {
        begins_at(self.code(), heap, at)
    }

    fn rebuild(&self, object: Object, name: &str, lost: &mut VisitLost<'_>) -> Result<u64, KindError> {
        // Any index serves where the original one is unknown: an index only orders the records.
        let kind = index_kind_of(&object).unwrap_or(IndexKind::FastFair);
        let map = open_records(object.store(), name, kind, Durability::Relaxed)?;
        let new = OfMap { map, durability: Durability::Relaxed };
        refill(&new, lost, |visit, lost| salvage_over(&object, visit, lost))
    }
}

fn durability_of(acknowledge: Acknowledge) -> Durability {
    match acknowledge {
        Acknowledge::EachChange => Durability::Sync,
        Acknowledge::OnSync => Durability::Relaxed,
    }
}

fn no_member(object: &Object, member: Option<&str>) -> Result<(), KindError> {
    match member {
        None => Ok(()),
        Some(member) => Err(format!("`{}` has nothing inside, so no `{member}`", object.name()).into()),
    }
}

fn contents_of(report: IndexReport) -> Contents {
    let flaw = |finding: crate::check::IndexFinding| Flaw {
        at: finding.at,
        text: finding.text,
        blocks_are_known: finding.blocks_are_known,
        is_in_heap: finding.blocks_are_known,
    };
    Contents {
        records: report.records,
        blocks: report.sized_blocks().collect(),
        flaws: report.findings.into_iter().map(flaw).collect(),
        notes: Vec::new(),
    }
}
