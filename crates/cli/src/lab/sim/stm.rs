//! `lodestone sim stm`: records real transactions, calibrates, checks the model against this machine, and plays them on
//! another one.
//!
//! 1. On one thread, a run without updates and one with the requested updates measure the software's share. Some
//!    thousand transactions are recorded. Flushes, fences and transfers of lines are timed.
//! 2. The model with this machine's costs predicts runs on one and two threads. These are then measured by processor
//!    time, so that a busy machine does not count. The difference is the error.
//! 3. The model with the other machine's costs predicts every clock on every number of threads.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use lodestone_baselines::tl2::{ClockKind, LogKind, Tl2, Tl2Options};
use lodestone_heap::HeapOptions;
use lodestone_pmem::Pool;
use lodestone_stm::Mode;
use lodestone_stm_bench::driver::MapOn;
use lodestone_stm_bench::lodestone::{Lodestone, mode_name};
use lodestone_stm_bench::mix::Stream;
use lodestone_stm_bench::runner::{self, Outcome, Spec};
use lodestone_stm_bench::sim::calibrate::{Persistence, here, measure_transfer, software};
use lodestone_stm_bench::sim::machine::Machine;
use lodestone_stm_bench::sim::model::{Simulated, SimulatedClock, SoftwareCosts, simulate};
use lodestone_stm_bench::sim::trace::{Trace, Transaction, record};
use lodestone_stm_bench::structures::{BTree, HashTable, Map, SearchTree, SortedList};
use lodestone_stm_bench::tm::TransactionalMemory;
use lodestone_workload::race::{Length, Plan};
use lodestone_workload::result::human_figure;
use serde::Serialize;

use crate::bench::place::{Origin, Place};
use crate::bench::stm::{Structure, mode};
use lodestone_cli::output::{Output, table};

const AFTER_HELP: &str = "\
Examples:
  lodestone sim stm --structure hash --updates 80 --path /dev/shm \\
    --domain dax-emulated
  lodestone sim stm --engine tl2-undo --structure tree --updates 50 \\
    --threads 1,2,4,8,16,32,64 --json

The software costs what it costs here; flushes, fences and transfers of lines cost what a machine with Optane modules
and two nodes of 36 hardware threads is assumed to take. Every assumption is printed, and each column says whether it is
an input, measured or predicted.

Without --path and --domain the transactions run in memory (/dev/shm, domain dax-emulated): a disk's time is no software
cost. The domain is printed first.";

const POOL_BYTES: u64 = 192 << 20;
const JOURNAL_BYTES: u64 = 16 << 20;

/// Arguments of `lodestone sim stm`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Structure: hash, tree, list, btree
    #[arg(long, default_value = "hash")]
    structure: Structure,

    /// Engine whose transactions are recorded: stm, tl2-undo, tl2-redo
    #[arg(long, default_value = "stm", value_parser = engine)]
    engine: Recorded,

    /// Mode of stm: one-fence, address-log, scan
    #[arg(long, default_value = "one-fence", value_parser = mode)]
    mode: Mode,

    /// Updates in a hundred operations
    #[arg(long, default_value_t = 80, value_parser = clap::value_parser!(u64).range(1..=100))]
    updates: u64,

    /// Simulated threads
    #[arg(long, value_name = "COUNTS", default_value = "1,2,4,8,16,24,32,36,40,48,56,64", value_delimiter = ',')]
    threads: Vec<usize>,

    /// Transactions that are recorded
    #[arg(long, value_name = "COUNT", default_value_t = 20_000)]
    transactions: u64,

    /// Measured time of each run on this machine
    #[arg(long, value_name = "SECONDS", default_value_t = 0.5)]
    seconds: f64,

    /// Seed of all random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,

    #[command(flatten)]
    place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recorded {
    Stm,
    Tl2(LogKind),
}

fn engine(text: &str) -> Result<Recorded, String> {
    Ok(match text {
        "stm" => Recorded::Stm,
        "tl2-undo" => Recorded::Tl2(LogKind::Undo),
        "tl2-redo" => Recorded::Tl2(LogKind::Redo),
        _ => return Err(format!("unknown engine '{text}'; use stm, tl2-undo or tl2-redo")),
    })
}

/// A line of the output, as JSON.
#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
enum Line<'a> {
    /// The place where the transactions for the calibration ran.
    Calibration {
        figures: &'static str,
        #[serde(flatten)]
        origin: Origin,
    },
    /// The input of the model.
    Model {
        figures: &'static str,
        engine: String,
        structure: &'a str,
        updates_percent: u64,
        software: SoftwareCosts,
        machine: &'a Machine,
    },
    /// The origin of a cost.
    Assumption { figures: &'static str, cost: &'a str, source: &'a str },
    /// The model's error on this machine.
    Validation {
        figures: &'static str,
        threads: usize,
        updates_percent: u64,
        measured_ops_per_cpu_s: f64,
        model_ops_per_s: f64,
        error: f64,
    },
    /// A simulated run of the clock alone: transactions of no software, no lines, no fences.
    ClockAlone { figures: &'static str, clock: &'a str, threads: usize, ticks_per_s: f64 },
    /// A simulated run.
    Result {
        figures: &'static str,
        clock: &'a str,
        #[serde(flatten)]
        simulated: Simulated,
    },
}

/// The findings before printing.
struct Found {
    engine: String,
    structure: &'static str,
    software: SoftwareCosts,
    validation: Vec<(usize, u64, f64, f64)>,
    results: Vec<(SimulatedClock, Simulated)>,
    trace: Trace,
}

/// Runs the command.
pub fn run(args: &Args, output: &Output) -> Result<()> {
    let machine = Machine::optane();
    if let Some(threads) = args.threads.iter().find(|&&threads| threads == 0 || threads > machine.threads_max()) {
        bail!("{threads} threads: the machine of the model runs 1 to {}", machine.threads_max());
    }
    let place = args.place.or_memory();
    // First, so that a reader of a figure knows the calibration of the model.
    let origin = place.origin()?;
    if output.is_json() {
        output.json(&Line::Calibration { figures: "input", origin })?;
    } else {
        output.line(&format!("calibrated here: {origin}"))?;
    }
    let args = &Args { place, ..args.clone() };
    let _busy = output.busy("sim stm");
    let found = match args.structure {
        Structure::Hash => on(args, &machine, HashTable { buckets: 10_000 }),
        Structure::Tree => on(args, &machine, SearchTree),
        Structure::List => on(args, &machine, SortedList),
        Structure::BTree => on(args, &machine, BTree),
    }?;
    print(args, &machine, &found, output)?;
    Ok(())
}

fn on<S: Map>(args: &Args, machine: &Machine, map: S) -> Result<Found> {
    let pool = || args.place.create(POOL_BYTES, JOURNAL_BYTES);
    match args.engine {
        Recorded::Stm => {
            let make = |pool: &Pool| Lodestone::open(pool, args.mode, lodestone_stm::ClockKind::Thread);
            study(args, machine, map, || Ok(make(&pool()?)?), SimulatedClock::Thread)
        }
        Recorded::Tl2(log) => {
            let options = Tl2Options { object_bytes: 128 << 20, ..Tl2Options::new(log, ClockKind::Add) };
            let make = |pool: &Pool| Tl2::open(pool, &HeapOptions::default(), &options);
            study(args, machine, map, || Ok(make(&pool()?)?), SimulatedClock::GlobalAdd)
        }
    }
}

/// Measures, calibrates, validates and simulates. `native` is the clock that the engine runs with here.
fn study<M: TransactionalMemory, S: Map>(
    args: &Args,
    machine: &Machine,
    map: S,
    make: impl Fn() -> Result<M>,
    native: SimulatedClock,
) -> Result<Found> {
    let run = Duration::try_from_secs_f64(args.seconds).context("--seconds needs a number of seconds")?;
    let keys = if args.structure == Structure::List { 256 } else { 10_000 };
    let plan = |threads| Plan { warm_up: run / 5, ..Plan::new(threads, Length::Time(run)) };
    let spec = |updates_percent, threads| Spec { keys, updates_percent, seed: args.seed, plan: plan(threads) };
    let measured = |updates, threads| -> Result<Outcome> {
        let memory = make()?;
        let driver = MapOn::create(&memory, map)?;
        runner::load(&driver, &spec(updates, threads))?;
        Ok(runner::run(&driver, &spec(updates, threads))?)
    };
    let recorded = |updates| -> Result<Trace> {
        let memory = make()?;
        runner::load(&MapOn::create(&memory, map)?, &spec(updates, 1))?;
        let handle = map.open(&memory, 0)?;
        Ok(record::<M, S>(&memory, &handle, &mut Stream::new(args.seed, 0, updates, keys), args.transactions)?)
    };
    let persistence = probe(args)?;
    let trace = recorded(args.updates)?;
    let costs = software(&measured(0, 1)?, &measured(args.updates, 1)?, &trace, persistence);
    let (atomic_ns, transfer_ns) = measure_transfer();
    let local = here(persistence, atomic_ns, transfer_ns);
    let mut validation = Vec::new();
    // A share of updates that the calibration has not seen, on one thread and on two.
    let other = (args.updates / 4).max(1);
    let other_trace = recorded(other)?;
    for (threads, updates, trace) in [(1, other, &other_trace), (2, other, &other_trace), (2, args.updates, &trace)] {
        let found = measured(updates, threads)?.run.ops_per_cpu_s();
        validation.push((threads, updates, found, simulate(trace, &local, native, costs, threads).ops_per_s));
    }
    let mut results = Vec::new();
    for clock in SimulatedClock::ALL {
        results.extend(args.threads.iter().map(|&threads| (clock, simulate(&trace, machine, clock, costs, threads))));
    }
    Ok(Found { engine: make()?.name(), structure: map.name(), software: costs, validation, results, trace })
}

/// The rate of the global clocks alone: every thread only takes ticks.
fn clock_alone(args: &Args, machine: &Machine) -> Vec<(&'static str, usize, f64)> {
    let ticks = |thread: u32| Transaction { writes: vec![thread], ..Transaction::default() };
    let none = SoftwareCosts { operation_ns: 0.0, change_ns: 0.0 };
    let mut all = Vec::new();
    for clock in [SimulatedClock::GlobalMutex, SimulatedClock::GlobalAdd, SimulatedClock::GlobalCas] {
        for &threads in &args.threads {
            // An object for each thread, so that threads meet only at the clock.
            let objects = u32::try_from(threads).unwrap_or(u32::MAX);
            let trace = Trace { transactions: (0..objects).map(ticks).collect(), objects };
            all.push((clock.name(), threads, simulate(&trace, machine, clock, none, threads).ops_per_s));
        }
    }
    all
}

/// Times flush and fence on a scratch pool in the same place.
fn probe(args: &Args) -> Result<Persistence> {
    let pool = args.place.create(64 << 20, JOURNAL_BYTES)?;
    let at = pool.heap_area(0).0.plus(64).line().start();
    if !pool.memory().contains(at, Persistence::BYTES) {
        bail!("the scratch pool is too small for the probe");
    }
    Ok(Persistence::measure(pool.memory(), at))
}

fn print(args: &Args, machine: &Machine, found: &Found, output: &Output) -> Result<()> {
    if output.is_json() {
        return print_json(args, machine, found, output);
    }
    let mode = if args.engine == Recorded::Stm { mode_name(args.mode) } else { "" };
    output.line(&format!(
        "recorded here (input): transactions of {} {mode} on a {} with {} % updates: {:.2} reads, {:.2} writes, {:.2} lines, {:.2} fences each\n\
         measured here (input): software {:.0} ns an operation, {:.0} ns more a change, without flushes, fences and clock",
        found.engine,
        found.structure,
        args.updates,
        found.trace.mean(|transaction| transaction.reads.len()),
        found.trace.mean(|transaction| transaction.writes.len()),
        found.trace.mean(|transaction| transaction.flushes as usize),
        found.trace.mean(|transaction| transaction.fences as usize),
        found.software.operation_ns,
        found.software.change_ns,
    ))?;
    let mut checked = table(&[
        "threads here\ninput",
        "updates\ninput",
        "ops per processor second\nmeasured",
        "ops per processor second\npredicted",
        "error\nof the prediction",
    ]);
    for &(threads, updates, measured, model) in &found.validation {
        let error = format!("{:+.0} %", 100.0 * (model / measured - 1.0));
        checked.add_row([
            threads.to_string(),
            format!("{updates} %"),
            human_figure(measured),
            human_figure(model),
            error,
        ]);
    }
    output.line(&format!("{checked}\nassumed (input) of {}:", machine.name))?;
    for (cost, source) in Machine::OPTANE_SOURCES {
        output.line(&format!("  {cost}: {source}"))?;
    }
    let mut alone = table(&["clock alone\ninput", "threads\ninput", "ticks/s\npredicted"]);
    for (clock, threads, ticks_per_s) in clock_alone(args, machine) {
        alone.add_row([clock.to_owned(), threads.to_string(), human_figure(ticks_per_s)]);
    }
    output.line(&format!("every thread does nothing but take a time from a global clock\n{alone}"))?;
    let mut shown = table(&[
        "clock\ninput",
        "threads\ninput",
        "ops/s\npredicted",
        "aborts/commit\npredicted",
        "clock share\npredicted",
        "persist share\npredicted",
    ]);
    for (clock, simulated) in &found.results {
        shown.add_row([
            clock.name().to_owned(),
            simulated.threads.to_string(),
            human_figure(simulated.ops_per_s),
            human_figure(simulated.aborts_per_commit),
            format!("{:.0} %", 100.0 * simulated.clock_share),
            format!("{:.0} %", 100.0 * simulated.persist_share),
        ]);
    }
    output.line(&shown.to_string())
}

fn print_json(args: &Args, machine: &Machine, found: &Found, output: &Output) -> Result<()> {
    output.json(&Line::Model {
        figures: "input",
        engine: found.engine.clone(),
        structure: found.structure,
        updates_percent: args.updates,
        software: found.software,
        machine,
    })?;
    for (cost, source) in Machine::OPTANE_SOURCES {
        output.json(&Line::Assumption { figures: "input", cost, source })?;
    }
    for &(threads, updates_percent, measured_ops_per_cpu_s, model_ops_per_s) in &found.validation {
        let error = model_ops_per_s / measured_ops_per_cpu_s - 1.0;
        let figures = "measured and predicted";
        let measured_line =
            Line::Validation { figures, threads, updates_percent, measured_ops_per_cpu_s, model_ops_per_s, error };
        output.json(&measured_line)?;
    }
    for (clock, threads, ticks_per_s) in clock_alone(args, machine) {
        output.json(&Line::ClockAlone { figures: "predicted", clock, threads, ticks_per_s })?;
    }
    for (clock, simulated) in &found.results {
        output.json(&Line::Result { figures: "predicted", clock: clock.name(), simulated: simulated.clone() })?;
    }
    Ok(())
}
