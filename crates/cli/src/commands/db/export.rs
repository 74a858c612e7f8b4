//! `lodestone db export`.

use std::io::{BufWriter, Write};
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::Serialize;

use super::place::TableArgs;
use super::values;
use crate::commands::pool::ReadArgs;
use crate::interrupt;
use crate::new_file::NewFile;
use crate::output::{Output, ProgressUnit, spare};

const AFTER_HELP: &str = "\
Examples:
  lodestone db export shop.pool accounts -o accounts.jsonl
  lodestone db export shop.pool accounts -o accounts.jsonl --overwrite --json

Each row is a JSON object on a line, in the order of the keys. The file is complete
under its name, or it is not there. Rows on several nodes are read by a thread on each.
To move a table to another pool:
  lodestone db create new.pool \"$(lodestone db schema shop.pool accounts)\"
  lodestone db import new.pool accounts accounts.jsonl";

/// The progress bar moves after so many rows.
const ROWS_SHOWN: u64 = 1000;

/// Arguments of `lodestone db export`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    table: TableArgs,

    #[command(flatten)]
    read: ReadArgs,

    /// The file to make; `lodestone db scan` prints rows instead
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,

    /// Replace an existing file
    #[arg(long)]
    overwrite: bool,
}

#[derive(Serialize)]
struct Exported {
    table: String,
    rows: u64,
    output: String,
}

/// Exports the rows.
pub fn run(args: &Args, output: &Output) -> Result<()> {
    let name = args.output.display();
    spare(&args.output, &[&args.table.db.open.path])?;
    let (database, table) = args.table.open_to_read(args.read, output)?;
    // Said before the file is there: a signal that comes with the file's first byte finds it.
    interrupt::so_far(format!("{name}: not made, and what was there is as it was; run it again"));
    let mut file = NewFile::create(&args.output, args.overwrite)?;
    let bar = output.progress(None, ProgressUnit::Steps).with_prefix("rows");
    let mut sink = BufWriter::with_capacity(1 << 16, &mut file);
    let failed = || format!("{name}: writing the file failed; free space there, or choose another place");
    let mut count = 0;
    // A snapshot notes nothing of what it reads, and a long scan has readers on the nodes of the rows.
    let snapshot = database.snapshot()?;
    for row in table.range(&snapshot, ..)? {
        writeln!(sink, "{}", values::to_json(table.schema(), &row?)).with_context(failed)?;
        count += 1;
        if count % ROWS_SHOWN == 0 {
            bar.set_position(count);
        }
    }
    sink.flush().with_context(failed)?;
    drop(sink);
    file.publish()?;
    interrupt::so_far(format!("{name}: made, with {count} rows"));
    bar.finish_and_clear();
    let exported = Exported { table: table.schema().name().to_owned(), rows: count, output: name.to_string() };
    output.result(&exported, |exported| format!("{}: {} rows of {}", exported.output, exported.rows, exported.table))
}
