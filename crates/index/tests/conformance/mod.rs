//! The conformance suite: what every index must do, whatever it is made of. Each test file makes a [`Place`] for its
//! structure and calls the functions here and in [`concurrent`] and [`trouble`].
//!
//! The oracle is a [`BTreeMap`]. Keys come in two families: spread-out numbers, and awkward ones (dense runs, the ends
//! of the range; strings that are empty, hold zero bytes, share long prefixes, are prefixes of each other, are long).

#![allow(dead_code, reason = "each test file uses its part of the suite")]

pub mod concurrent;
pub mod linear;
pub mod points;
pub mod trouble;

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashSet};
use std::ops::{Bound, ControlFlow};
use std::path::{Path, PathBuf};

use lodestone_heap::HeapOptions;
use lodestone_index::{Direction, Durability, IndexKey, OpenIndex, OrderedIndex, PointIndex, Result, Swap};
use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
use lodestone_store::{Store, StoreOptions};
use proptest::prelude::*;

/// The key of an index as a value.
pub type KeyOf<I> = <<I as PointIndex>::Key as IndexKey>::Owned;

/// Keys for tests, by number.
pub trait TestKey: IndexKey {
    /// Key `number`, an injection: small numbers become awkward keys.
    fn numbered(number: u64) -> Self::Owned;
}

impl TestKey for u64 {
    fn numbered(number: u64) -> u64 {
        match number {
            0..16 => number,
            16..32 => u64::MAX - (number - 16),
            _ => number.wrapping_mul(0x9E37_79B9_7F4A_7C15),
        }
    }
}

impl TestKey for [u8] {
    fn numbered(number: u64) -> Vec<u8> {
        match number {
            0..12 => vec![0; number as usize],
            12..20 => vec![255; number as usize - 11],
            20..28 => vec![b'p'; 1 << (number - 18)].into_iter().chain([number as u8]).collect(),
            _ if number.is_multiple_of(3) => format!("a-shared-prefix/{number}").into_bytes(),
            _ if number % 3 == 1 => number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes().to_vec(),
            _ => [&number.to_be_bytes()[..], &[0, 0, number as u8]].concat(),
        }
    }
}

/// The place of an index of kind `I`: a pool file that is opened again and again.
pub struct Place<I: OpenIndex> {
    folder: tempfile::TempDir,
    pub pool: PoolOptions,
    pub heap_options: HeapOptions,
    pub options: I::Options,
    pub durability: Durability,
    store: Option<Store>,
}

impl<I: OpenIndex> Place<I> {
    pub fn new(size_bytes: u64, options: I::Options) -> Self {
        let pool = PoolOptions {
            domain: DomainChoice::Process,
            size_bytes,
            journal_bytes: 1 << 20,
            scratch: true,
            ..PoolOptions::default()
        };
        Self {
            folder: tempfile::tempdir().expect("temporary folder"),
            pool,
            heap_options: HeapOptions::default(),
            options,
            durability: Durability::Sync,
            store: None,
        }
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("index.pool")
    }

    /// The index, empty the first time and with what it held ever after. The one before must be dropped.
    pub fn open(&mut self) -> I {
        let path = self.path();
        self.open_at(&path)
    }

    /// As after the death of the process: from a copy of the file as it is at this moment, while `index` is open.
    pub fn open_as_after_a_kill(&mut self, index: I) -> I {
        let copy = self.folder.path().join("copy.pool");
        std::fs::copy(self.path(), &copy).expect("a copy of the pool");
        drop(index);
        self.store = None;
        std::fs::rename(&copy, self.path()).expect("the copy takes the place of the pool");
        self.open()
    }

    fn open_at(&mut self, path: &Path) -> I {
        // The pool's lock goes with its last handle.
        self.store = None;
        let pool = Pool::open_or_create(path, &self.pool).expect("a pool");
        let store = Store::over_with(&pool, &StoreOptions::with_heap(self.heap_options.clone())).expect("a heap");
        let index = I::open_index(&store, "index", &self.options, self.durability);
        self.store = Some(store);
        index.expect("an index")
    }

    pub fn store(&self) -> &Store {
        self.store.as_ref().expect("the index was opened")
    }

    /// The index verifies, and the heap holds exactly the blocks that it owns.
    pub fn assert_intact(&self, index: &I) {
        let report = index.check();
        assert!(report.is_intact(), "{:?}", report.findings);
        assert_eq!(report.records, index.len().expect("a length"), "counted by the check and by the index");
        let mut owned: HashSet<_> = report.blocks.iter().copied().collect();
        assert_eq!(owned.len(), report.blocks.len(), "a block is listed twice");
        owned.extend(self.store().own_blocks());
        let mut held = HashSet::new();
        self.store().heap().for_each_block(|at, _| {
            held.insert(at);
        });
        assert_eq!(owned, held, "the heap's blocks and the index's");
    }

    /// Blocks of the heap in use.
    pub fn blocks(&self) -> usize {
        let mut held = 0;
        self.store().heap().for_each_block(|_, _| held += 1);
        held
    }
}

/// One step of a model test; keys by number.
#[derive(Clone, Debug)]
pub enum Step {
    Get(u64),
    Insert(u64, u64),
    Update(u64, u64),
    Upsert(u64, u64),
    Remove(u64),
    /// Swaps from the present value, or from another one when `.1` is false.
    Swap(u64, bool, u64),
    Scan(Bound<u64>, Bound<u64>, Direction, usize),
    Range(Bound<u64>, Bound<u64>, Vec<bool>),
    Ends,
    Reopen,
    Kill,
}

/// Steps over `keys` keys: few, so that updates, removals and structure changes are frequent.
pub fn steps(keys: u64, count: usize) -> impl Strategy<Value = Vec<Step>> {
    let key = 0..keys;
    let value = prop_oneof![Just(0), Just(u64::MAX), any::<u64>()];
    let bound = move || {
        prop_oneof![
            1 => Just(Bound::Unbounded),
            2 => (0..keys).prop_map(Bound::Included),
            2 => (0..keys).prop_map(Bound::Excluded),
        ]
    };
    let direction = prop_oneof![Just(Direction::Ascending), Just(Direction::Descending)];
    let step = prop_oneof![
        8 => key.clone().prop_map(Step::Get),
        30 => (key.clone(), value.clone()).prop_map(|(key, value)| Step::Insert(key, value)),
        10 => (key.clone(), value.clone()).prop_map(|(key, value)| Step::Upsert(key, value)),
        6 => (key.clone(), value.clone()).prop_map(|(key, value)| Step::Update(key, value)),
        30 => key.clone().prop_map(Step::Remove),
        6 => (key, any::<bool>(), value).prop_map(|(key, right, value)| Step::Swap(key, right, value)),
        5 => (bound(), bound(), direction, 0..20_usize).prop_map(|(start, end, way, limit)| Step::Scan(start, end, way, limit)),
        3 => (bound(), bound(), prop::collection::vec(any::<bool>(), 0..60)).prop_map(|(start, end, ends)| Step::Range(start, end, ends)),
        2 => Just(Step::Ends),
        1 => Just(Step::Reopen),
        1 => Just(Step::Kill),
    ];
    prop::collection::vec(step, 1..count)
}

/// All keys and values of `index`, as an ascending scan shows them.
pub fn contents<I: OrderedIndex>(index: &I) -> Result<Vec<(KeyOf<I>, u64)>> {
    let mut all = Vec::new();
    index.scan(Bound::Unbounded, Bound::Unbounded, Direction::Ascending, |key, value| {
        all.push((key.to_key(), value));
        ControlFlow::Continue(())
    })?;
    Ok(all)
}

/// The model's pairs in a range, in order of `direction`.
fn model_range<K: Ord + Clone>(
    model: &BTreeMap<K, u64>,
    start: &Bound<K>,
    end: &Bound<K>,
    direction: Direction,
) -> Vec<(K, u64)> {
    let is_empty = match (start, end) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(start), Bound::Included(end)) => start > end,
        (Bound::Included(start) | Bound::Excluded(start), Bound::Included(end) | Bound::Excluded(end)) => start >= end,
    };
    if is_empty {
        return Vec::new();
    }
    let pairs = model.range((start.clone(), end.clone())).map(|(key, value)| (key.clone(), *value));
    match direction {
        Direction::Ascending => pairs.collect(),
        Direction::Descending => pairs.rev().collect(),
    }
}

/// An index beside its model.
pub struct Beside<'p, I: OpenIndex + OrderedIndex> {
    pub place: &'p mut Place<I>,
    pub index: Option<I>,
    pub model: BTreeMap<KeyOf<I>, u64>,
}

impl<'p, I: OpenIndex + OrderedIndex> Beside<'p, I>
where
    I::Key: TestKey,
{
    pub fn new(place: &'p mut Place<I>) -> Self {
        let index = Some(place.open());
        Self { place, index, model: BTreeMap::new() }
    }

    fn index(&self) -> &I {
        self.index.as_ref().expect("open between steps")
    }

    /// Takes one step in both; every answer agrees.
    pub fn step(&mut self, step: &Step) -> Result<()> {
        let name = I::Key::numbered;
        let key_at = |number: &u64| name(*number);
        match step {
            Step::Get(key) => {
                let key = key_at(key);
                assert_eq!(self.index().get(key.borrow())?, self.model.get::<KeyOf<I>>(&key).copied());
            }
            Step::Insert(key, value) => {
                let key = key_at(key);
                let fresh = !self.model.contains_key::<KeyOf<I>>(&key);
                assert_eq!(self.index().insert(key.borrow(), *value)?, fresh);
                self.model.entry(key).or_insert(*value);
            }
            Step::Update(key, value) => {
                let key = key_at(key);
                let before = self.model.get_mut::<KeyOf<I>>(&key).map(|found| std::mem::replace(found, *value));
                assert_eq!(self.index().update(key.borrow(), *value)?, before);
            }
            Step::Upsert(key, value) => {
                let key = key_at(key);
                let before = self.model.insert(key.clone(), *value);
                assert_eq!(self.index().upsert(key.borrow(), *value)?, before);
            }
            Step::Remove(key) => {
                let key = key_at(key);
                assert_eq!(self.index().remove(key.borrow())?, self.model.remove::<KeyOf<I>>(&key));
            }
            Step::Swap(key, right, value) => {
                let key = key_at(key);
                let found = self.model.get::<KeyOf<I>>(&key).copied();
                let current = if *right { found.unwrap_or(7) } else { found.map_or(7, |value| value ^ 1) };
                let expected = match found {
                    None => Swap::Absent,
                    Some(found) if found == current => Swap::Done,
                    Some(found) => Swap::Differs(found),
                };
                assert_eq!(self.index().compare_and_swap(key.borrow(), current, *value)?, expected);
                if expected == Swap::Done {
                    self.model.insert(key, *value);
                }
            }
            Step::Scan(start, end, direction, limit) => self.scan(start, end, *direction, *limit)?,
            Step::Range(start, end, ends) => self.range(start, end, ends)?,
            Step::Ends => {
                let pair = |pair: Option<(&KeyOf<I>, &u64)>| pair.map(|(key, value)| (key.clone(), *value));
                assert_eq!(self.index().first()?, pair(self.model.first_key_value()));
                assert_eq!(self.index().last()?, pair(self.model.last_key_value()));
                assert_eq!(self.index().len()?, self.model.len() as u64);
            }
            Step::Reopen => {
                self.index = None;
                self.index = Some(self.place.open());
            }
            Step::Kill => {
                let index = self.index.take().expect("open between steps");
                self.index = Some(self.place.open_as_after_a_kill(index));
            }
        }
        Ok(())
    }

    fn scan(&self, start: &Bound<u64>, end: &Bound<u64>, direction: Direction, limit: usize) -> Result<()> {
        let (start, end) = (start.map(I::Key::numbered), end.map(I::Key::numbered));
        let mut seen = Vec::new();
        let (from, to) = (start.as_ref().map(Borrow::borrow), end.as_ref().map(Borrow::borrow));
        let mut calls = 0;
        let counted = self.index().scan(from, to, direction, |key, value| {
            calls += 1;
            if seen.len() == limit {
                return ControlFlow::Break(());
            }
            seen.push((key.to_key(), value));
            ControlFlow::Continue(())
        })?;
        assert_eq!(counted, calls, "a scan tells how many it showed");
        let mut expected = model_range(&self.model, &start, &end, direction);
        expected.truncate(limit);
        assert_eq!(seen, expected);
        Ok(())
    }

    /// Takes pairs from both ends as `ends` says, then the rest from the front.
    fn range(&self, start: &Bound<u64>, end: &Bound<u64>, ends: &[bool]) -> Result<()> {
        let (start, end) = (start.map(I::Key::numbered), end.map(I::Key::numbered));
        let mut expected: std::collections::VecDeque<_> =
            model_range(&self.model, &start, &end, Direction::Ascending).into();
        let mut range = self.index().range(start.as_ref().map(Borrow::borrow), end.as_ref().map(Borrow::borrow));
        for front in ends {
            let (found, wanted) =
                if *front { (range.next(), expected.pop_front()) } else { (range.next_back(), expected.pop_back()) };
            assert_eq!(found.transpose()?, wanted);
        }
        let rest = range.collect::<Result<Vec<_>>>()?;
        assert_eq!(rest, Vec::from(expected));
        Ok(())
    }

    /// Everything agrees, before and after an orderly end.
    pub fn finish(mut self) -> Result<()> {
        for reopened in [false, true] {
            if reopened {
                self.step(&Step::Reopen)?;
            }
            let expected: Vec<_> = self.model.iter().map(|(key, value)| (key.clone(), *value)).collect();
            assert_eq!(contents(self.index())?, expected);
            self.place.assert_intact(self.index());
        }
        Ok(())
    }
}

/// Runs `steps` beside a model.
pub fn run_model<I: OpenIndex + OrderedIndex>(place: &mut Place<I>, steps: &[Step]) -> Result<()>
where
    I::Key: TestKey,
{
    let mut beside = Beside::new(place);
    steps.iter().try_for_each(|step| beside.step(step))?;
    beside.finish()
}

/// A long run over `keys` keys that grows and shrinks in waves, so that every depth of the structure is passed.
pub fn long_run<I: OpenIndex + OrderedIndex>(place: &mut Place<I>, keys: u64, count: u64, seed: u64) -> Result<()>
where
    I::Key: TestKey,
{
    let mut state = seed | 1;
    let mut draw = move |limit: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % limit
    };
    let mut beside = Beside::new(place);
    for number in 0..count {
        let growing = (number * 6 / count).is_multiple_of(2);
        let key = draw(keys);
        let step = match draw(100) {
            0..4 => Step::Get(key),
            4..60 if growing => Step::Insert(key, draw(1 << 30)),
            4..60 => Step::Remove(key),
            60..70 => Step::Upsert(key, draw(1 << 30)),
            70..76 => Step::Update(key, draw(1 << 30)),
            76..82 => Step::Swap(key, draw(2) == 0, draw(1 << 30)),
            82..96 => Step::Remove(key),
            96..98 => Step::Scan(Bound::Included(key), Bound::Unbounded, Direction::Ascending, draw(50) as usize),
            _ if number % 64 == 0 => Step::Ends,
            _ => Step::Scan(Bound::Unbounded, Bound::Excluded(key), Direction::Descending, draw(50) as usize),
        };
        beside.step(&step)?;
    }
    beside.finish()
}

/// Inserts `count` keys in the given order, then removes them: all but the empty index's own blocks come back.
pub fn grow_and_shrink<I: OpenIndex + OrderedIndex>(
    place: &mut Place<I>,
    count: u64,
    order: impl Fn(u64) -> u64,
) -> Result<()>
where
    I::Key: TestKey,
{
    let index = place.open();
    let before = index.check().blocks.len();
    for number in 0..count {
        assert!(index.insert(I::Key::numbered(order(number)).borrow(), number)?);
    }
    assert_eq!(index.len()?, count);
    place.assert_intact(&index);
    let keys: Vec<_> = contents(&index)?.into_iter().map(|(key, _)| key).collect();
    assert!(keys.is_sorted() && keys.len() as u64 == count);
    for number in 0..count {
        let number = count - 1 - number;
        assert_eq!(index.remove(I::Key::numbered(order(number)).borrow())?, Some(number));
    }
    assert!(index.is_empty()?);
    place.assert_intact(&index);
    // The seed of a structure may differ by a block or two from what is left.
    assert!(index.check().blocks.len() <= before + 2, "{} blocks of an empty index", index.check().blocks.len());
    Ok(())
}

/// Loads sorted input, and refuses input that is not sorted and an index that is not empty.
pub fn bulk_load<I: OpenIndex + OrderedIndex>(place: &mut Place<I>, count: u64) -> Result<()>
where
    I::Key: TestKey,
{
    let index = place.open();
    let sorted: BTreeMap<_, _> = (0..count).map(|number| (I::Key::numbered(number), number)).collect();
    assert_eq!(index.bulk_load(sorted.clone())?, count);
    place.assert_intact(&index);
    assert_eq!(contents(&index)?, sorted.clone().into_iter().collect::<Vec<_>>());
    assert!(index.bulk_load(sorted.clone()).is_err(), "the index is not empty");
    drop(index);
    let index = place.open();
    for (key, value) in &sorted {
        assert_eq!(index.get(key.borrow())?, Some(*value));
        assert_eq!(index.remove(key.borrow())?, Some(*value));
    }
    place.assert_intact(&index);
    let unsorted = [(I::Key::numbered(1), 1), (I::Key::numbered(2), 2), (I::Key::numbered(2), 3)];
    assert!(index.bulk_load(unsorted).is_err(), "the third pair does not ascend");
    assert_eq!(index.len()?, 2, "the pairs before it are there");
    place.assert_intact(&index);
    Ok(())
}

/// The content of an index, as the model has it.
pub type Held<I> = BTreeMap<KeyOf<I>, u64>;

/// Fills the pool until an insert finds no room, which says so and changes nothing. Returns the content of the index,
/// and the key that is not in it.
pub fn fill<I: OpenIndex>(index: &I) -> Result<(Held<I>, KeyOf<I>)>
where
    I::Key: TestKey,
{
    let mut model = BTreeMap::new();
    let refused = (0..10_000_000).find_map(|number| {
        let key = I::Key::numbered(number);
        match index.insert(key.borrow(), number) {
            Ok(fresh) => {
                assert!(fresh);
                model.insert(key, number);
                None
            }
            Err(error) => Some((key, error)),
        }
    });
    let (key, error) = refused.expect("the pool is small");
    assert!(error.is_full(), "{error}");
    assert_eq!(index.get(key.borrow())?, None);
    Ok((model, key))
}

/// Strings at the edges, prefixes, and the limit of their length.
pub fn string_keys<I: OpenIndex + OrderedIndex + PointIndex<Key = [u8]>>(place: &mut Place<I>) -> Result<()> {
    let index = place.open();
    let limit = index.key_bytes_max();
    assert!(limit >= 1024);
    let mut keys: Vec<Vec<u8>> = vec![vec![], vec![0], vec![0, 0], vec![0; 8], vec![0; 9], vec![255], vec![255; 8]];
    for len in [7, 8, 9, 15, 16, 17, 63, 64, 65, 1024, limit] {
        for last in [0, 1, 255] {
            let mut key = vec![b'k'; len];
            key[len - 1] = last;
            keys.push(key);
        }
    }
    for (number, key) in keys.iter().enumerate() {
        assert!(index.insert(key, number as u64)?, "{number} is new");
    }
    let longer = vec![1; limit + 1];
    assert!(matches!(index.insert(&longer, 0), Err(lodestone_index::Error::TooLong { .. })));
    assert_eq!(index.get(&longer)?, None);
    let model: BTreeMap<_, _> = keys.iter().cloned().zip(0..).collect();
    for prefix in [&b""[..], &[0], &[0; 8], b"k", b"kkkkkkkk", &[255], &[255; 8], b"nothing"] {
        let found = index.prefix(prefix).collect::<Result<Vec<_>>>()?;
        let expected: Vec<_> = model.clone().into_iter().filter(|(key, _)| key.starts_with(prefix)).collect();
        assert_eq!(found, expected);
        let backwards = index.prefix(prefix).rev().collect::<Result<Vec<_>>>()?;
        assert_eq!(backwards, expected.into_iter().rev().collect::<Vec<_>>());
    }
    drop(index);
    let index = place.open();
    for (number, key) in keys.iter().enumerate() {
        assert_eq!(index.remove(key)?, Some(number as u64));
        assert_eq!(index.remove(key)?, None);
    }
    place.assert_intact(&index);
    Ok(())
}
