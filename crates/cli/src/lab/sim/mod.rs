//! `lodestone sim`: the behaviour of machines that are absent, by models that state their assumptions.

mod stm;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

use lodestone_cli::output::Output;

const AFTER_HELP: &str = "\
Examples:
  lodestone sim stm --structure hash --updates 80 --path /dev/shm \\
    --domain dax-emulated
  lodestone sim stm --engine tl2-redo --structure tree --updates 50 --json

A model's figures are not measurements: its assumptions, and its error where it can be measured, are printed with them.";

/// Arguments of `lodestone sim`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(subcommand)]
    command: SimCommand,
}

#[derive(Debug, Subcommand)]
enum SimCommand {
    /// Play recorded transactions on 1 to 64 simulated threads of a machine with two nodes
    Stm(stm::Args),
}

/// Runs the command.
pub fn run(args: Args, output: &Output) -> Result<ExitCode> {
    match args.command {
        SimCommand::Stm(args) => stm::run(&args, output),
    }
}
