//! The command tree: one file per command, each with its arguments and a `run` that gives the exit code.

mod bench;
mod completions;
mod crash;
mod demo;
mod kv;
mod media;
mod pool;
mod sim;
mod topology;
mod torture;

use std::process::ExitCode;

use anyhow::Result;
use clap::builder::styling::{AnsiColor, Styles};
use clap::{Parser, Subcommand};

use crate::output::Output;

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default());

const AFTER_HELP: &str = "\
Examples:
  lodestone pool create orders.pool --size 256MiB
  lodestone kv import orders.pool orders.csv --key id
  lodestone kv scan orders.pool --prefix 2026- --limit 10
  lodestone pool check orders.pool
  lodestone crash run --all

Exit codes:
  0  what was asked holds
  1  a finding: damage, a missing key, rejected rows, a crash-consistency violation, a surviving mutant
  2  wrong usage, or the work could not be done; the message names the file, the finding and the next step

Every command takes --json (one JSON object per line on standard output) and --help (with examples).";

/// Durable data on persistent memory and on ordinary files.
#[derive(Debug, Parser)]
#[command(
    name = "lodestone",
    version,
    about,
    after_help = AFTER_HELP,
    styles = STYLES,
    propagate_version = true,
    max_term_width = 110
)]
pub struct Cli {
    /// Print one JSON object per line instead of text
    #[arg(long, global = true)]
    pub json: bool,

    /// Print results and errors only: no notes, no progress
    #[arg(long, short, global = true)]
    pub quiet: bool,

    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create, inspect, check and maintain pools
    Pool(pool::Args),
    /// Store, read, import and export keys and values
    Kv(kv::Args),
    /// Explore what a power failure can leave behind
    Crash(crash::Args),
    /// Kill writers and judge what they leave
    #[command(hide = true)]
    Torture(torture::Args),
    /// Measure throughput, latency and cost, with the figures' origin
    Bench(bench::Args),
    /// Know what memories cost: profiles, models, and how they compare with the papers
    Media(media::Args),
    /// Model machines that are not here, with every assumption stated
    Sim(sim::Args),
    /// A guided first run: a pool, real data, kills, power failures, figures, one page
    Demo(demo::Args),
    /// Show the NUMA nodes of this machine, or virtual ones, and what it costs a thread to know its node
    Topology(topology::Args),
    /// Print a completion script for a shell
    Completions(completions::Args),
}

impl Command {
    /// Runs the command.
    pub fn run(self, output: &Output) -> Result<ExitCode> {
        match self {
            Self::Pool(args) => pool::run(args, output),
            Self::Kv(args) => kv::run(args, output),
            Self::Torture(args) => torture::run(args, output),
            Self::Crash(args) => crash::run(args, output),
            Self::Media(args) => media::run(args, output),
            Self::Bench(args) => bench::run(args, output),
            Self::Sim(args) => sim::run(args, output),
            Self::Demo(args) => demo::run(&args, output),
            Self::Topology(args) => topology::run(&args, output),
            Self::Completions(args) => completions::run(&args),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_tree_is_consistent() {
        Cli::command().debug_assert();
    }

    /// Every command explains itself with examples.
    #[test]
    fn every_command_has_examples() {
        fn visit(command: &clap::Command, path: &str) {
            let path = format!("{path} {}", command.get_name());
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Example"), "`{path} --help` has no examples");
            assert!(help.contains("lodestone "), "`{path} --help` shows no command line");
            for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
                visit(inner, &path);
            }
        }
        visit(&Cli::command(), "");
    }
}
