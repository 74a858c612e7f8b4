//! `lodestone kv get`.

use std::io::Write;

use anyhow::Result;

use crate::bytes;
use crate::commands::pool::ReadArgs;
use crate::output::{Output, stdout_error};

use super::MapArgs;
use super::record::Record;

const AFTER_HELP: &str = "\
Examples:
  lodestone kv get orders.pool 4711
  lodestone kv get orders.pool photo --raw > photo.jpg
  lodestone kv get orders.pool --hex 00ff

Exit code 1 when the key is not there. With --json the object then has a key and no value.";

/// Arguments of `lodestone kv get`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    map: MapArgs,

    #[command(flatten)]
    read: ReadArgs,

    /// The key
    key: String,

    /// The key is hexadecimal digits, and the value is printed the same way
    #[arg(long)]
    hex: bool,

    /// Print the value's bytes and nothing else, not even a line end
    #[arg(long, conflicts_with = "hex")]
    raw: bool,
}

/// Prints the value.
pub fn run(args: &Args, output: &Output) -> Result<bool> {
    let key = bytes::key(&args.key, args.hex)?;
    let opened = args.map.open_to_read(args.read)?;
    let Some(value) = opened.records.get(&key).map_err(anyhow::Error::from_boxed)? else {
        output.note(&args.map.no_key(&opened, &args.key));
        if output.is_json() {
            output.json(&Record::missing(&key))?;
        }
        return Ok(false);
    };
    if output.is_json() {
        output.json(&Record::new(&key, &value))?;
    } else if args.hex {
        output.line(&bytes::to_hex(&value))?;
    } else {
        let mut stdout = std::io::stdout().lock();
        let end: &[u8] = if args.raw { b"" } else { b"\n" };
        stdout.write_all(&value).and_then(|()| stdout.write_all(end)).map_err(stdout_error)?;
        stdout.flush().map_err(stdout_error)?;
    }
    Ok(true)
}
