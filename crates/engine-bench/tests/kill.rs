//! A child process runs TPC-C on several threads until it is killed. Afterwards all conditions hold, and the row of
//! each acknowledged order and payment is there.
//!
//! The pool has parts on two virtual nodes. In two of three lives another thread of the child moves tables and ranges
//! of keys between them meanwhile, keeps tables in DRAM or does not, and makes checkpoints.
//!
//! The child prints a line after each acknowledgement. `LODESTONE_KILLS` sets the number of kills of each domain.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, thread};

use common::{SCALE, expect_consistent, loaded_with, lost, open, options};
use lodestone_engine::{Database, DatabaseOptions, LogPlacement, row};
use lodestone_pmem::DomainChoice;
use lodestone_workload::oltp::tpcc::TpcC;
use lodestone_workload::oltp::{OltpEngine, Table, Terminal, Workload};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

const CHILD: &str = "tpcc_keeps_its_conditions_and_its_promises_when_it_is_killed";
const THREADS: usize = 8;
/// Lives of a pool.
const LIVES: usize = 20;

/// In each odd life most rows are in pages alone. In some lives each record is in the log of the part of its rows.
fn options_of(path: &Path, domain: DomainChoice, life: u64) -> DatabaseOptions {
    let mut options = DatabaseOptions { cache_bytes: (life % 2 == 1).then_some(256 << 10), ..options(domain) };
    (options.pool.parts, options.pool.virtual_nodes) = (vec![path.with_extension("1")], 2);
    if life % 4 >= 2 {
        options.log_placement = LogPlacement::ByTable;
    }
    options
}

/// Changes where the rows are, for ever.
fn move_for_ever(database: &Database, seed: u64) -> Outcome {
    let tables = database.tables()?;
    let mut draw = seed | 1;
    let mut below = |limit: u64| {
        draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (draw >> 33) % limit
    };
    loop {
        // A kill comes after so many transactions, and these take their time.
        thread::sleep(Duration::from_millis(below(20)));
        let table = &tables[usize::try_from(below(tables.len() as u64))?];
        let part = u16::try_from(below(3)).ok().filter(|part| *part < 2);
        match below(6) {
            0 => _ = database.move_table(table, part)?,
            1 | 2 => {
                let from = below(2000);
                _ = database.move_range(table, row![from]..row![from + 1 + below(2000)], part)?;
            }
            3 => database.keep_table(table, true)?,
            4 => database.keep_table(table, false)?,
            _ => _ = database.checkpoint()?,
        }
    }
}

fn work_for_ever(path: &Path, domain: DomainChoice, seed: u64) -> Outcome {
    let engine = open(path, &options_of(path, domain, seed), TpcC::TABLES)?;
    thread::scope(|scope| {
        if !seed.is_multiple_of(3) {
            let database = engine.database();
            scope.spawn(move || {
                let end = format!("moves: {:?}\n", move_for_ever(database, seed));
                let _ = std::io::stderr().lock().write_all(end.as_bytes());
                std::process::abort();
            });
        }
        for number in 0..THREADS {
            let engine = &engine;
            scope.spawn(move || {
                let work = || -> Outcome {
                    let mut worker = engine.worker()?;
                    let mut terminal = SCALE.terminal(&mut worker, number, THREADS, seed)?;
                    loop {
                        terminal.draw();
                        if let Some((table, key)) = terminal.step(&mut worker)?.receipt {
                            std::io::stdout().lock().write_all(format!("{} {key}\n", table.0).as_bytes())?;
                        }
                    }
                };
                let end = format!("thread {number}: {:?}\n", work());
                let _ = std::io::stderr().lock().write_all(end.as_bytes());
                std::process::abort();
            });
        }
    });
    Ok(())
}

/// Kills a child after `lines` acknowledgements. Returns the rows that it was told.
fn run_and_kill(path: &Path, domain: &str, lines: usize, seed: usize) -> Outcome<Vec<(Table, u64)>> {
    let mut child = Command::new(env::current_exe()?)
        .args(["--exact", CHILD, "--nocapture", "--test-threads=1"])
        .env("LODESTONE_TEST_CHILD", path)
        .env("LODESTONE_TEST_DOMAIN", domain)
        .env("LODESTONE_TEST_SEED", seed.to_string())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut output = BufReader::new(child.stdout.take().ok_or("no output")?);
    let (mut told, mut line) = (Vec::new(), String::new());
    let receipt = |line: &str| {
        // The last line may be cut short: then it has no end.
        let (table, key) = line.strip_suffix('\n')?.split_once(' ')?;
        Some((Table(table.parse().ok()?), key.parse().ok()?))
    };
    while told.len() < lines && output.read_line(&mut line)? > 0 {
        told.extend(receipt(&line));
        line.clear();
    }
    child.kill()?;
    assert!(told.len() == lines, "the child ended by itself after {} transactions", told.len());
    // Lines that it printed before it died count too.
    while output.read_line(&mut line)? > 0 {
        told.extend(receipt(&line));
        line.clear();
    }
    child.wait()?;
    Ok(told)
}

#[test]
fn tpcc_keeps_its_conditions_and_its_promises_when_it_is_killed() -> Outcome {
    if let Some(path) = env::var_os("LODESTONE_TEST_CHILD").map(PathBuf::from) {
        let seed = env::var("LODESTONE_TEST_SEED")?.parse()?;
        return work_for_ever(&path, env::var("LODESTONE_TEST_DOMAIN")?.parse()?, seed);
    }
    let kills: usize = env::var("LODESTONE_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(3);
    for name in ["dax-emulated", "block"] {
        let domain: DomainChoice = name.parse()?;
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a.pool");
        let mut told = Vec::new();
        for round in 0..kills {
            if round % LIVES == 0 {
                // Before the rows fill the pool.
                let _ = std::fs::remove_file(&path);
                let _ = std::fs::remove_file(path.with_extension("1"));
                drop(loaded_with(&path, &options_of(&path, domain, 0), &SCALE)?);
                told.clear();
            }
            let lines = if name == "block" { 40 + 31 * (round % 5) } else { 300 + 517 * (round % 5) };
            told.extend(run_and_kill(&path, name, lines, round)?);
            let engine = open(&path, &options_of(&path, domain, round as u64), TpcC::TABLES)?;
            let what = format!("{name}, kill {round}");
            expect_consistent(&engine, &SCALE, &what)?;
            let lost = lost(&engine, &told)?;
            assert!(lost.is_empty(), "{what}: acknowledged and lost: {lost:x?}");
        }
    }
    Ok(())
}
