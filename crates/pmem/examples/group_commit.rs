//! Measures the block domain: threads that store one line and wait until it is durable, beside a bare durable write.
//!
//! `cargo run --release -p lodestone-pmem --example group_commit -- FILE [threads] [milliseconds]`

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lodestone_pmem::storage::{FileStorage, Storage};
use lodestone_pmem::{DomainChoice, Pool, PoolOptions, process_counters};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: group_commit FILE [threads] [milliseconds]")?;
    let threads: u64 = arguments.next().map_or(Ok(8), |text| text.parse())?;
    let limit = Duration::from_millis(arguments.next().map_or(Ok(2000), |text| text.parse())?);
    bare(&format!("{path}.bare"), limit / 4)?;
    let options = PoolOptions {
        domain: DomainChoice::Block,
        size_bytes: 256 << 20,
        journal_bytes: 64 << 20,
        ..PoolOptions::default()
    };
    let pool = Pool::create(&path, &options)?;
    let (start, _) = pool.heap_area(0);
    let operations = AtomicU64::new(0);
    let before = process_counters();
    let clock = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (memory, operations) = (pool.memory(), &operations);
            scope.spawn(move || {
                let at = start.plus(thread * 1024);
                let mut count = 0;
                while clock.elapsed() < limit {
                    for line in 0..8 {
                        memory.store(at.plus(line * 64), count);
                        memory.flush(at.plus(line * 64), 8);
                    }
                    memory.fence();
                    if memory.durable().is_err() {
                        return;
                    }
                    count += 1;
                }
                operations.fetch_add(count, Ordering::Relaxed);
            });
        }
    });
    let (seconds, done) = (clock.elapsed().as_secs_f64(), operations.load(Ordering::Relaxed));
    let delta = process_counters() - before;
    println!(
        "{threads} threads: {:.0} durable operations/s, {:.4} syncs and {:.0} journal bytes per operation",
        done as f64 / seconds,
        delta.syncs as f64 / done as f64,
        delta.journal_bytes as f64 / done as f64
    );
    drop(pool);
    std::fs::remove_file(&path)?;
    Ok(())
}

/// The time of the device alone: 4 KiB durable overwrites, one after the other.
fn bare(path: &str, limit: Duration) -> Result<(), Box<dyn std::error::Error>> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
    file.write_all_at(&vec![0; 8 << 20], 0)?;
    file.sync_all()?;
    let (storage, page) = (FileStorage::new(file), [7; 4096]);
    let (clock, mut latencies) = (Instant::now(), Vec::new());
    while clock.elapsed() < limit {
        let start = Instant::now();
        storage.write_durably_at(&page, latencies.len() as u64 % 2048 * 4096)?;
        latencies.push(start.elapsed());
    }
    latencies.sort_unstable();
    let mean = clock.elapsed().as_secs_f64() / latencies.len() as f64;
    println!("bare 4 KiB durable write: p50 {:?}, mean {:.1} us", latencies[latencies.len() / 2], mean * 1e6);
    std::fs::remove_file(path)?;
    Ok(())
}
