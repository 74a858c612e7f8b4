//! Volumes with replicas, all nodes in one process: nodes are stopped as a kill does, and nothing is lost.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lodestone_fs::cluster::{Cluster, ClusterOptions, ScrubOptions};
use lodestone_fs::oracle::{Draw, Plain, difference, shots};
use lodestone_fs::{Clock, Error, FormatOptions, Volume, VolumeOptions};
use lodestone_pmem::{DomainChoice, PoolOptions};

fn pool() -> PoolOptions {
    PoolOptions { domain: DomainChoice::Process, size_bytes: 12 << 20, journal_bytes: 2 << 20, ..PoolOptions::default() }
}

fn options() -> ClusterOptions {
    let mut options = ClusterOptions::default();
    options.volume.clock = Clock::Steps;
    options
}

/// A new volume, and the folder that it is in.
fn format(pool: &PoolOptions) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.vol");
    drop(Volume::format_with(&path, pool, &FormatOptions::default()).expect("a volume"));
    (folder, path)
}

fn open(path: &Path) -> Cluster {
    Cluster::open(path, &pool(), &options()).unwrap_or_else(|error| panic!("it opens: {error}"))
}

/// Waits until the cluster is as wanted.
fn until(what: &str, cluster: &Cluster, is_so: impl Fn(&lodestone_fs::cluster::ClusterStatus) -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is_so(&cluster.status()) {
        assert!(Instant::now() < end, "{what}: {:#?}", cluster.status());
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn state_of(status: &lodestone_fs::cluster::ClusterStatus, node: u16) -> String {
    status.nodes.iter().find(|found| found.node == node).map_or_else(String::new, |found| found.state.clone())
}

#[test]
fn what_was_synced_survives_the_loss_of_a_replica_and_of_the_metadata_node() {
    let (_folder, path) = format(&pool());
    {
        // A volume of one file gets replicas with what it has.
        let volume = Volume::open_with(&path, &pool(), &VolumeOptions::default()).expect("one file");
        volume.create("/old").expect("a file").write_at(0, &[1; 10_000]).expect("a write").sync().expect("a sync");
    }
    let cluster = open(&path);
    let read = |name: &str| cluster.volume().expect("it leads").open_file(name).expect("it is there").read_all().expect("it is whole");
    assert_eq!(read("/old"), [1; 10_000]);
    let volume = cluster.volume().expect("it leads");
    let file = volume.create("/new").expect("a file");
    file.write_at(0, &[2; 9000]).expect("a write").sync().expect("a sync");
    assert_eq!(read("/new"), [2; 9000]);
    cluster.stop_node(101).expect("a replica");
    file.write_at(100, &[3; 100]).expect("a write").sync().expect("two of three replicas are enough");
    drop((file, volume));
    let mut expected = vec![2; 9000];
    expected[100..200].fill(3);
    assert_eq!(read("/new"), expected);
    until("it is removed", &cluster, |status| state_of(status, 101) == "stopped" && status.groups[1].copies == 2);
    cluster.start_node(101).expect("it starts");
    until("it is back", &cluster, |status| status.groups[1].copies == 3);
    // The metadata node dies. The standby goes on.
    cluster.stop_node(1).expect("the metadata node");
    assert_eq!((read("/old"), read("/new")), (vec![1; 10_000], expected.clone()));
    assert_eq!(cluster.status().leader, 2);
    let volume = cluster.volume().expect("it leads");
    volume.create("/third").expect("a file").sync().expect("a sync");
    drop(volume);
    cluster.start_node(1).expect("it starts");
    until("it follows", &cluster, |status| status.groups[0].copies == 2 && state_of(status, 1) == "follows");
    cluster.stop_node(2).expect("the metadata node");
    assert_eq!(read("/third"), b"");
    assert_eq!(cluster.status().leader, 1);
    let report = cluster.volume().expect("it leads").check(true).expect("a check");
    assert!(report.is_clean(), "{:?}", report.findings);
    drop(cluster);
    let error = Volume::open_with(&path, &pool(), &VolumeOptions::default()).expect_err("it has replicas");
    assert!(matches!(error, Error::Replicated { replicas: 3, .. }), "{error}");
}
