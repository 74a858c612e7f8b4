//! Volumes with replicas, all nodes in one process, as tests make them.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lodestone_fs::cluster::{Cluster, ClusterOptions};
use lodestone_fs::{Clock, FormatOptions, Volume};
use lodestone_pmem::{DomainChoice, PoolOptions};

pub fn pool() -> PoolOptions {
    PoolOptions {
        domain: DomainChoice::Process,
        size_bytes: 12 << 20,
        journal_bytes: 2 << 20,
        ..PoolOptions::default()
    }
}

pub fn options() -> ClusterOptions {
    let mut options = ClusterOptions::default();
    options.volume.clock = Clock::Steps;
    options
}

/// A new volume, and the folder that it is in.
pub fn format(pool: &PoolOptions) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.vol");
    drop(Volume::format_with(&path, pool, &FormatOptions::default()).expect("a volume"));
    (folder, path)
}

pub fn open(path: &Path) -> Cluster {
    Cluster::open(path, &pool(), &options()).unwrap_or_else(|error| panic!("it opens: {error}"))
}

/// Waits until the cluster is as wanted.
pub fn until(what: &str, cluster: &Cluster, mut is_so: impl FnMut(&lodestone_fs::cluster::ClusterStatus) -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is_so(&cluster.status()) {
        assert!(Instant::now() < end, "{what}: {:#?}", cluster.status());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Content of a page that no other page has.
pub fn page(number: u64) -> Vec<u8> {
    (0..512_u64).flat_map(|word| (number << 32 | word).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes()).collect()
}
