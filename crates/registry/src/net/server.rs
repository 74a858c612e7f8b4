//! A keeper on a socket: one thread for the core, one that takes connections, and one for each connection.

use std::collections::BTreeMap;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lodestone_fabric::{Moment, NodeId};
use lodestone_pmem::planted;

use super::line::{Line, Peer, Purpose, Security};
use super::links::Link;
use super::{FRAME_BYTES_MAX, HELLO_PATIENCE, REQUEST_BYTES_MAX};
use crate::error::{Error, Result};
use crate::keepers::{Keeper, KeeperCounts, KeeperId, KeeperOutbound, Token, sender_of};
use crate::table::{Answer, Request, VolumeId, is_same_machine};
use crate::wire::Reader;

/// Connections at once.
const CONNECTIONS_MAX: usize = 256;
/// Connections at once that have not said yet who they are.
const STRANGERS_MAX: usize = 32;
/// A connection without a frame for so long is closed.
const IDLE_PATIENCE: Duration = Duration::from_secs(120);
/// Time for the core to decide a request.
const DECIDE_PATIENCE: Duration = Duration::from_secs(5);
/// Inputs that wait for the core.
const INPUTS_MAX: usize = 4096;
/// Pause after a connection that could not be taken: files of the process may be used up for a while.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How a keeper is run.
#[derive(Debug)]
pub struct KeeperServerOptions {
    /// Where it listens.
    pub listener: TcpListener,
    /// The other keepers.
    pub peers: BTreeMap<KeeperId, SocketAddr>,
    /// How connections are secured.
    pub security: Security,
    /// Its clock.
    pub clock: Arc<KeeperClock>,
}

/// The clock of a keeper: the time since its start. Tests make it slow, so that a busy machine changes no leader, and
/// let time pass at once.
#[derive(Debug)]
pub struct KeeperClock {
    ahead_ns: AtomicU64,
    slowness: u32,
}

impl Default for KeeperClock {
    fn default() -> Self {
        Self::slow(1)
    }
}

impl KeeperClock {
    /// A clock that is so many times slower than the right one.
    #[must_use]
    pub const fn slow(slowness: u32) -> Self {
        Self { ahead_ns: AtomicU64::new(0), slowness: if slowness == 0 { 1 } else { slowness } }
    }

    /// So much time passes at once.
    pub fn pass(&self, ns: u64) {
        self.ahead_ns.fetch_add(ns, Ordering::SeqCst);
    }

    fn now(&self, began: Instant) -> Moment {
        let passed = u64::try_from((began.elapsed() / self.slowness).as_nanos()).unwrap_or(u64::MAX);
        Moment(passed.saturating_add(self.ahead_ns.load(Ordering::SeqCst)).saturating_add(1))
    }

    /// The real time that so much of its time takes.
    fn real(&self, ns: u64) -> Duration {
        Duration::from_nanos(ns.saturating_mul(self.slowness.into()))
    }
}

/// Counts of connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerCounts {
    /// Connections that said who they are.
    pub accepted: u64,
    /// Connections that were closed because there were too many.
    pub too_many: u64,
    /// Connections that were closed because they did not say in time, or not in the right way, who they are.
    pub refused: u64,
    /// Requests that were denied to who asked.
    pub denied: u64,
}

/// The state of a keeper.
#[derive(Clone, Debug, Default)]
pub struct KeeperStatus {
    /// Its number.
    pub id: KeeperId,
    /// The keeper that leads, if one is known.
    pub leader: Option<KeeperId>,
    /// The term of the keepers.
    pub term: u64,
    /// Entries that it applied.
    pub applied: u64,
    /// Volumes: name, term, sender.
    pub volumes: Vec<(VolumeId, lodestone_fabric::VolumeState)>,
    /// Counts of its core.
    pub counts: KeeperCounts,
    /// Counts of its connections.
    pub server: ServerCounts,
    /// How connections are secured: `tls` or `plain-network`.
    pub security: &'static str,
    /// The last refusals of connections, by name.
    pub refusals: Vec<String>,
    /// Why it stopped, if it did.
    pub failure: Option<String>,
}

enum Input {
    Message(Vec<u8>),
    Request(Option<NodeId>, VolumeId, Request, SyncSender<Answer>),
    Stop,
}

#[derive(Debug, Default)]
struct Shared {
    status: Mutex<KeeperStatus>,
    /// Handles to open connections, to close them at the end.
    open: Mutex<BTreeMap<u64, TcpStream>>,
    strangers: Mutex<usize>,
    is_stopping: AtomicBool,
}

impl Shared {
    /// The keeper answers nothing from now on. A client that waits is told by the end of its connection.
    fn fail(&self, failure: String) {
        lock(&self.status).failure.get_or_insert(failure);
        self.is_stopping.store(true, Ordering::SeqCst);
        self.close_all();
    }

    fn close_all(&self) {
        for handle in lock(&self.open).values() {
            _ = handle.shutdown(Shutdown::Both);
        }
    }
}

/// Notes the panic of a thread without which a keeper is none.
struct Watch {
    shared: Arc<Shared>,
    name: &'static str,
}

impl Drop for Watch {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.fail(format!("its {} panicked; this is a bug. Start it again", self.name));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A keeper that runs. It stops when this is dropped.
#[derive(Debug)]
pub struct KeeperServer {
    address: SocketAddr,
    inputs: SyncSender<Input>,
    shared: Arc<Shared>,
    core: Option<JoinHandle<()>>,
    door: Option<JoinHandle<()>>,
}

fn network(doing: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::Network { doing, source }
}

impl KeeperServer {
    /// Runs a keeper. `pool` is kept as long as it runs: its file is in use.
    ///
    /// # Errors
    /// [`Error::Network`] if the socket or a thread cannot be had.
    pub fn start(keeper: Keeper, pool: impl Send + 'static, options: KeeperServerOptions) -> Result<Self> {
        let address = options.listener.local_addr().map_err(network("reading the keeper's address"))?;
        let (inputs, received) = sync_channel(INPUTS_MAX);
        let shared = Arc::new(Shared::default());
        *lock(&shared.status) =
            KeeperStatus { id: keeper.id(), security: options.security.name(), ..KeeperStatus::default() };
        let mut links = BTreeMap::new();
        for (id, peer) in &options.peers {
            let link = Link::start(keeper.id(), *id, *peer, options.security.clone());
            links.insert(*id, link.map_err(network("starting a thread"))?);
        }
        let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new().name(name.to_owned()).spawn(work).map_err(network("starting a thread"))
        };
        let (own, clock) = (Arc::clone(&shared), options.clock);
        let core = spawn(
            "keeper",
            Box::new(move || {
                let _watch = Watch { shared: Arc::clone(&own), name: "core" };
                let core = Core { keeper, links, shared: own, began: Instant::now(), clock };
                core.run(&received);
                drop(pool);
            }),
        )?;
        let (own, to_core, security) = (Arc::clone(&shared), inputs.clone(), options.security);
        let listener = options.listener;
        let work = move || {
            let _watch = Watch { shared: Arc::clone(&own), name: "door" };
            take_connections(&listener, &security, &own, &to_core);
        };
        let door = spawn("keeper-door", Box::new(work))?;
        Ok(Self { address, inputs, shared, core: Some(core), door: Some(door) })
    }

    /// Its address.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its state, a moment ago. With a [`failure`](KeeperStatus::failure) it answers nothing any more: the process must
    /// end, so that another one can start the keeper again.
    #[must_use]
    pub fn status(&self) -> KeeperStatus {
        lock(&self.shared.status).clone()
    }

    /// Stops it, and waits for its threads.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.shared.is_stopping.store(true, Ordering::SeqCst);
        _ = self.inputs.send(Input::Stop);
        if let Some(core) = self.core.take() {
            _ = core.join();
        }
        self.shared.close_all();
        // The door waits for a connection: this is the last.
        _ = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
        if let Some(door) = self.door.take() {
            _ = door.join();
        }
    }
}

impl Drop for KeeperServer {
    fn drop(&mut self) {
        self.end();
    }
}

/// The thread of the core.
struct Core {
    keeper: Keeper,
    links: BTreeMap<KeeperId, Link>,
    shared: Arc<Shared>,
    began: Instant,
    clock: Arc<KeeperClock>,
}

impl Core {
    fn now(&self) -> Moment {
        self.clock.now(self.began)
    }

    fn run(mut self, inputs: &Receiver<Input>) {
        let mut waiting: BTreeMap<Token, SyncSender<Answer>> = BTreeMap::new();
        let mut tokens = 0;
        let failure = loop {
            let wait = self.keeper.wake_at().map_or(0, |at| at.since(self.now()));
            let input = match inputs.recv_timeout(self.clock.real(wait)) {
                Ok(Input::Stop) | Err(RecvTimeoutError::Disconnected) => break None,
                Ok(input) => Some(input),
                Err(RecvTimeoutError::Timeout) => None,
            };
            let mut out = KeeperOutbound::default();
            let now = self.now();
            let done = match input {
                None | Some(Input::Stop) => Ok(()),
                Some(Input::Message(bytes)) => self.keeper.message(now, &bytes, &mut out),
                Some(Input::Request(node, volume, request, reply)) => {
                    assert!(!planted::active("registry-core-panics"), "planted");
                    tokens += 1;
                    waiting.insert(Token(tokens), reply);
                    self.keeper.request_of(now, Token(tokens), node, (volume, request), &mut out)
                }
            };
            // Also when inputs never end: beats must go out.
            if let Err(error) = done.and_then(|()| self.keeper.tick(self.now(), &mut out)) {
                // Nothing of this batch leaves: it may not be durable.
                break Some(error.to_string());
            }
            for (to, bytes) in out.messages {
                if let Some(link) = self.links.get(&to) {
                    link.send(bytes);
                }
            }
            for (token, answer) in out.answers {
                if let Some(reply) = waiting.remove(&token) {
                    _ = reply.try_send(answer);
                }
            }
            self.publish();
        };
        if let Some(failure) = failure {
            self.shared.fail(failure);
        }
        for link in std::mem::take(&mut self.links).into_values() {
            link.stop();
        }
    }

    fn publish(&self) {
        let keeper = &self.keeper;
        let mut status = lock(&self.shared.status);
        let is_new = status.applied != keeper.applied();
        (status.leader, status.term, status.applied) = (keeper.leader(), keeper.term(), keeper.applied());
        status.counts = keeper.counts();
        if is_new {
            status.volumes = keeper.table().volumes().map(|(id, state, _)| (id, state.clone())).collect();
        }
    }
}

/// Takes connections until the keeper stops.
fn take_connections(listener: &TcpListener, security: &Security, shared: &Arc<Shared>, inputs: &SyncSender<Input>) {
    let mut number = 0;
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    let is_stopping = || shared.is_stopping.load(Ordering::SeqCst);
    while !is_stopping() {
        let Ok((stream, from)) = listener.accept() else {
            std::thread::sleep(ACCEPT_PAUSE);
            continue;
        };
        if is_stopping() {
            break;
        }
        threads.retain(|thread| !thread.is_finished());
        if threads.len() >= CONNECTIONS_MAX || *lock(&shared.strangers) >= STRANGERS_MAX {
            lock(&shared.status).server.too_many += 1;
            continue;
        }
        number += 1;
        let place = Place::take(shared, number, &stream);
        let connection =
            Connection { from, security: security.clone(), shared: Arc::clone(shared), inputs: inputs.clone() };
        let name = format!("keeper-connection-{number}");
        // Without a thread the connection is closed, and its place is free again.
        threads.extend(std::thread::Builder::new().name(name).spawn(move || connection.serve(place, stream)));
    }
    shared.close_all();
    for thread in threads {
        _ = thread.join();
    }
}

/// The place of a connection among the open ones, and among strangers until it said who it is. Free again whatever
/// ends its thread.
struct Place {
    shared: Arc<Shared>,
    number: u64,
    is_stranger: bool,
}

impl Place {
    fn take(shared: &Arc<Shared>, number: u64, stream: &TcpStream) -> Self {
        *lock(&shared.strangers) += 1;
        if let Ok(handle) = stream.try_clone() {
            lock(&shared.open).insert(number, handle);
        }
        Self { shared: Arc::clone(shared), number, is_stranger: true }
    }

    fn is_known(&mut self) {
        if std::mem::take(&mut self.is_stranger) {
            *lock(&self.shared.strangers) -= 1;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.is_known();
        lock(&self.shared.open).remove(&self.number);
    }
}

/// The thread of a connection.
struct Connection {
    from: SocketAddr,
    security: Security,
    shared: Arc<Shared>,
    inputs: SyncSender<Input>,
}

/// Refusals that a status shows.
const REFUSALS_MAX: usize = 16;

impl Connection {
    fn serve(self, mut place: Place, stream: TcpStream) {
        let mut greeted = self.greeted(stream);
        if let Ok((line, _, Purpose::Join, _)) = &mut greeted {
            // It counts as a stranger until the end.
            self.ended(self.join(line));
        }
        place.is_known();
        match greeted {
            Ok((_, _, Purpose::Join, _)) => {}
            Ok((line, peer, purpose, number)) => {
                lock(&self.shared.status).server.accepted += 1;
                self.served(line, peer, purpose, KeeperId(number));
            }
            Err(error) => self.refuse(&error.to_string()),
        }
    }

    /// Notes by name why a connection was refused.
    fn refuse(&self, reason: &str) {
        let mut status = lock(&self.shared.status);
        status.server.refused += 1;
        if status.refusals.len() >= REFUSALS_MAX {
            status.refusals.remove(0);
        }
        status.refusals.push(format!("{}: {reason}", self.from));
    }

    /// Certificates and hello, within seconds.
    fn greeted(&self, stream: TcpStream) -> io::Result<(Line, Peer, Purpose, u64)> {
        let (mut line, peer) = self.security.accept(stream)?;
        let (purpose, number) = line.greeting()?;
        let denied = |text: String| Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        match (purpose, peer) {
            (_, Peer::Anyone) | (Purpose::Join, _) => {}
            (Purpose::Messages, Peer::Keeper(id)) if id.0 == number => {}
            (Purpose::Requests, Peer::Node(_) | Peer::Operator | Peer::Keeper(_)) => {}
            (_, Peer::Unknown) => return denied("it has no certificate; join with a token first".to_owned()),
            (_, peer) => return denied(format!("{peer:?} may not use this connection as {purpose:?} {number}")),
        }
        Ok((line, peer, purpose, number))
    }

    fn served(&self, mut line: Line, peer: Peer, purpose: Purpose, keeper: KeeperId) {
        self.ended(match purpose {
            Purpose::Messages => self.messages(&mut line, keeper),
            _ => self.requests(&mut line, peer),
        });
    }

    /// Notes a connection that ended with bytes that are none.
    fn ended(&self, outcome: io::Result<()>) {
        if let Err(error) = outcome
            && error.kind() == io::ErrorKind::InvalidData
        {
            self.refuse(&error.to_string());
        }
    }

    fn messages(&self, line: &mut Line, keeper: KeeperId) -> io::Result<()> {
        loop {
            line.within(Some(IDLE_PATIENCE));
            let bytes = line.receive(FRAME_BYTES_MAX)?;
            if sender_of(&bytes) != Some(keeper) {
                return Err(io::Error::new(io::ErrorKind::InvalidData, format!("{keeper} sent for another keeper")));
            }
            if self.inputs.send(Input::Message(bytes)).is_err() {
                return Ok(());
            }
        }
    }

    fn requests(&self, line: &mut Line, peer: Peer) -> io::Result<()> {
        loop {
            line.within(Some(IDLE_PATIENCE));
            let bytes = line.receive(REQUEST_BYTES_MAX)?;
            line.within(Some(HELLO_PATIENCE));
            let reply = self.reply(peer, &bytes)?;
            line.send(&reply)?;
        }
    }

    /// The answer to one request.
    fn reply(&self, peer: Peer, bytes: &[u8]) -> io::Result<Vec<u8>> {
        #[cfg(feature = "tls")]
        if let Some(reply) = self.secret(peer, bytes) {
            return Ok(reply);
        }
        let mut from = Reader(bytes);
        let request = Request::read(&mut from).filter(|_| from.end().is_some());
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, "a request that is none");
        let (volume, request) = request.ok_or_else(wrong)?;
        if let Some(reason) = denied(peer, &request) {
            lock(&self.shared.status).server.denied += 1;
            return Ok(Answer::Refused(reason).to_bytes());
        }
        let node = if let Peer::Node(node) = peer { Some(node) } else { None };
        Ok(self.decide(node, volume, request).to_bytes())
    }

    /// Asks the core, with the rights of a node.
    fn decide(&self, node: Option<NodeId>, volume: VolumeId, request: Request) -> Answer {
        let (reply, answer) = sync_channel(1);
        if self.inputs.send(Input::Request(node, volume, request, reply)).is_err() {
            return Answer::NotLeader(0);
        }
        answer.recv_timeout(DECIDE_PATIENCE).unwrap_or(Answer::Unknown)
    }

    /// The answer to a request for a secret; `None`: it is another request.
    #[cfg(feature = "tls")]
    fn secret(&self, peer: Peer, bytes: &[u8]) -> Option<Vec<u8>> {
        use crate::control::{SECRET_REQUEST, SecretRequest, secret_reply};
        if bytes.first() != Some(&SECRET_REQUEST) {
            return None;
        }
        let refused = |text: String| {
            lock(&self.shared.status).server.denied += 1;
            Some(Answer::Refused(text).to_bytes())
        };
        let Security::Tls(credentials) = &self.security else {
            return refused("on a plain network there are no secrets".to_owned());
        };
        let Some(request) = SecretRequest::from_bytes(bytes) else {
            return refused("a request that is none".to_owned());
        };
        // The newest state, agreed on by a majority: a keeper that lacks it might tell a node that was removed.
        let state = match self.decide(None, request.volume, Request::State) {
            Answer::State(state) => state,
            other => return Some(other.to_bytes()),
        };
        if let Some(reason) = request.denied(&state, peer) {
            return refused(reason);
        }
        match credentials.root_secret().and_then(|root| request.derive(root)) {
            Some(secret) => Some(secret_reply(&secret)),
            None => refused("this keeper has no secrets".to_owned()),
        }
    }

    #[cfg(feature = "tls")]
    fn join(&self, line: &mut Line) -> io::Result<()> {
        let Security::Tls(credentials) = &self.security else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "on a plain network nobody joins"));
        };
        if let Some(refusal) = credentials.serve_join(line)? {
            self.refuse(&refusal);
        }
        Ok(())
    }

    #[cfg(not(feature = "tls"))]
    fn join(&self, _: &mut Line) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::InvalidData, "this program was built without certificates"))
    }
}

/// Why somebody may not make a request; `None`: it may.
fn denied(peer: Peer, request: &Request) -> Option<String> {
    match (peer, request) {
        (Peer::Anyone | Peer::Operator, _) | (Peer::Keeper(_), Request::State) => None,
        (Peer::Node(own), Request::Claim(node, _)) if !is_same_machine(own, *node) => {
            Some(format!("{own} may not claim a term for {node}"))
        }
        (Peer::Node(_), Request::Create(_)) => Some("only an operator makes volumes".to_owned()),
        (Peer::Node(_), _) => None,
        (peer, _) => Some(format!("{peer:?} may not ask this")),
    }
}

#[cfg(test)]
mod tests {
    use lodestone_fabric::Term;

    use super::*;

    #[test]
    fn a_node_claims_for_itself_alone() {
        let claim = |node| Request::Claim(NodeId(node), Term(0));
        assert!(denied(Peer::Node(NodeId(7)), &claim(7)).is_none());
        assert!(denied(Peer::Node(NodeId(7)), &claim(8)).is_some());
        assert!(denied(Peer::Node(NodeId(7)), &claim(0x4007)).is_none(), "as the sender of its machine");
        assert!(denied(Peer::Node(NodeId(7)), &Request::Create(vec![])).is_some());
        assert!(denied(Peer::Keeper(KeeperId(1)), &claim(1)).is_some());
        assert!(denied(Peer::Operator, &Request::Create(vec![])).is_none());
        assert!(denied(Peer::Unknown, &Request::State).is_some());
    }
}
