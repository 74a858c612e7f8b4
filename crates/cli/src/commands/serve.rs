//! `lodestone serve`: a database for the clients of `PostgreSQL`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use lodestone_serve::{ServeOptions, Server, TlsFiles, socket_path};
use serde::Serialize;

use super::db::place::{DbArgs, NewDatabaseArgs};
use crate::interrupt;
use crate::output::Output;
use crate::publish::PublishArgs;

const AFTER_HELP: &str = "\
Examples:
  lodestone pool create shop.pool
  lodestone serve shop.pool --socket /tmp

Then `psql -h /tmp shop` connects: by the unix socket only the user who runs the server,
as that user. The database has the name of the pool's file without its suffix. With
--listen 127.0.0.1:5432 roles connect by TCP with their password: `\\password` of psql
sets that of the own user, CREATE ROLE .. LOGIN PASSWORD makes others. --tls-cert and
--tls-key let them encrypt (sslmode=require), and then --listen may be an address of
other machines. With --trust-loopback anybody on this machine connects as any user:
that is for tests.

Ctrl-C or SIGTERM ends the server: clients are told, transactions that have not
committed are forgotten, a checkpoint is made. SIGKILL loses nothing that was
acknowledged. docs/SQL.md says what SQL there is.";

/// How often the loops are looked at.
const WATCH: Duration = Duration::from_secs(1);

/// Arguments of `lodestone serve`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    db: DbArgs,

    /// Folder of the unix socket
    #[arg(long, value_name = "DIR")]
    socket: Option<PathBuf>,

    /// Port, also in the name of the unix socket
    #[arg(long, default_value_t = 5432)]
    port: u16,

    /// Address for clients with a password (SCRAM-SHA-256), such as 127.0.0.1:5432
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,

    /// Let clients of other machines connect without encryption
    #[arg(long, requires = "listen")]
    plaintext: bool,

    /// Certificate of the server with those above it (PEM): clients by TCP can encrypt, those of other machines must
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// Private key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// Let anybody on this machine connect by TCP as any user, without a password
    #[arg(long)]
    trust_loopback: bool,

    /// Level of transactions that name none
    #[arg(long, value_name = "LEVEL", default_value = "serializable", value_parser =
        ["serializable", "repeatable read", "read committed", "read uncommitted"])]
    isolation: String,

    /// Loops that serve clients [default: one for each processor]
    #[arg(long, value_name = "COUNT")]
    loops: Option<usize>,

    /// Keep each loop on a node, in turn: its clients write to the log of that node
    #[arg(long)]
    bind: bool,

    /// Most clients at a time
    #[arg(long, value_name = "COUNT", default_value_t = 200)]
    connections: usize,

    #[command(flatten)]
    new: NewDatabaseArgs,

    #[command(flatten)]
    publish: PublishArgs,
}

#[derive(Serialize)]
struct Serving {
    database: String,
    socket: Option<PathBuf>,
    listen: Option<SocketAddr>,
    port: u16,
    domain: String,
}

/// Serves until a signal comes.
pub fn run(args: &Args, output: &Output) -> Result<()> {
    if args.socket.is_none() && args.listen.is_none() && !args.trust_loopback {
        bail!("there is no way in; give `--socket DIR` for a unix socket, or `--listen 127.0.0.1:5432`");
    }
    let engine = args.db.make(&args.new, output)?;
    let _published = args.publish.begin(&engine)?;
    let domain = engine.pool().info().domain_label();
    let stem = args.db.open.path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let database =
        lodestone_sql::Database::new(engine.clone(), &args.isolation).context("the catalog cannot be read")?;
    let files = args.tls_cert.clone().zip(args.tls_key.clone());
    let files = files.map(|(certificate, key)| TlsFiles { certificate, key });
    let options = ServeOptions {
        name: stem.clone(),
        folder: args.socket.clone(),
        port: args.port,
        listen: args.listen,
        is_plaintext: args.plaintext,
        tls: files,
        trusts_loopback: args.trust_loopback,
        loops: args.loops,
        binds: args.bind,
        connections_max: args.connections,
    };
    let (stop, stopped) = mpsc::channel();
    interrupt::on_signal(move || {
        // The receiver is gone only when the server has ended.
        let _ = stop.send(());
    });
    let server = Server::start(database, &options).context("the server cannot start")?;
    if args.plaintext {
        output.note("clients of other machines connect without encryption (--plaintext)");
    }
    if args.trust_loopback {
        output.note("anybody on this machine can connect as any user (--trust-loopback)");
    }
    let socket = args.socket.as_ref().map(|folder| socket_path(folder, args.port));
    let serving = Serving { database: stem, socket, listen: args.listen, port: args.port, domain };
    output.result(&serving, |serving| {
        let socket = serving.socket.as_ref().map(|path| path.display().to_string());
        let listen = serving.listen.map(|address| address.to_string());
        let places: Vec<String> = socket.into_iter().chain(listen).collect();
        let place = if places.is_empty() { format!("127.0.0.1:{}", serving.port) } else { places.join(" and ") };
        format!("serving database `{}` at {place} ({})", serving.database, serving.domain)
    })?;
    while stopped.recv_timeout(WATCH) == Err(mpsc::RecvTimeoutError::Timeout) && !server.has_failed() {}
    if let Err(error) = server.stop() {
        // After a panic in the engine a thread may wait in it for ever: nothing is closed, as after SIGKILL.
        std::mem::forget(engine);
        return Err(error).context("a loop of the server has ended");
    }
    engine.checkpoint()?;
    output.note("the server has ended, and a checkpoint was made");
    Ok(())
}
