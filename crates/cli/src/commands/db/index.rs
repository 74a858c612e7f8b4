//! `lodestone db index`: indexes of a table that exists.

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use lodestone_engine::{Index, Schema};

use super::place::{DbArgs, find};
use crate::output::{Output, exit};

const AFTER_HELP: &str = "\
Examples:
  lodestone db index add shop.pool accounts 'index by_owner (owner)'
  lodestone db index add shop.pool accounts 'unique by_mail (mail)'
  lodestone db index drop shop.pool accounts by_owner
  lodestone db scan shop.pool accounts --index by_owner --prefix alice

A unique index refuses a second row with the same values. Nulls are never the
same. One transaction adds all entries, so the log needs room for them.";

/// Arguments of `lodestone db index`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(subcommand)]
    command: IndexCommand,
}

#[derive(Debug, Subcommand)]
enum IndexCommand {
    /// Add an index to a table, with an entry for each of its rows
    Add(AddArgs),
    /// Remove an index of a table
    Drop(DropArgs),
}

const ADD_HELP: &str = "\
Examples:
  lodestone db index add shop.pool accounts 'index by_owner (owner)'
  lodestone db index add shop.pool accounts 'unique by_mail (mail)'";

const DROP_HELP: &str = "\
Examples:
  lodestone db index drop shop.pool accounts by_owner";

#[derive(Debug, clap::Args)]
#[command(after_help = ADD_HELP)]
struct AddArgs {
    #[command(flatten)]
    db: DbArgs,

    /// The table
    #[arg(value_name = "TABLE")]
    table: String,

    /// 'index NAME (COLUMN, ...)' or 'unique NAME (COLUMN, ...)'
    #[arg(value_name = "INDEX")]
    index: Index,
}

#[derive(Debug, clap::Args)]
#[command(after_help = DROP_HELP)]
struct DropArgs {
    #[command(flatten)]
    db: DbArgs,

    /// The table
    #[arg(value_name = "TABLE")]
    table: String,

    /// The index
    #[arg(value_name = "NAME")]
    index: String,
}

/// Adds or drops the index. Durable when this returns. Prints the schema.
pub fn run(args: &Args, output: &Output) -> Result<ExitCode> {
    let table = match &args.command {
        IndexCommand::Add(args) => {
            let database = args.db.open(output)?;
            find(&database, &args.table)?;
            database.create_index(&args.table, &args.index)?
        }
        IndexCommand::Drop(args) => {
            let database = args.db.open(output)?;
            find(&database, &args.table)?;
            database.drop_index(&args.table, &args.index)?
        }
    };
    output.result(&super::schema::described(table.schema()), |_| Schema::to_string(table.schema()))?;
    Ok(exit::ok())
}
