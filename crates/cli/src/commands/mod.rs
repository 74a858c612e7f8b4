//! The daily commands: one file per command, each with its arguments and a `run` that returns an [`Outcome`].

mod completions;
mod db;
mod fabric;
mod fs;
pub mod kv;
mod man;
mod media;
pub mod pool;
mod serve;
mod sql;
mod topology;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

use crate::output::Output;
use crate::program::Outcome;

/// Commands for data, and for the machine that holds it.
#[derive(Debug, Subcommand)]
pub enum Daily {
    /// Create, inspect, check and maintain pools
    #[command(subcommand)]
    Pool(pool::PoolCommand),
    /// Store, read, import and export keys and values
    #[command(subcommand)]
    Kv(kv::KvCommand),
    /// Tables of typed rows in serializable transactions
    #[command(subcommand)]
    Db(db::DbCommand),
    /// Volumes of files that ordinary programs mount
    #[command(subcommand)]
    Fs(fs::FsCommand),
    /// Keepers of replicated volumes, and the certificates of their nodes
    #[command(subcommand)]
    Fabric(fabric::FabricCommand),
    /// Serve a database to the clients of PostgreSQL
    Serve(serve::Args),
    /// Run SQL on a database, without a server
    Sql(sql::Args),
    /// Know the cost of memories: profiles, models, and how they compare with the papers
    #[command(subcommand)]
    Media(media::MediaCommand),
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
            Self::Pool(command) => command.run(output),
            Self::Kv(command) => command.run(output),
            Self::Db(command) => command.run(output),
            Self::Fs(command) => command.run(output),
            Self::Fabric(command) => command.run(output),
            Self::Serve(args) => serve::run(&args, output).map(Outcome::code),
            Self::Sql(args) => sql::run(&args, output).map(Outcome::code),
            Self::Media(command) => command.run(output),
            Self::Topology(args) => topology::run(&args, output).map(Outcome::code),
            Self::Completions(args) => completions::run(&args, program).map(Outcome::code),
            Self::Man(args) => man::run(&args, program, output).map(Outcome::code),
        }
    }
}
