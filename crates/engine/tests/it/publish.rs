//! Figures of an open database in a file: they rise, the file goes with the database, and no failure reaches a
//! transaction.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::options;
use lodestone_engine::{Database, Error, PublishOptions, Result, Schema, Table, Type, row};
use lodestone_pmem::DomainChoice;

const EVERY: Duration = Duration::from_millis(10);

fn open(folder: &Path) -> Result<(Database, Table)> {
    let db = Database::open_with(folder.join("a.pool"), &options(DomainChoice::Process))?;
    let table = db.create_table(&Schema::new("t").column("k", Type::U64).key(["k"]))?;
    Ok((db, table))
}

/// The number after `name` in the file.
fn figure(file: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    assert!(text.starts_with("{\"lodestone_db_stats\":1,") && text.ends_with("}}]}\n"), "it is whole: {text}");
    let (_, rest) = text.split_once(&format!("\"{name}\":"))?;
    rest.split([',', '}']).next()?.parse().ok()
}

/// Waits until `is_so`.
#[track_caller]
fn wait_until(is_so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !is_so() {
        assert!(Instant::now() < end, "it takes too long");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn figures_rise_and_the_file_goes_with_the_database() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let file = PublishOptions::default_path(&folder.path().join("a.pool"));
    for life in 0..2 {
        let (db, table) = open(folder.path())?;
        let options = PublishOptions { every: EVERY, ..PublishOptions::default() };
        db.publish(&options)?;
        let commits = figure(&file, "commits").expect("it is there at once");
        for k in 0..10_u64 {
            db.update(|tx| table.put(tx, &row![k]))?;
        }
        wait_until(|| figure(&file, "commits") == Some(commits + 10));
        assert_eq!(figure(&file, "process"), Some(std::process::id().into()));
        assert!(figure(&file, "log_appended_bytes") > Some(0));
        let text = fs::read_to_string(&file).expect("a file");
        assert!(text.contains("\"database\":\"tables\"") && text.contains("\"checkpoint_trouble\":null"), "{text}");
        // Again: the first publisher ends, and has left the name.
        db.publish(&options)?;
        assert!(figure(&file, "commits") >= Some(commits + 10), "life {life}");
        drop((db, table));
        let names: Vec<_> =
            fs::read_dir(folder.path()).expect("a folder").map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["a.pool"], "the thread does not keep the database open, and leaves no file");
    }
    Ok(())
}

#[test]
fn a_write_that_fails_is_noted_and_repeated_and_commits_go_on() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let (db, table) = open(folder.path())?;
    let place = folder.path().join("figures");
    let file = place.join("a.stats");
    let publish = PublishOptions { path: Some(file.clone()), every: EVERY };
    let error = db.publish(&publish).expect_err("there is no such folder");
    assert!(matches!(&error, Error::Publish { path, .. } if path.starts_with(&place)), "{error}");
    fs::create_dir(&place).expect("a folder");
    db.publish(&publish)?;
    wait_until(|| fs::remove_dir_all(&place).is_ok());
    wait_until(|| db.publish_trouble().is_some());
    db.update(|tx| table.put(tx, &row![1_u64]))?;
    let trouble = db.publish_trouble().expect("still there");
    assert!(trouble.contains("figures") && trouble.contains("No such file"), "{trouble}");
    fs::create_dir(&place).expect("a folder");
    wait_until(|| db.publish_trouble().is_none());
    assert_eq!(figure(&file, "commits"), Some(db.stats().commits));
    Ok(())
}

#[test]
fn a_file_that_was_removed_comes_back_and_another_database_cannot_take_it() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let (db, table) = open(folder.path())?;
    let file = folder.path().join("both.stats");
    let publish = PublishOptions { path: Some(file.clone()), every: EVERY };
    db.publish(&publish)?;
    fs::remove_file(&file).expect("a file");
    wait_until(|| file.exists());
    // Damage is written over.
    fs::write(&file, "nonsense").expect("a file");
    wait_until(|| fs::read_to_string(&file).is_ok_and(|text| text.starts_with('{')));
    let other = Database::open_with(folder.path().join("b.pool"), &options(DomainChoice::Process))?;
    let error = other.publish(&publish).expect_err("the first one publishes there").to_string();
    assert!(error.contains("another database publishes"), "{error}");
    // The table has a share of the first database.
    drop((db, table));
    other.publish(&publish)?;
    assert!(fs::read_to_string(&file).expect("a file").contains("b.pool"));
    let too_short = PublishOptions { every: Duration::ZERO, ..PublishOptions::default() };
    assert!(matches!(other.publish(&too_short), Err(Error::BadOption { option: "publish", .. })));
    Ok(())
}
