//! A child process runs TPC-C on several threads until it is killed. Afterwards all conditions hold, and the row of
//! each acknowledged order and payment is there.
//!
//! The child prints a line after each acknowledgement. `LODESTONE_KILLS` sets the number of kills of each domain.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, thread};

use common::{SCALE, expect_consistent, loaded, lost, open, options};
use lodestone_engine::DatabaseOptions;
use lodestone_pmem::DomainChoice;
use lodestone_workload::oltp::tpcc::TpcC;
use lodestone_workload::oltp::{OltpEngine, Table, Terminal, Workload};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

const CHILD: &str = "tpcc_keeps_its_conditions_and_its_promises_when_it_is_killed";
const THREADS: usize = 8;
/// Lives of a pool.
const LIVES: usize = 20;

/// In each odd life most rows are in pages alone.
fn options_of(domain: DomainChoice, life: u64) -> DatabaseOptions {
    DatabaseOptions { cache_bytes: (life % 2 == 1).then_some(256 << 10), ..options(domain) }
}

fn work_for_ever(path: &Path, domain: DomainChoice, seed: u64) -> Outcome {
    let engine = open(path, &options_of(domain, seed), TpcC::TABLES)?;
    thread::scope(|scope| {
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
                drop(loaded(&path, domain, &SCALE)?);
                told.clear();
            }
            let lines = if name == "block" { 40 + 31 * (round % 5) } else { 300 + 517 * (round % 5) };
            told.extend(run_and_kill(&path, name, lines, round)?);
            let engine = open(&path, &options_of(domain, round as u64), TpcC::TABLES)?;
            let what = format!("{name}, kill {round}");
            expect_consistent(&engine, &SCALE, &what)?;
            let lost = lost(&engine, &told)?;
            assert!(lost.is_empty(), "{what}: acknowledged and lost: {lost:x?}");
        }
    }
    Ok(())
}
