//! Import of CSV and JSON Lines into a map: in batches, resumable, with every bad row reported.
//!
//! 1. Look for the mark of an interrupted import of the same source. If there is one, check that the source still
//!    starts with the bytes that were read then, and go on after them.
//! 2. Insert rows one by one, without waiting. A bad row is reported with its line number and kept in the file of
//!    rejects.
//! 3. After each batch store the mark after the rows and wait once until all of it is durable.
//! 4. At the end remove the mark.
//!
//! Invariants:
//! - a mark never counts a row that could still be lost, because it is ordered after the rows, and the file of rejects
//!   is synced before it;
//! - a row that is imported twice leaves the same map.
//!
//! So an import that is killed at any moment and started again ends with the same map and the same file of rejects as
//! one that ran through.

mod csv_text;
mod json_text;
mod lines;
mod mark;
mod rejects;
mod rows;

use std::fs::File;
use std::io::{self, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use lodestone_width::nearest_f64;
use serde::Serialize;

use crate::import_store::ImportStore;
use crate::interrupt;
use crate::output::{Output, ProgressUnit};

pub use csv_text::CsvFormat;
pub use rows::Selection;

use csv_text::CsvRows;
use json_text::JsonRows;
use lines::{Lines, Position, checksum_of_prefix};
use mark::Mark;
use rejects::Rejects;
use rows::Rows;

/// Bytes of rows in one batch at most: far below any journal, so that a batch never waits for room.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// The format of the source.
#[derive(Clone, Debug)]
pub enum Format {
    /// Delimited text.
    Csv(CsvFormat),
    /// One JSON object per line.
    JsonLines,
}

/// A request for an import.
#[derive(Clone, Debug)]
pub struct Request {
    /// The source; `None`: standard input, which cannot be resumed.
    pub path: Option<PathBuf>,
    /// Its format.
    pub format: Format,
    /// The fields that become key and value.
    pub selection: Selection,
    /// Rows per durability wait.
    pub batch_rows: u64,
    /// The file for bad rows.
    pub rejects: Option<PathBuf>,
    /// Whether the rejects may replace an existing file.
    pub overwrite: bool,
    /// Start from the first row even if an import of this source was interrupted.
    pub restart: bool,
}

/// The result of an import. The counts include the work of an interrupted import before it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Always `summary`.
    pub event: &'static str,
    /// The source.
    pub source: String,
    /// Rows that are in the map.
    pub rows: u64,
    /// Of these, rows that replaced one with the same key.
    pub replaced: u64,
    /// Rows that were rejected.
    pub rejected: u64,
    /// Bytes of the source.
    pub source_bytes: u64,
    /// First line of this run. 1 when it started afresh.
    pub resumed_at_line: u64,
    /// Waits for durability in this run.
    pub batches: u64,
    /// Duration of this run.
    pub seconds: f64,
    /// Rows of this run by its duration.
    pub rows_per_s: f64,
}

/// Imports the source of `request` into `store`.
///
/// # Errors
/// When the source, the store or the file of rejects fails. The message says how to go on. Imported rows stay.
pub fn import(store: &dyn ImportStore, request: &Request, output: &Output) -> Result<Summary> {
    let started = Instant::now();
    let source = source_name(request)?;
    let mut mark = starting_mark(store, request, &source)?;
    let resumed_at_line = mark.line;
    let rows_before = mark.rows;
    let mut rows = open_rows(request, &mark)?;
    let mut rejects = Rejects::open(request.rejects.as_deref(), request.overwrite, mark.rejects_bytes, rows.head())?;
    let total = request.path.as_ref().and_then(|path| path.metadata().ok()).map(|meta| meta.len());
    let bar = output.progress(total, ProgressUnit::Bytes).with_prefix("import");
    let mut batches = 0;
    loop {
        interrupt::so_far(so_far(&source, &mark, request));
        let more = batch(store, request, rows.as_mut(), &mut rejects, &mut mark, output)
            .with_context(|| failed_after(&source, &mark, request))?;
        rejects.sync()?;
        mark.advance(rows.position());
        // A continued import creates a file without rows anew.
        mark.rejects_bytes = if mark.rejected == 0 { 0 } else { rejects.bytes() };
        let end = |result: Result<()>| result.with_context(|| failed_after(&source, &mark, request));
        if request.path.is_some() {
            end(mark.save(store, &source))?;
            if mark.rejects_bytes > 0 {
                rejects.marked();
            }
        }
        // One wait for the rows and their mark. The mark is ordered after the rows, so it cannot survive without them.
        end(store.sync())?;
        end(store.verify())?;
        batches += 1;
        bar.set_position(mark.offset);
        if !more {
            break;
        }
    }
    // Before the mark is removed: a run that is interrupted here finds the file by its length.
    rejects.finish(mark.rejected)?;
    if request.path.is_some() {
        store.clear_mark(&source)?;
        store.sync()?;
    }
    bar.finish_and_clear();
    let seconds = started.elapsed().as_secs_f64();
    Ok(Summary {
        event: "summary",
        source,
        rows: mark.rows,
        replaced: mark.replaced,
        rejected: mark.rejected,
        source_bytes: mark.offset,
        resumed_at_line,
        batches,
        seconds,
        rows_per_s: nearest_f64(mark.rows - rows_before) / seconds.max(1e-9),
    })
}

/// Inserts one batch of rows. `false` when the source has no more.
fn batch(
    store: &dyn ImportStore,
    request: &Request,
    rows: &mut dyn Rows,
    rejects: &mut Rejects,
    mark: &mut Mark,
    output: &Output,
) -> Result<bool> {
    let (key_bytes_max, value_bytes_max) = store.limits();
    let mut bytes = 0;
    for _ in 0..request.batch_rows.max(1) {
        let Some(mut row) = rows.next_row()? else { return Ok(false) };
        let checked = row.content.and_then(|(key, value)| {
            if key.len() > key_bytes_max {
                Err(format!("the key has {} bytes; at most {key_bytes_max} fit", key.len()))
            } else if value.len() > value_bytes_max {
                Err(format!("the value has {} bytes; at most {value_bytes_max} fit", value.len()))
            } else {
                Ok((key, value))
            }
        });
        match checked {
            Ok((key, value)) => {
                mark.replaced += u64::from(store.insert(&key, &value)?);
                mark.rows += 1;
                bytes += key.len() + value.len();
            }
            Err(reason) => {
                rejects.reject(output, row.line, &reason, &mut row.raw)?;
                mark.rejected += 1;
            }
        }
        if bytes >= BATCH_BYTES_MAX {
            break;
        }
    }
    Ok(true)
}

/// The name under which the progress of this source is stored.
fn source_name(request: &Request) -> Result<String> {
    let Some(path) = &request.path else { return Ok("(standard input)".to_owned()) };
    let path = path
        .canonicalize()
        .with_context(|| format!("{}: opening the source failed; check the path", path.display()))?;
    Ok(path.to_string_lossy().into_owned())
}

/// The mark of an interrupted import of the same source read in the same way, or a new mark.
fn starting_mark(store: &dyn ImportStore, request: &Request, source: &str) -> Result<Mark> {
    let reading = format!("{:?} {:?}", request.format, request.selection);
    let Some(path) = request.path.as_ref().filter(|_| !request.restart) else { return Ok(Mark::start(reading)) };
    let Some(mark) = Mark::load(store, source)? else { return Ok(Mark::start(reading)) };
    if mark.reading != reading {
        bail!(
            "{source}: an import of this file stopped at line {} and read it differently (other --key, --value, \
             --format, --delimiter or --no-header); repeat it with the same options, or import afresh with --restart",
            mark.line
        );
    }
    let found = checksum_of_prefix(open(path)?, mark.offset)?;
    if found != Some(mark.crc) {
        bail!(
            "{source}: an import of this file stopped at line {}, and the file has changed before that line since; \
             import afresh with --restart",
            mark.line
        );
    }
    Ok(mark)
}

/// Checks that the source can be opened.
///
/// # Errors
/// When it cannot.
pub fn verify_source(path: &Path) -> Result<()> {
    open(path).map(|_| ())
}

fn open(path: &Path) -> Result<File> {
    File::open(path).with_context(|| format!("{}: opening the source failed; check the path", path.display()))
}

fn open_rows(request: &Request, mark: &Mark) -> Result<Box<dyn Rows>> {
    let start: Box<dyn io::BufRead> = match &request.path {
        Some(path) => Box::new(BufReader::with_capacity(1 << 16, open(path)?)),
        None => Box::new(BufReader::with_capacity(1 << 16, io::stdin())),
    };
    let start = Lines::new(start, Position::START);
    let further = match &request.path {
        Some(path) if mark.offset > 0 => {
            let mut file = open(path)?;
            file.seek(SeekFrom::Start(mark.offset))?;
            Some(Lines::new(Box::new(BufReader::with_capacity(1 << 16, file)), mark.position()))
        }
        _ => None,
    };
    Ok(match &request.format {
        Format::JsonLines => Box::new(JsonRows::new(further.unwrap_or(start), request.selection.clone())),
        Format::Csv(format) => {
            let name = request.path.as_ref().map_or("(standard input)".into(), |path| path.to_string_lossy());
            let mut rows = CsvRows::new(start, format, request.selection.clone()).with_context(|| name.into_owned())?;
            if let Some(further) = further {
                rows.resume(further);
            }
            Box::new(rows)
        }
    })
}

fn failed_after(source: &str, mark: &Mark, request: &Request) -> String {
    format!("{source}: the import stopped: {}", what_stays(mark, request))
}

/// The report of a signal: the work done so far.
fn so_far(source: &str, mark: &Mark, request: &Request) -> String {
    format!("{source}: {}", what_stays(mark, request))
}

fn what_stays(mark: &Mark, request: &Request) -> String {
    let how = match (&request.path, &request.rejects) {
        (None, _) => "standard input cannot be resumed, but importing a row twice does no harm".into(),
        (Some(_), Some(rejects)) if mark.rejects_bytes > 0 => {
            format!("run the same command again to go on; rejected rows so far are in {}.partial", rejects.display())
        }
        (Some(_), _) => "run the same command again to go on".to_owned(),
    };
    format!("every row before line {} is imported, durable and stays ({} rows); {how}", mark.line, mark.rows)
}

#[cfg(test)]
mod tests;
