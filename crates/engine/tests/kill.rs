//! A child process commits on several threads until it is killed. Afterwards every acknowledged transaction is there,
//! none is there by half, and sums hold.
//!
//! The child prints a line after each acknowledgement. `LODESTONE_KILLS` sets the number of kills of each way.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, thread};

use common::{Open, options};
use lodestone_engine::{Database, DatabaseOptions, Durability, Schema, row};
use lodestone_pmem::DomainChoice;

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

const CHILD: &str = "acknowledged_transactions_survive_a_kill";
const THREADS: u64 = 3;
/// Rows of each thread: a counter, and what it moved to the shared row.
const SHARED: u64 = 1_000;

/// The row that each thread sets alone, to its counter.
const ALONE: u64 = 3_000;

/// A domain; one with group commit; one with rows in cells.
const WAYS: [&str; 7] =
    ["dax-emulated", "process", "block", "dax-emulated epoch", "block epoch", "dax-emulated dual", "block dual"];

fn open(path: &Path, way: &str) -> Outcome<Open> {
    let options = database(way)?;
    if !way.ends_with(" dual") {
        return Ok(Open::at(path, &options)?);
    }
    let db = Database::open_with(path, &options)?;
    let table = db.create_table(&"t (k u64, v i64) key (k)".parse::<Schema>()?.dual())?;
    Ok(Open { db, table })
}

fn database(way: &str) -> Outcome<DatabaseOptions> {
    let (domain, kind) = way.split_once(' ').unwrap_or((way, ""));
    let mut options = options(domain.parse::<DomainChoice>()?);
    if kind == "epoch" {
        options.durability = Durability::Epoch(Duration::from_millis(1));
    }
    options.pool.size_bytes = 64 << 20;
    // Full after some hundred commits: pages are written meanwhile.
    (options.log_bytes, options.segment_bytes) = (128 << 10, 8 << 10);
    Ok(options)
}

/// Each thread counts in its own row and adds as much to the shared one. Every fourth transaction also adds or deletes
/// a row of a pair.
fn work_for_ever(path: &Path, domain: &str) -> Outcome {
    let open = open(path, domain)?;
    let open = &open;
    thread::scope(|scope| {
        for number in 0..THREADS {
            scope.spawn(move || {
                loop {
                    let done = open.db.update(|tx| {
                        let count = open.get(tx, number)?.unwrap_or(0) + 1;
                        let shared = open.get(tx, SHARED)?.unwrap_or(0) + 1;
                        open.put(tx, number, count)?;
                        open.put(tx, SHARED, shared)?;
                        let pair = 2000 + number * 2;
                        for key in [pair, pair + 1] {
                            if count % 4 == 0 {
                                open.put(tx, key, count)?
                            } else {
                                open.table.delete(tx, &row![key]).map(|_| ())?
                            }
                        }
                        Ok(count)
                    });
                    let Ok(count) = done else { std::process::abort() };
                    if open.set(&[(ALONE + number, count)]).is_err() {
                        std::process::abort();
                    }
                    let line = format!("{number} {count}\n");
                    if std::io::stdout().lock().write_all(line.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    Ok(())
}

/// Kills a child after `lines` acknowledgements. Returns the last count that each thread was told.
fn run_and_kill(path: &Path, domain: &str, lines: usize) -> Outcome<Vec<i64>> {
    let mut child = Command::new(env::current_exe()?)
        .args(["--exact", CHILD, "--nocapture", "--test-threads=1"])
        .env("LODESTONE_TEST_CHILD", path)
        .env("LODESTONE_TEST_DOMAIN", domain)
        .stdout(Stdio::piped())
        .spawn()?;
    let mut told = vec![0; THREADS as usize];
    let mut output = BufReader::new(child.stdout.take().ok_or("no output")?);
    let mut note = |line: &str| -> Option<()> {
        let (number, count) = line.trim().split_once(' ')?;
        let (number, count) = (number.parse::<usize>().ok()?, count.parse::<i64>().ok()?);
        let last = told.get_mut(number)?;
        *last = count.max(*last);
        Some(())
    };
    let (mut noted, mut line) = (0, String::new());
    while noted < lines && output.read_line(&mut line)? > 0 {
        noted += usize::from(note(&line).is_some());
        line.clear();
    }
    child.kill()?;
    // Its words before it died count too. The last line may be cut short.
    for line in output.lines().map_while(Result::ok) {
        note(&line);
    }
    child.wait()?;
    assert!(noted == lines, "the child ended by itself after {noted} transactions");
    Ok(told)
}

#[test]
fn acknowledged_transactions_survive_a_kill() -> Outcome {
    if let Some(path) = env::var_os("LODESTONE_TEST_CHILD").map(PathBuf::from) {
        return work_for_ever(&path, &env::var("LODESTONE_TEST_DOMAIN")?);
    }
    let kills: usize = env::var("LODESTONE_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(4);
    for domain in WAYS {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a.pool");
        for round in 0..kills {
            let told = run_and_kill(&path, domain, 20 + 37 * (round % 5))?;
            let open = open(&path, domain)?;
            let rows = open.all()?;
            let value = |key: u64| rows.iter().find(|(found, _)| *found == key).map(|(_, value)| *value);
            let mut sum = 0;
            for number in 0..THREADS {
                let count = value(number).unwrap_or(0);
                let last = told[usize::try_from(number)?];
                // One transaction is under way at the kill, or its line was not read whole.
                assert!(count >= last, "{domain}, round {round}: thread {number} was told {last}, found {count}");
                let alone = value(ALONE + number).unwrap_or(0);
                assert!(
                    (last..=count).contains(&alone),
                    "{domain}, round {round}: told {last}, found {alone} of {count}"
                );
                let pair = [2000 + number * 2, 2001 + number * 2].map(value);
                let expected = (count > 0 && count % 4 == 0).then_some(count);
                assert_eq!(pair, [expected; 2], "{domain}, round {round}: half of transaction {count}");
                sum += count;
            }
            assert_eq!(value(SHARED).unwrap_or(0), sum, "{domain}, round {round}");
        }
    }
    Ok(())
}
