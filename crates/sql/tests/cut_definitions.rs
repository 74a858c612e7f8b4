//! A definition that a crash cuts off while the engine builds its indexes leaves none of them.
//!
//! Before: the indexes of a partitioned table are built one after the other, by transactions of the engine. A crash
//! between two of them left unique indexes which no view showed, and which refused rows for ever.

use std::path::Path;

use lodestone_engine::{DatabaseOptions, Index};
use lodestone_pmem::{DomainChoice, PoolOptions};
use lodestone_sql::Database;
use lodestone_sql_types::SqlState;

fn engine(folder: &Path) -> lodestone_engine::Database {
    let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
    let options = DatabaseOptions { pool, log_bytes: 2 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
    lodestone_engine::Database::open_with(folder.join("a.pool"), &options).expect("open")
}

fn database(engine: lodestone_engine::Database) -> Database {
    Database::new(engine, "read committed").expect("SQL")
}

/// The indexes that the engine has on the table.
fn indexes(engine: &lodestone_engine::Database, table: &str) -> Vec<String> {
    let table = engine.table(table).expect("table");
    table.schema().indexes().iter().map(|index| index.name.clone()).collect()
}

/// Cuts `statement` off when the engine has an index on the table `seen`, and opens the database again.
/// Whether the crash came between.
fn cut(statement: &str, seen: &str) -> bool {
    let folder = tempfile::tempdir().expect("folder");
    {
        let database = database(engine(folder.path()));
        let mut connection = database.connect("app", "shop");
        for statement in [
            "create table q (a int, b int) partition by range (b)",
            "create table q1 partition of q for values from (0) to (10)",
            "create table q2 partition of q for values from (10) to (20)",
            "insert into q select g, 1 from generate_series(1, 4000) g",
            "insert into q values (1, 15), (1, 15)",
        ] {
            connection.run(statement).expect(statement);
        }
        // The library's own index is one that SQL has not noted either.
        database.engine().create_index("q2", &Index::new("of_the_library", ["a"])).expect("index");
        std::thread::scope(|scope| {
            let run = scope.spawn(|| connection.run(statement));
            while indexes(database.engine(), seen).is_empty() && !run.is_finished() {
                std::hint::spin_loop();
            }
            database.abandon();
            run.join().expect("no panic").expect_err("equal rows, or a crash");
        });
    }
    let engine = engine(folder.path());
    let was_between = !indexes(&engine, seen).is_empty();
    let database = database(engine);
    let mut connection = database.connect("app", "shop");
    for (table, expected) in [("q", &[][..]), ("q1", &[]), ("q2", &["of_the_library"])] {
        assert_eq!(indexes(database.engine(), table), expected, "{table} after {statement}");
    }
    connection.run("insert into q values (1, 1)").expect("no index refuses it");
    // The next one is a definition like any other.
    let error = connection.run(statement).expect_err("equal rows");
    assert_eq!(error.state(), SqlState::UNIQUE_VIOLATION);
    connection.run("delete from q where a = 1").expect("delete");
    connection.run(statement).expect("no equal rows");
    drop(connection);
    drop(database);
    let database = self::database(self::engine(folder.path()));
    assert_eq!(indexes(database.engine(), "q1").len(), 1, "an index that was committed stays");
    was_between
}

#[test]
fn a_definition_that_a_crash_cuts_off_leaves_no_index() {
    for statement in ["create unique index on q (a, b)", "alter table q add unique (a, b)"] {
        for seen in ["q", "q1"] {
            assert!((0..20).any(|_| cut(statement, seen)), "no crash came between: {statement}, {seen}");
        }
    }
}
