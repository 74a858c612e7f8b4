//! The protocol machine, driven by bytes: whole conversations, each of their prefixes, and random damage.

mod common;

use lodestone_serve::protocol::{Machine, Places};

use common::{Messages, Place, bind, describe, execute, message, parse, query, startup, sync};

/// Letters of the answers to a conversation after its startup.
fn letters(place: &Place, sent: &[Vec<u8>]) -> String {
    place.answers(sent).letters()
}

#[test]
fn a_client_comes_in() {
    let place = Place::new();
    let mut machine = place.machine();
    // Encryption is refused with one byte, and the client goes on without.
    machine.receive(&[0, 0, 0, 8, 4, 0xd2, 0x16, 0x2f]);
    machine.advance();
    assert_eq!(machine.ready(), b"N");
    machine.leave(1);
    machine.receive(&startup("root", "shop"));
    machine.advance();
    let answers = Messages::of(machine.ready());
    assert!(answers.letters().starts_with("RS") && answers.letters().ends_with("KZ"), "{}", answers.letters());
    assert_eq!(answers.last(b'Z'), b"I");
    assert!(answers.has_text(b'S', "server_version"));
}

#[test]
fn settings_come_with_the_first_message() {
    let place = Place::new();
    let mut machine = place.machine();
    let body = "user\0root\0database\0shop\0options\0-c default_transaction_isolation=read\\ committed\0\0";
    let length = u32::try_from(body.len() + 8).expect("short").to_be_bytes();
    machine.receive(&[&length[..], &[0, 3, 0, 0], body.as_bytes(), &query("show transaction_isolation")].concat());
    machine.advance();
    assert!(Messages::of(machine.ready()).has_text(b'D', "read committed"));
}

#[test]
fn strangers_are_refused() {
    let place = Place::new();
    for (sent, code) in [
        (startup("somebody", "shop"), "28000"),
        (startup("root", "nowhere"), "3D000"),
        (vec![0, 0, 0, 8, 0, 2, 0, 0], "0A000"),
        (vec![0, 0, 0, 3], "08P01"),
        (vec![0x7f, 0xff, 0xff, 0xff], "08P01"),
    ] {
        let mut machine = place.machine();
        machine.receive(&sent);
        machine.advance();
        assert!(machine.is_closed(), "{code}");
        let answers = Messages::of(machine.ready());
        assert!(answers.has_text(b'E', code), "{code}: {answers:?}");
        assert!(answers.has_text(b'E', "FATAL"));
    }
}

#[test]
fn a_simple_query_has_several_statements() {
    let place = Place::new();
    assert_eq!(letters(&place, &[query("create table t (k int primary key, v text)")]), "CZ");
    assert_eq!(letters(&place, &[query("insert into t values (1, 'x'); select * from t; ;")]), "CTDCZ");
    assert_eq!(letters(&place, &[query("")]), "IZ");
    // The first statement is part of the transaction that the second one ends.
    let answers = place.answers(&[query("insert into t values (2, 'y'); select 1/0; select 2")]);
    assert_eq!(answers.letters(), "CTEZ");
    assert!(answers.has_text(b'E', "22012"));
    let answers = place.answers(&[query("select count(*) from t")]);
    assert_eq!(answers.last(b'D'), b"\0\x01\0\0\0\x011");
}

#[test]
fn the_status_follows_the_transaction() {
    let place = Place::new();
    for (text, status) in [("begin", b"I"), ("select 1", b"T"), ("select nosuch", b"T"), ("select 1", b"E")] {
        let before: Vec<Vec<u8>> = ["begin", "select 1", "select nosuch", "select 1"]
            .iter()
            .take_while(|other| **other != text || status == b"E")
            .map(|text| query(text))
            .collect();
        let answers = place.answers(&before);
        if !before.is_empty() {
            assert_eq!(answers.last(b'Z'), status, "before {text}");
        }
    }
}

#[test]
fn extended_queries_have_parameters_and_formats() {
    let place = Place::new();
    place.answers(&[query("create table t (k int8 primary key, v text)")]);
    let sent = [
        parse("s", "insert into t values ($1, $2)", &[]),
        describe(b'S', "s"),
        bind("", "s", &[1, 0], &[Some(&7_i64.to_be_bytes()), Some(b"seven")], &[]),
        execute("", 0),
        bind("", "s", &[], &[Some(b"8"), None], &[]),
        execute("", 0),
        sync(),
    ];
    let answers = place.answers(&sent);
    assert_eq!(answers.letters(), "1tn2C2CZ");
    // The types that the columns give to the parameters: int8, text.
    assert_eq!(answers.last(b't'), [0, 2, 0, 0, 0, 20, 0, 0, 0, 25]);
    let sent = [
        parse("", "select k, v from t where k = $1", &[21]),
        // An int2, as some drivers send small numbers.
        bind("p", "", &[1], &[Some(&7_i16.to_be_bytes())], &[1, 0]),
        describe(b'P', "p"),
        execute("p", 0),
        sync(),
    ];
    let answers = place.answers(&sent);
    assert_eq!(answers.letters(), "12TDCZ");
    assert_eq!(answers.last(b'D'), b"\0\x02\0\0\0\x08\0\0\0\0\0\0\0\x07\0\0\0\x05seven");
}

#[test]
fn an_error_skips_to_the_next_sync() {
    let place = Place::new();
    let sent = [
        parse("", "select $1::int", &[]),
        bind("", "", &[], &[Some(b"x")], &[]),
        execute("", 0),
        parse("", "select 1", &[]),
        sync(),
        parse("", "select 1", &[]),
        sync(),
    ];
    assert_eq!(letters(&place, &sent), "1EZ1Z");
    assert_eq!(letters(&place, &[bind("", "nosuch", &[], &[], &[]), sync()]), "EZ");
    assert_eq!(letters(&place, &[execute("nosuch", 0), sync()]), "EZ");
}

#[test]
fn a_portal_stops_after_the_rows_that_were_asked_for() {
    let place = Place::new();
    let sent = [
        query("begin"),
        parse("", "select * from generate_series(1, 5)", &[]),
        bind("c", "", &[], &[], &[]),
        execute("c", 2),
        execute("c", 2),
        execute("c", 2),
        sync(),
    ];
    assert_eq!(letters(&place, &sent), "CZ12DDsDDsDCZ");
}

#[test]
fn rows_come_by_copy() {
    let place = Place::new();
    place.answers(&[query("create table t (k int primary key, v text default 'd', w int)")]);
    let copy = |texts: &[&str]| -> Vec<Vec<u8>> {
        let data = texts.iter().map(|text| message(b'd', text.as_bytes()));
        [query("copy t (k, v) from stdin")].into_iter().chain(data).chain([message(b'c', b"")]).collect()
    };
    // Rows may be cut anywhere.
    let answers = place.answers(&copy(&["1\ton", "e\n2\t\\N\n3\ta\\tb\\\\", "\n\\.\n"]));
    assert_eq!(answers.letters(), "GCZ");
    assert_eq!(answers.last(b'C'), b"COPY 3\0");
    let answers = place.answers(&[query("select * from t where k = 3")]);
    assert_eq!(answers.last(b'D'), b"\0\x03\0\0\0\x013\0\0\0\x04a\tb\\\xff\xff\xff\xff");
    let answers = place.answers(&copy(&["4\tx\nfive\ty\n"]));
    assert_eq!(answers.letters(), "GEZ");
    assert!(answers.has_text(b'E', "22P02") && answers.has_text(b'E', "COPY t, line 2, column k: \"five\""));
    for (rows, code) in [("1\n", "22P04"), ("1\ta\tb\n", "22P04"), ("1\tdup\n", "23505"), ("\\N\tx\n", "23502")] {
        let answers = place.answers(&copy(&[rows]));
        assert!(answers.has_text(b'E', code), "{rows}: {answers:?}");
    }
    let sent = [
        query("copy t from stdin"),
        message(b'd', b"9\tx\t1\n"),
        message(b'f', b"no\0"),
        query("select count(*) from t"),
    ];
    let answers = place.answers(&sent);
    assert_eq!(answers.letters(), "GEZTDCZ");
    assert_eq!(answers.last(b'D'), b"\0\x01\0\0\0\x013", "nothing of the refused copies is there");
}

/// Rows that are sent to a parted table are in its partitions, whose indexes and conditions hold.
#[test]
fn copy_finds_the_partitions() {
    let place = Place::new();
    place.answers(&[query(
        "create table whole (k int, v text constraint good check (v <> 'bad'), part text, primary key (k, part)) partition by range (k); \
         create table low partition of whole for values from (0) to (10); \
         create table high (v text constraint good check (v <> 'bad'), part text not null, k int not null) partition by list (part); \
         create table high_a partition of high for values in ('a'); \
         alter table whole attach partition high for values from (10) to (100)",
    )]);
    let copy = |table: &str, rows: &str| {
        place.answers(&[query(&format!("copy {table} from stdin")), message(b'd', rows.as_bytes()), message(b'c', b"")])
    };
    let answers = copy("whole", "1\tone\tx\n11\televen\ta\n2\t\\N\tx\n");
    assert_eq!(answers.last(b'C'), b"COPY 3\0", "{answers:?}");
    let answers = copy("whole (part, k)", "a\t12\n");
    assert_eq!(answers.last(b'C'), b"COPY 1\0", "{answers:?}");
    let count = |query_text: &str, expected: &str| {
        let answers = place.answers(&[query(query_text)]);
        let number = [&b"\0\x01\0\0\0\x01"[..], expected.as_bytes()].concat();
        assert_eq!(answers.last(b'D'), number, "{query_text}");
    };
    count("select count(*) from low", "2");
    count("select count(*) from high_a where v = 'eleven' and part = 'a' and k = 11", "1");
    for (rows, code) in [
        ("3\tx\tx\n200\tno\ta\n", "23514"),
        ("3\tx\tx\n13\tno\tb\n", "23514"),
        ("3\tx\tx\n4\tbad\tx\n", "23514"),
        ("3\tx\tx\n1\tdup\tx\n", "23505"),
        ("3\tx\tx\n12\tdup\ta\n", "23505"),
        ("3\tx\tx\n\\N\tx\ta\n", "23514"),
        ("3\tx\tx\n5\tx\t\\N\n", "23502"),
    ] {
        let answers = copy("whole", rows);
        assert!(answers.has_text(b'E', code), "{rows}: {answers:?}");
    }
    let answers = copy("low", "50\tx\tx\n");
    assert!(answers.has_text(b'E', "23514"), "a partition takes no rows of others: {answers:?}");
    count("select count(*) from whole", "4");
}

#[test]
fn a_statement_waits_for_a_row_and_goes_on() {
    let place = Place::new();
    place.answers(&[query("create table t (k int primary key, v int)"), query("insert into t values (1, 10)")]);
    let (mut first, mut second) = (place.open(), place.open());
    first.receive(&[query("begin"), query("update t set v = v + 1 where k = 1")].concat());
    first.advance();
    second.receive(&[query("update t set v = v * 2 where k = 1 returning v"), query("select 'next'")].concat());
    second.advance();
    assert!(second.ready().is_empty(), "it waits, and so does the statement after it");
    first.receive(&query("commit"));
    first.advance();
    second.advance();
    let answers = Messages::of(second.ready());
    assert_eq!(answers.letters(), "TDCZTDCZ");
    assert!(answers.has_text(b'D', "22"), "it saw the change of the first one");
}

#[test]
fn a_lock_that_is_not_needed_any_more_is_given_back() {
    let place = Place::new();
    place.answers(&[query("create table t (k int primary key, v int)"), query("insert into t values (1, 10)")]);
    let (mut first, mut second) = (place.open(), place.open());
    first.receive(&[query("begin"), query("update t set v = 11 where k = 1")].concat());
    first.advance();
    // It waits for the row, which does not fit its condition any more when it is its turn.
    second.receive(&query("update t set v = 0 where v = 10"));
    second.advance();
    first.receive(&query("commit"));
    first.advance();
    second.advance();
    assert_eq!(Messages::of(second.ready()).last(b'C'), b"UPDATE 0\0");
    let mut third = place.open();
    third.receive(&query("delete from t where k = 1"));
    third.advance();
    assert_eq!(Messages::of(third.ready()).last(b'C'), b"DELETE 1\0");
}

#[test]
fn a_waiting_statement_can_be_cancelled() {
    let place = Place::new();
    place.answers(&[query("create table t (k int primary key)"), query("insert into t values (1)")]);
    let mut first = place.open();
    first.receive(&[query("begin"), query("delete from t")].concat());
    first.advance();
    let mut second = place.machine();
    second.receive(&startup("root", "shop"));
    second.advance();
    let key = Messages::of(second.ready()).last(b'K').to_vec();
    let sent = second.ready().len();
    second.leave(sent);
    second.receive(&query("delete from t"));
    second.advance();
    assert!(second.ready().is_empty());
    let mut third = place.machine();
    third.receive(&[&[0, 0, 0, 16, 4, 0xd2, 0x16, 0x2e][..], &key].concat());
    third.advance();
    assert!(third.is_closed() && third.ready().is_empty());
    second.advance();
    let answers = Messages::of(second.ready());
    assert_eq!(answers.letters(), "EZ");
    assert!(answers.has_text(b'E', "57014"));
}

/// A conversation with everything in it.
fn recorded() -> Vec<u8> {
    let sent = [
        startup("root", "shop"),
        query("create table t (k int primary key, v text)"),
        query("begin; insert into t values (1, 'x'); savepoint s; commit"),
        parse("s", "select k, v from t where k = $1", &[23]),
        bind("p", "s", &[1], &[Some(&1_i32.to_be_bytes())], &[1]),
        describe(b'S', "s"),
        describe(b'P', "p"),
        execute("p", 1),
        message(b'H', b""),
        sync(),
        message(b'C', b"Ss\0"),
        query("copy t from stdin"),
        message(b'd', b"2\ty\n3\t\\N\n"),
        message(b'c', b""),
        query("select count(*), 'a' || v from t group by v order by 2; show all"),
        message(b'X', b""),
    ];
    sent.concat()
}

#[test]
fn every_prefix_is_answered_or_waited_for() {
    let place = Place::new();
    let all = recorded();
    let mut whole = place.machine();
    whole.receive(&all);
    whole.advance();
    assert!(whole.is_closed(), "Terminate ends it");
    let expected = Messages::of(whole.ready()).letters();
    assert!(!expected.contains('E'), "{expected}");
    for end in (0..all.len()).step_by(3) {
        let place = Place::new_cheap(&place);
        let mut machine = place.machine();
        machine.receive(&all[..end]);
        machine.advance();
        let found = Messages::of(machine.ready()).letters();
        // The table is there from the first run: its creation is refused the next times.
        assert!(!machine.is_closed() && found.len() <= expected.len() + 8, "{end}: {found}");
    }
    // Byte by byte the answers are the same as at once.
    let (one, two) = (Place::new(), Place::new());
    let (mut at_once, mut slow) = (one.machine(), two.machine());
    at_once.receive(&all);
    at_once.advance();
    for byte in &all {
        slow.receive(&[*byte]);
        slow.advance();
    }
    assert_eq!(Messages::of(slow.ready()).letters(), Messages::of(at_once.ready()).letters());
}

#[test]
fn damage_is_an_error_and_no_panic() {
    let place = Place::new();
    let all = recorded();
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |limit: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        usize::try_from(seed % u64::try_from(limit).expect("small")).expect("small")
    };
    for _ in 0..600 {
        let mut damaged = all.clone();
        for _ in 0..=random(4) {
            let at = random(damaged.len());
            match random(3) {
                0 => damaged[at] = u8::try_from(random(256)).expect("a byte"),
                1 => drop(damaged.remove(at)),
                _ => damaged.truncate(at.max(1)),
            }
        }
        let mut machine = place.machine();
        machine.receive(&damaged);
        machine.advance();
        // All answers are whole messages.
        Messages::of(machine.ready());
    }
}

/// The request for TLS.
const TLS: [u8; 8] = [0, 0, 0, 8, 4, 0xd2, 0x16, 0x2f];

#[test]
fn encryption_begins_after_its_answer() {
    let place = Place::new();
    let mut machine = place.machine();
    machine.offer_encryption(false);
    // GSS is not there, and the client asks for TLS then.
    machine.receive(&[0, 0, 0, 8, 4, 0xd2, 0x16, 0x30]);
    machine.advance();
    assert_eq!(machine.ready(), b"N");
    machine.receive(&TLS);
    machine.advance();
    assert_eq!(machine.ready(), b"NS");
    machine.leave(2);
    assert!(machine.wants_encryption());
    machine.note_encrypted();
    machine.receive(&startup("root", "shop"));
    machine.advance();
    assert!(Messages::of(machine.ready()).letters().ends_with("KZ"));
}

#[test]
fn bytes_after_a_request_for_encryption_are_refused() {
    let place = Place::new();
    let mut machine = place.machine();
    machine.offer_encryption(false);
    machine.receive(&[&TLS[..], &startup("root", "shop")].concat());
    machine.advance();
    assert!(machine.is_closed() && !machine.wants_encryption());
    assert!(Messages::of(&machine.ready()[1..]).has_text(b'E', "08P01"));
    // They may come before the answer has left.
    let mut machine = place.machine();
    machine.offer_encryption(false);
    machine.receive(&TLS);
    machine.advance();
    machine.receive(b"x");
    machine.advance();
    assert!(machine.is_closed());
}

#[test]
fn clients_of_other_machines_must_encrypt() {
    let place = Place::new();
    let mut machine = place.machine();
    machine.offer_encryption(true);
    machine.receive(&startup("root", "shop"));
    machine.advance();
    let answers = Messages::of(machine.ready());
    assert!(
        machine.is_closed() && answers.has_text(b'E', "28000") && answers.has_text(b'E', "encrypted"),
        "{answers:?}"
    );
}

#[test]
fn requests_without_end_are_refused() {
    let place = Place::new();
    let mut machine = place.machine();
    machine.receive(&[TLS; 3].concat());
    machine.advance();
    assert!(machine.is_closed());
}

#[test]
fn places_are_for_clients_that_are_known() {
    let place = Place::new();
    let full = Places::new(1);
    let mut silent = place.machine_at(&full);
    let come_in = |machine: &mut Machine| {
        machine.receive(&startup("root", "shop"));
        machine.advance();
        !machine.is_closed()
    };
    let mut first = place.machine_at(&full);
    assert!(come_in(&mut first), "one that says nothing has no place");
    assert!(!come_in(&mut silent));
    assert!(Messages::of(silent.ready()).has_text(b'E', "53300"));
    first.stop();
    assert!(come_in(&mut place.machine_at(&full)), "the place of one that has ended");
}
