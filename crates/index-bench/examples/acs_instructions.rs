//! Instructions that a read costs which leaves the cache alone, or, with `serial`, which mostly misses it and fills it:
//! `cargo run --release -p lodestone-index-bench --example acs_instructions -- bare|adaptive|serial READS`.
//!
//! The index is an array, whose reads cost next to nothing; they are uniform, so the adaptive cache of a tenth of the
//! keys is not asked but for its sample. Count the instructions of both ways with twice the reads, and take the
//! differences, by `perf stat -e instructions` where the machine has counters, else by:
//!
//! ```text
//! valgrind --tool=callgrind --callgrind-out-file=/dev/null target/release/examples/acs_instructions adaptive 2000000
//! ```

use lodestone_index::{Acs, CacheMode, CacheOptions, IndexReport, PointIndex, Result, Swap};
use lodestone_workload::random::mix64;

const KEYS: u64 = 100_000;

/// Key `n` has value `n`.
struct Array(Vec<u64>);

impl PointIndex for Array {
    type Key = u64;

    fn get(&self, key: &u64) -> Result<Option<u64>> {
        Ok(self.0.get(*key as usize).copied())
    }

    fn insert(&self, _: &u64, _: u64) -> Result<bool> {
        Ok(false)
    }

    fn update(&self, _: &u64, _: u64) -> Result<Option<u64>> {
        Ok(None)
    }

    fn upsert(&self, _: &u64, _: u64) -> Result<Option<u64>> {
        Ok(None)
    }

    fn remove(&self, _: &u64) -> Result<Option<u64>> {
        Ok(None)
    }

    fn compare_and_swap(&self, _: &u64, _: u64, _: u64) -> Result<Swap> {
        Ok(Swap::Absent)
    }

    fn len(&self) -> Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn key_bytes_max(&self) -> usize {
        8
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn check(&self) -> IndexReport {
        IndexReport::default()
    }
}

fn run(index: &impl PointIndex<Key = u64>, reads: u64) -> Result<u64> {
    (0..reads).try_fold(0, |sum: u64, number| Ok(sum.wrapping_add(index.get(&(mix64(number) % KEYS))?.unwrap_or(0))))
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, way, reads] = &arguments[..] else {
        return Err("usage: acs_instructions bare|adaptive|serial READS".into());
    };
    let (reads, array) = (reads.parse()?, Array((0..KEYS).collect()));
    if way == "bare" {
        println!("sum {}", run(&array, reads)?);
        return Ok(());
    }
    let mode = if way == "serial" { CacheMode::Serial } else { CacheMode::Adaptive };
    let options = CacheOptions { seed: Some(1), ..CacheOptions::default() };
    let cached = Acs::new(array, &options.with_mode(mode).with_entries(KEYS as usize / 10))?;
    println!("sum {}, {:?}", run(&cached, reads)?, cached.stats());
    Ok(())
}
