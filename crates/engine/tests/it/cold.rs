//! Leaves that are read from their pages when they are first used: an open reads none of them, damage is named by the
//! first look, and a table that is dropped is read as long as a snapshot may look at it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use crate::common::{Open, options};
use lodestone_engine::{DATABASE, DATABASE_NAME, DatabaseOptions, Error, Result, row};
use lodestone_pmem::{DomainChoice, PmAddr, checked};
use lodestone_store::{Kind, Store};

const ROWS: u64 = 400;

struct Fixture {
    open: Open,
    path: PathBuf,
    _folder: tempfile::TempDir,
}

fn small() -> DatabaseOptions {
    options(DomainChoice::Process)
}

/// Rows of which each leaf has an image, and logs without them. Nothing was read since.
fn fixture() -> Result<Fixture> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    let open = Open::at(&path, &small())?;
    (0..ROWS)
        .step_by(40)
        .try_for_each(|first| open.set(&(first..first + 40).map(|key| (key, value(key))).collect::<Vec<_>>()))?;
    (0..2).try_for_each(|_| open.db.checkpoint().map(|_| ()))?;
    drop(open);
    Ok(Fixture { open: Open::at(&path, &small())?, path, _folder: folder })
}

fn value(key: u64) -> i64 {
    i64::try_from(key * 7 + 1_000_000).expect("small")
}

/// Changes the value of row `key`, without a checksum of its page. The database is closed.
fn damage(path: &Path, key: u64) {
    let mut bytes = fs::read(path).expect("the pool");
    let wanted = value(key).to_le_bytes();
    let places: Vec<_> = (0..bytes.len() - 8).filter(|at| bytes[*at..].starts_with(&wanted)).collect();
    assert!(!places.is_empty(), "row {key} is in a page");
    // The logs may have it as well. They are not read any more.
    places.into_iter().for_each(|at| bytes[at] ^= 1);
    fs::write(path, bytes).expect("the pool");
}

fn is_damaged<R: std::fmt::Debug>(outcome: Result<R>) {
    let text = match &outcome {
        Err(error @ (Error::Damaged { .. } | Error::Pages(_))) => error.to_string(),
        other => panic!("not damaged: {other:?}"),
    };
    assert!(text.contains("damaged page at") && text.contains("checksum"), "{text}");
}

#[test]
fn a_damaged_page_is_named_by_each_look_at_it_and_is_in_no_way_of_others() -> Result<()> {
    let Fixture { open, path, _folder } = fixture()?;
    drop(open);
    damage(&path, 200);
    let open = Open::at(&path, &small())?;
    let get = |key| open.db.update(|tx| open.get(tx, key));
    assert_eq!((get(1)?, get(399)?), (Some(value(1)), Some(value(399))));
    for _ in 0..2 {
        is_damaged(get(200));
        is_damaged(open.db.update(|tx| open.put(tx, 200, 0)));
        is_damaged(open.db.update(|tx| open.table.delete(tx, &row![200_u64])));
        is_damaged(open.all());
        is_damaged(open.db.snapshot().and_then(|snapshot| open.get(&snapshot, 200)));
    }
    // Rows before it and after it are read, also from both ends.
    let first = open.db.update(|tx| open.table.range(tx, ..)?.take(100).collect::<Result<Vec<_>>>())?;
    let last = open.db.update(|tx| open.table.range(tx, ..)?.rev().take(100).collect::<Result<Vec<_>>>())?;
    assert!(first.len() == 100 && last.len() == 100);
    // Others change, and checkpoints go on.
    open.set(&[(1, 5), (1000, 6)])?;
    (0..3).try_for_each(|_| open.db.checkpoint().map(|_| ()))?;
    drop(open);
    let open = Open::at(&path, &small())?;
    assert_eq!(open.db.update(|tx| Ok((open.get(tx, 1)?, open.get(tx, 1000)?)))?, (Some(5), Some(6)));
    is_damaged(open.db.update(|tx| open.get(tx, 200)));
    drop(open);
    // A check looks at all of it.
    let store = Store::open(&path, &small().pool)?;
    let contents = DATABASE.examine(store.open_object(DATABASE_NAME)?).expect("an answer");
    let texts: Vec<_> = contents.flaws.iter().map(|flaw| &flaw.text).collect();
    assert!(texts.len() == 1 && texts[0].contains("checksum"), "{texts:?}");
    Ok(())
}

#[test]
fn a_dropped_table_is_read_while_a_snapshot_sees_it() -> Result<()> {
    let Fixture { open, path: _path, _folder } = fixture()?;
    let snapshot = open.db.snapshot()?;
    assert_eq!(open.get(&snapshot, 7)?, Some(value(7)));
    let transaction = open.db.begin();
    assert_eq!(open.get(&transaction, 8)?, Some(value(8)));
    open.db.drop_table("t")?;
    let other = open.db.create_table(&"o (k u64, v i64) key (k)".parse()?)?;
    let go_on = |keys: std::ops::Range<u64>| -> Result<()> {
        for key in keys {
            open.db.update(|tx| other.put(tx, &row![key, 0_i64]))?;
            open.db.checkpoint()?;
        }
        Ok(())
    };
    // Pages that end are used again by the second checkpoint after that.
    go_on(0..5)?;
    let seen = open.rows(&snapshot)?;
    assert_eq!(seen, (0..ROWS).map(|key| (key, value(key))).collect::<Vec<_>>());
    drop(snapshot);
    let before = open.db.page_stats().pages_free;
    go_on(5..9)?;
    let after = open.db.page_stats().pages_free;
    assert!(after > before + 50, "the pages of the table are free: {before}, {after}");
    let outcome = (100..ROWS).try_for_each(|key| open.get(&transaction, key).map(|_| ()));
    assert!(matches!(outcome, Ok(()) | Err(Error::Conflict | Error::TableChanged { .. })), "{outcome:?}");
    Ok(())
}

#[test]
fn a_transaction_that_needs_the_pages_of_a_dropped_table_meets_a_conflict() -> Result<()> {
    let Fixture { open, path: _path, _folder } = fixture()?;
    let transaction = open.db.begin();
    assert_eq!(open.get(&transaction, 8)?, Some(value(8)));
    // It goes on in its range after the table is gone.
    let mut rows = open.table.range(&transaction, ..)?;
    assert!(rows.next().is_some());
    open.db.drop_table("t")?;
    let other = open.db.create_table(&"o (k u64, v i64) key (k)".parse()?)?;
    for key in 0..60_u64 {
        open.db.update(|tx| (0..20).try_for_each(|more| other.put(tx, &row![key * 20 + more, 0_i64])))?;
        open.db.checkpoint()?;
    }
    let rest = rows.collect::<Result<Vec<_>>>();
    assert!(matches!(rest, Err(Error::Conflict)), "{rest:?}");
    Ok(())
}

#[test]
fn threads_that_look_first_at_the_same_time_see_all_rows() -> Result<()> {
    for stride in [37, 39, 41, 43, 47, 49, 51, 53] {
        let Fixture { open, path, _folder } = fixture()?;
        thread::scope(|scope| {
            let open = &open;
            let workers: Vec<_> = (0..4_u64)
                .map(|worker| {
                    scope.spawn(move || {
                        // Each changes rows of its own, in leaves that all share, in another order.
                        (0..ROWS).map(|step| (step * stride + worker * 100) % ROWS).try_for_each(|key| {
                            if key % 4 == worker {
                                open.set(&[(key, -1)])
                            } else {
                                let found = open.db.update(|tx| open.get(tx, key))?;
                                assert!(found == Some(value(key)) || found == Some(-1), "row {key}: {found:?}");
                                Ok(())
                            }
                        })
                    })
                })
                .collect();
            workers.into_iter().try_for_each(|worker| worker.join().expect("no panic"))
        })?;
        let all: BTreeMap<_, _> = open.all()?.into_iter().collect();
        assert_eq!(all.len() as u64, ROWS);
        assert!(all.values().all(|found| *found == -1), "each row was changed by one of them: {all:?}");
        open.db.checkpoint()?;
        drop(open);
        assert_eq!(Open::at(&path, &small())?.all()?.into_iter().collect::<BTreeMap<_, _>>(), all);
    }
    Ok(())
}

/// Offset of the summary in a line of the page table, and of its checksum.
const SUMMARY: usize = 16;
const SUMMARY_CRC: usize = 60;

/// The checksum of the summary in `line`, of a page and the batch in which it began.
fn summary_crc(line: &[u8], page: u32, batch: u64) -> u32 {
    let numbers = crc32c::crc32c_append(crc32c::crc32c(&page.to_le_bytes()), &batch.to_le_bytes());
    crc32c::crc32c_append(numbers, &line[SUMMARY..SUMMARY_CRC])
}

/// Changes a byte of the summary of a leaf and seals it again: `change` finds the byte by the first possible key of the
/// leaf. Returns that key. The database is closed.
fn reseal(path: &Path, change: impl Fn(&mut [u8])) -> Vec<u8> {
    let mut bytes = fs::read(path).expect("the pool");
    let found = (0..bytes.len()).step_by(64).find_map(|at| {
        let line = bytes[at..].first_chunk::<64>()?;
        let word = |from: usize| u32::from_le_bytes(*line[from..].first_chunk().expect("four bytes"));
        let born = u64::from_le_bytes(*line.first_chunk()?);
        let batch = checked::decode(PmAddr::new(0, at as u64), born).filter(|batch| *batch > 0)?;
        // A leaf of one page, after the first one of its tree, with a key of eight bytes.
        let fits = (word(24), word(28), word(36)) == (0, 1, 8);
        let page = word(16);
        (fits && word(SUMMARY_CRC) == summary_crc(line, page, batch)).then_some((at, page, batch))
    });
    let (at, page, batch) = found.expect("a line of the page table");
    let low = bytes[at + 40..at + 48].to_vec();
    change(&mut bytes[at..at + 64]);
    let crc = summary_crc(&bytes[at..at + 64], page, batch);
    bytes[at + SUMMARY_CRC..at + 64].copy_from_slice(&crc.to_le_bytes());
    fs::write(path, bytes).expect("the pool");
    low
}

/// Damage with a right checksum: the line of the page table names another first key, or another tree, than the page.
#[test]
fn a_sealed_line_of_the_page_table_that_is_not_of_its_page_is_named() -> Result<()> {
    for (at, is_key) in [(47, true), (20, false)] {
        let Fixture { open, path, _folder } = fixture()?;
        drop(open);
        let low = reseal(&path, |line| line[at] += 1);
        let low = u64::from_be_bytes(low.try_into().expect("a key of eight bytes"));
        let store = Store::open(&path, &small().pool)?;
        let report = store.check(&mut |_| {});
        let named = |text: &str| text.contains("its content is of another leaf than its head says");
        let two = |text: &str| text.contains("two images") || named(text);
        assert!(report.findings.iter().any(|finding| two(&finding.finding)), "{at}: {:?}", report.findings);
        drop(store);
        let Ok(open) = Open::at(&path, &small()) else { continue };
        let found = open.db.update(|tx| open.get(tx, low + 1));
        assert!(!is_key || named(&found.expect_err("a look at the leaf").to_string()));
    }
    Ok(())
}
