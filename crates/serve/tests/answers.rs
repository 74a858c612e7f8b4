//! COPY in both directions, answers that leave while their statement runs, passwords, and time limits: by the machine.

mod common;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use common::{Messages, Place, bind, describe, execute, message, parse, query, startup, sync};
use hmac::{Hmac, Mac};
use lodestone_serve::protocol::{Machine, Peer, Stream};
use sha2::{Digest, Sha256};

/// The data of all lines of a COPY.
fn copied(place: &Place, text: &str) -> String {
    let answers = place.answers(&[query(text)]);
    assert!(answers.letters().starts_with('H') && answers.letters().ends_with("cCZ"), "{answers:?}");
    String::from_utf8(answers.all(b'd')).expect("text")
}

fn copy_in(text: &str, data: &str) -> Vec<Vec<u8>> {
    // In pieces, which end anywhere.
    let pieces = data.as_bytes().chunks(7).map(|piece| message(b'd', piece));
    [query(text)].into_iter().chain(pieces).chain([message(b'c', b"")]).collect()
}

#[test]
fn tables_go_out_and_come_back() {
    let place = Place::new();
    place.answers(&[query("create table t (k int primary key, v text)")]);
    place.answers(&[query("insert into t values (1, 'a,b'), (2, null), (3, ''), (4, e'x\\ty\\n\"z\"\\\\')")]);
    let text = copied(&place, "copy t to stdout");
    assert_eq!(text, "1\ta,b\n2\t\\N\n3\t\n4\tx\\ty\\n\"z\"\\\\\n");
    let csv = copied(&place, "copy t to stdout with (format csv, header)");
    assert_eq!(csv, "k,v\n1,\"a,b\"\n2,\n3,\"\"\n4,\"x\ty\n\"\"z\"\"\\\"\n");
    assert_eq!(
        copied(&place, "copy (select v from t where k < 3 order by k desc) to stdout csv null 'nil'"),
        "nil\n\"a,b\"\n"
    );
    assert_eq!(copied(&place, "copy t (v) to stdout (delimiter '|', null '')").lines().next(), Some("a,b"));
    place.answers(&[query("create table u (k int primary key, v text)")]);
    for (statement, data) in [("copy u from stdin", &text), ("copy u from stdin csv header", &csv)] {
        place.answers(&[query("delete from u")]);
        assert_eq!(place.answers(&copy_in(statement, data)).last(b'C'), b"COPY 4\0");
        assert_eq!(copied(&place, "copy u to stdout"), text);
    }
    assert!(place.answers(&[query("copy t (nosuch) to stdout")]).has_text(b'E', "42703"));
    assert!(place.answers(&[query("copy nosuch to stdout")]).has_text(b'E', "42P01"));
    let bad = place.answers(&copy_in("copy u from stdin csv", "9,\"x\n"));
    assert!(bad.has_text(b'E', "22P04") && bad.has_text(b'E', "unterminated CSV quoted field"), "{bad:?}");
}

/// More rows than wait, so the table is loaded.
fn rows(count: usize) -> String {
    (0..count).map(|number| format!("{}\t{}\n", number * 7919 % 10_007, number % 10)).collect()
}

#[test]
fn a_table_without_rows_is_loaded() {
    let place = Place::new();
    place.answers(&[query("create table t (k int primary key, v int)"), query("create index by_v on t (v)")]);
    let count = |expected: &str| {
        let answers = place.answers(&[query("select count(*) from t")]);
        assert_eq!(answers.last(b'D')[6..], *expected.as_bytes());
    };
    let before = place.database.engine().log_bytes();
    assert_eq!(place.answers(&copy_in("copy t from stdin", &rows(9000))).last(b'C'), b"COPY 9000\0");
    let logged = place.database.engine().log_bytes() - before;
    assert!(logged < 20_000, "{logged} bytes in the log: the rows are in pages");
    count("9000");
    let answers = place.answers(&[query("select count(*) from t where v = 3")]);
    assert_eq!(&answers.last(b'D')[6..], b"900");
    // It has rows now: they go into the transaction, and a key that is there is refused.
    let again = place.answers(&copy_in("copy t from stdin", &rows(3000)));
    assert!(again.has_text(b'E', "23505"), "{again:?}");
    // TRUNCATE and COPY belong to one transaction, with changes of the new rows, savepoints, and all of it undone.
    let data = rows(5000);
    let mut sent = vec![query("begin"), query("truncate t"), query("savepoint s")];
    sent.extend(copy_in("copy t from stdin", &data));
    sent.extend([query("delete from t where v = 0"), query("select count(*) from t"), query("rollback to s")]);
    sent.push(query("select count(*) from t"));
    sent.extend(copy_in("copy t from stdin", &rows(4000)));
    let mut undone = sent.clone();
    undone.push(query("rollback"));
    let answers = place.answers(&undone);
    assert!(!answers.letters().contains('E'), "{answers:?}");
    assert_eq!(answers.texts(b'D'), ["4500", "0"]);
    count("9000");
    sent.extend([query("update t set v = 77 where k = 0"), query("commit")]);
    let answers = place.answers(&sent);
    assert!(!answers.letters().contains('E'), "{answers:?}");
    count("4000");
    assert_eq!(place.answers(&[query("select v from t where k = 0")]).texts(b'D'), ["77"]);
    assert_eq!(place.answers(&[query("select count(*) from t where v = 5")]).texts(b'D'), ["400"]);
}

#[test]
fn a_load_says_which_key_is_there_twice() {
    let place = Place::new();
    place.answers(&[query("create table t (k int primary key, v int unique)")]);
    let twice = format!("{}1\t1\n", (0..3000).map(|number| format!("{number}\t{number}\n")).collect::<String>());
    let answers = place.answers(&copy_in("copy t from stdin", &twice));
    assert!(answers.has_text(b'E', "23505") && answers.has_text(b'E', "t_pkey"), "{answers:?}");
    assert!(answers.has_text(b'E', "Key (k)=(1) already exists."), "{answers:?}");
    let value = format!("{}9999\t1\n", (0..3000).map(|number| format!("{number}\t{number}\n")).collect::<String>());
    let answers = place.answers(&copy_in("copy t from stdin", &value));
    assert!(answers.has_text(b'E', "t_v_key"), "{answers:?}");
    let bad = format!("{}x\t1\n", (0..3000).map(|number| format!("{number}\t{number}\n")).collect::<String>());
    let answers = place.answers(&copy_in("copy t from stdin", &bad));
    assert!(answers.has_text(b'E', "COPY t, line 3001, column k: \"x\""), "{answers:?}");
    assert_eq!(place.answers(&[query("select count(*) from t")]).texts(b'D'), ["0"]);
}

#[test]
fn a_rival_of_a_load_is_not_lost() {
    let place = Place::new();
    place.answers(&[query("create table t (k int primary key, v int)")]);
    for (level, is_refused) in [("serializable", true), ("read committed", false), ("repeatable read", false)] {
        place.answers(&[query("truncate t")]);
        let mut loader = place.open();
        loader.receive(
            &[query(&format!("begin isolation level {level}")), copy_in("copy t from stdin", &rows(3000)).concat()]
                .concat(),
        );
        loader.advance();
        let rival = place.answers(&[query("insert into t values (123456, 1)")]);
        assert_eq!(rival.letters(), "CZ", "{level}");
        loader.receive(&query("commit"));
        loader.advance();
        let answers = Messages::of(loader.ready());
        assert_eq!(answers.has_text(b'E', "40001"), is_refused, "{level}: {answers:?}");
        let count = place.answers(&[query("select count(*) from t")]).texts(b'D');
        assert_eq!(count, [if is_refused { "1" } else { "3001" }], "{level}: the row of the rival");
    }
}

/// Takes what a statement sends, a part of it each time.
struct Taken(Arc<Mutex<(Vec<u8>, usize)>>);

impl Stream for Taken {
    fn send(&mut self, bytes: &[u8]) -> lodestone_sql_types::Result<usize> {
        let mut taken = self.0.lock().expect("no panic");
        taken.1 = taken.1.max(bytes.len());
        let count = bytes.len().min(50_000);
        taken.0.extend(&bytes[..count]);
        Ok(count)
    }
}

/// A machine beside which there are workers.
fn with_workers(place: &Place) -> Machine {
    let mut machine = place.machine_of(Peer::User("root".into()), true);
    machine.receive(&startup("root", "shop"));
    machine.advance();
    let sent = machine.ready().len();
    machine.leave(sent);
    machine
}

/// Temporary tables are dropped where that holds up no other client: by a worker, with the connection.
#[test]
fn a_connection_with_temporary_tables_ends_on_a_worker() {
    let place = Place::new();
    let left =
        |place: &Place| place.answers(&[query("select count(*) from pg_class where relname = 'own'")]).texts(b'D');
    for says_goodbye in [true, false] {
        let mut machine = with_workers(&place);
        assert!(place.open().take_ending().is_none(), "there is nothing to drop");
        machine.receive(&query("create temp table own (k int primary key)"));
        machine.set_stream(Some(Box::new(Taken(Arc::default()))));
        machine.advance();
        machine.set_stream(None);
        assert_eq!(left(&place), ["1"]);
        if says_goodbye {
            machine.receive(&message(b'X', &[]));
            machine.advance();
            assert!(machine.is_closed());
        }
        let ending = machine.take_ending();
        assert!(machine.is_closed() && ending.is_some());
        drop(machine);
        assert_eq!(left(&place), ["1"], "the loop has not dropped it");
        drop(ending);
        assert_eq!(left(&place), ["0"]);
    }
}

#[test]
fn a_long_answer_leaves_while_its_statement_runs() {
    let place = Place::new();
    for text in [
        "select g, 'a text of some length' from generate_series(1, 50000) g",
        "copy (select * from generate_series(1, 200000)) to stdout",
    ] {
        let mut machine = with_workers(&place);
        machine.receive(&[query(text), query("select 'after'")].concat());
        machine.advance();
        assert!(machine.wants_worker() && machine.ready().is_empty(), "its begin is taken back");
        let taken = Arc::new(Mutex::default());
        machine.set_stream(Some(Box::new(Taken(taken.clone()))));
        machine.advance();
        machine.set_stream(None);
        let (mut all, most) = taken.lock().expect("no panic").clone();
        assert!(most < 200_000 && all.len() > 1_000_000, "{most} bytes at most were in memory, of {}", all.len());
        all.extend(machine.ready());
        let answers = Messages::of(&all);
        let tail: String = answers.letters().chars().rev().take(6).collect();
        assert!(tail.starts_with("ZCDTZC"), "{tail}");
        assert!(answers.letters().len() > 50_000);
    }
    // A short one is carried out at once.
    let mut machine = with_workers(&place);
    machine.receive(&query("select * from generate_series(1, 100)"));
    machine.advance();
    assert!(!machine.wants_worker() && !machine.ready().is_empty());
}

#[test]
fn a_statement_whose_client_takes_nothing_can_be_cancelled() {
    struct Nothing(lodestone_sql::Database, (i32, i32));
    impl Stream for Nothing {
        fn send(&mut self, _: &[u8]) -> lodestone_sql_types::Result<usize> {
            self.0.cancel(self.1.0, self.1.1);
            Ok(0)
        }
    }
    let place = Place::new();
    let mut machine = with_workers(&place);
    machine.receive(&query("select * from generate_series(1, 100000000)"));
    machine.advance();
    let key = machine.cancel_key().expect("a client");
    machine.set_stream(Some(Box::new(Nothing(place.database.clone(), key))));
    machine.advance();
    machine.set_stream(None);
    let answers = Messages::of(machine.ready());
    assert!(answers.letters().ends_with("EZ") && answers.has_text(b'E', "57014"), "{}", answers.letters().len());
}

#[test]
fn waits_and_idle_transactions_have_limits() {
    let place = Place::new();
    place.answers(&[query("create table t (k int primary key)"), query("insert into t values (1)")]);
    let mut first = place.open();
    first.receive(&[query("begin"), query("delete from t")].concat());
    first.advance();
    let later = Instant::now() + Duration::from_secs(60);
    for (setting, code) in [("lock_timeout = '20s'", "55P03"), ("statement_timeout = 20000", "57014")] {
        let mut second = place.open();
        second.receive(&[query(&format!("set {setting}")), query("delete from t")].concat());
        second.advance();
        second.look_at_clock(Instant::now());
        assert_eq!(Messages::of(second.ready()).letters(), "CZ");
        second.look_at_clock(later);
        let answers = Messages::of(second.ready());
        assert_eq!(answers.letters(), "CZEZ");
        assert!(answers.has_text(b'E', code), "{answers:?}");
    }
    let mut idle = place.open();
    idle.receive(&[query("set idle_in_transaction_session_timeout = '1min'"), query("begin; select 1")].concat());
    idle.advance();
    idle.look_at_clock(Instant::now());
    assert!(!idle.is_closed());
    idle.look_at_clock(later + Duration::from_secs(1));
    assert!(idle.is_closed() && Messages::of(idle.ready()).has_text(b'E', "25P03"));
    for (text, shown) in [("250", "250ms"), ("'2s'", "2s"), ("'90s'", "90s"), ("60000", "1min"), ("0", "0")] {
        let answers =
            place.answers(&[query(&format!("set statement_timeout = {text}")), query("show statement_timeout")]);
        assert_eq!(answers.texts(b'D'), [shown]);
    }
    let answers = place.answers(&[query("set statement_timeout = 'soon'")]);
    assert!(answers.has_text(b'E', "22023"), "{answers:?}");
    // One that runs, not one that waits.
    let sent = [query("set statement_timeout = 1"), query("select count(*) from generate_series(1, 100000000)")];
    assert!(place.answers(&sent).has_text(b'E', "57014"));
}

fn hmac(key: &[u8], text: &[u8]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("any length");
    mac.update(text);
    mac.finalize().into_bytes().into()
}

/// Proves a password to a machine. Returns the answers after the proof.
fn prove(place: &Place, user: &str, password: &str) -> Messages {
    let mut machine = place.machine_of(Peer::Unknown, false);
    machine.receive(&startup(user, "shop"));
    machine.advance();
    assert_eq!(Messages::of(machine.ready()).last(b'R'), b"\0\0\0\x0aSCRAM-SHA-256\0\0");
    let sent = machine.ready().len();
    machine.leave(sent);
    let bare = "n=,r=abcdef";
    let first = format!("n,,{bare}");
    let length = u32::try_from(first.len()).expect("short").to_be_bytes();
    machine.receive(&message(b'p', &[b"SCRAM-SHA-256\0", &length[..], first.as_bytes()].concat()));
    machine.advance();
    let answers = Messages::of(machine.ready());
    let sent = machine.ready().len();
    machine.leave(sent);
    let server = String::from_utf8(answers.last(b'R')[4..].to_vec()).expect("text");
    let mut parts = server.split(',').map(|part| &part[2..]);
    let (nonce, salt, count) = (parts.next().expect("r"), parts.next().expect("s"), parts.next().expect("i"));
    let mut last = hmac(password.as_bytes(), &[&BASE64.decode(salt).expect("base64")[..], &[0, 0, 0, 1]].concat());
    let mut salted = last;
    for _ in 1..count.parse::<u32>().expect("a number") {
        last = hmac(password.as_bytes(), &last);
        salted.iter_mut().zip(last).for_each(|(all, last)| *all ^= last);
    }
    let client_key = hmac(&salted, b"Client Key");
    let without_proof = format!("c=biws,r={nonce}");
    let signature = hmac(&Sha256::digest(client_key), format!("{bare},{server},{without_proof}").as_bytes());
    let proof: Vec<u8> = client_key.iter().zip(signature).map(|(key, signature)| key ^ signature).collect();
    machine.receive(&message(b'p', format!("{without_proof},p={}", BASE64.encode(proof)).as_bytes()));
    machine.advance();
    Messages::of(machine.ready())
}

#[test]
fn a_role_proves_its_password() {
    let place = Place::new();
    let refused = |user: &str, password: &str| {
        let answers = prove(&place, user, password);
        assert_eq!(answers.letters(), "E", "{user}");
        assert!(answers.has_text(b'E', "28P01") && answers.has_text(b'E', "FATAL"), "{answers:?}");
    };
    refused("alice", "secret");
    let answers = place.answers(&[query("create role alice login password 'secret'"), query("create user bob")]);
    assert_eq!(answers.letters(), "CZCZ");
    let answers = prove(&place, "alice", "secret");
    assert!(answers.letters().starts_with("RRS") && answers.letters().ends_with("KZ"), "{answers:?}");
    refused("alice", "Secret");
    refused("bob", "");
    refused("carol", "secret");
    place.answers(&[query("alter user bob with encrypted password 'x'"), query("alter role alice nologin")]);
    assert!(prove(&place, "bob", "x").letters().ends_with('Z'));
    refused("alice", "secret");
    // The user of the session needs no CREATE: psql's \\password changes its own.
    let verifier = lodestone_sql::scram::Verifier::of("rooted").expect("random numbers");
    assert_eq!(place.answers(&[query(&format!("alter user root password '{verifier}'"))]).letters(), "CZ");
    assert!(prove(&place, "root", "rooted").letters().ends_with('Z'));
    place.answers(&[query("drop role bob")]);
    refused("bob", "x");
    for (text, code) in [
        ("create role alice", "42710"),
        ("alter role nosuch password 'x'", "42704"),
        ("drop role nosuch", "42704"),
        ("create role x password 'md5aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'", "0A000"),
        ("create role x password 'SCRAM-SHA-256$x'", "22023"),
        ("create role pg_x", "42939"),
        ("begin; create role x", "25001"),
    ] {
        let answers = place.answers(&[query(text)]);
        assert!(answers.has_text(b'E', code), "{text}: {answers:?}");
    }
}

#[test]
fn a_client_that_proves_nothing_is_refused() {
    let place = Place::new();
    for sent in [
        query("select 1"),
        message(b'p', b"PLAIN\0\0\0\0\0"),
        message(b'p', b"SCRAM-SHA-256\0\0\0\0\x09n,,n=,r="),
        message(b'p', b"SCRAM-SHA-256\0\x7f\0\0\x09n,,n=,r=a"),
        vec![b'p', 0, 1, 0, 0],
        message(b'p', b"\xff"),
    ] {
        let mut machine = place.machine_of(Peer::Unknown, false);
        machine.receive(&[startup("root", "shop"), sent].concat());
        machine.advance();
        assert!(machine.is_closed());
        let answers = Messages::of(machine.ready());
        assert!(
            answers.letters() == "RE" && answers.has_text(b'E', "08P01") || answers.has_text(b'E', "22021"),
            "{answers:?}"
        );
    }
}

/// Plans that statements share: by their integers, and by a change of the table under them.
#[test]
fn statements_that_differ_in_integers_have_their_own_answers() {
    let place = Place::new();
    place.answers(&[query("create table t (k int primary key, v int8, w text)")]);
    for number in 0..5 {
        let sent = query(&format!("insert into t values ({number}, -{number}, 'x')"));
        assert_eq!(place.answers(&[sent]).letters(), "CZ");
        let sent = query(&format!("insert into t values ({}, {number}, null)", number + 10));
        assert_eq!(place.answers(&[sent]).letters(), "CZ");
        let found = place.answers(&[query(&format!("select v, w from t where k = {number};"))]);
        assert_eq!(found.texts(b'D'), [format!("-{number}").replace("-0", "0"), "x".into()]);
        let sent = query(&format!("update t set v = v + -{number} where k = {}", number + 10));
        assert_eq!(place.answers(&[sent]).last(b'C'), b"UPDATE 1\0");
        let found = place.answers(&[query(&format!("select v from t where k in ({}, 99)", number + 10))]);
        assert_eq!(found.texts(b'D'), ["0"]);
        assert_eq!(place.answers(&[query("select 4000000000, 1 + 1")]).texts(b'D'), ["4000000000", "2"]);
    }
    let select = [
        parse("s", "select v from t where k = $1", &[]),
        bind("", "s", &[], &[Some(b"3")], &[]),
        execute("", 0),
        sync(),
    ];
    let mut machine = place.open();
    machine.receive(&select.concat());
    machine.advance();
    let sent = machine.ready().len();
    machine.leave(sent);
    place.answers(&[query("drop table t"), query("create table t (a text, k int primary key, v int8)")]);
    place.answers(&[query("insert into t values ('new', 3, 33)")]);
    machine.receive(&select[1..].concat());
    machine.advance();
    let answers = Messages::of(machine.ready());
    assert_eq!(answers.texts(b'D'), ["33"], "{answers:?}");
    let found =
        place.answers(&[query("select v, a from t where k = 3;"), query("select v from t where k = 4000000000")]);
    assert_eq!(found.texts(b'D'), ["33", "new"]);
}

/// The data of a COPY in the binary format.
fn copied_as_binary(place: &Place, text: &str) -> Vec<u8> {
    let answers = place.answers(&[query(text)]);
    assert_eq!(answers.last(b'H')[0], 1, "{answers:?}");
    answers.all(b'd')
}

#[test]
fn rows_go_out_and_come_back_in_the_binary_format() {
    let place = Place::new();
    place.answers(&[query("create table b (k int primary key, v text, n numeric, t timestamptz, a int[])")]);
    place.answers(&[query("create table c (k int primary key, v text, n numeric, t timestamptz, a int[])")]);
    place.answers(&[query("insert into b values (1, 'x', -12.50, '2024-01-01 00:00:00+00', '{1,null,3}'), (2)")]);
    let data = copied_as_binary(&place, "copy b to stdout (format binary)");
    assert!(data.starts_with(b"PGCOPY\n\xff\r\n\0"));
    let send = |data: &[u8], table: &str| {
        place.answers(&[query(&format!("delete from {table}"))]);
        let pieces = data.chunks(5).map(|piece| message(b'd', piece));
        let begin = query(&format!("copy {table} from stdin with binary"));
        let sent: Vec<_> = [begin].into_iter().chain(pieces).chain([message(b'c', b"")]).collect();
        place.answers(&sent)
    };
    assert_eq!(send(&data, "c").last(b'C'), b"COPY 2\0");
    assert_eq!(copied(&place, "copy c to stdout"), copied(&place, "copy b to stdout"));
    assert_eq!(copied_as_binary(&place, "copy c to stdout (format binary)"), data);
    // The end may be missing, and half a row may not.
    assert_eq!(send(&data[..data.len() - 2], "c").last(b'C'), b"COPY 2\0");
    for (length, what) in [(data.len() - 5, "unexpected EOF"), (8, "unexpected EOF")] {
        let answers = send(&data[..length], "c");
        assert!(answers.has_text(b'E', "22P04") && answers.has_text(b'E', what), "{length}: {answers:?}");
    }
    let (mut more, mut other) = (data.clone(), data.clone());
    more.push(0);
    other[3] = b'x';
    assert!(send(&more, "c").has_text(b'E', "after EOF marker"));
    assert!(send(&other, "c").has_text(b'E', "signature"));
    let narrow = copied_as_binary(&place, "copy (select k from b) to stdout (format binary)");
    assert!(send(&narrow, "c").has_text(b'E', "row field count is 1, expected 5"));
    assert!(place.answers(&[query("copy b to stdout (format binary, header)")]).has_text(b'E', "42601"));
}

#[test]
fn cursors_and_prepared_statements_are_read_in_the_extended_protocol() {
    let place = Place::new();
    let parts = |text: &str| {
        let bind = bind("", "", &[], &[], &[]);
        [parse("", text, &[]), bind, describe(b'P', ""), execute("", 0), sync()].concat()
    };
    let declare = "declare c scroll cursor for select g from generate_series(1, $1) g";
    let sent = [
        query("begin"),
        [parse("", declare, &[23]), bind("", "", &[], &[Some(b"5")], &[]), execute("", 0), sync()].concat(),
        parts("fetch 2 from c"),
        parts("move 1 from c"),
        parts("fetch all from c"),
        [describe(b'P', "c"), sync()].concat(),
        query("prepare p as select 'x'"),
        parts("execute p"),
        query("commit"),
    ];
    let answers = place.answers(&sent);
    assert!(!answers.letters().contains('E'), "{answers:?}");
    assert_eq!(answers.texts(b'D'), ["1", "2", "4", "5", "x"]);
    assert_eq!(answers.letters().matches('T').count(), 4, "{answers:?}");
}

#[test]
fn numbers_of_relations_are_names_in_texts_of_both_protocols() {
    let place = Place::new();
    place.answers(&[query("create table named (k int primary key)")]);
    let text = "select 'named'::regclass";
    let with = |formats: &[i16]| {
        place.answers(&[parse("", text, &[]), bind("", "", &[], &[], formats), execute("", 0), sync()])
    };
    assert_eq!(place.answers(&[query(text)]).texts(b'D'), ["named"]);
    assert_eq!(with(&[]).texts(b'D'), ["named"]);
    assert_eq!(with(&[1]).last(b'D').len(), 2 + 4 + 4, "a number");
}

#[test]
fn statements_that_a_connection_keeps_follow_the_tables() {
    let place = Place::new();
    place
        .answers(&[query("create table t (k int primary key, v int)"), query("insert into t values (1, 10), (2, 20)")]);
    let mut machine = place.open();
    let mut ask = |text: &str| {
        machine.receive(&query(text));
        machine.advance();
        let found = Messages::of(machine.ready());
        let count = machine.ready().len();
        machine.leave(count);
        found
    };
    for number in 1..=2 {
        let found = ask(&format!("select * from t where k = {number}"));
        assert_eq!(found.texts(b'D'), [number.to_string(), format!("{number}0")]);
        assert_eq!(ask("begin").last(b'C'), b"BEGIN\0");
        assert_eq!(ask("commit").last(b'C'), b"COMMIT\0");
    }
    // A text that looks like what is kept has no values.
    assert!(ask("select * from t where k = \u{1}").has_text(b'E', "42601"));
    place.answers(&[query("alter table t add column w int default 7")]);
    assert_eq!(ask("select * from t where k = 2").texts(b'D'), ["2", "20", "7"]);
    // More of them than are kept.
    for number in 0..40 {
        let found = ask(&format!("select v{} from t where k = {number}", " + v".repeat(number)));
        assert_eq!(found.letters().matches('D').count(), usize::from((1..=2).contains(&number)));
    }
    assert_eq!(ask("select * from t where k = 1").texts(b'D'), ["1", "10", "7"]);
}

#[test]
fn a_full_pool_is_told_with_a_hint() {
    let place = Place::of_bytes(4 << 20);
    place.answers(&[query("create table t (k int primary key, v text)")]);
    let is_told = |answers: &Messages| {
        let has = |text| answers.has_text(b'E', text);
        has("53100") && has("Mthe pool is full") && has("a.pool") && has("lodestone pool grow") && !has("FATAL")
    };
    // A COPY into an empty table is loaded into pages, and ends with the error.
    let rows: String = (0..20_000).map(|k| format!("{k}\t{}\n", "x".repeat(300))).collect();
    let mut machine = place.open();
    let mut ask = |sent: &[u8]| {
        machine.receive(sent);
        machine.advance();
        let found = Messages::of(machine.ready());
        let count = machine.ready().len();
        machine.leave(count);
        found
    };
    let pieces = rows.as_bytes().chunks(60_000).map(|piece| message(b'd', piece));
    let copy: Vec<u8> =
        [query("copy t from stdin")].into_iter().chain(pieces).chain([message(b'c', b"")]).flatten().collect();
    let answers = ask(&copy);
    assert!(is_told(&answers) && answers.letters() == "GEZ", "{answers:?}");
    // Nothing of it is left, and the same client goes on.
    assert_eq!(ask(&query("select count(*) from t")).texts(b'D'), ["0"]);
    let insert = |k: u32| query(&format!("insert into t values ({k}, repeat('x', 3000))"));
    let full = (0..4000).map(|k| ask(&insert(k))).find(|answers| answers.letters().contains('E')).expect("it is full");
    assert!(is_told(&full) && full.letters() == "EZ", "{full:?}");
    ask(&query("drop table t"));
    ask(&query("create table t (k int primary key, v text)"));
    assert_eq!(ask(&insert(1)).last(b'C'), b"INSERT 0 1\0");
}

#[test]
fn advisory_locks_of_a_session_have_a_limit() {
    let place = Place::new();
    let mut machine = place.open();
    let mut ask = |sent: &str| {
        machine.receive(&query(sent));
        machine.advance();
        let found = Messages::of(machine.ready());
        let count = machine.ready().len();
        machine.leave(count);
        found
    };
    for function in ["pg_advisory_lock", "pg_advisory_xact_lock"] {
        ask("begin");
        let many = ask(&format!("select count({function}(g)) from generate_series(1, 10000) g"));
        assert_eq!(many.texts(b'D'), ["10000"], "{many:?}");
        assert_eq!(ask(&format!("select count({function}(3))")).texts(b'D'), ["1"], "it has that one");
        let more = ask(&format!("select {function}(10001)"));
        assert!(more.has_text(b'E', "53200") && more.has_text(b'E', "10000 advisory locks"), "{more:?}");
        ask("rollback");
        let left = if function == "pg_advisory_lock" { "10000" } else { "0" };
        assert_eq!(ask("select count(*) from pg_locks where locktype = 'advisory'").texts(b'D'), [left]);
        ask("select pg_advisory_unlock_all()");
        assert_eq!(ask("select pg_try_advisory_lock(10001), pg_advisory_unlock(10001)").texts(b'D'), ["t", "t"]);
    }
}

#[test]
fn rows_without_columns_come_and_go() {
    let place = Place::new();
    place.database.connect("", "").run("create table e (); insert into e default values").expect("a table");
    let done = || message(b'c', b"");
    for (text, rows, letters) in [
        ("copy e to stdout", None, "HdcCZ"),
        ("select * from e", None, "TDCZ"),
        ("copy e from stdin", Some(&b"\n\n"[..]), "GCZ"),
        ("copy e from stdin", Some(b"x\n"), "GEZ"),
        ("copy e from stdin csv", Some(b"\n"), "GCZ"),
    ] {
        let sent = rows.map_or(Vec::new(), |rows| vec![message(b'd', rows), done()]);
        let answers = place.answers(&[vec![query(text)], sent].concat());
        assert_eq!(answers.letters(), letters, "{text}: {answers:?}");
    }
    assert_eq!(place.answers(&[query("select count(*) from e")]).texts(b'D'), ["4"]);
}

/// The labels of a column are written, and not their numbers. A table is copied without those below it.
#[test]
fn copy_writes_labels_and_the_rows_of_the_table_alone() {
    let place = Place::new();
    let made = "create type mood as enum ('sad', 'ok'); create table t (m mood); create table below () inherits (t); \
                insert into t values ('ok'); insert into below values ('sad')";
    assert_eq!(place.answers(&[query(made)]).last(b'C'), b"INSERT 0 1\0");
    assert_eq!(copied(&place, "copy t to stdout"), "ok\n");
    assert_eq!(copied(&place, "copy t (m) to stdout csv"), "ok\n");
    assert_eq!(copied(&place, "copy (select m from t order by m) to stdout"), "sad\nok\n");
}
