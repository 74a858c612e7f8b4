//! `lodestone pool`: create, inspect, check and maintain pools.

mod create;
mod open;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

use crate::output::Output;

pub use open::OpenArgs;

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
}

/// Runs the command.
pub fn run(args: Args, output: &Output) -> Result<ExitCode> {
    match args.command {
        PoolCommand::Create(args) => create::run(&args, output),
    }
}
