//! The kinds of objects that this crate makes, for the store's registry: what each is called, how it is verified, and
//! how tools read its records.

use std::fmt;
use std::marker::PhantomData;

use lodestone_store::{Acknowledge, Contents, Flaw, Kind, KindCode, KindError, Object, Records, Registered};

use crate::check::CheckReport;
use crate::fastfair::FastFair;
use crate::fptree::FpTree;
use crate::hash::HashIndex;
use crate::map::{Durability, OrderedMap};
use crate::records::{index_of, open_records_object};
use crate::skiplist::SkipList;
use crate::tool_records::{OfHash, OfIndex, OfMap};
use crate::traits::{IndexKey, OpenIndex, PointIndex};

macro_rules! register {
    ($($kind:ident),+) => { $(inventory::submit! { Registered(&$kind) })+ };
}
register!(ORDERED_MAP, INDEXED_RECORDS, FASTFAIR_WORDS, FASTFAIR_STRINGS, FPTREE_WORDS, FPTREE_STRINGS);
register!(HASH_WORDS, HASH_STRINGS, SKIPLIST_WORDS, SKIPLIST_STRINGS);

pub(crate) static ORDERED_MAP: IndexType<OrderedMap> =
    IndexType::new(*b"OMAP", "an ordered map", |object, durability| {
        Ok(Box::new(OfMap { map: Box::new(OrderedMap::open_object(object)?), durability }))
    });
pub(crate) static INDEXED_RECORDS: MapOverIndex = MapOverIndex;
pub(crate) static FASTFAIR_WORDS: IndexType<FastFair<u64>> =
    IndexType::new(*b"FFTW", "a FAST & FAIR tree with words as keys", ordered::<FastFair<u64>>);
pub(crate) static FASTFAIR_STRINGS: IndexType<FastFair<[u8]>> =
    IndexType::new(*b"FFTS", "a FAST & FAIR tree with strings as keys", ordered::<FastFair<[u8]>>);
pub(crate) static FPTREE_WORDS: IndexType<FpTree<u64>> =
    IndexType::new(*b"FPTW", "an FPTree with words as keys", ordered::<FpTree<u64>>);
pub(crate) static FPTREE_STRINGS: IndexType<FpTree<[u8]>> =
    IndexType::new(*b"FPTS", "an FPTree with strings as keys", ordered::<FpTree<[u8]>>);
pub(crate) static HASH_WORDS: IndexType<HashIndex<u64>> =
    IndexType::new(*b"HSHW", "a hash index with words as keys", hashed::<u64>);
pub(crate) static HASH_STRINGS: IndexType<HashIndex<[u8]>> =
    IndexType::new(*b"HSHS", "a hash index with strings as keys", hashed::<[u8]>);
pub(crate) static SKIPLIST_WORDS: IndexType<SkipList<u64>> =
    IndexType::new(*b"SKLW", "a skip list with words as keys", ordered::<SkipList<u64>>);
pub(crate) static SKIPLIST_STRINGS: IndexType<SkipList<[u8]>> =
    IndexType::new(*b"SKLS", "a skip list with strings as keys", ordered::<SkipList<[u8]>>);

type OpenRecords = fn(Object, Durability) -> Result<Box<dyn Records>, KindError>;

fn ordered<I>(object: Object, durability: Durability) -> Result<Box<dyn Records>, KindError>
where
    I: OpenIndex + crate::traits::OrderedIndex + 'static,
{
    Ok(Box::new(OfIndex(I::open_object(object, &I::Options::default(), durability)?)))
}

fn hashed<K: IndexKey + ?Sized>(object: Object, durability: Durability) -> Result<Box<dyn Records>, KindError> {
    Ok(Box::new(OfHash(HashIndex::<K>::open_object(object, &Default::default(), durability)?)))
}

/// The kind of the objects that `I` opens.
pub(crate) struct IndexType<I> {
    code: [u8; 4],
    title: &'static str,
    records: OpenRecords,
    index: PhantomData<fn() -> I>,
}

impl<I> IndexType<I> {
    const fn new(code: [u8; 4], title: &'static str, records: OpenRecords) -> Self {
        Self { code, title, records, index: PhantomData }
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
        (self.records)(object, durability_of(acknowledge))
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

fn contents_of(report: CheckReport) -> Contents {
    let flaw = |finding: crate::check::Finding| Flaw {
        at: finding.at,
        text: finding.text,
        blocks_are_known: finding.blocks_are_known,
    };
    Contents {
        records: report.records,
        blocks: report.blocks,
        flaws: report.findings.into_iter().map(flaw).collect(),
        notes: Vec::new(),
    }
}
