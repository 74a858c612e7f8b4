//! `lodestone bench recovery`: the time in which a database opens after a crash.
//!
//! 1. Rows are loaded into a table of a fresh pool, and all of them are written to pages. The database ends as after a
//!    crash and is opened again: that is the price of the pages.
//! 2. Rows are changed until the logs have so many bytes as the changes need. It ends and opens again: the time above
//!    that of the pages is the price of the logs.
//! 3. All rows are compared with what was written. A row that differs fails the command.
//!
//! The pool stays mapped between, so neither time has page faults of the pool's file.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lodestone_engine::{Database, DatabaseOptions, Error, RecoveryReport, Schema, Table, Type, Value, row};
use lodestone_pmem::Pool;
use lodestone_store::Store;
use lodestone_workload::result::{human_figure, rounded};
use serde::Serialize;

use lodestone_cli::interrupt;
use lodestone_cli::output::{Output, properties};

use super::place::Place;

/// Rows of a transaction of the load.
const ROWS_PER_LOAD: u64 = 100;
/// Bytes of log for a change at most: without a checkpoint the logs must hold all of them.
const LOG_BYTES_PER_UPDATE: u64 = 256;

const AFTER_HELP: &str = "\
Examples:
  lodestone bench recovery --rows 1000000 --updates 4000000
  lodestone bench recovery --rows 10000 --updates 100000 --json
  lodestone bench recovery --whole-rows --path . --domain block

Each change is a transaction of its own. No checkpoint is made while rows are changed, so all of the log is read again.";

/// Arguments of `lodestone bench recovery`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Rows of the table
    #[arg(long, value_name = "COUNT", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..1 << 32))]
    rows: u64,

    /// Changes of single rows after the checkpoint
    #[arg(long, value_name = "COUNT", default_value_t = 2_000_000, value_parser = clap::value_parser!(u64).range(0..1 << 32))]
    updates: u64,

    /// Bytes of text in a row, beside two numbers
    #[arg(long, value_name = "BYTES", default_value_t = 80, value_parser = clap::value_parser!(u64).range(0..2_000))]
    text_bytes: u64,

    /// Threads that change rows: so many logs are read
    #[arg(long, value_name = "COUNT", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=64))]
    threads: u64,

    /// Write whole rows to the log, not the bytes that changed
    #[arg(long)]
    whole_rows: bool,

    #[command(flatten)]
    place: Place,
}

/// The figures of a run.
#[derive(Debug, Serialize)]
struct Figures {
    rows: u64,
    updates: u64,
    logs: u64,
    processors: usize,
    log_bytes: u64,
    page_bytes: u64,
    open_pages_seconds: f64,
    open_seconds: f64,
    /// Of the time above that of the pages.
    log_seconds_per_gib: f64,
    page_seconds_per_gib: f64,
    records: u64,
    domain: String,
    medium: String,
}

/// Runs `lodestone bench recovery`.
pub fn run(args: &Args, output: &Output) -> Result<()> {
    let place = args.place.or_memory();
    if !output.is_json() {
        output.line(&place.origin()?.to_string())?;
    }
    interrupt::so_far("nothing was measured yet");
    let figures = args.measure(&place, output)?;
    output.result(&figures, text)
}

impl Args {
    fn options(&self) -> DatabaseOptions {
        let text = if self.whole_rows { self.text_bytes } else { 0 };
        // A checkpoint is made at half of it.
        let log_bytes = (3 * self.updates * (LOG_BYTES_PER_UPDATE + text)).max(256 << 20);
        let segment_bytes = (log_bytes / 64).next_power_of_two().min(64 << 20);
        DatabaseOptions { log_bytes, segment_bytes, deltas: !self.whole_rows, ..DatabaseOptions::default() }
    }

    fn measure(&self, place: &Place, output: &Output) -> Result<Figures> {
        let busy = output.busy("bench recovery");
        let options = self.options();
        let row_bytes = 1_024 + 2 * self.text_bytes;
        let pool_bytes = (1 << 30) + 2 * options.log_bytes + (self.rows * row_bytes).next_multiple_of(1 << 20);
        let pool = place.create(pool_bytes, 256 << 20)?;
        output.note("loading ...");
        let (db, table, _, _) = open(&pool, &options)?;
        self.load(&db, &table)?;
        // Two: the log is kept from the older of the last two checkpoints.
        db.checkpoint()?;
        db.checkpoint()?;
        let page_bytes = pages_in_use(&db);
        drop(table);
        db.abandon();
        let (db, table, of_pages, _) = open(&pool, &options)?;
        output.note("changing rows ...");
        let (before, batches) = (db.log_bytes(), db.page_stats().batches);
        let written = self.update(&db, &table)?;
        let log_bytes = db.log_bytes() - before;
        ensure!(db.page_stats().batches == batches, "a checkpoint was made meanwhile, so the log is not whole");
        drop(table);
        db.abandon();
        output.note("opening ...");
        let (db, table, of_all, report) = open(&pool, &options)?;
        self.verify(&db, &table, &written)?;
        drop(busy);
        let per_gib = |time: Duration, bytes: u64| match bytes {
            0 => 0.0,
            _ => rounded(time.as_secs_f64() * (1_u64 << 30) as f64 / bytes as f64),
        };
        let info = pool.info();
        Ok(Figures {
            rows: self.rows,
            updates: self.updates,
            logs: self.threads,
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            log_bytes,
            page_bytes,
            open_pages_seconds: rounded(of_pages.as_secs_f64()),
            open_seconds: rounded(of_all.as_secs_f64()),
            log_seconds_per_gib: per_gib(of_all.saturating_sub(of_pages), log_bytes),
            page_seconds_per_gib: per_gib(of_pages, page_bytes),
            records: report.records,
            domain: info.domain_label(),
            medium: info.media_label(),
        })
    }

    fn load(&self, db: &Database, table: &Table) -> Result<()> {
        let text = self.text();
        for first in (0..self.rows).step_by(ROWS_PER_LOAD as usize) {
            let last = self.rows.min(first + ROWS_PER_LOAD);
            db.update(|tx| (first..last).try_for_each(|row| table.put(tx, &row![key(row), 0_u64, text.as_str()])))?;
        }
        Ok(())
    }

    fn text(&self) -> String {
        "x".repeat(self.text_bytes as usize)
    }

    /// Each thread changes rows of its own. Returns the last number of each row.
    fn update(&self, db: &Database, table: &Table) -> Result<Vec<AtomicU64>> {
        let written: Vec<AtomicU64> = (0..self.rows).map(|_| AtomicU64::new(0)).collect();
        let threads = self.threads.min(self.rows);
        let (text, rows_of_one) = (self.text(), self.rows / threads);
        std::thread::scope(|scope| {
            let work = |thread: u64| {
                let (text, written) = (&text, &written);
                scope.spawn(move || {
                    let mut state = thread + 1;
                    for number in 1..=self.updates / threads {
                        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                        let row = (state >> 33) % rows_of_one * threads + thread;
                        db.update(|tx| table.put(tx, &row![key(row), number, text.as_str()]))?;
                        written[row as usize].store(number, Ordering::Relaxed);
                    }
                    Ok::<_, Error>(())
                })
            };
            let workers: Vec<_> = (0..threads).map(work).collect();
            workers.into_iter().try_for_each(|worker| worker.join().expect("a worker does not panic"))
        })?;
        Ok(written)
    }

    fn verify(&self, db: &Database, table: &Table, written: &[AtomicU64]) -> Result<()> {
        let snapshot = db.snapshot()?;
        for (row, written) in (0..).zip(written) {
            let found = table.get(&snapshot, &row![key(row)])?;
            let number = found.as_ref().map(|found| &found[1]);
            let expected = Value::U64(written.load(Ordering::Relaxed));
            ensure!(number == Some(&expected), "row {row} came back as {number:?}, it was {expected:?}");
        }
        Ok(())
    }
}

/// The keys have no order, as those of a hash.
fn key(row: u64) -> u64 {
    row.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

fn pages_in_use(db: &Database) -> u64 {
    let pages = db.page_stats();
    (pages.pages - pages.pages_free) * pages.page_bytes
}

/// Opens the database, and says how long it took.
fn open(pool: &Pool, options: &DatabaseOptions) -> Result<(Database, Table, Duration, RecoveryReport)> {
    let store = Store::over(pool)?;
    let begun = Instant::now();
    let db = Database::open_in(&store, options).context("the database does not open")?;
    let time = begun.elapsed();
    let schema =
        Schema::new("rows").column("k", Type::U64).column("n", Type::U64).column("text", Type::Text).key(["k"]);
    let (table, report) = (db.create_table(&schema)?, db.recovery());
    Ok((db, table, time, report))
}

fn text(figures: &Figures) -> String {
    let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / (1 << 20) as f64);
    properties([
        ("rows", human_figure(figures.rows as f64)),
        ("pages in use", mib(figures.page_bytes)),
        ("log since the checkpoint", format!("{}, {} records", mib(figures.log_bytes), figures.records)),
        ("processors", figures.processors.to_string()),
        ("open, pages alone", format!("{:.3} s", figures.open_pages_seconds)),
        ("open, pages and log", format!("{:.3} s", figures.open_seconds)),
        ("seconds per GiB of log", format!("{:.2}", figures.log_seconds_per_gib)),
        ("seconds per GiB of pages", format!("{:.2}", figures.page_seconds_per_gib)),
        ("domain", figures.domain.clone()),
        ("medium", figures.medium.clone()),
    ])
}
