//! `lodestone db checkpoint`.

use anyhow::Result;
use serde::Serialize;

use super::place::DbArgs;
use crate::output::Output;

const AFTER_HELP: &str = "\
Examples:
  lodestone db checkpoint shop.pool
  lodestone db checkpoint shop.pool --json

Commits make a checkpoint by themselves when the log is half full. One on request
makes the next open faster: it reads pages, and the log records since the
checkpoint before.";

/// Arguments of `lodestone db checkpoint`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    db: DbArgs,
}

#[derive(Serialize)]
struct Checkpoint {
    images: u64,
    pages: u64,
    rows_in_place: u64,
    lines: u64,
    log_segments_in_use: u64,
}

/// Writes changed rows to pages. Durable when this returns.
pub fn run(args: &Args, output: &Output) -> Result<()> {
    let database = args.db.open(output)?;
    let report = database.checkpoint()?;
    let log = database.log_stats();
    let made = Checkpoint {
        images: report.images,
        pages: report.pages,
        rows_in_place: report.rows_in_place,
        lines: report.lines,
        log_segments_in_use: log.segments - log.segments_free,
    };
    output.result(&made, |made| {
        let path = database.pool().path().display();
        format!(
            "{path}: {} leaves written to {} pages, {} rows in {} lines of others; {} log segments in use",
            made.images, made.pages, made.rows_in_place, made.lines, made.log_segments_in_use
        )
    })
}
