//! `lodestone bench agents`: the gain of I/O agents, as paper 4 estimates it, as the medium's profile predicts it, and
//! as it is measured under emulation.
//!
//! 1. Remote reads and writes of several sizes, direct and by agent.
//! 2. The paper's transactions over two tables on two nodes: pure write, pure read, mixed.
//! 3. Many clients and one agent: the case that the paper's model leaves out.
//!
//! The columns are:
//! - the paper's units;
//! - the profile, by latency (one thread) and by bandwidth (the medium's time, which is how the paper got its units);
//! - virtual time, which is deterministic;
//! - real time: agents and rings on this machine, the model spinning.
//!
//! Only real time is measured. Each column says whether it is an input, predicted or measured.

use anyhow::{Context, Result, ensure};
use lodestone_baselines::agents::paper::{PAPER, Prediction, UnitCosts, predict};
use lodestone_baselines::agents::profile::{Basis, unit_costs};
use lodestone_baselines::agents::real_time::Machine;
use lodestone_baselines::agents::{AccessKind, Setup, Way, Workload, virtual_time};
use lodestone_media::MediaProfile;
use serde::Serialize;

use lodestone_cli::output::{Output, table};

const AFTER_HELP: &str = "\
Examples:
  lodestone bench agents
  lodestone bench agents --profile cxl --virtual-nodes 4
  lodestone bench agents --no-real-time --json

Times in virtual time are exact and the same in every run. Times in real time depend on this machine: two virtual nodes
share a cache, so that a message is cheaper than between sockets; take ratios. Each column says whether it is an input,
predicted by a model, or measured here (on the emulated medium).";

/// Arguments of `lodestone bench agents`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Persistent memory: the name of a built-in profile, or a TOML file
    #[arg(long, value_name = "PROFILE", default_value = "optane")]
    profile: String,

    /// The memory in which messages travel
    #[arg(long, value_name = "PROFILE", default_value = "dram")]
    dram: String,

    /// Virtual nodes: the client is on the first, the others have an agent each
    #[arg(long, value_name = "COUNT", default_value_t = 2)]
    virtual_nodes: usize,

    /// Sizes of accesses in bytes
    #[arg(long, value_name = "SIZES", default_value = "64,256,1024,4096,8192", value_delimiter = ',')]
    bytes: Vec<u64>,

    /// Operations per figure
    #[arg(long, value_name = "COUNT", default_value_t = 2000)]
    operations: u64,

    /// Seed of the random places
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Simulate only
    #[arg(long)]
    no_real_time: bool,
}

/// One remote operation.
#[derive(Serialize)]
struct OperationLine {
    bench: &'static str,
    kind: AccessKind,
    way: Way,
    bytes: u64,
    /// The paper's units, for its unit of 256 bytes in proportion.
    paper_units: f64,
    predicted_latency_ns: f64,
    predicted_bandwidth_ns: f64,
    virtual_ns: f64,
    real_ns: Option<f64>,
}

/// One transaction.
#[derive(Serialize)]
struct TransactionLine {
    bench: &'static str,
    workload: Workload,
    /// The paper's unit costs: direct, by agent, change.
    paper: (f64, f64, f64),
    /// The change that the paper prints, per cent, where it prints one.
    paper_printed_percent: Option<f64>,
    predicted_latency: (f64, f64, f64),
    predicted_bandwidth: (f64, f64, f64),
    virtual_time: (f64, f64, f64),
    /// By agent, overlapped with the client's share on its own node.
    virtual_time_overlapped: (f64, f64),
    real_time: Option<(f64, f64, f64)>,
    real_time_overlapped: Option<(f64, f64)>,
}

/// Several clients at once, in virtual time.
#[derive(Serialize)]
struct LoadLine {
    bench: &'static str,
    kind: AccessKind,
    clients: usize,
    direct_per_s: f64,
    agent_per_s: f64,
    change: f64,
}

/// A line with its medium. The medium is a model, even where threads really run.
#[derive(Serialize)]
struct Modelled<'a, T> {
    #[serde(flatten)]
    line: &'a T,
    media: String,
    /// The fields that were measured. Every other figure is predicted.
    measured: [&'static str; 3],
}

/// Fields with times of real threads of this machine, on the emulated medium.
const MEASURED: [&str; 3] = ["real_ns", "real_time", "real_time_overlapped"];

impl<'a, T: Serialize> Modelled<'a, T> {
    fn of(medium: &MediaProfile, line: &'a T) -> Self {
        Self { line, media: format!("emulated: {}", medium.name), measured: MEASURED }
    }
}

const BENCH: &str = "agents";
/// The paper's unit of data.
const UNIT_BYTES: u64 = 256;
/// Clients of the third table.
const CLIENTS: [usize; 4] = [1, 2, 4, 8];

/// Predicts, measures and prints.
pub fn run(args: &Args, output: &Output) -> Result<()> {
    ensure!((2..=16).contains(&args.virtual_nodes), "--virtual-nodes {}: use 2 to 16 nodes", args.virtual_nodes);
    ensure!(args.operations > 0, "--operations 0: use at least 1");
    ensure!(args.bytes.iter().all(|bytes| (8..=1 << 20).contains(bytes)), "--bytes: use sizes from 8 to 1048576");
    let setup = Setup {
        medium: MediaProfile::resolve(&args.profile)?,
        dram: MediaProfile::resolve(&args.dram)?,
        nodes: args.virtual_nodes,
        operations: args.operations,
        seed: args.seed,
    };
    let mut real = match args.no_real_time {
        true => None,
        false => {
            Some(Machine::start(&setup, true).context("starting the agents failed; --no-real-time leaves them out")?)
        }
    };
    if let Some(warning) = real.as_ref().and_then(Machine::warning) {
        output.note(&format!("note: {warning}"));
    }
    let _busy = output.busy("bench agents");
    output.note("remote operations ...");
    operations(args, &setup, real.as_mut(), output)?;
    output.note("transactions over two tables ...");
    transactions(&setup, real.as_mut(), output)?;
    output.note("many clients ...");
    loads(&setup, output)?;
    if let Some(real) = real {
        let counts = real.stop()?;
        output.note(&format!(
            "agents: {} messages in {} turns, {} fences, {} times asleep",
            counts.messages, counts.batches, counts.fences, counts.parks
        ));
    }
    Ok(())
}

/// Cost of one remote access of `kind` under `costs`.
fn remote(costs: &UnitCosts, kind: AccessKind, way: Way) -> f64 {
    match (kind, way) {
        (AccessKind::Read, Way::Direct) => costs.remote_read,
        (AccessKind::Write, Way::Direct) => costs.remote_write,
        (AccessKind::Read, _) => costs.message + costs.local_read,
        (AccessKind::Write, _) => costs.message + costs.local_write,
    }
}

fn operations(args: &Args, setup: &Setup, mut real: Option<&mut Machine>, output: &Output) -> Result<()> {
    let mut lines = Vec::new();
    for kind in [AccessKind::Read, AccessKind::Write] {
        for &bytes in &args.bytes {
            for way in [Way::Direct, Way::Agent] {
                let predicted = |basis| remote(&unit_costs(&setup.medium, &setup.dram, bytes, basis), kind, way);
                let real_ns = real.as_mut().map(|real| real.operation_ns(kind, way, bytes)).transpose()?;
                lines.push(OperationLine {
                    bench: BENCH,
                    kind,
                    way,
                    bytes,
                    paper_units: remote(&PAPER, kind, way) * bytes as f64 / UNIT_BYTES as f64,
                    predicted_latency_ns: predicted(Basis::Latency),
                    predicted_bandwidth_ns: predicted(Basis::Bandwidth),
                    virtual_ns: virtual_time::operation_ns(setup, kind, way, bytes)?,
                    real_ns,
                });
            }
        }
    }
    if output.is_json() {
        return lines.iter().try_for_each(|line| output.json(&Modelled::of(&setup.medium, line)));
    }
    let mut shown = table(&[
        "remote\ninput",
        "bytes\ninput",
        "way\ninput",
        "paper units\npredicted",
        "latency ns\npredicted",
        "bandwidth ns\npredicted",
        "virtual ns\npredicted",
        "real ns\nmeasured",
    ]);
    for line in &lines {
        let real = line.real_ns.map_or_else(|| "-".into(), |ns| format!("{ns:.0}"));
        shown.add_row([
            name(line.kind),
            line.bytes.to_string(),
            name(line.way),
            format!("{:.0}", line.paper_units),
            format!("{:.0}", line.predicted_latency_ns),
            format!("{:.0}", line.predicted_bandwidth_ns),
            format!("{:.0}", line.virtual_ns),
            real,
        ]);
    }
    output.line(&format!("remote operations, {}, {} virtual nodes", setup.medium.name, setup.nodes))?;
    output.line(&shown.to_string())
}

/// The name in the JSON output, for tables.
fn name(value: impl Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

fn with_change(direct: f64, agent: f64) -> (f64, f64, f64) {
    (direct, agent, Prediction { direct, agent }.change())
}

fn transactions(setup: &Setup, mut real: Option<&mut Machine>, output: &Output) -> Result<()> {
    let mut lines = Vec::new();
    for (workload, printed) in
        [(Workload::PureWrite, Some(-32.0)), (Workload::PureRead, Some(-78.0)), (Workload::Mixed, None)]
    {
        let model = |costs: &UnitCosts| {
            let Prediction { direct, agent } = predict(costs, &workload.transaction());
            with_change(direct, agent)
        };
        let unit = |basis| unit_costs(&setup.medium, &setup.dram, UNIT_BYTES, basis);
        let simulated = |way| virtual_time::transaction_ns(setup, workload, way, UNIT_BYTES);
        let (direct, overlapped) = (simulated(Way::Direct)?, simulated(Way::Overlapped)?);
        let mut measured = |way| real.as_mut().map(|real| real.transaction_ns(workload, way, UNIT_BYTES)).transpose();
        let (real_direct, real_agent) = (measured(Way::Direct)?, measured(Way::Agent)?);
        let real_overlapped = measured(Way::Overlapped)?;
        lines.push(TransactionLine {
            bench: BENCH,
            workload,
            paper: model(&PAPER),
            paper_printed_percent: printed,
            predicted_latency: model(&unit(Basis::Latency)),
            predicted_bandwidth: model(&unit(Basis::Bandwidth)),
            virtual_time: with_change(direct, simulated(Way::Agent)?),
            virtual_time_overlapped: (overlapped, overlapped / direct - 1.0),
            real_time: real_direct.zip(real_agent).map(|(direct, agent)| with_change(direct, agent)),
            real_time_overlapped: real_direct.zip(real_overlapped).map(|(direct, by)| (by, by / direct - 1.0)),
        });
    }
    if output.is_json() {
        return lines.iter().try_for_each(|line| output.json(&Modelled::of(&setup.medium, line)));
    }
    let mut shown = table(&["transaction", "costs from", "what", "direct", "agents", "change", "overlapped", "change"]);
    let percent = |change: f64| format!("{:+.1} %", 100.0 * change);
    for line in &lines {
        let mut row =
            |from: &str, what: &str, (direct, agent, change): (f64, f64, f64), overlapped: Option<(f64, f64)>| {
                let (by, by_change) =
                    overlapped.map_or(("-".into(), "-".into()), |(by, c)| (format!("{by:.0}"), percent(c)));
                let times = [format!("{direct:.0}"), format!("{agent:.0}"), percent(change)];
                let cells = [name(line.workload), from.into(), what.into()].into_iter().chain(times);
                shown.add_row(cells.chain([by, by_change]));
            };
        let printed =
            line.paper_printed_percent.map_or("paper".into(), |printed| format!("paper (prints {printed:+.0} %)"));
        row(&printed, "predicted", line.paper, None);
        row("profile, latency ns", "predicted", line.predicted_latency, None);
        row("profile, bandwidth ns", "predicted", line.predicted_bandwidth, None);
        row("virtual time, ns", "predicted", line.virtual_time, Some(line.virtual_time_overlapped));
        if let Some(real) = line.real_time {
            row("real time, ns", "measured", real, line.real_time_overlapped);
        }
    }
    output.line("transactions over two tables, 256 bytes each of data (and log, where they write)")?;
    output.line(&shown.to_string())
}

fn loads(setup: &Setup, output: &Output) -> Result<()> {
    let mut shown = table(&[
        "remote 256 bytes\ninput",
        "clients\ninput",
        "direct ops/s\npredicted",
        "agents ops/s\npredicted",
        "change\npredicted",
    ]);
    for kind in [AccessKind::Read, AccessKind::Write] {
        for clients in CLIENTS {
            let of =
                |way| virtual_time::load(setup, kind, way, UNIT_BYTES, clients).map(|load| load.operations_per_second);
            let (direct_per_s, agent_per_s) = (of(Way::Direct)?, of(Way::Agent)?);
            let change = agent_per_s / direct_per_s - 1.0;
            let line = LoadLine { bench: BENCH, kind, clients, direct_per_s, agent_per_s, change };
            if output.is_json() {
                output.json(&Modelled::of(&setup.medium, &line))?;
            }
            shown.add_row([
                name(kind),
                clients.to_string(),
                format!("{direct_per_s:.0}"),
                format!("{agent_per_s:.0}"),
                format!("{:+.0} %", 100.0 * change),
            ]);
        }
    }
    if output.is_json() {
        return Ok(());
    }
    output.line("many clients on node 0, one agent on each other node, virtual time")?;
    output.line(&shown.to_string())
}
