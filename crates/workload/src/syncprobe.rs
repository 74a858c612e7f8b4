//! The cost of one device sync on this machine, for comparison with every figure of synced writes.
//!
//! 1. Write a file of [`FILE_BLOCKS`] blocks of 4 KiB and sync it, so that blocks are allocated.
//! 2. Overwrite one random block and call `fdatasync`. Time both together, and repeat.
//! 3. Remove the file.
//!
//! Overwriting allocated blocks needs no metadata, so this is the cheapest sync that a file system offers.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde_json::{Map, Value};

use crate::random::Random;

/// Blocks of the probe file.
pub const FILE_BLOCKS: u64 = 1_024;
const BLOCK_BYTES: u64 = 4_096;
/// Latencies above this are noted as this value: one hour.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;

/// Latency of a 4 KiB overwrite with `fdatasync`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SyncLatency {
    /// Measured overwrites.
    pub samples: u64,
    /// Mean, in nanoseconds.
    pub mean_ns: f64,
    /// Median, in nanoseconds.
    pub p50_ns: u64,
    /// 99th percentile, in nanoseconds.
    pub p99_ns: u64,
    /// Longest, in nanoseconds.
    pub max_ns: u64,
}

impl SyncLatency {
    /// Measures in `folder` until `samples` overwrites or `time_limit`, whichever comes first (at least one sample).
    ///
    /// # Errors
    /// If the probe file cannot be written or synced. The error names the file.
    pub fn measure(folder: &Path, samples: u64, time_limit: Duration) -> io::Result<Self> {
        let probe = Probe::create(folder)?;
        probe.run(samples, time_limit).map_err(|error| probe.explain(&error))
    }

    /// Adds `fdatasync_ns_mean`, `_p50`, `_p99` and `_max` to a result's extra figures.
    pub fn add_to(&self, extra: &mut Map<String, Value>) {
        extra.insert("fdatasync_ns_mean".into(), (self.mean_ns.round() as u64).into());
        extra.insert("fdatasync_ns_p50".into(), self.p50_ns.into());
        extra.insert("fdatasync_ns_p99".into(), self.p99_ns.into());
        extra.insert("fdatasync_ns_max".into(), self.max_ns.into());
    }
}

struct Probe {
    path: PathBuf,
    file: File,
}

impl Probe {
    fn create(folder: &Path) -> io::Result<Self> {
        let path = folder.join(format!(".sync-probe-{}", std::process::id()));
        let file = OpenOptions::new().write(true).create_new(true).open(&path);
        let file = file.map_err(|error| explain(&path, &error))?;
        Ok(Self { path, file })
    }

    fn run(&self, samples: u64, time_limit: Duration) -> io::Result<SyncLatency> {
        let mut block = [0xA5_u8; BLOCK_BYTES as usize];
        for number in 0..FILE_BLOCKS {
            self.file.write_all_at(&block, number * BLOCK_BYTES)?;
        }
        self.file.sync_all()?;
        let mut random = Random::new(1);
        let mut histogram = Histogram::<u64>::new_with_bounds(1, LATENCY_NS_MAX, 3).map_err(io::Error::other)?;
        let begin = Instant::now();
        loop {
            let number = random.below(FILE_BLOCKS);
            block[..8].copy_from_slice(&histogram.len().to_le_bytes());
            let start = Instant::now();
            self.file.write_all_at(&block, number * BLOCK_BYTES)?;
            self.file.sync_data()?;
            histogram.saturating_record(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
            if histogram.len() >= samples || begin.elapsed() >= time_limit {
                break;
            }
        }
        Ok(SyncLatency {
            samples: histogram.len(),
            mean_ns: histogram.mean(),
            p50_ns: histogram.value_at_quantile(0.5),
            p99_ns: histogram.value_at_quantile(0.99),
            max_ns: histogram.max(),
        })
    }

    fn explain(&self, error: &io::Error) -> io::Error {
        explain(&self.path, error)
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        // A leftover probe file is harmless, and `drop` cannot report an error.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn explain(path: &Path, error: &io::Error) -> io::Error {
    let text = format!("cannot measure fdatasync with {}: {error}; choose a writable folder", path.display());
    io::Error::new(error.kind(), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measures_and_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let latency = SyncLatency::measure(folder.path(), 5, Duration::from_secs(20)).unwrap();
        assert!((1..=5).contains(&latency.samples));
        // Two system calls cannot be faster than this anywhere.
        assert!(latency.p50_ns > 100 && latency.p50_ns <= latency.p99_ns && latency.p99_ns <= latency.max_ns);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        let mut extra = Map::new();
        latency.add_to(&mut extra);
        assert_eq!(extra["fdatasync_ns_p50"], latency.p50_ns);
    }

    #[test]
    fn a_missing_folder_is_named() {
        let error = SyncLatency::measure(Path::new("/nonexistent"), 1, Duration::ZERO).unwrap_err();
        assert!(error.to_string().contains("/nonexistent"), "{error}");
    }
}
