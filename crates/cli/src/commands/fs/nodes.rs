//! Nodes of a mounted volume, and machines of a volume on several: `lodestone fs stop`, `start`, `add`, `drain` and
//! `remove`.

use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde::Serialize;

use super::control::{Request, ask_mounted};
use super::{VolumeArgs, machines};
use crate::output::Output;

/// Pause between two lines on what a drain waits for.
const SAY_AGAIN: Duration = Duration::from_secs(2);

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
  lodestone fs add notes.vol 4=10.0.0.4:7000 --credentials op
  lodestone fs add notes.vol 10.0.0.5:7000

The first adds machine 4 to a volume on several machines, which takes TCP and UDP at the port and
UDP at the two ports after it. Start it there by `lodestone fs serve notes.vol --dir FOLDER --new
--token ..`, with any copy of the file. It copies everything while programs go on, and counts when
it has it; `lodestone fs status notes.vol --credentials op --watch` shows that. The file is brought
up to date; other copies of it go on to work as long as one machine in them does.

The second adds a replica to a volume that is mounted with --nodes; `lodestone fs serve` listens
there.";

/// Where a new node is.
#[derive(Clone, Copy, Debug)]
enum New {
    Machine(u16, SocketAddrV4),
    Replica(SocketAddrV4),
}

fn new(text: &str) -> std::result::Result<New, String> {
    if text.contains('=') {
        return machines::machine(text).map(|(machine, address)| New::Machine(machine, address));
    }
    let wrong = || format!("`{text}` is neither as in 4=10.0.0.4:7000, a machine, nor as in 10.0.0.5:7000, a replica");
    text.parse().map(New::Replica).map_err(|_| wrong())
}

/// Arguments of `lodestone fs add`.
#[derive(Debug, clap::Args)]
#[command(after_help = ADD_HELP)]
pub struct AddArgs {
    #[command(flatten)]
    volume: VolumeArgs,

    /// Number and address of the machine, or where the process with the replica listens
    #[arg(value_name = "[NUMBER=]ADDRESS", value_parser = new)]
    new: New,
}

const DRAIN_HELP: &str = "\
Examples:
  lodestone fs drain notes.vol 2 --credentials op

The nodes of the machine leave when the others have everything, while programs go on. If it leads,
another one takes over first. The command says how many of its nodes still count, what the others
lack, and how far copies are of machines that join. It returns when the machine does not count
any more. Its process goes on, and may be ended. `lodestone fs remove` takes the machine out of the
volume; so it does with one that is dead.";

/// Arguments of `lodestone fs drain`.
#[derive(Debug, clap::Args)]
#[command(after_help = DRAIN_HELP)]
pub struct DrainArgs {
    #[command(flatten)]
    volume: VolumeArgs,

    /// Number of the machine
    #[arg(value_name = "MACHINE")]
    machine: u16,
}

const REMOVE_HELP: &str = "\
Examples:
  lodestone fs remove notes.vol 2 --credentials op
  lodestone fs remove notes.vol 102

The first drains machine 2 of a volume on several, and takes it out: its process ends. One that is
dead may be removed, too. To replace a machine, add the new one first, and wait until it counts.

The second removes a replica of a volume that is mounted with --nodes. The others have everything
first. One that is dead may be removed, too. The command returns when the replica does not count any
more.";

/// Arguments of `lodestone fs remove`.
#[derive(Debug, clap::Args)]
#[command(after_help = REMOVE_HELP)]
pub struct RemoveArgs {
    #[command(flatten)]
    volume: VolumeArgs,

    /// Number of the machine, or of the node
    #[arg(value_name = "NUMBER")]
    number: u16,
}

/// A machine that was changed.
#[derive(Serialize)]
struct ChangedMachine {
    machine: u16,
    state: &'static str,
}

fn tell(machine: u16, state: &'static str, output: &Output) -> Result<()> {
    output
        .result(&ChangedMachine { machine, state }, |changed| format!("machine {} {}", changed.machine, changed.state))
}

/// Adds a machine or a replica.
pub fn add(args: &AddArgs, output: &Output) -> Result<()> {
    let path = args.volume.path.display();
    match (args.volume.site()?, args.new) {
        (Some(site), New::Machine(machine, address)) => {
            machines::add(&args.volume, &site, machine, address)?;
            tell(machine, "is added; start it, and it copies everything", output)
        }
        (Some(_), New::Replica(_)) => bail!("{path}: the volume is on several machines; add one as in 4=10.0.0.4:7000"),
        (None, New::Machine(..)) => bail!("{path}: the volume is not on several machines; give the address alone"),
        (None, New::Replica(address)) => {
            let node = ask_mounted::<u16>(&args.volume.path, &Request::Add { address })?;
            output.result(&Changed { node, runs: true }, |changed| format!("node {} joins", changed.node))
        }
    }
}

/// Drains a machine.
pub fn drain(args: &DrainArgs, output: &Output) -> Result<()> {
    let Some(site) = args.volume.site()? else {
        bail!("{}: the volume is not on several machines; `fs remove` drains a node", args.volume.path.display());
    };
    machines::drain(&args.volume, &site, args.machine, &mut said(output))?;
    tell(args.machine, "is drained", output)
}

/// Tells each state once, and what it waits for every other second if that changes.
fn said(output: &Output) -> impl FnMut(&str) + '_ {
    let (mut before, mut told) = (String::new(), None);
    move |progress| {
        let state = |text: &str| text.split(':').next().map(str::to_owned);
        let is_due = state(progress) != state(&before) || told.is_none_or(|told: Instant| told.elapsed() >= SAY_AGAIN);
        if progress != before && is_due {
            output.note(&format!("the machine {progress}"));
            progress.clone_into(&mut before);
            told = Some(Instant::now());
        }
    }
}

/// Removes a machine or a replica.
pub fn remove(args: &RemoveArgs, output: &Output) -> Result<()> {
    if let Some(site) = args.volume.site()? {
        machines::remove(&args.volume, &site, args.number, &mut said(output))?;
        return tell(args.number, "is removed", output);
    }
    ask_mounted::<bool>(&args.volume.path, &Request::Remove { node: args.number })?;
    output.result(&Changed { node: args.number, runs: false }, |changed| format!("node {} is removed", changed.node))
}
