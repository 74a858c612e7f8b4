//! Statements against the answers that PostgreSQL 15 gave to them.
//!
//! `tools/sql_expected.py` has recorded them. Where Lodestone differs on purpose, the statement is in the list of the
//! file's test, with the answer that is expected here.

use std::path::Path;

use lodestone_engine::DatabaseOptions;
use lodestone_pmem::{DomainChoice, PoolOptions};
use lodestone_sql::{Connection, Database};

fn connect(folder: &Path) -> Connection {
    let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
    let options = DatabaseOptions { pool, log_bytes: 1 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
    let engine = lodestone_engine::Database::open_with(folder.join("a.pool"), &options).expect("open");
    Database::new(engine, "read committed").expect("catalog").connect("root", "shop")
}

fn answer(connection: &mut Connection, statement: &str) -> Vec<String> {
    match connection.run(&format!("{statement};")) {
        Err(error) => vec![format!("ERROR {}: {}", error.state().code(), error.message())],
        Ok(answers) => {
            let mut lines = Vec::new();
            for answer in answers {
                let cell = |cell: &Option<String>| cell.clone().unwrap_or_else(|| "NULL".into());
                let rows = answer.rows.iter().map(|row| row.iter().map(cell).collect::<Vec<_>>().join("|"));
                lines.extend(rows.flat_map(|row| row.split('\n').map(str::to_owned).collect::<Vec<_>>()));
                let shows_rows = ["SELECT", "SHOW", "FETCH"].iter().any(|tag| answer.tag.starts_with(tag));
                // A table that is made from a query has the tag of the query, and no rows to show.
                let shows_tag = !shows_rows || answer.columns.is_empty() && !statement.starts_with("select from");
                lines.extend(shows_tag.then_some(answer.tag));
            }
            lines.retain(|line| !line.trim().is_empty());
            lines
        }
    }
}

/// Runs a recorded file, with its tables in pages and in cells. `others`: statements with another answer here.
fn check(recorded: &str, others: &[(&str, &[&str])]) {
    for placement in ["paged", "dual"] {
        check_placed(recorded, others, placement);
    }
}

fn check_placed(recorded: &str, others: &[(&str, &[&str])], placement: &str) {
    let folder = tempfile::tempdir().expect("folder");
    let mut connection = connect(folder.path());
    connection.run(&format!("set lodestone.default_placement = {placement}")).expect("the setting");
    let (mut differences, mut used) = (Vec::new(), 0);
    let mut count = 0;
    for part in recorded.strip_prefix("> ").expect("a statement").split("\n> ") {
        let mut lines = part.lines().peekable();
        let mut statement = lines.next().unwrap_or_default().to_owned();
        while let Some(line) = lines.next_if(|line| line.starts_with(">> ")) {
            statement = format!("{statement}\n{}", &line[3..]);
        }
        let statement = statement.as_str();
        let mut expected: Vec<String> = lines.map(str::to_owned).collect();
        if let Some((_, other)) = others.iter().find(|(text, _)| *text == statement) {
            assert_ne!(expected, *other, "it does not differ any more: {statement}");
            expected = other.iter().map(|line| (*line).to_owned()).collect();
            used += 1;
        }
        let found = answer(&mut connection, statement);
        if found != expected {
            differences.push(format!("{statement}\n  expected {expected:?}\n  found    {found:?}"));
        }
        count += 1;
    }
    let number = differences.len();
    assert!(differences.is_empty(), "{number} of {count} differ, {placement}:\n{}", differences.join("\n"));
    assert_eq!(used, others.len(), "a statement of the list is not in the file");
}

#[test]
fn values() {
    check(include_str!("expected/values.out"), &[]);
}

#[test]
fn queries() {
    // A literal of a set operation is a text before both sides meet.
    let union = ["ERROR 42804: UNION types integer and text cannot be matched"];
    check(include_str!("expected/queries.out"), &[("select 1 union select 'x'", &union)]);
}

#[test]
fn changes() {
    check(include_str!("expected/changes.out"), &[]);
}

#[test]
fn transactions() {
    check(include_str!("expected/transactions.out"), &[]);
}

#[test]
fn definitions() {
    check(include_str!("expected/definitions.out"), &[]);
}

#[test]
fn sequences() {
    // Numbers that are logged ahead are not shown.
    check(include_str!("expected/sequences.out"), &[("select * from s", &["20|0|t"])]);
}

#[test]
fn writing() {
    check(include_str!("expected/writing.out"), &[]);
}

#[test]
fn windows() {
    check(include_str!("expected/windows.out"), &[]);
}

#[test]
fn partitions() {
    // The lines of the detail are in the recorded answer.
    let others: &[(&str, &[&str])] =
        &[("drop table p1", &["ERROR 2BP01: cannot drop table p1 because other objects depend on it"])];
    check(include_str!("expected/partitions.out"), others);
}

#[test]
fn inheritance() {
    let others: &[(&str, &[&str])] = &[
        // PostgreSQL's notices and their details are lines of the recorded answer.
        ("drop table city", &["ERROR 2BP01: cannot drop table city because other objects depend on it"]),
        ("drop table city cascade", &["DROP TABLE"]),
        ("drop schema sch cascade", &["DROP SCHEMA"]),
    ];
    check(include_str!("expected/inheritance.out"), others);
}

/// Statements of several steps, each a message of its own: no index is built beside the transaction of the others.
#[test]
fn steps() {
    check(include_str!("expected/steps.out"), &[]);
}

#[test]
fn included() {
    check(include_str!("expected/included.out"), &[]);
}

#[test]
fn operators() {
    check(include_str!("expected/operators.out"), &[]);
}

#[test]
fn kept_names() {
    check(include_str!("expected/kept_names.out"), &[]);
}

#[test]
fn renamed_indexes() {
    check(include_str!("expected/renamed_indexes.out"), &[]);
}

#[test]
fn renamed_relations() {
    check(include_str!("expected/renamed_relations.out"), &[]);
}

#[test]
fn set_schema() {
    check(include_str!("expected/set_schema.out"), &[]);
}

/// Columns of INCLUDE are there after the database was closed, also those of a part of another index.
#[test]
fn included_after_reopening() {
    let folder = tempfile::tempdir().expect("folder");
    for statement in [
        "create table r (a int, b text, c int) partition by range (a)",
        "create table r1 partition of r for values from (0) to (10)",
        "create index on r (b) include (c, a)",
        "create table plain (a int, b jsonb, unique (a) include (b))",
        "create table keyed (a int, b jsonb, primary key (a) include (b))",
    ] {
        let found = answer(&mut connect(folder.path()), statement);
        assert!(!found.iter().any(|line| line.starts_with("ERROR")), "{statement}: {found:?}");
    }
    let mut connection = connect(folder.path());
    let found = answer(&mut connection, "select indexdef from pg_indexes where schemaname = 'public' order by 1");
    let expected = [
        "CREATE INDEX r1_b_c_a_idx ON public.r1 USING btree (b) INCLUDE (c, a)",
        "CREATE INDEX r_b_c_a_idx ON ONLY public.r USING btree (b) INCLUDE (c, a)",
        "CREATE UNIQUE INDEX keyed_pkey ON public.keyed USING btree (a) INCLUDE (b)",
        "CREATE UNIQUE INDEX plain_a_b_key ON public.plain USING btree (a) INCLUDE (b)",
    ];
    assert_eq!(found, expected);
    let found =
        answer(&mut connection, "select inhrelid::regclass from pg_inherits where inhparent = 'r_b_c_a_idx'::regclass");
    assert_eq!(found, ["r1_b_c_a_idx"]);
}

/// A unique index is built partition by partition. If the last one has equal rows, none of the others keeps it.
#[test]
fn a_unique_index_that_fails_on_a_partition_leaves_none() {
    let folder = tempfile::tempdir().expect("folder");
    let mut connection = connect(folder.path());
    for statement in [
        "create table q (a int, b int) partition by range (b)",
        "create table q1 partition of q for values from (0) to (10)",
        "create table q2 partition of q for values from (10) to (20)",
        "insert into q values (1, 1), (2, 2), (5, 15), (5, 15)",
    ] {
        let found = answer(&mut connection, statement);
        assert!(!found.iter().any(|line| line.starts_with("ERROR")), "{statement}: {found:?}");
    }
    for _ in 0..2 {
        let found = answer(&mut connection, "create unique index on q (a, b)");
        assert_eq!(found, ["ERROR 23505: could not create unique index \"q2_a_b_idx\""]);
    }
    assert_eq!(answer(&mut connection, "insert into q values (1, 1)"), ["INSERT 0 1"], "it refuses no row");
    // A definition reads the indexes of the table anew.
    assert_eq!(answer(&mut connection, "create index on q1 (b)"), ["CREATE INDEX"]);
    assert_eq!(answer(&mut connection, "select indexname from pg_indexes where tablename like 'q%'"), ["q1_b_idx"]);
}

/// Partitions, their bounds and keys are there after the database was closed.
#[test]
fn partitions_after_reopening() {
    let folder = tempfile::tempdir().expect("folder");
    {
        let mut connection = connect(folder.path());
        for statement in [
            "create table r (a int, b text, primary key (a)) partition by range (a)",
            "create table r1 partition of r for values from (minvalue) to (10)",
            "create table r2 (b text, a int not null)",
            "alter table r attach partition r2 for values from (10) to (20)",
            "create index on r (b)",
            "create table base (x int check (x > 0) no inherit, y int default 4)",
            "create table below (z int) inherits (base)",
            "insert into r values (1, 'one'), (11, 'eleven')",
            "insert into below values (1, 2, 3)",
            "alter table base add constraint y_small check (y < 10) not valid",
        ] {
            let found = answer(&mut connection, statement);
            assert!(!found.iter().any(|line| line.starts_with("ERROR")), "{statement}: {found:?}");
        }
    }
    let mut connection = connect(folder.path());
    for (statement, expected) in [
        ("select tableoid::regclass, * from r order by a", &["r1|1|one", "r2|11|eleven"][..]),
        (
            "update r set a = a + 10 where a = 1 returning tableoid::regclass",
            &["ERROR 23505: duplicate key value violates unique constraint \"r2_pkey\""],
        ),
        ("insert into r values (20, 'x')", &["ERROR 23514: no partition of relation \"r\" found for row"]),
        (
            "select pg_get_expr(relpartbound, oid) from pg_class where relname = 'r1'",
            &["FOR VALUES FROM (MINVALUE) TO (10)"],
        ),
        ("select x, y from base", &["1|2"]),
        ("select conname, convalidated from pg_constraint where conrelid = 'below'::regclass", &["y_small|f"]),
        ("alter table below drop column y", &["ERROR 42P16: cannot drop inherited column \"y\""]),
        ("drop table r", &["DROP TABLE"]),
        ("select count(*) from pg_class where relname in ('r1', 'r2')", &["0"]),
    ] {
        assert_eq!(answer(&mut connection, statement), expected, "{statement}");
    }
}

#[test]
fn views() {
    check(include_str!("expected/views.out"), &[]);
}

/// WITH CHECK OPTION is there after the database was closed, and the schemas of the view with it.
#[test]
fn check_options_after_reopening() {
    let folder = tempfile::tempdir().expect("folder");
    for statement in [
        "create schema s create table t (a int primary key)",
        "set search_path = s; \
         create view public.v with (security_barrier) as select a from t where a > 0 with check option",
        "create view plain as select a from s.t",
    ] {
        let found = answer(&mut connect(folder.path()), statement);
        assert!(!found.iter().any(|line| line.starts_with("ERROR")), "{statement}: {found:?}");
    }
    let mut connection = connect(folder.path());
    let options =
        "select relname, reloptions from pg_class where relkind = 'v' and relname in ('v', 'plain') order by 1";
    assert_eq!(answer(&mut connection, options), ["plain|NULL", "v|{security_barrier=true,check_option=cascaded}"]);
    let found = answer(&mut connection, "insert into v values (0)");
    assert_eq!(found, ["ERROR 44000: new row violates check option for view \"v\""]);
    assert_eq!(answer(&mut connection, "insert into plain values (0)"), ["INSERT 0 1"]);
}

#[test]
fn samples() {
    check(include_str!("expected/samples.out"), &[]);
}

#[test]
fn view_changes() {
    check(include_str!("expected/view_changes.out"), &[]);
}

#[test]
fn named() {
    check(include_str!("expected/named.out"), &[]);
}

#[test]
fn types() {
    check(include_str!("expected/types.out"), &[]);
}

#[test]
fn zones() {
    check(include_str!("expected/zones.out"), &[]);
}

#[test]
fn arrays() {
    check(include_str!("expected/arrays.out"), &[]);
}

#[test]
fn extremes() {
    check(include_str!("expected/extremes.out"), &[]);
}

#[test]
fn generated() {
    check(include_str!("expected/generated.out"), &[]);
}

#[test]
fn frames() {
    check(include_str!("expected/frames.out"), &[]);
}

#[test]
fn user_types() {
    check(include_str!("expected/user_types.out"), &[]);
}

#[test]
fn spans_of_time() {
    check(include_str!("expected/spans.out"), &[]);
}

#[test]
fn json() {
    check(include_str!("expected/json.out"), &[]);
}

#[test]
fn numbers() {
    check(include_str!("expected/numbers.out"), &[]);
}

#[test]
fn texts() {
    check(include_str!("expected/texts.out"), &[]);
}

#[test]
fn locking() {
    check(include_str!("expected/locking.out"), &[]);
}

/// Tables of one name from two schemas beside each other.
#[test]
fn two_schemas() {
    check(include_str!("expected/two_schemas.out"), &[]);
}

#[test]
fn merge() {
    check(include_str!("expected/merge.out"), &[]);
}

/// Conditions that say when they are tested, recursive queries in parentheses, and TRUNCATE with CASCADE.
#[test]
fn timing() {
    check(include_str!("expected/timing.out"), &[]);
}

#[test]
fn grouping() {
    check(include_str!("expected/grouping.out"), &[]);
}

#[test]
fn subqueries() {
    check(include_str!("expected/subqueries.out"), &[]);
}

#[test]
fn patterns() {
    check(include_str!("expected/patterns.out"), &[]);
}

#[test]
fn temporary() {
    check(include_str!("expected/temporary.out"), &[]);
}

#[test]
fn changes_in_with() {
    check(include_str!("expected/with_changes.out"), &[]);
}

#[test]
fn copies_of_columns_and_limits_of_time() {
    check(include_str!("expected/limits.out"), &[]);
}

/// Types of the database are there after it was closed, and a change that was not committed is not.
#[test]
fn types_after_reopening() {
    let folder = tempfile::tempdir().expect("folder");
    let statements = [
        "create type mood as enum ('sad', 'happy')",
        "alter type mood add value 'fair' before 'happy'",
        "create domain small as int default 3 check (value < 10)",
        "create table t (k int primary key, m mood, n small, l mood[], g int generated always as (k * 2) stored)",
        "insert into t values (1, 'happy', 5, '{sad,fair}'), (2, 'fair', default, null), (3, 'sad', 9, '{}')",
        "begin; alter type mood rename value 'sad' to 'low'; drop domain small cascade",
    ];
    {
        let mut connection = connect(folder.path());
        for statement in statements {
            let found = answer(&mut connection, statement);
            assert!(!found.iter().any(|line| line.starts_with("ERROR")), "{statement}: {found:?}");
        }
    }
    let mut connection = connect(folder.path());
    for (statement, expected) in [
        ("select * from t order by m", &["3|sad|9|{}|6", "2|fair|3|NULL|4", "1|happy|5|{sad,fair}|2"][..]),
        ("insert into t values (4, 'glad')", &["ERROR 22P02: invalid input value for enum mood: \"glad\""]),
        (
            "insert into t values (4, 'sad', 10)",
            &["ERROR 23514: value for domain small violates check constraint \"small_check\""],
        ),
        ("alter type mood add value 'glad' after 'happy'", &["ALTER TYPE"]),
        ("insert into t values (4, 'glad') returning *", &["4|glad|3|NULL|8", "INSERT 0 1"]),
        ("select enum_range(null::mood)", &["{sad,fair,happy,glad}"]),
    ] {
        assert_eq!(answer(&mut connection, statement), expected, "{statement}");
    }
}

#[test]
fn own_changes() {
    check(include_str!("expected/own_changes.out"), &[]);
}

/// One notice tells all that went with an object, as PostgreSQL's does.
#[test]
fn notice_of_a_cascade() {
    let folder = tempfile::tempdir().expect("folder");
    let mut connection = connect(folder.path());
    for statement in [
        "create domain small as int",
        "create table t (k int primary key, n small, g int generated always as (k * 2 + '3'::small) stored)",
        "drop domain small cascade",
    ] {
        let found = answer(&mut connection, statement);
        assert!(!found.iter().any(|line| line.starts_with("ERROR")), "{statement}: {found:?}");
    }
    let notices = connection.take_notices();
    let fields: Vec<_> = notices.iter().flat_map(lodestone_sql_types::Error::fields).collect();
    let expected = "drop cascades to column n of table t\ndrop cascades to column g of table t";
    assert!(fields.contains(&(b'M', "drop cascades to 2 other objects".into())), "{fields:?}");
    assert!(fields.contains(&(b'D', expected.into())), "{fields:?}");
    assert_eq!(notices.len(), 1);
}

/// Types of rows, rows as values, and tables with them.
#[test]
fn rows() {
    // The first column that is found is named, and there the order is another one.
    let used = ["ERROR 0A000: cannot alter type \"small\" because column \"tests.t\" uses it"];
    check(include_str!("expected/rows.out"), &[("alter domain small add check (value > 0)", &used)]);
}

/// Rows that an outer join did not find, the order of joins, and conditions that are true for no row.
#[test]
fn constants() {
    check(include_str!("expected/constants.out"), &[]);
}

#[test]
fn joins() {
    check(include_str!("expected/joins.out"), &[]);
}

#[test]
fn comments() {
    check(include_str!("expected/comments.out"), &[]);
}

/// A comment is there after the database was closed, and one that was not committed is not.
#[test]
fn comments_after_reopening() {
    let folder = tempfile::tempdir().expect("folder");
    {
        let mut connection = connect(folder.path());
        for statement in [
            "create table t (a int, b int)",
            "comment on table t is 'a table'",
            "comment on column t.b is 'B'",
            "begin; comment on table t is 'not kept'; comment on column t.a is 'A'",
        ] {
            let found = answer(&mut connection, statement);
            assert!(!found.iter().any(|line| line.starts_with("ERROR")), "{statement}: {found:?}");
        }
    }
    let mut connection = connect(folder.path());
    let found =
        answer(&mut connection, "select objsubid, description from pg_description where objoid >= 16384 order by 1");
    assert_eq!(found, ["0|a table", "2|B"]);
}

#[test]
fn deferrable_keys() {
    check(include_str!("expected/deferrable_keys.out"), &[]);
}

#[test]
fn small_gaps() {
    check(include_str!("expected/small_gaps.out"), &[]);
}

#[test]
fn recursion() {
    check(include_str!("expected/recursion.out"), &[]);
}

#[test]
fn judged() {
    check(include_str!("expected/judged.out"), &[]);
}

#[test]
fn ties() {
    check(include_str!("expected/ties.out"), &[]);
}

#[test]
fn zoned_times() {
    check(include_str!("expected/zoned_times.out"), &[]);
}

#[test]
fn standard_forms() {
    check(include_str!("expected/standard_forms.out"), &[]);
}

#[test]
fn texts_of_values() {
    check(include_str!("expected/texts_of_values.out"), &[]);
}
