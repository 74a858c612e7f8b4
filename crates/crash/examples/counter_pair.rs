//! Two counters that must never differ: a wrong way that looks right, and a right way.
//!
//! `cargo run -p lodestone-crash --example counter_pair` explores both with closures ([`Explore`]) and prints its
//! findings. In your own test the last line would be `.run().expect_clean()`.

use lodestone_crash::{Explore, Failure, History, Outcome};
use lodestone_pmem::{PmAddr, Pool};

/// Line `index` of the structure, which begins at the start of the heap area.
fn line(pool: &Pool, index: u64) -> PmAddr {
    pool.heap_area(0).0.plus(index * 64)
}

/// Wrong: two lines in place. Everything is flushed and fenced, but a crash between them still shows.
fn add_in_place(pool: &Pool) -> Outcome {
    let memory = pool.memory();
    for index in [1, 2] {
        let at = line(pool, index);
        memory.store(at, memory.load(at) + 1);
        memory.flush(at, 8);
    }
    memory.fence();
    Ok(())
}

/// Right: first a record of the new values. Recovery applies a record that it finds.
fn add_by_record(pool: &Pool) -> Outcome {
    let (memory, record) = (pool.memory(), line(pool, 0));
    let (first, second) = (memory.load(line(pool, 1)) + 1, memory.load(line(pool, 2)) + 1);
    // One line persists in program order: the valid word is last and is never there without the values before it.
    memory.store(record, first);
    memory.store(record.plus(8), second);
    memory.store(record.plus(16), 1);
    // The stores in place may not overtake the record that repairs them.
    memory.persist(record, 24);
    apply(pool, first, second);
    Ok(())
}

fn apply(pool: &Pool, first: u64, second: u64) {
    let memory = pool.memory();
    memory.store(line(pool, 1), first);
    memory.store(line(pool, 2), second);
    memory.flush(line(pool, 1), 8);
    memory.flush(line(pool, 2), 8);
    // The record may not be removed before the stores in place are persistent.
    memory.fence();
    // No flush: the next record's words are in the same line, after this one.
    memory.store(line(pool, 0).plus(16), 0);
}

/// Applies the record that a crash left. It may itself crash, because it removes the record last.
fn recover(pool: &Pool) -> Outcome {
    let (memory, record) = (pool.memory(), line(pool, 0));
    if memory.load(record.plus(16)) == 1 {
        apply(pool, memory.load(record), memory.load(record.plus(8)));
    }
    Ok(())
}

/// After recovery the counters are equal, no acknowledged operation is lost, and none is there that never began.
fn check(pool: &Pool, history: &History) -> Outcome {
    let (first, second) = (pool.memory().load(line(pool, 1)), pool.memory().load(line(pool, 2)));
    Failure::unless(first == second, || format!("the counters differ: {first} and {second}"))?;
    let (acked, begun) = (history.acked().len() as u64, history.begun().len() as u64);
    Failure::unless((acked..=begun).contains(&first), || {
        format!("{acked} operations were acknowledged, {begun} begun, the counters say {first}")
    })
}

fn main() -> Outcome {
    let wrong = Explore::new("in-place").op("add", add_in_place).op("add", add_in_place).check(check);
    println!("{}\n", wrong.run());
    let right = Explore::new("by-record").op("add", add_by_record).op("add", add_by_record);
    let right = right.recover(recover).check(check);
    println!("{}\n", right.run().expect_exhausted());
    println!("{}", right.audit()?.expect_clean());
    Ok(())
}
