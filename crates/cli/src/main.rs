//! The `lodestone` command: pools, a durable key-value map, imports, and crash exploration from the shell.
//!
//! 1. The arguments are parsed ([`commands`]); a usage error ends with exit code 2.
//! 2. The command runs and returns an exit code: 0 when what was asked holds, 1 for a finding.
//! 3. An error that reaches this file is printed with its causes to standard error and ends with exit code 2; a reader
//!    of standard output that went away ends the command quietly with 0.
//!
//! Invariants: results go to standard output, everything else to standard error; nothing is left in an unsafe state by
//! Ctrl-C or SIGKILL, because every change to a pool is failure-atomic.

mod allocator;
mod bytes;
mod commands;
mod emulation;
mod examine;
mod export;
mod import;
mod object;
mod output;
mod size;
mod store;

use std::process::ExitCode;

use clap::Parser;

use crate::commands::Cli;
use crate::output::{Output, StdoutClosed, exit};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let output = Output::new(cli.json, cli.quiet);
    match cli.command.run(&output).and_then(|code| emulation::report(&output).map(|()| code)) {
        Ok(code) => code,
        Err(error) if error.is::<StdoutClosed>() => exit::ok(),
        Err(error) => {
            output.error(&error);
            exit::failure()
        }
    }
}
