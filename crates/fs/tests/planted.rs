//! Mistakes of volumes with replicas, planted: each has the harm that the topic `cluster` looks for.
//!
//! A program of its own, with one test: a mistake is planted for the whole process.
#![cfg(feature = "planted-bugs")]

#[path = "volumes/nodes.rs"]
mod nodes;

use lodestone_pmem::planted::plant;
use nodes::{format, open, page, pool, until};

const REPLICAS: [u16; 3] = [101, 102, 103];

#[test]
fn planted_mistakes_have_their_harm() {
    a_sync_that_waits_for_nobody();
    a_standby_that_skips_operations();
}

/// `a_sync_waits_for_a_quorum` fails with it.
fn a_sync_that_waits_for_nobody() {
    let (_folder, path) = format(&pool());
    let cluster = open(&path);
    let file = cluster.volume().expect("it leads").create("/a").expect("a file");
    file.write_at(0, &page(1)).expect("a write").sync().expect("a sync");
    REPLICAS.into_iter().for_each(|node| cluster.stop_node(node).expect("a replica"));
    file.write_at(0, &page(2)).expect("a plain write");
    plant(Some("fs-sync-waits-for-nobody"));
    let sync = file.sync();
    plant(None);
    assert!(sync.is_ok(), "it acknowledges what no replica has");
    REPLICAS.into_iter().for_each(|node| cluster.start_node(node).expect("a replica"));
}

/// `what_was_synced_survives_..` fails with it.
fn a_standby_that_skips_operations() {
    let (_folder, path) = format(&pool());
    let cluster = open(&path);
    plant(Some("fs-standby-skips-operations"));
    let volume = cluster.volume().expect("it leads");
    volume.create("/b").expect("a file").sync().expect("a sync");
    drop(volume);
    until("the standby has skipped it", &cluster, |status| {
        let standby = status.nodes.iter().find(|node| node.node == 2);
        standby.and_then(|node| node.executed) >= Some(status.groups[0].last)
    });
    cluster.stop_node(1).expect("the metadata node");
    let is_lost = cluster.volume().expect("it leads").open_file("/b").is_err();
    plant(None);
    assert!(is_lost, "the standby has lost a synced file");
}
