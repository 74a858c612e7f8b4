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
  lodestone fabric keep --dir k1 --id 1 --keepers 1=127.0.0.1:7411
  lodestone fabric keep --dir k2 --id 2 --authority ca \\
    --keepers 1=10.0.0.1:7411,2=10.0.0.2:7411,3=10.0.0.3:7411

All keepers are started with the same list, which never changes. The folder has the log of
the keeper (keeper.pool, made at the first start) and its credentials (`lodestone fabric
token --dir` or `lodestone fabric join`). Ctrl-C or SIGTERM ends it; so may SIGKILL.";

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
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u64).range(1..))]
    id: u64,

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
    let found = match &args.authority {
        None => credentials(Some(&args.dir))?,
        Some(folder) => Some(Credentials::open_with_authority(&args.dir, Authority::open(folder)?)?),
    };
    if let Some(name) = found.as_ref().map(Credentials::name).filter(|name| *name != Name::Keeper(id)) {
        bail!("{}: these are credentials of {name}, not of {id}", args.dir.display());
    }
    // Messages of keepers of another authority are refused by this number, too.
    let registry = found.as_ref().map_or(1, Credentials::registry);
    let security = args.keepers.security(found, output)?;
    let listen = args.listen.unwrap_or(own);
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
            break;
        }
    }
    server.stop();
    output.note("the keeper has ended");
    Ok(())
}

/// Opens the keeper's pool, or makes it.
fn open(args: &Args, id: KeeperId, registry: u64, all: &[KeeperId]) -> Result<KeeperPool> {
    std::fs::create_dir_all(&args.dir).with_context(|| format!("{}: making the folder failed", args.dir.display()))?;
    let path = args.dir.join("keeper.pool");
    let failed = || format!("{}: opening the keeper failed", path.display());
    if !path.exists() {
        return KeeperPool::create(&path, id, registry, all).with_context(failed);
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
