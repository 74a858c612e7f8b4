//! A panic in the thread of a loop or a worker ends one client, and the server only where others could see half of a
//! change.
//!
//! The mistake `sql-panics` panics in the session whose application has the name of the place, and `sql-lock-panics`
//! with the table of all locks in hand. Mistakes are switched on for the whole process, so each test has its turn.

mod common;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use common::{Client, Messages, WAIT_MAX, bind, execute, parse, query, sync};
use lodestone_pmem::planted;
use lodestone_serve::Server;

/// A mistake that is switched on until this is dropped.
struct Planted(#[expect(dead_code, reason = "held")] MutexGuard<'static, ()>);

impl Planted {
    fn new(name: &str) -> Self {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        planted::plant(Some(name));
        Self(turn)
    }
}

impl Drop for Planted {
    fn drop(&mut self) {
        planted::plant(None);
    }
}

struct Place {
    server: Server,
    database: lodestone_sql::Database,
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("folder");
        let (server, database) = common::start(folder.path());
        Self { server, database, folder }
    }

    fn connect(&self) -> Client {
        Client::new(self.folder.path())
    }

    /// A table of ten rows, and ten clients of the one loop.
    fn with_clients(&self) -> Vec<Client> {
        let mut clients: Vec<Client> = (0..10).map(|_| self.connect()).collect();
        let first = &mut clients[0];
        first.run("create table t (k int primary key, v int)");
        first.run("insert into t select g, 0 from generate_series(0, 9) g");
        clients
    }
}

fn is_told(answers: &Messages) -> bool {
    let has = |text| answers.has_text(b'E', text);
    has("FATAL") && has("XX000") && has("an error inside of the server") && !has("planted") && !has(".rs")
}

/// Nine clients go on, the data is whole, and no lock is left.
fn nine_go_on(clients: &mut [Client]) {
    for (number, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.run("select sum(v) from t").texts(b'D'), ["0"]);
        let change = format!("update t set v = 0 where k = {number}");
        assert_eq!(client.run(&change).last(b'C'), b"UPDATE 1\0");
    }
    let client = &mut clients[0];
    client.run("set lock_timeout = 1000");
    assert_eq!(client.run("update t set v = 0").last(b'C'), b"UPDATE 10\0");
}

#[test]
fn a_panic_in_a_transaction_ends_one_of_ten_clients() {
    let _planted = Planted::new("sql-panics");
    let place = Place::new();
    let mut clients = place.with_clients();
    let mut one = clients.pop().expect("ten");
    one.run("create temporary table own (k int primary key)");
    one.run("begin; update t set v = 7 where k < 5; insert into own values (1)");
    // Another client waits for a row of it meanwhile.
    clients[8].send(&query("update t set v = v where k = 3"));
    clients[0].run("select 1");
    one.run("set application_name = 'panics after a statement'");
    one.send(&query("update t set v = 8 where k > 6"));
    assert!(is_told(&one.rest()));
    assert_eq!(clients[8].answers().last(b'C'), b"UPDATE 1\0");
    nine_go_on(&mut clients);
    let client = &mut clients[0];
    let began = Instant::now();
    // A worker drops the temporary table.
    while client.run("select count(*) from pg_class where relname = 'own'").texts(b'D') != ["0"] {
        assert!(began.elapsed() < WAIT_MAX, "the temporary table is still there");
    }
    assert!(!place.server.has_failed());
    place.server.stop().expect("in order");
}

#[test]
fn an_answer_that_a_panic_cuts_has_no_half_message() {
    let _planted = Planted::new("sql-panics");
    let place = Place::new();
    let mut clients = place.with_clients();
    let mut one = clients.pop().expect("ten");
    one.send(&parse("set", "set application_name = 'panics in a row'", &[]));
    one.send(&bind("", "set", &[], &[], &[]));
    one.send(&execute("", 0));
    one.send(&sync());
    one.answers();
    // The first statement of the message is answered, the second one is not.
    one.send(&parse("read", "select k, v from t where k > $1", &[]));
    one.send(&bind("", "read", &[], &[Some(b"-1")], &[]));
    one.send(&execute("", 0));
    one.send(&sync());
    let answers = one.rest();
    assert!(is_told(&answers) && answers.letters() == "12E", "{answers:?}");
    nine_go_on(&mut clients);
    place.server.stop().expect("in order");
}

#[test]
fn a_panic_on_a_worker_ends_its_client() {
    let _planted = Planted::new("sql-panics");
    let place = Place::new();
    let mut clients = place.with_clients();
    let mut one = clients.pop().expect("ten");
    one.run("set application_name = 'panics in a row of a worker'");
    one.run("begin; update t set v = 7");
    one.send(&query("select g from generate_series(1, 100000) g"));
    assert!(is_told(&one.rest()));
    nine_go_on(&mut clients);
    let mut other = clients.pop().expect("nine");
    let long = other.run("select g from generate_series(1, 100000) g");
    assert_eq!(long.last(b'C'), b"SELECT 100000\0", "the workers serve others");
    place.server.stop().expect("in order");
}

#[test]
fn a_panic_at_the_end_of_a_connection_frees_its_locks() {
    let _planted = Planted::new("sql-panics");
    let place = Place::new();
    let mut clients = place.with_clients();
    let mut one = clients.pop().expect("ten");
    one.run("set application_name = 'panics at its end'");
    one.run("begin; update t set v = 7");
    drop(one);
    nine_go_on(&mut clients);
    place.server.stop().expect("in order");
}

#[test]
fn a_panic_in_a_table_of_all_ends_the_server() {
    let place = Place::new();
    let mut clients = {
        let _planted = Planted::new("no mistake");
        place.with_clients()
    };
    let planted = Planted::new("sql-lock-panics");
    let mut one = clients.pop().expect("ten");
    one.send(&query("update t set v = 7 where k = 1"));
    assert!(is_told(&one.rest()));
    for client in &mut clients {
        assert!(client.rest().has_text(b'E', "57P01"));
    }
    let began = Instant::now();
    while !place.server.has_failed() {
        assert!(began.elapsed() < WAIT_MAX);
    }
    assert!(place.server.stop().expect_err("it has failed").to_string().contains("a panic"));
    drop(planted);
    let mut own = place.database.connect("app", "shop");
    let error = own.run("insert into t values (10, 0)").expect_err("nothing is committed any more");
    assert_eq!(error.state().code(), "58030");
}

/// Keeps the fields of events.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl tracing::field::Visit for Log {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(format!("{field}={value:?}"));
    }
}

impl tracing::Subscriber for Log {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == "lodestone::serve"
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut self.clone());
    }
}

#[test]
fn the_event_has_the_statement_without_its_values() {
    let _planted = Planted::new("sql-panics");
    let log = Log::default();
    tracing::subscriber::set_global_default(log.clone()).expect("the only one of this program");
    let place = Place::new();
    let mut clients = place.with_clients();
    let mut one = clients.pop().expect("ten");
    one.run("set application_name = 'panics in a row'");
    one.send(&query("select 'secret', k from t where k = 3"));
    assert!(is_told(&one.rest()));
    let mut two = clients.pop().expect("nine");
    two.run("set application_name = 'panics in a row'");
    two.send(&[parse("s", "select v from t where v < $1", &[]), bind("", "s", &[], &[Some(b"4321")], &[])].concat());
    two.send(&[execute("", 0), sync()].concat());
    assert!(is_told(&two.rest()));
    let found = log.0.lock().unwrap_or_else(PoisonError::into_inner).join("\n");
    assert!(found.contains("statement=\"select '..', k from t where k = 3\""), "{found}");
    assert!(found.contains("statement=\"select v from t where v < $1\""), "{found}");
    assert!(found.contains("goes_on=true") && found.contains("statement.rs") && found.contains("what="), "{found}");
    assert!(!found.contains("secret") && !found.contains("4321"), "{found}");
    place.server.stop().expect("in order");
}
