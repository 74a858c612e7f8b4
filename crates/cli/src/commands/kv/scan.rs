//! `lodestone kv scan`.

use std::io::{BufWriter, Write};
use std::ops::ControlFlow;

use anyhow::Result;

use crate::commands::pool::ReadArgs;
use crate::output::{Output, stdout_error};

use super::MapArgs;
use super::range::RangeArgs;
use super::record::{Record, shown};

const AFTER_HELP: &str = "\
Examples:
  lodestone kv scan orders.pool
  lodestone kv scan orders.pool --prefix 2026- --limit 10
  lodestone kv scan orders.pool --from a --to c --json
  lodestone kv scan orders.pool --keys-only | head";

/// Arguments of `lodestone kv scan`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    map: MapArgs,

    #[command(flatten)]
    read: ReadArgs,

    #[command(flatten)]
    range: RangeArgs,

    /// Print at most so many records
    #[arg(long, value_name = "COUNT")]
    limit: Option<u64>,

    /// Print the keys alone
    #[arg(long)]
    keys_only: bool,
}

/// Prints the records, key and value separated by a tabulator.
pub fn run(args: &Args, output: &Output) -> Result<()> {
    let opened = args.map.open_to_read(args.read)?;
    let mut stdout = BufWriter::with_capacity(1 << 16, std::io::stdout().lock());
    let mut left = args.limit.unwrap_or(u64::MAX);
    args.range.scan(&*opened.records, |key, value| {
        if left == 0 {
            return Ok(ControlFlow::Break(()));
        }
        left -= 1;
        let hex = args.range.hex;
        let line = if output.is_json() {
            serde_json::to_string(&Record::new(key, value))?
        } else if args.keys_only {
            shown(key, hex).into_owned()
        } else {
            format!("{}\t{}", shown(key, hex), shown(value, hex))
        };
        writeln!(stdout, "{line}").map_err(stdout_error)?;
        Ok(ControlFlow::Continue(()))
    })?;
    stdout.flush().map_err(stdout_error)
}
