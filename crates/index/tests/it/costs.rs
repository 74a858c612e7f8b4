//! Lines flushed and fences of every kind of change of every index, with words and with strings as keys, against the
//! figures that the modules argue. Counts are exact, so each change that costs more shows here.

use std::borrow::Borrow;
use std::collections::BTreeMap;

use crate::conformance::{Place, TestKey};
use lodestone_index::{
    FastFair, FastFairOptions, FpTree, HashIndex, HashOptions, OpenIndex, OrderedIndex, Result, SkipList,
    SkipListOptions, TreeOptions,
};
use lodestone_pmem::CounterScope;

const COUNT: u64 = 3000;

/// Lines and fences per operation, times 100.
type Cost = (u64, u64);

fn cost(operation: impl Fn(u64)) -> Cost {
    let scope = CounterScope::start();
    (100..100 + COUNT).for_each(operation);
    (scope.delta().flushes * 100 / COUNT, scope.delta().fences * 100 / COUNT)
}

/// The costs of inserts (structure changes included), updates, and the removal of every fourth key (few merges).
fn costs<I: OpenIndex>(name: &str, options: I::Options) -> [Cost; 3]
where
    I::Key: TestKey,
{
    let index = Place::<I>::new(16 << 20, options).open();
    let key = <I::Key as TestKey>::numbered;
    let insert = cost(|number| assert!(index.insert(key(number).borrow(), 1).expect("insert")));
    let update = cost(|number| assert_eq!(index.update(key(number).borrow(), 2).expect("update"), Some(1)));
    let read = cost(|number| assert_eq!(index.get(key(number).borrow()).expect("get"), Some(2)));
    assert_eq!(read, (0, 0), "{name}: a read flushes nothing");
    let remove = cost(|number| {
        if number % 4 == 0 {
            assert_eq!(index.remove(key(number).borrow()).expect("remove"), Some(2));
        }
    });
    let remove = (4 * remove.0, 4 * remove.1);
    println!("{name}: insert {insert:?}, update {update:?}, remove {remove:?} hundredths of lines and fences");
    [insert, update, remove]
}

fn at_most(name: &str, found: Cost, lines: u64, fences: u64) {
    assert!(found.0 <= lines && found.1 <= fences, "{name}: {found:?} hundredths, argued are {lines} and {fences}");
    assert!(found.1 >= 100, "{name}: {found:?}: a durable change has a fence");
}

#[test]
fn words() {
    let [insert, update, remove] = costs::<FastFair<u64>>("fastfair", FastFairOptions::default());
    at_most("fastfair insert", insert, 260, 190);
    assert_eq!((update, remove), ((100, 100), (100, 100)), "fastfair");
    let [insert, update, remove] = costs::<FpTree<u64>>("fptree", TreeOptions::default());
    at_most("fptree insert", insert, 200, 145);
    assert_eq!((update, remove), ((100, 100), (100, 100)), "fptree");
    let [insert, update, remove] = costs::<HashIndex<u64>>("hash", HashOptions::default());
    at_most("hash insert", insert, 120, 115);
    assert_eq!((update, remove), ((100, 100), (100, 100)), "hash");
    let [insert, update, remove] = costs::<SkipList<u64>>("skiplist", SkipListOptions::default());
    at_most("skiplist insert", insert, 520, 410);
    assert_eq!(update, (100, 100), "skiplist");
    at_most("skiplist remove", remove, 410, 310);
}

/// An insert or a removal of a string also allocates or frees a block: one action of the heap.
#[test]
fn strings() {
    let [insert, update, remove] = costs::<FastFair<[u8]>>("fastfair", FastFairOptions::default());
    at_most("fastfair insert", insert, 860, 540);
    assert_eq!(update, (100, 100), "fastfair");
    at_most("fastfair remove", remove, 410, 310);
    let [insert, update, remove] = costs::<FpTree<[u8]>>("fptree", TreeOptions::default());
    at_most("fptree insert", insert, 770, 430);
    assert_eq!(update, (100, 100), "fptree");
    at_most("fptree remove", remove, 410, 310);
    let [insert, update, remove] = costs::<HashIndex<[u8]>>("hash", HashOptions::default());
    at_most("hash insert", insert, 650, 410);
    assert_eq!(update, (100, 100), "hash");
    at_most("hash remove", remove, 410, 310);
    let [insert, update, remove] = costs::<SkipList<[u8]>>("skiplist", SkipListOptions::default());
    at_most("skiplist insert", insert, 560, 410);
    assert_eq!(update, (100, 100), "skiplist");
    at_most("skiplist remove", remove, 410, 310);
}

/// Read-modify-writes of shared memory per read and per update, of 3000 of each.
fn shared<I: OpenIndex>(options: I::Options) -> [u64; 2]
where
    I::Key: TestKey,
{
    let index = Place::<I>::new(16 << 20, options).open();
    let key = <I::Key as TestKey>::numbered;
    (0..COUNT).for_each(|number| assert!(index.insert(key(number).borrow(), 1).expect("insert")));
    let scope = CounterScope::start();
    (0..COUNT).for_each(|number| assert_eq!(index.get(key(number).borrow()).expect("get"), Some(1)));
    let reads = scope.delta().shared_rmws;
    let scope = CounterScope::start();
    (0..COUNT).for_each(|number| assert_eq!(index.update(key(number).borrow(), 2).expect("update"), Some(1)));
    [reads, scope.delta().shared_rmws]
}

/// Reads write nothing that another thread reads; an update takes one lock. An index with a lock for readers says so.
#[test]
fn reads_share_nothing() {
    assert_eq!(shared::<FpTree<u64>>(TreeOptions::default()), [0, COUNT]);
    assert_eq!(shared::<FpTree<[u8]>>(TreeOptions::default()), [0, COUNT]);
    assert_eq!(shared::<HashIndex<u64>>(HashOptions::default()), [0, COUNT]);
    assert_eq!(shared::<HashIndex<[u8]>>(HashOptions::default()), [0, COUNT]);
    assert_eq!(shared::<SkipList<u64>>(SkipListOptions::default())[0], 0);
    assert_eq!(shared::<SkipList<[u8]>>(SkipListOptions::default())[0], 2 * COUNT, "a read-write lock");
}

/// A bulk load writes leaves, or stretches of a list, not keys.
#[test]
fn loads() -> Result<()> {
    fn load<I: OpenIndex + OrderedIndex>(name: &str, options: I::Options, lines: u64, fences: u64) -> Result<()>
    where
        I::Key: TestKey,
    {
        let mut place = Place::<I>::new(16 << 20, options);
        let index = place.open();
        let sorted: BTreeMap<_, _> =
            (0..COUNT).map(|number| (<I::Key as TestKey>::numbered(number * 3), number)).collect();
        let scope = CounterScope::start();
        assert_eq!(index.bulk_load(sorted)?, COUNT);
        let found = (scope.delta().flushes * 100 / COUNT, scope.delta().fences * 100 / COUNT);
        println!("{name}: load {found:?} hundredths of lines and fences");
        assert!(
            found.0 <= lines && found.1 <= fences,
            "{name}: {found:?} hundredths of lines and fences per loaded key"
        );
        place.assert_intact(&index);
        Ok(())
    }
    load::<FastFair<u64>>("fastfair", FastFairOptions::default(), 85, 24)?;
    load::<FpTree<u64>>("fptree", TreeOptions::default(), 15, 14)?;
    load::<FpTree<[u8]>>("fptree, strings", TreeOptions::default(), 200, 20)?;
    load::<SkipList<u64>>("skiplist", SkipListOptions::default(), 125, 5)?;
    load::<SkipList<[u8]>>("skiplist, strings", SkipListOptions::default(), 225, 5)
}
