//! `lodestone pool rename` and `lodestone pool drop`: the named objects of a pool, of any kind.

use anyhow::Result;
use lodestone_store::{Force, Store};
use serde::Serialize;

use crate::output::Output;
use crate::size;

use super::OpenArgs;

const RENAME_HELP: &str = "\
Examples:
  lodestone pool rename orders.pool main orders
  lodestone pool rename orders.pool main orders --json

`lodestone pool info` lists the names.";

const DROP_HELP: &str = "\
Examples:
  lodestone pool drop orders.pool old-orders --yes
  lodestone pool drop orders.pool damaged --yes --force

Everything in the object is lost, and its space can be used again at once. A crash leaves the object
whole, or lets the next open for writing finish the drop.";

/// Arguments of `lodestone pool rename`.
#[derive(Debug, clap::Args)]
#[command(after_help = RENAME_HELP)]
pub struct RenameArgs {
    #[command(flatten)]
    open: OpenArgs,

    /// The object's name
    #[arg(value_name = "NAME")]
    name: String,

    /// Its new name
    #[arg(value_name = "NEW_NAME")]
    new_name: String,
}

/// Arguments of `lodestone pool drop`.
#[derive(Debug, clap::Args)]
#[command(after_help = DROP_HELP)]
pub struct DropArgs {
    #[command(flatten)]
    open: OpenArgs,

    /// The object's name
    #[arg(value_name = "NAME")]
    name: String,

    /// Confirm that everything in it may go
    #[arg(long, required = true)]
    yes: bool,

    /// Drop a damaged object too: blocks beyond the damage stay allocated until `lodestone pool repair` frees them
    #[arg(long)]
    force: bool,
}

#[derive(Serialize)]
struct Renamed<'a> {
    name: &'a str,
    new_name: &'a str,
}

#[derive(Serialize)]
struct Dropped<'a> {
    name: &'a str,
    freed_bytes: u64,
}

/// Renames an object.
pub fn run_rename(args: &RenameArgs, output: &Output) -> Result<()> {
    let store = Store::over(&args.open.open()?)?;
    store.rename(&args.name, &args.new_name)?;
    let renamed = Renamed { name: &args.name, new_name: &args.new_name };
    output.result(&renamed, |renamed| format!("`{}` is called `{}` now", renamed.name, renamed.new_name))
}

/// Drops an object.
pub fn run_drop(args: &DropArgs, output: &Output) -> Result<()> {
    let store = Store::over(&args.open.open()?)?;
    let before = store.heap().usage().bytes_used;
    store.drop_object(&args.name, if args.force { Force::Yes } else { Force::No })?;
    let freed_bytes = before.saturating_sub(store.heap().usage().bytes_used);
    let dropped = Dropped { name: &args.name, freed_bytes };
    output.result(&dropped, |dropped| {
        format!("`{}` is gone; {} are free again", dropped.name, size::human(dropped.freed_bytes))
    })
}
