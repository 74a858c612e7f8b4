//! The run of a Lodestone program, from its arguments to its exit code.
//!
//! 1. The arguments are parsed. A usage error ends with exit code 2.
//! 2. The command runs and returns an exit code: 0 when the requested condition holds, 1 for a finding.
//! 3. An error is printed with its causes to standard error and ends with exit code 2. When the reader of standard
//!    output is gone, the command ends quietly with 0.
//!
//! Invariants: results go to standard output, everything else to standard error. Ctrl-C or SIGKILL leaves nothing in an
//! unsafe state, because every change to a pool is failure-atomic. After Ctrl-C ([`interrupt`]) the
//! exit code is 130.

use std::process::ExitCode;

use anyhow::Result;
use clap::builder::styling::{AnsiColor, Styles};
use clap::{CommandFactory, Parser, Subcommand};

use crate::emulation;
use crate::give_back;
use crate::interrupt;
use crate::log::LogArgs;
use crate::output::{Output, StdoutClosed, exit};

/// Colours of the help.
const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default());

/// Examples and exit codes after the help of a program.
const AFTER_HELP: &str = "\
Examples:
  lodestone pool create orders.pool --size 256MiB
  lodestone kv import orders.pool orders.csv --key id
  lodestone kv scan orders.pool --prefix 2026- --limit 10
  lodestone pool check orders.pool
  lodestone crash run --all
  lodestone --log info --log-format json db checkpoint shop.pool 2> a.jsonl

Exit codes:
  0  success, without a finding
  1  a finding: damage, a missing key, rejected rows, a crash-consistency violation, a surviving mutant
  2  wrong usage, or the work could not be done; the message names the file, the finding and the next step

Every command takes --json (one JSON object per line on standard output) and --help (with examples), and
--log (what opens, checkpoints, waits and builds do, as events on standard error).";

/// Arguments that every command takes.
#[derive(Clone, Debug, clap::Args)]
struct Globals {
    /// Print one JSON object per line instead of text
    #[arg(long, global = true)]
    json: bool,

    /// Print results and errors only: no notes, no progress
    #[arg(long, short, global = true)]
    quiet: bool,

    #[command(flatten)]
    log: LogArgs,
}

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
pub struct Cli<C: Commands> {
    #[command(flatten)]
    globals: Globals,

    #[command(subcommand)]
    command: C,
}

/// The commands of a program.
pub trait Commands: Subcommand {
    /// Whether another command started this one, reads its output and ends it.
    fn is_worker(&self) -> bool;

    /// Runs the command. `program` is the tree of all commands.
    ///
    /// # Errors
    /// When the work could not be done.
    fn run(self, program: clap::Command, output: &Output) -> Result<ExitCode>;
}

/// The answer of a command that did its work, as its exit code.
pub trait Outcome {
    /// The exit code.
    fn code(self) -> ExitCode;
}

/// Of a command that finds nothing.
impl Outcome for () {
    fn code(self) -> ExitCode {
        exit::ok()
    }
}

/// Of a command that looks for something: whether there is no finding.
impl Outcome for bool {
    fn code(self) -> ExitCode {
        if self { exit::ok() } else { exit::finding() }
    }
}

/// Of a group of commands: that of the one that ran.
impl Outcome for ExitCode {
    fn code(self) -> ExitCode {
        self
    }
}

/// Declares a group of commands: the enum that clap parses, and its `run`. After each variant stands the function that
/// does the work: it takes the arguments and the [`Output`], and returns an [`Outcome`].
#[macro_export]
macro_rules! subcommands {
    (
        $(#[$about:meta])*
        pub enum $group:ident { $($(#[$help:meta])* $command:ident($args:ty) => $run:path,)+ }
    ) => {
        #[derive(Debug, clap::Subcommand)]
        $(#[$about])*
        pub enum $group { $($(#[$help])* $command($args)),+ }

        impl $group {
            /// Runs the command.
            pub fn run(&self, output: &$crate::output::Output) -> anyhow::Result<std::process::ExitCode> {
                match self {
                    $(Self::$command(args) => $run(args, output).map($crate::program::Outcome::code)),+
                }
            }
        }
    };
}

/// Runs a program with the arguments of this process.
#[must_use]
pub fn run<C: Commands>() -> ExitCode {
    give_back::at_once();
    let Cli { globals, command } = match Cli::<C>::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let output = Output::new(globals.json, globals.quiet);
    match run_watched(command, &globals.log, &output) {
        Ok(code) => code,
        Err(error) if error.is::<StdoutClosed>() => exit::ok(),
        Err(error) => {
            output.error(&error);
            exit::failure()
        }
    }
}

fn run_watched<C: Commands>(command: C, log: &LogArgs, output: &Output) -> Result<ExitCode> {
    // A worker that another command started is ended by that command, and has nothing to tell.
    if !command.is_worker() {
        log.begin().map_err(anyhow::Error::msg)?;
        interrupt::watch(*output)?;
    }
    let code = command.run(Cli::<C>::command(), output)?;
    emulation::report(output)?;
    Ok(code)
}

/// Ends a command whose arguments could not be parsed, or whose help or version was requested.
fn usage(error: &clap::Error) -> ExitCode {
    // The arguments could not be parsed as a whole, so this looks for the option alone.
    let json = error.use_stderr() && std::env::args_os().any(|word| word == "--json");
    Output::new(json, false).usage_error(error);
    if error.use_stderr() { exit::failure() } else { exit::ok() }
}
