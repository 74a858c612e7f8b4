//! `lodestone kv del`.

use anyhow::Result;
use serde::Serialize;

use crate::bytes;
use crate::output::Output;

use super::MapArgs;

const AFTER_HELP: &str = "\
Examples:
  lodestone kv del orders.pool 4711
  lodestone kv del orders.pool --hex 00ff

Exit code 1 when the key was not there.";

/// Arguments of `lodestone kv del`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    map: MapArgs,

    /// The key
    key: String,

    /// The key is hexadecimal digits
    #[arg(long)]
    hex: bool,
}

#[derive(Serialize)]
struct Removed {
    removed: bool,
}

/// Removes the record. Durable when this returns.
pub fn run(args: &Args, output: &Output) -> Result<bool> {
    let key = bytes::key(&args.key, args.hex)?;
    let opened = args.map.open_existing()?;
    let removed = opened.records.remove(&key).map_err(anyhow::Error::from_boxed)?;
    if output.is_json() {
        output.json(&Removed { removed })?;
    } else if !removed {
        output.note(&args.map.no_key(&opened, &args.key));
    }
    Ok(removed)
}
