//! The two hybrids side by side in one run, one thread, random `u64` keys:
//! `cargo run --release -p lodestone-index-bench --example hybrid -- POOL_FILE KEYS [PROFILE]`. With a profile of
//! `lodestone media` (`optane`) every access to the pool takes that medium's time, by spinning, and the figures are
//! emulated; without one the file's memory is what it is. The pool is created with the flush instructions of persistent
//! memory (`dax-emulated`: not durable on an ordinary file) and removed.
//!
//! Prints nanoseconds per operation of the thread's own processor time, lines and fences per operation, bytes per key,
//! and after closing and opening again the wall-clock times to the first point, to the first range and until everything
//! is warm.

use std::hint::black_box;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::time::Instant;

use lodestone_index::{
    Direction, Durability, FastFair, HashIndex, Hybrid, HybridPlus, OpenIndex, OrderedIndex, PointIndex, Recovery,
};
use lodestone_media::{MediaProfile, Model, TimeMode};
use lodestone_pmem::{CounterScope, DomainChoice, Medium, Pool, PoolOptions, Topology};
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

/// Nanoseconds of each operation.
fn timed(name: &str, what: &str, count: u64, mut operation: impl FnMut(u64)) -> f64 {
    let scope = CounterScope::start();
    let begun = processor_ns();
    (0..count).for_each(&mut operation);
    let each = (processor_ns() - begun) / count as f64;
    let delta = scope.delta();
    let per = |value: u64| value as f64 / count as f64;
    println!(
        "{name:<10} {what:<8} {each:>7.0} ns, {:.2} lines and {:.2} fences",
        per(delta.flushes),
        per(delta.fences)
    );
    each
}

fn points<I: PointIndex<Key = u64>>(name: &str, index: &I, count: u64) -> (f64, f64) {
    let insert = timed(name, "insert", count, |number| assert!(index.insert(&key(number), number).expect("insert")));
    let random = |number: u64| key(key(number ^ 0x5555) % count);
    // Before the reads, which leave what they touch in the processor's cache: not the same of each index.
    timed(name, "update", count / 4, |number| assert!(index.update(&random(number), 1).expect("update").is_some()));
    let read = timed(name, "read", count, |number| assert!(index.get(&random(number)).expect("get").is_some()));
    timed(name, "absent", count / 4, |number| assert!(index.get(&key(count + number)).expect("get").is_none()));
    (insert, read)
}

fn ranges<I: OrderedIndex<Key = u64>>(name: &str, index: &I, count: u64) {
    timed(name, "scan 100", count / 20, |number| {
        let mut seen = 0;
        let shown = index.scan(Bound::Included(&key(number)), Bound::Unbounded, Direction::Ascending, |_, value| {
            seen += 1;
            black_box(value);
            if seen == 100 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        shown.expect("scan");
    });
}

/// Opens the index again: times to the first answers.
fn reopen<I: OrderedIndex<Key = u64> + OpenIndex>(name: &str, store: &Store, warm: impl Fn(&I) -> Recovery) -> I {
    let begun = Instant::now();
    let index = I::open_index(store, name, &I::Options::default(), Durability::Sync).expect("an index");
    assert!(index.get(&key(0)).expect("get").is_some());
    let point = begun.elapsed();
    assert!(index.first().expect("first").is_some());
    let range = begun.elapsed();
    let recovery = warm(&index);
    println!("{name:<10} open     first point {point:.1?}, first range {range:.1?}; {recovery:?}");
    index
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, path, count, rest @ ..] = &arguments[..] else {
        return Err("usage: hybrid POOL_FILE KEYS [PROFILE]".into());
    };
    let count: u64 = count.parse()?;
    let mut options = PoolOptions {
        domain: DomainChoice::DaxEmulated,
        size_bytes: (64 << 20) + count * 240,
        ..PoolOptions::default()
    };
    if let Some(profile) = rest.first() {
        let model = Model::new(MediaProfile::resolve(profile)?, TimeMode::Spinning, &Topology::of_machine(), &[0]);
        println!("emulated medium: {}", model.label());
        options.medium = Some(Arc::clone(&model) as Arc<dyn Medium>);
    }
    let pool = Pool::create(path, &options)?;
    let store = Store::over(&pool)?;
    {
        let tree = FastFair::<u64>::open_index(&store, "fastfair", &Default::default(), Durability::Sync)?;
        points("fastfair", &tree, count);
        let hash = HashIndex::<u64>::open_index(&store, "hash", &Default::default(), Durability::Sync)?;
        points("hash", &hash, count);
    }
    let hybrid = Hybrid::<u64>::open_index(&store, "hybrid", &Default::default(), Durability::Sync)?;
    let (insert, read) = points("hybrid", &hybrid, count);
    ranges("hybrid", &hybrid, count);
    println!("{:?}", hybrid.stats());
    drop(hybrid);
    let plus = HybridPlus::<u64>::open_index(&store, "hybrid+", &Default::default(), Durability::Sync)?;
    let (insert_plus, read_plus) = points("hybrid+", &plus, count);
    ranges("hybrid+", &plus, count);
    println!("{:?}", plus.stats());
    drop(plus);
    println!(
        "point reads: HybridPlus is {:.2} times as fast; inserts take {:.2} times as long",
        read / read_plus,
        insert_plus / insert
    );
    drop(reopen::<Hybrid<u64>>("hybrid", &store, |index| {
        index.wait_warm().expect("warm");
        index.recovery()
    }));
    let plus = reopen::<HybridPlus<u64>>("hybrid+", &store, |index| {
        index.wait_warm().expect("warm");
        index.recovery()
    });
    let read = timed("hybrid+", "warm", count, |number| {
        assert!(plus.get(&key(key(number ^ 0x5555) % count)).expect("get").is_some());
    });
    println!("after the rebuild a read takes {:.2} times as long as before", read / read_plus);
    drop(plus);
    drop(store);
    drop(pool);
    std::fs::remove_file(path)?;
    Ok(())
}
