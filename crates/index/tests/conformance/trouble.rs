//! Full pools, read-only pools, indexes that are open already, names of other things, and damaged bytes.

use std::borrow::Borrow;
use std::thread;
use std::time::{Duration, Instant};

use lodestone_index::{Error, HashIndex, HashOptions, OpenIndex, OrderedIndex, OrderedMap, Result};
use lodestone_pmem::Pool;
use lodestone_store::{Store, StoreOptions};

use super::{Place, TestKey, contents};

/// Fills the pool: the insert that finds no room says so and changes nothing, reads go on, removals make room again.
pub fn full_pool<I: OpenIndex + OrderedIndex>(place: &mut Place<I>) -> Result<()>
where
    I::Key: TestKey,
{
    let index = place.open();
    let (model, key) = super::fill(&index)?;
    assert_eq!(contents(&index)?, model.clone().into_iter().collect::<Vec<_>>());
    place.assert_intact(&index);
    let index = place.open_as_after_a_kill(index);
    place.assert_intact(&index);
    for (key, value) in model.iter().take(model.len() / 2) {
        assert_eq!(index.remove(key.borrow())?, Some(*value));
    }
    place.assert_intact(&index);
    assert!(insert_when_there_is_room(&index, key.borrow())?, "there is room again");
    place.assert_intact(&index);
    Ok(())
}

/// Blocks go back when no thread reads them any more, and the rebuild of an index may be one that does.
fn insert_when_there_is_room<I: OpenIndex + OrderedIndex>(index: &I, key: &I::Key) -> Result<bool> {
    let begun = Instant::now();
    loop {
        match index.insert(key, 1) {
            Err(error) if error.is_full() && begun.elapsed() < Duration::from_secs(20) => thread::yield_now(),
            outcome => return outcome,
        }
    }
}

/// A second index over the same blocks, another kind under the name, a read-only pool.
pub fn refusals<I: OpenIndex + OrderedIndex>(place: &mut Place<I>) -> Result<()>
where
    I::Key: TestKey,
{
    let index = place.open();
    let key = I::Key::numbered(40);
    index.insert(key.borrow(), 4)?;
    let again = I::open_index(place.store(), "index", &place.options, place.durability);
    assert!(matches!(again.err(), Some(Error::AlreadyOpen { .. })));
    drop(OrderedMap::open(place.store(), "map")?);
    drop(HashIndex::<u64>::open_with(place.store(), "hash", &HashOptions::small())?);
    // At most one of the two has the form of this index on the medium: `Hybrid` is a hash index there.
    let others = [("map", "an ordered map"), ("hash", "a hash index with words as keys")];
    let refused = others.map(|(name, text)| {
        let Err(other) = I::open_index(place.store(), name, &place.options, place.durability) else { return false };
        assert!(matches!(&other, Error::WrongKind { found, .. } if found == text), "{other}");
        assert!(other.to_string().contains(", not a"), "{other}");
        true
    });
    assert!(refused.contains(&true), "another kind is refused");
    let path = place.path();
    drop(index);
    drop(place.open());
    let options = place.pool.clone();
    let heap_options = place.heap_options.clone();
    place.store = None;
    let pool = Pool::open_read_only(&path, &options)?;
    let store = Store::over_with(&pool, &StoreOptions::with_heap(heap_options))?;
    let index = I::open_index(&store, "index", &place.options, place.durability)?;
    assert_eq!(index.get(key.borrow())?, Some(4));
    assert!(matches!(index.insert(key.borrow(), 5), Err(Error::ReadOnly { .. } | Error::Heap(_)) | Ok(false)));
    assert!(index.upsert(key.borrow(), 5).is_err());
    assert!(index.remove(key.borrow()).is_err());
    assert_eq!(contents(&index)?, vec![(key, 4)]);
    let missing = I::open_index(&store, "missing", &place.options, place.durability);
    assert!(matches!(missing.err(), Some(Error::ReadOnly { .. })));
    Ok(())
}

/// Flips bytes of the blocks that the index owns, one at a time, every `stride` words: a read returns the right value
/// or an error, never another value and never "absent", and nothing panics or runs for ever.
pub fn damage_is_never_an_answer<I: OpenIndex + OrderedIndex>(
    place: &mut Place<I>,
    count: u64,
    stride: u64,
) -> Result<()>
where
    I::Key: TestKey,
{
    let index = place.open();
    for number in 0..count {
        index.insert(I::Key::numbered(number).borrow(), number)?;
    }
    let blocks = index.check().blocks;
    let memory = place.store().memory().clone();
    let mut noticed = 0;
    for block in blocks {
        let bytes = place.store().heap().block_bytes(block).expect("an allocated block");
        for word in (0..bytes / 8).step_by(stride as usize) {
            let at = block.plus(word * 8);
            let good = memory.load(at);
            memory.store(at, good ^ 0x10 << (word % 8 * 8));
            let mut errors = 0;
            for number in 0..count {
                match index.get(I::Key::numbered(number).borrow()) {
                    Ok(found) => assert_eq!(found, Some(number), "word {word} of the block at {block} is damaged"),
                    Err(_) => errors += 1,
                }
            }
            match contents(&index) {
                Ok(all) => assert_eq!(all.len() as u64, count, "word {word} of the block at {block} is damaged"),
                Err(_) => errors += 1,
            }
            noticed += u64::from(errors > 0);
            memory.store(at, good);
        }
    }
    assert!(noticed > 0, "some of that must be in use");
    place.assert_intact(&index);
    Ok(())
}
