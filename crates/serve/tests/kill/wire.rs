//! The server as a process of its own, and its clients.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use lodestone_engine::DatabaseOptions;
use lodestone_pmem::{DomainChoice, PoolOptions};
use lodestone_serve::{ServeOptions, Server, socket_path};

use crate::common;

/// The folder of a server, when this program is started as one.
const FOLDER: &str = "LODESTONE_SERVE_KILL_TEST";
/// The domain of its pool.
const DOMAIN: &str = "LODESTONE_SERVE_KILL_DOMAIN";

/// The server, when the program is started as one. As a test it does nothing.
#[test]
fn server_of_the_kill_test() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let folder = Path::new(&folder);
    let domain = match std::env::var(DOMAIN).as_deref() {
        Ok("process") => DomainChoice::Process,
        _ => DomainChoice::Block,
    };
    let pool = PoolOptions { domain, size_bytes: 128 << 20, ..PoolOptions::default() };
    let options = DatabaseOptions { pool, log_bytes: 8 << 20, segment_bytes: 256 << 10, ..DatabaseOptions::default() };
    let engine = lodestone_engine::Database::open_with(folder.join("a.pool"), &options).expect("open");
    let database = lodestone_sql::Database::new(engine, "serializable").expect("catalog");
    let options = ServeOptions {
        name: "shop".into(),
        folder: Some(folder.to_owned()),
        loops: Some(2),
        ..ServeOptions::default()
    };
    let server = Server::start(database, &options).expect("start");
    while !server.has_failed() {
        std::thread::park();
    }
}

/// A server. It goes with this value, also when the test fails.
pub struct ServerProcess(Child);

impl ServerProcess {
    /// Kills it, and waits until it is gone.
    pub fn kill(&mut self) {
        self.0.kill().expect("kill");
        self.0.wait().expect("it is gone");
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// Starts the server.
pub fn start(folder: &Path, domain: &str) -> ServerProcess {
    let program = std::env::current_exe().expect("this program");
    let mut command = Command::new(program);
    // The message of a server that panics is shown, though it is no test that fails.
    command.args(["wire::server_of_the_kill_test", "--exact", "--nocapture"]).env(FOLDER, folder).env(DOMAIN, domain);
    ServerProcess(command.stdout(std::process::Stdio::null()).spawn().expect("start the server"))
}

/// A client of the server.
pub struct Client(UnixStream);

impl Client {
    /// Waits until the server is there.
    pub fn connect(folder: &Path) -> Self {
        let until = Instant::now() + Duration::from_secs(60);
        let user = lodestone_serve::user_name(rustix::process::geteuid().as_raw());
        loop {
            if let Ok(stream) = UnixStream::connect(socket_path(folder, 5432)) {
                let mut client = Self(stream);
                if client.send(&common::startup(&user, "shop")).is_some() {
                    return client;
                }
            }
            assert!(Instant::now() < until, "the server does not come up");
            std::thread::yield_now();
        }
    }

    /// Sends a message, and reads up to the next ReadyForQuery. `None`: the server is gone.
    fn send(&mut self, bytes: &[u8]) -> Option<common::Messages> {
        self.0.write_all(bytes).ok()?;
        let mut found = Vec::new();
        loop {
            let mut buffer = [0; 4096];
            let count = self.0.read(&mut buffer).ok().filter(|count| *count > 0)?;
            found.extend(&buffer[..count]);
            if found.len() >= 6 && found[found.len() - 6] == b'Z' {
                return Some(common::Messages::of(&found));
            }
        }
    }

    /// Runs a text. `None`: the server is gone.
    pub fn run(&mut self, text: &str) -> Option<common::Messages> {
        self.send(&common::query(text))
    }

    /// Runs the statements of a transaction. `Some(false)`: one was refused, and nothing of it is there.
    pub fn transaction<'t>(&mut self, statements: impl IntoIterator<Item = &'t String>) -> Option<bool> {
        self.run("begin")?;
        for statement in statements {
            if self.run(statement)?.letters().contains('E') {
                return self.run("rollback").map(|_| false);
            }
        }
        self.commit()
    }

    /// Ends the transaction. Returns whether it is committed.
    pub fn commit(&mut self) -> Option<bool> {
        Some(!self.run("commit")?.letters().contains('E'))
    }

    /// Runs statements that must succeed.
    pub fn must(&mut self, texts: &[&str]) {
        for text in texts {
            let answers = self.run(text).expect("the server lives");
            assert!(!answers.letters().contains('E'), "{text}: {answers:?}");
        }
    }

    /// The values of all rows, of a query of texts that are not null.
    pub fn texts(&mut self, text: &str) -> Vec<String> {
        let answers = self.run(text).expect("the server lives");
        assert!(!answers.letters().contains('E'), "{text}: {answers:?}");
        answers.texts(b'D')
    }

    /// The one value of a query.
    pub fn number(&mut self, text: &str) -> i64 {
        let found = self.texts(text);
        found.first().and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{text}: {found:?}"))
    }

    /// A query of rows that must not be there.
    pub fn none(&mut self, what: &str, text: &str) {
        let found = self.texts(text);
        assert!(found.is_empty(), "{what}: {found:?}");
    }
}
