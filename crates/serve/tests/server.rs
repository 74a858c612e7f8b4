//! A server with one loop, and clients with sockets: long statements beside short ones, slow clients, and the end.

mod common;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use common::{Client, Messages, WAIT_MAX, message, query};
use lodestone_engine::DatabaseOptions;
use lodestone_pmem::{DomainChoice, PoolOptions};
use lodestone_serve::{ServeOptions, Server, socket_path};
use rustls::pki_types::pem::PemObject;

struct Place {
    server: Option<Server>,
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("folder");
        Self { server: Some(common::start(folder.path()).0), folder }
    }

    fn connect(&self) -> Client {
        Client::new(self.folder.path())
    }
}

const LONG: &str = "select count(*) from generate_series(1, 2000000000)";

#[test]
fn a_long_statement_leaves_the_loop_to_others_and_can_be_cancelled() {
    let place = Place::new();
    let (mut long, mut short) = (place.connect(), place.connect());
    long.send(&query(LONG));
    for _ in 0..20 {
        assert_eq!(short.run("select 1").letters(), "TDCZ");
    }
    let began = Instant::now();
    let mut stream = UnixStream::connect(socket_path(place.folder.path(), 5432)).expect("the server");
    stream.write_all(&[&[0, 0, 0, 16, 4, 0xd2, 0x16, 0x2e][..], &long.key].concat()).expect("it reads");
    assert!(long.answers().has_text(b'E', "57014"));
    assert!(began.elapsed() < WAIT_MAX, "{:?}", began.elapsed());
    assert_eq!(long.run("select 1").letters(), "TDCZ", "and goes on");
}

#[test]
fn a_client_that_reads_slowly_holds_nothing_up() {
    let place = Place::new();
    let (mut slow, mut other) = (place.connect(), place.connect());
    slow.send(&query("select g, repeat('x', 100) from generate_series(1, 300000) g"));
    // Nothing of it is read, and much more of it than a socket holds is left.
    for _ in 0..20 {
        assert_eq!(other.run("select 1").letters(), "TDCZ");
    }
    let answers = slow.answers();
    assert_eq!(answers.letters().matches('D').count(), 300_000);
    assert_eq!(answers.last(b'C'), b"SELECT 300000\0");
}

/// A query that is a transaction of its own has no lock of its tables, so definitions do not wait for it.
#[test]
fn a_query_sees_a_table_whole_that_is_emptied_or_dropped_meanwhile() {
    let place = Place::new();
    let (mut long, mut other) = (place.connect(), place.connect());
    for level in ["serializable", "repeatable read", "read committed"] {
        long.run(&format!("set default_transaction_isolation = '{level}'"));
        for definition in [
            "truncate t",
            "drop table t",
            "alter table t alter column v type text",
            "alter table t drop column w",
            "begin; truncate t; insert into t values (1, 1, 'x'); commit",
        ] {
            let mut is_done = |sql: &str| {
                let answers = other.run(sql);
                assert!(!answers.letters().contains('E'), "{level}, {definition}: {sql}: {answers:?}");
            };
            is_done("drop table if exists t; create table t (k int primary key, v int, w text)");
            // More than sockets hold, in transactions that fit into the log.
            for from in (0..3000).step_by(100) {
                is_done(&format!(
                    "insert into t select {from} + g, g, repeat('x', 2000) from generate_series(1, 100) g"
                ));
            }
            long.send(&query("select * from t"));
            assert_eq!([long.next()[0], long.next()[0]], *b"TD");
            let changed = other.run(definition);
            assert!(!changed.letters().contains('E'), "{changed:?}");
            let rest = long.answers();
            assert_eq!(rest.letters().matches('D').count(), 2_999, "{level}, {definition}");
            assert_eq!(rest.last(b'C'), b"SELECT 3000\0", "{level}, {definition}");
        }
    }
}

#[test]
fn a_long_query_that_waits_for_a_number_returns_each_row_once() {
    let place = Place::new();
    let (mut long, mut other) = (place.connect(), place.connect());
    other.run("select pg_advisory_lock(7)");
    long.send(&query("select g from generate_series(1, 60000) g where g < 50000 or pg_advisory_lock(7) is not null"));
    while other.run("select 1 from pg_locks where not granted").texts(b'D').is_empty() {}
    assert_eq!(other.run("select pg_advisory_unlock(7)").texts(b'D'), ["t"]);
    let answers = long.answers();
    assert_eq!(answers.letters().matches('D').count(), 60_000);
    assert_eq!(answers.last(b'C'), b"SELECT 60000\0");
}

#[test]
fn rows_come_and_go_beside_others() {
    let place = Place::new();
    let (mut client, mut other) = (place.connect(), place.connect());
    client.run("create table t (k int primary key, v text)");
    client.send(&query("copy t from stdin"));
    for part in 0..50 {
        let lines: String = (0..200).map(|line| format!("{}\tsome text\n", part * 200 + line)).collect();
        client.send(&message(b'd', lines.as_bytes()));
        assert_eq!(other.run("select 1").letters(), "TDCZ");
    }
    client.send(&message(b'c', b""));
    assert_eq!(client.answers().last(b'C'), b"COPY 10000\0");
    let answers = client.run("copy t to stdout");
    assert_eq!(answers.last(b'C'), b"COPY 10000\0");
    assert_eq!(answers.letters().matches('d').count(), 10_000);
    // The other one still has the table as it was before the load.
    assert_eq!(other.run("select v from t where k = 9999").texts(b'D'), ["some text"]);
    assert_eq!(other.run("select count(*) from t").texts(b'D'), ["10000"]);
}

#[test]
fn the_end_of_the_server_ends_long_statements() {
    let mut place = Place::new();
    let mut client = place.connect();
    client.send(&query(LONG));
    // It is on its way to a worker, or runs there.
    assert_eq!(place.connect().run("select 1").letters(), "TDCZ");
    let began = Instant::now();
    place.server.take().expect("it runs").stop().expect("in order");
    assert!(began.elapsed() < WAIT_MAX);
    let mut rest = Vec::new();
    client.stream.read_to_end(&mut rest).expect("the server has closed the socket");
    let answers = Messages::of(&rest);
    assert!(answers.has_text(b'E', "57014") || answers.has_text(b'E', "57P01"), "{answers:?}");
}

#[test]
fn time_limits_end_statements_that_wait() {
    let place = Place::new();
    let (mut first, mut second) = (place.connect(), place.connect());
    first.run("create table t (k int primary key)");
    first.run("insert into t values (1)");
    first.run("begin; delete from t");
    second.run("set lock_timeout = 30");
    assert!(second.run("delete from t").has_text(b'E', "55P03"));
    second.run("set statement_timeout = 50");
    assert!(second.run(LONG).has_text(b'E', "57014"));
    first.run("set idle_in_transaction_session_timeout = 20");
    first.run("select 1");
    let mut rest = Vec::new();
    first.stream.read_to_end(&mut rest).expect("the server has closed the socket");
    assert!(Messages::of(&rest).has_text(b'E', "25P03"));
    assert_eq!(second.run("delete from t").last(b'C'), b"DELETE 1\0");
}

#[test]
fn other_machines_need_the_word_plaintext() {
    let place = Place::new();
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port").local_addr().expect("its number").port();
    let database = || {
        let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
        let options =
            DatabaseOptions { pool, log_bytes: 1 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
        let path = place.folder.path().join("b.pool");
        let engine = lodestone_engine::Database::open_with(path, &options).expect("open");
        lodestone_sql::Database::new(engine, "serializable").expect("catalog")
    };
    let everywhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, free));
    let options = ServeOptions { listen: Some(everywhere), ..ServeOptions::default() };
    let error = Server::start(database(), &options).expect_err("other machines");
    assert!(error.to_string().contains("no encryption"), "{error}");
    let options = ServeOptions { listen: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, free))), ..options };
    let server = Server::start(database(), &options).expect("this machine");
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, free)).expect("the server");
    stream.set_read_timeout(Some(WAIT_MAX)).expect("a limit");
    stream.write_all(&common::startup("ann", "postgres")).expect("it reads");
    let mut head = [0; 9];
    stream.read_exact(&mut head).expect("it asks for a proof");
    assert_eq!((head[0], head[8]), (b'R', 10));
    server.stop().expect("in order");
}

/// A client over TLS, which trusts the certificate of the test alone.
struct Encrypted {
    stream: rustls::StreamOwned<rustls::ClientConnection, TcpStream>,
}

impl Encrypted {
    fn connect(port: u16) -> Self {
        let mut plain = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("the server");
        plain.set_read_timeout(Some(WAIT_MAX)).expect("a limit");
        plain.write_all(&[0, 0, 0, 8, 4, 0xd2, 0x16, 0x2f]).expect("it reads");
        let mut answer = [0];
        plain.read_exact(&mut answer).expect("it answers");
        assert_eq!(&answer, b"S");
        let mut roots = rustls::RootCertStore::empty();
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/server.crt");
        let certificate = rustls::pki_types::CertificateDer::from_pem_file(file).expect("a certificate");
        roots.add(certificate).expect("a root");
        let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = "localhost".try_into().expect("a name");
        let session = rustls::ClientConnection::new(std::sync::Arc::new(config), name).expect("a session");
        let mut client = Self { stream: rustls::StreamOwned::new(session, plain) };
        client.stream.write_all(&common::startup("ann", "postgres")).expect("it reads");
        client.answers();
        client
    }

    fn answers(&mut self) -> Messages {
        let mut all = Vec::new();
        loop {
            let mut head = [0; 5];
            self.stream.read_exact(&mut head).expect("the server answers");
            let length = usize::try_from(u32::from_be_bytes([head[1], head[2], head[3], head[4]])).expect("short");
            let mut body = vec![0; length - 4];
            self.stream.read_exact(&mut body).expect("the server answers");
            all.extend(head);
            all.extend(&body);
            if head[0] == b'Z' {
                return Messages::of(&all);
            }
        }
    }

    fn run(&mut self, text: &str) -> Messages {
        self.stream.write_all(&query(text)).expect("the server reads");
        self.answers()
    }
}

#[test]
fn clients_can_encrypt() {
    let folder = tempfile::tempdir().expect("folder");
    let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
    let options = DatabaseOptions { pool, log_bytes: 4 << 20, segment_bytes: 1 << 18, ..DatabaseOptions::default() };
    let engine = lodestone_engine::Database::open_with(folder.path().join("a.pool"), &options).expect("open");
    let database = || lodestone_sql::Database::new(engine.clone(), "serializable").expect("catalog");
    let data = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let (certificate, key) = (data.join("server.crt"), data.join("server.key"));
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port").local_addr().expect("its number").port();
    let wrong = ServeOptions {
        port,
        trusts_loopback: true,
        loops: Some(1),
        tls: Some(lodestone_serve::TlsFiles { certificate: key.clone(), key: key.clone() }),
        ..ServeOptions::default()
    };
    let error = Server::start(database(), &wrong).expect_err("a key is no certificate");
    assert!(error.to_string().contains("server.key"), "{error}");
    let tls = Some(lodestone_serve::TlsFiles { certificate, key });
    let server = Server::start(database(), &ServeOptions { tls, ..wrong }).expect("start");
    let (mut client, mut slow) = (Encrypted::connect(port), Encrypted::connect(port));
    // Rows of a worker, which the client does not read yet, hold no other one up.
    slow.stream.write_all(&query("select g, repeat('x', 100) from generate_series(1, 30000) g")).expect("it reads");
    assert_eq!(client.run("select 1").texts(b'D'), ["1"]);
    assert_eq!(slow.answers().letters().matches('D').count(), 30_000);
    let long = "x".repeat(300_000);
    assert_eq!(client.run(&format!("select length('{long}')")).texts(b'D'), ["300000"]);
    client.run("create table t (k int primary key, v text)");
    client.stream.write_all(&query("copy t from stdin")).expect("it reads");
    for part in 0..20 {
        let lines: String = (0..100).map(|line| format!("{}\tsome text\n", part * 100 + line)).collect();
        client.stream.write_all(&message(b'd', lines.as_bytes())).expect("it reads");
    }
    client.stream.write_all(&message(b'c', b"")).expect("it reads");
    assert_eq!(client.answers().last(b'C'), b"COPY 2000\0");
    server.stop().expect("in order");
}

/// The processors that each loop of this process may use, by the numbers of the loops.
fn processors_of_loops(prefix: &str) -> Vec<String> {
    let mut found = Vec::new();
    for task in std::fs::read_dir("/proc/self/task").expect("threads") {
        let text = |file: &str| std::fs::read_to_string(task.as_ref().expect("a thread").path().join(file));
        // A thread may end meanwhile.
        let (Ok(name), Ok(status)) = (text("comm"), text("status")) else { continue };
        let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        if let Some(number) = name.trim().strip_prefix(prefix).and_then(|number| number.parse::<usize>().ok()) {
            found.push((number, allowed.expect("a list").trim().to_owned()));
        }
    }
    found.sort();
    found.into_iter().map(|(_, allowed)| allowed).collect()
}

/// The other tests of this program have loops of the same names: a process of its own has only these.
#[test]
fn loops_stay_on_nodes_if_they_are_bound() {
    const ROLE: &str = "LODESTONE_SERVE_BINDS";
    let Ok(binds) = std::env::var(ROLE) else {
        for binds in ["yes", "no"] {
            let program = std::env::current_exe().expect("this program");
            let mut child = std::process::Command::new(program);
            child.args(["--exact", "loops_stay_on_nodes_if_they_are_bound", "--nocapture"]).env(ROLE, binds);
            assert!(child.status().expect("it starts").success(), "{binds}");
        }
        return;
    };
    let folder = tempfile::tempdir().expect("folder");
    let pool = PoolOptions { domain: DomainChoice::Process, virtual_nodes: 2, ..PoolOptions::default() };
    let options = DatabaseOptions { pool, log_bytes: 4 << 20, segment_bytes: 1 << 18, ..DatabaseOptions::default() };
    let engine = lodestone_engine::Database::open_with(folder.path().join("a.pool"), &options).expect("open");
    let topology = engine.pool().topology().clone();
    let usable: Vec<_> = topology.nodes().iter().filter(|node| node.why_unusable().is_none()).collect();
    let database = lodestone_sql::Database::new(engine, "serializable").expect("catalog");
    let place = Some(folder.path().to_owned());
    let options = ServeOptions { folder: place, loops: Some(3), binds: binds == "yes", ..ServeOptions::default() };
    let server = Server::start(database, &options).expect("start");
    // A loop that answers is bound. Clients go to the loops in turn.
    let mut clients = [(); 3].map(|()| Client::new(folder.path()));
    clients.iter_mut().for_each(|client| assert_eq!(client.run("select 1").letters(), "TDCZ"));
    let found = processors_of_loops("serve-");
    let all: Vec<usize> = topology.nodes().iter().flat_map(|node| node.usable_cpus.clone()).collect();
    let expected = |number: usize| if binds == "yes" { &usable[number % usable.len()].usable_cpus } else { &all };
    let count = |list: &str| {
        let ends = |part: &str| part.split('-').map(|end| end.parse::<usize>().expect("a number")).collect::<Vec<_>>();
        list.split(',').map(ends).map(|ends| ends[ends.len() - 1] - ends[0] + 1).sum::<usize>()
    };
    assert_eq!(found.len(), 3, "{found:?}");
    for (number, list) in found.iter().enumerate() {
        let first: usize = list.split(['-', ',']).next().and_then(|cpu| cpu.parse().ok()).expect("a number");
        assert_eq!((count(list), first), (expected(number).len(), expected(number)[0]), "loop {number}: {list}");
    }
    server.stop().expect("it ends");
}
