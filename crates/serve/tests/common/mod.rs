//! A database for a test, and messages as bytes.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use lodestone_engine::DatabaseOptions;
use lodestone_pmem::{DomainChoice, PoolOptions};
use lodestone_serve::protocol::{Host, Machine, Peer, Places};
use lodestone_serve::{ServeOptions, Server, socket_path};
use lodestone_sql::Database;

pub const WAIT_MAX: Duration = Duration::from_secs(60);

/// A database, and clients of it.
pub struct Place {
    folder: Arc<tempfile::TempDir>,
    pub database: Database,
}

impl Place {
    pub fn new() -> Self {
        Self::of(PoolOptions::default())
    }

    /// In a pool of this size, which does not grow.
    pub fn of_bytes(size_bytes: u64) -> Self {
        Self::of(PoolOptions { size_bytes, journal_bytes: 128 << 10, ..PoolOptions::default() })
    }

    fn of(pool: PoolOptions) -> Self {
        let folder = Arc::new(tempfile::tempdir().expect("folder"));
        let pool = PoolOptions { domain: DomainChoice::Process, ..pool };
        let options =
            DatabaseOptions { pool, log_bytes: 1 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
        let engine = lodestone_engine::Database::open_with(folder.path().join("a.pool"), &options).expect("open");
        Self { folder, database: Database::new(engine, "serializable").expect("catalog") }
    }

    /// The same database.
    pub fn new_cheap(other: &Self) -> Self {
        Self { folder: other.folder.clone(), database: other.database.clone() }
    }

    /// A client that has said nothing.
    pub fn machine(&self) -> Machine {
        self.machine_of(Peer::User("root".into()), false)
    }

    /// A client that has said nothing, of a server with these places.
    pub fn machine_at(&self, places: &Arc<Places>) -> Machine {
        self.machine_with(Peer::User("root".into()), false, places.clone())
    }

    /// A client of whom this is known.
    pub fn machine_of(&self, peer: Peer, has_workers: bool) -> Machine {
        self.machine_with(peer, has_workers, Places::new(8))
    }

    fn machine_with(&self, peer: Peer, has_workers: bool, places: Arc<Places>) -> Machine {
        let (database, name, secret) = (self.database.clone(), "shop".into(), [7; 32]);
        Machine::new(Host { database, name, places, has_workers, secret }, peer, Waker::noop().clone())
    }

    /// A client that is known.
    pub fn open(&self) -> Machine {
        let mut machine = self.machine();
        machine.receive(&startup("root", "shop"));
        machine.advance();
        let sent = machine.ready().len();
        machine.leave(sent);
        machine
    }

    /// The answers to these messages of a new client.
    pub fn answers(&self, sent: &[Vec<u8>]) -> Messages {
        let mut machine = self.open();
        machine.receive(&sent.concat());
        machine.advance();
        Messages::of(machine.ready())
    }
}

/// A server of a new database in this folder, with one loop.
pub fn start(folder: &Path) -> (Server, Database) {
    let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
    let options = DatabaseOptions { pool, log_bytes: 4 << 20, segment_bytes: 1 << 18, ..DatabaseOptions::default() };
    let engine = lodestone_engine::Database::open_with(folder.join("a.pool"), &options).expect("open");
    let database = Database::new(engine, "serializable").expect("catalog");
    let options = ServeOptions { folder: Some(folder.to_owned()), loops: Some(1), ..ServeOptions::default() };
    (Server::start(database.clone(), &options).expect("start"), database)
}

/// A client of a server, with a socket.
pub struct Client {
    pub stream: UnixStream,
    pub key: Vec<u8>,
}

impl Client {
    /// A client of the server of this folder.
    pub fn new(folder: &Path) -> Self {
        let stream = UnixStream::connect(socket_path(folder, 5432)).expect("the server");
        stream.set_read_timeout(Some(WAIT_MAX)).expect("a limit");
        let user = lodestone_serve::user_name(rustix::process::geteuid().as_raw());
        let mut client = Self { stream, key: Vec::new() };
        client.send(&startup(&user, "postgres"));
        client.key = client.answers().last(b'K').to_vec();
        client
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the server reads");
    }

    /// The next message, with its letter and its length.
    pub fn next(&mut self) -> Vec<u8> {
        let mut message = vec![0; 5];
        self.stream.read_exact(&mut message).expect("the server answers");
        let length = u32::from_be_bytes([message[1], message[2], message[3], message[4]]);
        message.resize(usize::try_from(length).expect("short") + 1, 0);
        self.stream.read_exact(&mut message[5..]).expect("the server answers");
        message
    }

    /// The messages up to the next ReadyForQuery.
    pub fn answers(&mut self) -> Messages {
        let mut all = Vec::new();
        loop {
            let message = self.next();
            all.extend(&message);
            if message[0] == b'Z' {
                return Messages::of(&all);
            }
        }
    }

    pub fn run(&mut self, text: &str) -> Messages {
        self.send(&query(text));
        self.answers()
    }

    /// Everything that the server sends until it closes the socket.
    pub fn rest(&mut self) -> Messages {
        let mut rest = Vec::new();
        self.stream.read_to_end(&mut rest).expect("the server has closed the socket");
        Messages::of(&rest)
    }
}

/// Messages of the server.
#[derive(Debug)]
pub struct Messages(Vec<(u8, Vec<u8>)>);

impl Messages {
    /// # Panics
    /// When the bytes are no whole messages.
    pub fn of(mut bytes: &[u8]) -> Self {
        let mut found = Vec::new();
        while let Some((letter, rest)) = bytes.split_first() {
            let length = u32::from_be_bytes(*rest.first_chunk().expect("a length"));
            let length = usize::try_from(length).expect("a length");
            found.push((*letter, rest.get(4..length).expect("a body").to_vec()));
            bytes = &rest[length..];
        }
        Self(found)
    }

    pub fn letters(&self) -> String {
        self.0.iter().map(|(letter, _)| char::from(*letter)).collect()
    }

    /// All messages.
    pub fn each(&self) -> impl Iterator<Item = (u8, &[u8])> {
        self.0.iter().map(|(letter, body)| (*letter, &body[..]))
    }

    /// The body of the last message with this letter.
    pub fn last(&self, letter: u8) -> &[u8] {
        let found = self.0.iter().rev().find(|(other, _)| *other == letter);
        &found.unwrap_or_else(|| panic!("no {} in {self:?}", char::from(letter))).1
    }

    /// The bodies of all messages with this letter, one after another.
    pub fn all(&self, letter: u8) -> Vec<u8> {
        self.0.iter().filter(|(other, _)| *other == letter).flat_map(|(_, body)| body.clone()).collect()
    }

    /// The columns of all rows, as texts, which are not null.
    pub fn texts(&self, letter: u8) -> Vec<String> {
        let mut found = Vec::new();
        for (_, body) in self.0.iter().filter(|(other, _)| *other == letter) {
            let mut rest = &body[2..];
            while let Some((length, after)) = rest.split_first_chunk() {
                let length = usize::try_from(u32::from_be_bytes(*length)).expect("short");
                found.push(String::from_utf8(after[..length].to_vec()).expect("text"));
                rest = &after[length..];
            }
        }
        found
    }

    /// Whether a message with this letter has this text in it.
    pub fn has_text(&self, letter: u8, text: &str) -> bool {
        let has = |body: &[u8]| body.windows(text.len()).any(|part| part == text.as_bytes());
        self.0.iter().any(|(other, body)| *other == letter && has(body))
    }
}

pub fn message(letter: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).expect("short").to_be_bytes();
    [&[letter][..], &length, body].concat()
}

pub fn startup(user: &str, database: &str) -> Vec<u8> {
    let body = format!("user\0{user}\0database\0{database}\0application_name\0test\0\0");
    let length = u32::try_from(body.len() + 8).expect("short").to_be_bytes();
    [&length[..], &[0, 3, 0, 0], body.as_bytes()].concat()
}

pub fn query(text: &str) -> Vec<u8> {
    message(b'Q', format!("{text}\0").as_bytes())
}

pub fn parse(name: &str, text: &str, types: &[u32]) -> Vec<u8> {
    let mut body = format!("{name}\0{text}\0").into_bytes();
    body.extend(u16::try_from(types.len()).expect("few").to_be_bytes());
    types.iter().for_each(|ty| body.extend(ty.to_be_bytes()));
    message(b'P', &body)
}

pub fn bind(portal: &str, statement: &str, formats: &[i16], values: &[Option<&[u8]>], results: &[i16]) -> Vec<u8> {
    let mut body = format!("{portal}\0{statement}\0").into_bytes();
    let count = |count: usize| u16::try_from(count).expect("few").to_be_bytes();
    body.extend(count(formats.len()));
    formats.iter().for_each(|format| body.extend(format.to_be_bytes()));
    body.extend(count(values.len()));
    for value in values {
        let length = value.map_or(-1, |value| i32::try_from(value.len()).expect("short"));
        body.extend(length.to_be_bytes());
        body.extend(value.unwrap_or_default());
    }
    body.extend(count(results.len()));
    results.iter().for_each(|format| body.extend(format.to_be_bytes()));
    message(b'B', &body)
}

pub fn describe(kind: u8, name: &str) -> Vec<u8> {
    message(b'D', &[&[kind][..], name.as_bytes(), b"\0"].concat())
}

pub fn execute(portal: &str, rows: u32) -> Vec<u8> {
    message(b'E', &[portal.as_bytes(), b"\0", &rows.to_be_bytes()].concat())
}

pub fn sync() -> Vec<u8> {
    message(b'S', b"")
}
