//! Tables without columns, against what PostgreSQL 15 answers.

use lodestone_engine::DatabaseOptions;
use lodestone_pmem::{DomainChoice, PoolOptions};
use lodestone_sql::{Connection, Database};

fn open(folder: &std::path::Path) -> Connection {
    let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
    let options = DatabaseOptions { pool, log_bytes: 1 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
    let engine = lodestone_engine::Database::open_with(folder.join("a.pool"), &options).expect("open");
    Database::new(engine, "serializable").expect("catalog").connect("", "")
}

/// The tag, or the state of the error.
fn run(connection: &mut Connection, text: &str) -> String {
    match connection.run(text) {
        Ok(answers) => answers.last().map(|answer| answer.tag.clone()).unwrap_or_default(),
        Err(error) => error.state().code().to_owned(),
    }
}

fn count(connection: &mut Connection, table: &str) -> Option<String> {
    connection.run(&format!("select count(*) from {table}")).expect("a count")[0].rows[0][0].clone()
}

#[test]
fn a_table_without_columns_has_rows() {
    let folder = tempfile::tempdir().expect("folder");
    let mut connection = open(folder.path());
    for (text, tag) in [
        ("create table e ()", "CREATE TABLE"),
        ("create table if not exists e ()", "CREATE TABLE"),
        ("create table e ()", "42P07"),
        ("select from e", "SELECT 0"),
        ("insert into e default values", "INSERT 0 1"),
        ("insert into e default values", "INSERT 0 1"),
        ("insert into e default values returning *", "42601"),
        ("insert into e values (1)", "42601"),
        ("select * from e", "SELECT 2"),
        ("select e.* from e", "SELECT 2"),
        ("select z.* from e", "42P01"),
        ("select *", "42601"),
        ("select * from e, e z", "SELECT 4"),
        ("select x from e", "42703"),
        ("insert into e select from e", "INSERT 0 2"),
        ("select from e union all select * from e", "SELECT 8"),
        ("select exists (select * from e)", "SELECT 1"),
        ("create table f as select from e", "SELECT 4"),
        ("create table g (like e)", "CREATE TABLE"),
        ("create table h (a int, k int primary key) inherits (e)", "CREATE TABLE"),
        ("insert into h values (1, 1)", "INSERT 0 1"),
        ("select * from e", "SELECT 5"),
        ("select * from only e", "SELECT 4"),
        ("create index on e (x)", "42703"),
        ("update e set x = 1", "42703"),
        ("begin; delete from e; rollback", "ROLLBACK"),
    ] {
        assert_eq!(run(&mut connection, text), tag, "{text}");
    }
    drop(connection);
    let mut connection = open(folder.path());
    assert_eq!([count(&mut connection, "e"), count(&mut connection, "f")], [Some("5".into()), Some("4".into())]);
    for (text, tag) in [
        ("select * from pg_class c join pg_type t on t.oid = c.reltype where relname = 'f'", "SELECT 1"),
        ("select from pg_attribute where attrelid = 'f'::regclass", "SELECT 0"),
        ("select from information_schema.columns where table_name = 'f'", "SELECT 0"),
        ("alter table f add column a int default 7", "ALTER TABLE"),
        ("select from f where a = 7", "SELECT 4"),
        ("insert into f values (1)", "INSERT 0 1"),
        ("alter table f drop column a", "ALTER TABLE"),
        ("select * from f", "SELECT 5"),
        ("insert into f default values", "INSERT 0 1"),
        ("alter table f add column k int primary key", "23502"),
        ("truncate f", "TRUNCATE TABLE"),
        ("alter table f add column k int primary key", "ALTER TABLE"),
        ("insert into f values (3), (4)", "INSERT 0 2"),
        ("alter table f drop column k", "ALTER TABLE"),
        ("insert into f default values", "INSERT 0 1"),
        ("select * from f", "SELECT 3"),
        ("table f", "SELECT 3"),
        ("delete from f", "DELETE 3"),
        ("drop table e cascade", "DROP TABLE"),
    ] {
        assert_eq!(run(&mut connection, text), tag, "{text}");
    }
}
