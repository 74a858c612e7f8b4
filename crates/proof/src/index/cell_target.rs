//! Scripts on an index for the crash explorer, for every index that is built on cell lines.
//!
//! After a crash, recovery and a crash inside recovery, each target judges:
//! - the index opens within its bound;
//! - a walk through all pairs, point reads and the count agree, and show exactly the acknowledged operations and each
//!   begun one whole or not at all;
//! - the check is clean, and the blocks that the index owns are exactly those that the heap holds;
//! - it keeps working.

use std::borrow::Borrow;
use std::collections::BTreeMap;

use lodestone_crash::{Failure, Outcome, Redundant, SiteKey, Structure};
use lodestone_heap::HeapOptions;
use lodestone_index::{Durability, IndexKey, OpenIndex, Result};
use lodestone_pmem::{Pool, PoolOptions};
use lodestone_store::{Store, StoreOptions};

use super::{forget, judge_check, pool_options};

/// An operation: keys and values are small numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellOp {
    /// Inserts or replaces.
    Put(u8, u8),
    /// Removes.
    Remove(u8),
    /// Reads. A value that it finds is a value of that key.
    Read(u8),
}

/// Keys of scripts, by number.
pub trait ScriptKey: IndexKey {
    /// Key `number`.
    fn numbered(number: u8) -> Self::Owned;
}

impl ScriptKey for u64 {
    fn numbered(number: u8) -> u64 {
        u64::from(number)
    }
}

impl ScriptKey for [u8] {
    fn numbered(number: u8) -> Vec<u8> {
        vec![b'k', number]
    }
}

/// Everything that an index shows: keys as bytes, in the order of the index.
pub(crate) type Contents<I> = fn(&I) -> Result<Vec<(Vec<u8>, u64)>>;

/// A script on an index with the content that `before` left.
pub struct CellTarget<I: OpenIndex> {
    pub(crate) name: &'static str,
    pub(crate) options: I::Options,
    pub(crate) contents: Contents<I>,
    /// `None`: not even the index exists, and the run creates it.
    pub(crate) before: Option<Vec<CellOp>>,
    pub(crate) script: Vec<CellOp>,
    pub(crate) threads: Vec<Vec<CellOp>>,
    pub(crate) redundant: Vec<Redundant>,
}

/// An opened index with its heap.
pub struct CellHandle<I> {
    store: Store,
    index: I,
}

/// Puts of version 1 for `keys`.
pub(crate) fn puts(keys: impl IntoIterator<Item = u8>) -> Vec<CellOp> {
    keys.into_iter().map(|key| CellOp::Put(key, 1)).collect()
}

fn bytes_of<K: ScriptKey + ?Sized>(key: u8) -> Vec<u8> {
    let owned = K::numbered(key);
    Borrow::<K>::borrow(&owned).with_bytes(<[u8]>::to_vec)
}

fn value_of(key: u8, version: u8) -> u64 {
    u64::from(key) << 32 | u64::from(version)
}

impl<I: OpenIndex + 'static> CellTarget<I>
where
    I::Key: ScriptKey,
{
    fn change(index: &I, op: &CellOp) -> Outcome {
        match *op {
            CellOp::Put(key, version) => {
                index.upsert(<I::Key as ScriptKey>::numbered(key).borrow(), value_of(key, version))?;
            }
            CellOp::Remove(key) => {
                index.remove(<I::Key as ScriptKey>::numbered(key).borrow())?;
            }
            CellOp::Read(key) => {
                let found = index.get(<I::Key as ScriptKey>::numbered(key).borrow())?;
                let is_its_own = found.is_none_or(|found| found >> 32 == u64::from(key));
                Failure::unless(is_its_own, || format!("key {key} reads as {found:?}"))?;
            }
        }
        Ok(())
    }

    fn open_in(&self, store: &Store, name: &str) -> Outcome<I> {
        Ok(I::open_index(store, name, &self.options, Durability::Relaxed)?)
    }
}

impl<I: OpenIndex + 'static> Structure for CellTarget<I>
where
    I::Key: ScriptKey,
{
    type Op = CellOp;
    type Handle = CellHandle<I>;
    type View = BTreeMap<Vec<u8>, u64>;

    fn name(&self) -> String {
        self.name.into()
    }

    fn options(&self) -> PoolOptions {
        pool_options()
    }

    fn script(&self) -> Vec<CellOp> {
        self.script.clone()
    }

    fn setup(&self, pool: &Pool) -> Outcome {
        let store = Store::over_with(pool, &StoreOptions::with_heap(HeapOptions::small()))?;
        let Some(before) = &self.before else {
            // Free blocks that still look like a finished index of this name. It will be created in them, if the heap
            // returns them again.
            let old = self.open_in(&store, "index")?;
            Self::change(&old, &CellOp::Put(77, 7))?;
            let blocks = old.check().blocks;
            drop(old);
            return forget(&store, "index", blocks);
        };
        let index = self.open_in(&store, "index")?;
        before.iter().try_for_each(|op| Self::change(&index, op))
    }

    fn open(&self, pool: &Pool) -> Outcome<CellHandle<I>> {
        let store = Store::over_with(pool, &StoreOptions::with_heap(HeapOptions::small()))?;
        let index = self.open_in(&store, "index")?;
        Ok(CellHandle { store, index })
    }

    fn apply(&self, handle: &CellHandle<I>, op: &CellOp) -> Outcome {
        Self::change(&handle.index, op)
    }

    fn view(&self, handle: &CellHandle<I>) -> Outcome<Self::View> {
        let all = (self.contents)(&handle.index)?;
        let view: BTreeMap<_, _> = all.iter().cloned().collect();
        Failure::unless(view.len() == all.len(), || format!("a key comes twice in {all:?}"))?;
        let len = handle.index.len()?;
        Failure::unless(len == all.len() as u64, || format!("{} pairs are shown of {len}", all.len()))?;
        for op in self.before.iter().flatten().chain(&self.script).chain(self.threads.iter().flatten()) {
            let (CellOp::Put(key, _) | CellOp::Remove(key) | CellOp::Read(key)) = *op;
            let found = handle.index.get(<I::Key as ScriptKey>::numbered(key).borrow())?;
            Failure::unless(found.as_ref() == view.get(&bytes_of::<I::Key>(key)), || {
                format!("key {key}: a point read and all pairs disagree")
            })?;
        }
        Ok(view)
    }

    fn model(&self, ops: &[CellOp]) -> Self::View {
        let mut view = BTreeMap::new();
        for op in self.before.iter().flatten().chain(ops) {
            match *op {
                CellOp::Put(key, version) => view.insert(bytes_of::<I::Key>(key), value_of(key, version)),
                CellOp::Remove(key) => view.remove(&bytes_of::<I::Key>(key)),
                CellOp::Read(_) => None,
            };
        }
        view
    }

    fn audit(&self, handle: &CellHandle<I>) -> Outcome {
        judge_check(handle.index.check(), &handle.store)
    }

    fn more(&self) -> Vec<CellOp> {
        vec![CellOp::Put(200, 9), CellOp::Put(201, 9), CellOp::Remove(200)]
    }

    fn threads(&self) -> Vec<Vec<CellOp>> {
        self.threads.clone()
    }

    fn audits(&self, site: &SiteKey) -> bool {
        site.file.contains("index/src/")
    }

    fn redundant(&self) -> Vec<Redundant> {
        self.redundant.clone()
    }

    fn nested_depth_max(&self) -> u32 {
        // An open that creates the index overwrites everything that a crash left open. Crashing it once more has too
        // many states. Other targets of the store and of the trees explore a creation over other leftovers.
        if self.before.is_none() { 0 } else { u32::MAX }
    }
}
