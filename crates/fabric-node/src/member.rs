//! A member of the group on a pool, until its harness ends.

use std::path::PathBuf;
use std::sync::mpsc::TryRecvError;
use std::time::Duration;

use anyhow::Result;
use lodestone_fabric::{MemberDriver, NodeId, ReceiverOptions, Transport};
use lodestone_pmem::DomainChoice;

use crate::network::Network;
use crate::pools;
use crate::words::{Told, orders, tell};

/// Arguments of `fabric-node member`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The pool; it is made if it is not there
    #[arg(long)]
    pool: PathBuf,

    /// Persistence domain
    #[arg(long, default_value = "auto")]
    domain: DomainChoice,

    #[command(flatten)]
    network: Network,
}

/// Runs a member.
pub fn run(args: &Args) -> Result<()> {
    let options = ReceiverOptions {
        node: NodeId(args.network.node),
        payload_bytes_max: args.network.payload_bytes_max(),
        ..ReceiverOptions::default()
    };
    let (_pool, receiver) = pools::receiver(&args.pool, args.domain, options)?;
    let tail = receiver.tail().0;
    let mut driver = MemberDriver::new(receiver, args.network.open()?);
    tell(&Told::Started { transport: driver.transport().name().to_owned(), tail })?;
    let orders = orders();
    while !matches!(orders.try_recv(), Err(TryRecvError::Disconnected)) {
        driver.step(Duration::from_millis(5))?;
    }
    Ok(())
}
