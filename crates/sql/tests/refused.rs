//! Statements that are not built are refused by name, with a position; deep ones by a limit, and nothing overflows.

use lodestone_engine::DatabaseOptions;
use lodestone_pmem::{DomainChoice, PoolOptions};
use lodestone_sql::{Connection, Database};

fn connect() -> (tempfile::TempDir, Connection) {
    let folder = tempfile::tempdir().expect("folder");
    let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
    let options = DatabaseOptions { pool, log_bytes: 1 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
    let engine = lodestone_engine::Database::open_with(folder.path().join("a.pool"), &options).expect("open");
    let mut connection = Database::new(engine, "serializable").expect("catalog").connect("root", "shop");
    connection.run("create table t (k int primary key, v text); create table j (b jsonb)").expect("create");
    (folder, connection)
}

#[test]
fn everything_that_is_missing_is_named() {
    let (_folder, mut connection) = connect();
    for (text, name) in [
        ("select * from t tablesample system (10 rows)", "TABLESAMPLE"),
        ("create index on j (b)", "jsonb"),
        ("create table x (n numeric(50, 2) primary key)", "numeric"),
        ("copy t to stdout", "COPY TO"),
        ("copy t from '/etc/passwd'", "file"),
        ("create table x (a interval) partition by hash (a)", "hash"),
        ("create table x (a t)", "a column of type t"),
        ("create type x as (a int); create table y (a x primary key)", "key or index"),
        ("create domain d as int; create table x (a d[])", "domain"),
        ("create role x valid until 'tomorrow'", "VALID"),
        ("create function f() returns int as 'select 1' language sql", ""),
        ("create index on t (lower(v))", "expression"),
        ("create index on t (k) where k > 1", "partial"),
        ("create index on t using gin (v)", "btree"),
        ("grant select on t to x", "GRANT"),
        ("listen x", "LISTEN"),
        ("alter table t alter column k drop identity", "DROP IDENTITY"),
        ("alter table t alter v set storage plain", "SET STORAGE"),
        ("alter table t alter v set statistics 100", "SET STATISTICS"),
        ("create cast (int as date) without function", "CREATE CAST"),
        ("drop statistics x", "DROP STATISTICS"),
        ("begin; lock table pg_class", "LOCK TABLE"),
        ("do $$ begin end $$", "DO"),
        ("truncate t restart identity", "RESTART"),
    ] {
        let error = connection.run(text).expect_err(text);
        assert_eq!(error.state().code(), "0A000", "{text}: {error}");
        assert!(error.to_string().to_lowercase().contains(&name.to_lowercase()), "{text}: {error}");
        let _ = connection.run("rollback");
    }
    assert_eq!(connection.run("select count(*) from t").expect("it goes on")[0].rows[0][0].as_deref(), Some("0"));
}

/// The reasons for which `PostgreSQL` refuses the change of a view, in its words.
#[test]
fn a_view_that_takes_no_changes_says_why() {
    let (_folder, mut connection) = connect();
    for (view, why) in [
        ("select distinct k from t", "containing DISTINCT"),
        ("select k from t group by k", "containing GROUP BY"),
        ("select 1 from t having true", "containing HAVING"),
        ("select k from t union select 1", "containing UNION, INTERSECT, or EXCEPT"),
        ("with q as (select 1) select k from t", "containing WITH"),
        ("select k from t limit 1", "containing LIMIT or OFFSET"),
        ("(select k from t) offset 1", "containing LIMIT or OFFSET"),
        ("select max(k) from t", "that return aggregate functions"),
        ("select k, rank() over () from t", "that return window functions"),
        ("select generate_series(1, k) from t", "that return set-returning functions"),
        ("select t.k from t, t u", "that do not select from a single table or view"),
        ("values (1)", "that do not select from a single table or view"),
        ("select k + 1 as k from t", "that have no updatable columns"),
        ("select k from t tablesample system (50)", "containing TABLESAMPLE"),
    ] {
        connection.run(&format!("create or replace view v as {view}")).expect(view);
        let error = connection.run("insert into v values (1)").expect_err(view);
        assert_eq!(error.state().code(), "55000", "{view}: {error}");
        assert_eq!(error.message(), "cannot insert into view \"v\"");
        let reason = format!("Views {why} are not automatically updatable.");
        let told: Vec<String> = error.fields().map(|(_, text)| text).collect();
        assert!(told.contains(&reason), "{view}: {told:?}");
        let hint = "To enable inserting into the view, provide an INSTEAD OF INSERT trigger or an unconditional ON \
                    INSERT DO INSTEAD rule.";
        assert_eq!(error.hint_text(), Some(hint));
        let error = connection.run(&format!("create view w as {view} with check option")).expect_err(view);
        assert_eq!((error.state().code(), error.hint_text()), ("0A000", Some(reason.as_str())), "{view}: {error}");
        connection.run("drop view v").expect("drop");
    }
    connection.run("create view v as select k, upper(v) as u from t where k > 0 with check option").expect("view");
    let error = connection.run("update v set u = 'a'").expect_err("a computed column");
    let told: Vec<String> = error.fields().map(|(_, text)| text).collect();
    assert!(told.iter().any(|text| text.starts_with("View columns that are not columns of their base")), "{told:?}");
    let error = connection.run("insert into v (k) values (-1)").expect_err("a row that it does not show");
    let told: Vec<String> = error.fields().map(|(_, text)| text).collect();
    assert!(told.contains(&"Failing row contains (-1, null).".to_owned()), "{told:?}");
}

/// A change of a view finds its row by the key of the table, also where the view computes columns, or is over another.
#[test]
fn a_change_of_a_view_uses_the_key_of_its_table() {
    let (_folder, mut connection) = connect();
    let views = "create view v as select v as w, upper(v) as u, k as n from t where v <> 'x'; \
                 create view above as select n, u, w from v where u <> 'Y'";
    connection.run(views).expect("views");
    for text in ["update v set w = 'z' where n = 7", "delete from above where n = 7 and w > 'a'"] {
        let answers = connection.run(&format!("explain {text}")).expect(text);
        let lines: Vec<String> = answers[0].rows.iter().filter_map(|row| row[0].clone()).collect();
        assert!(lines.iter().any(|line| line.contains("Index Scan using t_pkey")), "{text}: {lines:?}");
    }
}

#[test]
fn deep_statements_are_refused_and_long_ones_are_not() {
    // As much stack as a loop of the server has.
    let deep = || {
        let (_folder, mut connection) = connect();
        let chain = |count: usize, part: &str| format!("select 1{}", part.repeat(count));
        for part in [" + 1", " - 1", " = 1 or true", "::int::int", " union select 1", " and 1 = 1"] {
            let text = chain(3_000, part);
            assert_eq!(connection.run(&text).expect_err(part).state().code(), "54001", "{part}");
        }
        assert_eq!(connection.run(&chain(490, " + 1")).expect("short enough")[0].rows[0][0].as_deref(), Some("491"));
        for (open, close) in [("(", ")"), ("(select ", ")"), ("abs(", ")"), ("array[", "]"), ("- ", ""), ("not ", "")] {
            let text = format!("select {}1{}", open.repeat(3_000), close.repeat(3_000));
            let code = connection.run(&text).expect_err(open).state().code();
            assert!(matches!(code, "54001" | "42804" | "42601"), "{open}: {code}");
            let text = format!("select {}1{}", open.repeat(10), close.repeat(10));
            let _ = connection.run(&text);
        }
        let list = vec!["1"; 20_000].join(", ");
        let found = connection.run(&format!("select 1 in ({list})")).expect("a list is not deep");
        assert_eq!(found[0].rows[0][0].as_deref(), Some("t"));
        let rows: Vec<String> = (0..2_000).map(|k| format!("({k}, 'v' || {k})")).collect();
        let found = connection.run(&format!("insert into t values {}", rows.join(", "))).expect("many rows");
        assert_eq!(found[0].tag, "INSERT 0 2000");
    };
    std::thread::Builder::new().stack_size(16 << 20).spawn(deep).expect("a thread").join().expect("no panic");
}

#[test]
fn values_have_limits() {
    let (_folder, mut connection) = connect();
    let deep = |count: usize| format!("'{}{}'::jsonb", "[".repeat(count), "]".repeat(count));
    let (least, most) = (deep(1), deep(501));
    for (text, code) in [
        (format!("select {most} || {most}"), ""),
        (format!("insert into j values ({most})"), ""),
        ("select b = b from j".into(), ""),
        (format!("select jsonb_build_array({most})"), "54001"),
        (format!("select json_build_object('a', {most})"), "54001"),
        (format!("select jsonb_agg({most})"), "54001"),
        (format!("select to_json(array[{most}])"), "54001"),
        (format!("select jsonb_set({least}, '{{0}}', {most})"), "54001"),
        (format!("select jsonb_insert({least}, '{{0}}', {most})"), "54001"),
        (format!("select '{{}}'::jsonb || {most} || '{{}}'::jsonb"), ""),
        (format!("select {most} || jsonb_build_array('[1]'::jsonb)"), ""),
        (
            "with recursive r(n, x) as (select 1, row(1) union all select n + 1, row(x) from r where n < 100000) \
             select count(*) from r"
                .into(),
            "42804",
        ),
        ("select '[1e131072]'::jsonb".into(), "22003"),
        ("select array_fill(repeat('x', 1000000), array[1000000])".into(), "54000"),
        ("select format('%1000000000s', 'x')".into(), "54000"),
        ("select repeat('x', 1000000000)".into(), "54000"),
        ("select lpad('x', 1000000000)".into(), "54000"),
        ("select replace(repeat('x', 1000000), 'x', repeat('y', 1000))".into(), "54000"),
        ("select date '5874897-12-31' + 1".into(), "22008"),
        ("select interval '2147483647 days' * 2".into(), "22008"),
        ("select interval '9223372036854775807 months ago'".into(), "22015"),
        ("select date '9000000000000000000-01-01 BC'".into(), "22008"),
        ("select timezone('+\u{e9}', timestamp '2024-01-01')".into(), "22023"),
        ("with x as (insert into t values (9) returning (select count(*) from t)) select * from x".into(), "0A000"),
    ] {
        let found = connection.run(&text).map_or_else(|error| error.state().code().to_owned(), |_| String::new());
        let shown: String = text.chars().take(80).collect();
        assert_eq!(found, code, "{shown}");
    }
}

#[test]
fn errors_have_the_place_in_the_statement() {
    let (_folder, mut connection) = connect();
    for (text, position) in [
        ("select nosuch from t", 8),
        ("select 1,\n  nosuch from t", 13),
        ("select * from nosuch", 15),
        ("selec 1", 1),
        ("select 1 from t where", 22),
        ("insert into t (nosuch) values (1)", 16),
        ("select lower(1, 2)", 8),
        ("select row_number() over () from t where rank() over () = 1", 42),
        ("select 'x'::int", 8),
    ] {
        let error = connection.run(text).expect_err(text);
        assert_eq!(error.position(), Some(position), "{text}: {error}");
    }
}

#[test]
fn discard_all_returns_to_the_beginning_of_the_session() {
    let (_folder, mut connection) = connect();
    connection.set("default_transaction_isolation", "read committed").expect("a setting");
    for text in [
        "create temp table x (a int)",
        "create sequence s",
        "select nextval('s')",
        "set statement_timeout = 5000",
        "set default_transaction_isolation = 'serializable'",
    ] {
        connection.run(text).expect(text);
    }
    connection.set_patient(false);
    assert_eq!(connection.run("discard all").expect("it runs")[0].tag, "DISCARD ALL");
    for (name, value) in [("default_transaction_isolation", "read committed"), ("statement_timeout", "0")] {
        let found = connection.run(&format!("show {name}")).expect("a setting");
        assert_eq!(found[0].rows[0][0].as_deref(), Some(value), "{name}");
    }
    assert_eq!(connection.run("select currval('s')").expect_err("forgotten").state().code(), "55000");
    assert_eq!(connection.run("select * from x").expect_err("dropped").state().code(), "42P01");
}
