//! A hash table of a fixed number of buckets, each a sorted chain.
//!
//! The heads are separate objects, so that transactions on different buckets never meet. Pages of references to them
//! are chained from the root and read once, at open, into a table in DRAM. Finding a bucket is therefore not
//! transactional.

use lodestone_stm::PmObject;
use lodestone_workload::engine::EngineError;
use lodestone_workload::random::mix64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{Entries, Head, Map, find_head, list, make_head};
use crate::tm::{Object, ReadBody, Reading, Ref, TransactionalMemory, UpdateBody, Worker, Writing};

/// The hash table.
#[derive(Debug, Clone, Copy)]
pub struct HashTable {
    /// Number of buckets, at least 1.
    pub buckets: usize,
}

/// References in a directory page. With the link and the count it fills four lines.
const PAGE_HEADS: usize = 30;

/// A page of the directory.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, PmObject)]
#[pm(name = "bench.BucketPage")]
struct Page {
    next: u64,
    count: u64,
    heads: [u64; PAGE_HEADS],
}

impl Object for Page {}

/// The heads of all buckets.
#[derive(Debug)]
pub struct Buckets {
    heads: Box<[Ref<Head>]>,
}

impl Buckets {
    #[inline]
    fn head(&self, key: u64) -> Ref<Head> {
        // The product's upper half spreads the hash evenly over any number of buckets.
        let index = (u128::from(mix64(key)) * self.heads.len() as u128) >> 64;
        self.heads[index as usize]
    }
}

/// Makes the buckets of one page and links the page in front.
struct MakePage {
    chain: Ref<Head>,
    count: usize,
}

impl UpdateBody for MakePage {
    type Out = ();

    fn run<X: Writing>(&mut self, tx: &mut X) -> Result<(), X::Abort> {
        let mut page = Page { next: tx.read(self.chain)?.first, count: self.count as u64, heads: [0; PAGE_HEADS] };
        for head in page.heads.iter_mut().take(self.count) {
            *head = tx.alloc(Head { first: 0 })?.to_raw();
        }
        let page = tx.alloc(page)?;
        tx.write(self.chain, |chain| chain.first = page.to_raw())
    }
}

/// Reads all pages.
struct ReadPages {
    chain: Ref<Head>,
}

impl ReadBody for ReadPages {
    type Out = Vec<Ref<Head>>;

    fn run<X: Reading>(&mut self, tx: &mut X) -> Result<Self::Out, X::Abort> {
        let mut heads = Vec::new();
        let mut at = Ref::<Page>::from_raw(tx.read(self.chain)?.first);
        while !at.is_null() {
            let page = tx.read(at)?;
            let count = usize::try_from(page.count).unwrap_or(PAGE_HEADS).min(PAGE_HEADS);
            heads.extend(page.heads[..count].iter().map(|&raw| Ref::from_raw(raw)));
            at = Ref::from_raw(page.next);
        }
        Ok(heads)
    }
}

impl Map for HashTable {
    type Handle = Buckets;

    fn name(&self) -> &'static str {
        "hash"
    }

    fn create<M: TransactionalMemory>(&self, memory: &M, slot: usize) -> Result<Buckets, EngineError> {
        let chain = make_head(memory, slot)?;
        let mut worker = memory.worker()?;
        let mut left = self.buckets.max(1);
        while left > 0 {
            let count = left.min(PAGE_HEADS);
            worker.update(&mut MakePage { chain, count })?;
            left -= count;
        }
        drop(worker);
        self.open(memory, slot)
    }

    fn open<M: TransactionalMemory>(&self, memory: &M, slot: usize) -> Result<Buckets, EngineError> {
        let chain = find_head(memory, slot)?;
        let heads = memory.worker()?.read(&mut ReadPages { chain })?;
        if heads.is_empty() {
            return Err(EngineError::new("the hash table has no buckets; it was not made to its end"));
        }
        Ok(Buckets { heads: heads.into() })
    }

    #[inline]
    fn get<X: Reading>(map: &Buckets, tx: &mut X, key: u64) -> Result<Option<u64>, X::Abort> {
        list::get::<false, X>(map.head(key), tx, key)
    }

    #[inline]
    fn insert<X: Writing>(map: &Buckets, tx: &mut X, key: u64, value: u64) -> Result<bool, X::Abort> {
        list::insert::<false, X>(map.head(key), tx, key, value)
    }

    #[inline]
    fn remove<X: Writing>(map: &Buckets, tx: &mut X, key: u64) -> Result<bool, X::Abort> {
        list::remove::<false, X>(map.head(key), tx, key)
    }

    fn entries<X: Reading>(map: &Buckets, tx: &mut X) -> Result<Entries, X::Abort> {
        let pages = map.heads.len().div_ceil(PAGE_HEADS) as u64;
        let mut all = Entries { objects: 1 + pages, ..Entries::default() };
        for &head in &map.heads {
            let from = all.pairs.len();
            list::collect(head, tx, &mut all)?;
            if let Some((key, _)) = all.pairs[from..].iter().find(|(key, _)| map.head(*key) != head) {
                all.fault = Some(format!("key {key} is in a foreign bucket"));
            }
        }
        Ok(all)
    }
}
