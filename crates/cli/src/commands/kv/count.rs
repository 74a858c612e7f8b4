//! `lodestone kv count`.

use std::ops::ControlFlow;

use anyhow::Result;
use serde::Serialize;

use crate::commands::pool::ReadArgs;
use crate::output::Output;

use super::MapArgs;
use super::range::RangeArgs;

const AFTER_HELP: &str = "\
Examples:
  lodestone kv count orders.pool
  lodestone kv count orders.pool --prefix 2026-";

/// Arguments of `lodestone kv count`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    map: MapArgs,

    #[command(flatten)]
    read: ReadArgs,

    #[command(flatten)]
    range: RangeArgs,
}

#[derive(Serialize)]
struct Count {
    records: u64,
}

/// Prints the number of records.
pub fn run(args: &Args, output: &Output) -> Result<()> {
    let opened = args.map.open_to_read(args.read)?;
    let mut records = 0;
    if args.range.is_everything() {
        records = opened.records.len().map_err(anyhow::Error::from_boxed)?;
    } else {
        args.range.scan(&*opened.records, |_, _| {
            records += 1;
            Ok(ControlFlow::Continue(()))
        })?;
    }
    output.result(&Count { records }, |count| count.records.to_string())
}
