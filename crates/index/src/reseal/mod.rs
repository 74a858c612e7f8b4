//! Nodes that verify and are wrong all the same: a word of an index that holds keys is changed and sealed again, then
//! the index is opened, checked, read and changed. Nothing panics, nothing hangs.
//!
//! 1. A pool is made once for each layer: the index with some hundred keys in nodes as small as they can be, beside a
//!    map whose blocks belong to another owner. Its words are sorted by kind ([`sites`]).
//! 2. A case changes one to three of them: to a neighbour's value, to an address of the pool, to a number that upsets
//!    arithmetic; and computes the right checksum.
//! 3. Every answer is compared with that of the undamaged index, and the fate is counted by the kind of word. Only a
//!    changed value may lead to a wrong answer that the check does not report.
//!
//! `LODESTONE_HOSTILE_CASES=100000 cargo test -p lodestone-index --lib reseal` runs many cases for each layer; a failed
//! case prints the command that shows it again.

mod layers;
mod sites;
mod subject;

use std::collections::BTreeMap;

use lodestone_crash::hostile::{Fate, Layer, Numbers, Tally};
use lodestone_heap::HeapOptions;
use lodestone_pmem::{Domain, DomainChoice, Memory, PmAddr, Pool, PoolOptions};
use lodestone_store::{Store, StoreOptions};

use crate::OrderedMap;
use crate::error::Result;
use crate::scan::Direction;
use sites::{Sites, damage};
use subject::Subject;

const POOL_BYTES: u64 = 256 << 10;
const COMMAND: &str = "cargo test -p lodestone-index --lib reseal::layers::";

/// Keys, as bytes, with their values.
type Model = BTreeMap<Vec<u8>, u64>;

/// How a layer's index is opened, or made.
type Open = fn(&Store) -> Result<Box<dyn Subject>>;

/// A pool with an index in use.
struct Sound {
    image: Vec<u8>,
    model: Model,
    /// Keys that are not in it, between and beside those that are.
    absent: Vec<Vec<u8>>,
    sites: Sites,
    /// Blocks that are not the index's.
    others: Vec<PmAddr>,
    is_ordered: bool,
}

fn options() -> PoolOptions {
    PoolOptions { domain: DomainChoice::Process, size_bytes: POOL_BYTES, journal_bytes: 0, ..PoolOptions::default() }
}

fn heap_options() -> HeapOptions {
    let mut options = HeapOptions::small();
    (options.chunk_bytes, options.zone_chunks, options.lane_bytes) = (4096, 16, 1024);
    options
}

fn memory() -> Memory {
    Memory::anonymous_with(&[POOL_BYTES], Domain::Process, None).expect("memory")
}

fn sound(open: Open, keys: &[Vec<u8>], is_ordered: bool) -> Sound {
    let memory = memory();
    let pool = Pool::create_on(memory.clone(), &options()).expect("a fresh pool");
    let store = Store::over_with(&pool, &StoreOptions::with_heap(heap_options())).expect("a fresh heap");
    let other = OrderedMap::open(&store, "other").expect("another map");
    for number in 0..12_u64 {
        other.insert(&number.to_be_bytes(), &[7; 20]).expect("room");
    }
    let mut others = other.check().blocks;
    drop(other);
    let index = open(&store).expect("a fresh index");
    let (mut model, mut absent) = (Model::new(), Vec::new());
    for (number, key) in keys.iter().enumerate() {
        if number % 4 == 3 {
            absent.push(key.clone());
        } else {
            index.put(key, number as u64 * 5).expect("room");
            model.insert(key.clone(), number as u64 * 5);
        }
    }
    for key in model.keys().step_by(9).cloned().collect::<Vec<_>>() {
        index.take(&key).expect("it is there");
        model.remove(&key);
    }
    let report = index.check();
    assert!(report.is_intact(), "{:?}", report.findings);
    others.extend(store.own_blocks());
    let sites = Sites::collect(store.heap(), &report.blocks);
    drop((index, store, pool));
    let mut image = vec![0; POOL_BYTES as usize];
    memory.read(PmAddr::new(0, 0), &mut image);
    Sound { image, model, absent, sites, others, is_ordered }
}

/// The answers of an index beside those of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Answers {
    Same,
    Failed,
    Wrong,
}

fn judge<T: PartialEq>(answer: Result<T>, expected: &T) -> Answers {
    match answer {
        Ok(found) if found == *expected => Answers::Same,
        Ok(_) => Answers::Wrong,
        Err(_) => Answers::Failed,
    }
}

/// Asks for every key, some that are not there, and ranges.
fn ask_all(index: &dyn Subject, sound: &Sound, numbers: &mut Numbers) -> Answers {
    let mut worst = Answers::Same;
    for (key, value) in &sound.model {
        worst = worst.max(judge(index.get(key), &Some(*value)));
    }
    for key in &sound.absent {
        worst = worst.max(judge(index.get(key), &None));
    }
    worst = worst.max(judge(index.len(), &(sound.model.len() as u64)));
    for direction in [Direction::Ascending, Direction::Descending] {
        let all: Vec<(&Vec<u8>, &u64)> = sound.model.iter().collect();
        let (from, to) = (numbers.below(all.len() as u64) as usize, numbers.below(all.len() as u64) as usize);
        let bounds = [None, Some((all[from.min(to)].0.clone(), all[from.max(to)].0.clone()))];
        for between in bounds {
            let inside = |key: &Vec<u8>| between.as_ref().is_none_or(|(from, to)| from <= key && key < to);
            let mut expected: Vec<(Vec<u8>, u64)> =
                all.iter().filter(|(key, _)| inside(key)).map(|(key, value)| ((*key).clone(), **value)).collect();
            if direction == Direction::Descending {
                expected.reverse();
            }
            let found = index.list(direction, between.as_ref()).map(|mut found| {
                if !sound.is_ordered {
                    found.retain(|(key, _)| inside(key));
                    found.sort();
                    expected.sort();
                }
                found
            });
            worst = worst.max(judge(found, &expected));
        }
    }
    worst
}

/// Inserts, updates and removes; errors are answers.
fn change(index: &dyn Subject, sound: &Sound, numbers: &mut Numbers) {
    let present: Vec<&Vec<u8>> = sound.model.keys().collect();
    // Neighbours, so that nodes fill and empty.
    let (first, added) =
        (numbers.below(present.len() as u64) as usize, numbers.below(sound.absent.len() as u64) as usize);
    let turn = numbers.below(2);
    for step in 0..24 {
        if turn == 0 {
            let _ = index.take(present[(first + step) % present.len()]);
        } else {
            let _ = index.put(&sound.absent[(added + step) % sound.absent.len()], 1);
        }
        if step % 6 == 0 {
            let _ = index.put(present[(first + step) % present.len()], 2);
            let _ = index.take(&sound.absent[(added + step) % sound.absent.len()]);
        }
    }
}

fn store_over(memory: &Memory) -> Store {
    let pool = Pool::open_on(memory.clone(), &options()).expect("the pool is sound");
    Store::over_with(&pool, &StoreOptions::with_heap(heap_options())).expect("the heap is sound")
}

fn run_case(sound: &Sound, open: Open, numbers: &mut Numbers) -> (&'static str, Fate) {
    let memory = memory();
    memory.write(PmAddr::new(0, 0), &sound.image);
    let mut kind = damage(&memory, &sound.sites, numbers);
    for _ in 0..numbers.below(6) / 4 {
        damage(&memory, &sound.sites, numbers);
        kind = "several";
    }
    let store = store_over(&memory);
    let Ok(index) = open(&store) else { return (kind, Fate::Refused) };
    // In a third of the cases a search is the first that comes to the damage.
    let early = (numbers.below(3) == 0).then(|| ask_all(&*index, sound, numbers));
    let report = index.check();
    // As a check of the pool does: a block that the index names no more has leaked.
    let owners = store.heap().check(Some(&mut report.blocks.iter().chain(&sound.others).copied()));
    let reported = !report.is_intact() || !owners.is_clean();
    let answers = early.unwrap_or(Answers::Same).max(ask_all(&*index, sound, numbers));
    change(&*index, sound, numbers);
    if numbers.below(3) == 0 {
        let _ = (index.check(), ask_all(&*index, sound, numbers));
    }
    drop(index);
    if numbers.below(4) == 0
        && let Ok(index) = open(&store)
    {
        let _ = index.check();
        change(&*index, sound, numbers);
    }
    let fate = match answers {
        Answers::Same => Fate::Same { reported },
        Answers::Failed => Fate::Failed { reported },
        Answers::Wrong => Fate::Wrong { reported },
    };
    (kind, fate)
}

fn run(name: &'static str, cases: u64, open: Open, keys: &[Vec<u8>], is_ordered: bool) -> Tally {
    let sound = sound(open, keys, is_ordered);
    let layer = Layer { name, command: COMMAND, cases, seed: 0x1DE_0000, seconds_max: 60 };
    layer.run(|numbers| run_case(&sound, open, numbers))
}
