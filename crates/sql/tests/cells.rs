//! Tables with rows in cells under the statements of SQL: random ones beside the same on pages, and threads.

use std::path::Path;

use lodestone_engine::DatabaseOptions;
use lodestone_pmem::{DomainChoice, PoolOptions};
use lodestone_sql::{Connection, Database};
use lodestone_sql_types::SqlState;

/// Statements of the random program. `LODESTONE_CELLS_STATEMENTS` has another number, `LODESTONE_CELLS_SEED` a seed.
const STATEMENTS: u64 = 400;

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

fn open(folder: &Path) -> Database {
    let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
    let options = DatabaseOptions { pool, log_bytes: 2 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
    let engine = lodestone_engine::Database::open_with(folder.join("a.pool"), &options).expect("open");
    Database::new(engine, "read committed").expect("catalog")
}

fn session(database: &Database, placement: &str) -> Connection {
    let mut connection = database.connect("root", "shop");
    let setting = format!("set lodestone.default_placement = {placement}");
    connection.run(&setting).expect("a setting");
    connection
}

/// The rows of an answer, or the code of its error.
fn answer(connection: &mut Connection, statement: &str) -> Result<Vec<Vec<Option<String>>>, String> {
    match connection.run(statement) {
        Ok(answers) => Ok(answers.into_iter().flat_map(|answer| answer.rows).collect()),
        Err(error) => Err(format!("{}: {}", error.state().code(), error.message())),
    }
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

    fn one<'o>(&mut self, of: &[&'o str]) -> &'o str {
        of[usize::try_from(self.below(u64::try_from(of.len()).expect("few"))).expect("few")]
    }
}

/// Tables with keys, an index, conditions, a foreign key, a computed column and one without a key.
const TABLES: &str = "create table p (k int primary key, u int unique, v text, n int not null default 0 check (n < \
                      1000), g int generated always as (k * 2) stored); create index on p (n); create table c (k int, \
                      p int references p (k) on update cascade on delete set null deferrable, v text, primary key (k, \
                      v)); create table r (a int, b text); insert into p select g, g, 'v' || g, g from \
                      generate_series(1, 20) g; insert into c select g, g, 'c' from generate_series(1, 10) g";

/// All rows of all tables.
const ALL: &str = "select * from p order by k; select * from c order by k, v; select a, b, count(*) from r group by a, \
                   b order by a, b; select k from p where n > 5 order by n, k; select k from p where u = 7";

/// A random statement.
fn statement(random: &mut Random, depth: &mut u64) -> String {
    let (k, j, n) = (random.below(30), random.below(30), random.below(1_010));
    // Texts whose length needs other cells, up to one that is kept in pieces.
    let text =
        format!("repeat('x', {})", [1, 5, 40, 300, 1_900, 9_000][usize::try_from(random.below(6)).expect("few")]);
    match random.below(34) {
        0 | 1 => format!("insert into p (k, u, v, n) values ({k}, {j}, {text}, {n})"),
        2 => format!("insert into p (k, u) values ({k}, {j}) on conflict do nothing"),
        3 | 4 => format!(
            "insert into p (k, u, n) values ({k}, {j}, 1) on conflict (k) do update set n = p.n + 1, v = {text} \
             returning k, n"
        ),
        5 => format!("insert into p (k, u, n) values ({k}, {j}, 1) on conflict (u) do update set u = null returning k"),
        6..=8 => format!("update p set n = n + 1 where k = {k} returning *"),
        9 => format!("update p set v = {text} where k = {k}"),
        10 => format!("update p set n = n + {j} where k between {k} and {}", k + 4),
        11 => format!("update p set k = {j} where k = {k}"),
        12 => "update p set k = k + 1 where k > 5".into(),
        13 => format!("update p set u = {j} where k = {k}"),
        14 | 15 => format!("delete from p where k = {k} returning v"),
        16 => format!("delete from p where n % 7 = {}", k % 7),
        17 | 18 => format!("insert into c values ({k}, {j}, {text})"),
        19 => format!("update c set p = {j} where k = {k}"),
        20 => format!("delete from c where k = {k}"),
        21 => format!("insert into r select {k}, {text} from generate_series(1, 3)"),
        22 => format!("update r set a = {j}, b = {text} where a = {k}"),
        23 => format!("delete from r where a = {k}"),
        24 => format!("select * from p where k = {k} for update"),
        25 => format!("select * from c where p = {k} for key share"),
        26 => format!("with gone as (delete from p where k = {k} returning *) insert into r select k, v from gone"),
        27 => {
            *depth += 1;
            format!("savepoint s{depth}")
        }
        28 | 29 if *depth > 0 => {
            let number = 1 + random.below(*depth);
            format!("rollback to s{number}")
        }
        30 if *depth > 0 => {
            let number = 1 + random.below(*depth);
            *depth = number - 1;
            format!("release s{number}")
        }
        _ => "select count(*), sum(n) from p".into(),
    }
}

const DEFINITIONS: [&str; 14] = [
    "alter table p add column x int default 7",
    "alter table p add column x text not null default repeat('d', 1200)",
    "alter table p drop column x",
    "alter table p alter column n type bigint",
    "alter table p alter column n type int",
    "create index p_v on p (v)",
    "drop index p_v",
    "alter table r add primary key (a, b)",
    "alter table r drop constraint r_pkey",
    "truncate r",
    "truncate c",
    "alter table c alter column p drop not null, alter column v type varchar(10000)",
    "create table again as select * from p; drop table p cascade; drop table again",
    "drop table if exists t; create table t (k int primary key, v text); insert into t select k, v from p; drop table t",
];

/// The same statements on pages and in cells have the same answers, also after kills.
#[test]
fn cells_answer_as_pages_do() {
    let folders = [tempfile::tempdir().expect("folder"), tempfile::tempdir().expect("folder")];
    let placements = ["paged", "dual"];
    let seed = variable("LODESTONE_CELLS_SEED").unwrap_or(1);
    let mut random = Random(0x9E37_79B9_7F4A_7C15 ^ (seed << 32));
    let mut databases: Vec<Database> = folders.iter().map(|folder| open(folder.path())).collect();
    let connect = |databases: &[Database]| -> Vec<Connection> {
        databases.iter().zip(placements).map(|(database, placement)| session(database, placement)).collect()
    };
    let mut sessions = connect(&databases);
    let both = |sessions: &mut [Connection], text: &str| {
        let found: Vec<_> = sessions.iter_mut().map(|session| answer(session, text)).collect();
        assert_eq!(found[0], found[1], "{text}, seed {seed}");
        found.into_iter().next().expect("two answers")
    };
    both(&mut sessions, TABLES).expect("tables");
    let mut count = 0;
    while count < variable("LODESTONE_CELLS_STATEMENTS").unwrap_or(STATEMENTS) {
        let mut depth = 0;
        if random.below(12) == 0 {
            let definition = DEFINITIONS[usize::try_from(random.below(14)).expect("few")];
            drop(both(&mut sessions, definition));
            drop(both(&mut sessions, "rollback"));
            if definition.contains("drop table p cascade") {
                both(&mut sessions, "drop table c, r").expect("they are there");
                both(&mut sessions, TABLES).expect("tables");
            }
        }
        let is_block = random.below(3) > 0;
        if is_block {
            let level = random.one(&["", "isolation level repeatable read", "isolation level serializable"]);
            both(&mut sessions, &format!("begin {level}")).expect("a block");
        }
        for _ in 0..1 + random.below(8) {
            count += 1;
            let text = statement(&mut random, &mut depth);
            if both(&mut sessions, &text).is_err() && is_block {
                let to = 1 + random.below(depth + 1);
                if depth == 0 || both(&mut sessions, &format!("rollback to s{}", to.min(depth))).is_err() {
                    break;
                }
            }
        }
        match random.below(20) {
            0 => {
                // As a kill in the middle of it.
                databases.iter().for_each(Database::abandon);
                drop(std::mem::take(&mut sessions));
                databases.clear();
                databases = folders.iter().map(|folder| open(folder.path())).collect();
                sessions = connect(&databases);
            }
            1 => databases.iter().for_each(|database| {
                database.engine().checkpoint().expect("a checkpoint");
            }),
            2 | 3 if is_block => drop(both(&mut sessions, "rollback")),
            _ if is_block => drop(both(&mut sessions, "commit")),
            _ => {}
        }
        drop(both(&mut sessions, "rollback"));
        both(&mut sessions, ALL).expect("all rows");
    }
    drop(sessions);
    for (database, folder) in databases.drain(..).zip(&folders) {
        drop(database);
        let database = open(folder.path());
        let report = database.engine().store().check(&mut |_| {});
        assert!(report.is_clean(), "{:?}", report.findings);
    }
}

/// One transaction of a writer: an amount goes from one row to another, which may be new, or get another key or size.
fn transfer(connection: &mut Connection, random: &mut Random) -> Result<(), (SqlState, String)> {
    let (from, to, amount) = (random.below(12), random.below(12), random.below(5));
    let text = match random.below(6) {
        0 => format!(
            "begin; select * from bank where k in ({from}, {to}) for update; update bank set n = n - {amount} where k = \
             {from}; savepoint a; update bank set n = n + 99 where k = {to}; rollback to a; update bank set n = n + \
             {amount} where k = {to}; insert into book (f, t) select {from}, {to} where {from} <> {to}"
        ),
        1 => format!(
            "begin; update bank set n = n - {amount} where k = {from}; insert into bank (k, n, v) values ({to}, \
             {amount}, 'new') on conflict (k) do update set n = bank.n + excluded.n, v = repeat('y', {})",
            random.below(600)
        ),
        2 => format!(
            "begin; update bank set k = k + 100 where k = {from}; update bank set k = {from} where k = {from} + 100"
        ),
        3 => format!(
            "begin; delete from book where f = {from}; update bank set n = n - 1 where k = {from}; update bank set n = \
             n + 1 where k = {to}; rollback to nothing"
        ),
        4 => format!(
            "begin isolation level serializable; update bank set n = n + {amount} where k = {to}; update bank set n = n \
             - {amount} where k = {from}"
        ),
        _ => format!("begin; update bank set v = repeat('z', {}) where k = {to}", random.below(3_000)),
    };
    let outcome = connection.run(&format!("{text}; commit"));
    outcome.map(drop).map_err(|error| {
        drop(connection.run("rollback"));
        (error.state(), format!("{text}: {}", error.message()))
    })
}

/// The sum of all amounts stays, as each transfer happens as a whole or not at all.
#[test]
fn threads_beside_definitions_lose_nothing() {
    let folder = tempfile::tempdir().expect("folder");
    let seed = variable("LODESTONE_CELLS_SEED").unwrap_or(1);
    for life in 0..2 {
        let database = open(folder.path());
        let mut connection = session(&database, "dual");
        if life == 0 {
            connection
                .run(
                    "create table bank (k int primary key, n int not null, v text); create table book (id serial \
                     primary key, f int references bank (k) on update cascade, t int references bank (k) on update \
                     cascade); insert into bank select g, 100, 'v' from generate_series(0, 11) g",
                )
                .expect("tables");
        }
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for writer in 0..3 {
                let (database, stop) = (&database, &stop);
                scope.spawn(move || {
                    let mut connection = session(database, "dual");
                    let mut random = Random(0xD1B5_4A32_D192_ED03 ^ (seed << 40) ^ (life << 20) ^ writer);
                    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                        if let Err((state, text)) = transfer(&mut connection, &mut random) {
                            let known = ["40001", "40P01", "23503", "3B001", "42703", "0A000", "25P02"];
                            assert!(known.contains(&state.code()), "{}: {text}", state.code());
                        }
                    }
                });
            }
            for definition in [
                "alter table bank add column w int default 3",
                "create index bank_n on bank (n)",
                "alter table bank alter column n type bigint",
                "alter table bank set (placement = memory)",
                "checkpoint",
                "create unique index bank_u on bank (k, n)",
                "alter table bank set (placement = dual)",
                "alter table bank drop column w",
                "drop index bank_n",
                "alter table book set (placement = paged)",
                "drop index bank_u",
                "alter table bank alter column n type int",
                "checkpoint",
                "alter table book set (placement = dual)",
            ] {
                std::thread::sleep(std::time::Duration::from_millis(10));
                for attempt in 0.. {
                    match connection.run(definition) {
                        Ok(_) => break,
                        Err(error) => {
                            assert!(attempt < 500 && error.state().code() == "40001", "{definition}: {error:?}");
                        }
                    }
                }
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        let rows = |connection: &mut Connection| {
            answer(
                connection,
                "select count(*), sum(n) from bank; select * from bank order by k; select * from book \
                                order by id",
            )
            .expect("rows")
        };
        let before = rows(&mut connection);
        assert_eq!(before[0], [Some("12".into()), Some("1200".into())]);
        // A kill, or an orderly end.
        if life % 2 == 0 {
            database.abandon();
        }
        drop((connection, database));
        let database = open(folder.path());
        assert_eq!(rows(&mut session(&database, "dual")), before);
        let report = database.engine().store().check(&mut |_| {});
        assert!(report.is_clean(), "{:?}", report.findings);
    }
}

/// A transaction that is too large, or meets a full pool, leaves its rows and its cells as they were.
#[test]
fn a_transaction_that_has_no_room_leaves_cells_as_they_were() {
    let folder = tempfile::tempdir().expect("folder");
    let pool = PoolOptions {
        domain: DomainChoice::Process,
        size_bytes: 6 << 20,
        journal_bytes: 128 << 10,
        ..PoolOptions::default()
    };
    let options = DatabaseOptions { pool, log_bytes: 1 << 20, segment_bytes: 1 << 15, ..DatabaseOptions::default() };
    let open = || {
        let engine = lodestone_engine::Database::open_with(folder.path().join("a.pool"), &options).expect("open");
        Database::new(engine, "read committed").expect("catalog")
    };
    let database = open();
    let mut connection = session(&database, "dual");
    let mut run = |text: &str| connection.run(text).map(drop).map_err(|error| error.state().code().to_owned());
    run("create table t (k int primary key, n int, v text); create index on t (n)").expect("a table");
    run("insert into t select g, g % 10, 'first' from generate_series(1, 500) g").expect("rows");
    let used = || database.engine().store().heap().usage().bytes_used;
    let before = used();
    // It takes no cells: those would stay in the pool.
    let large = "insert into t select g, 1, 'large' from generate_series(501, 15000) g";
    assert_eq!(run(large), Err("54000".into()));
    assert!(used() < before + (1 << 19), "{} bytes, and {before} before", used());
    // Until there is no room for more.
    let mut count = 500_i32;
    let refused = loop {
        let (from, to) = (count + 1, count + 100);
        match run(&format!("insert into t select g, 2, repeat('x', 900) from generate_series({from}, {to}) g")) {
            Ok(()) => count = to,
            Err(state) => break state,
        }
    };
    assert_eq!(refused, "53100");
    // A record that needs other segments has room.
    run("delete from t where k > 900 and k % 2 = 0").expect("a deletion of many rows");
    let gone = (901..=count).filter(|k| k % 2 == 0).count();
    // The logs have room for small transactions, and the cells of rows that go are used again.
    for turn in 0..20 {
        run("update t set n = n + 1 where k between 3 and 6; update t set n = n - 1 where k between 3 and 6")
            .unwrap_or_else(|state| panic!("an update, {state}, turn {turn}"));
        let (from, to) = (501 + 20 * turn, 520 + 20 * turn);
        run(&format!(
            "delete from t where k between {from} and {to}; insert into t values ({from}, 0, repeat('y', 890))"
        ))
        .unwrap_or_else(|state| panic!("a deletion, {state}, turn {turn}"));
    }
    let count = count - 500 - 20 * 19 - i32::try_from(gone).expect("few");
    let query = "select count(*), sum(n) filter (where k <= 500), min(v), count(*) filter (where v = 'large') from t";
    let expected = [Some((500 + count).to_string()), Some("2250".into()), Some("first".into()), Some("0".into())];
    assert_eq!(answer(&mut connection, query).expect("a row"), std::slice::from_ref(&expected));
    database.abandon();
    drop((connection, database));
    let database = open();
    assert_eq!(answer(&mut session(&database, "dual"), query).expect("a row"), [expected]);
    let report = database.engine().store().check(&mut |_| {});
    assert!(report.is_clean(), "{:?}", report.findings);
}
