//! Subqueries that run for each of many rows, and queries that only their LIMIT ends.
//!
//! These forms of `PostgreSQL`'s regression files took as many steps as there are pairs or triples of rows, or did not
//! end.

use lodestone_engine::DatabaseOptions;
use lodestone_pmem::{DomainChoice, PoolOptions};
use lodestone_sql::{Connection, Database};

/// Rows of the table. Each pair of them once is more than the time limit allows.
const ROWS: usize = 3000;

fn connect(folder: &std::path::Path) -> Connection {
    let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
    let options = DatabaseOptions { pool, log_bytes: 4 << 20, segment_bytes: 1 << 18, ..DatabaseOptions::default() };
    let engine = lodestone_engine::Database::open_with(folder.join("a.pool"), &options).expect("open");
    let mut connection = Database::new(engine, "read committed").expect("catalog").connect("root", "shop");
    connection.run("create table t (a int, b int, c int)").expect("a table");
    let fill = format!("insert into t select g, {ROWS} - 1 - g, g % 300 from generate_series(0, {ROWS} - 1) g");
    connection.run(&fill).expect("rows");
    connection.run("set statement_timeout = '10s'").expect("a limit");
    connection
}

#[test]
fn a_subquery_of_each_row_reads_its_table_once() {
    let folder = tempfile::tempdir().expect("folder");
    let mut connection = connect(folder.path());
    for (query, expected) in [
        // The value of a partner without an index.
        ("select sum((select i.b from t i where i.a = o.b)) from t o", "4498500"),
        ("select count(*) from t o where (select max(i.a) from t i where i.c = o.c) = o.a", "300"),
        // Two conditions of the outer query, of which one names no column of the inner one.
        (
            "select count(*) from t x, t y where x.c = y.c and exists (select 1 from t c where y.b = c.b and not \
             exists (select 1 from t d where d.a = x.a))",
            "0",
        ),
        ("select count(*) from t o where o.b not in (select i.a from t i where i.c = o.c)", "3000"),
        ("select count(*) from t o, lateral (select i.a from t i where i.a = o.b) s", "3000"),
    ] {
        let answers = connection.run(query).unwrap_or_else(|error| panic!("{query}: {error:?}"));
        assert_eq!(answers[0].rows, [[Some(expected.to_owned())]], "{query}");
    }
}

#[test]
fn a_limit_ends_a_recursive_query_inside_another_one() {
    let folder = tempfile::tempdir().expect("folder");
    let mut connection = connect(folder.path());
    let query = "with recursive q as (select a from t where a < 8 union all (with recursive x as (select a from t \
                 where a < 8 union all (select * from q union all select * from x)) select * from x)) \
                 select * from q limit 32";
    let rows = &connection.run(query).expect("it ends")[0].rows;
    let expected = (0..32).map(|row| vec![Some((row % 8).to_string())]).collect::<Vec<_>>();
    assert_eq!(*rows, expected);
    // One without a limit can be ended.
    connection.run("set statement_timeout = 100").expect("a limit");
    let endless = "with recursive q(a) as (select 1 union all select * from q) select * from q where ";
    let error = connection.run(&format!("{endless}a = 2"));
    assert_eq!(error.expect_err("it has no end").state().code(), "57014");
    // A condition that is false for every row is tested before the first one.
    assert!(connection.run(&format!("{endless}false")).expect("it does not begin")[0].rows.is_empty());
}
