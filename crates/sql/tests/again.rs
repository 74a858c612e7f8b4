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
        ("select count(*) from t a full join t b on (select min(k) from t) > 1", "400"),
    ]);
}
