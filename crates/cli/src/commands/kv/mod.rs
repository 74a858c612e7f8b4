//! `lodestone kv`: a durable ordered map from the shell.

mod check;
mod count;
mod del;
mod export;
mod get;
mod import;
mod map;
mod put;
mod range;
mod record;
mod scan;
mod txn;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

use crate::output::Output;

pub use map::{KindArg, MapArgs, MapStore};

const AFTER_HELP: &str = "\
Examples:
  lodestone kv put orders.pool 4711 '{\"item\":\"lamp\"}'
  lodestone kv get orders.pool 4711
  lodestone kv scan orders.pool --prefix 47 --limit 10
  lodestone kv import orders.pool orders.csv --key id --rejects bad.csv
  printf 'expect alice 100\\nadd alice -30\\nadd bob 30\\n' \\
    | lodestone kv txn bank.pool
  lodestone kv export orders.pool --format jsonl --output orders.jsonl";

/// Arguments of `lodestone kv`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(subcommand)]
    command: KvCommand,
}

#[derive(Debug, Subcommand)]
enum KvCommand {
    /// Set a key to a value
    Put(put::Args),
    /// Print the value of a key
    Get(get::Args),
    /// Remove a key
    Del(del::Args),
    /// Print the records of a range of keys, in order
    Scan(scan::Args),
    /// Import CSV or JSON Lines; resumable
    Import(import::Args),
    /// Export as CSV or JSON Lines
    Export(export::Args),
    /// Count the records
    Count(count::Args),
    /// Run a script of changes to a transactional map, all or nothing
    Txn(txn::Args),
    /// Verify the map: its structure, every record, and that nothing leaks
    Check(check::Args),
}

/// Runs the command.
pub fn run(args: Args, output: &Output) -> Result<ExitCode> {
    match args.command {
        KvCommand::Put(args) => put::run(&args, output),
        KvCommand::Get(args) => get::run(&args, output),
        KvCommand::Del(args) => del::run(&args, output),
        KvCommand::Scan(args) => scan::run(&args, output),
        KvCommand::Import(args) => import::run(args, output),
        KvCommand::Export(args) => export::run(&args, output),
        KvCommand::Count(args) => count::run(&args, output),
        KvCommand::Txn(args) => txn::run(&args, output),
        KvCommand::Check(args) => check::run(&args, output),
    }
}
