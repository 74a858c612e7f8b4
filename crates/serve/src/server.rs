//! The server: listeners, loops, and the end.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lodestone_sql::Database;

use crate::client::Socket;
use crate::listen::Listener;
use crate::panics;
use crate::protocol::{Peer, Places};
use crate::tls::{Acceptor, TlsFiles};
use crate::turn::{Loop, Mailbox};
use crate::worker::Workers;

/// Bytes of a loop's stack: statements may be deep.
pub const STACK_BYTES: usize = 16 << 20;

/// Most sockets of peers that are not known yet, beside the clients.
const UNKNOWN_MAX: usize = 100;

/// How long the end of a server that has failed waits for its loops, and how often it looks.
const FAILED_LIMIT: Duration = Duration::from_secs(15);
const LOOK: Duration = Duration::from_millis(5);

/// How to serve.
///
/// ```
/// let options = lodestone_serve::ServeOptions::default();
/// assert_eq!((options.port, options.connections_max), (5432, 200));
/// ```
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// The name of the database for clients.
    pub name: String,
    /// The folder of the unix socket. `None`: there is none.
    pub folder: Option<PathBuf>,
    /// The port, also in the name of the unix socket.
    pub port: u16,
    /// Where clients connect by TCP. They prove that they know the password of a role (SCRAM-SHA-256). Any other
    /// address than that of this machine is refused without `tls`, unless `is_plaintext`.
    pub listen: Option<SocketAddr>,
    /// Whether clients of other machines may connect without encryption.
    pub is_plaintext: bool,
    /// The certificate with those above it, and its key, as PEM files: clients by TCP may encrypt, and those of other
    /// machines must, unless `is_plaintext`.
    pub tls: Option<TlsFiles>,
    /// Whether anybody on this machine may connect by TCP, as any user. For tests.
    pub trusts_loopback: bool,
    /// Loops. `None`: one for each processor.
    pub loops: Option<usize>,
    /// Whether each loop stays on one of the nodes of the pool's machine, in turn. The transactions of its clients then
    /// write to the log of that node, as long as it has room. Long statements run on workers, which stay nowhere.
    pub binds: bool,
    /// Most clients at a time.
    pub connections_max: usize,
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self {
            name: "lodestone".into(),
            folder: None,
            port: 5432,
            listen: None,
            is_plaintext: false,
            tls: None,
            trusts_loopback: false,
            loops: None,
            binds: false,
            connections_max: 200,
        }
    }
}

/// The state that the loops share.
#[derive(Debug)]
pub struct Shared {
    pub database: Database,
    pub name: String,
    pub places: Arc<Places>,
    /// Sockets, also of peers that are not known yet.
    sockets: AtomicUsize,
    sockets_max: usize,
    /// How encryption begins.
    pub acceptor: Option<Acceptor>,
    is_stopping: AtomicBool,
    /// A panic may have left half of a change: see the module `panics`.
    has_failed: AtomicBool,
    /// See [`Host::secret`](crate::protocol::Host::secret).
    pub secret: [u8; 32],
    pub workers: Arc<Workers>,
    mailboxes: OnceLock<Vec<Arc<Mailbox>>>,
    next: AtomicUsize,
}

impl Shared {
    pub fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    /// A socket of a loop is gone.
    pub fn left(&self) {
        self.sockets.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether there are so many sockets that the oldest one of a peer that is not known must go.
    pub fn is_crowded(&self) -> bool {
        self.sockets.load(Ordering::Relaxed) > self.sockets_max
    }

    /// Gives a client to the next loop.
    pub fn hand_over(&self, socket: Socket, peer: Peer, must_encrypt: bool) {
        self.sockets.fetch_add(1, Ordering::Relaxed);
        let Some(mailboxes) = self.mailboxes.get() else { return };
        let number = self.next.fetch_add(1, Ordering::Relaxed) % mailboxes.len().max(1);
        if let Some(mailbox) = mailboxes.get(number) {
            mailbox.send(socket, peer, must_encrypt);
        }
    }

    /// Ends the server, and everything that may still be committed: something that clients share may be half changed.
    pub fn fail(&self) {
        if !self.has_failed.swap(true, Ordering::AcqRel) {
            self.database.abandon();
            self.stop();
        }
    }

    fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
        self.workers.stop();
        self.mailboxes.get().into_iter().flatten().for_each(|mailbox| mailbox.wake());
    }
}

/// A server that runs. Dropping it stops it.
///
/// ```
/// use lodestone_engine::DatabaseOptions;
/// use lodestone_pmem::{DomainChoice, PoolOptions};
/// use lodestone_serve::{ServeOptions, Server};
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("shop.pool");
/// # let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let options = DatabaseOptions { pool, log_bytes: 1 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
/// let engine = lodestone_engine::Database::open_with(&path, &options)?;
/// let database = lodestone_sql::Database::new(engine, "serializable")?;
/// let options = ServeOptions { folder: Some(folder.path().to_owned()), ..ServeOptions::default() };
/// let server = Server::start(database, &options)?;
/// // psql -h FOLDER lodestone
/// server.stop()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<io::Result<()>>>>,
}

impl Server {
    /// Begins to serve.
    ///
    /// # Errors
    /// When no socket is asked for, or one cannot be made.
    pub fn start(database: Database, options: &ServeOptions) -> io::Result<Self> {
        let mut listeners = Vec::new();
        if let Some(folder) = &options.folder {
            listeners.push(Listener::unix(folder, options.port)?);
        }
        let acceptor = options.tls.as_ref().map(Acceptor::new).transpose()?;
        if let Some(address) = options.listen {
            if !address.ip().is_loopback() && !options.is_plaintext && acceptor.is_none() {
                let message = format!(
                    "{address}: other machines could connect, and there is no encryption; listen on 127.0.0.1, name a \
                     certificate, or say that plain text is wanted"
                );
                return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
            }
            listeners.push(Listener::tcp(address, false, options.is_plaintext)?);
        }
        if options.trusts_loopback {
            listeners.push(Listener::tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, options.port)), true, false)?);
        }
        if listeners.is_empty() {
            let message = "there is no way in: name the folder of a unix socket, or an address to listen on";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let topology = database.engine().pool().topology().clone();
        let usable = topology.nodes().iter().enumerate().filter(|(_, node)| node.why_unusable().is_none());
        let nodes: Vec<usize> = if options.binds { usable.map(|(node, _)| node).collect() } else { Vec::new() };
        panics::install();
        let shared = Arc::new(Shared {
            database,
            name: options.name.clone(),
            places: Places::new(options.connections_max),
            sockets: AtomicUsize::new(0),
            sockets_max: options.connections_max.saturating_add(UNKNOWN_MAX),
            acceptor,
            is_stopping: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
            secret: lodestone_sql::scram::random().map_err(io::Error::other)?,
            workers: Arc::default(),
            mailboxes: OnceLock::new(),
            next: AtomicUsize::new(0),
        });
        let count = options.loops.or_else(|| std::thread::available_parallelism().ok().map(usize::from)).unwrap_or(1);
        let mut loops = Vec::new();
        for _ in 0..count.max(1) {
            // The first loop accepts for all.
            loops.push(Loop::new(shared.clone(), std::mem::take(&mut listeners))?);
        }
        // It is set once, here.
        drop(shared.mailboxes.set(loops.iter().map(Loop::mailbox).collect()));
        let mut threads = Vec::new();
        for (number, one) in loops.into_iter().enumerate() {
            let builder = std::thread::Builder::new().name(format!("serve-{number}")).stack_size(STACK_BYTES);
            let node = nodes.get(number % nodes.len().max(1)).copied();
            let topology = topology.clone();
            threads.push(builder.spawn(move || {
                node.map_or(Ok(()), |node| topology.pin_thread(node)).map_err(io::Error::other)?;
                one.run()
            })?);
        }
        Ok(Self { shared, threads: Mutex::new(threads) })
    }

    /// Ends the server: clients are told, and transactions that have not committed are forgotten.
    ///
    /// # Errors
    /// That of a loop that ended early. After a panic in the engine the database cannot be used any more; the next open
    /// recovers it.
    pub fn stop(&self) -> io::Result<()> {
        self.shared.stop();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        let began = Instant::now();
        for thread in threads {
            // A thread may wait for ever for the rest of a change that a panic has cut.
            while self.shared.has_failed.load(Ordering::Acquire) && !thread.is_finished() {
                if began.elapsed() > FAILED_LIMIT {
                    return Err(failed());
                }
                std::thread::sleep(LOOK);
            }
            thread.join().map_err(|_| io::Error::other("a loop of the server has panicked"))??;
        }
        if self.shared.has_failed.load(Ordering::Acquire) { Err(failed()) } else { Ok(()) }
    }

    /// Whether a loop has ended, which it does only when the system fails, or a panic has ended the server.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        let threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        self.shared.has_failed.load(Ordering::Acquire) || threads.iter().any(JoinHandle::is_finished)
    }
}

fn failed() -> io::Error {
    io::Error::other("a panic may have left half of a change: nothing is committed any more; open the database again")
}

impl Drop for Server {
    fn drop(&mut self) {
        // There is no caller left who could be told.
        drop(self.stop());
    }
}
