//! The part of the suite that needs no order: for indexes that cannot be scanned, and for what scans do not show.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::path::PathBuf;

use lodestone_index::{Error, KEY_BYTES_MAX, OpenIndex, PointIndex, Result, Swap};
use lodestone_pmem::{DomainChoice, PmAddr};

use super::{KeyOf, Place, Step, TestKey};

/// Fails unless `index` holds exactly what `model` does, as point reads and the count show it.
pub fn assert_holds<I: PointIndex>(index: &I, model: &BTreeMap<KeyOf<I>, u64>) -> Result<()> {
    for (key, value) in model {
        assert_eq!(index.get(key.borrow())?, Some(*value), "{key:?}");
    }
    assert_eq!(index.len()?, model.len() as u64);
    assert_eq!(index.is_empty()?, model.is_empty());
    Ok(())
}

/// Runs `steps` beside a model; what asks for order is left out. `kills`: the process dies where the steps say so.
pub fn run_model<I: OpenIndex>(place: &mut Place<I>, steps: &[Step], kills: bool) -> Result<()>
where
    I::Key: TestKey,
{
    let mut index = place.open();
    let mut model: BTreeMap<KeyOf<I>, u64> = BTreeMap::new();
    for step in steps {
        match *step {
            Step::Get(number) => {
                let key = I::Key::numbered(number);
                assert_eq!(index.get(key.borrow())?, model.get::<KeyOf<I>>(&key).copied());
            }
            Step::Insert(number, value) => {
                let key = I::Key::numbered(number);
                assert_eq!(index.insert(key.borrow(), value)?, !model.contains_key::<KeyOf<I>>(&key));
                model.entry(key).or_insert(value);
            }
            Step::Update(number, value) => {
                let key = I::Key::numbered(number);
                let before = model.get_mut::<KeyOf<I>>(&key).map(|found| std::mem::replace(found, value));
                assert_eq!(index.update(key.borrow(), value)?, before);
            }
            Step::Upsert(number, value) => {
                let key = I::Key::numbered(number);
                assert_eq!(index.upsert(key.borrow(), value)?, model.insert(key, value));
            }
            Step::Remove(number) => {
                let key = I::Key::numbered(number);
                assert_eq!(index.remove(key.borrow())?, model.remove::<KeyOf<I>>(&key));
            }
            Step::Swap(number, right, value) => {
                let key = I::Key::numbered(number);
                let found = model.get::<KeyOf<I>>(&key).copied();
                let current = found.map_or(7, |found| if right { found } else { !found });
                let expected = match found {
                    None => Swap::Absent,
                    Some(found) if found == current => Swap::Done,
                    Some(found) => Swap::Differs(found),
                };
                assert_eq!(index.compare_and_swap(key.borrow(), current, value)?, expected);
                if expected == Swap::Done {
                    model.insert(key, value);
                }
            }
            Step::Reopen => {
                drop(index);
                index = place.open();
            }
            Step::Kill if kills => index = place.open_as_after_a_kill(index),
            Step::Ends => assert_eq!(index.len()?, model.len() as u64),
            Step::Kill | Step::Scan(..) | Step::Range(..) => {}
        }
    }
    assert_holds(&index, &model)?;
    place.assert_intact(&index);
    drop(index);
    let index = place.open();
    assert_holds(&index, &model)?;
    place.assert_intact(&index);
    Ok(())
}

/// A life in the block domain, where an operation is told only once a group of changes is in the journal: answers, and
/// the content in a new life.
pub fn block_domain<I: OpenIndex>(place: &mut Place<I>) -> Result<()>
where
    I::Key: TestKey,
{
    place.pool.domain = DomainChoice::Block;
    let mut steps = Vec::new();
    for number in 0..40 {
        steps.push(Step::Insert(number * 7 % 40, number));
        steps.push(if number % 3 == 0 { Step::Remove(number / 2) } else { Step::Update(number / 2, !number) });
        steps.push(Step::Get(number));
        if number % 16 == 15 {
            steps.push(Step::Reopen);
        }
    }
    run_model(place, &steps, false)
}

/// Strings of every length that an index must take, strings that differ in zero bytes only, duplicates, the names of
/// this machine's files, and one byte too many.
pub fn many_strings<I: OpenIndex + PointIndex<Key = [u8]>>(place: &mut Place<I>) -> Result<()> {
    let index = place.open();
    let mut model: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    let lengths = (1..=1024_usize).step_by(3).map(|len| (0..len).map(|at| (len * 31 + at / 7) as u8).collect());
    let zeroes = (0..40_usize).flat_map(|len| [vec![0; len], [b"zero", &vec![0; len][..], b"end"].concat()]);
    let names = file_names(1500).into_iter().map(String::into_bytes);
    for (key, value) in lengths.chain(zeroes).chain(names).zip(0..) {
        let is_new = !model.contains_key(&key);
        assert_eq!(index.insert(&key, value)?, is_new, "{key:?}");
        assert!(!index.insert(&key, value + 1)?, "a duplicate keeps its first value");
        model.entry(key).or_insert(value);
    }
    let longest = vec![b'l'; index.key_bytes_max()];
    assert!(index.key_bytes_max() >= 1024 && index.insert(&longest, 1)?);
    model.insert(longest, 1);
    let longer = vec![b'l'; KEY_BYTES_MAX + 1];
    for refused in
        [index.insert(&longer, 1).map(drop), index.remove(&longer).map(drop), index.upsert(&longer, 1).map(drop)]
    {
        assert!(matches!(refused, Err(Error::TooLong { .. })), "{refused:?}");
    }
    assert_holds(&index, &model)?;
    place.assert_intact(&index);
    drop(index);
    let index = place.open();
    assert_holds(&index, &model)?;
    for (key, value) in &model {
        assert_eq!(index.remove(key)?, Some(*value));
        assert_eq!(index.remove(key)?, None);
    }
    assert_holds(&index, &BTreeMap::new())?;
    place.assert_intact(&index);
    Ok(())
}

/// At most `limit` names of files below a folder that every system has, first whole paths, then last parts, so that
/// some come twice; names made up where there are none.
fn file_names(limit: usize) -> Vec<String> {
    let (mut folders, mut names) = (vec![PathBuf::from("/usr/share")], Vec::new());
    while let Some(folder) = folders.pop() {
        let mut entries: Vec<_> = std::fs::read_dir(folder).into_iter().flatten().flatten().collect();
        entries.sort_by_key(std::fs::DirEntry::path);
        for entry in entries {
            names.push(entry.path().to_string_lossy().into_owned());
            names.push(entry.file_name().to_string_lossy().into_owned());
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(entry.path());
            }
        }
        if names.len() >= limit {
            break;
        }
    }
    names.extend((names.len()..limit).map(|number| format!("/made/up/{}/name-{number}", number % 7)));
    names.truncate(limit);
    names
}

/// Fills the pool: the insert that finds no room says so and changes nothing, reads go on, removals make room again.
pub fn full_pool<I: OpenIndex>(place: &mut Place<I>) -> Result<()>
where
    I::Key: TestKey,
{
    let index = place.open();
    let (model, key) = super::fill(&index)?;
    assert_holds(&index, &model)?;
    place.assert_intact(&index);
    drop(index);
    let index = place.open();
    assert_holds(&index, &model)?;
    for (key, value) in model.iter().take(model.len() / 2) {
        assert_eq!(index.remove(key.borrow())?, Some(*value));
    }
    assert!(index.insert(key.borrow(), 1)?, "there is room again");
    place.assert_intact(&index);
    Ok(())
}

/// The heap's bitmaps are damaged under an open index: each change that meets the damage says so. Whatever it says,
/// reads never fail for it, a key that was reported removed is gone, and the changes before it are there.
pub fn damaged_heap<I: OpenIndex>(place: &mut Place<I>, count: u64) -> Result<()>
where
    I::Key: TestKey,
{
    let index = place.open();
    let mut model: BTreeMap<KeyOf<I>, u64> = BTreeMap::new();
    for number in 0..count {
        let key = I::Key::numbered(number);
        index.insert(key.borrow(), number)?;
        model.insert(key, number);
    }
    let memory = place.store().memory().clone();
    let flip = |ranges: &[(PmAddr, u64)]| {
        for word in ranges.iter().flat_map(|(at, bytes)| (0..*bytes).step_by(8).map(|offset| at.plus(offset))) {
            memory.store(word, memory.load(word) ^ 0x100);
        }
    };
    let ranges = place.store().heap().metadata_ranges();
    flip(&ranges);
    let mut met = 0;
    for number in (0..count).rev().step_by(2).chain(count..count + 300) {
        let key = I::Key::numbered(number);
        let outcome = if number < count {
            index.remove(key.borrow()).map(drop)
        } else {
            index.insert(key.borrow(), number).map(drop)
        };
        met += u64::from(outcome.is_err());
        let found = index.get(key.borrow())?;
        // A change that met damage took effect or did not; one that did not meet it did.
        let after = (number >= count).then_some(number);
        assert!(
            found == after || (outcome.is_err() && found == model.get::<KeyOf<I>>(&key).copied()),
            "{found:?} for {number}"
        );
        match found {
            Some(found) => model.insert(key, found),
            None => model.remove::<KeyOf<I>>(&key),
        };
        for (key, value) in model.iter().take(5).chain(model.iter().rev().take(5)) {
            assert_eq!(index.get(key.borrow())?, Some(*value), "another key");
        }
    }
    assert_holds(&index, &model)?;
    assert!(met > 0, "no change met the damage");
    Ok(())
}
