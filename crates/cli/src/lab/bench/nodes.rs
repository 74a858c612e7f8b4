//! `lodestone bench nodes`: paper 4's loads with and without placement, by threads on the nodes of this machine.
//!
//! It is the sibling of `lodestone sim nodes`: the same tables and transactions, run and not modelled.

use std::path::PathBuf;

use anyhow::{Result, bail, ensure};
use clap::ValueEnum;
use lodestone_baselines::nodes::{Layout, Load, RealOutcome, RealSetup, Setup, run_really};
use lodestone_media::MediaProfile;
use lodestone_pmem::DomainChoice;
use lodestone_workload::result::human_figure;
use serde::Serialize;

use lodestone_cli::output::{Output, ProgressUnit, table};
use lodestone_cli::{interrupt, size};

const AFTER_HELP: &str = "\
Examples:
  lodestone bench nodes --folders /mnt/pmem0,/mnt/pmem1
  lodestone bench nodes --folders /mnt/pmem0,/mnt/pmem1 --loads tpcc --json
  lodestone bench nodes --folders a,b --virtual-nodes --domain process

Each folder is on the persistent memory of its node, in the order of the nodes. Cases: 1, all parts in the first folder
and all threads on the first node; 2, a part in each folder, one log, and threads on all nodes; 3, a log on each node as
well, and I/O agents; routed: case 3 with each transaction on the node of its table.

Far lines are lines of 64 bytes that a thread reads or writes on another node. These counts hold on any machine. The
transactions per second are those of this machine: with virtual nodes, or in an emulator, all memory is equally far.";

/// Arguments of `lodestone bench nodes`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// A folder on each node, for its part of the pool
    #[arg(long, value_name = "FOLDERS", value_delimiter = ',', required = true)]
    folders: Vec<PathBuf>,

    /// Split the processors of this machine into as many nodes as there are folders
    #[arg(long)]
    virtual_nodes: bool,

    /// Transactions
    #[arg(long, value_name = "LOADS", value_enum, value_delimiter = ',', default_value = "select,update,insert,tpcc")]
    loads: Vec<RealLoad>,

    /// Threads of each node
    #[arg(long, value_name = "COUNT", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: u16,

    /// Transactions of each thread
    #[arg(long, value_name = "COUNT", default_value_t = 2_000, value_parser = clap::value_parser!(u64).range(1..))]
    operations: u64,

    /// Rows of YCSB, over all tables, of 1,000 bytes
    #[arg(long, value_name = "COUNT", default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1000..))]
    records: u64,

    /// Bytes of DRAM for rows
    #[arg(long, value_name = "SIZE", default_value = "2MiB", value_parser = size::parse)]
    cache: u64,

    /// Bytes of each part
    #[arg(long, value_name = "SIZE", default_value = "128MiB", value_parser = size::parse)]
    part_bytes: u64,

    /// Warehouses, items, and customers of a district of TPC-C
    #[arg(long, value_name = "COUNTS", value_delimiter = ',', default_values_t = [2, 1000, 100])]
    tpcc: Vec<u64>,

    /// Changes between two checkpoints
    #[arg(long, value_name = "COUNT", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..))]
    changes_per_round: u64,

    /// Persistence domain
    #[arg(long, value_name = "DOMAIN", default_value = "auto", value_parser = domain)]
    domain: DomainChoice,

    /// Seed of all random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn domain(text: &str) -> Result<DomainChoice, String> {
    text.parse().map_err(|error: lodestone_pmem::Error| error.to_string())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum RealLoad {
    Select,
    Update,
    Insert,
    Tpcc,
}

impl RealLoad {
    const fn load(self) -> Load {
        match self {
            Self::Select => Load::Select,
            Self::Update => Load::Update,
            Self::Insert => Load::Insert,
            Self::Tpcc => Load::TpcC,
        }
    }
}

/// A line of the output, as JSON.
#[derive(Serialize)]
struct Line<'a> {
    bench: &'static str,
    is_virtual: bool,
    #[serde(flatten)]
    outcome: &'a RealOutcome,
}

/// The cases: without placement, and with it.
fn layouts(nodes: usize) -> [Layout; 4] {
    let three = Layout::case_3(nodes);
    let routed = Layout { is_routed: true, ..three.clone() }.named("case 3, routed");
    [Layout::case_1(nodes), Layout::case_2(nodes), three, routed]
}

/// Runs all loads in all cases.
pub fn run(args: &Args, output: &Output) -> Result<()> {
    let nodes = args.folders.len();
    ensure!((2..=8).contains(&nodes), "--folders: name 2 to 8 folders, one on each node");
    let [warehouses, items, customers] = args.tpcc[..] else { bail!("--tpcc: name three numbers") };
    ensure!(warehouses > 0 && items >= 10 && customers >= 10, "--tpcc: at least 1 warehouse, 10 items, 10 customers");
    let [medium, dram] = [MediaProfile::resolve("optane")?, MediaProfile::resolve("dram")?];
    let setup = Setup {
        records: args.records,
        cache_bytes: args.cache,
        tpcc: (warehouses, items, customers),
        changes_per_round: args.changes_per_round,
        seed: args.seed,
        ..Setup::new(medium, dram, nodes)
    };
    let real = RealSetup {
        setup,
        folders: args.folders.clone(),
        is_virtual: args.virtual_nodes,
        domain: args.domain,
        part_bytes: args.part_bytes,
        threads: usize::from(args.threads),
        operations: args.operations,
    };
    let layouts = layouts(nodes);
    let points = args.loads.len() * layouts.len();
    let bar = output.progress(u64::try_from(points).ok(), ProgressUnit::Steps).with_prefix("runs");
    for load in &args.loads {
        let mut outcomes = Vec::new();
        for layout in &layouts {
            interrupt::so_far(format!("{} of {points} runs; no result was kept", bar.position()));
            let outcome = run_really(&real, layout, load.load())?;
            if output.is_json() {
                output.json(&Line { bench: "nodes", is_virtual: args.virtual_nodes, outcome: &outcome })?;
            }
            outcomes.push(outcome);
            bar.inc(1);
        }
        if !output.is_json() {
            bar.suspend(|| print(output, &outcomes))?;
        }
    }
    bar.finish_and_clear();
    Ok(())
}

fn print(output: &Output, outcomes: &[RealOutcome]) -> Result<()> {
    let Some(first) = outcomes.first() else { return Ok(()) };
    let titles =
        ["layout", "threads", "ops/s here", "far reads", "far writes", "fences", "checkpoints", "pages by part"];
    let mut shown = table(&titles);
    for outcome in outcomes {
        let per = |lines: u64| format!("{:.1}", lines as f64 / outcome.transactions.max(1) as f64);
        let of = |(near, far): (u64, u64)| format!("{} of {}", per(far), per(near + far));
        let pages: Vec<_> = outcome.pages.iter().map(u64::to_string).collect();
        shown.add_row([
            outcome.layout.name.clone(),
            outcome.threads.to_string(),
            human_figure(outcome.ops_per_s),
            of(outcome.lines_read),
            of(outcome.lines_written),
            per(outcome.fences),
            outcome.checkpoints.to_string(),
            pages.join(", "),
        ]);
    }
    output.line(&format!("{:?}, {} nodes; lines and fences for each transaction", first.load, first.nodes))?;
    output.line(&shown.to_string())
}
