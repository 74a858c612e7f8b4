//! The daily commands: one file per command, each with its arguments and a `run` that returns the exit code.

mod completions;
mod db;
pub mod kv;
mod man;
mod media;
pub mod pool;
mod topology;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

use crate::output::Output;

/// Commands for data, and for the machine that holds it.
#[derive(Debug, Subcommand)]
pub enum Daily {
    /// Create, inspect, check and maintain pools
    Pool(pool::Args),
    /// Store, read, import and export keys and values
    Kv(kv::Args),
    /// Tables of typed rows in serializable transactions
    Db(db::Args),
    /// Know the cost of memories: profiles, models, and how they compare with the papers
    Media(media::Args),
    /// Show the NUMA nodes of this machine, or virtual ones, and the cost of asking for a thread's node
    Topology(topology::Args),
    /// Print a completion script for a shell
    Completions(completions::Args),
    /// Write the man pages
    Man(man::Args),
}

impl Daily {
    /// Runs the command. Pages and completions are made from `program`, the tree of commands.
    ///
    /// # Errors
    /// When the work could not be done.
    pub fn run(self, program: clap::Command, output: &Output) -> Result<ExitCode> {
        match self {
            Self::Pool(args) => pool::run(args, output),
            Self::Kv(args) => kv::run(args, output),
            Self::Db(args) => db::run(args, output),
            Self::Media(args) => media::run(args, output),
            Self::Topology(args) => topology::run(&args, output),
            Self::Completions(args) => completions::run(&args, program),
            Self::Man(args) => man::run(&args, program, output),
        }
    }
}
