//! `lodestone fabric keep`.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use lodestone_registry::control::{Authority, Credentials, Name};
use lodestone_registry::{KeeperClock, KeeperId, KeeperPool, KeeperServer, KeeperServerOptions};
use serde::Serialize;

use super::{KeepersArgs, credentials};
use crate::interrupt;
use crate::output::Output;

const AFTER_HELP: &str = "\
Examples:
  lodestone fabric keep --new --dir k1 --id 1 --keepers 1=127.0.0.1:7411
  lodestone fabric keep --dir k1 --id 1 --keepers 1=127.0.0.1:7411
  lodestone fabric keep --new --dir k2 --id 2 --authority ca \\
    --keepers 1=10.0.0.1:7411,2=10.0.0.2:7411,3=10.0.0.3:7411

All keepers are started with the same list, which never changes. The folder has the log of
the keeper (keeper.pool) and its credentials (`lodestone fabric token --dir` or `lodestone
fabric join`). The first start makes the log, by --new. A keeper that lost its log must
never start again under its number: it has forgotten its votes, and two keepers could lead
at once. The others go on without it while they are a majority.

Ctrl-C or SIGTERM ends it; so may SIGKILL.";

/// How often the keeper is looked at.
const WATCH: Duration = Duration::from_millis(500);

/// Arguments of `lodestone fabric keep`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Folder of the keeper
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,

    /// Its number
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u64).range(1..=KeeperId::MAX))]
    id: u64,

    /// Make the keeper: at its first start, and never again
    #[arg(long)]
    new: bool,

    #[command(flatten)]
    keepers: KeepersArgs,

    /// Address to listen at [default: its own in the list]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,

    /// Folder of the authority: nodes can join here with a token
    #[arg(long, value_name = "DIR")]
    authority: Option<PathBuf>,
}

#[derive(Serialize)]
struct Keeping {
    keeper: u64,
    keepers: usize,
    listen: SocketAddr,
    security: &'static str,
    domain: String,
    nodes_can_join: bool,
}

/// Keeps until a signal comes.
pub fn run(args: &Args, output: &Output) -> Result<()> {
    let (id, mut peers) = (KeeperId(args.id), args.keepers.addresses()?);
    let all: Vec<KeeperId> = peers.keys().copied().collect();
    let Some(own) = peers.remove(&id) else { bail!("{id} is not in the list of keepers; add it with its address") };
    let found = own_credentials(args, id)?;
    // Messages of keepers of another authority are refused by this number, too.
    let registry = found.as_ref().map_or(1, Credentials::registry);
    let listen = args.listen.unwrap_or(own);
    let security = args.keepers.security(found, Some(listen), output)?;
    let listener = TcpListener::bind(listen).with_context(|| format!("listening at {listen} failed"))?;
    let keeping = Keeping {
        keeper: id.0,
        keepers: all.len(),
        listen: listener.local_addr()?,
        security: security.name(),
        domain: String::new(),
        nodes_can_join: args.authority.is_some(),
    };
    let pool = open(args, id, registry, &all)?;
    let keeping = Keeping { domain: pool.held.store().pool().info().domain_label(), ..keeping };
    let (stop, stopped) = mpsc::channel();
    interrupt::on_signal(move || {
        // The receiver is gone only when the keeper has ended.
        let _ = stop.send(());
    });
    let options = KeeperServerOptions { listener, peers, security, clock: Arc::new(KeeperClock::default()) };
    let server = KeeperServer::start(pool.keeper, pool.held, options)?;
    output.result(&keeping, |keeping| {
        let joins = if keeping.nodes_can_join { ", nodes can join here" } else { "" };
        format!(
            "keeper {} of {} at {} ({}, {} domain{joins})",
            keeping.keeper, keeping.keepers, keeping.listen, keeping.security, keeping.domain
        )
    })?;
    watch(&server, &stopped, output)?;
    server.stop();
    output.note("the keeper has ended");
    Ok(())
}

/// The credentials in the folder of the keeper, if there are any: they must be its own.
fn own_credentials(args: &Args, id: KeeperId) -> Result<Option<Credentials>> {
    let found = match &args.authority {
        None => credentials(Some(&args.dir))?,
        Some(folder) => Some(Credentials::open_with_authority(&args.dir, Authority::open(folder)?)?),
    };
    if let Some(name) = found.as_ref().map(Credentials::name).filter(|name| *name != Name::Keeper(id)) {
        bail!("{}: these are credentials of {name}, not of {id}", args.dir.display());
    }
    Ok(found)
}

/// Waits for the end, and says what was refused. A keeper that failed ends the process: another start may help.
fn watch(server: &KeeperServer, stopped: &mpsc::Receiver<()>, output: &Output) -> Result<()> {
    let mut refusals = 0;
    loop {
        let status = server.status();
        if let Some(failure) = status.failure {
            bail!("the keeper stopped: {failure}");
        }
        if status.server.refused > refusals {
            refusals = status.server.refused;
            output.note(&format!("refused: {}", status.refusals.last().map_or("", String::as_str)));
        }
        if stopped.recv_timeout(WATCH) != Err(mpsc::RecvTimeoutError::Timeout) {
            return Ok(());
        }
    }
}

/// Opens the keeper's pool. Makes it only where that was asked for.
fn open(args: &Args, id: KeeperId, registry: u64, all: &[KeeperId]) -> Result<KeeperPool> {
    let path = args.dir.join("keeper.pool");
    let failed = || format!("{}: opening the keeper failed", path.display());
    let is_there = path.try_exists().with_context(failed)?;
    if args.new && is_there {
        bail!("{}: {id} was made before; start it without --new", path.display());
    }
    if args.new {
        let folder = &args.dir;
        std::fs::create_dir_all(folder).with_context(|| format!("{}: making the folder failed", folder.display()))?;
        let made = KeeperPool::create(&path, id, registry, all);
        return made.with_context(|| format!("{}: making the keeper failed; nothing was made", path.display()));
    }
    if !is_there {
        bail!(
            "{}: the log of {id} is not there. If {id} never ran, make it by --new. If it ran and lost its log, do not \
             start it again: it has forgotten its votes, and two keepers could lead at once. The others go on without \
             it while they are a majority. A keeper in its place needs another number, in a registry of another list",
            path.display()
        );
    }
    let pool = KeeperPool::open(&path).with_context(failed)?;
    let mut listed = all.to_vec();
    listed.sort_unstable();
    if pool.keeper.id() != id || pool.keeper.keepers() != listed {
        let known: Vec<String> = pool.keeper.keepers().iter().map(|keeper| keeper.0.to_string()).collect();
        bail!("{}: is {} among the keepers {}; start it as that", path.display(), pool.keeper.id(), known.join(", "));
    }
    Ok(pool)
}
