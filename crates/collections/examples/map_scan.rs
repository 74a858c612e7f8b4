//! A long snapshot of many entries while two threads write. It shows how often the scan restarted, and that it saw one
//! state.
//!
//! `cargo run --release -p lodestone-collections --example map_scan -- 1000000`
//!
//! Writers move amounts between entries, so every state adds up to the same.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use lodestone_collections::PmBTreeMap;
use lodestone_pmem::{DomainChoice, PoolOptions};
use lodestone_stm::Stm;
use lodestone_store::Store;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let entries: u64 = std::env::args().nth(1).map_or(Ok(1_000_000), |text| text.parse())?;
    let folder = tempfile::tempdir()?;
    let options =
        PoolOptions { domain: DomainChoice::Process, size_bytes: (64 << 20) + entries * 160, ..PoolOptions::default() };
    let stm = Stm::open(&Store::create(folder.path().join("scan.pool"), &options)?)?;
    let map = PmBTreeMap::<u64, i64>::open(&stm, "map")?;
    for first in (0..entries).step_by(1000) {
        stm.update(|tx| (first..entries.min(first + 1000)).try_for_each(|key| map.insert(tx, &key, &100).map(|_| ())))?;
    }
    let (done, written) = (&AtomicBool::new(false), &AtomicU64::new(0));
    let before = stm.stats();
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2_u64)
            .map(|thread| {
                let stm = &stm;
                scope.spawn(move || {
                    let mut state = thread + 1;
                    while !done.load(Ordering::Acquire) {
                        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                        let (from, to) = ((state >> 33) % entries, (state >> 20) % entries);
                        stm.update(|tx| {
                            let found = map.get(tx, &from)?.unwrap_or(0);
                            map.insert(tx, &from, &(found - 1))?;
                            let found = map.get(tx, &to)?.unwrap_or(0);
                            map.insert(tx, &to, &(found + 1)).map(|_| ())
                        })?;
                        written.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok::<(), lodestone_stm::Error>(())
                })
            })
            .collect();
        let began = Instant::now();
        let mut attempts = 0;
        let sum = stm.snapshot(|tx| {
            attempts += 1;
            if attempts > 20 {
                return tx.cancel("the scan began again 20 times");
            }
            let mut sum = 0;
            for entry in map.iter(tx)? {
                sum += entry?.1;
            }
            Ok(sum)
        });
        let seconds = began.elapsed().as_secs_f64();
        done.store(true, Ordering::Release);
        writers.into_iter().try_for_each(|writer| writer.join().expect("no panic"))?;
        println!(
            "{entries} entries, {} transactions beside the scan: {} aborts of the scan, {seconds:.2} s, {}",
            written.load(Ordering::Relaxed),
            stm.stats().conflicts_snapshot - before.conflicts_snapshot,
            match sum {
                Ok(sum) if sum == entries as i64 * 100 => "the sum is right".to_owned(),
                Ok(sum) => format!("WRONG SUM {sum}"),
                Err(error) => error.to_string(),
            }
        );
        Ok(())
    })
}
