//! `lodestone kv export`.

use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use clap::{ArgGroup, ValueEnum};
use lodestone_pmem::folder_of;
use lodestone_store::Lost;
use serde::Serialize;

use crate::commands::pool::ReadArgs;
use crate::export::{CsvExport, Export, FlatCsvExport, FlatJsonExport, JsonExport};
use crate::interrupt;
use crate::new_file::NewFile;
use crate::output::{Output, ProgressUnit, spare, stdout_error};

use super::MapArgs;
use super::range::RangeArgs;

const AFTER_HELP: &str = "\
Examples:
  lodestone kv export orders.pool --format jsonl > orders.jsonl
  lodestone kv export orders.pool --format csv --output orders.csv
  lodestone kv export orders.pool --format csv --flat id > orders.csv
  lodestone kv export orders.pool --skip-damaged > what-is-left.jsonl
  lodestone kv export orders.pool --skip-damaged --doubtful doubtful.jsonl \\
    > certain.jsonl
  lodestone kv export orders.pool --format csv --flat id \\
    --columns name,total > totals.csv

Without --flat every record becomes a key and a value, and importing the file with `--key key --value value` gives the
same map again, byte for byte. With --flat, values that are JSON objects (as import stores them) become columns or
fields again, and the key becomes the column or field of the given name.

Damage can take everything that says whether a record counts, and leave the record whole. Such a record is doubtful: it
may have been removed or replaced before. It is never among the exported ones. --doubtful writes these records to a file
of their own, in the same format, several of one key where there are several. Look at them before you import them.";

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
#[command(after_help = AFTER_HELP, group = ArgGroup::new("files").multiple(true))]
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
    #[arg(long, short, value_name = "FILE", group = "files")]
    output: Option<PathBuf>,

    /// Replace existing files
    #[arg(long, requires = "files")]
    overwrite: bool,

    /// Spread values that are JSON objects over columns or fields, with the key in the column KEY
    #[arg(long, value_name = "KEY")]
    flat: Option<String>,

    /// Go on past damage: losses are named on standard error, and the exit code is 1
    #[arg(long, conflicts_with_all = ["from", "to", "prefix"])]
    skip_damaged: bool,

    /// Output file for doubtful records: they verify, and nothing says any more whether they were removed or replaced.
    /// It gets its name when it is complete
    #[arg(long, value_name = "FILE", requires = "skip_damaged", group = "files")]
    doubtful: Option<PathBuf>,

    /// Columns of a flat CSV [default: those of the first record]
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',', requires = "flat")]
    columns: Vec<String>,
}

#[derive(Serialize)]
struct Exported {
    records: u64,
    /// The loss.
    lost: Vec<Lost>,
    /// The doubtful records, by key.
    doubtful: Vec<Lost>,
    output: String,
    /// The file with the doubtful records.
    doubtful_output: Option<String>,
}

/// Exports a record.
type Put<'p> = dyn FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>> + 'p;

/// The records that a salvage did not export.
#[derive(Default)]
struct Missing {
    lost: Vec<Lost>,
    /// Doubtful records, by key.
    doubtful: Vec<Lost>,
}

impl Args {
    fn sink<'a>(&'a self, target: Box<dyn Write + 'a>) -> Box<dyn Export + 'a> {
        let target = Box::new(BufWriter::with_capacity(1 << 16, target));
        match (self.format, &self.flat) {
            (FormatArg::Jsonl, None) => Box::new(JsonExport::new(target)),
            (FormatArg::Csv, None) => Box::new(CsvExport::new(target)),
            (FormatArg::Jsonl, Some(key)) => Box::new(FlatJsonExport::new(target, key)),
            (FormatArg::Csv, Some(key)) => Box::new(FlatCsvExport::new(target, key, &self.columns)),
        }
    }

    /// Refuses to write over the pool, and doubtful records to the place of the others.
    fn spare_files(&self) -> Result<()> {
        let pool = self.map.open.path.as_path();
        if let Some(path) = &self.output {
            spare(path, &[pool])?;
        }
        let Some(path) = &self.doubtful else { return Ok(()) };
        let output = self.output.as_deref().unwrap_or(Path::new("/dev/stdout"));
        spare(path, &[pool, output])?;
        let place = |path: &Path| (folder_of(path).canonicalize().ok(), path.file_name().map(ToOwned::to_owned));
        ensure!(
            place(path) != place(output),
            "{}: doubtful records need a file of their own; choose another one",
            path.display()
        );
        Ok(())
    }

    fn new_file(&self, path: Option<&PathBuf>) -> Result<Option<NewFile>> {
        path.map(|path| NewFile::create(path, self.overwrite)).transpose()
    }

    /// Salvages the map: `write` gets its records, `doubtful` those in doubt.
    fn salvage(
        &self,
        output: &Output,
        write: &mut Put<'_>,
        mut doubtful: Option<&mut (dyn Export + '_)>,
    ) -> Result<Missing> {
        let (mut missing, mut failed, mut failed_doubtful) = (Missing::default(), None, None);
        let mut show = |key: &[u8], value: &[u8]| {
            write(key, value).unwrap_or_else(|error| {
                failed = Some(error);
                ControlFlow::Break(())
            })
        };
        let mut name = |mut found: Lost| {
            output.note(&format!("{}: {found}", if found.is_doubtful() { "doubtful" } else { "lost" }));
            let Some((key, value)) = found.take_record() else { return missing.lost.push(found) };
            missing.doubtful.push(found);
            if let (Some(export), None) = (doubtful.as_mut(), &failed_doubtful) {
                failed_doubtful = export.record(&key, &value).map_err(explain).err();
            }
        };
        self.map.salvage(self.read, &mut show, &mut name)?;
        failed.or(failed_doubtful).map_or(Ok(missing), Err)
    }

    /// Says where the doubtful records are, or how to get them.
    fn tell_of_doubtful(&self, count: usize, output: &Output) {
        match &self.doubtful {
            _ if count == 0 => {}
            Some(path) => output.note(&format!(
                "{count} doubtful records are in {}, and not among the exported ones; look at them before you import them",
                path.display()
            )),
            None => output.note(&format!(
                "{count} doubtful records verify, and nothing says any more whether they were removed or replaced; \
                 --doubtful FILE writes them to a file of their own"
            )),
        }
    }
}

/// Writes the records.
pub fn run(args: &Args, output: &Output) -> Result<bool> {
    args.spare_files()?;
    // A damaged map may not open. Its records are salvaged without that.
    let opened = if args.skip_damaged { None } else { Some(args.map.open_to_read(args.read)?) };
    let named = args.output.as_ref().or(args.doubtful.as_ref());
    // Said before the file is there: a signal that comes with the file's first byte finds it.
    if let Some(path) = named {
        interrupt::so_far(format!("{}: not made, and what was there is as it was; run it again", path.display()));
    }
    let mut file = args.new_file(args.output.as_ref())?;
    let mut doubtful_file = args.new_file(args.doubtful.as_ref())?;
    let mut export = args.sink(match &mut file {
        Some(file) => Box::new(file),
        None => Box::new(io::stdout().lock()),
    });
    let mut doubtful = doubtful_file.as_mut().map(|file| args.sink(Box::new(file)));
    // The number of records of a damaged map is not known.
    let whole = opened.as_ref().filter(|_| args.range.is_everything());
    let total = whole.and_then(|opened| opened.records.len().ok());
    let bar = output.progress(total, ProgressUnit::Steps).with_prefix("export");
    let mut records = 0;
    let mut write = |key: &[u8], value: &[u8]| {
        export.record(key, value).map_err(explain)?;
        records += 1;
        if records % 1024 == 0 {
            bar.set_position(records);
        }
        Ok(ControlFlow::Continue(()))
    };
    let missing = match &opened {
        Some(opened) => {
            args.range.scan(&*opened.records, &mut write)?;
            Missing::default()
        }
        None => args.salvage(output, &mut write, doubtful.as_deref_mut())?,
    };
    for export in std::iter::once(&mut export).chain(&mut doubtful) {
        export.finish().map_err(explain)?;
    }
    drop((export, doubtful));
    // First those that are easily forgotten.
    doubtful_file.into_iter().chain(file).try_for_each(NewFile::publish)?;
    if let Some(path) = named {
        interrupt::so_far(format!("{}: made, with {records} records", path.display()));
    }
    bar.finish_and_clear();
    let Missing { lost, doubtful } = missing;
    let is_whole = lost.is_empty() && doubtful.is_empty();
    args.tell_of_doubtful(doubtful.len(), output);
    if let Some(path) = &args.output {
        let doubtful_output = args.doubtful.as_ref().map(|path| path.display().to_string());
        let exported = Exported { records, lost, doubtful, output: path.display().to_string(), doubtful_output };
        output.result(&exported, text)?;
    }
    Ok(is_whole)
}

fn text(exported: &Exported) -> String {
    let Exported { records, lost, doubtful, output, .. } = exported;
    let counts = [("lost", lost.len()), ("doubtful", doubtful.len())];
    let counts: Vec<String> =
        counts.iter().filter(|(_, count)| *count > 0).map(|(what, count)| format!("; {what}: {count}")).collect();
    let named = if counts.is_empty() { "" } else { " (named above)" };
    format!("{output}: {records} records exported{}{named}", counts.concat())
}

/// A closed pipe ends the command quietly, whichever layer notices it.
fn explain(error: anyhow::Error) -> anyhow::Error {
    match error.downcast::<io::Error>() {
        Ok(error) => stdout_error(error),
        Err(error) => error,
    }
}
