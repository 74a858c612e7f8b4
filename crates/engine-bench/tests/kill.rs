//! A child process runs TPC-C on several threads until it is killed, with a pool of parts on two virtual nodes.
//! Afterwards all conditions hold, and the row of each acknowledged order and payment is there.
//!
//! The child prints a line after each acknowledgement. `LODESTONE_KILLS` sets the number of kills of each domain.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, io};

use lodestone_engine::{Database, DatabaseOptions};
use lodestone_engine_bench::lives::{self, Life, Receipt, judge, load};
use lodestone_engine_bench::tables::DatabaseTables;
use lodestone_pmem::{DomainChoice, PoolOptions};
use lodestone_workload::oltp::Workload;
use lodestone_workload::oltp::tpcc::TpcC;

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

const CHILD: &str = "tpcc_keeps_its_conditions_and_its_promises_when_it_is_killed";
const THREADS: usize = 8;
/// Lives of a pool.
const LIVES: usize = 20;

fn options(path: &Path, domain: DomainChoice, life: u64) -> DatabaseOptions {
    let pool = PoolOptions {
        domain,
        size_bytes: 64 << 20,
        journal_bytes: 4 << 20,
        parts: vec![path.with_extension("1")],
        virtual_nodes: 2,
        ..PoolOptions::default()
    };
    lives::options(pool, life)
}

fn open(path: &Path, domain: DomainChoice, life: u64) -> Outcome<DatabaseTables> {
    Ok(DatabaseTables::open(Database::open_with(path, &options(path, domain, life))?, TpcC::TABLES)?)
}

fn work_until_killed(path: &Path, domain: DomainChoice, number: u64) -> Outcome {
    let say = |receipt: Receipt| io::stdout().lock().write_all(format!("{receipt}\n").as_bytes());
    Ok(Life { number, threads: THREADS }.run(&open(path, domain, number)?, &say)?)
}

/// Kills a child after `lines` acknowledgements. Returns the rows that it was told.
fn run_and_kill(path: &Path, domain: &str, lines: usize, seed: usize) -> Outcome<Vec<Receipt>> {
    let mut child = Command::new(env::current_exe()?)
        .args(["--exact", CHILD, "--nocapture", "--test-threads=1"])
        .env("LODESTONE_TEST_CHILD", path)
        .env("LODESTONE_TEST_DOMAIN", domain)
        .env("LODESTONE_TEST_SEED", seed.to_string())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut output = BufReader::new(child.stdout.take().ok_or("no output")?);
    let (mut told, mut line) = (Vec::new(), String::new());
    // The last line may be cut short: then it has no end.
    let receipt = |line: &str| line.strip_suffix('\n')?.parse::<Receipt>().ok();
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
        return work_until_killed(&path, env::var("LODESTONE_TEST_DOMAIN")?.parse()?, seed);
    }
    let kills: usize = env::var("LODESTONE_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(3);
    for (name, is_dual) in [("dax-emulated", false), ("block", true), ("dax-emulated", true), ("block", false)] {
        let domain: DomainChoice = name.parse()?;
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a.pool");
        let mut told = Vec::new();
        for round in 0..kills {
            if round % LIVES == 0 {
                // Before the rows fill the pool.
                let _ = std::fs::remove_file(&path);
                let _ = std::fs::remove_file(path.with_extension("1"));
                drop(load(Database::open_with(&path, &options(&path, domain, 0))?, is_dual)?);
                told.clear();
            }
            let lines = if name == "block" { 40 + 31 * (round % 5) } else { 300 + 517 * (round % 5) };
            told.extend(run_and_kill(&path, name, lines, round)?);
            let wrong = judge(&open(&path, domain, round as u64)?, &told)?;
            assert!(wrong.is_empty(), "{name}, rows in cells: {is_dual}, kill {round}: {wrong:#?}");
        }
    }
    Ok(())
}
