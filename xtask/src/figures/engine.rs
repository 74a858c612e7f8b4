//! `cargo xtask figures engine`: the figures and tables of paper 3 (transactions), and those of paper 4 (several
//! nodes), from our own runs.
//!
//! | figure | content |
//! | --- | --- |
//! | 3 | group commit: latency and throughput by interval, in memory and on a disk |
//! | 4 | hardware transactions: aborts by size, order, medium, time and instruction, of a model |
//! | 9 | TPC-C: throughput and latency of each way of a commit, by threads |
//! | 10 a | SmallBank: latency of each way |
//! | 11 | TPC-C: from no durability to the whole protocol, step by step |
//! | 12 | TPC-C: throughput by the number of warehouses |
//! | Table 1 | latency of a transaction without durability |
//! | Table 2 | latency of 64 bytes, on the modelled media |
//! | paper 4, 6 | disks beside persistent memory: gains, loads of processors and devices, caches; of a model ([`nodes`]) |
//! | paper 4, 7, 8 b, Table 1 | several nodes: cases 1 to 3, the places of tables and logs; of a model ([`nodes`]) |
//!
//! 1. Build the command in release mode.
//! 2. Run `lodestone bench` with all ways of a figure in one run, in turns, on each medium ([`collect`]).
//! 3. Write one page ([`page`]). Beside each of our figures is the paper's. A figure that this machine cannot measure
//!    is on the page with the reason.
//!
//! Each comparison is between ways of one run. No figure of ours is in this code.

mod aborts;
mod nodes;
mod page;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use serde_json::Value;

use super::collect::{Runner, build};
use super::draw::text;

/// Options of the runs.
#[derive(Debug, Args)]
pub struct Options {
    /// Warehouses of TPC-C in figures 3, 9 and 11; the paper has 10.
    #[arg(long, default_value_t = 2)]
    warehouses: u64,
    /// Warehouses of figure 12; the paper has 10 to 200.
    #[arg(long, default_value = "1,2,4,8", value_delimiter = ',')]
    growth: Vec<u64>,
    /// Items of TPC-C; the standard has 100000.
    #[arg(long, default_value_t = 100_000)]
    items: u64,
    /// Customers of each district of TPC-C; the standard has 3000.
    #[arg(long, default_value_t = 3_000)]
    customers: u64,
    /// Customers of SmallBank; the paper has 250000 accounts, which is two for each customer.
    #[arg(long, default_value_t = 125_000)]
    bank_customers: u64,
    /// Threads of figures 9 and 10; the others have the last of them.
    #[arg(long, default_value = "1,2", value_delimiter = ',')]
    threads: Vec<u64>,
    /// Measured time of each run.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Runs of each way, in turns.
    #[arg(long, default_value_t = 3)]
    turns: u64,
    /// Bytes of each pool, as in 2GiB; by default it has room for long runs.
    #[arg(long)]
    pool_bytes: Option<String>,
    /// Folder for the figures and the raw lines.
    #[arg(long, default_value = "target/figures/engine")]
    out: PathBuf,
    /// Folder for the pools: a file system in memory, so that flushes and fences are measured.
    #[arg(long, default_value = "/dev/shm")]
    place: PathBuf,
    /// Folder on a disk, for the figures of the paper on a disk.
    #[arg(long, default_value = "target")]
    disk: PathBuf,
    /// Run nothing: draw from the lines of an earlier run. Figures without lines are empty.
    #[arg(long)]
    redraw: bool,
    /// Use the program as it is already built.
    #[arg(long)]
    no_build: bool,
    /// The program to run, instead of that of the release build.
    #[arg(long, requires = "no_build")]
    program: Option<PathBuf>,
}

/// A medium: its name, its domain, and further options that select it.
#[derive(Debug, Clone, Copy)]
struct Medium {
    name: &'static str,
    domain: &'static str,
    options: &'static [&'static str],
}

/// DRAM that is flushed, and the model of Optane.
const MEMORIES: [Medium; 2] = [
    Medium { name: "raw", domain: "dax-emulated", options: &[] },
    Medium { name: "optane", domain: "dax-emulated", options: &["--profile", "optane"] },
];
const DISK: Medium = Medium { name: "disk", domain: "block", options: &[] };

/// The intervals of figure 3, in milliseconds.
const INTERVALS_MS: [f64; 6] = [0.01, 0.1, 1.0, 10.0, 40.0, 80.0];

/// The steps of figure 11 in memory: the paper's name, and the way.
const STEPS: [(&str, &str); 8] = [
    ("no durability", "none"),
    ("+ durability (group commit)", "epoch:40ms"),
    ("+ synchronous log", "naive+unaligned+flush+whole-rows"),
    ("+ parity version", "sync+unaligned+flush+whole-rows"),
    ("+ 64-byte padding", "sync+flush+whole-rows"),
    ("+ nt-store", "sync+whole-rows"),
    ("+ 256-byte padding", "sync+align-256+whole-rows"),
    ("ours: 64 bytes, changed bytes only", "sync"),
];

/// The ways of figures 9 and 10: the paper's names, and ours.
const WAYS: [(&str, &str); 5] = [
    ("DBXN", "sync"),
    ("DBX-DRAM", "none"),
    ("DBX-NVM", "epoch:40ms"),
    ("DBX-naive", "naive"),
    ("DBXN without early reads", "late"),
];

/// The lines of one medium.
#[derive(Debug)]
struct Lines {
    medium: &'static str,
    intervals: Vec<Value>,
    tpcc: Vec<Value>,
    smallbank: Vec<Value>,
    steps: Vec<Value>,
    growth: Vec<Value>,
}

/// The lines of all runs.
#[derive(Debug)]
struct All {
    memories: Vec<Lines>,
    /// Figure 3, and the synchronous log of figure 11.
    disk: Vec<Value>,
    /// Table 2: the model's name and its figures.
    probes: Vec<(&'static str, Vec<Value>)>,
    /// Figure 4.
    aborts: Vec<Value>,
    /// Paper 4.
    nodes: nodes::Lines,
}

/// Runs and draws.
pub fn run(root: &Path, options: &Options) -> Result<bool> {
    let out = root.join(&options.out);
    std::fs::create_dir_all(&out).with_context(|| format!("{} cannot be made", out.display()))?;
    if !options.no_build && !options.redraw {
        build(root, &["build", "--release", "--package", "lodestone-cli"])?;
    }
    let page = page::draw(&out, &collect(root, &out, options)?, options)?;
    println!("the page is {}", page.display());
    Ok(true)
}

fn collect(root: &Path, out: &Path, options: &Options) -> Result<All> {
    let runner = |place: &Path| Runner {
        out,
        lodestone: options.program.clone().unwrap_or_else(|| root.join("target/release/lodestone")),
        peers: None,
        place: place.display().to_string(),
        redraw: options.redraw,
    };
    let in_memory = runner(&options.place);
    let memories = MEMORIES.iter().map(|medium| Bench { runner: &in_memory, medium, options }.memory());
    let memories = memories.collect::<Result<_>>()?;
    let on_disk = runner(&root.join(&options.disk));
    let disk =
        Bench { runner: &on_disk, medium: &DISK, options }.tpcc("disk", options.warehouses, &disk_ways(), None)?;
    let probe = |model: &'static str| {
        let words = ["media", "probe", "--profile", model, "--sections", "latency", "--quick", "--json"];
        Ok((model, in_memory.run(&in_memory.lodestone, &format!("probe-{model}"), &words)?))
    };
    let probes = ["optane", "dram"].into_iter().map(probe).collect::<Result<_>>()?;
    let aborts = in_memory.run(&in_memory.lodestone, "aborts", &["sim", "htm", "--json"])?;
    let nodes = nodes::collect(&in_memory)?;
    Ok(All { memories, disk, probes, aborts, nodes })
}

/// The name of group commit with an interval.
fn epoch(milliseconds: f64) -> String {
    format!("epoch:{milliseconds}ms")
}

fn interval_ways() -> String {
    let epochs = INTERVALS_MS.map(epoch).join(",");
    format!("none,{epochs}")
}

/// On a disk there is the synchronous log as well.
fn disk_ways() -> String {
    format!("sync,{}", interval_ways())
}

/// Runs of one medium.
struct Bench<'a> {
    runner: &'a Runner<'a>,
    medium: &'a Medium,
    options: &'a Options,
}

impl Bench<'_> {
    fn memory(&self) -> Result<Lines> {
        let (warehouses, all) = (self.options.warehouses, self.options.threads.as_slice());
        let ways = WAYS.map(|(_, way)| way).join(",");
        let steps = STEPS.map(|(_, way)| way).join(",");
        let mut growth = Vec::new();
        for &warehouses in &self.options.growth {
            let lines = self.tpcc(&format!("growth-{warehouses}"), warehouses, "sync,none,naive", None)?;
            growth.extend(lines.into_iter().map(|mut line| {
                line["warehouses"] = warehouses.into();
                line
            }));
        }
        let customers = self.options.bank_customers.to_string();
        Ok(Lines {
            medium: self.medium.name,
            intervals: self.tpcc("intervals", warehouses, &interval_ways(), None)?,
            tpcc: self.tpcc("tpcc", warehouses, &ways, Some(all))?,
            smallbank: self.run("smallbank", &["smallbank", "--customers", &customers], &ways, Some(all))?,
            steps: self.tpcc("steps", warehouses, &steps, None)?,
            growth,
        })
    }

    fn tpcc(&self, name: &str, warehouses: u64, ways: &str, threads: Option<&[u64]>) -> Result<Vec<Value>> {
        let [warehouses, items, customers] =
            [warehouses, self.options.items, self.options.customers].map(|count| count.to_string());
        let words = ["tpcc", "--warehouses", &warehouses, "--items", &items, "--customers", &customers];
        self.run(name, &words, ways, threads)
    }

    /// Runs a workload. Without `threads` it has the most that were asked for.
    fn run(&self, name: &str, words: &[&str], ways: &str, threads: Option<&[u64]>) -> Result<Vec<Value>> {
        let (options, most) = (self.options, [self.options.most_threads()]);
        let threads = threads.unwrap_or(&most).iter().map(u64::to_string).collect::<Vec<_>>().join(",");
        let (seconds, turns) = (options.seconds.to_string(), options.turns.to_string());
        let shared = ["--threads", &threads, "--seconds", &seconds, "--turns", &turns, "--ways", ways];
        let mut all = [&["bench"], words, &shared, self.medium.options].concat();
        all.extend(options.pool_bytes.iter().flat_map(|bytes| ["--pool-bytes", bytes]));
        self.runner.ours_in(self.medium.domain, &format!("{name}-{}", self.medium.name), &all)
    }
}

impl Options {
    fn most_threads(&self) -> u64 {
        self.threads.last().copied().unwrap_or(1)
    }
}

/// The medians of a way with so many threads.
fn median<'v>(lines: &'v [Value], way: &str, threads: u64) -> Option<&'v Value> {
    let fits = |line: &&Value| text(line, "kind") == "median" && text(line, "way") == way;
    lines.iter().filter(fits).find(|line| line["threads"] == threads)
}

/// The comparison of the first way of a run with another one.
fn against<'v>(lines: &'v [Value], way: &str, threads: u64) -> Option<&'v Value> {
    lines
        .iter()
        .find(|line| text(line, "kind") == "comparison" && text(line, "against") == way && line["threads"] == threads)
}
