//! `lodestone db column`: columns of a table that exists.

use anyhow::{Result, bail};
use lodestone_engine::{Column, Value};

use super::place::TableArgs;
use super::schema::print;
use super::values::value_from_word;
use crate::output::Output;

const AFTER_HELP: &str = "\
Examples:
  lodestone db column add shop.pool accounts 'note text null'
  lodestone db column add shop.pool accounts 'visits i64' --default 0
  lodestone db column rename shop.pool accounts note remark
  lodestone db column drop shop.pool accounts remark

Only the catalog is written, however many rows there are. Rows get the new form
when they are written next.";

crate::subcommands! {
    /// The commands of `lodestone db column`.
    #[command(after_help = AFTER_HELP)]
    pub enum ColumnCommand {
        /// Add a column to a table, after the others
        Add(AddArgs) => add,
        /// Remove a column that neither the key nor an index has
        Drop(DropArgs) => drop,
        /// Give a column another name
        Rename(RenameArgs) => rename,
    }
}

const ADD_HELP: &str = "\
Examples:
  lodestone db column add shop.pool accounts 'note text null'
  lodestone db column add shop.pool accounts 'visits i64' --default 0";

const DROP_HELP: &str = "\
Examples:
  lodestone db column drop shop.pool accounts note";

const RENAME_HELP: &str = "\
Examples:
  lodestone db column rename shop.pool accounts note remark";

#[derive(Debug, clap::Args)]
#[command(after_help = ADD_HELP)]
pub struct AddArgs {
    #[command(flatten)]
    table: TableArgs,

    /// 'NAME TYPE', or 'NAME TYPE null' if it may be null
    #[arg(value_name = "COLUMN")]
    column: Column,

    /// The value in the rows that are there [default: null]
    #[arg(long, value_name = "VALUE", allow_hyphen_values = true)]
    default: Option<String>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = DROP_HELP)]
pub struct DropArgs {
    #[command(flatten)]
    table: TableArgs,

    /// The column
    #[arg(value_name = "NAME")]
    column: String,
}

#[derive(Debug, clap::Args)]
#[command(after_help = RENAME_HELP)]
pub struct RenameArgs {
    #[command(flatten)]
    table: TableArgs,

    /// The column
    #[arg(value_name = "FROM")]
    from: String,

    /// Its new name
    #[arg(value_name = "TO")]
    to: String,
}

/// Adds the column. Durable when this returns. Prints the schema.
fn add(args: &AddArgs, output: &Output) -> Result<()> {
    let default = match &args.default {
        Some(word) => value_from_word(&args.column, word)?,
        None if args.column.nullable => Value::Null,
        None => bail!(
            "`{}` may not be null: give the value of the rows that are there with --default, or add `null`",
            args.column
        ),
    };
    let (database, _) = args.table.open(output)?;
    print(&database.add_column(&args.table.table, &args.column, default)?, output)
}

/// Drops the column. Durable when this returns. Prints the schema.
fn drop(args: &DropArgs, output: &Output) -> Result<()> {
    let (database, _) = args.table.open(output)?;
    print(&database.drop_column(&args.table.table, &args.column)?, output)
}

/// Renames the column. Durable when this returns. Prints the schema.
fn rename(args: &RenameArgs, output: &Output) -> Result<()> {
    let (database, _) = args.table.open(output)?;
    print(&database.rename_column(&args.table.table, &args.from, &args.to)?, output)
}
