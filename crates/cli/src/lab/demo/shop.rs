//! Step 7: a database is served to clients of `PostgreSQL`, and killed under load.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use lodestone_pmem::{Pool, PoolOptions};
use lodestone_serve::{socket_path, user_name};

use super::story::Story;

const CLIENTS: u64 = 4;
const ACCOUNTS: u64 = 16;
const PORT: u16 = 5432;
const POOL_BYTES: u64 = 96 << 20;
const JOURNAL_BYTES: u64 = 16 << 20;
/// How long clients work before the server is killed.
const LOAD: Duration = Duration::from_millis(1500);
/// How long a server may take to answer.
const STARTUP_MAX: Duration = Duration::from_secs(30);

/// A server of its own process. It does not outlive this.
struct Served(Child);

impl Served {
    fn start(pool: &Path, folder: &Path) -> Result<Self> {
        let own = std::env::current_exe().context("finding the lodestone binary failed")?;
        let program = own.with_file_name("lodestone");
        ensure!(program.is_file(), "{}: the program is not there; build it again", program.display());
        let mut command = Command::new(program);
        command.arg("serve").arg(pool).arg("--socket").arg(folder).arg("--quiet");
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().context("starting the server failed")?;
        Ok(Self(child))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A client that knows the simple half of the protocol.
struct Client(UnixStream);

impl Client {
    /// Waits until the server is there.
    fn connect(folder: &Path) -> Result<Self> {
        let until = Instant::now() + STARTUP_MAX;
        let user = user_name(rustix::process::geteuid().as_raw());
        let body = format!("user\0{user}\0database\0postgres\0\0");
        let length = u32::try_from(body.len() + 8)?.to_be_bytes();
        let startup = [&length[..], &[0, 3, 0, 0], body.as_bytes()].concat();
        loop {
            if let Ok(stream) = UnixStream::connect(socket_path(folder, PORT)) {
                let mut client = Self(stream);
                client.answer(&startup)?;
                return Ok(client);
            }
            ensure!(Instant::now() < until, "the server does not come up");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Sends a message. Returns the texts of the rows of the answer.
    fn answer(&mut self, message: &[u8]) -> Result<Vec<String>> {
        self.0.write_all(message)?;
        let (mut rows, mut error) = (Vec::new(), None);
        loop {
            let mut head = [0; 5];
            self.0.read_exact(&mut head)?;
            let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
            let mut body = vec![0; usize::try_from(length)?.saturating_sub(4)];
            self.0.read_exact(&mut body)?;
            match head[0] {
                // One column, after its count and its length.
                b'D' => rows.push(String::from_utf8_lossy(body.get(6..).unwrap_or_default()).into_owned()),
                b'E' => error = Some(String::from_utf8_lossy(&body).replace('\0', " ")),
                b'Z' => break,
                _ => {}
            }
        }
        match error {
            Some(error) => bail!("the server refused a statement: {error}"),
            None => Ok(rows),
        }
    }

    fn run(&mut self, text: &str) -> Result<Vec<String>> {
        let length = u32::try_from(text.len() + 5)?.to_be_bytes();
        self.answer(&[b"Q", &length[..], text.as_bytes(), b"\0"].concat())
    }

    fn number(&mut self, text: &str) -> Result<i64> {
        let rows = self.run(text)?;
        rows.first().and_then(|text| text.parse().ok()).context("the answer is no number")
    }
}

/// Transfers until the server is gone. Counts those that were acknowledged.
fn transfer(folder: &Path, number: u64, acknowledged: &AtomicU64, is_over: &AtomicBool) {
    let Ok(mut client) = Client::connect(folder) else { return };
    for turn in 0.. {
        if is_over.load(Ordering::SeqCst) {
            return;
        }
        // Accounts in order, so that no two transfers wait for each other.
        let (one, other) = ((turn * 7 + number) % ACCOUNTS, (turn * 3 + number * 5 + 1) % ACCOUNTS);
        let (first, second) = (one.min(other), one.max(other));
        let text = format!(
            "begin; update account set cents = cents - 1 where number = {first}; update account set cents = cents + 1 \
             where number = {second}; insert into transfer values ({number}, {turn}, now()); commit"
        );
        match client.run(&text) {
            Ok(_) => _ = acknowledged.fetch_add(1, Ordering::SeqCst),
            Err(error) if error.downcast_ref::<std::io::Error>().is_some() => return,
            // A conflict: none of it has happened.
            Err(_) => drop(client.run("rollback")),
        }
    }
}

/// Serves, kills, and looks.
pub fn serve(story: &mut Story<'_>, folder: &Path) -> Result<()> {
    story.step(
        "Serve a database, and kill it",
        "Tables with SQL, on the protocol of PostgreSQL: psql, pgbench and drivers connect unchanged. Four clients move \
         money between accounts, in transactions of three changes. Then the server gets a SIGKILL, and starts again.",
    )?;
    let pool: PathBuf = folder.join("shop.pool");
    // It is closed at once: the server opens it.
    drop(Pool::create(
        &pool,
        &PoolOptions { size_bytes: POOL_BYTES, journal_bytes: JOURNAL_BYTES, ..PoolOptions::default() },
    )?);
    story.command(&format!("lodestone serve {} --socket {}", pool.display(), folder.display()))?;
    story.command(&format!("psql -h {} postgres", folder.display()))?;
    let served = Served::start(&pool, folder)?;
    let mut client = Client::connect(folder)?;
    client.run("create table account (number int primary key, cents bigint not null)")?;
    client.run(&format!("insert into account select g, 100 from generate_series(0, {}) g", ACCOUNTS - 1))?;
    client.run("create table transfer (client int, turn int, at timestamptz, primary key (client, turn))")?;
    let (acknowledged, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let (acknowledged, is_over) = (&acknowledged, &is_over);
            scope.spawn(move || transfer(folder, number, acknowledged, is_over));
        }
        std::thread::sleep(LOAD);
        // SIGKILL: nothing of the server runs any more.
        drop(served);
        is_over.store(true, Ordering::SeqCst);
    });
    let acknowledged = acknowledged.load(Ordering::SeqCst);
    let began = Instant::now();
    let _served = Served::start(&pool, folder)?;
    let mut client = Client::connect(folder)?;
    let opened = began.elapsed();
    let sum = client.number("select sum(cents) from account")?;
    let transfers = client.number("select count(*) from transfer")?;
    let expected = i64::try_from(ACCOUNTS * 100)?;
    story.say(&format!(
        "{acknowledged} transfers were acknowledged before the kill. The server was back after {} ms.",
        opened.as_millis()
    ))?;
    story.data(&serde_json::json!({
        "event": "served", "acknowledged": acknowledged, "found": transfers, "sum": sum,
        "opened_ms": opened.as_secs_f64() * 1000.0,
    }))?;
    story.expect(acknowledged > 0, "clients of PostgreSQL were served")?;
    story.expect(i64::try_from(acknowledged)? <= transfers, "every transfer that was acknowledged is there")?;
    story.expect(sum == expected, "no transfer is there in part: the sum of all accounts is what it was")
}
