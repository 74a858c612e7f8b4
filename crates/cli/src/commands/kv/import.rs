//! `lodestone kv import`.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::ValueEnum;

use crate::import::{self, CsvFormat, Format, Request, Selection};
use crate::output::{Output, spare};
use crate::size;

use super::map::MapStore;
use super::{KindArg, MapArgs};

const AFTER_HELP: &str = "\
Examples:
  lodestone kv import orders.pool orders.csv --key id
  lodestone kv import orders.pool orders.csv --key id --value total
  lodestone kv import orders.pool users.txt --format csv --delimiter ':' \\
    --no-header --rejects bad.txt
  lodestone kv import orders.pool orders.csv --key id --map tree \\
    --index fastfair
  zcat events.jsonl.gz | lodestone kv import orders.pool - --format jsonl \\
    --key event_id

The value of a row is a JSON object of its other columns (or of the columns given with --value); one --value column
alone is stored as it is. A row replaces an older one with the same key.

An import that was interrupted (Ctrl-C, kill, power loss) goes on where it stopped when the same command is run again.
Bad rows are reported with their line numbers and skipped; --rejects keeps them, ready to be mended and imported.
The column of a JSON Lines row is a field; a field NAME_hex stands for the bytes of NAME.

Exit code 1 when rows were skipped.";

/// The format of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FormatArg {
    /// Delimited text with a header
    Csv,
    /// One JSON object per line
    Jsonl,
}

/// Arguments of `lodestone kv import`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    map: MapArgs,

    #[command(flatten)]
    kind: KindArg,

    /// The source: a CSV or JSON Lines file, or - for standard input
    source: PathBuf,

    /// Format of the source [default: by the file's name]
    #[arg(long, value_enum)]
    format: Option<FormatArg>,

    /// Column (name, or number from 1) or field that is the key [default: the first column; the field `key`]
    #[arg(long, value_name = "COLUMN")]
    key: Option<String>,

    /// Columns or fields that make the value [default: all others]
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',')]
    value: Vec<String>,

    /// Byte between columns; \t for a tabulator [default: a comma; a tabulator for .tsv]
    #[arg(long, value_name = "BYTE", value_parser = delimiter)]
    delimiter: Option<u8>,

    /// The first row is data; columns are named column_1, column_2, ...
    #[arg(long)]
    no_header: bool,

    /// Rows per wait for durability (fewer when they are long: 1 MiB at most)
    #[arg(long, value_name = "ROWS", default_value_t = 5000, value_parser = clap::value_parser!(u64).range(1..))]
    batch: u64,

    /// Keep skipped rows in this file, which gets its name at the end of the import
    #[arg(long, value_name = "FILE")]
    rejects: Option<PathBuf>,

    /// Replace an existing file of rejects
    #[arg(long, requires = "rejects")]
    overwrite: bool,

    /// Start with the first row, even if an import of this file was interrupted
    #[arg(long)]
    restart: bool,
}

fn delimiter(text: &str) -> Result<u8, String> {
    match text {
        "\\t" | "tab" => Ok(b'\t'),
        _ => match text.as_bytes() {
            [byte] if !matches!(byte, b'"' | b'\n' | b'\r') => Ok(*byte),
            _ => Err(format!("`{text}` is no delimiter; give one byte other than a quote or a line end")),
        },
    }
}

impl Args {
    fn request(&self) -> Result<Request> {
        let extension = self.source.extension().and_then(|name| name.to_str()).unwrap_or_default();
        let extension = extension.to_ascii_lowercase();
        let format = match (self.format, extension.as_str()) {
            (Some(format), _) => format,
            (None, "csv" | "tsv") => FormatArg::Csv,
            (None, "jsonl" | "ndjson") => FormatArg::Jsonl,
            (None, _) => {
                bail!("{}: neither .csv, .tsv nor .jsonl; say --format csv or --format jsonl", self.source.display())
            }
        };
        let format = match format {
            FormatArg::Jsonl => Format::JsonLines,
            FormatArg::Csv => {
                let usual = if extension == "tsv" { b'\t' } else { b',' };
                Format::Csv(CsvFormat { delimiter: self.delimiter.unwrap_or(usual), has_header: !self.no_header })
            }
        };
        Ok(Request {
            path: (self.source != Path::new("-")).then(|| self.source.clone()),
            format,
            selection: Selection { key: self.key.clone(), values: self.value.clone() },
            batch_rows: self.batch,
            rejects: self.rejects.clone(),
            overwrite: self.overwrite,
            restart: self.restart,
        })
    }
}

/// Imports the source.
pub fn run(args: &Args, output: &Output) -> Result<bool> {
    let request = args.request()?;
    if let Some(path) = &request.path {
        // Before the pool is opened for writing, so that a wrong name changes nothing.
        import::verify_source(path)?;
    }
    if let Some(rejects) = &request.rejects {
        let source = request.path.as_deref().unwrap_or(Path::new("-"));
        spare(rejects, &[&args.map.open.path, source])?;
    }
    let store = MapStore::open(&args.map, args.kind)?;
    let domain = store.domain_label();
    let summary = import::import(&store, &request, output)?;
    output.result(&summary, |summary| {
        let resumed = match summary.resumed_at_line {
            1 => String::new(),
            line => format!(", resumed at line {line}"),
        };
        format!(
            "{}: {} rows imported ({} replaced, {} skipped{resumed}) from {} in {:.2} s, {:.0} rows/s, {domain} domain",
            summary.source,
            summary.rows,
            summary.replaced,
            summary.rejected,
            size::human(summary.source_bytes),
            summary.seconds,
            summary.rows_per_s,
        )
    })?;
    Ok(summary.rejected == 0)
}
