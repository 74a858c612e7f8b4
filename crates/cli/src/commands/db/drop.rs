//! `lodestone db drop` and `lodestone db rename`.

use anyhow::{Result, bail};
use serde::Serialize;

use super::place::{TableArgs, find};
use super::schema::print;
use crate::output::Output;

const DROP_HELP: &str = "\
Examples:
  lodestone db drop shop.pool accounts --yes

The table goes with all its rows and indexes. The next checkpoint frees the space.";

const RENAME_HELP: &str = "\
Examples:
  lodestone db rename shop.pool accounts customers";

/// Arguments of `lodestone db drop`.
#[derive(Debug, clap::Args)]
#[command(after_help = DROP_HELP)]
pub struct DropArgs {
    #[command(flatten)]
    table: TableArgs,

    /// Yes, all rows of the table are to go
    #[arg(long)]
    yes: bool,
}

/// Arguments of `lodestone db rename`.
#[derive(Debug, clap::Args)]
#[command(after_help = RENAME_HELP)]
pub struct RenameArgs {
    #[command(flatten)]
    table: TableArgs,

    /// The new name
    #[arg(value_name = "NAME")]
    to: String,
}

#[derive(Serialize)]
struct Dropped {
    dropped: String,
}

/// Drops the table. Durable when this returns.
pub fn drop_table(args: &DropArgs, output: &Output) -> Result<()> {
    let database = args.table.db.open(output)?;
    let name = find(&database, &args.table.table)?.schema().name().to_owned();
    if !args.yes {
        bail!("table `{name}` would go with all its rows and indexes; repeat the command with --yes");
    }
    database.drop_table(&name)?;
    output.result(&Dropped { dropped: name }, |dropped| format!("dropped `{}`", dropped.dropped))
}

/// Renames the table. Durable when this returns. Prints the schema.
pub fn rename_table(args: &RenameArgs, output: &Output) -> Result<()> {
    let database = args.table.db.open(output)?;
    find(&database, &args.table.table)?;
    let table = database.rename_table(&args.table.table, &args.to)?;
    print(&table, output)
}
