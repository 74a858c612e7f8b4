//! `lodestone bench tpcc`, `tpcb` and `smallbank`: transactions over tables in a new database.
//!
//! For each number of threads, each turn, and each way of a commit ([`ways`]):
//! 1. a fresh pool is made and the tables are loaded;
//! 2. in the block domain the cost of one bare device sync is measured beside the pool;
//! 3. the transactions run without waiting times;
//! 4. the rules of the workload are checked on all rows, before the database is closed: without durability nothing
//!    would be left. A rule that does not hold fails the command, and the run has no figures.
//!
//! With several ways the first one is compared with each other one at the end.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use lodestone_engine::{Database, DatabaseOptions, Durability};
use lodestone_engine_bench::tables::DatabaseTables;
use lodestone_pmem::Domain;
use lodestone_store::Store;
use lodestone_width::to_usize;
use lodestone_workload::engine::EngineError;
use lodestone_workload::oltp::memory::MemoryTables;
use lodestone_workload::oltp::smallbank::SmallBank;
use lodestone_workload::oltp::tpcb::TpcB;
use lodestone_workload::oltp::tpcc::TpcC;
use lodestone_workload::oltp::{self, OltpEngine, Outcome, Workload};
use lodestone_workload::race::{Length, Moment, Plan};
use lodestone_workload::result::{BenchResult, human_figure, human_ns, rounded};

use lodestone_cli::interrupt;
use lodestone_cli::output::{Output, ProgressUnit, table};
use lodestone_cli::publish::publish;
use lodestone_cli::size;

use super::place::{self, Place};
use super::ways::{self, Comparison, WORDS, Way};
use super::{duration, results_table, so_far};

const AFTER_HELP_TPCC: &str = "\
Examples:
  lodestone bench tpcc --warehouses 2 --threads 1,2 --seconds 5
  lodestone bench tpcc --warehouses 1 --items 1000 --customers 100 \\
    --operations 10000 --json
  lodestone bench tpcc --warehouses 2 --path . --domain block
  lodestone bench tpcc --warehouses 2 --profile optane
  lodestone bench tpcc --seconds 60 --publish tpcc.stats
  lodestone bench tpcc --ways sync,none,epoch:40ms,naive,late --turns 3
  lodestone bench tpcc --ways naive+unaligned+flush,sync+flush,sync \\
    --profile optane --json
  lodestone bench tpcc --ways sync,emulated,emulated:0.1 --json
  lodestone bench tpcc --ways dual,sync --turns 3

The mix is 45 % NewOrder, 43 % Payment, and 4 % each of OrderStatus, Delivery and StockLevel. There are no waiting times.
The twelve conditions of clause 3.3.2 are checked after each run.";

const AFTER_HELP_TPCB: &str = "\
Examples:
  lodestone bench tpcb --branches 4 --threads 1,2 --seconds 5
  lodestone bench tpcb --accounts 1000 --operations 10000 --json
  lodestone bench tpcb --ways sync,whole-rows,dual,none --turns 3

The sums of branches, tellers, accounts and history are checked after each run.";

const AFTER_HELP_SMALLBANK: &str = "\
Examples:
  lodestone bench smallbank --threads 1,2 --seconds 5
  lodestone bench smallbank --customers 1000 --hot 20 --operations 10000 --json
  lodestone bench smallbank --ways sync,none,epoch --turns 3 --profile optane

The mix is 25 % SendPayment, and 15 % each of Balance, DepositChecking, TransactSavings, Amalgamate and WriteCheck. The sum
of all accounts is checked to the cent after each run.";

/// The measurements, the same for all three.
const MEASURED: &str = "\
Latency is from the begin of a transaction, lost attempts included, until it is acknowledged: then it and all that it saw
survive what its way promises. With epoch a worker does not wait meanwhile. It executes further transactions, at most as
many as --unacknowledged, looks after each one, and notes those whose epoch is durable. With --unacknowledged 0 it waits
for each. Throughput counts all transactions of the measured time. All of them are acknowledged before the rules are
checked. A run of a number of --operations ends with its last acknowledgement.

With several ways, or turns, each combination is measured on a fresh database with the same rows and seed, in turns. Then
come the medians over the turns, and ratios of the first way to each other one: the median of the ratios in each turn, so
that 0.86 under throughput means 86 % of the other's. With --json each line has a kind: run, median or comparison.

The medium is the file's, or DRAM without --path. With --profile it is a model that delays flushes, fences and streams.";

/// The help of a command, with the parts that all three have.
fn with_ways(help: &str) -> String {
    format!("{help}\n\n{MEASURED}\n\n{WORDS}")
}

/// Arguments of `lodestone bench tpcc`.
#[derive(Debug, clap::Args)]
#[command(after_help = with_ways(AFTER_HELP_TPCC))]
pub struct TpcCArgs {
    #[command(flatten)]
    sizes: TpcCSizes,

    #[command(flatten)]
    common: Common,
}

/// The sizes of TPC-C.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct TpcCSizes {
    /// Warehouses
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..1 << 15))]
    warehouses: u64,

    /// Items; the standard has 100000
    #[arg(long, value_name = "COUNT", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(10..1 << 31))]
    items: u64,

    /// Customers, and initial orders, of each district; the standard has 3000
    #[arg(long, value_name = "COUNT", default_value_t = 3_000, value_parser = clap::value_parser!(u64).range(10..1 << 16))]
    customers: u64,
}

impl TpcCSizes {
    /// The workload of these sizes.
    pub fn workload(self) -> TpcC {
        let Self { warehouses, items, customers } = self;
        TpcC { warehouses, items, customers }
    }
}

/// Arguments of `lodestone bench tpcb`.
#[derive(Debug, clap::Args)]
#[command(after_help = with_ways(AFTER_HELP_TPCB))]
pub struct TpcBArgs {
    /// Branches
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..1 << 30))]
    branches: u64,

    /// Accounts of each branch; the standard has 100000
    #[arg(long, value_name = "COUNT", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..1 << 31))]
    accounts: u64,

    #[command(flatten)]
    common: Common,
}

/// Arguments of `lodestone bench smallbank`.
#[derive(Debug, clap::Args)]
#[command(after_help = with_ways(AFTER_HELP_SMALLBANK))]
pub struct SmallBankArgs {
    /// Customers
    #[arg(long, value_name = "COUNT", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(2..1 << 40))]
    customers: u64,

    /// Customers that nine of ten draws take [default: 4 % of them]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(2..1 << 40))]
    hot: Option<u64>,

    #[command(flatten)]
    common: Common,
}

/// Arguments of all three.
#[derive(Debug, clap::Args)]
struct Common {
    /// The tables: a database, or sorted maps in DRAM under one lock
    #[arg(long, value_enum, default_value = "db")]
    engine: EngineKind,

    /// Threads; several numbers run one after the other
    #[arg(long, value_name = "COUNTS", default_value = "1", value_delimiter = ',')]
    threads: Vec<usize>,

    /// Ways of a commit; several are measured in turns and compared, each a list of words as below [default: sync]
    #[arg(long, value_name = "WAYS", value_delimiter = ',')]
    ways: Vec<Way>,

    /// Measure each way so often, in turns, and report medians
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    turns: u64,

    /// Transactions that a worker executes with epoch before the first of them is acknowledged; 0: it waits for each
    #[arg(long, value_name = "COUNT", default_value_t = 100_000)]
    unacknowledged: usize,

    /// Measured time of each run
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    seconds: f64,

    /// Time before it that is not measured
    #[arg(long, value_name = "SECONDS", default_value_t = 0.5)]
    warm_up: f64,

    /// Measure so many transactions, all threads together, instead of a time
    #[arg(long, value_name = "COUNT")]
    operations: Option<u64>,

    /// Bytes of the logs
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = size::parse)]
    log_bytes: u64,

    /// Bytes of the pool, for a run that fills it [default: by the rows, and 4 GiB]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pool_bytes: Option<u64>,

    /// Publish the figures of each database in this file, for `lodestone db top --file FILE`
    #[arg(long, value_name = "FILE")]
    publish: Option<PathBuf>,

    /// Seed of all random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,

    #[command(flatten)]
    place: Place,
}

/// Where the tables are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum EngineKind {
    /// Tables of the database engine
    Db,
    /// Sorted maps in DRAM under one lock: no durability
    Memory,
}

/// Runs `lodestone bench tpcc`.
pub fn run_tpcc(args: &TpcCArgs, output: &Output) -> Result<()> {
    args.common.run(&args.sizes.workload(), output)
}

/// Runs `lodestone bench tpcb`.
pub fn run_tpcb(args: &TpcBArgs, output: &Output) -> Result<()> {
    args.common.run(&TpcB { branches: args.branches, accounts_per_branch: args.accounts }, output)
}

/// Runs `lodestone bench smallbank`.
pub fn run_smallbank(args: &SmallBankArgs, output: &Output) -> Result<()> {
    let bank = SmallBank::new(args.customers);
    args.common.run(&SmallBank { hot: args.hot.unwrap_or(bank.hot), ..bank }, output)
}

/// A run with its figures.
struct Measured {
    result: BenchResult,
    outcome: Outcome,
}

/// One run of a comparison.
#[derive(Clone, Copy, Debug)]
struct Run<'w> {
    way: &'w Way,
    threads: usize,
    /// From 1.
    turn: u64,
}

impl Common {
    fn run<L: Workload>(&self, workload: &L, output: &Output) -> Result<()> {
        let place = self.place.or_memory();
        let ways = self.chosen_ways()?;
        let is_db = self.engine == EngineKind::Db;
        ensure!(is_db || self.publish.is_none(), "--publish is for the database: leave it out");
        if !output.is_json() && self.engine == EngineKind::Db {
            // First, so that a reader of a figure knows its origin.
            output.line(&place.origin()?.to_string())?;
        }
        let is_compared = ways.len() > 1 || self.turns > 1;
        let (mut shown, mut comparisons) = (Vec::new(), Vec::new());
        for (done, &threads) in self.threads.iter().enumerate() {
            let runs = self.measure_ways(workload, &place, &ways, (done, threads), output)?;
            if is_compared {
                shown.extend(runs.iter().map(|runs| ways::median_of(runs)));
                let others = ways.iter().zip(&runs).skip(1);
                comparisons.extend(others.map(|(way, of)| Comparison::new(&ways[0], &runs[0], way, of)));
            } else {
                shown.extend(runs.into_iter().flatten());
            }
        }
        if output.is_json() {
            if is_compared {
                shown.iter().try_for_each(|line| output.json(line))?;
                comparisons.iter().try_for_each(|line| output.json(line))?;
            }
            return Ok(());
        }
        let columns = if is_compared { &COMPARED[..] } else { &COLUMNS };
        output.line(&results_table(columns, &shown).to_string())?;
        if !comparisons.is_empty() {
            output.line(&format!(
                "ratios of the first way, medians of {} turns\n{}",
                self.turns,
                ways::text(&comparisons)
            ))?;
        }
        output.line(&format!("seed {}; all rules hold", self.seed))
    }

    /// The ways of this run: those asked for, or the one that `--durability` means.
    fn chosen_ways(&self) -> Result<Vec<Way>> {
        ensure!(
            self.engine == EngineKind::Db || self.ways.is_empty(),
            "--ways are ways of the database: leave them out"
        );
        Ok(match (self.ways.is_empty(), self.engine, self.place.durability) {
            (false, ..) => self.ways.clone(),
            (true, EngineKind::Memory, _) => vec![Way::of(Durability::None, "memory")],
            (true, EngineKind::Db, place::Durability::Relaxed) => vec![Way::of(Durability::Ordered, "ordered")],
            (true, EngineKind::Db, _) => vec![Way::of(Durability::Sync, "sync")],
        })
    }

    /// The runs of each way with so many threads, in turns.
    fn measure_ways<L: Workload>(
        &self,
        workload: &L,
        place: &Place,
        ways: &[Way],
        (done, threads): (usize, usize),
        output: &Output,
    ) -> Result<Vec<Vec<BenchResult>>> {
        let mut runs = vec![Vec::new(); ways.len()];
        for turn in 0..to_usize(self.turns) {
            for (place_in_turn, index) in ways::order(ways.len(), turn).into_iter().enumerate() {
                let per_threads = ways.len() * to_usize(self.turns);
                let before = done * per_threads + turn * ways.len() + place_in_turn;
                interrupt::so_far(so_far(before, self.threads.len() * per_threads));
                let run = Run { way: &ways[index], threads, turn: turn as u64 + 1 };
                let mut measured = match self.engine {
                    EngineKind::Db => self.measure_database(workload, place, run, output)?,
                    EngineKind::Memory => self.measure(workload, &MemoryTables::new(L::TABLES), run, output)?,
                };
                measured.result.set_extra("kind", "run");
                measured.result.set_extra("way", run.way.name.as_str());
                measured.result.set_extra("turn", run.turn);
                if output.is_json() {
                    output.json(&measured.result)?;
                } else if ways.len() == 1 && self.turns == 1 {
                    output.line(&text::<L>(&measured))?;
                }
                runs[index].push(measured.result);
            }
        }
        Ok(runs)
    }

    fn measure_database<L: Workload>(
        &self,
        workload: &L,
        place: &Place,
        run: Run<'_>,
        output: &Output,
    ) -> Result<Measured> {
        let pool_bytes = self.pool_bytes.unwrap_or_else(|| pool_bytes(workload.rows()) + 2 * self.log_bytes);
        // In the block domain the journal carries the log.
        let pool = place.create(pool_bytes, 4 * self.log_bytes.min(64 << 20))?;
        let segment_bytes = (self.log_bytes / 4).min(DatabaseOptions::default().segment_bytes);
        let options = DatabaseOptions { log_bytes: self.log_bytes, segment_bytes, ..DatabaseOptions::default() };
        let database = Database::open_in(&Store::over(&pool)?, &run.way.apply(options))?;
        let _published = self.publish.as_deref().map(|file| publish(&database, Some(file))).transpose()?;
        let unacknowledged_max = if run.way.is_grouped() { self.unacknowledged } else { 0 };
        let engine = DatabaseTables::open_placed(database, L::TABLES, |_| run.way.is_dual)?;
        let engine = engine.unacknowledged(unacknowledged_max);
        let sync_latency = match pool.memory().domain() {
            Domain::Block => Some(place.sync_latency()?),
            _ => None,
        };
        let mut measured = self.measure(workload, &engine, run, output)?;
        let (result, database) = (&mut measured.result, engine.database());
        let (flush, stream) = pool.memory().instructions();
        result.set_extra("instructions", format!("{flush:?} {stream:?}").to_lowercase());
        result.set_extra("pool_bytes", pool_bytes);
        result.set_extra("log_limit_bytes", self.log_bytes);
        result.set_extra("checkpoints_since_load", database.page_stats().batches);
        let stats = database.stats();
        if stats.regions + stats.region_fallbacks > 0 {
            // With the load.
            for (name, count) in stats.figures().into_iter().filter(|(name, _)| name.starts_with("region")) {
                result.set_extra(name, count);
            }
        }
        if let Some(latency) = &sync_latency {
            latency.add_to(&mut result.extra);
        }
        Ok(measured)
    }

    /// Loads, runs and checks.
    fn measure<L: Workload, E: Measurable>(
        &self,
        workload: &L,
        engine: &E,
        run: Run<'_>,
        output: &Output,
    ) -> Result<Measured> {
        let Run { way, threads, turn } = run;
        let prefix = format!("{} x{threads}, {}, turn {turn}", L::NAME, way.name);
        let bar = output.progress(None, ProgressUnit::Steps).with_prefix(prefix);
        bar.set_message("load");
        let load = oltp::load(engine, workload, threads, self.seed).context("the load failed")?;
        bar.set_message("run");
        let length = match self.operations {
            Some(count) => Length::Operations(count),
            None => Length::Time(duration(self.seconds, "--seconds")?),
        };
        let warm_up = if self.operations.is_some() { 0.0 } else { self.warm_up };
        let warm_up = duration(warm_up, "--warm-up")?;
        let plan = Plan { warm_up, time_one_of: 1, ..Plan::new(threads, length) };
        let mut log_bytes = (0, 0);
        let outcome = oltp::run_and_tell(engine, workload, &plan, self.seed, &mut |moment| match moment {
            Moment::Start => log_bytes.0 = engine.log_bytes(),
            Moment::Sample(_, done) => bar.set_position(done),
            Moment::End(_) => log_bytes.1 = engine.log_bytes(),
        })?;
        bar.set_message("check");
        let violations = oltp::verify(engine, workload, outcome.tally.effect)?;
        bar.finish_and_clear();
        oltp::refuse(&violations).map_err(|error: EngineError| {
            anyhow::anyhow!("{} on {}, {}, {threads} threads: {error}", L::NAME, engine.name(), way.name)
        })?;
        let mut result = outcome.result(engine, workload, self.seed);
        result.set_extra("load_seconds", rounded(load.elapsed.as_secs_f64()));
        result.set_extra("log_bytes_per_op", outcome.run.per_op(log_bytes.1 - log_bytes.0));
        result.set_extra("rules_violated", violations.len());
        Ok(Measured { result, outcome })
    }
}

/// An engine of this command.
trait Measurable: OltpEngine {
    /// Bytes that were ever appended to its logs.
    fn log_bytes(&self) -> u64;
}

impl Measurable for DatabaseTables {
    fn log_bytes(&self) -> u64 {
        self.database().log_bytes()
    }
}

impl Measurable for MemoryTables {
    fn log_bytes(&self) -> u64 {
        0
    }
}

/// Bytes of a pool for so many rows, with room for two checkpoints of them and for the rows of a run.
fn pool_bytes(rows: u64) -> u64 {
    (4 << 30) + (rows * 1_024).next_multiple_of(1 << 20)
}

const COLUMNS: [(&str, &str); 15] = [
    ("threads", "threads"),
    ("transactions/s", "ops_per_s"),
    ("mean", "latency_ns_mean"),
    ("p50", "latency_ns_p50"),
    ("p99", "latency_ns_p99"),
    ("p99.9", "latency_ns_p99_9"),
    ("cpu ns", "cpu_ns_per_op"),
    ("retries/commit", "aborts_per_commit"),
    ("fences", "fences_per_op"),
    ("log bytes", "log_bytes_per_op"),
    ("PM bytes", "pm_bytes_per_op"),
    ("media blocks", "media_blocks_per_op"),
    ("syncs", "syncs_per_op"),
    ("load s", "load_seconds"),
    ("domain", "domain"),
];

/// Columns where ways are compared.
const COMPARED: [(&str, &str); 12] = [
    ("threads", "threads"),
    ("way", "way"),
    ("transactions/s", "ops_per_s"),
    ("mean", "latency_ns_mean"),
    ("p50", "latency_ns_p50"),
    ("p99", "latency_ns_p99"),
    ("cpu ns", "cpu_ns_per_op"),
    ("retries/commit", "aborts_per_commit"),
    ("fences", "fences_per_op"),
    ("log bytes", "log_bytes_per_op"),
    ("domain", "domain"),
    ("medium", "media"),
];

/// The classes of a run, for people.
fn text<L: Workload>(measured: &Measured) -> String {
    let Measured { result, outcome } = measured;
    let mut classes =
        table(&["transaction", "per second", "cancelled", "p50", "p99", "p99.9", "max", "fences", "PM bytes"]);
    for (name, class) in L::CLASSES.iter().zip(&outcome.tally.classes) {
        let latency = outcome.run.latency_by_class.iter().find(|(found, _)| found == name);
        let time = |quantile| latency.map_or("-".into(), |(_, all)| human_ns(all.value_at_quantile(quantile)));
        let figure = |key: &str| {
            let found = result.extra.get(&format!("{name}_{key}")).and_then(serde_json::Value::as_f64);
            found.map_or("-".into(), human_figure)
        };
        classes.add_row([
            (*name).into(),
            figure("per_s"),
            class.cancelled.to_string(),
            time(0.5),
            time(0.99),
            time(0.999),
            time(1.0),
            figure("fences_per_op"),
            figure("pm_bytes_per_op"),
        ]);
    }
    let medium = result.media.clone().unwrap_or_else(|| "dram".into());
    format!(
        "{} on {}: {} rows, {} threads, medium {medium}, durability {}\n{classes}",
        L::NAME,
        result.engine,
        human_figure(result.records as f64),
        result.threads,
        result.durability.as_deref().unwrap_or("none"),
    )
}
