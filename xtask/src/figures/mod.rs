//! `cargo xtask figures stm` draws the figures of paper 1 (transactional memory) from our own runs. `figures index`
//! ([`index`]) draws those of paper 2 that compare indexes, `figures engine` ([`engine`]) those of papers 3 and 4.
//!
//! 1. Build the command in release mode, and the peers if their libraries are installed (`peers/setup.sh`).
//! 2. Run benchmarks and models, and keep every line of their output in the folder ([`collect`]).
//! 3. Draw one figure for each of the paper's, and a table of ratios against each peer ([`draw`]).
//!
//! Measured points end at the number of processors of this machine. Points beyond that are the model's and say so.

pub(crate) mod collect;
pub(crate) mod draw;
mod engine;
mod index;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Subcommand};

/// The paper whose figures are drawn.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Paper 1: global clocks, logs, structures under three mixes, YCSB.
    Stm(Options),
    /// Paper 2: the two hybrids, the cache in front of three indexes.
    Index(index::Options),
    /// Paper 3: ways of a commit under TPC-C and SmallBank: group commit, naive, none, ours, step by step. Paper 4: the
    /// database on several nodes.
    Engine(engine::Options),
}

/// Options of the runs.
#[derive(Debug, Args)]
pub struct Options {
    /// Short runs and few records, to show that everything works. Not for comparisons.
    #[arg(long)]
    pub quick: bool,
    /// Folder for the figures and the raw lines.
    #[arg(long, default_value = "target/figures/stm")]
    pub out: PathBuf,
    /// Folder for the pools: a file system in memory, so that flushes and fences are measured.
    #[arg(long, default_value = "/dev/shm")]
    pub place: PathBuf,
    /// Leave the peers out.
    #[arg(long)]
    pub no_peers: bool,
    /// Run nothing: draw from the lines of an earlier run. Figures without lines are left out.
    #[arg(long)]
    pub redraw: bool,
    /// Use the programs as they are already built.
    #[arg(long)]
    pub no_build: bool,
}

/// Runs the chore.
pub fn run(root: &Path, command: &Command) -> Result<bool> {
    let options = match command {
        Command::Stm(options) => options,
        Command::Index(options) => return index::run(root, options),
        Command::Engine(options) => return engine::run(root, options),
    };
    let out = root.join(&options.out);
    std::fs::create_dir_all(&out).with_context(|| format!("{} cannot be made", out.display()))?;
    let lines = collect::all(root, &out, options)?;
    let page = draw::draw(&out, &lines, options.quick)?;
    println!("the page is {}", page.display());
    Ok(true)
}
