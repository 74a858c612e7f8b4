//! A sender for members that run elsewhere: on other machines, or in other guests.
//!
//! It writes records until so many are acknowledged, waits until every member has reported all of them, and tells it in
//! one line. The registry is in this process.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use lodestone_fabric::NodeId;

use crate::cluster::{Cluster, SENDERS, Setup};
use crate::network::{Network, Peer};
use crate::words::Order;

/// Arguments of `fabric-node drive`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Records
    #[arg(long, default_value_t = 1000)]
    records: u64,

    /// Folder of the sender's pool
    #[arg(long, default_value = "/dev/shm")]
    folder: PathBuf,

    /// Persistence domain
    #[arg(long, default_value = "dax-emulated")]
    domain: String,

    /// Longest time
    #[arg(long, default_value_t = 300)]
    seconds_max: u64,

    #[command(flatten)]
    network: Network,
}

/// Runs the sender. `false`: the members did not get everything.
pub fn run(args: &Args) -> Result<bool> {
    let network = &args.network;
    if network.node < SENDERS {
        bail!("--node needs {SENDERS} or more: smaller numbers are members");
    }
    let folder = tempfile::Builder::new().prefix("fabric-drive-").tempdir_in(&args.folder);
    let folder = folder.context("a folder for the pool")?;
    let setup = Setup {
        program: std::env::current_exe().context("finding this program")?,
        folder: folder.path().to_owned(),
        domain: args.domain.clone(),
        transport: network.transport,
        addresses: network.peers.iter().map(|Peer(NodeId(node), address)| (*node, *address)).collect(),
        group: network.group.context("--group is missing")?,
        window: 16,
        spaces: std::collections::BTreeMap::new(),
        lease: Duration::from_secs(1),
        more: ["--device", &network.device, "--datagram", &network.datagram.to_string()].map(str::to_owned).to_vec(),
    };
    let members = setup.members().count();
    let mut cluster = Cluster::new(setup)?;
    cluster.start(network.node)?;
    cluster.order(network.node, &Order::Lead);
    let (started, most) = (Instant::now(), Duration::from_secs(args.seconds_max));
    if !cluster.until(most, |cluster| cluster.judge.count >= args.records)? {
        bail!("{} of {} records are acknowledged after {} s", cluster.judge.count, args.records, most.as_secs());
    }
    let sample = cluster.sample()?;
    let has_all = cluster.settle(most)?;
    let is_sound = has_all && cluster.judge.violations.is_empty();
    println!(
        "{} records acknowledged over {}, {} by all {members} members; {} fragments, {} sends, {} sent again; {} s",
        cluster.judge.count,
        cluster.transport,
        if has_all { "held" } else { "NOT held" },
        sample.fragments,
        sample.sends,
        sample.resent,
        started.elapsed().as_secs()
    );
    cluster.judge.violations.iter().for_each(|violation| println!("VIOLATION {violation}"));
    Ok(is_sound)
}
