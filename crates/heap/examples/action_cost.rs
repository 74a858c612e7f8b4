//! The cost of an action on this machine: it replaces the block of 108 bytes that a pointer names. Prints nanoseconds
//! per action, the best and the median of 50 batches. The best is the figure of an idle machine; the median shows other
//! load.
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
    let batch_actions = 20_000;
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let heap = &heap;
            scope.spawn(move || match replace_blocks(heap, batch_actions) {
                Ok((ns, flushes, fences)) => println!(
                    "thread {thread}: best {:.0} ns, median {:.0} ns, {flushes:.3} flushes, {fences:.3} fences per action",
                    ns[0],
                    ns[ns.len() / 2]
                ),
                Err(error) => println!("thread {thread}: {error}"),
            });
        }
    });
    Ok(())
}

/// Replaces the blocks of a table of pointers. Returns nanoseconds per action of each batch in ascending order, and
/// flushes and fences per action.
fn replace_blocks(heap: &Heap, batch_actions: u64) -> lodestone_heap::Result<(Vec<f64>, f64, f64)> {
    const BATCHES: u64 = 50;
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
    let mut state = 88_172_645_463_325_252_u64;
    let mut batches = Vec::new();
    for _ in 0..BATCHES {
        let start = Instant::now();
        for _ in 0..batch_actions {
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
        batches.push(start.elapsed().as_nanos() as f64 / batch_actions as f64);
    }
    let delta = counters.delta();
    let actions = (BATCHES * batch_actions) as f64;
    batches.sort_by(f64::total_cmp);
    Ok((batches, delta.flushes as f64 / actions, delta.fences as f64 / actions))
}
