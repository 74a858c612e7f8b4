//! `lodestone media`: the cost of memories.

mod fit;
mod probe;
mod profiles;
mod show;
mod verify;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

use crate::output::Output;

const AFTER_HELP: &str = "\
Examples:
  lodestone media probe . --quick --json > probe.json
  lodestone media fit probe.json -o mine.toml
  lodestone media profiles
  lodestone media show optane > my.toml
  lodestone media verify --profile optane
  lodestone kv put a.pool key value --domain dax-emulated --profile my.toml \\
    --virtual-time";

/// Arguments of `lodestone media`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(subcommand)]
    command: MediaCommand,
}

#[derive(Debug, Subcommand)]
enum MediaCommand {
    /// Measure a pool, a device, a file, DRAM or a profile, and say how to use it
    Probe(probe::Args),
    /// Make a profile from the measurements of a probe
    Fit(fit::Args),
    /// List the built-in profiles
    Profiles(profiles::Args),
    /// Print a profile as TOML, to edit and use
    Show(show::Args),
    /// Compare a profile with the papers' figures, cell by cell
    Verify(verify::Args),
}

/// Runs the command.
pub fn run(args: Args, output: &Output) -> Result<ExitCode> {
    match args.command {
        MediaCommand::Probe(args) => probe::run(&args, output),
        MediaCommand::Fit(args) => fit::run(&args, output),
        MediaCommand::Profiles(args) => profiles::run(&args, output),
        MediaCommand::Show(args) => show::run(&args, output),
        MediaCommand::Verify(args) => verify::run(&args, output),
    }
}
