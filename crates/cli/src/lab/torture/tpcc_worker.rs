//! `lodestone torture tpcc-worker` and `tpcc-verify`: TPC-C in a database until it is killed, and the judgement.
//!
//! `ack TABLE KEY` is printed when the transaction that added this row is durable, before its thread goes on.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use lodestone_cli::commands::pool::OpenArgs;
use lodestone_cli::output::Output;
use lodestone_engine::Database;
use lodestone_engine_bench::lives::{self, Life, Receipt};
use lodestone_engine_bench::tables::DatabaseTables;
use lodestone_pmem::{DomainChoice, PoolOptions};
use lodestone_workload::engine::EngineError;
use lodestone_workload::oltp::Workload;
use lodestone_workload::oltp::tpcc::TpcC;
use serde::Serialize;

use super::report::say;

/// Bytes of each part of a pool that does not exist yet.
const PART_BYTES: u64 = 64 << 20;
/// Bytes of its journal: small, so that it wraps.
const JOURNAL_BYTES: u64 = 4 << 20;

const AFTER_HELP_WORKER: &str = "\
Examples:
  lodestone torture tpcc-worker a.pool --load > acks & sleep 5; kill -KILL $!
  lodestone torture tpcc-verify a.pool acks
  lodestone torture tpcc-worker a.pool --life 2 >> acks & sleep 1; kill -KILL $!";

const AFTER_HELP_VERIFY: &str = "\
Example:
  lodestone torture tpcc-verify a.pool acks

Exit code 0 only when all twelve conditions hold and the row of each receipt is there.";

/// Arguments of `lodestone torture tpcc-worker`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP_WORKER)]
pub struct Args {
    #[command(flatten)]
    open: OpenArgs,

    /// Make the tables first; the pool is new, or has no tables
    #[arg(long)]
    load: bool,

    /// Make the tables whose rows are updated most with their rows in cells
    #[arg(long, requires = "load")]
    dual: bool,

    /// Number of this life: the seed of all choices
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    life: u64,

    /// Threads that work
    #[arg(long, default_value_t = 8)]
    threads: usize,
}

/// Arguments of `lodestone torture tpcc-verify`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP_VERIFY)]
pub struct VerifyArgs {
    #[command(flatten)]
    open: OpenArgs,

    /// The output of all lives of the pool
    report: PathBuf,

    /// Number of the life that begins with this open
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    life: u64,
}

/// Where a pool is.
pub struct Place {
    pub pool: PathBuf,
    pub parts: Vec<PathBuf>,
    pub domain: DomainChoice,
    pub virtual_nodes: usize,
}

impl Place {
    /// The files of all parts.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        std::iter::once(&self.pool).chain(&self.parts).map(PathBuf::as_path)
    }

    fn options(&self) -> PoolOptions {
        let Self { parts, domain, virtual_nodes, .. } = self;
        PoolOptions { parts: parts.clone(), domain: *domain, virtual_nodes: *virtual_nodes, ..PoolOptions::default() }
    }

    /// Opens the tables in their life `number`.
    pub fn open(&self, number: u64) -> Result<DatabaseTables> {
        open(&self.pool, self.options(), number)
    }
}

/// An error of the database with its causes.
pub fn engine_error(error: EngineError) -> anyhow::Error {
    anyhow::Error::new(error)
}

fn database(path: &Path, pool: PoolOptions, number: u64) -> Result<Database> {
    let pool = PoolOptions { size_bytes: PART_BYTES, journal_bytes: JOURNAL_BYTES, ..pool };
    Ok(Database::open_with(path, &lives::options(pool, number))?)
}

fn open(path: &Path, pool: PoolOptions, number: u64) -> Result<DatabaseTables> {
    DatabaseTables::open(database(path, pool, number)?, TpcC::TABLES).map_err(engine_error)
}

/// Makes the pool and loads the tables, some with their rows in cells if `is_dual`. Returns the domain of the pool.
pub fn make(place: &Place, is_dual: bool) -> Result<String> {
    let tables = lives::load(database(&place.pool, place.options(), 0)?, is_dual).map_err(engine_error)?;
    Ok(tables.database().pool().info().domain_label())
}

/// The conditions that do not hold, and the acknowledged rows that are lost, in words.
pub fn judge(tables: &DatabaseTables, told: &[Receipt]) -> Result<Vec<String>> {
    lives::judge(tables, told).map_err(engine_error)
}

/// Works until it is killed.
pub fn run(args: &Args, _output: &Output) -> Result<()> {
    let (path, pool) = (&args.open.path, args.open.options()?);
    ensure!(args.threads > 0, "--threads 0 would do nothing; ask for one");
    let tables = if args.load {
        let database = database(path, pool, args.life)?;
        let count = database.tables()?.len();
        ensure!(count == 0, "{}: has {count} tables; --load needs a pool without", path.display());
        lives::load(database, args.dual).map_err(engine_error)?
    } else {
        ensure!(path.exists(), "{}: not found; the first life makes it with --load", path.display());
        open(path, pool, args.life)?
    };
    let life = Life { number: args.life, threads: args.threads };
    let told = life.run(&tables, &|receipt| say(&format!("{receipt}\n")).map_err(std::io::Error::other));
    told.map_err(engine_error)
}

#[derive(Serialize)]
struct Verified {
    acked: usize,
    wrong: Vec<String>,
    parts: usize,
    domain: String,
}

/// Opens the pool (which recovers it) and judges.
pub fn verify(args: &VerifyArgs, output: &Output) -> Result<bool> {
    let failed = || format!("{}: reading the report failed", args.report.display());
    let mut told: Vec<Receipt> = Vec::new();
    for (number, line) in BufReader::new(File::open(&args.report).with_context(failed)?).lines().enumerate() {
        let receipt = line.with_context(failed)?.parse().map_err(engine_error);
        told.push(receipt.with_context(|| format!("{}, line {}", args.report.display(), number + 1))?);
    }
    let path = &args.open.path;
    ensure!(path.exists(), "{}: not found", path.display());
    let tables = open(path, args.open.options()?, args.life)?;
    let pool = tables.database().pool();
    let (parts, domain) = (pool.part_nodes().len(), pool.info().domain_label());
    let verified = Verified { acked: told.len(), wrong: judge(&tables, &told)?, parts, domain };
    verified.wrong.iter().for_each(|wrong| output.note(wrong));
    output.result(&verified, |verified| {
        let Verified { acked, wrong, parts, domain } = verified;
        format!("{acked} acknowledged orders and payments, {parts} parts: {} wrong ({domain} domain)", wrong.len())
    })?;
    Ok(verified.wrong.is_empty())
}
