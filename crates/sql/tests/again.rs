//! Work that a statement must not do again and again: each of these took minutes.
//!
//! A table has 200 rows, so three of them make 8,000,000 triples.

use lodestone_engine::DatabaseOptions;
use lodestone_pmem::{DomainChoice, PoolOptions};
use lodestone_sql::{Connection, Database};

fn connect() -> (tempfile::TempDir, Connection) {
    let folder = tempfile::tempdir().expect("folder");
    let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
    let options = DatabaseOptions { pool, log_bytes: 1 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
    let engine = lodestone_engine::Database::open_with(folder.path().join("a.pool"), &options).expect("open");
    let mut connection = Database::new(engine, "read committed").expect("catalog").connect("root", "shop");
    let made =
        "create table t (k int primary key, g int); insert into t select n, n % 3 from generate_series(1, 200) n";
    connection.run(made).expect("a table");
    connection.run("set statement_timeout = '10s'").expect("a limit");
    (folder, connection)
}

fn check(statements: &[(&str, &str)]) {
    let (_folder, mut connection) = connect();
    check_on(&mut connection, statements);
}

fn check_on(connection: &mut Connection, statements: &[(&str, &str)]) {
    for (statement, expected) in statements {
        let answers = connection.run(statement).unwrap_or_else(|error| panic!("{statement}: {error}"));
        assert_eq!(answers[0].rows[0][0].as_deref(), Some(*expected), "{statement}");
    }
}

#[test]
fn a_subquery_that_names_a_row_further_out_runs_once_for_that_row() {
    check(&[
        (
            "select count(*) from t a where exists (select from t b where b.k > (select max(c.k) from t c where c.k \
             <> a.k))",
            "1",
        ),
        (
            "select count(*) from t a where not exists (select from t b where -b.k in (select c.k from t c where c.k \
             <> a.k))",
            "200",
        ),
    ]);
}

#[test]
fn a_subquery_runs_once_for_equal_values_of_the_row() {
    check(&[("select count(distinct (select count(*) from t b join t c on b.k + c.k > 400 - a.g)) from t a", "3")]);
}

#[test]
fn the_right_side_of_a_join_in_a_subquery_is_read_once() {
    check(&[(
        "select sum((select count(*) from t b join (select c.k from t c join t d on c.k + d.k < 3) e on e.k = b.k + \
         a.k - 1))
         from t a",
        "1",
    )]);
}

#[test]
fn a_lateral_side_that_does_not_depend_on_the_row_is_read_twice_at_most() {
    check(&[("select sum(s.n) from t a, lateral (select count(*) as n from t c join t d on c.k + d.k < 3) s", "200")]);
}

#[test]
fn a_condition_without_columns_is_tested_before_the_rows_of_a_join() {
    check(&[
        ("select count(*) from t a, t b, t c where exists (select from t d where d.k < 0)", "0"),
        ("select count(*) from t a join t b on a.k <> b.k join t c on (select min(k) from t) > 1", "0"),
        ("select count(*) from t a left join (t b join t c on b.k <> c.k) on (select min(k) from t) > 1", "200"),
        ("select count(*) from (t b join t c on b.k <> c.k) right join t a on (select min(k) from t) > 1", "200"),
    ]);
}

#[test]
fn a_condition_without_columns_is_tested_before_a_view_is_computed() {
    let view = "create view v as select a.g, count(*) as n from t a join t b on a.k <> b.k join t c on b.k <> c.k \
                group by a.g";
    let (_folder, mut connection) = connect();
    connection.run(view).expect("a view");
    check_on(&mut connection, &[("select count(*) from v where (select min(k) from t) > 1", "0")]);
}

#[test]
fn columns_of_exists_are_not_computed() {
    check(&[
        (
            "select count(*) from t a where exists (select b.k, a.k, 1 / (a.k - a.k) from t b join t c on b.k + c.k < \
             3 limit 5)",
            "200",
        ),
        ("select count(*) from t a where exists (select a.k from t limit 0)", "0"),
        ("select count(*) from t a where exists (select a.k from t limit 5 offset 200)", "0"),
    ]);
}

#[test]
fn a_limit_ends_a_right_join() {
    check(&[
        (
            "select count(*) from (select from t a right join (t b join t c on b.k <> c.k join t d on c.k <> d.k) on \
             a.k = d.k limit 100) s",
            "100",
        ),
        ("select count(*) from t a right join t b on a.k = b.k + 1", "200"),
        ("select count(*) from t a right join t b on a.k > b.k + 190", "236"),
    ]);
}
