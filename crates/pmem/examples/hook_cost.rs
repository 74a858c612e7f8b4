//! One persist of 64 bytes, over and over. `cargo xtask hook-cost` runs it with and without the hooks of `Memory`.
//!
//! usage: hook_cost COUNT
//!
//! Writes a line, flushes it and fences, in a scratch range that stays in the cache; prints nanoseconds per round. The
//! count is also what an instruction counter divides by.

use std::hint::black_box;
use std::time::Instant;

use lodestone_pmem::{Memory, PmAddr};

/// Lines that are written in turn: small enough for the first-level cache.
const LINES: u64 = 64;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let count: u64 = std::env::args().nth(1).ok_or("usage: hook_cost COUNT")?.parse()?;
    let memory = Memory::anonymous(LINES * 64)?;
    let bytes = black_box([0xA5; 64]);
    let start = Instant::now();
    for round in 0..count {
        let at = PmAddr::new(0, round % LINES * 64);
        memory.write(at, black_box(&bytes));
        // Nothing follows that could overtake: the persist itself is measured.
        memory.persist(at, 64);
    }
    println!("{}", start.elapsed().as_nanos() as f64 / count.max(1) as f64);
    Ok(())
}
