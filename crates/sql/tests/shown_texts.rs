//! Texts of views, as a session reads them: with the schemas that its search path needs, and with the names of columns.
//! `PostgreSQL` writes views in another form, so its answers are no measure here. A view that is made of the text is.

use lodestone_engine::DatabaseOptions;
use lodestone_pmem::{DomainChoice, PoolOptions};
use lodestone_sql::{Connection, Database};

fn connect(folder: &std::path::Path) -> Connection {
    let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
    let options = DatabaseOptions { pool, log_bytes: 1 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
    let engine = lodestone_engine::Database::open_with(folder.join("a.pool"), &options).expect("open");
    Database::new(engine, "read committed").expect("catalog").connect("root", "shop")
}

fn cell(connection: &mut Connection, statement: &str) -> String {
    let answers = connection.run(statement).unwrap_or_else(|error| panic!("{statement}: {error}"));
    let answer = answers.last().expect("an answer");
    answer.rows[0][0].clone().expect("a value")
}

#[test]
fn a_view_is_shown_with_schemas_and_names_of_columns() {
    let folder = tempfile::tempdir().expect("folder");
    let mut connection = connect(folder.path());
    let made = "create type mood as enum ('sad', 'ok'); create schema side; create table side.t (id int, m mood); \
                create table w (id int); create sequence numbers; set search_path = side, public";
    connection.run(made).expect("objects");
    for (definition, text) in [
        ("as select t.id from t where m = 'ok'::mood", " SELECT t.id FROM side.t WHERE m = 'ok'::public.mood;"),
        ("(a, b) as select id, m as c from t", " SELECT id AS a, m AS b FROM side.t;"),
        (
            "as with w as (select id from w) select id from w where id in (select id from t)",
            " WITH w AS (SELECT id FROM public.w) SELECT id FROM w WHERE id IN (SELECT id FROM side.t);",
        ),
        (
            "as with recursive w as (select 1 as n union all select n + 1 from w where n < 3) select n from w",
            " WITH RECURSIVE w AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM w WHERE n < 3) SELECT n FROM w;",
        ),
        (
            "(a) as (select id from t) union select id from w",
            " SELECT * FROM ((SELECT id FROM side.t) UNION SELECT id FROM public.w) AS v(a);",
        ),
        ("as select nextval('numbers') as n", " SELECT nextval('public.numbers'::regclass) AS n;"),
        ("(a) as values (1), (2)", " SELECT * FROM (VALUES (1), (2)) AS v(a);"),
        ("as values (1), (2)", " VALUES (1), (2);"),
    ] {
        connection.run("set search_path = side, public").expect("a setting");
        connection.run(&format!("create view v {definition}")).expect("a view");
        let names = "select string_agg(attname || atttypid, ',' order by attnum) from pg_attribute where attrelid = ";
        connection.run("set search_path = ''").expect("a setting");
        let shown = cell(&mut connection, "select pg_get_viewdef('side.v'::regclass)");
        assert_eq!(shown, text);
        // The text makes the same view wherever it is read.
        connection.run(&format!("create view public.again as {shown}")).expect("the same view");
        let one = cell(&mut connection, &format!("{names} 'side.v'::regclass"));
        let two = cell(&mut connection, &format!("{names} 'public.again'::regclass"));
        assert_eq!(one, two);
        connection.run("drop view side.v, public.again").expect("no views");
    }
}

/// Forms that the parser does not read stand in texts as they were written, and not as what it reads instead.
#[test]
fn forms_of_the_standard_are_shown_as_such() {
    let folder = tempfile::tempdir().expect("folder");
    let mut connection = connect(folder.path());
    let made = "create table t (n int check (n between symmetric 9 and 1), \
                a text default U&'\\0041''' || format('%s', variadic array['b'])); \
                create view v as select n from t where n between symmetric n + 1 and 2";
    connection.run(made).expect("objects");
    let mut shown = |query: &str| cell(&mut connection, query);
    assert_eq!(shown("select pg_get_constraintdef(oid) from pg_constraint"), "CHECK ((n BETWEEN SYMMETRIC (9) AND 1))");
    assert_eq!(
        shown("select pg_get_expr(adbin, adrelid) from pg_attrdef"),
        "'A''' || format('%s', VARIADIC (ARRAY['b']))"
    );
    let view = " SELECT n FROM t WHERE n BETWEEN SYMMETRIC (n + 1) AND 2;";
    assert_eq!(shown("select pg_get_viewdef('v'::regclass)"), view);
    assert_eq!(shown("insert into t values (3) returning a"), "A'b");
    assert_eq!(shown(&format!("create or replace view v as {view} select n from v")), "3");
}
