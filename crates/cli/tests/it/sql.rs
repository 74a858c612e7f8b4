//! `lodestone sql` and `lodestone serve`: tables of SQL are those of `lodestone db`, and a server ends when it is told.

use crate::common::{Place, Process};

#[test]
fn tables_of_sql_and_of_the_engine_are_the_same() {
    let place = Place::with_pool("64MiB");
    let sql = |text: &str| place.run(["sql", "a.pool", "-c", text]);
    sql("create table t (k int primary key, v varchar(10))").ok();
    let shown = sql("insert into t values (1, 'one'), (2, null) returning v").ok();
    assert!(shown.contains("one") && shown.contains("null") && shown.contains("INSERT 0 2"), "{shown}");
    assert!(place.run(["db", "schema", "a.pool", "t"]).ok().contains("t (k i32, v text null) key (k)"));
    assert!(place.run(["db", "get", "a.pool", "t", "1"]).ok().contains("one"));
    // The reverse, with a type that SQL has not.
    place.run(["db", "create", "a.pool", "made (id u64, name text) key (id)"]).ok();
    sql("insert into made values (18446744073709551615, 'x')").ok();
    let shown = sql("select id + 1 as next from made where id = 18446744073709551615").ok();
    assert!(shown.contains("18446744073709551616"), "{shown}");
    // A refusal is a finding.
    let refused = sql("select nosuch from t").finding();
    assert!(refused.stdout.contains("42703") && refused.stdout.contains("nosuch"), "{refused:?}");
    place.run(["db", "check", "a.pool"]).ok();
}

#[test]
fn a_server_ends_when_it_is_told() {
    let place = Place::with_pool("64MiB");
    place.run(["serve", "a.pool"]).fails_with(&["--socket"]);
    let (mut server, line) = Process::start(&place, ["serve", "a.pool", "--socket", ".", "--publish"]);
    assert!(line.contains("serving database `a`") && line.contains(".s.PGSQL.5432"), "{line}");
    let figures = place.run(["db", "top", "a.pool", "--prometheus"]).ok();
    assert!(figures.contains("lodestone_db_commits_total"), "{figures}");
    let pid = rustix::process::Pid::from_child(&server.0);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("a signal");
    assert!(server.0.wait().expect("its end").success());
    assert!(!place.path(".s.PGSQL.5432").exists(), "the socket is gone");
    assert!(!place.path("a.pool.stats").exists(), "the figures are gone");
}

#[test]
fn the_shell_has_commands_that_begin_with_a_backslash() {
    let place = Place::with_pool("64MiB");
    let sql = |text: &str| place.run(["sql", "a.pool", "-c", text]);
    sql("create table towns (k int primary key, name varchar(10) not null default 'x', p int references towns)").ok();
    sql("create schema apart; create view apart.seen as select 1 as one; create index by_name on towns (name)").ok();
    let shown = sql("\\dt").ok();
    assert!(shown.contains("towns") && !shown.contains("by_name") && !shown.contains("pg_class"), "{shown}");
    let shown = sql("\\d").ok();
    assert!(shown.contains("towns") && shown.contains("seen"), "{shown}");
    let shown = sql("\\di *name").ok();
    assert!(shown.contains("by_name") && !shown.contains("towns_pkey"), "{shown}");
    let shown = sql("\\dv apart.*").ok();
    assert!(shown.contains("seen") && shown.contains("view"), "{shown}");
    let shown = sql("\\d towns").ok();
    for part in ["character varying(10)", "not null", "PRIMARY KEY (k)", "REFERENCES towns(k)", "USING btree (name)"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let shown = sql("\\d apart.seen").ok();
    assert!(shown.contains("one") && shown.contains("integer"), "{shown}");
    for (command, part) in [("\\dn", "apart"), ("\\l", "UTF8"), ("\\df uppe?", "upper"), ("\\?", "\\timing")] {
        let shown = sql(command).ok();
        assert!(shown.contains(part), "{command}: {shown}");
    }
    sql("\\du").ok();
    std::fs::write(place.path("a.sql"), "insert into towns values (1, 'one', null);\nselect 'of the file';\n")
        .expect("file");
    let shown = sql(&format!("\\i {}", place.path("a.sql").display())).ok();
    assert!(shown.contains("INSERT 0 1") && shown.contains("of the file"), "{shown}");
    sql("\\nothing").finding();
    let shown = place
        .run(["sql", "a.pool", "-c", "\\x", "-c", "\\timing", "-c", "select k, name from towns", "-c", "\\q"])
        .ok();
    assert!(shown.contains("-[ RECORD 1 ]-\nk    | 1\nname | one\nSELECT 1"), "{shown}");
}
