//! `lodestone bench`: the speed of this machine and this code, in figures that name their origin.

mod agents;
mod backup;
mod engine;
mod fabric;
mod index;
mod kv;
mod nodes;
mod oltp;
mod over;
pub mod place;
mod recovery;
pub mod stm;
mod substrate;
mod ways;
pub mod ycsb;
mod ycsb_cache;
mod ycsb_pages;
pub mod ycsb_report;

use std::time::Duration;

use anyhow::{Context, Result};
use comfy_table::Table;
use lodestone_workload::result::BenchResult;

use lodestone_cli::output::table;

const AFTER_HELP: &str = "\
Examples:
  lodestone bench ycsb --workload a --threads 8
  lodestone bench ycsb --workload all --records 1000000 --durability sync \\
    --json
  lodestone bench stm --structure hash,tree --updates 2,20,80 --threads 1,2 \\
    --path /dev/shm --domain dax-emulated
  lodestone bench index --index fastfair,fptree,hash --mix search,insert \\
    --path /dev/shm --domain dax-emulated
  lodestone bench kv --path /dev/shm --domain dax-emulated
  lodestone bench tpcc --warehouses 2 --threads 1,2
  lodestone bench smallbank --ways sync,none,epoch:40ms,naive --turns 3
  lodestone bench recovery --rows 1000000 --updates 4000000
  lodestone bench backup --warehouses 4 --threads 8
  lodestone bench substrate --assert
  lodestone bench agents --profile optane
  lodestone bench nodes --folders /mnt/pmem0,/mnt/pmem1
  lodestone bench fabric --transport switch,udp --members 2,3

Every figure comes with its domain, medium, durability, instructions and seed.";

lodestone_cli::subcommands! {
    /// The commands of `lodestone bench`.
    #[command(after_help = AFTER_HELP)]
    pub enum BenchCommand {
        /// Run the workloads A to F of YCSB on a map in a new pool
        Ycsb(ycsb::Args) => ycsb::run,
        /// Run the same puts, gets and scans on an ordered map, a map over an index, and a table of a database
        Kv(kv::Args) => kv::run,
        /// Run TPC-C on a database, and check its twelve consistency conditions
        Tpcc(oltp::TpcCArgs) => oltp::run_tpcc,
        /// Run TPC-B on a database, and check its sums
        Tpcb(oltp::TpcBArgs) => oltp::run_tpcb,
        /// Run SmallBank on a database, and check its sum
        Smallbank(oltp::SmallBankArgs) => oltp::run_smallbank,
        /// Measure how long a database takes to open after a crash, by the bytes of its logs and of its pages
        Recovery(recovery::Args) => recovery::run,
        /// Run TPC-C on a database beside backups, and check its conditions in the last backup
        Backup(backup::Args) => backup::run,
        /// Run one structure on several transactional memories: Lodestone's, log-based ones, plain DRAM
        Stm(stm::Args) => stm::run,
        /// Run one mix of operations on several indexes: Lodestone's, and plain ones in DRAM
        Index(index::Args) => index::run,
        /// Load an index for `bench index --open`, and change it until standard input ends
        #[command(hide = true)]
        IndexLoad(index::LoadArgs) => index::run_load,
        /// Compare remote access with I/O agents: the estimates of the paper and of the profile, and measurements
        Agents(agents::Args) => agents::run,
        /// Run paper 4's loads with and without placement, by threads on the nodes of this machine
        Nodes(nodes::Args) => nodes::run,
        /// Replicate records to members of a group, by transport and number of replicas
        Fabric(fabric::Args) => fabric::run,
        /// Compare persist, stream and durable with the bare instructions and system calls
        Substrate(substrate::Args) => substrate::run,
    }
}

impl BenchCommand {
    /// Whether another command started this one to end it.
    pub fn is_worker(&self) -> bool {
        matches!(self, Self::IndexLoad(_))
    }
}

/// Longest time of a run: a year. Sums of such times, and moments that far in the future, do not overflow.
const SECONDS_MAX: f64 = 365.0 * 86_400.0;

/// The progress report of a signal: the number of finished runs.
fn so_far(done: usize, of: usize) -> String {
    format!("{done} of {of} runs were measured; with --json each figure is printed as soon as it is there")
}

/// The results in a table. A column is a title and the key of a field.
fn results_table<'r>(columns: &[(&str, &str)], results: impl IntoIterator<Item = &'r BenchResult>) -> Table {
    let titles: Vec<&str> = columns.iter().map(|(title, _)| *title).collect();
    let mut shown = table(&titles);
    for result in results {
        shown.add_row(result.row(columns));
    }
    shown
}

/// The duration in the argument `name`.
fn duration(seconds: f64, name: &str) -> Result<Duration> {
    let found = Duration::try_from_secs_f64(seconds).ok().filter(|_| seconds <= SECONDS_MAX);
    found.with_context(|| format!("{name} needs a number of seconds, from 0 to {SECONDS_MAX} (a year)"))
}
