//! `lodestone kv put`.

use anyhow::Result;
use serde::Serialize;

use crate::bytes;
use crate::output::Output;

use super::{KindArg, MapArgs};

const AFTER_HELP: &str = "\
Examples:
  lodestone kv put orders.pool 4711 '{\"item\":\"lamp\"}'
  lodestone kv put orders.pool photo @photo.jpg
  date | lodestone kv put orders.pool now -
  lodestone kv put orders.pool --hex 00ff cafe
  lodestone kv put orders.pool 4711 lamp --map tree --index fastfair";

/// Arguments of `lodestone kv put`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    map: MapArgs,

    #[command(flatten)]
    kind: KindArg,

    /// The key
    key: String,

    /// The value: text, @FILE, or - for standard input (@@ means a leading @)
    #[arg(allow_hyphen_values = true)]
    value: String,

    /// Key and value are hexadecimal digits
    #[arg(long)]
    hex: bool,
}

#[derive(Serialize)]
struct Put {
    replaced: bool,
    value_bytes: usize,
    domain: String,
}

/// Stores the record. Durable when this returns.
pub fn run(args: &Args, output: &Output) -> Result<()> {
    let key = bytes::key(&args.key, args.hex)?;
    let value = bytes::value(&args.value, args.hex)?;
    let opened = args.map.open_as(args.kind)?;
    let replaced = opened.records.insert(&key, &value).map_err(anyhow::Error::from_boxed)?;
    if output.is_json() {
        let domain = opened.pool.info().domain_label();
        output.json(&Put { replaced, value_bytes: value.len(), domain })?;
    }
    Ok(())
}
