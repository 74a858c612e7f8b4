//! Nodes of a mounted volume: `lodestone fs stop`, `start`, `add` and `remove`.

use std::net::SocketAddrV4;
use std::path::PathBuf;

use anyhow::Result;
use serde::Serialize;

use super::control::{Request, ask_mounted};
use crate::output::Output;

const AFTER_HELP: &str = "\
Examples:
  lodestone fs stop notes.vol 101
  lodestone fs start notes.vol 101

`lodestone fs status VOLUME` lists the nodes. A node that is stopped closes nothing in order,
as if it were killed. Programs on the mount see a delay. A replica that was away for more
than a second is removed; when it starts again it copies what it lacks. When the metadata
node is stopped, the standby takes over.";

/// Arguments of both commands.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// The file of the volume
    #[arg(value_name = "VOLUME")]
    volume: PathBuf,

    /// Number of the node
    #[arg(value_name = "NODE")]
    node: u16,
}

#[derive(Serialize)]
struct Changed {
    node: u16,
    runs: bool,
}

fn change(args: &Args, output: &Output, runs: bool) -> Result<()> {
    let node = args.node;
    let request = if runs { Request::Start { node } } else { Request::Stop { node } };
    ask_mounted::<bool>(&args.volume, &request)?;
    output.result(&Changed { node, runs }, |changed| {
        format!("node {} {}", changed.node, if changed.runs { "runs" } else { "is stopped" })
    })
}

/// Stops a node.
pub fn stop(args: &Args, output: &Output) -> Result<()> {
    change(args, output, false)
}

/// Starts a node.
pub fn start(args: &Args, output: &Output) -> Result<()> {
    change(args, output, true)
}

const ADD_HELP: &str = "\
Examples:
  lodestone fs add notes.vol 10.0.0.5:7000

`lodestone fs serve` listens there. The new replica copies all pages while programs go on, and
counts when it has everything; `lodestone fs status VOLUME --watch` shows that.";

/// Arguments of `lodestone fs add`.
#[derive(Debug, clap::Args)]
#[command(after_help = ADD_HELP)]
pub struct AddArgs {
    /// The file of the volume
    #[arg(value_name = "VOLUME")]
    volume: PathBuf,

    /// Where the process with the replica listens
    #[arg(value_name = "ADDRESS")]
    address: SocketAddrV4,
}

const REMOVE_HELP: &str = "\
Examples:
  lodestone fs remove notes.vol 102

The others have everything first, so a replica that works is drained. One that is dead may be
removed, too. The command returns when the replica does not count any more.";

/// Arguments of `lodestone fs remove`.
#[derive(Debug, clap::Args)]
#[command(after_help = REMOVE_HELP)]
pub struct RemoveArgs {
    /// The file of the volume
    #[arg(value_name = "VOLUME")]
    volume: PathBuf,

    /// Number of the node
    #[arg(value_name = "NODE")]
    node: u16,
}

/// Adds a replica.
pub fn add(args: &AddArgs, output: &Output) -> Result<()> {
    let node = ask_mounted::<u16>(&args.volume, &Request::Add { address: args.address })?;
    output.result(&Changed { node, runs: true }, |changed| format!("node {} joins", changed.node))
}

/// Removes a replica.
pub fn remove(args: &RemoveArgs, output: &Output) -> Result<()> {
    ask_mounted::<bool>(&args.volume, &Request::Remove { node: args.node })?;
    output.result(&Changed { node: args.node, runs: false }, |changed| format!("node {} is removed", changed.node))
}
