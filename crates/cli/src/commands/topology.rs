//! `lodestone topology`: the NUMA nodes of this machine as pools and agents see them.
//!
//! It is a separate command, beside `media` and `pool`. It needs neither a medium nor a pool, and both refer to its
//! node numbers.

use std::time::Instant;

use anyhow::Result;
use lodestone_pmem::Topology;
use serde::Serialize;

use crate::output::{Output, table};

const AFTER_HELP: &str = "\
Examples:
  lodestone topology
  lodestone topology --virtual-nodes 4 --json

Virtual nodes stand in where a machine has one node only: they exercise placement, and say nothing about NUMA by themselves.";

/// Arguments of `lodestone topology`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Split the processors into this many virtual nodes
    #[arg(long, value_name = "COUNT", default_value_t = 0, hide_default_value = true)]
    virtual_nodes: usize,
}

#[derive(Serialize)]
struct NodeLine {
    node: u32,
    is_virtual: bool,
    cpus: Vec<usize>,
    usable_cpus: Vec<usize>,
    memory_bytes: u64,
    distances: Vec<u32>,
    unusable: Option<String>,
}

#[derive(Serialize)]
struct CostLine {
    /// Asking for the node of a pinned thread, mean in nanoseconds.
    pinned_ns: f64,
    /// The same for a thread that is not pinned (getcpu through the vDSO).
    unpinned_ns: f64,
}

/// Prints the nodes.
pub fn run(args: &Args, output: &Output) -> Result<()> {
    let topology = Topology::for_pool(std::path::Path::new("/sys"), args.virtual_nodes)?;
    let lines: Vec<NodeLine> = topology
        .nodes()
        .iter()
        .map(|node| NodeLine {
            node: node.id,
            is_virtual: topology.is_virtual(),
            cpus: node.cpus.clone(),
            usable_cpus: node.usable_cpus.clone(),
            memory_bytes: node.memory_bytes,
            distances: node.distances.clone(),
            unusable: node.why_unusable(),
        })
        .collect();
    let cost = cost(&topology);
    if output.is_json() {
        lines.iter().try_for_each(|line| output.json(line))?;
        output.json(&cost)?;
        return Ok(());
    }
    let kind = if topology.is_virtual() { "virtual node" } else { "node" };
    let mut shown = table(&[kind, "processors", "usable", "memory MiB", "distances"]);
    for line in &lines {
        let memory = (line.memory_bytes >> 20).to_string();
        let distances = line.distances.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        shown.add_row([line.node.to_string(), list(&line.cpus), list(&line.usable_cpus), memory, distances]);
    }
    output.line(&shown.to_string())?;
    output.line(&format!(
        "node of a thread: {:.1} ns when pinned, {:.1} ns when not (getcpu)",
        cost.pinned_ns, cost.unpinned_ns
    ))?;
    lines.iter().filter_map(|line| line.unusable.as_deref()).for_each(|text| output.note(text));
    Ok(())
}

fn list(cpus: &[usize]) -> String {
    if cpus.is_empty() { "none".into() } else { cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(",") }
}

/// Mean cost of asking for the calling thread's node.
fn cost(topology: &Topology) -> CostLine {
    const CALLS: u32 = 200_000;
    let mean = || {
        let started = Instant::now();
        for _ in 0..CALLS {
            std::hint::black_box(std::hint::black_box(topology).node_of_thread());
        }
        started.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS)
    };
    let unpinned_ns = mean();
    let usable = topology.nodes().iter().position(|node| node.why_unusable().is_none());
    let pinned_ns = match usable.map(|node| topology.pin_thread(node)) {
        Some(Ok(())) => mean(),
        _ => f64::NAN,
    };
    CostLine { pinned_ns, unpinned_ns }
}
