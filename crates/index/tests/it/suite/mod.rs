//! The suite that every ordered map passes: written against [`RecordMap`], run on each implementation by a fixture.

#![allow(dead_code, reason = "each test file uses its part of the suite")]

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lodestone_index::{RecordMap, Result};
use proptest::prelude::*;

/// Makes maps and opens them again, as after an orderly end of the process.
pub trait Fixture {
    /// The map under test.
    type Index: RecordMap;

    /// The map, empty the first time and with what it held ever after.
    fn open(&mut self) -> Self::Index;

    /// Fails when the heap holds blocks without an owner, or `index` owns blocks that the heap does not hold.
    fn assert_no_leak(&self, index: &Self::Index);
}

/// One step of a model test.
#[derive(Clone, Debug)]
pub enum Step {
    Insert(Vec<u8>, Vec<u8>),
    Remove(Vec<u8>),
    Get(Vec<u8>),
    Scan(Bound<Vec<u8>>, Bound<Vec<u8>>, usize),
    Reopen,
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => (0..64_u64).prop_map(|number| number.to_be_bytes().to_vec()),
        3 => (0..64_u64).prop_map(|number| format!("a-long-shared-prefix/{number}").into_bytes()),
        1 => prop::collection::vec(prop_oneof![Just(0), Just(b'a'), Just(255)], 0..4),
    ]
}

fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
    prop_oneof![Just(Bound::Unbounded), key().prop_map(Bound::Included), key().prop_map(Bound::Excluded)]
}

/// Steps over few keys, so that updates, removals and structure changes are frequent.
pub fn steps(count: usize) -> impl Strategy<Value = Vec<Step>> {
    let value = prop_oneof![
        5 => prop::collection::vec(any::<u8>(), 0..40),
        1 => (any::<u8>(), 500..3000_usize).prop_map(|(byte, len)| vec![byte; len]),
    ];
    let step = prop_oneof![
        40 => (key(), value).prop_map(|(key, value)| Step::Insert(key, value)),
        30 => key().prop_map(Step::Remove),
        10 => key().prop_map(Step::Get),
        6 => (bound(), bound(), 0..20_usize).prop_map(|(start, end, limit)| Step::Scan(start, end, limit)),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 1..count)
}

/// All records of `index`, in the order in which a scan shows them.
pub fn contents(index: &impl RecordMap) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut all = Vec::new();
    index.scan(Bound::Unbounded, Bound::Unbounded, &mut |key, value| {
        all.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    })?;
    Ok(all)
}

fn is_empty_range(start: &Bound<Vec<u8>>, end: &Bound<Vec<u8>>) -> bool {
    match (start, end) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(start), Bound::Included(end)) => start > end,
        (Bound::Included(start) | Bound::Excluded(start), Bound::Included(end) | Bound::Excluded(end)) => start >= end,
    }
}

fn model_range(
    model: &BTreeMap<Vec<u8>, Vec<u8>>,
    start: &Bound<Vec<u8>>,
    end: &Bound<Vec<u8>>,
    limit: usize,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    if is_empty_range(start, end) {
        return Vec::new();
    }
    let pairs = model.range((start.clone(), end.clone())).map(|(key, value)| (key.clone(), value.clone()));
    pairs.take(limit).collect()
}

/// Runs `steps` beside a [`BTreeMap`]; every answer and the final content agree, nothing leaks.
pub fn run_model<F: Fixture>(fixture: &mut F, steps: Vec<Step>) -> Result<()> {
    let mut index = fixture.open();
    let mut model = BTreeMap::new();
    for step in steps {
        match step {
            Step::Insert(key, value) => {
                let replaced = index.insert(&key, &value)?;
                assert_eq!(replaced, model.insert(key, value).is_some());
            }
            Step::Remove(key) => assert_eq!(index.remove(&key)?, model.remove(&key).is_some()),
            Step::Get(key) => assert_eq!(index.get(&key)?.as_ref(), model.get(&key)),
            Step::Scan(start, end, limit) => {
                let mut seen = Vec::new();
                let borrow = |bound: &Bound<Vec<u8>>| bound.clone();
                let (from, to) = (borrow(&start), borrow(&end));
                index.scan(from.as_ref().map(|k| &k[..]), to.as_ref().map(|k| &k[..]), &mut |key, value| {
                    if seen.len() == limit {
                        return ControlFlow::Break(());
                    }
                    seen.push((key.to_vec(), value.to_vec()));
                    ControlFlow::Continue(())
                })?;
                assert_eq!(seen, model_range(&model, &start, &end, limit));
            }
            Step::Reopen => {
                drop(index);
                index = fixture.open();
            }
        }
        assert_eq!(index.len()?, model.len() as u64);
    }
    assert_intact(fixture, &index);
    drop(index);
    let index = fixture.open();
    assert_eq!(contents(&index)?, model.into_iter().collect::<Vec<_>>());
    assert_intact(fixture, &index);
    Ok(())
}

/// Fails when the check of `index` finds something, or the heap and it disagree about who owns what.
pub fn assert_intact<F: Fixture>(fixture: &F, index: &F::Index) {
    let report = index.check();
    assert!(report.is_intact(), "{:?}", report.findings);
    fixture.assert_no_leak(index);
}

/// Keys at the edges: empty, one byte, zeroes and 0xFF, the longest, long ones that differ in the last byte.
pub fn edge_keys<F: Fixture>(fixture: &mut F, key_bytes_max: usize) -> Result<()> {
    let mut keys: Vec<Vec<u8>> = vec![vec![], vec![0], vec![0, 0], vec![0; 8], vec![0; 9], vec![255], vec![255; 8]];
    for len in [7, 8, 9, 63, 64, 65, 1024, key_bytes_max] {
        for last in [0, 1, 255] {
            let mut key = vec![b'k'; len];
            key[len - 1] = last;
            keys.push(key);
        }
    }
    let index = fixture.open();
    let mut model = BTreeMap::new();
    for (number, key) in keys.iter().enumerate() {
        let value = number.to_le_bytes().to_vec();
        assert!(!index.insert(key, &value)?, "{number} is new");
        model.insert(key.clone(), value);
    }
    assert!(index.insert(&vec![1; key_bytes_max + 1], b"").is_err(), "too long a key");
    drop(index);
    let index = fixture.open();
    assert_eq!(contents(&index)?, model.clone().into_iter().collect::<Vec<_>>());
    for key in &keys {
        assert_eq!(index.get(key)?.as_ref(), model.get(key));
        assert!(index.remove(key)?);
        assert!(!index.remove(key)?);
    }
    assert!(index.is_empty()?);
    assert_intact(fixture, &index);
    Ok(())
}

/// Values from nothing to `value_bytes_max`, replaced by shorter and longer ones.
pub fn big_values<F: Fixture>(fixture: &mut F, value_bytes_max: usize) -> Result<()> {
    let lens = [0, 1, 7, 8, 9, 100, 511, 512, 4096, 65_536, value_bytes_max, 300, 0, value_bytes_max / 2];
    let value = |len: usize, salt: usize| (0..len).map(|at| (at * 31 + salt) as u8).collect::<Vec<_>>();
    let index = fixture.open();
    for (salt, &len) in lens.iter().enumerate() {
        index.insert(b"the same key", &value(len, salt))?;
        assert_eq!(index.get(b"the same key")?, Some(value(len, salt)));
        index.insert(&len.to_be_bytes(), &value(len, 0))?;
    }
    drop(index);
    let index = fixture.open();
    for &len in &lens {
        assert_eq!(index.get(&len.to_be_bytes())?, Some(value(len, 0)));
    }
    assert_intact(fixture, &index);
    Ok(())
}

/// Inserts `count` keys ascending, descending or scattered, then removes them: every leaf but the first goes.
pub fn grow_and_shrink<F: Fixture>(fixture: &mut F, count: u64, order: impl Fn(u64) -> u64) -> Result<()> {
    let index = fixture.open();
    let before = index.check().blocks.len();
    for number in 0..count {
        index.insert(&order(number).to_be_bytes(), &number.to_le_bytes())?;
    }
    assert_eq!(index.len()?, count);
    assert_intact(fixture, &index);
    let keys: Vec<_> = contents(&index)?.into_iter().map(|(key, _)| key).collect();
    assert!(keys.is_sorted() && keys.len() as u64 == count);
    for number in 0..count {
        assert!(index.remove(&order(count - 1 - number).to_be_bytes())?);
    }
    assert!(index.is_empty()?);
    assert_intact(fixture, &index);
    assert_eq!(index.check().blocks.len(), before, "all leaves and records came back");
    Ok(())
}

/// Writers own disjoint keys and write growing versions; readers and scanners never see a version go back, nor a value
/// that belongs to another key.
pub fn concurrent_versions<F: Fixture>(fixture: &mut F, threads: u64, keys_per_thread: u64, rounds: u64) -> Result<()> {
    let index = fixture.open();
    let published: Vec<AtomicU64> = (0..threads * keys_per_thread).map(|_| AtomicU64::new(0)).collect();
    let key_of = |number: u64| (number.wrapping_mul(0x9E37_79B9_7F4A_7C15)).to_be_bytes();
    let value_of = |number: u64, version: u64| {
        let mut value = [number.to_le_bytes(), version.to_le_bytes()].concat();
        value.resize(16 + (version % 90) as usize, version as u8);
        value
    };
    let check = |number: u64, value: &[u8], floor: u64| {
        let word = |at: usize| u64::from_le_bytes(value[at..at + 8].try_into().expect("eight bytes"));
        assert_eq!(word(0), number, "a value of another key");
        let version = word(8);
        assert!(version >= floor, "key {number}: version {version} after {floor}");
        assert_eq!(value, value_of(number, version), "a torn value");
    };
    let writing = AtomicBool::new(true);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..threads)
            .map(|thread| {
                let (index, published) = (&index, &published);
                scope.spawn(move || -> Result<()> {
                    for version in 1..=rounds {
                        for number in thread * keys_per_thread..(thread + 1) * keys_per_thread {
                            if version % 5 == number % 5 {
                                index.remove(&key_of(number))?;
                            }
                            index.insert(&key_of(number), &value_of(number, version))?;
                            published[number as usize].store(version, Ordering::Release);
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        let reader = scope.spawn(|| -> Result<()> {
            let mut number = 0;
            while writing.load(Ordering::Acquire) {
                number = (number + 7) % (threads * keys_per_thread);
                let floor = published[number as usize].load(Ordering::Acquire);
                if let Some(value) = index.get(&key_of(number))? {
                    check(number, &value, floor);
                }
            }
            Ok(())
        });
        let scanner = scope.spawn(|| -> Result<()> {
            while writing.load(Ordering::Acquire) {
                let mut last: Option<Vec<u8>> = None;
                index.scan(Bound::Unbounded, Bound::Unbounded, &mut |key, value| {
                    assert!(last.as_deref().is_none_or(|last| last < key), "a scan goes back");
                    last = Some(key.to_vec());
                    let number = u64::from_le_bytes(value[..8].try_into().expect("eight bytes"));
                    assert_eq!(key, key_of(number));
                    check(number, value, 0);
                    ControlFlow::Continue(())
                })?;
            }
            Ok(())
        });
        for writer in writers {
            writer.join().expect("a writer panicked")?;
        }
        writing.store(false, Ordering::Release);
        reader.join().expect("the reader panicked")?;
        scanner.join().expect("the scanner panicked")
    })?;
    assert_eq!(index.len()?, threads * keys_per_thread);
    for number in 0..threads * keys_per_thread {
        assert_eq!(index.get(&key_of(number))?, Some(value_of(number, rounds)));
    }
    assert_intact(fixture, &index);
    Ok(())
}

/// Keys that are never touched come exactly once in every scan while their neighbours come and go.
pub fn scan_under_change<F: Fixture>(fixture: &mut F, stable: u64, rounds: u64) -> Result<()> {
    let index = fixture.open();
    for number in 0..stable {
        index.insert(&(number * 8).to_be_bytes(), b"stable")?;
    }
    let writing = AtomicBool::new(true);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| -> Result<()> {
            for round in 0..rounds {
                for number in 0..stable {
                    index.insert(&(number * 8 + 1 + (round % 7)).to_be_bytes(), b"fleeting")?;
                }
                for number in 0..stable {
                    index.remove(&(number * 8 + 1 + (round % 7)).to_be_bytes())?;
                }
            }
            writing.store(false, Ordering::Release);
            Ok(())
        });
        let mut scans = 0;
        while scans == 0 || writing.load(Ordering::Acquire) {
            let mut found = 0;
            index.scan(Bound::Unbounded, Bound::Unbounded, &mut |key, value| {
                if value == b"stable" {
                    assert_eq!(key, (found * 8_u64).to_be_bytes());
                    found += 1;
                }
                ControlFlow::Continue(())
            })?;
            assert_eq!(found, stable);
            scans += 1;
        }
        writer.join().expect("the writer panicked")
    })?;
    assert_eq!(index.len()?, stable);
    assert_intact(fixture, &index);
    Ok(())
}
