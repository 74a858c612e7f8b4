//! The `lodestone` command: pools, a durable key-value map, imports, and crash exploration from the shell.
//!
//! 1. The arguments are parsed ([`commands`]); a usage error ends with exit code 2.
//! 2. The command runs and returns an exit code: 0 when what was asked holds, 1 for a finding.
//! 3. An error that reaches this file is printed with its causes to standard error and ends with exit code 2; a reader
//!    of standard output that went away ends the command quietly with 0.
//!
//! Invariants: results go to standard output, everything else to standard error; nothing is left in an unsafe state by
//! Ctrl-C or SIGKILL, because every change to a pool is failure-atomic. After Ctrl-C ([`interrupt`]) the exit code is
//! 130.

mod allocator;
mod bytes;
mod commands;
mod emulation;
mod examine;
mod export;
mod import;
mod import_store;
mod interrupt;
mod new_file;
mod object;
mod output;
mod size;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use crate::commands::Cli;
use crate::output::{Output, StdoutClosed, exit};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let output = Output::new(cli.json, cli.quiet);
    match run(cli, &output) {
        Ok(code) => code,
        Err(error) if error.is::<StdoutClosed>() => exit::ok(),
        Err(error) => {
            output.error(&error);
            exit::failure()
        }
    }
}

fn run(cli: Cli, output: &Output) -> Result<ExitCode> {
    // A worker that another command started is ended by that command, and has nothing to tell.
    if !cli.command.is_worker() {
        interrupt::watch(*output)?;
    }
    // The targets of this program are replayed by this program.
    lodestone_crash::replay_with("lodestone crash replay");
    let code = cli.command.run(output)?;
    emulation::report(output)?;
    Ok(code)
}

/// Ends a command whose arguments were not understood, or that was asked for help or its version.
fn usage(error: &clap::Error) -> ExitCode {
    // The arguments were not understood as a whole, so the option is looked for by itself.
    let json = error.use_stderr() && std::env::args_os().any(|word| word == "--json");
    Output::new(json, false).usage_error(error);
    if error.use_stderr() { exit::failure() } else { exit::ok() }
}
