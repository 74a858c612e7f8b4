//! Raw speed of an index with `u64` keys on one thread, beside a B-tree in DRAM in the same run:
//! `cargo run --release -p lodestone-index-bench --example raw -- POOL_FILE KEYS [fastfair] [btreemap] [more]`. The
//! pool is created with the flush instructions of persistent memory (`dax-emulated`: not durable on an ordinary file)
//! and removed at the end.
//!
//! Prints thousands of operations per second of the thread's own processor time (as the kernel counts it, so that a
//! busy machine does less harm; waiting for memory counts) for random inserts, lookups, updates and scans of 100, and
//! lines and fences per insert; with `more` also two threads and a bulk load.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use lodestone_index::{Direction, Durability, FastFair, OpenIndex, OrderedIndex};
use lodestone_pmem::{CounterScope, DomainChoice, Pool, PoolOptions};
use lodestone_store::Store;

/// Scrambles numbers into keys, one to one.
fn key(number: u64) -> u64 {
    let mixed = (number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ (mixed >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93)
}

/// Nanoseconds that this thread has had a processor.
fn processor_ns() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("the kernel keeps scheduling statistics");
    text.split(' ').next().and_then(|first| first.parse().ok()).expect("a number of nanoseconds")
}

fn timed(name: &str, what: &str, count: u64, mut operation: impl FnMut(u64)) {
    let scope = CounterScope::start();
    let begun = processor_ns();
    (0..count).for_each(&mut operation);
    let thousands = count as f64 / (processor_ns() - begun) * 1e6;
    let delta = scope.delta();
    let per = |value: u64| value as f64 / count as f64;
    println!(
        "{name:<9} {what:<8} {thousands:>8.0} k/s, {:.2} lines and {:.2} fences each",
        per(delta.flushes),
        per(delta.fences)
    );
}

fn shuffled(count: u64, number: u64) -> u64 {
    key(number ^ 0x5555) % count
}

/// As [`timed`], on two threads, each with its half of the numbers: by the processor time of the thread that needed
/// more (as long as they would take with a processor each, but for waits in the kernel), and by the clock on the wall.
fn timed_by_two(name: &str, what: &str, count: u64, operation: impl Fn(u64) + Sync) {
    let begun = std::time::Instant::now();
    let times: Vec<f64> = std::thread::scope(|scope| {
        let halves = [0, 1].map(|half| {
            let operation = &operation;
            scope.spawn(move || {
                let begun = processor_ns();
                (half * count / 2..(half + 1) * count / 2).for_each(operation);
                processor_ns() - begun
            })
        });
        halves.into_iter().map(|half| half.join().expect("a thread")).collect()
    });
    let thousands = |ns: f64| count as f64 / ns * 1e6;
    let (processor, wall) = (times.into_iter().fold(0.0, f64::max), begun.elapsed().as_nanos() as f64);
    println!(
        "{name:<9} {what:<8} {:>8.0} k/s on two threads; {:.0} k/s by the clock on the wall",
        thousands(processor),
        thousands(wall)
    );
}

/// The same work on two threads, and a bulk load, in indexes of their own.
fn run_more<I: OpenIndex + OrderedIndex<Key = u64>>(name: &str, store: &Store, count: u64) {
    let open = |root: &str| I::open_index(store, root, &I::Options::default(), Durability::Sync).expect("an index");
    let index = open("two");
    timed_by_two(name, "insert", count, |number| assert!(index.insert(&key(number), number).expect("insert")));
    timed_by_two(name, "search", count, |number| {
        assert!(index.get(&key(shuffled(count, number))).expect("get").is_some());
    });
    timed_by_two(name, "scan 100", count / 20, |number| scan(&index, &key(shuffled(count, number))));
    drop(index);
    let (index, scope, begun) = (open("loaded"), CounterScope::start(), processor_ns());
    index.bulk_load((0..count).map(|number| (number << 8, number))).expect("a load");
    let (thousands, delta) = (count as f64 / (processor_ns() - begun) * 1e6, scope.delta());
    let per = |value: u64| value as f64 / count as f64;
    let (lines, fences) = (per(delta.flushes), per(delta.fences));
    println!("{name:<9} {:<8} {thousands:>8.0} k/s, {lines:.2} lines and {fences:.2} fences each", "load");
}

fn scan<I: OrderedIndex<Key = u64>>(index: &I, start: &u64) {
    let mut seen = 0;
    let shown = index.scan(Bound::Included(start), Bound::Unbounded, Direction::Ascending, |_, _| {
        seen += 1;
        if seen == 100 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    shown.expect("scan");
}

fn run<I: OpenIndex + OrderedIndex<Key = u64>>(name: &str, store: &Store, count: u64) {
    let index = I::open_index(store, name, &I::Options::default(), Durability::Sync).expect("an index");
    timed(name, "insert", count, |number| assert!(index.insert(&key(number), number).expect("insert")));
    timed(name, "search", count, |number| {
        assert!(index.get(&key(shuffled(count, number))).expect("get").is_some());
    });
    timed(name, "update", count / 4, |number| {
        assert!(index.update(&key(shuffled(count, number)), number).expect("update").is_some());
    });
    timed(name, "scan 100", count / 20, |number| scan(&index, &key(shuffled(count, number))));
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, path, count, rest @ ..] = &arguments[..] else { return Err("usage: raw POOL_FILE KEYS [INDEX]".into()) };
    let count: u64 = count.parse()?;
    let options = PoolOptions {
        domain: DomainChoice::DaxEmulated,
        size_bytes: (64 << 20) + count * 192,
        ..PoolOptions::default()
    };
    let pool = Pool::create(path, &options)?;
    let store = Store::over(&pool)?;
    let wanted = |name: &str| rest.is_empty() || rest.iter().any(|index| index == name);
    if wanted("fastfair") {
        run::<FastFair<u64>>("fastfair", &store, count);
    }
    if rest.iter().any(|word| word == "more") {
        run_more::<FastFair<u64>>("fastfair", &store, count);
    }
    if wanted("btreemap") {
        let mut map = BTreeMap::new();
        timed("btreemap", "insert", count, |number| assert!(map.insert(key(number), number).is_none()));
        timed("btreemap", "search", count, |number| assert!(map.contains_key(&key(shuffled(count, number)))));
        timed("btreemap", "scan 100", count / 20, |number| {
            let sum: u64 = map.range(key(shuffled(count, number))..).take(100).map(|(_, value)| value % 3).sum();
            assert!(sum < 1000);
        });
    }
    drop(store);
    drop(pool);
    std::fs::remove_file(path)?;
    Ok(())
}
