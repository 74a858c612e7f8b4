//! `lodestone pool grow`.

use anyhow::Result;
use serde::Serialize;

use crate::output::Output;
use crate::size;

use super::OpenArgs;

const AFTER_HELP: &str = "\
Examples:
  lodestone pool grow orders.pool --size 1GiB
  lodestone pool grow orders.pool --add 256MiB
  lodestone pool grow wide.pool --grow-part 1 --add 1GiB";

/// Arguments of `lodestone pool grow`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    open: OpenArgs,

    #[command(flatten)]
    by: By,

    /// Part of the pool
    #[arg(long = "grow-part", default_value_t = 0)]
    part: u16,
}

/// How far to grow.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct By {
    /// New size of the part
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    size: Option<u64>,

    /// Size to add to the part
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    add: Option<u64>,
}

#[derive(Serialize)]
struct Grown {
    path: String,
    part: u16,
    old_bytes: u64,
    part_bytes: u64,
}

/// Grows the pool. Nothing in it moves.
pub fn run(args: &Args, output: &Output) -> Result<()> {
    let pool = args.open.open()?;
    let old_bytes = pool.memory().part_len(args.part);
    let wanted = match (args.by.size, args.by.add) {
        (Some(size), _) => size,
        (None, add) => old_bytes.saturating_add(add.unwrap_or(0)),
    };
    let part_bytes = pool.grow(args.part, wanted)?;
    let grown = Grown { path: args.open.path.display().to_string(), part: args.part, old_bytes, part_bytes };
    output.result(&grown, |grown| {
        format!("{}: grown from {} to {}", grown.path, size::human(grown.old_bytes), size::human(grown.part_bytes))
    })
}
