//! What an action costs on this machine: replace a block of 108 bytes behind a pointer, in nanoseconds per action.
//!
//! `cargo run --release -p lodestone-heap --example action_cost -- [process|dax-emulated|block] [threads]`

use std::time::Instant;

use lodestone_heap::{Heap, HeapOptions};
use lodestone_pmem::{CounterScope, DomainChoice, Pool, PoolOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let domain: DomainChoice = arguments.next().as_deref().unwrap_or("process").parse()?;
    let threads: u64 = arguments.next().as_deref().unwrap_or("1").parse()?;
    let folder = tempfile::tempdir()?;
    let options = PoolOptions { domain, size_bytes: 256 << 20, reserve_bytes: 1 << 32, ..PoolOptions::default() };
    let pool = Pool::create(folder.path().join("heap.pool"), &options)?;
    let heap = Heap::open(&pool, &HeapOptions::default())?;
    let actions = 1_000_000;
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let heap = &heap;
            scope.spawn(move || match replace_blocks(heap, actions) {
                Ok((ns, flushes, fences)) => {
                    println!("thread {thread}: {ns:.0} ns, {flushes:.3} flushes, {fences:.3} fences per action");
                }
                Err(error) => println!("thread {thread}: {error}"),
            });
        }
    });
    Ok(())
}

/// Replaces blocks behind a table of pointers; gives nanoseconds, flushes and fences per action.
fn replace_blocks(heap: &Heap, actions: u64) -> lodestone_heap::Result<(f64, f64, f64)> {
    const SLOTS: u64 = 4096;
    let mut blocks = Vec::new();
    let mut action = heap.action();
    let table = action.alloc_zeroed(SLOTS * 8)?;
    action.commit()?;
    for slot in 0..SLOTS {
        let mut action = heap.action();
        let at = action.alloc(108)?;
        action.set(table.plus(slot * 8), at.to_raw());
        action.commit()?;
        blocks.push(at);
    }
    let counters = CounterScope::start();
    let start = Instant::now();
    let mut state = 88_172_645_463_325_252_u64;
    for _ in 0..actions {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let slot = state % SLOTS;
        let mut action = heap.action();
        let fresh = action.alloc(108)?;
        action.set(table.plus(slot * 8), fresh.to_raw());
        action.free(blocks[slot as usize])?;
        action.commit()?;
        blocks[slot as usize] = fresh;
    }
    let ns = start.elapsed().as_nanos() as f64 / actions as f64;
    let delta = counters.delta();
    Ok((ns, delta.flushes as f64 / actions as f64, delta.fences as f64 / actions as f64))
}
