//! `lodestone db schema`.

use anyhow::Result;
use lodestone_engine::Table;
use serde::Serialize;

use super::place::{DbArgs, find};
use crate::commands::pool::ReadArgs;
use crate::output::Output;

const AFTER_HELP: &str = "\
Examples:
  lodestone db schema shop.pool
  lodestone db schema shop.pool accounts --json

A schema is one line, in the form that `lodestone db create` takes. So this makes
the same table elsewhere:
  lodestone db create new.pool \"$(lodestone db schema shop.pool accounts)\"";

/// Arguments of `lodestone db schema`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    db: DbArgs,

    #[command(flatten)]
    read: ReadArgs,

    /// The table [default: all, in the order of their names]
    #[arg(value_name = "TABLE")]
    table: Option<String>,
}

/// A schema for machines.
#[derive(Serialize)]
struct Described {
    table: String,
    columns: Vec<DescribedColumn>,
    key: Vec<String>,
    indexes: Vec<DescribedIndex>,
    /// The schema as text.
    schema: String,
}

#[derive(Serialize)]
struct DescribedColumn {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    nullable: bool,
}

#[derive(Serialize)]
struct DescribedIndex {
    name: String,
    columns: Vec<String>,
    unique: bool,
    /// Whether its building was interrupted, so that it cannot be read.
    being_built: bool,
}

/// Prints the schemas.
pub fn run(args: &Args, output: &Output) -> Result<()> {
    let database = args.db.open_to_read(args.read, output)?;
    let tables = match &args.table {
        Some(name) => vec![find(&database, name)?],
        None => database.tables()?.iter().map(|name| database.table(name)).collect::<Result<_, _>>()?,
    };
    tables.iter().try_for_each(|table| print(table, output))
}

/// Prints the schema of the table.
pub fn print(table: &Table, output: &Output) -> Result<()> {
    for index in table.indexes_being_built() {
        output.note(&format!(
            "the index `{}` of `{}` was not built to its end: `lodestone db index add` with '{index}' goes on",
            index.name,
            table.schema().name()
        ));
    }
    output.result(&described(table), |described| described.schema.clone())
}

/// A schema for machines.
fn described(table: &Table) -> Described {
    let schema = table.schema();
    let column = |column: &lodestone_engine::Column| DescribedColumn {
        name: column.name.clone(),
        kind: column.kind.to_string(),
        nullable: column.nullable,
    };
    let index = |index: &lodestone_engine::Index| DescribedIndex {
        name: index.name.clone(),
        columns: index.columns.clone(),
        unique: index.is_unique,
        being_built: table.indexes_being_built().any(|other| other == index),
    };
    Described {
        table: schema.name().to_owned(),
        columns: schema.columns().iter().map(column).collect(),
        key: schema.key_columns().map(|column| column.name.clone()).collect(),
        indexes: schema.indexes().iter().map(index).collect(),
        schema: schema.to_string(),
    }
}
