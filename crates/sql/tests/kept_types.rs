//! Types of the database where they are kept: hostile rows, two sessions at once, and a process that is killed.

use std::path::Path;

use lodestone_engine::{DatabaseOptions, Row, Value};
use lodestone_pmem::{DomainChoice, PoolOptions};
use lodestone_sql::{Connection, Database};
use lodestone_sql_types::{Result, SqlState};

/// The items of `lodestone_sql` that this page writes itself.
const TYPE: u64 = 1 << 34;
const ENUM: &str = "4:enum";

fn engine(folder: &Path) -> lodestone_engine::Database {
    let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
    let options = DatabaseOptions { pool, log_bytes: 1 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
    lodestone_engine::Database::open_with(folder.join("a.pool"), &options).expect("open")
}

fn open(folder: &Path) -> Result<Database> {
    Database::new(engine(folder), "read committed")
}

fn state(connection: &mut Connection, statement: &str) -> Option<SqlState> {
    connection.run(statement).err().map(|error| error.state())
}

fn value(connection: &mut Connection, query: &str) -> String {
    let answers = connection.run(query).expect(query);
    answers[0].rows[0][0].clone().unwrap_or_else(|| "NULL".into())
}

fn row(relation: &str, item: u64, name: &str, numbers: (i64, i64), note: Option<&str>) -> Row {
    let note = note.map_or(Value::Null, Value::from);
    Row(vec![relation.into(), item.into(), name.into(), numbers.0.into(), numbers.1.into(), note])
}

/// A database with one table, whose catalog has these rows as well.
fn hostile(folder: &Path, rows: &[Row]) -> Result<Database> {
    let first = open(folder).expect("a catalog").connect("root", "shop").run("create table t (k int primary key)");
    first.expect("a table");
    {
        let engine = engine(folder);
        let table = engine.table("lodestone_sql").expect("the catalog");
        engine.update(|tx| rows.iter().try_for_each(|row| table.put(tx, row).map(drop))).expect("rows");
    }
    open(folder)
}

fn domain(name: &str, oid: i64, base: u32) -> Row {
    let base = base.to_string();
    let note = format!("6:domain{}:{base}2:-10:", base.len());
    row(&format!("\u{2}{name}"), TYPE, name, (oid, oid + 1), Some(&note))
}

/// A type of rows whose attributes have these numbers and types.
fn composite(name: &str, oid: i64, attributes: &[(u64, i64)]) -> Vec<Row> {
    let key = format!("\u{2}{name}");
    let own = row(&key, TYPE, name, (oid, oid + 1), Some("9:composite5:500032:10"));
    let attribute = |(number, ty): &(u64, i64)| row(&key, *number, &format!("a{number}"), (*ty, -1), None);
    attributes.iter().map(attribute).chain([own]).collect()
}

#[test]
fn types_of_nothing_and_of_themselves_are_named() {
    let chain: Vec<Row> = (0..40_u32)
        .map(|number| {
            domain(
                &format!("c{number:03}"),
                (50_000 + 2 * number).into(),
                if number == 0 { 23 } else { 49_998 + 2 * number },
            )
        })
        .collect();
    let check = row("\u{2}d", 131_072, "d_check", (50_002, 1), Some("value::nowhere is null"));
    let unread = row("\u{2}d", 131_072, "d_check", (50_002, 1), Some("((((("));
    for (rows, expected, name) in [
        (vec![domain("d", 50_000, 60_000)], SqlState::DATA_CORRUPTED, "\"d\""),
        (vec![domain("d", 50_000, 50_000)], SqlState::DATA_CORRUPTED, "\"d\""),
        (vec![domain("d", 50_000, 50_010), domain("e", 50_010, 50_000)], SqlState::DATA_CORRUPTED, "\"d\""),
        (vec![domain("d", 50_000, 23), check], SqlState::UNDEFINED_OBJECT, "nowhere"),
        (vec![domain("d", 50_000, 23), unread], SqlState::SYNTAX_ERROR, ""),
        (vec![row("t", 1, "k", (60_000, -1), None)], SqlState::DATA_CORRUPTED, "\"k\" of table \"t\""),
        (chain, SqlState::PROGRAM_LIMIT_EXCEEDED, "32"),
        (composite("c", 50_000, &[(1, 50_000)]), SqlState::DATA_CORRUPTED, "\"c\""),
        (composite("c", 50_000, &[(1, 23), (2, 60_000)]), SqlState::DATA_CORRUPTED, "\"c\""),
        (
            [composite("c", 50_000, &[(1, 50_011)]), composite("e", 50_010, &[(1, 50_000)])].concat(),
            SqlState::DATA_CORRUPTED,
            "\"c\"",
        ),
    ] {
        let folder = tempfile::tempdir().expect("folder");
        let Err(error) = hostile(folder.path(), &rows) else { panic!("{rows:?} are believed") };
        assert_eq!(error.state(), expected, "{error:?}");
        assert!(error.message().contains(name), "{error:?}");
    }
}

#[test]
fn labels_with_any_numbers_are_a_type() {
    let folder = tempfile::tempdir().expect("folder");
    let own = |name: &str, oid: i64, numbers: &[i64]| {
        let key = format!("\u{2}{name}");
        let labels =
            (1_u64..).zip(numbers).map(|(item, number)| row(&key, item, &format!("l{item}"), (*number, oid), None));
        labels.chain([row(&key, TYPE, name, (oid, oid + 1), Some(ENUM))]).collect::<Vec<_>>()
    };
    let rows = [
        own("wide", 50_000, &[i64::MIN, i64::MAX]),
        own("same", 50_010, &[5, 5]),
        own("turned", 50_020, &[9, 1]),
        // The same number as another one.
        own("twin", 50_000, &[1, 2]),
    ];
    let database = hostile(folder.path(), &rows.concat()).expect("types");
    let mut connection = database.connect("root", "shop");
    assert_eq!(state(&mut connection, "alter type wide add value 'between' before 'l2'"), None);
    assert_eq!(value(&mut connection, "select enum_range('l1'::wide, null)"), "{l1,between,l2}");
    let full = Some(SqlState::PROGRAM_LIMIT_EXCEEDED);
    assert_eq!(state(&mut connection, "alter type wide add value 'before' before 'l1'"), full);
    assert_eq!(state(&mut connection, "alter type wide add value 'after'"), full);
    assert_eq!(state(&mut connection, "alter type same add value 'between' before 'l2'"), full);
    assert_eq!(state(&mut connection, "alter type turned add value 'between' before 'l2'"), full);
    assert_eq!(value(&mut connection, "select 'l1'::same"), "l1");
}

/// A type of rows, its attributes, and the rows of a table with it are there after the next start.
#[test]
fn rows_are_kept_by_the_numbers_of_their_fields() {
    let folder = tempfile::tempdir().expect("folder");
    let steps: [(&[&str], &str); 4] = [
        (
            &[
                "create type mood as enum ('sad', 'ok')",
                "create type inner_row as (m mood, at timestamptz)",
                "create type outer_row as (a int, i inner_row, l inner_row[], t text)",
                "create table t (k int primary key, o outer_row)",
                "set datestyle = german",
                "insert into t values (1, row(1, row('ok', '2020-01-02 03:04:05+00'), array[row('sad', null)::inner_row], 'x,\"y'))",
                "set datestyle = iso",
            ],
            "(1,\"(ok,\"\"2020-01-02 03:04:05+00\"\")\",\"{\"\"(sad,)\"\"}\",\"x,\"\"y\")",
        ),
        (
            &[
                "alter type mood rename value 'ok' to 'fine'",
                "alter type outer_row drop attribute a, add attribute n numeric(4, 1)",
                "alter type inner_row rename attribute m to feeling",
            ],
            "(\"(fine,\"\"2020-01-02 03:04:05+00\"\")\",\"{\"\"(sad,)\"\"}\",\"x,\"\"y\",)",
        ),
        (
            &["alter type outer_row add attribute a text", "update t set o.a = 'new', o.n = 2.25, o.i.feeling = 'sad'"],
            "(\"(sad,\"\"2020-01-02 03:04:05+00\"\")\",\"{\"\"(sad,)\"\"}\",\"x,\"\"y\",2.3,new)",
        ),
        (&["alter type outer_row drop attribute i, drop attribute l"], "(\"x,\"\"y\",2.3,new)"),
    ];
    for (statements, expected) in steps {
        {
            let database = open(folder.path()).expect("a catalog");
            let mut connection = database.connect("root", "shop");
            for statement in statements {
                assert_eq!(state(&mut connection, statement), None, "{statement}");
            }
            assert_eq!(value(&mut connection, "select o from t"), expected);
        }
        let mut connection = open(folder.path()).expect("a catalog").connect("root", "shop");
        assert_eq!(value(&mut connection, "select o from t"), expected, "after the next start");
    }
}

#[test]
fn a_type_has_limits() {
    let folder = tempfile::tempdir().expect("folder");
    let mut connection = open(folder.path()).expect("a catalog").connect("root", "shop");
    let labels: Vec<String> = (0..70_000).map(|number| format!("'{number}'")).collect();
    let most = Some(SqlState::PROGRAM_LIMIT_EXCEEDED);
    assert_eq!(state(&mut connection, &format!("create type big as enum ({})", labels.join(","))), most);
    assert_eq!(state(&mut connection, "create domain d0 as int"), None);
    let deep = (1..100).find_map(|number| {
        let found = state(&mut connection, &format!("create domain d{number} as d{}", number - 1));
        found.map(|state| (number, state))
    });
    assert_eq!(deep, Some((32, SqlState::PROGRAM_LIMIT_EXCEEDED)));
    // Each has the one before it twice: nothing may look at all ways to the innermost one.
    assert_eq!(state(&mut connection, "create type r0 as (a int, b d0)"), None);
    let deep = (1..300).find_map(|number| {
        let (before, own) = (number - 1, format!("create type r{number} as (a r{}, b r{}[])", number - 1, number - 1));
        let used = format!("select null::r{before} = null, json_populate_record(null::r{before}, '{{}}') is null");
        state(&mut connection, &own).or_else(|| state(&mut connection, &used)).map(|state| (number, state))
    });
    assert_eq!(deep, Some((200, SqlState::STATEMENT_TOO_COMPLEX)));
}

/// One session drops a type while another one makes an object of it: only one of both does.
#[test]
fn a_type_that_goes_takes_no_user_with_it() {
    let conflict = Some(SqlState::SERIALIZATION_FAILURE);
    for user in [
        "create table u (k int primary key, m mood)",
        "create table u (k int primary key, m mood[])",
        "create table u (k int primary key, x text check (x::mood <> 'sad'))",
        "create table u (k int primary key, x text, g text generated always as (x::mood::text) stored)",
        "create table u as select 'sad'::mood as m",
        "alter table t add column m mood",
        "create domain u as mood",
        "create view u as select 'sad'::mood as m",
    ] {
        for is_first in [false, true] {
            let folder = tempfile::tempdir().expect("folder");
            let database = open(folder.path()).expect("a catalog");
            let mut connections = [(); 2].map(|()| database.connect("root", "shop"));
            connections[0].run("create type mood as enum ('sad'); create table t (k int primary key)").expect("a type");
            let statements = ["drop type mood", user];
            for (connection, statement) in connections.iter_mut().zip(statements) {
                connection.run("begin").expect("begin");
                assert_eq!(state(connection, statement), None, "{statement}");
            }
            let (first, second) = if is_first { (1, 0) } else { (0, 1) };
            assert_eq!(state(&mut connections[first], "commit"), None, "{user}");
            assert_eq!(state(&mut connections[second], "commit"), conflict, "{user} {is_first}");
            let mut third = database.connect("root", "shop");
            let found = value(&mut third, "select count(*) from pg_type where typname = 'mood'");
            assert_eq!(found, if is_first { "1" } else { "0" }, "{user}");
            drop((connections, third, database));
            open(folder.path()).expect("a catalog");
        }
    }
}

/// A new condition of a domain is tested against rows that another session writes.
#[test]
fn a_condition_waits_for_changes_that_are_made() {
    let folder = tempfile::tempdir().expect("folder");
    let database = open(folder.path()).expect("a catalog");
    let mut one = database.connect("root", "shop");
    let mut two = database.connect("root", "shop");
    one.run("create domain d as int; create table t (k int primary key, d d)").expect("a table");
    one.run("begin; insert into t values (1, -1)").expect("a row");
    two.run("set lock_timeout = '50ms'").expect("a limit");
    let add = "alter domain d add check (value > 0)";
    assert_eq!(state(&mut two, add), Some(SqlState::LOCK_NOT_AVAILABLE));
    one.run("commit").expect("commit");
    assert_eq!(state(&mut two, add), Some(SqlState::CHECK_VIOLATION));
    one.run("update t set d = 1").expect("a value");
    assert_eq!(state(&mut two, add), None);
    assert_eq!(state(&mut one, "insert into t values (2, -1)"), Some(SqlState::CHECK_VIOLATION));
}

/// The files as they are between two statements are those that a killed process leaves.
#[test]
fn types_after_a_kill() {
    let folder = tempfile::tempdir().expect("folder");
    let database = open(folder.path()).expect("a catalog");
    let mut connection = database.connect("root", "shop");
    let labels = "select enum_range(null::mood)";
    let rows = "select array_agg(m order by k) from t";
    for (statement, query, expected) in [
        ("create type mood as enum ('sad', 'ok')", labels, "{sad,ok}"),
        ("create table t (k int primary key, m mood)", labels, "{sad,ok}"),
        ("insert into t values (1, 'ok')", rows, "{ok}"),
        ("begin; alter type mood add value 'low' before 'sad'; insert into t values (2, 'low')", rows, "{ok}"),
        ("savepoint s; alter type mood rename value 'ok' to 'fine'", labels, "{sad,ok}"),
        ("rollback to s; commit", rows, "{ok,low}"),
        ("begin; drop type mood cascade", rows, "{ok,low}"),
        ("rollback; alter type mood rename value 'ok' to 'fine'", rows, "{fine,low}"),
        ("create domain d as int check (value > 0); alter table t add column d d default 1", "select d from t", "1"),
        ("drop type mood cascade", "select count(*) from pg_enum", "0"),
        (
            "drop domain d cascade",
            "select string_agg(attname, ',') from pg_attribute where attrelid = 't'::regclass and attnum > 0",
            "k",
        ),
    ] {
        connection.run(statement).expect(statement);
        let copy = tempfile::tempdir().expect("folder");
        for file in std::fs::read_dir(folder.path()).expect("files") {
            let file = file.expect("a file");
            std::fs::copy(file.path(), copy.path().join(file.file_name())).expect("a copy");
        }
        let mut after = open(copy.path()).expect("a catalog").connect("root", "shop");
        assert_eq!(value(&mut after, query), expected, "{statement}");
    }
}

/// Objects of all kinds, whose rows are damaged.
const OBJECTS: &str = "create type mood as enum ('sad', 'ok', 'glad'); \
    create domain small as int default 3 check (value < 100); create domain smaller as small check (value < 50); \
    create schema other; create sequence other.numbers increment 2 cache 5; \
    create table parent (k int primary key, name text unique); \
    create table t (k serial primary key, m mood default 'ok', d smaller, a mood[], p int references parent, \
    g int generated always as (k * 2) stored, check (d > 0)); \
    create index by_mood on t (m); create view seen as select k, m from t; \
    insert into parent values (1, 'one'); insert into t (d, a, p) values (7, '{sad}', 1)";

/// Statements of a client about them. Each may be refused.
const USES: [&str; 14] = [
    "select * from t",
    "select k from t where m >= 'ok'",
    "insert into t (d, p) values (8, 1) returning *",
    "update t set m = 'glad'",
    "select * from seen",
    "select nextval('other.numbers'), nextval('t_k_seq')",
    "delete from parent",
    "select relname, relkind, relnatts from pg_class where oid > 16000",
    "select attname, atttypid::regtype from pg_attribute where attrelid > 16000",
    "select typname, enumlabel from pg_type left join pg_enum on enumtypid = pg_type.oid where pg_type.oid > 16000",
    "select pg_get_constraintdef(oid) from pg_constraint where oid > 16000",
    "select * from information_schema.columns where table_schema = 'public'",
    "alter type mood add value 'new' before 'ok'",
    "drop domain small cascade",
];

/// The next number of a simple generator.
fn next(state: &mut u64) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    usize::try_from(*state >> 33).expect("31 bits")
}

/// Another text: with a character changed, put in or taken out, cut, or doubled.
fn damaged(text: &str, random: &mut u64) -> String {
    let mut letters: Vec<char> = text.chars().collect();
    let place = next(random) % (letters.len() + 1);
    let other = [':', '0', '9', '-', '(', '\u{2}', 'x', '1'][next(random) % 8];
    match next(random) % 5 {
        0 if place < letters.len() => letters[place] = other,
        1 if place < letters.len() => drop(letters.remove(place)),
        2 => letters.truncate(place),
        3 => letters.extend_from_within(..),
        _ => letters.insert(place, other),
    }
    letters.into_iter().collect()
}

/// Damages one value of a row. Its checksum is right again when it is stored.
fn damage(row: &mut Row, random: &mut u64) {
    let numbers = [0, 1, -1, 23, 16_385, 16_390, 50_000, 1 << 32, i64::MAX, i64::MIN];
    let place = [0, 1, 2, 3, 4, 5, 5, 5, 5][next(random) % 9];
    row.0[place] = match &row.0[place] {
        Value::Text(text) => damaged(text, random).as_str().into(),
        Value::I64(_) => numbers[next(random) % numbers.len()].into(),
        Value::U64(item) => (item ^ (1 << (next(random) % 36))).into(),
        _ => damaged("4:enum", random).as_str().into(),
    };
}

/// Damages one or two rows of the catalog.
fn damage_rows(engine: &lodestone_engine::Database, random: &mut u64, round: u64) -> lodestone_engine::Result<()> {
    let table = engine.table("lodestone_sql")?;
    let tx = engine.begin();
    let rows = table.range(&tx, ..)?.collect::<lodestone_engine::Result<Vec<Row>>>()?;
    for _ in 0..=next(random) % 2 {
        let mut row = rows[next(random) % rows.len()].clone();
        table.delete(&tx, &row.0[..2])?;
        damage(&mut row, random);
        table.put(&tx, &row)?;
        println!("round {round}: {row:?}");
    }
    tx.commit()
}

/// A table whose foreign key cannot be read is not one without it, and an item of a later version is not left out.
#[test]
fn properties_of_a_table_that_cannot_be_read_are_an_error() {
    for is_new in [false, true] {
        let folder = tempfile::tempdir().expect("folder");
        let engine = engine(folder.path());
        let first = Database::new(engine.clone(), "read committed").expect("a catalog");
        first.connect("root", "shop").run(OBJECTS).expect("objects");
        drop(first);
        let table = engine.table("lodestone_sql").expect("the catalog");
        let change = engine.update(|tx| {
            let rows = table.range(tx, ..)?.collect::<lodestone_engine::Result<Vec<Row>>>()?;
            // 2: a foreign key.
            let is_key = |row: &&Row| row[1].as_u64().is_some_and(|item| item >= 131_072) && row[4].as_i64() == Some(2);
            let mut row = rows.iter().find(is_key).expect("a foreign key").clone();
            if is_new {
                row.0[1] = (1_u64 << 35).into();
            } else {
                row.0[5] = "1:x".into();
            }
            table.put(tx, &row)
        });
        change.expect("a changed row");
        let error = Database::new(engine, "read committed").map(drop).expect_err("a key is lost").to_string();
        assert!(error.contains("the properties of the table \"t\" cannot be read"), "{error}");
    }
}

/// Rows of the catalog with another content are refused, or are another catalog. Nothing panics or has no end.
#[test]
fn damaged_rows_of_the_catalog_are_refused_or_mean_something_else() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let seed: u64 = number("LODESTONE_CATALOG_SEED").unwrap_or(1);
    let rounds: u64 = number("LODESTONE_CATALOG_ROUNDS").unwrap_or(4);
    let mut refused = 0;
    for round in seed..seed + rounds {
        let mut random = round.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        (0..8).for_each(|_| _ = next(&mut random));
        let folder = tempfile::tempdir().expect("folder");
        let engine = engine(folder.path());
        let first = Database::new(engine.clone(), "read committed").expect("a catalog");
        first.connect("root", "shop").run(OBJECTS).expect("objects");
        drop(first);
        damage_rows(&engine, &mut random, round).expect("rows");
        let Ok(database) = Database::new(engine.clone(), "read committed") else {
            refused += 1;
            continue;
        };
        let mut connection = database.connect("root", "shop");
        refused += USES.iter().filter(|statement| connection.run(statement).is_err()).count();
    }
    assert!(refused > 0, "nothing was damaged");
}
