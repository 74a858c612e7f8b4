//! SIGKILL of a server under transfers and inserts: nothing that was acknowledged is lost, and the sums hold.
//!
//! The server is this test program, started again with a variable that says so. The pool is in the `block` domain,
//! where an acknowledgement waits for the disk.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lodestone_engine::DatabaseOptions;
use lodestone_pmem::{DomainChoice, PoolOptions};
use lodestone_serve::{ServeOptions, Server, socket_path};

mod common;

const FOLDER: &str = "LODESTONE_SERVE_KILL_TEST";
const ACCOUNTS: u64 = 8;
const CLIENTS: u64 = 4;

fn engine(folder: &Path) -> lodestone_engine::Database {
    let pool = PoolOptions { domain: DomainChoice::Block, size_bytes: 64 << 20, ..PoolOptions::default() };
    let options = DatabaseOptions { pool, log_bytes: 8 << 20, segment_bytes: 256 << 10, ..DatabaseOptions::default() };
    lodestone_engine::Database::open_with(folder.join("a.pool"), &options).expect("open")
}

/// The server, when the program is started as one. As a test it does nothing.
#[test]
fn server_of_the_kill_test() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let folder = Path::new(&folder);
    let database = lodestone_sql::Database::new(engine(folder), "serializable").expect("catalog");
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

fn start(folder: &Path) -> Child {
    let program = std::env::current_exe().expect("this program");
    let mut command = Command::new(program);
    command.args(["server_of_the_kill_test", "--exact"]).env(FOLDER, folder);
    command.spawn().expect("start the server")
}

/// A client of the server.
struct Client(UnixStream);

impl Client {
    /// Waits until the server is there.
    fn connect(folder: &Path) -> Self {
        let until = Instant::now() + Duration::from_secs(30);
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

    fn run(&mut self, text: &str) -> Option<common::Messages> {
        self.send(&common::query(text))
    }

    fn number(&mut self, text: &str) -> i64 {
        let answers = self.run(text).expect("the server lives");
        let body = answers.last(b'D');
        std::str::from_utf8(&body[6..]).ok().and_then(|text| text.parse().ok()).expect("a number")
    }
}

/// Transfers and inserts until the server is gone. Counts what was acknowledged.
fn work(folder: &Path, number: u64, acknowledged: &AtomicU64, is_over: &AtomicBool) {
    let mut client = Client::connect(folder);
    for turn in acknowledged.load(Ordering::SeqCst).. {
        let (from, to) = ((turn + number) % ACCOUNTS, (turn * 3 + number + 1) % ACCOUNTS);
        let statements = [
            "begin".to_owned(),
            format!("update account set v = v - 1 where k = {from}"),
            format!("update account set v = v + 1 where k = {to}"),
            format!("insert into done values ({number}, {turn})"),
            "commit".to_owned(),
        ];
        let mut is_refused = false;
        for statement in &statements {
            match client.run(statement) {
                Some(answers) => is_refused |= answers.letters().contains('E'),
                None => return,
            }
        }
        if is_refused {
            // Two transfers waited for each other. It counts as done, and is not there.
            let until = client.run(&format!("insert into done values ({number}, {turn})"));
            if until.is_none_or(|answers| answers.letters().contains('E')) {
                return;
            }
        }
        acknowledged.store(turn + 1, Ordering::SeqCst);
        if is_over.load(Ordering::SeqCst) {
            return;
        }
    }
}

fn kill_and_judge(rounds: usize, turns: u64) {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path();
    let mut server = start(path);
    let mut client = Client::connect(path);
    client.run("create table account (k int primary key, v int)").expect("create");
    client.run("create table done (n int, t int, primary key (n, t))").expect("create");
    client.run("insert into account select g, 100 from generate_series(0, 7) g").expect("insert");
    let acknowledged: Vec<AtomicU64> = (0..CLIENTS).map(|_| AtomicU64::new(0)).collect();
    for round in 1..=rounds {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for (number, acknowledged) in (0..).zip(&acknowledged) {
                let is_over = &is_over;
                scope.spawn(move || work(path, number, acknowledged, is_over));
            }
            let total = || acknowledged.iter().map(|count| count.load(Ordering::SeqCst)).sum::<u64>();
            let goal = total() + turns;
            let until = Instant::now() + Duration::from_secs(60);
            while total() < goal && Instant::now() < until {
                std::thread::yield_now();
            }
            assert!(total() >= goal, "the server answers too slowly, or not at all");
            server.kill().expect("kill");
            is_over.store(true, Ordering::SeqCst);
        });
        server.wait().expect("it is gone");
        server = start(path);
        client = Client::connect(path);
        assert_eq!(
            client.number("select sum(v) from account"),
            i64::try_from(ACCOUNTS * 100).expect("small"),
            "round {round}"
        );
        for (number, count) in acknowledged.iter().enumerate() {
            let kept = client.number(&format!("select count(*) from done where n = {number}"));
            let count_now = i64::try_from(count.load(Ordering::SeqCst)).expect("small");
            // One more may have been on its way.
            assert!(
                (count_now..=count_now + 1).contains(&kept),
                "round {round}: {count_now} acknowledged, {kept} kept"
            );
            count.store(u64::try_from(kept).expect("a count"), Ordering::SeqCst);
        }
    }
    server.kill().expect("kill");
    server.wait().expect("it is gone");
}

#[test]
fn a_killed_server_loses_nothing_that_it_acknowledged() {
    kill_and_judge(3, 60);
}

#[test]
#[ignore = "`make prove` runs it"]
fn a_killed_server_loses_nothing_in_many_rounds() {
    kill_and_judge(40, 300);
}
