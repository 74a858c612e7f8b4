//! `lodestone kv export`.

use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::ValueEnum;
use lodestone_store::Lost;
use serde::Serialize;

use crate::commands::pool::ReadArgs;
use crate::export::{CsvExport, Export, FlatCsvExport, FlatJsonExport, JsonExport};
use crate::interrupt;
use crate::new_file::NewFile;
use crate::output::{Output, ProgressUnit, exit, spare, stdout_error};

use super::MapArgs;
use super::range::RangeArgs;

const AFTER_HELP: &str = "\
Examples:
  lodestone kv export orders.pool --format jsonl > orders.jsonl
  lodestone kv export orders.pool --format csv --output orders.csv
  lodestone kv export orders.pool --format csv --flat id > orders.csv
  lodestone kv export orders.pool --skip-damaged > what-is-left.jsonl
  lodestone kv export orders.pool --format csv --flat id \\
    --columns name,total > totals.csv

Without --flat every record becomes a key and a value, and importing the file with `--key key --value value` gives the
same map again, byte for byte. With --flat, values that are JSON objects (as import stores them) become columns or
fields again, and the key becomes the column or field of the given name.";

/// The format of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FormatArg {
    /// Comma-separated text with a header
    Csv,
    /// One JSON object per line
    Jsonl,
}

/// Arguments of `lodestone kv export`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    map: MapArgs,

    #[command(flatten)]
    read: ReadArgs,

    #[command(flatten)]
    range: RangeArgs,

    /// Format of the output
    #[arg(long, value_enum, default_value_t = FormatArg::Jsonl)]
    format: FormatArg,

    /// Output file [default: standard output]. It gets its name when it is complete
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Replace an existing file
    #[arg(long, requires = "output")]
    overwrite: bool,

    /// Spread values that are JSON objects over columns or fields, with the key in the column KEY
    #[arg(long, value_name = "KEY")]
    flat: Option<String>,

    /// Go on past damage: losses are named on standard error, and the exit code is 1
    #[arg(long, conflicts_with_all = ["from", "to", "prefix"])]
    skip_damaged: bool,

    /// Columns of a flat CSV [default: those of the first record]
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',', requires = "flat")]
    columns: Vec<String>,
}

#[derive(Serialize)]
struct Exported {
    records: u64,
    /// The loss.
    lost: Vec<Lost>,
    output: String,
}

impl Args {
    fn sink<'a>(&'a self, target: Box<dyn Write + 'a>) -> Box<dyn Export + 'a> {
        match (self.format, &self.flat) {
            (FormatArg::Jsonl, None) => Box::new(JsonExport::new(target)),
            (FormatArg::Csv, None) => Box::new(CsvExport::new(target)),
            (FormatArg::Jsonl, Some(key)) => Box::new(FlatJsonExport::new(target, key)),
            (FormatArg::Csv, Some(key)) => Box::new(FlatCsvExport::new(target, key, &self.columns)),
        }
    }
}

/// Writes the records.
pub fn run(args: &Args, output: &Output) -> Result<ExitCode> {
    if let Some(path) = &args.output {
        spare(path, &[&args.map.open.path])?;
    }
    // A damaged map may not open. Its records are salvaged without that.
    let opened = if args.skip_damaged { None } else { Some(args.map.open_to_read(args.read)?) };
    let mut file = args.output.as_deref().map(|path| NewFile::create(path, args.overwrite)).transpose()?;
    if let Some(path) = &args.output {
        interrupt::so_far(format!("{}: not made, and what was there is as it was; run it again", path.display()));
    }
    let target: Box<dyn Write + '_> = match &mut file {
        Some(file) => Box::new(file),
        None => Box::new(io::stdout().lock()),
    };
    let mut export = args.sink(Box::new(BufWriter::with_capacity(1 << 16, target)));
    // The number of records of a damaged map is not known.
    let whole = opened.as_ref().filter(|_| args.range.is_everything());
    let total = whole.and_then(|opened| opened.records.len().ok());
    let bar = output.progress(total, ProgressUnit::Steps).with_prefix("export");
    let mut records = 0;
    let mut lost: Vec<Lost> = Vec::new();
    let mut write = |key: &[u8], value: &[u8]| {
        export.record(key, value).map_err(explain)?;
        records += 1;
        if records % 1024 == 0 {
            bar.set_position(records);
        }
        Ok(ControlFlow::Continue(()))
    };
    if let Some(opened) = &opened {
        args.range.scan(&*opened.records, &mut write)?;
    } else {
        let mut failed = None;
        let mut show = |key: &[u8], value: &[u8]| {
            write(key, value).unwrap_or_else(|error| {
                failed = Some(error);
                ControlFlow::Break(())
            })
        };
        let mut name = |found: Lost| {
            output.note(&format!("lost: {found}"));
            lost.push(found);
        };
        args.map.salvage(args.read, &mut show, &mut name)?;
        failed.map_or(Ok(()), Err)?;
    }
    export.finish().map_err(explain)?;
    drop(export);
    if let Some(file) = file {
        file.publish()?;
    }
    bar.finish_and_clear();
    let is_whole = lost.is_empty();
    if let Some(path) = &args.output {
        let exported = Exported { records, lost, output: path.display().to_string() };
        output.result(&exported, |exported| match exported.lost.len() {
            0 => format!("{}: {} records exported", exported.output, exported.records),
            lost => {
                format!("{}: {} records exported; lost: {lost} (named above)", exported.output, exported.records)
            }
        })?;
    }
    Ok(exit::holds(is_whole))
}

/// A closed pipe ends the command quietly, whichever layer notices it.
fn explain(error: anyhow::Error) -> anyhow::Error {
    match error.downcast::<io::Error>() {
        Ok(error) => stdout_error(error),
        Err(error) => error,
    }
}
