//! `lodestone fs serve`.

use std::net::{SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use lodestone_fs::cluster::{Machine, MachineOptions, Server, Site};
use lodestone_pmem::DomainChoice;
use lodestone_registry::Security;
use lodestone_registry::control::Name;
use serde::Serialize;

use super::{control, machines, metrics};
use crate::commands::pool::domain;
use crate::interrupt;
use crate::output::Output;

const AFTER_HELP: &str = "\
Examples:
  lodestone fs serve --dir replicas --listen 10.0.0.2:7000 --plain-network

The process keeps replicas of volumes, in pools in the folder. Mount a volume with it by
`lodestone fs mount VOLUME FOLDER --nodes 10.0.0.2:7000,.. --plain-network`. It may be killed
and started again at any time: it goes on with what its pools have.

Packets are not sealed and senders are not known: use a network of your own.

  lodestone fs serve notes.vol --dir m1 --new --token ...
  lodestone fs serve notes.vol --dir m1

With a volume that was formatted for several machines, the process is one of them: it has a node
with metadata and a replica, in pools in the folder. The first start makes them, by --new. The
certificate says which machine it is: one for `--node 1` is for machine 1. Get it by --token, or by
`lodestone fabric join --dir m1` before. The process may be killed and started again at any time.
--metrics 127.0.0.1:9100 tells its figures to a Prometheus server.";

/// Arguments of `lodestone fs serve`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// The description of a volume on several machines (`lodestone fs format --machines`)
    #[arg(value_name = "VOLUME")]
    volume: Option<PathBuf>,

    /// The folder of the pools; made if it is missing
    #[arg(long, value_name = "FOLDER")]
    dir: PathBuf,

    /// Address and port, of both streams and datagrams
    #[arg(long, value_name = "ADDRESS", required_unless_present = "volume", conflicts_with = "volume")]
    listen: Option<SocketAddrV4>,

    /// Make the pools of the machine: at its first start
    #[arg(long, requires = "volume")]
    new: bool,

    /// Number of the machine, on a plain network [default: as its certificate says]
    #[arg(long, value_name = "NUMBER", requires = "volume")]
    machine: Option<u16>,

    /// Get the certificate of the machine from a keeper, for the token of `lodestone fabric token`
    #[arg(long, value_name = "TOKEN", requires = "volume", conflicts_with = "plain_network")]
    token: Option<String>,

    /// Replicas that stay, whatever happens to their machines: with fewer that answer, an fsync waits
    #[arg(long, value_name = "COUNT", default_value_t = 2, requires = "volume")]
    min_copies: usize,

    /// Tell the figures of the machine to a Prometheus server, at http://ADDRESS/metrics
    #[arg(long, value_name = "ADDRESS", requires = "volume")]
    metrics: Option<SocketAddr>,

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
    let listen = match (&args.volume, args.listen) {
        (Some(volume), _) => return run_machine(args, volume, output),
        (None, Some(listen)) => listen,
        (None, None) => bail!("say where to listen by --listen"),
    };
    need_plain(args.plain_network)?;
    let (stop, stopped) = mpsc::channel();
    interrupt::on_signal(move || {
        // The receiver is gone only when the command has ended.
        let _ = stop.send(());
    });
    let server = Server::start(&args.dir, listen, args.domain)?;
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

#[derive(Serialize)]
struct ServingMachine {
    machine: u16,
    volume: String,
    address: String,
    folder: PathBuf,
    network: &'static str,
    metrics: Option<SocketAddr>,
}

/// How often the machine is looked at.
const WATCH: Duration = Duration::from_millis(500);

/// The number of the machine, and the security of its connections.
fn identity(args: &Args, site: &Site) -> Result<(u16, Security)> {
    let folder = &args.dir;
    if let Some(token) = &args.token {
        if machines::has_credentials(folder) {
            bail!("{}: has credentials already; leave --token out", folder.display());
        }
        machines::join(site, token, folder)?;
    }
    let of_machine = machines::has_credentials(folder).then_some(folder.as_path());
    if site.is_sealed && of_machine.is_none() && !args.plain_network {
        bail!("{}: no certificate of a machine is there; give a token by --token", folder.display());
    }
    let security = machines::security(site.is_sealed, of_machine.filter(|_| site.is_sealed), args.plain_network)?;
    let of_certificate = match &security {
        Security::Tls(credentials) => match credentials.name() {
            Name::Node(node) => Some(node.0),
            other => bail!("{}: the certificate is of {other}, not of a machine (`--node`)", folder.display()),
        },
        _ => None,
    };
    match (of_certificate, args.machine) {
        (Some(own), Some(asked)) if own != asked => {
            bail!("{}: the certificate is of machine {own}, not of {asked}", folder.display())
        }
        (Some(number), _) | (None, Some(number)) => Ok((number, security)),
        (None, None) => bail!("say which machine this is by --machine NUMBER"),
    }
}

/// Runs a machine until a signal.
fn run_machine(args: &Args, volume: &Path, output: &Output) -> Result<()> {
    let site = Site::read(volume)?;
    let (number, security) = identity(args, &site)?;
    let (stop, stopped) = mpsc::channel();
    interrupt::on_signal(move || {
        // The receiver is gone only when the command has ended.
        let _ = stop.send(());
    });
    let mut options = MachineOptions::new(number, args.dir.clone(), security);
    (options.makes, options.domain, options.replicas_min) = (args.new, args.domain, args.min_copies);
    options.texts = Some(Arc::new(control::answer_text));
    let machine = Machine::start(&site, options).with_context(|| format!("machine {number} cannot be started"))?;
    let metrics = args.metrics.map(|address| metrics::serve(address, machine.handle())).transpose()?;
    let serving = ServingMachine {
        machine: number,
        volume: format!("{:016x}", site.volume),
        address: machine.handle().site()?.address(number)?.to_string(),
        folder: args.dir.clone(),
        network: if site.is_sealed { "sealed" } else { "plain" },
        metrics,
    };
    output.result(&serving, |serving| {
        format!(
            "machine {} of volume {} at {} with pools in {}; the network is {}{}",
            serving.machine,
            serving.volume,
            serving.address,
            serving.folder.display(),
            serving.network,
            serving.metrics.map(|address| format!("; metrics at http://{address}/metrics")).unwrap_or_default()
        )
    })?;
    watch(&machine, &stopped, output)?;
    drop(machine);
    output.note("everything that was reported is durable");
    Ok(())
}

/// Waits for the end. A node that failed ends the process: another start may help.
fn watch(machine: &Machine, stopped: &mpsc::Receiver<()>, output: &Output) -> Result<()> {
    let (handle, mut led) = (machine.handle(), None);
    loop {
        if let Some(error) = handle.errors().first() {
            bail!("a node of the machine stopped: {error}");
        }
        let leads = handle.leads();
        if leads != led {
            led = leads;
            output.note(&leads.map_or_else(
                || "the metadata node is elsewhere now".to_owned(),
                |term| format!("the metadata node is here, in term {term}"),
            ));
        }
        if stopped.recv_timeout(WATCH) != Err(mpsc::RecvTimeoutError::Timeout) {
            return Ok(());
        }
    }
}
