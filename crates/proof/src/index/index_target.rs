//! Crash targets of any ordered index: creation and every kind of change, with nodes so small that a few operations
//! change the structure.
//!
//! After a crash, recovery and a crash inside recovery, each target judges:
//! - the index opens within its bound;
//! - scans in both directions, point reads and the count agree, and show exactly the acknowledged operations and each
//!   begun one whole or not at all;
//! - the check is clean, and the blocks that the index owns are exactly those that the heap holds;
//! - it keeps working: every key can be removed, once, and others inserted;
//! - the answers of the script's acknowledged reads fit the same order as the recovered state, so no crash takes an
//!   answer away.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, ControlFlow};
use std::sync::{Mutex, MutexGuard, PoisonError};

use lodestone_crash::{Failure, History, Outcome, Redundant, SiteKey, Structure};
use lodestone_heap::HeapOptions;
use lodestone_index::{Direction, Durability, IndexKey, OpenIndex, OrderedIndex, PointIndex};
use lodestone_pmem::{Pool, PoolOptions};
use lodestone_store::{Store, StoreOptions};

use super::{forget, judge_check, pool_options};

/// An operation on an index. Keys are small numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexOp {
    /// Inserts a key with a value, if it is absent.
    Insert(u8, u64),
    /// Changes the value of a key, if it is there.
    Update(u8, u64),
    /// Removes a key.
    Remove(u8),
    /// Adds so many keys from this one on, after all others, each with ten times itself as value. The part of a bulk
    /// load that happens whole or not at all.
    Append(u8, u8),
    /// Reads a key. The second number identifies the read in the target: its answer is kept under it.
    Read(u8, u8),
}

/// Inserts these keys, each with ten times itself as value.
#[must_use]
pub fn inserts(keys: impl IntoIterator<Item = u8>) -> Vec<IndexOp> {
    keys.into_iter().map(|key| IndexOp::Insert(key, u64::from(key) * 10)).collect()
}

/// Removes these keys.
#[must_use]
pub fn removes(keys: impl IntoIterator<Item = u8>) -> Vec<IndexOp> {
    keys.into_iter().map(IndexOp::Remove).collect()
}

/// How an index takes sorted pairs after all others.
pub type AppendOf<I> = fn(&I, &[(KeyOf<I>, u64)]) -> lodestone_index::Result<()>;

/// A script on an index with the content that `before` left.
pub struct IndexTarget<I: OpenIndex> {
    /// Name on the command line.
    pub name: String,
    /// How the index is made.
    pub options: I::Options,
    /// `None`: not even the index exists, and the run creates it.
    pub before: Option<Vec<IndexOp>>,
    /// The operations during which power may fail.
    pub script: Vec<IndexOp>,
    /// The operations of each thread, when schedules are explored.
    pub threads: Vec<Vec<IndexOp>>,
    /// The part of the file paths whose flushes and fences the mutation audit covers.
    pub audited: &'static str,
    /// Adds pairs after all others at once.
    pub append: AppendOf<I>,
    /// The flushes and fences that the structure can do without, and the reason why they exist.
    pub redundant: fn() -> Vec<Redundant>,
    /// The answers to the reads of the last run.
    pub(crate) answers: Mutex<BTreeMap<u8, Option<u64>>>,
}

/// An opened index with its heap.
pub struct IndexHandle<I> {
    store: Store,
    index: I,
}

type KeyOf<I> = <<I as PointIndex>::Key as IndexKey>::Owned;

fn key_of<K: IndexKey + ?Sized>(number: u8) -> K::Owned {
    // Strings that differ only after their first eight bytes, so that these never decide.
    let bytes =
        if K::IS_WORD { u64::from(number).to_be_bytes().to_vec() } else { [b"a-prefix", &[number][..]].concat() };
    K::from_bytes(&bytes).expect("eight bytes are a word, any bytes a string")
}

fn bytes_of<K: IndexKey + ?Sized>(key: &K) -> Vec<u8> {
    key.with_bytes(<[u8]>::to_vec)
}

impl<I: OpenIndex + OrderedIndex> IndexTarget<I> {
    /// A target without threads.
    pub fn new(name: &str, options: I::Options, before: Option<Vec<IndexOp>>, script: Vec<IndexOp>) -> Self {
        let append: AppendOf<I> =
            |index, pairs| pairs.iter().try_for_each(|(key, value)| index.insert(key.borrow(), *value).map(|_| ()));
        Self {
            name: name.into(),
            options,
            before,
            script,
            threads: Vec::new(),
            audited: "index/src/",
            append,
            redundant: Vec::new,
            answers: Mutex::new(BTreeMap::new()),
        }
    }

    fn heap_options() -> HeapOptions {
        let mut options = HeapOptions::small();
        // A merge sets the words of a whole node.
        options.lane_bytes = 1024;
        options
    }

    fn change(&self, index: &I, op: &IndexOp) -> Outcome {
        match *op {
            IndexOp::Append(first, count) => {
                let pairs = (first..first + count).map(|key| (key_of::<I::Key>(key), u64::from(key) * 10));
                (self.append)(index, &pairs.collect::<Vec<_>>())?;
            }
            IndexOp::Insert(key, value) => index.insert(key_of::<I::Key>(key).borrow(), value).map(|_| ())?,
            IndexOp::Update(key, value) => index.update(key_of::<I::Key>(key).borrow(), value).map(|_| ())?,
            IndexOp::Remove(key) => index.remove(key_of::<I::Key>(key).borrow()).map(|_| ())?,
            IndexOp::Read(key, number) => {
                let answer = index.get(key_of::<I::Key>(key).borrow())?;
                self.answers().insert(number, answer);
            }
        }
        Ok(())
    }

    fn answers(&self) -> MutexGuard<'_, BTreeMap<u8, Option<u64>>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether each read of `ops` that was `heard` has the answer that the operations before it require.
    fn reads_fit(&self, ops: &[IndexOp], heard: impl Fn(usize) -> bool) -> bool
    where
        I: 'static,
    {
        let answers = self.answers();
        ops.iter().enumerate().all(|(at, op)| match *op {
            IndexOp::Read(key, number) if heard(at) => {
                let value = self.model(&ops[..at]).get(&bytes_of::<I::Key>(key_of::<I::Key>(key).borrow())).copied();
                answers.get(&number) == Some(&value)
            }
            _ => true,
        })
    }

    fn keys(&self) -> BTreeSet<u8> {
        let all = self.before.iter().flatten().chain(&self.script).chain(self.threads.iter().flatten());
        all.flat_map(|op| match *op {
            IndexOp::Insert(key, _) | IndexOp::Update(key, _) | IndexOp::Remove(key) | IndexOp::Read(key, _) => {
                key..key + 1
            }
            IndexOp::Append(first, count) => first..first + count,
        })
        .collect()
    }

    fn open_named(&self, store: &Store, name: &str) -> Outcome<I> {
        Ok(I::open_index(store, name, &self.options, Durability::Relaxed)?)
    }

    fn scanned(index: &I, direction: Direction) -> Outcome<Vec<(KeyOf<I>, u64)>> {
        let mut all: Vec<(KeyOf<I>, u64)> = Vec::new();
        index.scan(Bound::Unbounded, Bound::Unbounded, direction, |key, value| {
            all.push((key.to_key(), value));
            ControlFlow::Continue(())
        })?;
        if direction == Direction::Descending {
            all.reverse();
        }
        let ascends = all.windows(2).all(|pair| pair[0].0 < pair[1].0);
        Failure::unless(ascends, || format!("a scan ({direction:?}) does not keep its order: {all:?}"))?;
        Ok(all)
    }
}

impl<I: OpenIndex + OrderedIndex + 'static> Structure for IndexTarget<I> {
    type Op = IndexOp;
    type Handle = IndexHandle<I>;
    type View = BTreeMap<Vec<u8>, u64>;

    fn name(&self) -> String {
        self.name.clone()
    }

    fn options(&self) -> PoolOptions {
        pool_options()
    }

    fn script(&self) -> Vec<IndexOp> {
        self.script.clone()
    }

    fn setup(&self, pool: &Pool) -> Outcome {
        let store = Store::over_with(pool, &StoreOptions::with_heap(Self::heap_options()))?;
        let Some(before) = &self.before else {
            // Free blocks that still look like a finished index of this name. It will be created in them, if the heap
            // returns them again.
            let old = self.open_named(&store, "index")?;
            inserts([77, 78]).iter().try_for_each(|op| self.change(&old, op))?;
            let blocks = old.check().blocks;
            drop(old);
            return forget(&store, "index", blocks);
        };
        let index = self.open_named(&store, "index")?;
        before.iter().try_for_each(|op| self.change(&index, op))
    }

    fn open(&self, pool: &Pool) -> Outcome<IndexHandle<I>> {
        let store = Store::over_with(pool, &StoreOptions::with_heap(Self::heap_options()))?;
        let index = self.open_named(&store, "index")?;
        Ok(IndexHandle { store, index })
    }

    fn apply(&self, handle: &IndexHandle<I>, op: &IndexOp) -> Outcome {
        self.change(&handle.index, op)
    }

    fn view(&self, handle: &IndexHandle<I>) -> Outcome<Self::View> {
        let index = &handle.index;
        let up = Self::scanned(index, Direction::Ascending)?;
        let down = Self::scanned(index, Direction::Descending)?;
        Failure::unless(up == down, || format!("upwards {up:?}, downwards {down:?}"))?;
        let len = index.len()?;
        Failure::unless(len == up.len() as u64, || format!("a scan shows {} keys of {len}", up.len()))?;
        let view: Self::View = up.into_iter().map(|(key, value)| (bytes_of::<I::Key>(key.borrow()), value)).collect();
        for number in self.keys() {
            let key = key_of::<I::Key>(number);
            let found = index.get(key.borrow())?;
            let scanned = view.get(&bytes_of::<I::Key>(key.borrow())).copied();
            Failure::unless(found == scanned, || {
                format!("key {number}: a point read gives {found:?}, a scan {scanned:?}")
            })?;
        }
        Ok(view)
    }

    fn model(&self, ops: &[IndexOp]) -> Self::View {
        let mut view = BTreeMap::new();
        let name = |key| bytes_of::<I::Key>(key_of::<I::Key>(key).borrow());
        for op in self.before.iter().flatten().chain(ops) {
            match *op {
                IndexOp::Insert(key, value) => {
                    view.entry(name(key)).or_insert(value);
                }
                IndexOp::Update(key, value) => {
                    view.entry(name(key)).and_modify(|found| *found = value);
                }
                IndexOp::Remove(key) => {
                    view.remove(&name(key));
                }
                IndexOp::Append(first, count) => {
                    view.extend((first..first + count).map(|key| (name(key), u64::from(key) * 10)));
                }
                IndexOp::Read(..) => {}
            }
        }
        view
    }

    fn judge(&self, view: &Self::View, history: &History, ops: &[IndexOp]) -> Outcome {
        let pick = |sequence: &[usize]| sequence.iter().map(|&op| ops[op]).collect::<Vec<_>>();
        let acked = history.acked();
        let fits = history.any_sequence(|sequence| {
            let picked = pick(sequence);
            self.model(&picked) == *view && self.reads_fit(&picked, |at| acked.contains(&sequence[at]))
        });
        Failure::unless(fits, || {
            let (answers, begun) = (self.answers().clone(), pick(&history.begun()));
            let acked = pick(&acked);
            format!("recovered {view:?}; acknowledged {acked:?}, begun {begun:?}, reads answered {answers:?}")
        })
    }

    fn audit(&self, handle: &IndexHandle<I>) -> Outcome {
        judge_check(handle.index.check(), &handle.store)
    }

    fn more(&self) -> Vec<IndexOp> {
        // In this order each removal uncovers leftovers of a crash after the removed entry.
        let mut more: Vec<IndexOp> = self.keys().into_iter().take(8).map(IndexOp::Remove).collect();
        more.extend(inserts([200, 201, 3]));
        more.push(IndexOp::Remove(200));
        more
    }

    fn threads(&self) -> Vec<Vec<IndexOp>> {
        self.threads.clone()
    }

    fn audits(&self, site: &SiteKey) -> bool {
        site.file.contains(self.audited)
    }

    fn redundant(&self) -> Vec<Redundant> {
        (self.redundant)()
    }
}
