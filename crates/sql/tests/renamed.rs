//! Names of sequences that change, and the roles of OWNER TO, as another session and a later start see them.

use std::path::Path;

use lodestone_engine::DatabaseOptions;
use lodestone_pmem::{DomainChoice, PoolOptions};
use lodestone_sql::{Connection, Database};

fn open(folder: &Path) -> Database {
    let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
    let options = DatabaseOptions { pool, log_bytes: 1 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
    let engine = lodestone_engine::Database::open_with(folder.join("a.pool"), &options).expect("open");
    Database::new(engine, "read committed").expect("catalog")
}

fn value(connection: &mut Connection, statement: &str) -> String {
    let answers = connection.run(statement).unwrap_or_else(|error| panic!("{statement}: {error}"));
    answers[0].rows[0][0].clone().unwrap_or_default()
}

fn code(connection: &mut Connection, statement: &str) -> &'static str {
    connection.run(statement).expect_err(statement).state().code()
}

#[test]
fn a_sequence_has_its_new_name_in_other_sessions_and_after_a_start() {
    let folder = tempfile::tempdir().expect("folder");
    {
        let database = open(folder.path());
        let mut one = database.connect("root", "shop");
        let mut two = database.connect("root", "shop");
        one.run(
            "create schema side; create sequence side.old; create table t (k int default nextval('side.old'), l text)",
        )
        .expect("a table");
        one.run("create table u (k int check (k <> currval('side.old')))").expect("another one");
        one.run("comment on sequence side.old is 'numbers'; insert into t values (default, 'a')").expect("a row");
        assert_eq!(value(&mut two, "insert into t (l) values ('b') returning k"), "2");
        one.run("alter sequence side.old rename to new").expect("another name");
        assert_eq!(value(&mut two, "insert into t (l) values ('c') returning k"), "3");
        assert_eq!(code(&mut two, "insert into u values (3)"), "23514");
        assert_eq!(code(&mut two, "select nextval('side.old')"), "42P01");
    }
    let database = open(folder.path());
    let mut three = database.connect("root", "shop");
    let next: i64 = value(&mut three, "insert into t (l) values ('d') returning k").parse().expect("a number");
    assert!(next > 3, "{next} was there before");
    assert_eq!(value(&mut three, "select obj_description('side.new'::regclass)"), "numbers");
    assert_eq!(code(&mut three, "select nextval('side.old')"), "42P01");
    // The old name is free.
    three.run("create sequence side.old").expect("a new one");
}

#[test]
fn what_names_a_sequence_follows_its_name_in_other_sessions() {
    let folder = tempfile::tempdir().expect("folder");
    let database = open(folder.path());
    let mut one = database.connect("root", "shop");
    let mut two = database.connect("root", "shop");
    one.run("create sequence a; create sequence b; create sequence c").expect("sequences");
    one.run("create view v as select nextval('a') as n; create view w as select last_value from b").expect("views");
    one.run("create domain d as int default nextval('c'); create table t (x d, y int)").expect("a domain");
    assert_eq!(value(&mut two, "select n from v"), "1");
    assert_eq!(value(&mut two, "select last_value from w"), "1");
    for name in ["a", "b", "c"] {
        one.run(&format!("alter sequence {name} rename to \"new {name}\"")).expect("another name");
    }
    for connection in [&mut one, &mut two] {
        assert_eq!(code(connection, "select nextval('a')"), "42P01");
        assert!(value(connection, "select n from v").parse::<i64>().expect("a number") > 1);
        assert_eq!(value(connection, "select last_value from w"), "1");
        connection.run("insert into t (y) values (1)").expect("its default");
    }
}

/// The text of a view has the new name, as the documentation shows it.
#[test]
fn a_view_keeps_the_old_name_of_its_table_inside() {
    let folder = tempfile::tempdir().expect("folder");
    let mut one = open(folder.path()).connect("root", "shop");
    one.run("create table orders (id int, cents int)").expect("a table");
    one.run("CREATE VIEW open_orders AS SELECT orders.id FROM orders WHERE orders.cents > 0").expect("a view");
    assert_eq!(code(&mut one, "alter table orders rename to \"a.b\""), "0A000");
    one.run("alter table orders rename to bills").expect("another name");
    let text = value(&mut one, "select pg_get_viewdef('open_orders'::regclass)");
    assert_eq!(text, " SELECT orders.id FROM bills AS orders WHERE orders.cents > 0;");
    one.run("create schema s; alter table bills set schema s").expect("another schema");
    let text = value(&mut one, "select pg_get_viewdef('open_orders'::regclass)");
    assert_eq!(text, " SELECT orders.id FROM s.bills AS orders WHERE orders.cents > 0;");
}

#[test]
fn an_owner_is_a_role_that_exists() {
    let folder = tempfile::tempdir().expect("folder");
    let mut one = open(folder.path()).connect("root", "shop");
    one.run("create table t (k int)").expect("a table");
    assert_eq!(code(&mut one, "alter table t owner to ann"), "42704");
    one.run("create role ann").expect("a role");
    one.run("alter table t owner to ann").expect("its owner");
    one.run("drop role ann").expect("it is gone");
    assert_eq!(code(&mut one, "alter table t owner to ann"), "42704");
}
