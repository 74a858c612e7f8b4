//! `lodestone sim nodes`: the database on several nodes, in paper 4's cases and placements (its figures 7 and 8 b, and
//! table 1) and on its media (figures 6 and 8 a), in virtual time; and scans of a table over several nodes.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use lodestone_baselines::nodes::{Layout, Load, Outcome, Setup, SoftwareCosts, run};
use lodestone_media::MediaProfile;
use lodestone_workload::result::{human_figure, human_ns};
use serde::Serialize;

use lodestone_cli::output::{Output, ProgressUnit, table};
use lodestone_cli::{interrupt, size};

const AFTER_HELP: &str = "\
Examples:
  lodestone sim nodes --loads select,update
  lodestone sim nodes --nodes 4 --loads tpcc --json
  lodestone sim nodes --placements --loads update
  lodestone sim nodes --media --loads select,update --milliseconds 20
  lodestone sim nodes --media --loads update --milliseconds 20 --cache 256MiB
  lodestone sim nodes --scans --nodes 4
  lodestone sim nodes --loads select --profile cxl --clients 8

Cases: 1, all modules and processes on one node; 2, a module on each node, processes anywhere, one log; 3, a log on each
node and ten agents there. Between them: whole pages as a database for disks reads and writes them; case 3 without
agents, with one a node, with one for each client, and with each transaction on the node of its table.

The engine runs as it is. Its accesses of the medium are charged with the times of the profile, in virtual time, so a run
does not depend on the load of this machine: two runs differ by less than a hundredth (TPC-C: a tenth). The processor's
time of a transaction is assumed, and so are the processors. Predicted, not measured.";

/// Arguments of `lodestone sim nodes`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Nodes, each with a part of the pool
    #[arg(long, value_name = "COUNT", default_value_t = 2, value_parser = clap::value_parser!(u8).range(2..=8))]
    nodes: u8,

    /// Transactions
    #[arg(long, value_name = "LOADS", value_enum, value_delimiter = ',', default_value = "select,update,insert,mixed")]
    loads: Vec<LoadName>,

    /// The five placements of table 1, on two nodes, instead of the cases
    #[arg(long)]
    placements: bool,

    /// The media of figures 6 and 8 a, all on one node: SATA, NVMe and persistent memory, instead of the cases
    #[arg(long, conflicts_with = "placements")]
    media: bool,

    /// A client reads a whole table, of which each node has a range of keys: alone, with agents, and with a reader on
    /// each node
    #[arg(long, conflicts_with_all = ["placements", "media", "loads"])]
    scans: bool,

    /// Persistent memory: the name of a built-in profile, or a TOML file
    #[arg(long, value_name = "PROFILE", default_value = "optane")]
    profile: String,

    /// The memory in which messages travel
    #[arg(long, value_name = "PROFILE", default_value = "dram")]
    dram: String,

    /// Processors of a node
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    processors: usize,

    /// Clients [default: 25 for each node]
    #[arg(long, value_name = "COUNT")]
    clients: Option<usize>,

    /// Rows of YCSB, over all tables
    #[arg(long, value_name = "COUNT", default_value_t = 40_000)]
    records: u64,

    /// Bytes of DRAM for rows
    #[arg(long, value_name = "SIZE", default_value = "4MiB", value_parser = size::parse)]
    cache: u64,

    /// Virtual time of each run
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 8)]
    milliseconds: u64,

    /// The processor's time of a read, a change, a scanned row, and a transaction of TPC-C, ns
    #[arg(long, value_name = "TIMES", value_delimiter = ',', num_args = 4)]
    software_ns: Vec<u64>,

    /// Folder for the pools
    #[arg(long, value_name = "FOLDER", default_value = "/dev/shm")]
    path: PathBuf,

    /// Seed of all random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum LoadName {
    Select,
    Update,
    Insert,
    Mixed,
    Scan,
    Modify,
    Tpcc,
}

impl LoadName {
    const fn load(self) -> Load {
        match self {
            Self::Select => Load::Select,
            Self::Update => Load::Update,
            Self::Insert => Load::Insert,
            Self::Mixed => Load::Mixed,
            Self::Scan => Load::Scan,
            Self::Modify => Load::Modify,
            Self::Tpcc => Load::TpcC,
        }
    }
}

/// A line of the output, as JSON.
#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
enum Line<'a> {
    /// The assumptions.
    Model { figures: &'static str, profile: &'a str, processors: usize, clients: usize, software: SoftwareCosts },
    /// A run.
    Run(&'a Outcome),
}

/// Runs `lodestone sim nodes`.
pub fn run_all(args: &Args, output: &Output) -> Result<()> {
    let nodes = usize::from(args.nodes);
    ensure!(args.processors > 0 && args.milliseconds > 0, "--processors and --milliseconds are at least 1");
    ensure!(args.records >= 1000, "--records {}: use at least 1000", args.records);
    let (medium, dram) = (MediaProfile::resolve(&args.profile)?, MediaProfile::resolve(&args.dram)?);
    let default = Setup::new(medium, dram, nodes);
    let costs = match args.software_ns[..] {
        [read_ns, change_ns, scanned_row_ns, tpcc_ns] => SoftwareCosts { read_ns, change_ns, scanned_row_ns, tpcc_ns },
        _ => default.costs,
    };
    let setup = Setup {
        processors: args.processors,
        clients: args.clients.unwrap_or(default.clients),
        records: args.records,
        cache_bytes: args.cache,
        duration_ns: args.milliseconds * 1_000_000,
        costs,
        seed: args.seed,
        ..default
    };
    if output.is_json() {
        let (processors, clients) = (setup.processors, setup.clients);
        let (figures, profile) = ("predicted", &args.profile[..]);
        output.json(&Line::Model { figures, profile, processors, clients, software: costs })?;
    } else {
        output.line(&format!(
            "predicted, in virtual time; assumed: {} processors a node, {} clients, profile {}, ns of the processor: \
             {} a read, {} a change, {} a scanned row, {} a transaction of TPC-C",
            setup.processors,
            setup.clients,
            args.profile,
            costs.read_ns,
            costs.change_ns,
            costs.scanned_row_ns,
            costs.tpcc_ns
        ))?;
    }
    let layouts = match (args.placements, args.media, args.scans) {
        (true, ..) => Layout::placements(),
        (_, true, _) => Layout::media(),
        (.., true) => Layout::scans(nodes),
        _ => Layout::cases(nodes),
    };
    let loads: Vec<Load> =
        if args.scans { vec![Load::Whole] } else { args.loads.iter().map(|load| load.load()).collect() };
    ensure!(nodes == 2 || !(args.placements || args.media), "--placements and --media are those of two nodes");
    let points = loads.len() * layouts.len();
    let bar = output.progress(u64::try_from(points).ok(), ProgressUnit::Steps).with_prefix("runs");
    for load in loads {
        let mut outcomes = Vec::new();
        for layout in &layouts {
            interrupt::so_far(format!("{} of {points} runs; no result was kept", bar.position()));
            let folder = tempfile::tempdir_in(&args.path).context("a folder for the pools")?;
            outcomes.push(run(&setup, layout, load, folder.path())?);
            bar.inc(1);
        }
        bar.suspend(|| print(output, &outcomes, args.media))?;
    }
    bar.finish_and_clear();
    Ok(())
}

fn print(output: &Output, outcomes: &[Outcome], is_media: bool) -> Result<()> {
    if output.is_json() {
        return outcomes.iter().try_for_each(|outcome| output.json(&Line::Run(outcome)));
    }
    // The routed one is no case of the paper.
    let Some(last) = outcomes.iter().rfind(|outcome| !outcome.layout.is_routed) else {
        return Ok(());
    };
    let titles = ["layout", "processors", "ops/s", "latency", "gain of the last", "far reads", "far writes"];
    let mut shown = table(&titles);
    for outcome in outcomes {
        let (near, far) = outcome.lines_read;
        let per = |lines: u64| format!("{:.1}", lines as f64 / outcome.transactions.max(1) as f64);
        shown.add_row([
            outcome.layout.name.clone(),
            outcome.processors.to_string(),
            human_figure(outcome.ops_per_s),
            human_ns(outcome.latency_ns_mean as u64),
            format!("{:+.0} %", 100.0 * (last.ops_per_s / outcome.ops_per_s.max(1.0) - 1.0)),
            format!("{} of {}", per(far), per(near + far)),
            per(outcome.far_lines_written),
        ]);
    }
    output.line(&format!("{:?}, {} nodes; lines of the medium for each transaction", last.load, last.nodes))?;
    output.line(&shown.to_string())?;
    if is_media { print_loads(output, outcomes) } else { Ok(()) }
}

/// Figures 6 b and c: processors and devices.
fn print_loads(output: &Output, outcomes: &[Outcome]) -> Result<()> {
    let titles =
        ["layout", "processors", "idle, a disk is awaited", "disk of the data", "of the logs", "data, bytes/s"];
    let mut shown = table(&titles);
    let share = |share: f64| format!("{:.0} %", 100.0 * share);
    let busy = |of: Option<f64>| of.map_or_else(|| "-".to_owned(), share);
    for outcome in outcomes {
        shown.add_row([
            outcome.layout.name.clone(),
            share(outcome.processor_share),
            share(outcome.wait_share),
            busy(outcome.data_busy_share),
            busy(outcome.log_busy_share),
            human_figure(outcome.data_bytes_per_s),
        ]);
    }
    output.line("share of the time in which they are busy; a wait for memory keeps its processor busy")?;
    output.line(&shown.to_string())
}
