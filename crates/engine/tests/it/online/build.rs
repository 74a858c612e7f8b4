//! Tables that change while transactions use them: an index is added to a table with rows.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::common::{findings, options};
use lodestone_engine::{Database, DatabaseOptions, Error, Index, Isolation, Result, Row, Schema, Table, row};
use lodestone_pmem::DomainChoice;

/// More than one transaction of a build.
const ROWS: u64 = 2500;
const TEXT: &str = "people (id u64, town text, mail text null) key (id)";

struct Open {
    _folder: tempfile::TempDir,
    path: PathBuf,
    options: DatabaseOptions,
    db: Database,
    table: Table,
}

/// A table with [`ROWS`] rows, each of which has a mail of its own and one of ten towns.
fn fixture(domain: DomainChoice) -> Result<Open> {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, mut options) = (folder.path().join("a.pool"), options(domain));
    // The log is larger than what other threads write while one waits for its turn.
    options.pool.size_bytes = 64 << 20;
    let db = Database::open_with(&path, &options)?;
    let table = db.load_table(&TEXT.parse()?, (0..ROWS).map(|id| Ok(person(id))))?;
    Ok(Open { _folder: folder, path, options, db, table })
}

fn person(id: u64) -> Row {
    row![id, format!("town {}", id % 10), format!("{id}@example.org")]
}

fn by_town() -> Index {
    Index::new("by_town", ["town"])
}

fn by_mail() -> Index {
    Index::unique("by_mail", ["mail"])
}

/// Closes the database and asks the check of the pool.
fn is_sound(open: Open) {
    let Open { _folder, path, options, db, table } = open;
    drop((db, table));
    assert_eq!(findings(&path, &options), Vec::<String>::new());
}

/// Calls `body` once in the middle of the build of `index`.
fn build(open: &Open, index: &Index, body: impl FnOnce() -> Result<()>) -> Result<Table> {
    let mut body = Some(body);
    open.db.create_index_with("people", index, |rows| {
        assert!(rows > 0 && rows <= ROWS);
        body.take().map_or(Ok(()), |body| body())
    })
}

#[test]
fn changes_during_a_build_keep_their_entries() -> Result<()> {
    let open = fixture(DomainChoice::Process)?;
    let Open { db, table, .. } = &open;
    let before = db.snapshot()?;
    let built = build(&open, &by_town(), || {
        let again = db.table("people")?;
        assert_eq!(again.indexes_being_built().collect::<Vec<_>>(), [&by_town()]);
        let read = db.update(|tx| again.index("by_town")?.range(tx, ..).map(|_| ()));
        assert!(matches!(read, Err(Error::IndexNotReady { .. })), "{read:?}");
        let text = read.expect_err("not ready").to_string();
        assert!(text.contains("`by_town` of table `people` is being built"), "{text}");
        // By the handle from before, in the part that is done and in the part ahead.
        db.update(|tx| {
            for id in [3, ROWS - 3] {
                table.put(tx, &row![id, "moved", None::<&str>])?;
                table.delete(tx, &row![id + 1])?;
            }
            table.insert(tx, &row![ROWS + 1, "moved", None::<&str>])
        })
    })?;
    assert_eq!(built.indexes_being_built().count(), 0);
    let index = built.index("by_town")?;
    let count = |town: &str| db.update(|tx| Ok(index.range(tx, row![town]..=row![town])?.count()));
    assert_eq!((count("moved")?, count("town 3")?, count("town 0")?), (3, 249, 250));
    // The snapshot from before has no such index, and reads the rows by either handle.
    assert!(matches!(index.range(&before, ..), Err(Error::NoIndex { .. })));
    for handle in [table, &built] {
        assert_eq!(handle.get(&before, &row![3_u64])?, Some(person(3)));
    }
    drop((built, index, before));
    is_sound(open);
    Ok(())
}

#[test]
fn a_unique_index_that_is_built_refuses_rows_and_finds_those_from_before() -> Result<()> {
    let open = fixture(DomainChoice::Process)?;
    let Open { db, table, .. } = &open;
    build(&open, &by_mail(), || {
        let refused = db.update(|tx| table.insert(tx, &row![ROWS, "x", "1@example.org"]));
        assert!(matches!(refused, Err(Error::Duplicate { index: Some(_), .. })), "{refused:?}");
        Ok(())
    })?;
    db.drop_index("people", "by_mail")?;
    // The second one is after the part that the first transaction reads.
    db.update(|tx| table.put(tx, &row![ROWS - 1, "x", "1@example.org"]))?;
    let refused = db.create_index("people", &by_mail()).map(|_| ());
    assert!(matches!(&refused, Err(Error::Duplicate { key, .. }) if key.contains("1@example.org")), "{refused:?}");
    assert!(db.table("people")?.schema().indexes().is_empty(), "nothing is left of it");
    // One of the two changes before the build comes to it. The other one keeps its entry.
    build(&open, &by_mail(), || db.update(|tx| table.put(tx, &row![ROWS - 1, "x", "other"])))?;
    is_sound(open);
    Ok(())
}

#[test]
fn a_build_that_a_crash_cut_off_goes_on() -> Result<()> {
    for is_dropped in [false, true] {
        let open = fixture(DomainChoice::Process)?;
        let aborted = build(&open, &by_town(), || {
            open.db.clone().abandon();
            Ok(())
        });
        assert!(aborted.is_err());
        let Open { path, options, _folder, db, table } = open;
        drop((db, table));
        assert_eq!(findings(&path, &options), Vec::<String>::new(), "an index that lacks entries is no damage");
        let db = Database::open_with(&path, &options)?;
        let table = db.create_table(&TEXT.parse::<Schema>()?.with_index(by_town()))?;
        assert_eq!(table.indexes_being_built().count(), 1);
        db.update(|tx| table.delete(tx, &row![2_u64]))?;
        db.update(|tx| table.put(tx, &row![1_u64, "town 0", None::<&str>]))?;
        if is_dropped {
            let table = db.drop_index("people", "by_town")?;
            assert!(table.schema().indexes().is_empty());
        } else {
            let other = db.create_index("people", &Index::new("by_town", ["mail"])).map(|_| ());
            assert!(matches!(other, Err(Error::IndexExists { .. })), "{other:?}");
            let index = db.create_index("people", &by_town())?.index("by_town")?;
            assert_eq!(db.update(|tx| Ok(index.range(tx, row!["town 0"]..=row!["town 0"])?.count()))?, 251);
        }
        is_sound(Open { _folder, path, options, db, table });
    }
    Ok(())
}

#[test]
fn a_build_ends_with_an_error_that_says_why() -> Result<()> {
    let open = fixture(DomainChoice::Process)?;
    let Open { db, .. } = &open;
    let stopped = build(&open, &by_town(), || Err(Error::cancelled("enough"))).map(|_| ());
    assert!(matches!(stopped, Err(Error::Cancelled { .. })), "{stopped:?}");
    assert!(db.table("people")?.schema().indexes().is_empty(), "it was taken away");
    let second = build(&open, &by_town(), || {
        let twice = db.create_index("people", &by_town()).map(|_| ());
        assert!(matches!(twice, Err(Error::IndexExists { .. })), "{twice:?}");
        db.drop_index("people", "by_town").map(|_| ())
    });
    assert!(matches!(second, Err(Error::NoIndex { .. })), "{second:?}");
    // Under another name it is the same table.
    let renamed = build(&open, &by_town(), || db.rename_table("people", "others").map(|_| ()))?;
    assert_eq!(renamed.schema().name(), "others");
    let index = renamed.index("by_town")?;
    drop(renamed);
    assert_eq!(db.update(|tx| Ok(index.range(tx, ..)?.count()))?, 2500);
    drop(index);
    db.drop_index("others", "by_town")?;
    db.rename_table("others", "people")?;
    let gone = build(&open, &by_town(), || db.drop_table("people"));
    assert!(matches!(gone, Err(Error::TableChanged { .. })), "{gone:?}");
    is_sound(open);
    Ok(())
}

/// Threads change rows, at all levels, while indexes come and go. No change fails, and each index has its entries.
#[test]
fn indexes_come_and_go_beside_threads() -> Result<()> {
    for domain in [DomainChoice::Process, DomainChoice::Block] {
        let open = fixture(domain)?;
        let Open { db, table, .. } = &open;
        let is_over = AtomicBool::new(false);
        let levels =
            [Isolation::Serializable, Isolation::SerializableOnSnapshot, Isolation::Snapshot, Isolation::ReadCommitted];
        thread::scope(|scope| -> Result<()> {
            let _stop = Stop(&is_over);
            for (thread, level) in (0_u64..).zip(levels) {
                let is_over = &is_over;
                scope.spawn(move || {
                    for turn in 0_u64.. {
                        if is_over.load(Ordering::Relaxed) {
                            break;
                        }
                        let id = (turn * 37 + thread * 11) % 300 * 7;
                        let town = format!("town {}", turn % 13);
                        let outcome = db.update_with(level, |tx| match turn % 3 {
                            0 => table.delete(tx, &row![id]).map(|_| ()),
                            _ => table.put(tx, &row![id, town.as_str(), format!("{id}@example.org")]),
                        });
                        outcome.expect("a change beside a build");
                    }
                });
            }
            for _ in 0..3 {
                let town = db.create_index("people", &by_town())?.index("by_town")?;
                let mail = db.create_index("people", &by_mail())?.index("by_mail")?;
                let rows = db.snapshot()?;
                let mut counts = BTreeMap::new();
                for row in table.range(&rows, ..)? {
                    *counts.entry(row?[1].as_text().expect("a town").to_owned()).or_insert(0) += 1;
                }
                for (name, count) in counts {
                    assert_eq!(town.range(&rows, row![name.as_str()]..=row![name.as_str()])?.count(), count, "{name}");
                }
                assert_eq!(mail.range(&rows, ..)?.count(), table.range(&rows, ..)?.count());
                db.drop_index("people", "by_town")?;
                db.drop_index("people", "by_mail")?;
            }
            db.create_index("people", &by_town())?;
            db.create_index("people", &by_mail())?;
            Ok(())
        })?;
        is_sound(open);
    }
    Ok(())
}

/// Threads end also when an assertion of another one fails.
struct Stop<'s>(&'s AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
