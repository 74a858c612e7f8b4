//! Keys that are tested late (DEFERRABLE), with sessions beside each other and a process that is killed: two rows with
//! one key are never committed.
//!
//! Planted once: a test without the lock of the key, and constraints that are not tested, were found here. That the
//! rows of a snapshot are not enough is found by `keys_that_are_tested_late` of the crate `serve`.

use std::path::Path;

use lodestone_engine::DatabaseOptions;
use lodestone_pmem::{DomainChoice, PoolOptions};
use lodestone_sql::{Connection, Database};

/// Transactions of each session in one life. `LODESTONE_LATE_KEYS_TRANSACTIONS` has another number, and
/// `LODESTONE_LATE_KEYS_SEED` another seed.
const TRANSACTIONS: u64 = 100;
const SESSIONS: u64 = 3;

fn open(folder: &Path) -> Database {
    let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
    let options = DatabaseOptions { pool, log_bytes: 4 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
    let engine = lodestone_engine::Database::open_with(folder.join("a.pool"), &options).expect("open");
    Database::new(engine, "serializable").expect("catalog")
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }
}

fn cell(connection: &mut Connection, statement: &str) -> String {
    let answers = connection.run(statement).unwrap_or_else(|error| panic!("{statement}: {error:?}"));
    answers[0].rows.first().and_then(|row| row[0].clone()).unwrap_or_default()
}

fn change(random: &mut Random) -> String {
    let table = ["now", "later"][usize::from(random.below(2) == 0)];
    let (one, two) = (random.below(6), random.below(6));
    match random.below(8) {
        0..3 => format!("insert into {table} values ({one}, {two})"),
        3 => format!("insert into {table} values ({one}, {two}), ({two}, {one})"),
        4 => format!("update {table} set id = {one} where id = {two}"),
        5 => format!("update {table} set id = 5 - id"),
        6 => format!("update {table} set v = v + 1 where id = {one}"),
        _ => format!("delete from {table} where id in ({one}, {two})"),
    }
}

/// One transaction, which may fail at any statement.
fn transact(connection: &mut Connection, random: &mut Random) -> Result<(), (String, String)> {
    let level = ["read committed", "repeatable read", "serializable"][usize::try_from(random.below(3)).unwrap_or(0)];
    let mut run = |statement: &str| {
        connection.run(statement).map(drop).map_err(|error| (error.state().code().to_owned(), statement.to_owned()))
    };
    if random.below(4) == 0 {
        return run(&change(random));
    }
    run(&format!("begin isolation level {level}"))?;
    for _ in 0..1 + random.below(4) {
        match random.below(8) {
            0 => run("savepoint s")?,
            1 => match run("rollback to s") {
                // There is none: the transaction has failed.
                Err((state, _)) if state == "3B001" => return run("rollback"),
                outcome => outcome?,
            },
            2 => run("set constraints all immediate")?,
            3 => run("set constraints all deferred")?,
            _ => run(&change(random))?,
        }
        std::thread::yield_now();
    }
    run(if random.below(6) == 0 { "rollback" } else { "commit" })
}

fn refuse_duplicates(connection: &mut Connection) {
    for table in ["now", "later"] {
        // Rows are counted by a scan of the table.
        let found = cell(connection, &format!("select string_agg(id || ' ' || v, ', ') from {table}"));
        let count = cell(connection, &format!("select count(*) - count(distinct id) from {table}"));
        assert_eq!(count, "0", "{table}: {found}");
        for id in 0..6 {
            let count = cell(connection, &format!("select count(*) from {table} where id = {id}"));
            assert!(["0", "1"].contains(&&*count), "{table}, {id}: {count} by the index, {found}");
        }
    }
}

#[test]
fn sessions_never_commit_two_rows_with_one_key() {
    let folder = tempfile::tempdir().expect("folder");
    let seed = variable("LODESTONE_LATE_KEYS_SEED").unwrap_or(1);
    let count = variable("LODESTONE_LATE_KEYS_TRANSACTIONS").unwrap_or(TRANSACTIONS);
    for life in 0..2 {
        let database = open(folder.path());
        let mut connection = database.connect("app", "shop");
        if life == 0 {
            let make = "create table now (id int primary key deferrable, v int); create table later (id int unique \
                        deferrable initially deferred, v int)";
            connection.run(make).expect("tables");
        }
        refuse_duplicates(&mut connection);
        let committed = std::thread::scope(|scope| {
            let sessions = (0..SESSIONS).map(|session| {
                let database = &database;
                scope.spawn(move || {
                    let mut connection = database.connect("app", "shop");
                    let mut random = Random(0xD1B5_4A32_D192_ED03 ^ (seed << 40) ^ (life << 20) ^ (session << 10));
                    let mut committed = 0_u64;
                    for _ in 0..count {
                        match transact(&mut connection, &mut random) {
                            Ok(()) => committed += 1,
                            Err((state, text)) => {
                                assert!(["23505", "23502", "40001", "40P01"].contains(&&*state), "{state}: {text}");
                                drop(connection.run("rollback"));
                            }
                        }
                    }
                    committed
                })
            });
            let sessions: Vec<_> = sessions.collect();
            sessions.into_iter().map(|session| session.join().expect("no panic")).sum::<u64>()
        });
        assert!(committed > SESSIONS * count / 10, "only {committed} were committed");
        refuse_duplicates(&mut connection);
        // Duplicates that wait for their test when the process is killed.
        connection.run("begin; insert into later values (1, 1), (1, 2), (2, 1), (2, 2)").expect("rows");
        database.abandon();
    }
    let database = open(folder.path());
    let mut connection = database.connect("app", "shop");
    refuse_duplicates(&mut connection);
    connection.run("delete from now; insert into now values (1, 1), (2, 2)").expect("rows");
    connection.run("update now set id = 3 - id").expect("tested at the end of the statement");
    let error = connection.run("insert into later values (9, 1), (9, 2)").expect_err("tested at the commit");
    assert_eq!(error.state().code(), "23505");
}

/// Ends the threads of a test, also if the test fails.
struct Stop<'s>(&'s std::sync::atomic::AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

/// While rows come and go, which are sometimes twice there, a key is added and dropped.
#[test]
fn a_late_key_that_is_added_beside_others_holds_for_them() {
    let folder = tempfile::tempdir().expect("folder");
    let database = open(folder.path());
    let mut connection = database.connect("app", "shop");
    connection.run("create table t (id int, v int)").expect("a table");
    let stop = std::sync::atomic::AtomicBool::new(false);
    let added = std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        for session in 0..2 {
            let (database, stop) = (&database, &stop);
            scope.spawn(move || {
                let mut connection = database.connect("app", "shop");
                let mut random = Random(0xD1B5_4A32_D192_ED03 ^ (session << 10));
                let levels = ["read committed", "repeatable read", "serializable"];
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let level = levels[usize::try_from(random.below(3)).unwrap_or(0)];
                    let id = random.below(40);
                    let change = match random.below(5) {
                        0 | 1 => format!("insert into t values ({id}, 1)"),
                        _ => format!("delete from t where id = {id}"),
                    };
                    let text = format!("begin isolation level {level}; select 1; {change}; commit");
                    if let Err(error) = connection.run(&text) {
                        let state = error.state().code();
                        // 55000: a snapshot from before the index is asked for rows by it.
                        assert!(["23505", "40001", "40P01", "55000"].contains(&state), "{state}: {text}");
                        drop(connection.run("rollback"));
                    }
                }
            });
        }
        let mut added = 0;
        for round in 0..30 {
            let key = match round % 3 {
                0 => "add constraint k unique (id) deferrable initially deferred",
                1 => "add constraint k primary key (id) deferrable",
                _ => "add constraint k unique (id) deferrable",
            };
            match connection.run(&format!("alter table t {key}")) {
                Ok(_) => {
                    added += 1;
                    for _ in 0..3 {
                        assert_eq!(cell(&mut connection, "select count(*) - count(distinct id) from t"), "0");
                        std::thread::yield_now();
                    }
                    while let Err(error) = connection.run("alter table t drop constraint k") {
                        assert_eq!(error.state().code(), "40001");
                    }
                }
                Err(error) => assert!(["23505", "40001"].contains(&error.state().code()), "{error:?}"),
            }
        }
        added
    });
    assert!(added > 0, "no key was added");
}

#[test]
fn rows_of_copy_are_tested() {
    let folder = tempfile::tempdir().expect("folder");
    let database = open(folder.path());
    let mut connection = database.connect("app", "shop");
    connection
        .run("create table now (id int primary key deferrable); create table later (id int unique deferrable)")
        .expect("tables");
    let mut copy = |table: &str, lines: &str, is_alone: bool| {
        let mut query = connection.simple(&format!("copy {table} from stdin")).expect("copy");
        connection.next(&mut query, &mut lodestone_sql::Answer::default()).expect("it begins");
        let rows = connection.copy_data(lines.as_bytes());
        let outcome = rows.and_then(|()| connection.copy_done(is_alone));
        outcome.map_err(|error| error.state().code().to_owned())
    };
    for table in ["now", "later"] {
        // More rows than wait in memory, into a table without rows.
        let lines: String = (0..3_000).map(|id| format!("{}\n", id % 2_999)).collect();
        assert_eq!(copy(table, &lines, true), Err("23505".into()), "{table}");
        assert_eq!(copy(table, "1\n2\n", true), Ok("COPY 2".into()), "{table}");
        assert_eq!(copy(table, "3\n2\n", true), Err("23505".into()), "{table}");
    }
    let mut other = database.connect("app", "shop");
    other.run("set constraints all deferred; begin; set constraints all deferred").expect("a transaction");
    other.run("insert into later values (7)").expect("a row");
    assert_eq!(copy("later", "7\n", true), Err("40001".into()), "another transaction has the key");
    assert_eq!(copy("later", "8\n", true), Ok("COPY 1".into()));
    other.run("commit").expect("one row");
    assert_eq!(cell(&mut other, "select string_agg(id::text, ' ' order by id) from later"), "1 2 7 8");
}
