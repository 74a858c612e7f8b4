//! `lodestone crash`: the crash explorer from the shell.

mod fuzz;
mod list;
mod mutants;
mod replay;
mod run;
mod select;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

use lodestone_cli::output::Output;

pub use select::{Floor, floors};

const AFTER_HELP: &str = "\
Examples:
  lodestone crash list
  lodestone crash run --all
  lodestone crash run pool-create --profile adr,eadr,block --depth 2
  lodestone crash fuzz --kind fastfair --seconds 60
  lodestone crash mutants --all --json
  lodestone crash replay 'pool-roots~adr~0.2~-~-~k41.1080=0'";

/// Arguments of `lodestone crash`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(subcommand)]
    command: CrashCommand,
}

#[derive(Debug, Subcommand)]
enum CrashCommand {
    /// List the targets that can be explored
    List(list::Args),
    /// Explore: crash at every point, recover, judge
    Run(run::Args),
    /// Explore random programs: histories that no target foresees
    Fuzz(fuzz::Args),
    /// Audit: remove or move every flush and fence, one at a time, and see whether a check notices
    Mutants(mutants::Args),
    /// Show one violation again, line by line
    Replay(replay::Args),
}

/// Runs the command.
pub fn run(args: Args, output: &Output) -> Result<ExitCode> {
    match args.command {
        CrashCommand::List(args) => list::run(&args, output),
        CrashCommand::Run(args) => run::run(&args, output),
        CrashCommand::Fuzz(args) => fuzz::run(&args, output),
        CrashCommand::Mutants(args) => mutants::run(&args, output),
        CrashCommand::Replay(args) => replay::run(&args, output),
    }
}
