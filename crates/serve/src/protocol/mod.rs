//! The conversation with one client, without a socket: bytes in, bytes out.
//!
//! 1. [`Machine::receive`] takes bytes, [`Machine::advance`] carries out all complete messages, [`Machine::ready`]
//!    has the bytes that may leave.
//! 2. Before a client is known it has 10,000 bytes for its first message, and nothing else is kept of it.
//! 3. An error of the extended protocol skips all messages up to the next Sync.
//! 4. A statement that waits for a lock keeps the machine: later messages wait for it.
//! 5. A message that takes long waits for a thread that carries it out ([`Machine::wants_worker`]). There rows leave
//!    while the statement runs.
//! 6. An answer waits for the tickets of its statement; later messages are carried out meanwhile.
//!
//! No input makes it panic: that is tested with every prefix and random damage of recorded conversations.

mod backend;
mod frontend;
mod out;
mod places;

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Instant;

use lodestone_sql::scram::{self, Exchange, Verifier};
use lodestone_sql::{Completion, Connection, Database, Failure, Overdue, SimpleQuery};
use lodestone_sql_types::{Error, SqlState};

pub use backend::Stream;
use backend::Writer;
use frontend::{Message, Opening, Subject};
use out::Out;
use places::Place;
pub use places::Places;

use crate::panics::AtHand;

/// Bytes of messages that may wait for a statement that waits for a lock.
const INPUT_BYTES_MAX: usize = 1 << 20;

/// Most requests of a client for encryption before it says who it is: one by GSS, one by TLS.
const REQUESTS_MAX: u8 = 2;
/// Most bytes of a message that waits which are kept for an event about it.
const AT_HAND_BYTES_MAX: usize = 4 << 10;
/// Bytes of memory for messages that a client keeps while it is idle.
const IDLE_BYTES_MAX: usize = 4 << 10;

/// Encryption of the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encryption {
    /// There is none.
    None,
    Offered {
        is_needed: bool,
    },
    /// The client was told that it begins.
    Begins,
    Is,
}

/// Who a client may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// The operating system says that it is this user.
    User(String),
    /// No authority says so: it comes from this machine, and that is enough by the server's options.
    Trusted,
    /// No authority says so: it must prove that it knows the password of a role.
    Unknown,
    /// It may not connect, for this reason.
    Refused(String),
}

/// The server, as a conversation needs it.
#[derive(Clone, Debug)]
pub struct Host {
    /// The tables.
    pub database: Database,
    /// The name of the database.
    pub name: String,
    /// The room for clients that are known.
    pub places: Arc<Places>,
    /// Whether there are threads for messages that take long: see [`Machine::wants_worker`].
    pub has_workers: bool,
    /// The source of the answers to users that are not there. Clients do not know it.
    pub secret: [u8; 32],
}

/// A message that has not been answered yet.
#[expect(clippy::large_enum_variant, reason = "a short query must not allocate")]
enum Pending {
    Simple(SimpleQuery),
    Execute { portal: String, rows_max: usize, is_last: bool },
}

enum Phase {
    Opening,
    /// A client that has said who it is, and must prove it.
    Proving(Box<Proof>),
    Ready(Box<Connection>),
    Closed,
}

/// The proof of a password that is under way.
struct Proof {
    minor: u16,
    settings: Vec<(String, String)>,
    user: String,
    verifier: Option<Verifier>,
    /// After the client's first message.
    exchange: Option<Exchange>,
}

/// The conversation with one client. See the module.
pub struct Machine {
    host: Host,
    peer: Peer,
    /// Its address, if it has one.
    address: Option<SocketAddr>,
    phase: Phase,
    input: Vec<u8>,
    out: Out,
    waker: Waker,
    pending: Option<Pending>,
    /// The beginning of the pending message, or of the one whose COPY takes rows, for an event about it.
    at_hand: Vec<u8>,
    /// The pending message takes long.
    wants_worker: bool,
    /// On a thread that serves this client alone: bytes may leave while a statement runs.
    stream: Option<Box<dyn Stream>>,
    /// The rest of a simple query whose COPY takes rows.
    copying: Option<SimpleQuery>,
    /// The COPY belongs to the extended protocol.
    is_extended_copy: bool,
    /// Messages up to the next Sync do not count.
    is_skipping: bool,
    encryption: Encryption,
    requests: u8,
    /// The place among the clients, of one that is known.
    place: Option<Place>,
    /// The connection of a conversation that is over, if its end takes long.
    ending: Option<Box<Connection>>,
}

impl std::fmt::Debug for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Machine").field("peer", &self.peer).finish_non_exhaustive()
    }
}

impl Machine {
    /// A client that has said nothing yet. `waker` is called when the machine can go on.
    #[must_use]
    pub fn new(host: Host, peer: Peer, waker: Waker) -> Self {
        Self {
            host,
            peer,
            address: None,
            phase: Phase::Opening,
            input: Vec::new(),
            out: Out::default(),
            waker,
            pending: None,
            at_hand: Vec::new(),
            wants_worker: false,
            stream: None,
            copying: None,
            is_extended_copy: false,
            is_skipping: false,
            encryption: Encryption::None,
            requests: 0,
            place: None,
            ending: None,
        }
    }

    /// The client has this address.
    pub fn set_address(&mut self, address: SocketAddr) {
        self.address = Some(address);
    }

    /// Offers encryption to a client that has said nothing yet. `is_needed`: it may not go on without.
    pub fn offer_encryption(&mut self, is_needed: bool) {
        self.encryption = Encryption::Offered { is_needed };
    }

    /// Whether encryption begins after the bytes that are [ready](Self::ready).
    #[must_use]
    pub fn wants_encryption(&self) -> bool {
        self.encryption == Encryption::Begins && !self.is_closed()
    }

    /// All further bytes are encrypted.
    pub fn note_encrypted(&mut self) {
        self.encryption = Encryption::Is;
    }

    /// Takes bytes of the client.
    pub fn receive(&mut self, bytes: &[u8]) {
        if !matches!(self.phase, Phase::Closed) {
            self.input.extend(bytes);
        }
    }

    /// Whether the client is known.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Ready(_))
    }

    /// Whether the conversation is over: what [`ready`](Self::ready) has is sent, and then the socket is closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        matches!(self.phase, Phase::Closed)
    }

    /// Whether the next message takes long: another thread is to carry it out.
    #[must_use]
    pub fn wants_worker(&self) -> bool {
        self.wants_worker
    }

    /// From now on a thread serves this client alone, and waits for it. `None`: no more.
    pub fn set_stream(&mut self, stream: Option<Box<dyn Stream>>) {
        self.wants_worker = false;
        if let Phase::Ready(connection) = &mut self.phase {
            connection.set_patient(stream.is_some() || !self.host.has_workers);
        }
        self.stream = stream;
    }

    /// The connection of a conversation that is over, or ends now, if its end takes long: temporary tables are dropped
    /// with it. `None`: it ends at once.
    #[must_use]
    pub fn take_ending(&mut self) -> Option<Box<Connection>> {
        self.close();
        self.ending.take()
    }

    /// The conversation is over.
    fn close(&mut self) {
        if let Phase::Ready(connection) = std::mem::replace(&mut self.phase, Phase::Closed)
            && self.host.has_workers
            && connection.has_temporary()
        {
            self.ending = Some(connection);
        }
    }

    /// Whether the client sends rows.
    #[must_use]
    pub fn is_copying(&self) -> bool {
        matches!(&self.phase, Phase::Ready(connection) if connection.is_copying())
    }

    /// Waits until all bytes may leave.
    pub fn wait(&mut self) {
        if let Err(error) = self.out.wait() {
            self.fatal(&lodestone_sql::from_engine(error));
        }
    }

    /// The number and the secret by which its statement can be cancelled.
    #[must_use]
    pub fn cancel_key(&self) -> Option<(i32, i32)> {
        match &self.phase {
            Phase::Ready(connection) => Some(connection.cancel_key()),
            _ => None,
        }
    }

    /// Looks at the clock: ends a wait that is too long, or the conversation.
    pub fn look_at_clock(&mut self, now: Instant) {
        let Phase::Ready(connection) = &mut self.phase else { return };
        let is_waiting = self.pending.is_some();
        match connection.overdue(now, is_waiting) {
            None => {}
            Some(Overdue::Session(error)) => self.fatal(&error),
            Some(Overdue::Statement(error)) => {
                let Some(pending) = self.pending.take() else { return };
                self.refuse(&error);
                match pending {
                    Pending::Simple(_) => self.ready_for_query(),
                    Pending::Execute { .. } => self.is_skipping = true,
                }
                self.advance();
            }
        }
    }

    /// Bytes that have not left yet, also those that wait.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        self.out.bytes.len()
    }

    /// Whether it takes more messages: one that waits for a lock keeps the later ones in memory.
    #[must_use]
    pub fn takes_more(&self) -> bool {
        self.pending.is_none() || self.input.len() < INPUT_BYTES_MAX
    }

    /// Whether a statement waits for another client's lock.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.pending.is_some() && !self.wants_worker
    }

    /// Whether bytes wait to become durable.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.out.is_waiting()
    }

    /// The bytes that may leave. The waker is called when there may be more.
    pub fn ready(&mut self) -> &[u8] {
        self.out.note_whole();
        if !self.out.is_waiting() {
            return &self.out.bytes;
        }
        let waker = self.waker.clone();
        let mut task = Context::from_waker(&waker);
        if let Err(error) = self.out.ready(&mut task) {
            let error = lodestone_sql::from_engine(error);
            backend::error(&mut self.out.bytes, "FATAL", &error);
            self.close();
        }
        self.out.ready(&mut task).unwrap_or_default()
    }

    /// `count` of the ready bytes left.
    pub fn leave(&mut self, count: usize) {
        self.out.leave(count);
    }

    /// Ends the conversation: the server stops.
    pub fn stop(&mut self) {
        if !self.is_closed() {
            let error = Error::new(SqlState::ADMIN_SHUTDOWN, "terminating connection due to administrator command");
            self.fatal(&error);
        }
    }

    fn fatal(&mut self, error: &Error) {
        backend::error(&mut self.out.bytes, "FATAL", error);
        self.close();
        self.pending = None;
        self.input.clear();
        self.place = None;
    }

    /// Ends the conversation if somebody wants that. Whether it has ended.
    fn ends(&mut self) -> bool {
        let Phase::Ready(connection) = &self.phase else { return self.is_closed() };
        let Some(error) = connection.end_wanted() else { return false };
        self.fatal(&error);
        true
    }

    /// Carries out all complete messages.
    pub fn advance(&mut self) {
        if self.wants_worker || self.ends() {
            return;
        }
        if let Some(pending) = self.pending.take() {
            let Phase::Ready(connection) = &mut self.phase else { return };
            if !connection.can_go_on() {
                self.pending = Some(pending);
                return;
            }
            let cancelled = connection.check_cancel().err();
            match (pending, cancelled) {
                (Pending::Simple(_), Some(error)) => {
                    self.refuse(&error);
                    self.ready_for_query();
                }
                (Pending::Execute { .. }, Some(error)) => {
                    self.refuse(&error);
                    self.is_skipping = true;
                }
                (Pending::Simple(query), None) => self.run_simple(query),
                (Pending::Execute { portal, rows_max, is_last }, None) => self.execute(&portal, rows_max, is_last),
            }
        }
        let mut at_hand = AtHand { input: std::mem::take(&mut self.input), done: 0 };
        while self.pending.is_none() && !self.ends() {
            let rest = &at_hand.input[at_hand.done..];
            if self.encryption == Encryption::Begins {
                // Bytes that came with the request may be of somebody between the client and this server.
                if !rest.is_empty() {
                    self.fatal(&frontend::wrong("received unencrypted data after SSL request"));
                }
                break;
            }
            match self.message(rest) {
                Ok(0) => break,
                Ok(count) => {
                    if self.pending.is_some() || self.copying.is_some() {
                        self.keep_at_hand(&rest[..count]);
                    }
                    at_hand.done += count;
                }
                Err(error) => {
                    self.fatal(&error);
                    break;
                }
            }
        }
        if !self.is_closed() {
            self.input = std::mem::take(&mut at_hand.input);
            self.input.drain(..at_hand.done);
            if self.input.is_empty() && self.input.capacity() > IDLE_BYTES_MAX {
                self.input = Vec::new();
            }
        }
    }

    /// Keeps the text of a message that goes on later. That of a COPY stays while its rows come.
    fn keep_at_hand(&mut self, message: &[u8]) {
        if message.first() != Some(&b'd') {
            self.at_hand.clear();
            self.at_hand.extend_from_slice(&message[..message.len().min(AT_HAND_BYTES_MAX)]);
        }
    }

    /// The statement of the message that `input` begins with, or of the one that waits, without the values of its
    /// parameters.
    pub(crate) fn text_at_hand(&self, input: &[u8]) -> String {
        let is_waiting = self.pending.is_some() || self.copying.is_some() || input.is_empty();
        let message = if is_waiting { &self.at_hand[..] } else { input };
        let Phase::Ready(connection) = &self.phase else { return String::new() };
        let found = match frontend::subject(message) {
            Subject::Text(text) => return text,
            Subject::Portal(name) => connection.text_of_portal(&name),
            Subject::Prepared(name) => connection.text_of_prepared(&name),
            Subject::None => None,
        };
        found.map(frontend::without_quoted).unwrap_or_default()
    }

    /// Ends the conversation after a panic in it: the client is told that there was one, its transaction is rolled
    /// back, and its locks are released. Nothing of the state at hand is used again.
    pub(crate) fn fail(&mut self) {
        self.out.take_back_broken();
        if let Phase::Ready(connection) = &mut self.phase {
            connection.give_up();
        }
        (self.stream, self.wants_worker, self.copying) = (None, false, None);
        if !self.is_closed() {
            let message = "an error inside of the server has ended the connection";
            let error = Error::new(SqlState::INTERNAL_ERROR, message)
                .hint("The transaction is rolled back. The log of the server has the statement.");
            self.fatal(&error);
        }
    }

    /// Carries out the first message of `input`. Returns its length; 0 if it is not complete.
    fn message(&mut self, input: &[u8]) -> Result<usize, Error> {
        self.out.note_whole();
        match self.phase {
            Phase::Closed => Ok(0),
            Phase::Opening => {
                let Some((opening, length)) = frontend::opening(input)? else { return Ok(0) };
                self.open(opening)?;
                Ok(length)
            }
            Phase::Proving(_) => {
                let Some(length) = frontend::proof_frame(input)? else { return Ok(0) };
                self.prove(&input[5..length])?;
                Ok(length)
            }
            Phase::Ready(_) => {
                let Some(length) = frontend::frame(input)? else { return Ok(0) };
                // A Sync right after it: an implicit transaction may end with this message.
                let is_last = input.get(length) == Some(&b'S');
                match frontend::decode(input[0], &input[5..length]) {
                    Ok(message) => self.carry_out(message, is_last),
                    Err(error) => {
                        let is_sync = input[0] == b'Q';
                        self.fail_connection();
                        self.refuse(&error);
                        if is_sync { self.ready_for_query() } else { self.is_skipping = true }
                    }
                }
                Ok(length)
            }
        }
    }

    /// A message that makes no sense ends a transaction as a wrong statement does.
    fn fail_connection(&mut self) {
        if let Phase::Ready(connection) = &mut self.phase {
            connection.fail_message();
        }
    }

    fn open(&mut self, opening: Opening) -> Result<(), Error> {
        match opening {
            Opening::Encryption { is_tls } => {
                self.requests += 1;
                if self.requests > REQUESTS_MAX {
                    return Err(frontend::wrong("too many requests for encryption"));
                }
                let begins = is_tls && matches!(self.encryption, Encryption::Offered { .. });
                self.out.bytes.extend_from_slice(if begins { b"S" } else { b"N" });
                if begins {
                    self.encryption = Encryption::Begins;
                }
                Ok(())
            }
            Opening::Cancel { number, secret } => {
                self.host.database.cancel(number, secret);
                self.close();
                Ok(())
            }
            Opening::Startup { minor, settings } => self.know(minor, settings),
        }
    }

    /// A client says who it is.
    fn know(&mut self, minor: u16, settings: Vec<(String, String)>) -> Result<(), Error> {
        let user = setting(&settings, "user").filter(|user| !user.is_empty()).ok_or_else(|| {
            Error::new(SqlState::INVALID_AUTHORIZATION, "no PostgreSQL user name specified in startup packet")
        })?;
        if self.encryption == (Encryption::Offered { is_needed: true }) {
            let message = "connections from other machines must be encrypted";
            return Err(Error::new(SqlState::INVALID_AUTHORIZATION, message).hint("Use sslmode=require."));
        }
        match &self.peer {
            Peer::Trusted => {}
            Peer::User(name) if name == user => {}
            Peer::Unknown => {
                let found = self.host.database.verifier(user)?;
                let verifier = found.unwrap_or_else(|| Verifier::of_nobody(&self.host.secret, user));
                backend::authentication_sasl(&mut self.out.bytes, scram::MECHANISM);
                let (user, verifier) = (user.to_owned(), Some(verifier));
                self.phase = Phase::Proving(Box::new(Proof { minor, settings, user, verifier, exchange: None }));
                return Ok(());
            }
            Peer::User(_) => {
                let message = format!("Peer authentication failed for user \"{user}\"");
                return Err(Error::new(SqlState::INVALID_AUTHORIZATION, message));
            }
            Peer::Refused(reason) => return Err(Error::new(SqlState::INVALID_AUTHORIZATION, reason.clone())),
        }
        self.start(minor, &settings)
    }

    /// Takes a message of the proof.
    fn prove(&mut self, body: &[u8]) -> Result<(), Error> {
        let Phase::Proving(proof) = &mut self.phase else { return Ok(()) };
        if let Some(verifier) = proof.verifier.take() {
            let message = frontend::first_proof(body)?;
            let (exchange, answer) = Exchange::begin(verifier, message)?;
            proof.exchange = Some(exchange);
            backend::sasl_continue(&mut self.out.bytes, &answer);
            return Ok(());
        }
        let exchange = proof.exchange.take().ok_or_else(|| frontend::wrong("this message is not expected here"))?;
        let Some(answer) = exchange.finish(frontend::text_of(body)?)? else {
            let message = format!("password authentication failed for user \"{}\"", proof.user);
            return Err(Error::new(SqlState::INVALID_PASSWORD, message));
        };
        let (minor, settings) = (proof.minor, std::mem::take(&mut proof.settings));
        backend::sasl_final(&mut self.out.bytes, &answer);
        self.start(minor, &settings)
    }

    /// The client is who it says.
    fn start(&mut self, minor: u16, settings: &[(String, String)]) -> Result<(), Error> {
        let setting = |name: &str| setting(settings, name);
        let user = setting("user").unwrap_or_default();
        self.place = self.host.places.take();
        if self.place.is_none() {
            return Err(Error::new(SqlState::TOO_MANY_CONNECTIONS, "sorry, too many clients already"));
        }
        let database = setting("database").filter(|name| !name.is_empty()).unwrap_or(user);
        if database != self.host.name && database != "postgres" {
            let message = format!("database \"{database}\" does not exist");
            return Err(Error::new(SqlState::INVALID_CATALOG_NAME, message)
                .hint(format!("This server has the database \"{}\".", self.host.name)));
        }
        if setting("replication").is_some_and(|value| !matches!(value, "false" | "off" | "no" | "0")) {
            return Err(Error::unsupported("a connection for replication"));
        }
        let mut connection = self.host.database.connect(user, database);
        connection.set_waker(self.waker.clone());
        self.address.into_iter().for_each(|address| connection.set_client(address));
        connection.set_patient(!self.host.has_workers);
        let mut unknown = Vec::new();
        for (name, value) in settings {
            match name.as_str() {
                "user" | "database" | "replication" => {}
                "options" => set_options(&mut connection, value)?,
                name if name.starts_with("_pq_.") => unknown.push(name.to_owned()),
                name => connection.set(name, value)?,
            }
        }
        let out = &mut self.out.bytes;
        if minor > 0 || !unknown.is_empty() {
            backend::negotiate(out, unknown);
        }
        backend::authentication_ok(out);
        for (name, value) in connection.reports() {
            backend::parameter_status(out, name, &value);
        }
        backend::backend_key(out, connection.cancel_key());
        backend::ready(out, connection.status());
        connection.rest();
        self.phase = Phase::Ready(Box::new(connection));
        Ok(())
    }

    /// Tells the client of an error.
    fn refuse(&mut self, error: &Error) {
        if self.ends() {
            return;
        }
        self.told(self.out.end());
        backend::error(&mut self.out.bytes, "ERROR", error);
    }

    /// Sends notices and changed settings. Bytes from number `from` on wait for its tickets.
    fn told(&mut self, from: u64) {
        let Phase::Ready(connection) = &mut self.phase else { return };
        for notice in connection.take_notices() {
            let severity = if notice.state() == SqlState::SUCCESS { "NOTICE" } else { "WARNING" };
            backend::error(&mut self.out.bytes, severity, &notice);
        }
        for (name, value) in connection.take_reports() {
            backend::parameter_status(&mut self.out.bytes, name, &value);
        }
        let tickets = connection.take_tickets();
        self.out.gate(from, tickets);
    }

    fn ready_for_query(&mut self) {
        self.told(self.out.end());
        if let Phase::Ready(connection) = &mut self.phase {
            connection.rest();
            backend::ready(&mut self.out.bytes, connection.status());
        }
    }

    fn carry_out(&mut self, message: Message<'_>, is_last: bool) {
        let Phase::Ready(connection) = &mut self.phase else { return };
        if connection.is_copying() {
            return self.copy_message(message, is_last);
        }
        connection.forget_cancel();
        let is_extended = !matches!(message, Message::Query(_) | Message::Terminate | Message::Sync);
        if self.is_skipping && is_extended {
            return;
        }
        let from = self.out.end();
        match message {
            Message::Query(text) => match connection.simple(text) {
                Ok(query) if query.is_done() => {
                    backend::empty_query(&mut self.out.bytes);
                    self.ready_for_query();
                }
                Ok(query) => self.run_simple(query),
                Err(error) => {
                    self.refuse(&error);
                    self.ready_for_query();
                }
            },
            Message::Parse { name, query, types } => {
                let outcome = connection.parse(name, query, &types);
                self.answered(outcome, from, backend::parse_complete);
            }
            Message::Bind { portal, statement, formats, values, results } => {
                let outcome = connection.bind(portal, statement, (&formats, &values), &results);
                self.answered(outcome, from, backend::bind_complete);
            }
            Message::DescribeStatement(name) => {
                let outcome = connection.describe_statement(name);
                self.answered_with(outcome, from, |out, (parameters, columns)| {
                    backend::parameters(out, &parameters);
                    match columns {
                        Some(columns) => backend::row_description(out, &columns, &[]),
                        None => backend::no_data(out),
                    }
                });
            }
            Message::DescribePortal(name) => {
                let out = &mut self.out.bytes;
                let outcome = connection.describe_portal(name).map(|columns| match columns {
                    Some((columns, formats)) => backend::row_description(out, columns, formats),
                    None => backend::no_data(out),
                });
                self.answered_with(outcome, from, |_, ()| {});
            }
            Message::Execute { portal, rows_max } => self.execute(portal, rows_max, is_last),
            Message::CloseStatement(name) => {
                connection.close(false, name);
                backend::close_complete(&mut self.out.bytes);
            }
            Message::ClosePortal(name) => {
                connection.close(true, name);
                backend::close_complete(&mut self.out.bytes);
            }
            Message::Sync => {
                self.is_skipping = false;
                if let Err(error) = connection.sync() {
                    self.refuse(&error);
                }
                self.told(from);
                self.ready_for_query();
            }
            Message::Flush => {}
            Message::Terminate => self.close(),
            // The rest of a COPY that was refused.
            Message::CopyData(_) | Message::CopyDone | Message::CopyFail(_) => {}
        }
    }

    fn answered(&mut self, outcome: Result<(), Error>, from: u64, write: fn(&mut bytes::BytesMut)) {
        self.answered_with(outcome, from, |out, ()| write(out));
    }

    fn answered_with<T>(&mut self, outcome: Result<T, Error>, from: u64, write: impl FnOnce(&mut bytes::BytesMut, T)) {
        match outcome {
            Ok(found) => {
                self.told(from);
                write(&mut self.out.bytes, found);
            }
            Err(error) => {
                self.refuse(&error);
                self.is_skipping = true;
            }
        }
    }

    /// Runs the statements of a simple query.
    fn run_simple(&mut self, mut query: SimpleQuery) {
        while !query.is_done() {
            self.out.note_whole();
            let from = self.out.end();
            let Phase::Ready(connection) = &mut self.phase else { return };
            let mut writer = Writer::new(&mut self.out, self.stream.as_mut(), &[]);
            match connection.next(&mut query, &mut writer) {
                Ok(Completion::CopyIn { columns, is_binary }) => {
                    self.told(from);
                    backend::copy_in(&mut self.out.bytes, columns, is_binary);
                    (self.copying, self.is_extended_copy) = (Some(query), false);
                    return;
                }
                Ok(completion) => self.completed(&completion, from),
                Err(failure @ (Failure::Blocked | Failure::Long)) => {
                    self.out.take_back(from);
                    self.wants_worker = matches!(failure, Failure::Long);
                    self.pending = Some(Pending::Simple(query));
                    return;
                }
                Err(Failure::Error(error)) => {
                    self.told(from);
                    self.refuse(&error);
                    break;
                }
            }
        }
        self.ready_for_query();
    }

    fn execute(&mut self, portal: &str, rows_max: usize, is_last: bool) {
        let from = self.out.end();
        let Phase::Ready(connection) = &mut self.phase else { return };
        let mut writer = Writer::new(&mut self.out, self.stream.as_mut(), connection.formats(portal));
        match connection.execute(portal, rows_max, is_last, &mut writer) {
            Ok(Completion::CopyIn { columns, is_binary }) => {
                self.told(from);
                backend::copy_in(&mut self.out.bytes, columns, is_binary);
                self.is_extended_copy = true;
            }
            Ok(completion) => self.completed(&completion, from),
            Err(failure @ (Failure::Blocked | Failure::Long)) => {
                self.out.take_back(from);
                self.wants_worker = matches!(failure, Failure::Long);
                self.pending = Some(Pending::Execute { portal: portal.to_owned(), rows_max, is_last });
            }
            Err(Failure::Error(error)) => {
                self.told(from);
                self.refuse(&error);
                self.is_skipping = true;
            }
        }
    }

    fn completed(&mut self, completion: &Completion, from: u64) {
        self.told(from);
        let out = &mut self.out.bytes;
        match completion {
            Completion::Tag(tag) => backend::complete(out, tag),
            Completion::Short(tag) => backend::complete(out, tag),
            Completion::Empty => backend::empty_query(out),
            Completion::Suspended => backend::portal_suspended(out),
            Completion::CopyIn { .. } => {}
        }
    }

    /// A message while rows are taken.
    fn copy_message(&mut self, message: Message<'_>, is_last: bool) {
        let Phase::Ready(connection) = &mut self.phase else { return };
        let from = self.out.end();
        let is_only =
            if self.is_extended_copy { is_last } else { self.copying.as_ref().is_none_or(SimpleQuery::is_done) };
        let outcome = match message {
            Message::CopyData(bytes) => match connection.copy_data(bytes) {
                Ok(()) => return,
                Err(error) => Err(error),
            },
            Message::CopyDone => connection.copy_done(is_only),
            Message::CopyFail(reason) => Err(connection.copy_fail(reason)),
            Message::Flush | Message::Sync => return,
            Message::Terminate => {
                self.close();
                return;
            }
            _ => Err(connection.copy_fail("unexpected message type during COPY from stdin")),
        };
        self.told(from);
        let rest = self.copying.take();
        match (outcome, rest) {
            (Ok(tag), None) => backend::complete(&mut self.out.bytes, &tag),
            (Ok(tag), Some(rest)) => {
                backend::complete(&mut self.out.bytes, &tag);
                self.run_simple(rest);
            }
            (Err(error), rest) => {
                self.refuse(&error);
                if rest.is_some() { self.ready_for_query() } else { self.is_skipping = true }
            }
        }
    }
}

/// A setting of the startup message.
fn setting<'s>(settings: &'s [(String, String)], name: &str) -> Option<&'s str> {
    settings.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
}

/// Words between blanks; a backslash takes the meaning of the next letter.
fn words(text: &str) -> Vec<String> {
    let (mut words, mut word) = (Vec::new(), String::new());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => word.extend(letters.next()),
            letter if letter.is_whitespace() => words.push(std::mem::take(&mut word)),
            letter => word.push(letter),
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

/// The settings of `options`: `-c name=value`.
fn set_options(connection: &mut Connection, options: &str) -> Result<(), Error> {
    let found = words(options);
    let mut words = found.iter().map(String::as_str);
    while let Some(word) = words.next() {
        let setting = match word.strip_prefix("-c") {
            Some("") => words.next().unwrap_or_default(),
            Some(setting) => setting,
            None => match word.strip_prefix("--") {
                Some(setting) => setting,
                None => return Err(Error::unsupported(format!("the startup option {word}"))),
            },
        };
        let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
        connection.set(&name.replace('-', "_"), value)?;
    }
    Ok(())
}
