//! `lodestone pool create`.

use std::path::{Path, PathBuf};

use anyhow::Result;
use lodestone_pmem::{Pool, PoolOptions, Topology};
use serde::Serialize;

use crate::output::Output;
use crate::size;

use super::OpenArgs;

const AFTER_HELP: &str = "\
Examples:
  lodestone pool create orders.pool
  lodestone pool create orders.pool --size 1GiB --journal 64MiB
  lodestone pool create /mnt/pmem/orders.pool --domain dax --layout orders
  lodestone pool create /mnt/pmem0/orders.pool --part /mnt/pmem1/orders.pool
  lodestone pool create orders.pool --parts-per-node --virtual-nodes 2";

/// Arguments of `lodestone pool create`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    open: OpenArgs,

    /// Size of the pool
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = size::parse)]
    size: u64,

    /// Size of the journal inside it, which the block domain needs
    #[arg(long, value_name = "SIZE", default_value = "8MiB", value_parser = size::parse)]
    journal: u64,

    /// Name of the layout: a program that expects another one refuses the pool
    #[arg(long, value_name = "NAME", default_value = "")]
    layout: String,

    /// Replace an existing file or pool
    #[arg(long)]
    overwrite: bool,

    /// Make one part for each NUMA node (or virtual node), beside part 0 and named after it: POOL.1, POOL.2, ...
    #[arg(long, conflicts_with_all = ["parts", "part_nodes"])]
    parts_per_node: bool,
}

#[derive(Serialize)]
struct Created {
    path: String,
    domain: String,
    promise: String,
    size_bytes: u64,
    parts: u16,
    journal_bytes: u64,
    layout: String,
}

/// `options` with a part for each node of the machine. The parts have the names under which part 0 finds them.
fn one_part_per_node(path: &Path, options: PoolOptions) -> Result<PoolOptions> {
    let topology = Topology::for_pool(&options.sysfs_root, options.virtual_nodes)?;
    let nodes = topology.nodes();
    let named = |number: usize| PathBuf::from(format!("{}.{number}", path.display()));
    let parts = (1..nodes.len()).map(named).collect();
    Ok(PoolOptions { parts, part_nodes: nodes.iter().map(|node| node.id).collect(), ..options })
}

/// Creates the pool.
pub fn run(args: &Args, output: &Output) -> Result<()> {
    let options = PoolOptions {
        size_bytes: args.size,
        journal_bytes: args.journal,
        layout_name: args.layout.clone(),
        overwrite: args.overwrite,
        ..args.open.options()?
    };
    let options = if args.parts_per_node { one_part_per_node(&args.open.path, options)? } else { options };
    let pool = Pool::create(&args.open.path, &options)?;
    let info = pool.info();
    let created = Created {
        path: args.open.path.display().to_string(),
        domain: info.domain_label(),
        promise: info.promise,
        size_bytes: pool.memory().part_len(0),
        parts: pool.memory().part_count(),
        journal_bytes: args.journal,
        layout: args.layout.clone(),
    };
    output.result(&created, |created| {
        let parts = if created.parts > 1 { format!("{} parts of ", created.parts) } else { String::new() };
        format!(
            "{}: created, {parts}{} in the {} domain: {}",
            created.path,
            size::human(created.size_bytes),
            created.domain,
            created.promise
        )
    })
}
