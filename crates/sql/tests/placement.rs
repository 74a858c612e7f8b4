//! Where the rows of tables are: the storage parameters `placement` and `node`, tablespaces, and what keeps a place.

use std::path::Path;

use lodestone_engine::{DatabaseOptions, Durability};
use lodestone_pmem::{CounterScope, DomainChoice, PoolOptions};
use lodestone_sql::{Connection, Database};

/// More rows than a definition keeps in its transaction.
const MANY: u32 = 1_500;

/// A pool with a part on each of two nodes.
fn options(folder: &Path) -> DatabaseOptions {
    let parts = vec![folder.join("a.pool.1")];
    let pool = PoolOptions { parts, virtual_nodes: 2, domain: DomainChoice::Process, ..PoolOptions::default() };
    DatabaseOptions { pool, log_bytes: 4 << 20, segment_bytes: 1 << 17, ..DatabaseOptions::default() }
}

fn open(folder: &Path) -> Database {
    let engine = lodestone_engine::Database::open_with(folder.join("a.pool"), &options(folder)).expect("open");
    Database::new(engine, "read committed").expect("catalog")
}

fn run(connection: &mut Connection, statements: &str) {
    if let Err(error) = connection.run(statements) {
        panic!("{statements}: {error:?}");
    }
}

fn texts(connection: &mut Connection, query: &str) -> Vec<String> {
    let answers = connection.run(query).unwrap_or_else(|error| panic!("{query}: {error:?}"));
    let cell = |cell: &Option<String>| cell.clone().unwrap_or_else(|| "null".into());
    let rows = &answers.last().expect("an answer").rows;
    rows.iter().map(|row| row.iter().map(cell).collect::<Vec<_>>().join("|")).collect()
}

/// The storage parameters and the tablespace of a table, as `\d+` asks for them.
fn place(connection: &mut Connection, table: &str) -> String {
    let query = format!(
        "select array_to_string(c.reloptions, ','), s.spcname from pg_class c left join pg_tablespace s on s.oid = \
         c.reltablespace where c.oid = '{table}'::regclass"
    );
    texts(connection, &query).join("; ")
}

/// The whole pool is as it should be.
fn assert_sound(database: &Database) {
    let report = database.engine().store().check(&mut |_| {});
    assert!(report.is_clean(), "{:?}", report.findings);
}

fn error(connection: &mut Connection, statement: &str) -> (String, String, String) {
    let error = connection.run(statement).expect_err(statement);
    let hint = error.hint_text().unwrap_or_default().to_owned();
    (error.state().code().to_owned(), error.message().to_owned(), hint)
}

/// The name in the test, what is written, what is shown, and whether the engine has the table there.
const PLACES: [(&str, &str, &str); 6] = [
    ("paged", "placement = paged", "null"),
    ("memory", "placement = 'memory'", "placement=memory"),
    ("dual", "placement = 'dual'", "placement=dual"),
    ("far", "node = 1", "node=1"),
    ("far_memory", "node = '1', placement = memory", "placement=memory,node=1"),
    ("far_dual", "placement = dual, node = 1, fillfactor = 70", "placement=dual,node=1"),
];

fn assert_engine(database: &Database, table: &str, shown: &str) {
    let found = database.engine().placement(table).expect(table);
    let wanted = (shown.contains("memory"), shown.contains("dual"), shown.contains("node=1").then_some(1));
    assert_eq!((found.is_kept, found.is_dual, found.node), wanted, "{table}");
    assert_eq!(found.pages_elsewhere, 0, "{table}");
}

#[test]
fn a_table_stays_where_it_was_made() {
    let folder = tempfile::tempdir().expect("folder");
    let mut database = open(folder.path());
    let mut connection = database.connect("root", "shop");
    for (table, written, _) in PLACES {
        run(&mut connection, &format!("create table {table} (k int not null, v text, w int) with ({written})"));
    }
    let shown = |database: &Database, connection: &mut Connection, what: &str| {
        for (table, _, shown) in PLACES {
            assert_eq!(place(connection, table), format!("{shown}|null"), "{table} after {what}");
            assert_engine(database, table, shown);
        }
    };
    shown(&database, &mut connection, "create");
    // Each of them is done with many rows and with few.
    for many in [true, false] {
        let rows = if many { MANY } else { 3 };
        for statement in [
            &format!("insert into TABLE select g, 'row ' || g, g % 7 from generate_series(1, {rows}) g"),
            "alter table TABLE add primary key (k)",
            "create index on TABLE (w)",
            "create unique index TABLE_v on TABLE (v)",
            "alter table TABLE alter column w type bigint using w + 1",
            "alter table TABLE alter column v set not null, add column x int default 5, drop column w",
            "alter table TABLE alter column k type bigint",
            "alter table TABLE rename to other; alter table other rename to TABLE",
            "alter table TABLE drop constraint TABLE_pkey",
            "begin; truncate TABLE; rollback",
        ] {
            for (table, _, _) in PLACES {
                run(&mut connection, &statement.replace("TABLE", table));
            }
            shown(&database, &mut connection, statement);
        }
        for (table, _, _) in PLACES {
            let query = format!("select count(*), sum(k), min(v), sum(x), max(length(v)) from {table}");
            let sum = u64::from(rows) * u64::from(rows + 1) / 2;
            let longest = format!("row {rows}").len();
            assert_eq!(texts(&mut connection, &query), [format!("{rows}|{sum}|row 1|{}|{longest}", 5 * rows)]);
        }
        drop((connection, database));
        database = open(folder.path());
        connection = database.connect("root", "shop");
        shown(&database, &mut connection, "a reopen");
        for (table, _, _) in PLACES {
            run(&mut connection, &format!("truncate {table}"));
            run(&mut connection, &format!("alter table {table} drop column x, add w int"));
            assert_eq!(texts(&mut connection, &format!("select count(*) from {table}")), ["0"]);
            run(&mut connection, &format!("drop index {table}_v; alter table {table} alter k type int"));
        }
        shown(&database, &mut connection, "truncate");
    }
    drop((connection, database));
    assert_sound(&open(folder.path()));
}

#[test]
fn what_a_table_cannot_have_is_named() {
    let folder = tempfile::tempdir().expect("folder");
    let database = open(folder.path());
    let mut connection = database.connect("root", "shop");
    run(&mut connection, "create table t (k int) with (placement = dual)");
    let own = |state: &str, message: &str, hint: &str| (state.to_owned(), message.to_owned(), hint.to_owned());
    let unknown = "invalid value for enum option \"placement\": disk";
    let kinds = "memory: all rows stay in DRAM; paged: those that are used; dual: small rows that change one by one, \
                 without a log.";
    let numbers = "Write the number of a node of the machine.";
    for (statement, expected) in [
        ("create table x (k int) with (placement = 'disk')", own("22023", unknown, kinds)),
        ("create table x with (placement = disk) as select 1", own("22023", unknown, kinds)),
        ("alter table t set (placement = disk)", own("22023", unknown, kinds)),
        (
            "create table x (k int) with (node = 7)",
            own("22023", "the pool has no part of memory on node 7", "It has parts on the nodes 0, 1."),
        ),
        (
            "create table x (k int) with (node = 'x')",
            own("22023", "invalid value for integer option \"node\": x", numbers),
        ),
        ("alter table t set (node = -1)", own("22023", "invalid value for integer option \"node\": -1", numbers)),
        (
            "create table x (k int) with (node = 0, node = 1)",
            own("22023", "parameter \"node\" specified more than once", ""),
        ),
        (
            "create table x (k int) partition by range (k) with (placement = dual)",
            own(
                "42809",
                "cannot specify storage parameters for a partitioned table",
                "Specify storage parameters for its leaf partitions, instead.",
            ),
        ),
        (
            "create table x (k int) with (place = dual)",
            own(
                "0A000",
                "the storage parameter place is not supported",
                "A table has the parameters placement and node.",
            ),
        ),
        (
            "set lodestone.default_placement = disk",
            own(
                "22023",
                "invalid value for parameter \"lodestone.default_placement\": \"disk\"",
                "Available values: paged, memory, dual.",
            ),
        ),
        ("create table x (k int) tablespace gone", own("42704", "tablespace \"gone\" does not exist", "")),
        ("alter table t set tablespace gone", own("42704", "tablespace \"gone\" does not exist", "")),
    ] {
        assert_eq!(error(&mut connection, statement), expected, "{statement}");
    }
    assert_eq!(texts(&mut connection, "select count(*) from pg_class where relname = 'x'"), ["0"]);
    assert_eq!(place(&mut connection, "t"), "placement=dual|null");
}

/// A database whose commits are durable by epochs has no cells.
#[test]
fn cells_are_refused_where_there_are_none() {
    let folder = tempfile::tempdir().expect("folder");
    let durability = Durability::Epoch(std::time::Duration::from_millis(5));
    let options = DatabaseOptions { durability, ..options(folder.path()) };
    let engine = lodestone_engine::Database::open_with(folder.path().join("a.pool"), &options).expect("open");
    let mut connection = Database::new(engine, "read committed").expect("catalog").connect("root", "shop");
    let hint = "With placement = 'memory' all rows stay in DRAM as well.";
    let expected = ("0A000".into(), "placement = 'dual' in this database is not supported".into(), hint.into());
    assert_eq!(error(&mut connection, "create table t (k int) with (placement = dual)"), expected);
    run(&mut connection, "create table t (k int) with (placement = memory); insert into t values (1)");
    assert_eq!(error(&mut connection, "alter table t set (placement = dual)"), expected);
    assert_eq!(texts(&mut connection, "select * from t"), ["1"]);
}

#[test]
fn a_place_is_changed_and_taken_back() {
    let folder = tempfile::tempdir().expect("folder");
    let database = open(folder.path());
    let mut connection = database.connect("root", "shop");
    let fill = format!(
        "create table t (k int primary key, v text unique, w int check (w >= 0), x int default 3); \
                        create table c (k int references t (k)); create view seen as select k, v from t; \
                        insert into t select g, 'row ' || g, g from generate_series(1, {MANY}) g; \
                        insert into c select k from t where k < 9; create index on t (w)"
    );
    run(&mut connection, &fill);
    let checksum = "select count(*), sum(k), sum(w), count(distinct v), sum(x) from t";
    let expected = texts(&mut connection, checksum);
    for (change, shown) in [
        ("set (placement = dual)", "placement=dual"),
        ("set (node = 1)", "placement=dual,node=1"),
        ("set (placement = memory)", "placement=memory,node=1"),
        ("set (placement = paged)", "node=1"),
        ("set (placement = memory, node = 0)", "placement=memory,node=0"),
        ("reset (node)", "placement=memory"),
        ("set (placement = dual, node = 1)", "placement=dual,node=1"),
        ("reset (placement, node)", "null"),
        ("set (fillfactor = 80)", "null"),
        ("reset (fillfactor)", "null"),
    ] {
        let before = place(&mut connection, "t");
        run(&mut connection, &format!("begin; alter table t {change}; insert into t values (-1, 'x', 1); rollback"));
        assert_eq!(place(&mut connection, "t"), before, "{change}");
        run(&mut connection, &format!("begin; savepoint a; alter table t {change}; rollback to a; commit"));
        assert_eq!(place(&mut connection, "t"), before, "{change}");
        // Half of them inside a transaction with other changes.
        match change.len() % 2 {
            0 => run(&mut connection, &format!("alter table t {change}")),
            _ => {
                run(&mut connection, &format!("begin; alter table t {change}; update t set w = w where k < 5; commit"))
            }
        }
        assert_eq!(place(&mut connection, "t"), format!("{shown}|null"), "{change}");
        assert_eq!(database.engine().placement("t").expect("t").is_dual, shown.contains("dual"));
        assert_eq!(texts(&mut connection, checksum), expected, "{change}");
        for (statement, state) in [
            ("insert into t values (1, 'new', 1)", "23505"),
            ("insert into t values (-5, 'row 7', 1)", "23505"),
            ("insert into t values (-5, 'new', -1)", "23514"),
            ("insert into c values (-5)", "23503"),
            ("delete from t where k = 3", "23503"),
        ] {
            assert_eq!(error(&mut connection, statement).0, state, "{change}, {statement}");
        }
        assert_eq!(texts(&mut connection, "select v from seen where k = 44"), ["row 44"], "{change}");
        assert_eq!(texts(&mut connection, "select k from t where w = 1200"), ["1200"], "{change}");
    }
    drop((connection, database));
    let database = open(folder.path());
    assert_eq!(texts(&mut database.connect("root", "shop"), checksum), expected);
    assert_sound(&database);
}

#[test]
fn new_tables_have_the_place_of_the_session() {
    let folder = tempfile::tempdir().expect("folder");
    let mut connection = open(folder.path()).connect("root", "shop");
    run(&mut connection, "set lodestone.default_placement = dual; create tablespace n1 location 'node:1'");
    run(
        &mut connection,
        "create table a (k int); create table b (like a including all); create table c as select 1 as k; \
         create table d with (placement = memory) as select 1 as k; create temp table e (k int); \
         create table f (k int) partition by range (k); create table g partition of f for values from (1) to (9); \
         create table h partition of f for values from (9) to (20) with (placement = 'paged', node = 1); \
         select 1 as k into i; create table j (like d); set default_tablespace = n1; create table l (k int); \
         create table m (k int) tablespace pg_default; create table n with (node = 0) as select 1; \
         create table o tablespace n1 as select 1; create table p (k int) inherits (a) tablespace n1; \
         create table q (k int) with (placement = paged) tablespace \"n1\"",
    );
    for (table, shown) in [
        ("a", "placement=dual|null"),
        ("b", "placement=dual|null"),
        ("c", "placement=dual|null"),
        ("d", "placement=memory|null"),
        ("e", "null|null"),
        ("f", "null|null"),
        ("g", "placement=dual|null"),
        ("h", "node=1|null"),
        ("i", "placement=dual|null"),
        ("j", "placement=dual|null"),
        ("l", "placement=dual|n1"),
        ("m", "placement=dual|null"),
        ("n", "placement=dual,node=0|null"),
        ("o", "placement=dual|n1"),
        ("p", "placement=dual|n1"),
        ("q", "null|n1"),
    ] {
        assert_eq!(place(&mut connection, table), shown, "{table}");
    }
    run(&mut connection, "insert into f select generate_series(1, 19)");
    assert_eq!(texts(&mut connection, "select count(*) from g"), ["8"]);
    run(&mut connection, "reset lodestone.default_placement; create table z (k int)");
    assert_eq!(place(&mut connection, "z"), "null|n1");
}

#[test]
fn tablespaces_are_names_of_nodes() {
    let folder = tempfile::tempdir().expect("folder");
    let database = open(folder.path());
    let mut connection = database.connect("root", "shop");
    run(&mut connection, "create tablespace n1 owner root location 'node:1'; create tablespace n0 location 'node:0'");
    run(&mut connection, "create table t (k int primary key) tablespace n1; insert into t values (1)");
    let all = "select spcname, pg_tablespace_location(oid) from pg_tablespace where oid > 9999 order by 1";
    assert_eq!(texts(&mut connection, all), ["n0|node:0", "n1|node:1"]);
    assert_eq!(place(&mut connection, "t"), "null|n1");
    assert_eq!(texts(&mut connection, "select tablespace from pg_tables where tablename = 't'"), ["n1"]);
    for (statement, state, hint) in [
        ("create tablespace n1 location 'node:0'", "42710", ""),
        ("create tablespace n9 location 'node:9'", "22023", "It has parts on the nodes 0, 1."),
        (
            "create tablespace n9 location '/mnt/pmem'",
            "42P17",
            "Write the node of the machine whose memory it is, as 'node:1'.",
        ),
        ("create tablespace pg_own location 'node:1'", "42939", ""),
        ("drop tablespace n9", "42704", ""),
        ("drop tablespace n1", "55000", "Move them away: ALTER TABLE .. SET TABLESPACE pg_default."),
        ("create table x (k int) with (node = 0) tablespace n1", "22023", "Leave one of both out."),
        ("alter tablespace n1 rename to n2", "0A000", ""),
    ] {
        let (found, message, found_hint) = error(&mut connection, statement);
        assert_eq!((found.as_str(), found_hint.as_str()), (state, hint), "{statement}: {message}");
    }
    run(
        &mut connection,
        "drop tablespace if exists n9; begin; create tablespace n2 location 'node:1'; \
                          alter table t set tablespace n2; rollback",
    );
    assert_eq!(place(&mut connection, "t"), "null|n1");
    for (change, shown) in [
        ("set tablespace n0", "null|n0"),
        ("set (placement = dual)", "placement=dual|n0"),
        ("alter column k type bigint", "placement=dual|n0"),
        ("set (node = 0)", "placement=dual|n0"),
        ("set (node = 1)", "placement=dual,node=1|null"),
        ("set tablespace n1", "placement=dual|n1"),
        ("rename to u", "placement=dual|n1"),
    ] {
        run(&mut connection, &format!("alter table t {change}"));
        let name = if change == "rename to u" { "u" } else { "t" };
        assert_eq!(place(&mut connection, name), shown, "{change}");
    }
    // The library moves it away.
    database.engine().move_table("u", Some(0)).expect("a move");
    drop((connection, database));
    let mut connection = open(folder.path()).connect("root", "shop");
    assert_eq!(place(&mut connection, "u"), "placement=dual,node=0|null");
    run(
        &mut connection,
        "drop tablespace n1; alter table u set tablespace n0; alter table u set tablespace pg_default",
    );
    assert_eq!(place(&mut connection, "u"), "placement=dual|null");
    run(&mut connection, "drop tablespace n0");
    assert_eq!(texts(&mut connection, all), [""; 0]);
}

/// A schema or a tablespace that a transaction has made stays its own when others define something meanwhile.
#[test]
fn a_transaction_keeps_its_schemas_and_tablespaces() {
    let folder = tempfile::tempdir().expect("folder");
    let database = open(folder.path());
    let (mut one, mut two) = (database.connect("root", "shop"), database.connect("root", "shop"));
    run(&mut one, "begin; create schema apart");
    run(&mut two, "create table others (k int)");
    run(&mut one, "create table apart.t (k int); commit; begin; create tablespace n1 location 'node:1'");
    run(&mut two, "create table more (k int)");
    run(&mut one, "create table u (k int) tablespace n1; commit");
    assert_eq!(place(&mut one, "u"), "null|n1");
    assert_eq!(texts(&mut two, "select count(*) from apart.t"), ["0"]);
}

#[test]
fn copy_goes_into_cells() {
    let folder = tempfile::tempdir().expect("folder");
    let database = open(folder.path());
    let mut connection = database.connect("root", "shop");
    run(&mut connection, "set default_transaction_isolation = serializable");
    for index in ["", "create index on t (v)"] {
        run(
            &mut connection,
            &format!(
                "drop table if exists t; create table t (k int primary key, v text) \
                                       with (placement = dual); {index}"
            ),
        );
        for _ in 0..2 {
            // Into a new table, and into one that was truncated.
            run(&mut connection, "begin; truncate t");
            let mut query = connection.simple("copy t from stdin").expect("copy");
            connection.next(&mut query, &mut lodestone_sql::Answer::default()).expect("it begins");
            let lines: String = (0..5_000).map(|k| format!("{k}\tvalue {}\n", k % 100)).collect();
            connection.copy_data(lines.as_bytes()).expect("rows");
            connection.copy_done(false).expect("its end");
            run(&mut connection, "commit");
            assert_eq!(texts(&mut connection, "select count(*) from t where v = 'value 7'"), ["50"]);
        }
    }
    drop((connection, database));
    let database = open(folder.path());
    assert_eq!(texts(&mut database.connect("root", "shop"), "select count(*), sum(k) from t"), ["5000|12497500"]);
    assert_sound(&database);
}

/// A table that a transaction writes again is its own until it ends, whatever others define meanwhile.
#[test]
fn others_definitions_leave_a_table_that_is_written_again() {
    let folder = tempfile::tempdir().expect("folder");
    let database = open(folder.path());
    let (mut one, mut two) = (database.connect("root", "shop"), database.connect("root", "shop"));
    for (number, change) in
        ["alter column k type bigint", "set (placement = dual)", "set (placement = memory)"].iter().enumerate()
    {
        run(&mut one, &format!("create table t (k int); insert into t select generate_series(1, {MANY})"));
        run(&mut one, &format!("begin; alter table t {change}"));
        run(&mut two, &format!("create table other{number} (k int)"));
        drop(two.run("begin; create table gone (k int); rollback"));
        run(&mut one, "insert into t values (0); commit");
        assert_eq!(texts(&mut two, "select count(*) from t"), [(MANY + 1).to_string()], "{change}");
        // One that fails, or is taken back, leaves nothing.
        let failing = "create table bad (k int, v text); insert into bad select g, g from generate_series(1, 1500) g; \
                       update bad set v = 'x' where k = 1400; alter table bad set (placement = dual)";
        run(&mut one, failing);
        assert_eq!(error(&mut one, "alter table bad alter v type int using v::int").0, "22P02", "{change}");
        run(&mut one, "begin; alter table bad alter k type bigint; rollback; drop table bad; drop table t");
        let left = database.engine().tables().expect("tables");
        assert!(left.iter().all(|name| !name.starts_with("lodestone_rewritten")), "{left:?}");
    }
}

/// The medium of an update through SQL: fences, flushes of lines, bytes that are streamed, bytes of records, and lines
/// that the next checkpoint writes.
#[test]
fn an_update_of_a_row_in_a_cell_writes_the_row_alone() {
    let folder = tempfile::tempdir().expect("folder");
    // One node: a thread that comes to another one has another log, with a first record.
    let pool = PoolOptions { domain: DomainChoice::DaxEmulated, ..PoolOptions::default() };
    let options = DatabaseOptions { pool, checkpoint_thread: false, ..options(folder.path()) };
    let engine = lodestone_engine::Database::open_with(folder.path().join("a.pool"), &options).expect("open");
    let database = Database::new(engine, "read committed").expect("catalog");
    let mut connection = database.connect("root", "shop");
    for placement in ["paged", "memory", "dual"] {
        run(
            &mut connection,
            &format!(
                "create table {placement} (k int primary key, n bigint, v text) with (placement = {placement}); insert \
                 into {placement} select g, 0, 'a text of a row' from generate_series(1, 100) g"
            ),
        );
    }
    let mut cost = |placement: &str, statements: &str| {
        let engine = database.engine();
        for _ in 0..2 {
            // The second one after a checkpoint is as all that follow it.
            engine.checkpoint().expect("a checkpoint");
            run(&mut connection, &format!("update {placement} set n = n + 1 where k = 50"));
        }
        let (scope, before) = (CounterScope::start(), engine.stats().log_appended_bytes);
        run(&mut connection, &statements.replace("TABLE", placement));
        let found = scope.delta();
        let log = engine.stats().log_appended_bytes - before;
        let checkpoint = engine.checkpoint().expect("a checkpoint");
        (found.fences, found.flushes, found.pm_bytes(), log, checkpoint.lines)
    };
    let one = "update TABLE set n = n + 1 where k = 7";
    let two = "begin; update TABLE set n = n + 1 where k in (7, 8); commit";
    // A record of one row, or of what has changed in two; the lines of their page at the next checkpoint.
    for placement in ["paged", "memory"] {
        assert_eq!(cost(placement, one), (1, 2, 128, 128, 4), "{placement}");
        assert_eq!(cost(placement, two), (1, 2, 128, 128, 4), "{placement}");
    }
    // The row, whose slot is in one line or two; of two rows a record with their cells.
    for _ in 0..3 {
        let (fences, flushes, bytes, log, checkpoint) = cost("dual", one);
        assert_eq!((fences, log, checkpoint), (1, 0, 0));
        assert!((1..=2).contains(&flushes) && bytes == 64 * flushes, "{flushes} lines, {bytes} bytes");
        let (fences, flushes, _, log, checkpoint) = cost("dual", two);
        assert_eq!((fences, log, checkpoint), (1, 128, 0));
        assert!((4..=6).contains(&flushes), "{flushes} lines");
    }
    let explained = texts(&mut connection, "explain analyze update dual set n = n + 1 where k = 7").pop();
    let medium = explained.expect("a line");
    assert!(["Medium: 1 fences, 64 bytes", "Medium: 1 fences, 128 bytes"].contains(&&*medium), "{medium}");
}
