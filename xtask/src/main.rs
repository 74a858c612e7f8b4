//! `cargo xtask`: the chores of this repository that are programs, not shell lines.
//!
//! - `tidy`: the style rules that a machine can check ([`tidy`]).
//! - `fabric`: processes of the fabric that are killed, and bad networks between them ([`fabric`]).
//! - `fuzz`: runs a fuzzer ([`fuzz`]).
//! - `figures`: runs the benchmarks of the papers' figures and draws them again ([`figures`]).
//! - `tables`: measures the tables of a document and writes them into it ([`tables`]).
//! - `fs-kills`: processes of replicated volumes are killed under load ([`fs_kills`]).
//! - `hook-cost`: the cost of the unused hooks in the memory primitives ([`hook_cost`]).
//! - `judge`: suites of others on a mounted volume, and PostgreSQL beside SQL ([`judge`]); a volume of which parts die
//!   under a program ([`kills`]).
//! - `test-programs`: the test programs of `cargo test`, several at a time ([`test_programs`]).
//! - `vm`: guests with emulated persistent memory, and the tests that need it ([`vm`]).
//!
//! Exit code 0 means success: all requirements hold. 1 means findings or failed checks. 2 means that the chore itself
//! could not be done (wrong arguments, a missing program).

mod clients;
mod fabric;
mod figures;
mod fs_kills;
mod fuzz;
mod hook_cost;
mod judge;
mod kills;
mod tables;
mod test_programs;
mod tidy;
mod vm;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Chores of the Lodestone repository.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Check the style rules that a machine can check; prints file:line for each finding.
    Tidy,
    /// Kill processes of the fabric, or spoil the network between them, and judge what they acknowledged.
    #[command(subcommand)]
    Fabric(fabric::Command),
    /// Run the benchmarks of a paper's figures, ours and the peers', and draw them again.
    #[command(subcommand)]
    Figures(figures::Command),
    /// Measure the tables of a document on this machine and write them into it.
    #[command(subcommand)]
    Tables(tables::Command),
    /// Kill processes of replicated volumes under load; nothing that was synced may be lost.
    FsKills(fs_kills::Options),
    /// Write a history of files, as `judge fs-kills` wants it.
    #[command(hide = true)]
    FsHistory(kills::history::Options),
    /// Run a fuzzer on hostile bytes; `--list` names all.
    Fuzz(fuzz::Options),
    /// Compare a persist with and without the hooks for tracing and media models; builds two release programs.
    HookCost(hook_cost::Options),
    /// Run suites and programs of others on what Lodestone offers to them.
    #[command(subcommand)]
    Judge(judge::Command),
    /// Run test programs as `cargo test` does, several at a time.
    TestPrograms(test_programs::Options),
    /// Boot guests with emulated persistent memory and run the tests that need it.
    #[command(subcommand)]
    Vm(vm::Command),
}

fn main() -> ExitCode {
    let root = repository_root();
    let outcome = match Arguments::parse().chore {
        Chore::Tidy => tidy::run(&root),
        Chore::Fabric(command) => fabric::run(&root, &command),
        Chore::Figures(command) => figures::run(&root, &command),
        Chore::Tables(command) => tables::run(&root, &command),
        Chore::FsKills(options) => fs_kills::run(&root, &options),
        Chore::FsHistory(options) => kills::history::write(&options),
        Chore::Fuzz(options) => fuzz::run(&root, &options),
        Chore::HookCost(options) => hook_cost::run(&root, &options),
        Chore::Judge(command) => judge::run(&root, &command),
        Chore::TestPrograms(options) => test_programs::run(&root, &options),
        Chore::Vm(command) => vm::run(&root, &command),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            report_error(&error);
            ExitCode::from(2)
        }
    }
}

/// `cargo`, with the environment of a shell. Cargo tells this program about its own package, and a crate whose build
/// depends on that (`ring`) would be built again, with all that uses it.
fn cargo() -> std::process::Command {
    let mut command = std::process::Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")) {
            command.env_remove(name);
        }
    }
    command
}

/// The folder above this package: chores work from any current folder.
fn repository_root() -> PathBuf {
    let package = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    package.parent().map(PathBuf::from).unwrap_or(package)
}

#[expect(clippy::print_stderr, reason = "the one place where a chore says why it could not be done")]
fn report_error(error: &anyhow::Error) {
    eprintln!("error: {error:#}");
}
