//! `lodestone pool`: create, inspect, check and maintain pools.

mod create;
mod grow;
mod info;
mod open;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

use crate::output::Output;

pub use open::{OpenArgs, domain};

const AFTER_HELP: &str = "\
Examples:
  lodestone pool create orders.pool --size 256MiB
  lodestone pool info orders.pool
  lodestone pool check orders.pool
  lodestone pool grow orders.pool --size 1GiB";

/// Arguments of `lodestone pool`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(subcommand)]
    command: PoolCommand,
}

#[derive(Debug, Subcommand)]
enum PoolCommand {
    /// Create a pool
    Create(create::Args),
    /// Show what a pool is, and what its memory survives
    Info(info::Args),
    /// Make a pool larger; nothing in it moves
    Grow(grow::Args),
}

/// Runs the command.
pub fn run(args: Args, output: &Output) -> Result<ExitCode> {
    match args.command {
        PoolCommand::Create(args) => create::run(&args, output),
        PoolCommand::Info(args) => info::run(&args, output),
        PoolCommand::Grow(args) => grow::run(&args, output),
    }
}
