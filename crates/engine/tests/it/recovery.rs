//! Recovery of logs and images that are large enough for all of its ways: several threads, parts made by a sample,
//! leaves that are split while their images are written.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::options;
use lodestone_engine::{Database, DatabaseOptions, Error, Result, Table, Value, row};
use lodestone_pmem::{DomainChoice, PoolOptions};

/// Rows by key: the text and the sum.
type Oracle = BTreeMap<u64, (String, i64)>;

/// Writers with keys of their own.
const WRITERS: u64 = 3;

/// Keys are spread over all numbers, or rise, as the table says.
fn key_of(is_spread: bool, writer: u64, number: u64) -> u64 {
    let number = number * WRITERS + writer;
    if is_spread { number.wrapping_mul(0x9E37_79B9_7F4A_7C15) } else { number }
}

fn open(path: &Path, is_spread: bool) -> Result<(Database, Table)> {
    let small = options(DomainChoice::Process);
    let options = DatabaseOptions {
        pool: PoolOptions { size_bytes: 256 << 20, ..small.pool.clone() },
        log_bytes: 64 << 20,
        segment_bytes: 1 << 20,
        leaf_rows_max: 16,
        ..small
    };
    let db = Database::open_with(path, &options)?;
    // The longer key begins with eight bytes that are the same in all rows.
    let schema =
        if is_spread { "t (k u64, pad text, n i64) key (k)" } else { "t (x u64, k u64, pad text, n i64) key (x, k)" };
    let table = db.create_table(&schema.parse()?)?;
    Ok((db, table))
}

/// Puts, deletes and adds to rows of `writer`, in transactions of a few. `oracle` has the rows before and after.
fn write(db: &Database, table: &Table, is_spread: bool, writer: u64, turns: u64, oracle: &mut Oracle) -> Result<()> {
    let mut state = writer + turns;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut next = oracle.len() as u64;
    for turn in 0..turns {
        let changes: Vec<(u64, u64)> = (0..3)
            .map(|_| {
                let kind = random(8);
                let number = if kind < 3 { next } else { random(next.max(1)) };
                next += u64::from(kind < 3);
                (key_of(is_spread, writer, number), kind)
            })
            .collect();
        let pad = "abcdefgh".repeat(1 + (turn % 9) as usize);
        db.update(|tx| {
            for (key, kind) in &changes {
                let short = if is_spread { row![*key] } else { row![7_u64, *key] };
                match kind {
                    0..=3 if is_spread => table.put(tx, &row![*key, pad.as_str(), turn as i64])?,
                    0..=3 => table.put(tx, &row![7_u64, *key, pad.as_str(), turn as i64])?,
                    4 => _ = table.delete(tx, &short)?,
                    _ => match table.add(tx, &short, "n", 5_i64) {
                        Err(Error::NotFound { .. }) => {}
                        outcome => outcome?,
                    },
                }
            }
            Ok(())
        })?;
        for (key, kind) in changes {
            match kind {
                0..=3 => _ = oracle.insert(key, (pad.clone(), turn as i64)),
                4 => _ = oracle.remove(&key),
                _ => {
                    if let Some((_, sum)) = oracle.get_mut(&key) {
                        *sum += 5;
                    }
                }
            }
        }
    }
    Ok(())
}

fn rows(db: &Database, table: &Table) -> Result<Oracle> {
    let rows: Vec<_> = db.update(|tx| table.range(tx, ..)?.collect::<Result<_>>())?;
    let row = |row: lodestone_engine::Row| {
        let [.., Value::U64(key), Value::Text(pad), Value::I64(sum)] = &row.0[..] else { panic!("three columns") };
        (*key, (pad.to_string(), *sum))
    };
    Ok(rows.into_iter().map(row).collect())
}

fn lives_of(is_spread: bool) -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    let mut oracles = vec![Oracle::new(); WRITERS as usize];
    for life in 0..4_u64 {
        let (db, table) = open(&path, is_spread)?;
        let expected: Oracle = oracles.iter().flat_map(|oracle| oracle.clone()).collect();
        assert!(rows(&db, &table)? == expected, "the rows of life {life} are others than those before");
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // No checkpoint in the first life: recovery has the logs alone.
            let rounds = scope.spawn(|| {
                while life > 0 && !is_over.load(Ordering::Relaxed) {
                    db.checkpoint()?;
                }
                Ok::<_, Error>(())
            });
            let writers: Vec<_> = oracles
                .iter_mut()
                .zip(0..)
                .map(|(oracle, writer)| {
                    let (db, table) = (&db, &table);
                    scope.spawn(move || write(db, table, is_spread, writer, 4_000 + life, oracle))
                })
                .collect();
            let outcome = writers.into_iter().try_for_each(|writer| writer.join().expect("no panic"));
            is_over.store(true, Ordering::Relaxed);
            rounds.join().expect("no panic").and(outcome)
        })?;
        if life == 2 {
            // Many rows after the last image.
            write(&db, &table, is_spread, 0, 4_000, &mut oracles[0])?;
        }
        drop(table);
        db.abandon();
    }
    let (db, table) = open(&path, is_spread)?;
    let expected: Oracle = oracles.into_iter().flatten().collect();
    assert!(rows(&db, &table)? == expected);
    drop(table);
    drop(db);
    // Ended in order, with nothing changed: the images have all rows.
    let (db, _table) = open(&path, is_spread)?;
    db.checkpoint()?;
    assert_eq!(db.checkpoint()?.images, 0);
    Ok(())
}

#[test]
fn rows_come_back_from_large_logs_and_split_leaves() -> Result<()> {
    lives_of(true)
}

#[test]
fn rows_come_back_where_all_keys_begin_alike() -> Result<()> {
    lives_of(false)
}
