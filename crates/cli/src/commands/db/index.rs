//! `lodestone db index`: indexes of a table that exists.

use anyhow::Result;
use lodestone_engine::Index;

use super::place::TableArgs;
use super::schema::print;
use crate::interrupt;
use crate::output::{Output, ProgressUnit};

const AFTER_HELP: &str = "\
Examples:
  lodestone db index add shop.pool accounts 'index by_owner (owner)'
  lodestone db index add shop.pool accounts 'unique by_mail (mail)'
  lodestone db index drop shop.pool accounts by_owner
  lodestone db scan shop.pool accounts --index by_owner --prefix alice

A unique index refuses a second row with the same values. Nulls are never the
same. Transactions of some rows each add the entries. If they are interrupted,
the same command goes on, and `drop` removes the index.";

crate::subcommands! {
    /// The commands of `lodestone db index`.
    #[command(after_help = AFTER_HELP)]
    pub enum IndexCommand {
        /// Add an index to a table, with an entry for each of its rows
        Add(AddArgs) => add,
        /// Remove an index of a table
        Drop(DropArgs) => drop,
    }
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
pub struct AddArgs {
    #[command(flatten)]
    table: TableArgs,

    /// 'index NAME (COLUMN, ...)' or 'unique NAME (COLUMN, ...)'
    #[arg(value_name = "INDEX")]
    index: Index,
}

#[derive(Debug, clap::Args)]
#[command(after_help = DROP_HELP)]
pub struct DropArgs {
    #[command(flatten)]
    table: TableArgs,

    /// The index
    #[arg(value_name = "NAME")]
    index: String,
}

/// Adds the index. Durable when this returns. Prints the schema.
fn add(args: &AddArgs, output: &Output) -> Result<()> {
    let (database, _) = args.table.open(output)?;
    let bar = output.progress(None, ProgressUnit::Steps).with_prefix("rows");
    let table = database.create_index_with(&args.table.table, &args.index, |rows| {
        bar.set_position(rows);
        interrupt::so_far(format!("{rows} rows have their entries; the same command goes on"));
        Ok(())
    })?;
    bar.finish_and_clear();
    print(&table, output)
}

/// Drops the index. Durable when this returns. Prints the schema.
fn drop(args: &DropArgs, output: &Output) -> Result<()> {
    let (database, _) = args.table.open(output)?;
    print(&database.drop_index(&args.table.table, &args.index)?, output)
}
