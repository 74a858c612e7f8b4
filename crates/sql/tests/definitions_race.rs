//! Sessions that define, change and drop the same objects at the same moment: no object may name one that is gone.

use std::path::Path;

use lodestone_engine::{DatabaseOptions, Index};
use lodestone_pmem::{DomainChoice, PoolOptions};
use lodestone_sql::{Connection, Database};
use lodestone_sql_types::SqlState;

/// Statements of each session. `LODESTONE_RACE_STATEMENTS` has another number.
const STATEMENTS: u64 = 600;
const SESSIONS: u64 = 3;

/// Objects, and others that need them. A part of the statements is refused each time.
const SHARED: [&str; 33] = [
    "create type mood as enum ('low', 'high')",
    "create type mood as enum ('low', 'high')",
    "create table moods (k serial primary key, m mood)",
    "create table moods (k serial primary key, m mood)",
    "create table moods (k serial primary key, v positive)",
    "alter table moods add column n mood",
    "alter table moods drop column n",
    "drop type mood",
    "drop type mood cascade",
    "drop table moods",
    "drop table moods cascade",
    "create domain positive as int check (value > 0)",
    "alter domain positive add check (value < 10)",
    "drop domain positive cascade",
    "create view seen as select k from moods",
    "create view again as select k from seen",
    "drop view seen",
    "drop view again",
    "create table heirs (x int) inherits (moods)",
    "drop table heirs",
    "create table users (k int references moods (k))",
    "drop table users",
    "create schema apart",
    "create table apart.t (k int primary key)",
    "create view apart.v as select 1",
    "drop schema apart",
    "drop schema apart cascade",
    "alter table moods rename to others",
    "alter table others rename to moods",
    "alter table moods set schema apart",
    "alter table apart.moods set schema public",
    "alter view seen rename to again",
    "alter schema apart rename to aside",
];

/// Queries that must have no rows.
const NONE: [(&str, &str); 5] = [
    (
        "columns of a type that is gone",
        "select attrelid::text || '.' || attname from pg_attribute a where attnum > 0 and not exists (select from \
         pg_type t where t.oid = a.atttypid)",
    ),
    (
        "keys to a table that is gone",
        "select conname from pg_constraint where contype = 'f' and confrelid not in (select oid from pg_class)",
    ),
    (
        "tables below one that is gone",
        "select inhrelid from pg_inherits where inhparent not in (select oid from pg_class)",
    ),
    (
        "relations of a schema that is gone",
        "select relname from pg_class where relnamespace not in (select oid from pg_namespace)",
    ),
    ("relations with a point in their name", "select relname from pg_class where relname like '%.%'"),
];

fn open(folder: &Path) -> Database {
    let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
    let options = DatabaseOptions { pool, log_bytes: 2 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
    let engine = lodestone_engine::Database::open_with(folder.join("a.pool"), &options).expect("open");
    Database::new(engine, "read committed").expect("every object of the catalog is whole")
}

fn texts(connection: &mut Connection, query: &str) -> Vec<Option<String>> {
    let answers = connection.run(query).expect(query);
    answers[0].rows.iter().map(|row| row[0].clone()).collect()
}

fn judge(connection: &mut Connection) {
    for (what, query) in NONE {
        assert_eq!(texts(connection, query), [], "{what}");
    }
    let relations = "select nspname || '.' || relname from pg_class c join pg_namespace n on n.oid = relnamespace \
                     where relkind in ('r', 'v') and nspname not in ('pg_catalog', 'information_schema')";
    for name in texts(connection, relations).into_iter().flatten() {
        if let Err(error) = connection.run(&format!("select * from {name}")) {
            panic!("{name} cannot be read: {error:?}");
        }
    }
}

/// Statements of a session, some of them in pairs.
fn work(connection: &mut Connection, random: &mut Random) {
    for _ in 0..50 {
        let mut statement = || SHARED[random.below(SHARED.len())];
        let (first, second) = (statement(), statement());
        let text = match random.below(4) {
            0 => format!("begin; {first}; {second}; commit"),
            _ => first.to_owned(),
        };
        if let Err(error) = connection.run(&text) {
            assert!(!matches!(error.state(), SqlState::DATA_CORRUPTED | SqlState::INTERNAL_ERROR), "{text}: {error:?}");
            drop(connection.run("rollback"));
        }
    }
}

/// Xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).expect("64 bits") % limit
    }
}

#[test]
fn no_object_names_one_that_is_gone() {
    let folder = tempfile::tempdir().expect("folder");
    let count =
        std::env::var("LODESTONE_RACE_STATEMENTS").ok().and_then(|text| text.parse().ok()).unwrap_or(STATEMENTS);
    let database = open(folder.path());
    let session = |number: u64| (database.connect("root", "shop"), Random(88_172_645_463_325_252 ^ (number << 40)));
    let mut sessions: Vec<_> = (0..SESSIONS).map(session).collect();
    for _ in 0..count / 50 {
        std::thread::scope(|scope| {
            for (connection, random) in &mut sessions {
                scope.spawn(|| work(connection, random));
            }
        });
        judge(&mut sessions[0].0);
    }
    drop((sessions, database));
    judge(&mut open(folder.path()).connect("root", "shop"));
}

#[test]
fn views_of_views_go_with_their_table() {
    let folder = tempfile::tempdir().expect("folder");
    let mut connection = open(folder.path()).connect("root", "shop");
    let make = "create table base (x int); create view one as select x from base; \
                create view two as select x from one; create view three as select one.x from one, two";
    for drop in ["drop table base cascade", "drop view one cascade; drop table base"] {
        connection.run(make).expect("views");
        connection.run(drop).expect(drop);
        assert_eq!(
            texts(&mut connection, "select relname from pg_class where relname in ('two', 'three')"),
            [],
            "{drop}"
        );
    }
}

/// One of them finds that the other one builds it, or has built it. It must not drop that one as its own.
#[test]
fn sessions_that_make_the_same_index_at_the_same_moment_leave_one() {
    for _ in 0..8 {
        let folder = tempfile::tempdir().expect("folder");
        let database = open(folder.path());
        let mut connection = database.connect("app", "shop");
        connection.run("create table t (a int, b int)").expect("a table");
        connection.run("insert into t select g, 1 from generate_series(1, 2000) g").expect("rows");
        let made = std::thread::scope(|scope| {
            let sessions = [0, 1, 2]
                .map(|_| scope.spawn(|| database.connect("app", "shop").run("create unique index i on t (a)").is_ok()));
            sessions.into_iter().map(|session| session.join().expect("no panic")).filter(|is| *is).count()
        });
        assert_eq!(made, 1);
        let error = connection.run("insert into t values (1, 2)").expect_err("the index is there");
        assert_eq!(error.state(), SqlState::UNIQUE_VIOLATION);
        connection.run("drop index i").expect("it has its name");
    }
}

#[test]
fn sessions_that_give_indexes_the_same_name_at_the_same_moment_leave_one_with_it() {
    let folder = tempfile::tempdir().expect("folder");
    let database = open(folder.path());
    let mut connection = database.connect("app", "shop");
    for round in 0..12 {
        let names = ["t", "u", "w"];
        for name in names {
            let text =
                format!("drop table if exists {name}; create table {name} (a int, constraint {name}_i unique (a))");
            connection.run(&text).expect("a table");
        }
        let rename = |name: &str| {
            let index = format!("alter index {name}_i rename to one");
            let constraint = format!("alter table {name} rename constraint {name}_i to one");
            let statement = if round % 2 == 0 { index } else { constraint };
            database.connect("app", "shop").run(&statement).map(|_| ()).map_err(|error| error.state())
        };
        let outcomes: Vec<_> = std::thread::scope(|scope| {
            let rename = &rename;
            let sessions = names.map(|name| scope.spawn(move || rename(name)));
            sessions.into_iter().map(|session| session.join().expect("no panic")).collect()
        });
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1, "{outcomes:?}");
        let refused = outcomes.into_iter().filter_map(Result::err);
        assert!(refused.into_iter().all(|state| state == SqlState::DUPLICATE_TABLE));
        let found =
            texts(&mut connection, "select count(*) from pg_class where relname in ('t_i', 'u_i', 'w_i', 'one')");
        assert_eq!(found, [Some("3".into())]);
    }
}

#[test]
fn sessions_that_give_relations_the_same_name_at_the_same_moment_leave_one_with_it() {
    let folder = tempfile::tempdir().expect("folder");
    let database = open(folder.path());
    let mut connection = database.connect("app", "shop");
    connection.run("create schema s1; create schema s2; create schema s3").expect("schemas");
    for round in 0..12 {
        let make = match round % 3 {
            0 => "create table t1 (a int); create view t2 as select 1 as a; create sequence t3",
            1 => "create table s1.one (a int); create view s2.one as select 1 as a; create sequence s3.one",
            _ => "create schema t1; create schema t2; create schema t3",
        };
        connection.run(make).expect(make);
        let change = |number: usize| {
            let statement = match (round % 3, number) {
                (0, 1) => "alter table t1 rename to one".to_owned(),
                (0, 2) => "alter view t2 rename to one".to_owned(),
                (0, _) => "alter sequence t3 rename to one".to_owned(),
                (1, _) => format!("alter table s{number}.one set schema public"),
                _ => format!("alter schema t{number} rename to one"),
            };
            database.connect("app", "shop").run(&statement).map(|_| ()).map_err(|error| error.state())
        };
        let outcomes: Vec<_> = std::thread::scope(|scope| {
            let change = &change;
            let sessions = [1, 2, 3].map(|number| scope.spawn(move || change(number)));
            sessions.into_iter().map(|session| session.join().expect("no panic")).collect()
        });
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1, "{outcomes:?}");
        let taken = if round % 3 == 2 { SqlState::DUPLICATE_SCHEMA } else { SqlState::DUPLICATE_TABLE };
        assert!(outcomes.into_iter().filter_map(Result::err).all(|state| state == taken));
        let count = match round % 3 {
            2 => "select count(*) from pg_namespace where nspname in ('one', 't1', 't2', 't3')",
            _ => "select count(*) from pg_class where relname in ('one', 't1', 't2', 't3')",
        };
        assert_eq!(texts(&mut connection, count), [Some("3".into())]);
        for kind in ["table", "view", "sequence"] {
            for name in ["one", "t1", "t2", "t3", "s1.one", "s2.one", "s3.one"] {
                drop(connection.run(&format!("drop {kind} if exists {name}")));
            }
        }
        connection.run("drop schema if exists one, t1, t2, t3").expect("empty schemas");
    }
}

/// A view that names a table, and a table whose default takes numbers of a sequence, change with the names of these.
#[test]
fn texts_have_new_names_after_reopening() {
    let folder = tempfile::tempdir().expect("folder");
    let mut connection = open(folder.path()).connect("root", "shop");
    let make = "create schema s; create table s.t (k serial primary key, a int check (t.a > 0)); \
                create view v as select a, s.t.k from s.t; insert into s.t (a) values (1); \
                alter table s.t rename to u; alter sequence s.t_k_seq rename to numbers; alter schema s rename to r; \
                alter table r.u set schema public";
    connection.run(make).expect(make);
    drop(connection);
    let mut connection = open(folder.path()).connect("root", "shop");
    assert_eq!(texts(&mut connection, "insert into u (a) values (2) returning k > 1"), [Some("t".into())]);
    assert_eq!(texts(&mut connection, "select count(*) from v"), [Some("2".into())]);
    let error = connection.run("insert into u (a) values (0)").expect_err("the condition is there");
    assert_eq!(error.state(), SqlState::CHECK_VIOLATION);
}

/// A definition that fails because the library has such an index leaves that one.
#[test]
fn an_index_of_the_library_outlives_a_definition_of_its_name() {
    let folder = tempfile::tempdir().expect("folder");
    let database = open(folder.path());
    let mut connection = database.connect("app", "shop");
    connection.run("create table t (a int)").expect("a table");
    for _ in 0..2 {
        _ = database.engine().create_index("t", &Index::unique("i", ["a"]));
        let error = connection.run("create index i on t (a)").expect_err("it is there");
        assert_eq!(error.state(), SqlState::DUPLICATE_TABLE, "{error:?}");
        assert_eq!(database.engine().table("t").expect("the table").schema().indexes().len(), 1);
    }
}
