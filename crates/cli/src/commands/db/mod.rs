//! `lodestone db`: tables of typed rows from the shell.

mod backup;
mod batches;
mod check;
mod checkpoint;
mod create;
mod del;
mod drop;
mod export;
mod feed;
mod get;
mod import;
mod index;
mod info;
mod place;
mod put;
mod scan;
mod schema;
mod tables;
mod values;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

use crate::output::Output;

const AFTER_HELP: &str = "\
Examples:
  lodestone pool create shop.pool
  lodestone db create shop.pool \\
    'accounts (id u64, owner text, note text null) key (id)'
  lodestone db put shop.pool accounts '{\"id\":7,\"owner\":\"alice\"}'
  lodestone db get shop.pool accounts 7
  lodestone db import shop.pool accounts accounts.jsonl
  lodestone db scan shop.pool accounts --from 5 --limit 10 --reverse
  lodestone db export shop.pool accounts -o accounts.jsonl
  lodestone db tables shop.pool
  lodestone db info shop.pool

Rows are JSON objects. Bytes are hexadecimal digits. Decimals, days, moments and
UUIDs are texts: \"9.99\", \"2026-02-28\". A number that JSON does not know is the
text \"NaN\", \"inf\" or \"-inf\". A column that may be null can be left out.

All rows must fit into memory. Changes go to a log; when it is half full, changed
rows go to pages and the log begins anew.";

/// Arguments of `lodestone db`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(subcommand)]
    command: DbCommand,
}

#[derive(Debug, Subcommand)]
enum DbCommand {
    /// Make a table, and the database if there is none
    Create(create::Args),
    /// Print the tables with their columns, keys and numbers of rows
    Tables(tables::Args),
    /// Print the schema of a table, or of each, as `create` takes it
    Schema(schema::Args),
    /// Print the row with a key
    Get(get::Args),
    /// Add rows, or replace those with the same keys, in one transaction
    Put(put::Args),
    /// Remove the row with a key
    Del(del::Args),
    /// Print rows in the order of their keys
    Scan(scan::Args),
    /// Export a table as JSON Lines, to a file that gets its name when it is complete
    Export(export::Args),
    /// Import JSON Lines, many rows in a transaction
    Import(import::Args),
    /// Print figures about log, pages and the open
    Info(info::Args),
    /// Write changed rows to pages, so that the next open reads less of the log
    Checkpoint(checkpoint::Args),
    /// Copy the pool at one moment, and verify the database in the copy
    Backup(backup::Args),
    /// Print committed transactions, in an order of their effects
    Feed(feed::Args),
    /// Add or remove an index of a table
    Index(index::Args),
    /// Remove a table with all its rows
    Drop(drop::DropArgs),
    /// Give a table another name
    Rename(drop::RenameArgs),
    /// Verify the database: log, pages, every row, every index entry, and that nothing leaks
    Check(check::Args),
}

/// Runs the command.
pub fn run(args: Args, output: &Output) -> Result<ExitCode> {
    match args.command {
        DbCommand::Create(args) => create::run(&args, output),
        DbCommand::Tables(args) => tables::run(&args, output),
        DbCommand::Schema(args) => schema::run(&args, output),
        DbCommand::Get(args) => get::run(&args, output),
        DbCommand::Put(args) => put::run(&args, output),
        DbCommand::Del(args) => del::run(&args, output),
        DbCommand::Scan(args) => scan::run(&args, output),
        DbCommand::Export(args) => export::run(&args, output),
        DbCommand::Import(args) => import::run(&args, output),
        DbCommand::Info(args) => info::run(&args, output),
        DbCommand::Checkpoint(args) => checkpoint::run(&args, output),
        DbCommand::Backup(args) => backup::run(&args, output),
        DbCommand::Feed(args) => feed::run(&args, output),
        DbCommand::Index(args) => index::run(&args, output),
        DbCommand::Drop(args) => drop::drop_table(&args, output),
        DbCommand::Rename(args) => drop::rename_table(&args, output),
        DbCommand::Check(args) => check::run(&args, output),
    }
}
