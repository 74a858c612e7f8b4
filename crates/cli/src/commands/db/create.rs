//! `lodestone db create`.

use anyhow::Result;
use lodestone_engine::Schema;
use serde::Serialize;

use super::place::{DbArgs, NewDatabaseArgs};
use crate::output::Output;

const AFTER_HELP: &str = "\
Examples:
  lodestone db create shop.pool \\
    'accounts (id u64, owner text, note text null) key (id)'
  lodestone db create shop.pool --log-bytes 1GiB \\
    'orders (customer text, number u64, paid bool) key (customer, number)'

  lodestone db create mail.pool --page-bytes 16KiB \
    'letters (id u64, body text) key (id)'

  lodestone db create wide.pool --on-node 1 \\
    'events (id u64, at timestamp) key (id)'
  lodestone db create shop.pool --dual \\
    'counters (name text, count i64) key (name)'
  lodestone db create shop.pool \\
    'users (id u64, mail text) key (id) unique by_mail (mail)'

Types: bool, i16, i32, i64, u64, f64, decimal(SCALE), date, timestamp, uuid, text,
bytes. `null` after a type: the column may be null. Rows are kept in the order of
their keys. A table that exists with the same columns and key is left as it is.";

/// Arguments of `lodestone db create`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    db: DbArgs,

    /// Name, columns and key: 'NAME (COLUMN TYPE [null], ...) key (COLUMN, ...)'
    #[arg(value_name = "TABLE")]
    schema: Schema,

    /// Node of the table's pages: new pages go to the first part of the pool on it [default: where there is room]
    #[arg(long, value_name = "NUMBER")]
    on_node: Option<u32>,

    /// Keep each row in two versions side by side: an update of one row writes that row alone. For small rows that
    /// change often, one by one. They stay in memory as well
    #[arg(long)]
    dual: bool,

    #[command(flatten)]
    new: NewDatabaseArgs,
}

#[derive(Serialize)]
struct Created {
    table: String,
    schema: String,
    domain: String,
}

/// Makes the table. Durable when this returns.
pub fn run(args: &Args, output: &Output) -> Result<()> {
    let database = args.db.make(&args.new, output)?;
    let mut schema = args.schema.clone();
    if let Some(node) = args.on_node {
        schema = schema.in_part(database.part_on(node)?);
    }
    let table = database.create_table(&if args.dual { schema.dual() } else { schema })?;
    let created = Created {
        table: table.schema().name().to_owned(),
        schema: table.schema().to_string(),
        domain: database.pool().info().domain_label(),
    };
    output.result(&created, |created| created.schema.clone())
}
