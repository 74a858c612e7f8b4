//! Work of sessions that others see, and how it ends: clients that are gone, sessions that others end, and statements
//! that sleep.

mod common;

use std::time::{Duration, Instant};

use common::{Client, WAIT_MAX, message, query};
use lodestone_serve::Server;

/// More rows than a test waits for.
const LONG: &str = "select count(*) from generate_series(1, 2000000000)";

struct Place {
    folder: tempfile::TempDir,
    _server: Server,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("folder");
        let (server, database) = common::start(folder.path());
        database.connect("", "").run("create table t (k int primary key, v int)").expect("a table");
        Self { folder, _server: server }
    }

    fn connect(&self) -> Client {
        Client::new(self.folder.path())
    }
}

/// The first column of the first row.
fn value(client: &mut Client, text: &str) -> String {
    client.run(text).texts(b'D').swap_remove(0)
}

/// Asks until the answer is this one.
fn wait_until(client: &mut Client, question: &str, answer: &str) {
    let began = Instant::now();
    while value(client, question) != answer {
        assert!(began.elapsed() < WAIT_MAX, "{question} is not {answer}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

const HELD: &str = "select count(*) from pg_locks where relation = 't'::regclass and granted";
const WAITS: &str = "select count(*) from pg_locks where not granted";

#[test]
fn a_client_that_is_gone_ends_its_long_statement() {
    let place = Place::new();
    let (mut gone, mut other) = (place.connect(), place.connect());
    gone.run("begin; lock table t");
    gone.send(&query(LONG));
    wait_until(&mut other, HELD, "1");
    // By now it is on a worker: the loop serves one message after another.
    (0..20).for_each(|_| drop(other.run("select 1")));
    drop(gone);
    wait_until(&mut other, HELD, "0");
    wait_until(&mut other, "select count(*) from pg_stat_activity", "1");
    assert_eq!(other.run("begin; lock table t nowait; commit").letters(), "CCCZ");
}

#[test]
fn a_client_that_is_gone_before_its_statement_is_given_to_a_worker_ends_it() {
    let place = Place::new();
    let mut other = place.connect();
    for _ in 0..20 {
        let mut gone = place.connect();
        gone.run("begin; lock table t");
        // The bytes and the end of them may come together.
        gone.send(&query(LONG));
        drop(gone);
        wait_until(&mut other, HELD, "0");
    }
}

#[test]
fn a_client_that_is_gone_waits_for_no_lock() {
    let place = Place::new();
    let (mut holder, mut other) = (place.connect(), place.connect());
    holder.run("begin; lock table t");
    // A change of rows waits in the loop, a definition has been on a worker. Many messages may come after them.
    for (text, behind) in [
        ("update t set v = 1", 0),
        ("alter table t add column w int", 0),
        ("select pg_advisory_lock(1)", 0),
        ("update t set v = 1", 80_000),
    ] {
        other.run("select pg_advisory_lock(1)");
        let mut gone = place.connect();
        gone.run("begin; select pg_advisory_lock(2)");
        gone.send(&query(text));
        wait_until(&mut other, WAITS, "1");
        if behind > 0 {
            gone.send(&query("select 1").repeat(behind));
        }
        drop(gone);
        wait_until(&mut other, WAITS, "0");
        wait_until(&mut other, "select pg_try_advisory_lock(2)", "t");
        other.run("select pg_advisory_unlock_all()");
    }
    assert_eq!(holder.run("commit").letters(), "CZ");
}

/// The number of a session.
fn number(client: &mut Client) -> String {
    value(client, "select pg_backend_pid()")
}

const ASLEEP: &str = "select pg_sleep(600)";

#[test]
fn others_see_what_a_session_does() {
    let place = Place::new();
    let (mut one, mut other) = (place.connect(), place.connect());
    let pid = number(&mut one);
    let user = lodestone_serve::user_name(rustix::process::geteuid().as_raw());
    let seen = |client: &mut Client, columns: &str| {
        client.run(&format!("select {columns} from pg_stat_activity where pid = {pid}")).texts(b'D')
    };
    let state = "state, query, wait_event_type, wait_event, xact_start is null";
    let who = "datname, usename, application_name, client_addr is null, client_port, backend_type, \
               backend_start <= query_start, query_start <= state_change";
    assert_eq!(seen(&mut other, who), ["postgres", &user, "test", "t", "-1", "client backend", "t", "t"]);
    let idle = ["idle", "select pg_backend_pid()", "Client", "ClientRead", "t"];
    assert_eq!(seen(&mut other, state), idle);
    one.run("set application_name = 'shop'");
    assert_eq!(seen(&mut other, "application_name"), ["shop"], "at once, not with the next statement");
    let mut long = "select 1 -- ".to_owned();
    long.push_str(&"\u{e4}".repeat(10_000));
    one.run(&long);
    assert_eq!(seen(&mut other, "length(query), octet_length(query)"), ["517", "1022"], "whole letters");
    one.run("begin");
    assert_eq!(seen(&mut other, state), ["idle in transaction", "begin", "Client", "ClientRead", "f"]);
    one.run("select 1/0");
    let failed = ["idle in transaction (aborted)", "select 1/0", "Client", "ClientRead", "f"];
    assert_eq!(seen(&mut other, state), failed);
    one.run("rollback");
    other.run("begin; lock table t; select pg_advisory_lock(1)");
    for (text, kind) in [("select v from t", "relation"), ("select pg_advisory_lock(1)", "advisory")] {
        one.send(&query(text));
        wait_until(&mut other, WAITS, "1");
        assert_eq!(seen(&mut other, state), ["active", text, "Lock", kind, "f"]);
        assert_eq!(value(&mut other, &format!("select pg_cancel_backend({pid})")), "t");
        assert!(one.answers().has_text(b'E', "57014"));
    }
    other.run("commit");
    other.run("insert into t values (1, 1)");
    other.run("begin; update t set v = 2");
    let update = "update t set v = 3";
    one.send(&query(update));
    wait_until(&mut other, WAITS, "1");
    assert_eq!(seen(&mut other, state), ["active", update, "Lock", "transactionid", "f"]);
    other.run("commit");
    assert_eq!(one.answers().letters(), "CZ");
    // The extended protocol, where the text was given with another message.
    let run = [common::bind("", "s", &[], &[], &[]), message(b'E', b"\0\0\0\0\0"), message(b'S', b"")].concat();
    one.send(&[common::parse("s", ASLEEP, &[]), message(b'S', b"")].concat());
    assert_eq!(one.answers().letters(), "1Z");
    assert_eq!(seen(&mut other, state)[..2], ["idle", ASLEEP]);
    one.run("select 2");
    one.send(&run);
    let asleep = format!("select coalesce(wait_event, '') from pg_stat_activity where pid = {pid}");
    wait_until(&mut other, &asleep, "PgSleep");
    assert_eq!(seen(&mut other, state), ["active", ASLEEP, "Timeout", "PgSleep", "f"]);
    other.run(&format!("select pg_cancel_backend({pid})"));
    assert!(one.answers().has_text(b'E', "57014"));
    assert_eq!(seen(&mut other, state)[0], "idle");
}

#[test]
fn a_statement_sleeps_and_can_be_ended() {
    let place = Place::new();
    let (mut one, mut other) = (place.connect(), place.connect());
    let began = Instant::now();
    assert_eq!(one.run("select pg_sleep(0.02), pg_sleep_for('20 ms')").letters(), "TDCZ");
    assert_eq!(one.run("select pg_sleep_until(clock_timestamp() + '20 ms')").letters(), "TDCZ");
    assert!(began.elapsed() >= Duration::from_millis(59), "{:?}", began.elapsed());
    assert_eq!(one.run("select pg_sleep(-1), pg_sleep_until('-infinity'), pg_sleep_for('-1 day')").letters(), "TDCZ");
    let late = one.run("set statement_timeout = 20; select pg_sleep(600)");
    assert!(late.has_text(b'E', "57014") && late.has_text(b'E', "statement timeout"), "{late:?}");
    one.run("reset statement_timeout");
    // The loop goes on meanwhile, and the changes before it are there once.
    one.run("begin; insert into t values (1, 0)");
    one.send(&query("with x as (update t set v = v + 1 returning v) select v, pg_sleep(0.1) from x"));
    assert_eq!(other.run("select 1").letters(), "TDCZ");
    assert_eq!(one.answers().texts(b'D')[0], "1");
    one.run("commit");
    assert_eq!(value(&mut other, "select v from t"), "1");
}

#[test]
fn a_session_ends_others_and_itself() {
    let place = Place::new();
    let mut other = place.connect();
    let terminate = |pid: &str| format!("select pg_terminate_backend({pid})");
    let told = "terminating connection due to administrator command";
    let ends = |mut gone: Client| {
        let rest = gone.rest();
        assert!(matches!(&*rest.letters(), "E" | "TE"), "{rest:?}");
        assert!(rest.has_text(b'E', "FATAL") && rest.has_text(b'E', "57P01") && rest.has_text(b'E', told), "{rest:?}");
    };
    // Idle, in a transaction, in a statement, in a wait, while it sends rows.
    other.run("select pg_advisory_lock(1)");
    for (first, text) in [
        ("select 1", None),
        ("begin; lock table t", None),
        ("begin; lock table t", Some(LONG)),
        ("begin; lock table t", Some(ASLEEP)),
        ("begin; lock table t", Some("select pg_advisory_lock(1)")),
    ] {
        let mut gone = place.connect();
        let pid = number(&mut gone);
        gone.run(first);
        text.into_iter().for_each(|text| gone.send(&query(text)));
        if text.is_some() {
            let active = format!("select state from pg_stat_activity where pid = {pid}");
            wait_until(&mut other, &active, "active");
        }
        assert_eq!(value(&mut other, &terminate(&pid)), "t");
        ends(gone);
        wait_until(&mut other, HELD, "0");
        wait_until(&mut other, "select count(*) from pg_stat_activity", "1");
    }
    let mut gone = place.connect();
    let pid = number(&mut gone);
    assert_eq!(value(&mut other, &format!("select pg_terminate_backend({pid}, 60000)")), "t");
    assert_eq!(value(&mut other, "select count(*) from pg_stat_activity"), "1", "it has waited for that");
    ends(gone);
    for call in ["pg_cancel_backend(0)", "pg_terminate_backend(2147483647, 1)"] {
        let answers = other.run(&format!("select {call}"));
        assert!(answers.has_text(b'N', "is not a PostgreSQL server process"), "{answers:?}");
        assert_eq!((answers.texts(b'D'), answers.letters().len()), (vec!["f".to_owned()], 5), "{answers:?}");
    }
    assert!(other.run("select pg_terminate_backend(1, -1)").has_text(b'E', "22003"));
    assert!(other.run("select pg_cancel_backend(pg_backend_pid())").has_text(b'E', "57014"));
    assert_eq!(value(&mut other, "select 1"), "1", "and goes on");
    other.send(&query("select pg_terminate_backend(pg_backend_pid())"));
    let rest = other.rest();
    assert!(rest.has_text(b'E', "57P01") && !rest.letters().contains('Z'), "{rest:?}");
}
