//! `lodestone fs serve`.

use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::sync::mpsc;

use anyhow::{Result, bail};
use lodestone_fs::cluster::Server;
use lodestone_pmem::DomainChoice;
use serde::Serialize;

use crate::commands::pool::domain;
use crate::interrupt;
use crate::output::Output;

const AFTER_HELP: &str = "\
Examples:
  lodestone fs serve --dir replicas --listen 10.0.0.2:7000 --plain-network

The process keeps replicas of volumes, in pools in the folder. Mount a volume with it by
`lodestone fs mount VOLUME FOLDER --nodes 10.0.0.2:7000,.. --plain-network`. It may be killed
and started again at any time: it goes on with what its pools have.

Packets are not sealed and senders are not known: use a network of your own.";

/// Arguments of `lodestone fs serve`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// The folder of the pools; made if it is missing
    #[arg(long, value_name = "FOLDER")]
    dir: PathBuf,

    /// Address and port, of both streams and datagrams
    #[arg(long, value_name = "ADDRESS")]
    listen: SocketAddrV4,

    /// Trust everything that can reach the address
    #[arg(long)]
    plain_network: bool,

    /// Persistence domain: auto, dax, eadr, block, process (not safe against power loss)
    #[arg(long, value_name = "DOMAIN", default_value = "auto", value_parser = domain)]
    domain: DomainChoice,
}

#[derive(Serialize)]
struct Serving {
    address: String,
    folder: PathBuf,
}

/// Refuses networks without a word about it.
pub fn need_plain(is_plain: bool) -> Result<()> {
    if !is_plain {
        bail!("nodes in other processes talk in plain for now: say so by --plain-network, on a network of your own");
    }
    Ok(())
}

/// Serves until a signal.
pub fn run(args: &Args, output: &Output) -> Result<()> {
    need_plain(args.plain_network)?;
    let (stop, stopped) = mpsc::channel();
    interrupt::on_signal(move || {
        // The receiver is gone only when the command has ended.
        let _ = stop.send(());
    });
    let server = Server::start(&args.dir, args.listen, args.domain)?;
    let serving = Serving { address: server.address().to_string(), folder: args.dir.clone() };
    output.result(&serving, |serving| {
        format!("replicas in {} at {}, in plain", serving.folder.display(), serving.address)
    })?;
    // Only the signal ends it.
    let _ = stopped.recv();
    drop(server);
    output.note("everything that was reported is durable");
    Ok(())
}
