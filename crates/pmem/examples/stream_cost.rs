//! The cost of the store fence that every stream ends with: pieces of several sizes, streamed with a fence after each,
//! with one fence for eight, and as one call for eight.
//!
//! ```text
//! cargo run --release -p lodestone-pmem --example stream_cost
//! ```

use std::time::Instant;

use lodestone_pmem::{Memory, PmAddr};

const MEMORY_BYTES: u64 = 64 << 20;
const PIECES: u64 = 8;
const ROUNDS: u64 = 2_000;
const REPETITIONS: usize = 30;

/// Least nanoseconds per piece of `work`, which streams eight pieces from piece `first` on.
fn measure(mut work: impl FnMut(u64)) -> f64 {
    let mut least = f64::MAX;
    for _ in 0..REPETITIONS {
        let started = Instant::now();
        (0..ROUNDS).for_each(|round| work(round * PIECES));
        least = least.min(started.elapsed().as_nanos() as f64 / (ROUNDS * PIECES) as f64);
    }
    least
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let memory = Memory::anonymous(MEMORY_BYTES)?;
    memory.zero(PmAddr::NULL, MEMORY_BYTES);
    println!("{:?}, {PIECES} pieces in a row; ns per piece", memory.instructions().1);
    println!("{:>8} {:>14} {:>18} {:>14}", "bytes", "fence for each", "fence for eight", "stream_each");
    for bytes in [64, 256, 512, 4096] {
        let source = vec![0x5A; bytes];
        let place = |piece: u64| PmAddr::new(0, piece * 40_503 % (MEMORY_BYTES / 4096) * 4096);
        let each = measure(|first| {
            for piece in first..first + PIECES {
                memory.stream(place(piece), &source);
                // Nothing is ordered here and below: the fence is measured.
                memory.fence();
            }
        });
        let eight = measure(|first| {
            (first..first + PIECES).for_each(|piece| memory.stream(place(piece), &source));
            memory.fence();
        });
        let together = measure(|first| {
            let pieces: [_; PIECES as usize] = std::array::from_fn(|piece| (place(first + piece as u64), &source[..]));
            memory.stream_each(&pieces);
            memory.fence();
        });
        println!("{bytes:>8} {each:>14.1} {eight:>18.1} {together:>14.1}");
    }
    Ok(())
}
