//! [`HashIndex`] beside a plain map: answers, growth and shrinkage, costs, damage, threads.

use std::borrow::Borrow;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lodestone_heap::HeapOptions;
use lodestone_index::{
    Durability, Error, HashIndex, HashOptions, IndexKey, KEY_BYTES_MAX, OpenIndex, PointIndex, Result, Swap,
};
use lodestone_pmem::{CounterScope, DomainChoice, Memory, PmAddr, Pool, PoolOptions};
use lodestone_store::{Store, StoreOptions};
use proptest::prelude::*;

/// Keys for tests, by number: awkward ones first.
trait Numbered: IndexKey {
    fn numbered(number: u64) -> Self::Owned;
}

impl Numbered for u64 {
    fn numbered(number: u64) -> u64 {
        if number < 4 { number } else { number.wrapping_mul(0x9E37_79B9_7F4A_7C15) }
    }
}

impl Numbered for [u8] {
    fn numbered(number: u64) -> Vec<u8> {
        match number {
            0..12 => vec![0; number as usize],
            12..16 => vec![255; KEY_BYTES_MAX - number as usize + 12],
            _ => format!("a-shared-prefix/{number}").into_bytes(),
        }
    }
}

struct Place {
    folder: tempfile::TempDir,
    options: HashOptions,
    heap_options: HeapOptions,
    store: Option<Store>,
}

impl Place {
    fn new(options: HashOptions) -> Self {
        let folder = tempfile::tempdir().expect("temporary folder");
        Self { folder, options, heap_options: HeapOptions::default(), store: None }
    }

    fn open<K: IndexKey + ?Sized>(&mut self) -> HashIndex<K> {
        self.store = None;
        let options = PoolOptions {
            domain: DomainChoice::Process,
            size_bytes: 32 << 20,
            journal_bytes: 1 << 20,
            ..PoolOptions::default()
        };
        let pool = Pool::open_or_create(self.folder.path().join("hash.pool"), &options).expect("a pool");
        let store = Store::over_with(&pool, &StoreOptions::with_heap(self.heap_options.clone())).expect("a heap");
        self.store = Some(store.clone());
        HashIndex::open_index(&store, "hash", &self.options, Durability::Sync).expect("an index")
    }

    fn memory(&self) -> &Memory {
        self.store.as_ref().expect("the index was opened").memory()
    }

    /// The index verifies, its count is right, and the heap holds exactly the blocks that it owns.
    fn assert_intact<K: IndexKey + ?Sized>(&self, index: &HashIndex<K>) {
        let report = index.check();
        assert!(report.is_intact(), "{:?}", report.findings);
        assert_eq!(report.records, index.len().expect("a length"));
        let store = self.store.as_ref().expect("the index was opened");
        let owned: HashSet<_> = report.blocks.into_iter().chain(store.own_blocks()).collect();
        let mut held = HashSet::new();
        store.heap().for_each_block(|at, _| {
            held.insert(at);
        });
        assert_eq!(owned, held, "the heap's blocks and the index's");
    }
}

fn tiny() -> HashOptions {
    HashOptions::small()
}

fn middle() -> HashOptions {
    let mut options = HashOptions::small();
    (options.buckets, options.lines_per_bucket, options.stash_lines, options.initial_depth) = (2, 8, 2, 1);
    options
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u64, u64),
    Upsert(u64, u64),
    Update(u64, u64),
    Swap(u64, u64),
    Remove(u64),
    Get(u64),
    Reopen,
}

fn steps(keys: u64, count: usize) -> impl Strategy<Value = Vec<Step>> {
    let (key, value) = (0..keys, any::<u64>());
    let pair = || (key.clone(), value);
    let step = prop_oneof![
        20 => pair().prop_map(|(key, value)| Step::Insert(key, value)),
        20 => pair().prop_map(|(key, value)| Step::Upsert(key, value)),
        10 => pair().prop_map(|(key, value)| Step::Update(key, value)),
        10 => pair().prop_map(|(key, value)| Step::Swap(key, value)),
        25 => key.clone().prop_map(Step::Remove),
        10 => key.clone().prop_map(Step::Get),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 1..count)
}

fn run_model<K: Numbered + ?Sized>(options: HashOptions, steps: Vec<Step>) -> Result<()> {
    let mut place = Place::new(options);
    let mut index = place.open::<K>();
    let mut model: HashMap<u64, u64> = HashMap::new();
    let key = |number: u64| K::numbered(number);
    for step in steps {
        match step {
            Step::Insert(number, value) => {
                let fresh = !model.contains_key(&number);
                assert_eq!(index.insert(key(number).borrow(), value)?, fresh);
                model.entry(number).or_insert(value);
            }
            Step::Upsert(number, value) => {
                assert_eq!(index.upsert(key(number).borrow(), value)?, model.insert(number, value));
            }
            Step::Update(number, value) => {
                let before = model.get_mut(&number).map(|found| std::mem::replace(found, value));
                assert_eq!(index.update(key(number).borrow(), value)?, before);
            }
            Step::Swap(number, value) => {
                let expected = match model.get(&number).copied() {
                    None => Swap::Absent,
                    Some(found) if value % 2 == 0 => Swap::Differs(found),
                    Some(_) => Swap::Done,
                };
                let current = model.get(&number).map_or(0, |found| if value % 2 == 0 { !found } else { *found });
                assert_eq!(index.compare_and_swap(key(number).borrow(), current, value)?, expected);
                if expected == Swap::Done {
                    model.insert(number, value);
                }
            }
            Step::Remove(number) => assert_eq!(index.remove(key(number).borrow())?, model.remove(&number)),
            Step::Get(number) => assert_eq!(index.get(key(number).borrow())?, model.get(&number).copied()),
            Step::Reopen => {
                drop(index);
                index = place.open();
            }
        }
    }
    place.assert_intact(&index);
    drop(index);
    let index = place.open::<K>();
    assert_eq!(index.len()?, model.len() as u64);
    let mut all = HashMap::new();
    index.for_each(|key, value| assert!(all.insert(key.to_key(), value).is_none(), "a pair comes twice"))?;
    assert_eq!(all, model.into_iter().map(|(number, value)| (key(number), value)).collect());
    place.assert_intact(&index);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn numbers_agree_with_a_model(steps in steps(120, 700)) {
        run_model::<u64>(tiny(), steps.clone())?;
        run_model::<u64>(middle(), steps)?;
    }

    #[test]
    fn strings_agree_with_a_model(steps in steps(60, 300)) {
        run_model::<[u8]>(tiny(), steps.clone())?;
        run_model::<[u8]>(middle(), steps)?;
    }
}

/// Fills, empties and fills again: segments split, merge and split, nodes deepen; the heap gets its blocks back.
fn grow_and_shrink<K: Numbered + ?Sized>(
    options: HashOptions,
    heap_options: HeapOptions,
    count: u64,
    shrinks: u64,
) -> Result<()> {
    let mut place = Place::new(options);
    place.heap_options = heap_options;
    let index = place.open::<K>();
    for round in 0..2 {
        for number in 0..count {
            assert!(index.insert(K::numbered(number).borrow(), number + round)?);
        }
        place.assert_intact(&index);
        let full = index.stats();
        assert_eq!(full.pairs, count);
        for number in 0..count {
            assert_eq!(index.get(K::numbered(number).borrow())?, Some(number + round));
            assert_eq!(index.get(K::numbered(number + count).borrow())?, None);
        }
        for number in 0..count {
            assert_eq!(index.remove(K::numbered(number).borrow())?, Some(number + round));
        }
        place.assert_intact(&index);
        let empty = index.stats();
        assert!(empty.segments * shrinks < full.segments, "{} of {} segments are left", empty.segments, full.segments);
    }
    Ok(())
}

#[test]
fn segments_split_and_merge() -> Result<()> {
    // Small heaps allow few words in an action, so directory nodes are small and become deep.
    let mut small = HeapOptions::small();
    (small.chunk_bytes, small.zone_chunks) = (16 << 10, 64);
    grow_and_shrink::<u64>(tiny(), small.clone(), 4000, 1)?;
    grow_and_shrink::<[u8]>(tiny(), small, 600, 1)?;
    grow_and_shrink::<u64>(HashOptions::default(), HeapOptions::default(), 20_000, 8)
}

/// A split comes only when a segment is well filled, and one segment at a time.
#[test]
fn segments_are_filled_before_they_split() -> Result<()> {
    let mut place = Place::new(HashOptions { initial_depth: 0, seed: Some(7), ..HashOptions::default() });
    let index = place.open::<u64>();
    let (mut segments, mut fills) = (1, Vec::new());
    for number in 0..40_000_u64 {
        let slots = segments as f64 * 753.0;
        index.insert(&u64::numbered(number), number)?;
        if number % 16 == 0 {
            let stats = index.stats();
            assert_eq!(stats.slots, stats.segments * 753, "30 buckets of 8 lines and 11 lines of 3 pairs");
            if stats.segments > segments && segments == 1 {
                fills.push(number as f64 / slots);
            }
            segments = stats.segments;
        }
        if number == 2000 {
            break;
        }
    }
    assert!(fills[0] > 0.8, "the first segment split at a fill of {fills:?}");
    Ok(())
}

/// Lines flushed and fences of `work`.
fn cost<T>(work: impl FnOnce() -> Result<T>) -> Result<(u64, u64)> {
    let scope = CounterScope::start();
    work()?;
    let delta = scope.delta();
    Ok((delta.flushes, delta.fences))
}

#[test]
fn every_change_of_a_number_is_one_line_and_one_fence() -> Result<()> {
    let mut place = Place::new(HashOptions { seed: Some(3), ..HashOptions::default() });
    let index = place.open::<u64>();
    let (mut raised, mut split) = (0, 0);
    for number in 0..20_000 {
        match cost(|| index.insert(&u64::numbered(number), number))? {
            (1, 1) => {}
            (2, 2) => raised += 1,
            // The header lines, the entries and the record of one action; the tables are streamed. Now and then the
            // heap cuts a chunk for new segments.
            (lines, fences) => {
                assert!(lines <= 110 && fences <= 8, "a split: {lines} lines and {fences} fences");
                split += 1;
            }
        }
    }
    // At most three levels to raise in each of a segment's 240 home lines, about 40 segments.
    assert!(raised < 20_000 / 3 && split < 60, "{raised} raised, {split} split");
    for number in 0..20_000 {
        let key = u64::numbered(number);
        assert_eq!(cost(|| index.update(&key, 1))?, (1, 1));
        assert_eq!(cost(|| index.compare_and_swap(&key, 1, 2))?, (1, 1));
        assert_eq!(cost(|| index.compare_and_swap(&key, 1, 2))?, (0, 0), "nothing was changed");
        assert_eq!(cost(|| index.get(&key))?, (0, 0));
    }
    assert_eq!(cost(|| index.remove(&u64::numbered(5)))?, (1, 1));
    assert_eq!(cost(|| index.remove(&u64::numbered(5)))?, (0, 0));
    Ok(())
}

#[test]
fn a_change_of_a_string_is_one_action() -> Result<()> {
    let mut place = Place::new(HashOptions { seed: Some(3), ..HashOptions::default() });
    let index = place.open::<[u8]>();
    index.insert(b"the heap cuts a chunk for records of this size", 0)?;
    index.insert(b"or this", 0)?;
    for number in 0..40_u64 {
        let key = format!("key {number}");
        let (lines, fences) = cost(|| index.insert(key.as_bytes(), number))?;
        // The record, the cells, the action's record (one or two lines), the heap's bitmap and the header.
        assert!(lines <= 7 && fences == 4, "insert: {lines} lines, {fences} fences");
        assert_eq!(cost(|| index.update(key.as_bytes(), 1))?, (1, 1));
    }
    let (lines, fences) = cost(|| index.remove(b"key 7"))?;
    assert!(lines <= 4 && fences == 3, "remove: {lines} lines, {fences} fences");
    Ok(())
}

#[test]
fn opening_costs_the_same_at_every_size() -> Result<()> {
    let mut place = Place::new(HashOptions::default());
    let index = place.open::<u64>();
    for number in 0..50_000 {
        index.insert(&u64::numbered(number), number)?;
    }
    drop(index);
    let index = place.open::<u64>();
    assert_eq!(cost(|| index.get(&u64::numbered(9)))?, (0, 0), "nothing is written to open or to read");
    assert_eq!(index.get(&u64::numbered(9))?, Some(9));
    Ok(())
}

#[test]
fn refusals() -> Result<()> {
    let mut place = Place::new(tiny());
    let strings = place.open::<[u8]>();
    let long = vec![1; KEY_BYTES_MAX + 1];
    assert!(matches!(strings.insert(&long, 1), Err(Error::TooLong { .. })));
    assert_eq!(strings.get(&long)?, None);
    let store = place.store.clone().expect("open");
    assert!(matches!(HashIndex::<[u8]>::open(&store, "hash"), Err(Error::AlreadyOpen { .. })));
    drop(strings);
    assert!(matches!(HashIndex::<u64>::open(&store, "hash"), Err(Error::WrongKind { .. })), "keys of another kind");
    assert!(matches!(lodestone_index::OrderedMap::open(&store, "hash"), Err(Error::WrongKind { .. })));
    Ok(())
}

/// Every byte of every block, damaged one at a time: an answer is right or an error, and the check finds it, unless the
/// byte is one that nothing reads.
#[test]
fn damage_is_never_an_answer() -> Result<()> {
    let mut place = Place::new(tiny());
    let index = place.open::<[u8]>();
    let count = 8;
    for number in 0..count {
        index.insert(format!("k{number}").as_bytes(), number)?;
    }
    let blocks = index.check().blocks;
    drop(index);
    let (mut errors, mut silent) = (0, 0);
    let bytes_of: Vec<(PmAddr, u64)> = {
        let store = place.store.as_ref().expect("open");
        blocks.iter().map(|&at| (at, store.heap().block_bytes(at).expect("a block"))).collect()
    };
    let store = place.store.clone().expect("open");
    for (at, bytes) in bytes_of {
        for offset in (0..bytes).step_by(8) {
            let word = at.plus(offset);
            let right = store.memory().load(word);
            store.memory().store(word, right ^ 0x40 << (offset / 8 % 8 * 8));
            match HashIndex::<[u8]>::open(&store, "hash") {
                Err(error) => {
                    assert!(matches!(error, Error::Damaged { .. }), "{error}");
                    errors += 1;
                }
                Ok(index) => {
                    let mut wrong = false;
                    for number in 0..count + 2 {
                        match index.get(format!("k{number}").as_bytes()) {
                            Ok(found) => assert_eq!(found, (number < count).then_some(number), "byte {offset} of {at}"),
                            Err(Error::Damaged { .. }) => wrong = true,
                            Err(other) => return Err(other),
                        }
                    }
                    let found = !index.check().is_intact();
                    assert!(found || !wrong, "the check misses what a lookup reports");
                    errors += u64::from(found);
                    silent += u64::from(!found);
                }
            }
            store.memory().store(word, right);
        }
    }
    assert!(errors > 50, "{errors} errors, {silent} words that nothing reads");
    drop(store);
    let _ = place.memory();
    Ok(())
}

/// Ends the readers, also when a writer panicked.
struct Stop<'f>(&'f AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Writers own disjoint keys and write growing versions; readers never see one go back.
#[test]
fn versions_never_go_back() -> Result<()> {
    let mut place = Place::new(middle());
    let index = place.open::<u64>();
    let (threads, keys, rounds) = (3_u64, 120_u64, 60_u64);
    let published: Vec<AtomicU64> = (0..threads * keys).map(|_| AtomicU64::new(0)).collect();
    let writing = AtomicBool::new(true);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..threads)
            .map(|thread| {
                let (index, published) = (&index, &published);
                scope.spawn(move || -> Result<()> {
                    for version in 1..=rounds {
                        for number in thread * keys..(thread + 1) * keys {
                            if version % 5 == number % 5 {
                                index.remove(&u64::numbered(number))?;
                            }
                            index.upsert(&u64::numbered(number), number << 32 | version)?;
                            published[number as usize].store(version, Ordering::Release);
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        let stop = Stop(&writing);
        let reader = scope.spawn(|| -> Result<()> {
            let mut number = 0;
            while writing.load(Ordering::Acquire) {
                number = (number + 7) % (threads * keys);
                let floor = published[number as usize].load(Ordering::Acquire);
                if let Some(value) = index.get(&u64::numbered(number))? {
                    assert_eq!(value >> 32, number, "a value of another key");
                    assert!(value & 0xFFFF_FFFF >= floor, "version {value:#x} after {floor}");
                }
            }
            Ok(())
        });
        let walker = scope.spawn(|| -> Result<()> {
            while writing.load(Ordering::Acquire) {
                let mut seen = HashSet::new();
                index.for_each(|key, value| {
                    assert_eq!(*key, u64::numbered(value >> 32));
                    assert!(seen.insert(*key), "a key comes twice");
                })?;
            }
            Ok(())
        });
        for writer in writers {
            writer.join().expect("a writer panicked")?;
        }
        drop(stop);
        reader.join().expect("the reader panicked")?;
        walker.join().expect("the walker panicked")
    })?;
    assert_eq!(index.len()?, threads * keys);
    place.assert_intact(&index);
    Ok(())
}

/// A walk that is after a segment when that merges with the next one comes to the merged one, which holds everything
/// that was shown already.
#[test]
fn a_walk_shows_no_key_twice_when_segments_merge_behind_it() {
    let mut place = Place::new(HashOptions::small());
    let index = place.open::<u64>();
    let keys: Vec<u64> = (0..200).map(u64::numbered).collect();
    keys.iter().for_each(|key| assert!(index.insert(key, *key).expect("an insert")));
    let mut shown = Vec::new();
    let visit = |key: &u64, _| {
        if shown.is_empty() {
            // All segments become one, with this key and two more.
            let kept = |other: &&u64| *other != key && **other > 2;
            keys.iter().filter(kept).for_each(|other| assert!(index.remove(other).expect("a removal").is_some()));
        }
        shown.push(*key);
    };
    index.for_each(visit).expect("a walk");
    let all: HashSet<u64> = shown.iter().copied().collect();
    assert_eq!(shown.len(), all.len(), "a key came twice: {shown:?}");
    assert!((0..3).all(|key| all.contains(&key)), "a key that stayed did not come: {shown:?}");
}

/// A heap of small actions makes directory nodes of few entries, in blocks that are shorter than a line.
#[test]
fn nodes_of_few_entries_are_told_from_segments_after_an_opening() {
    for lane_bytes in [128, 192, 256] {
        let mut place = Place::new(HashOptions::small());
        place.heap_options.lane_bytes = lane_bytes;
        let index = place.open::<u64>();
        let keys: Vec<u64> = (0..300).map(u64::numbered).collect();
        keys.iter().for_each(|key| assert!(index.insert(key, *key).expect("an insert")));
        drop(index);
        let index = place.open::<u64>();
        for key in &keys {
            assert_eq!(index.get(key).expect("a lookup"), Some(*key), "lanes of {lane_bytes} bytes");
        }
        place.assert_intact(&index);
    }
}

#[test]
fn an_index_with_other_keys_is_of_another_kind_not_damaged() {
    let mut place = Place::new(HashOptions::small());
    drop(place.open::<[u8]>());
    let store = place.store.clone().expect("opened");
    let other = HashIndex::<u64>::open(&store, "hash").expect_err("other keys");
    assert!(matches!(other, Error::WrongKind { .. }), "{other}");
    assert!(other.to_string().contains("is a hash index with strings as keys, not a hash index with words"), "{other}");
}
