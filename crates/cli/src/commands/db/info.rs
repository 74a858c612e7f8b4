//! `lodestone db info`.

use anyhow::Result;
use serde::Serialize;

use super::place::DbArgs;
use crate::commands::pool::ReadArgs;
use crate::output::{Output, table};
use crate::size::human;

const AFTER_HELP: &str = "\
Examples:
  lodestone db info shop.pool
  lodestone db info shop.pool --json

Log and pages are as they are after the open, which reads both. `records read`
are the log records that it read. `rows` are those of the log and of the page
table, with the catalog. Rows that checkpoints have added to pages in place are
not all among them: `db check` counts each row.";

/// Arguments of `lodestone db info`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    db: DbArgs,

    #[command(flatten)]
    read: ReadArgs,
}

#[derive(Serialize)]
struct Info {
    database: String,
    tables: usize,
    /// With those of the catalog, and without some that were added in place.
    rows: u64,
    was_clean: bool,
    records_read: u64,
    copies_damaged: u64,
    log_bytes_max: u64,
    log_bytes_used: u64,
    log_bytes_made: u64,
    checkpoints: u64,
    page_bytes: u64,
    pages: u64,
    pages_free: u64,
}

/// Prints figures about the database.
pub fn run(args: &Args, output: &Output) -> Result<()> {
    let database = args.db.open_to_read(args.read, output)?;
    let (found, log, pages) = (database.recovery(), database.log_stats(), database.page_stats());
    let info = Info {
        database: args.db.db.clone(),
        tables: database.tables()?.len(),
        rows: found.rows,
        was_clean: found.was_clean,
        records_read: found.records,
        copies_damaged: found.copies_damaged + found.log_copies_damaged + found.page_copies_damaged,
        log_bytes_max: log.segments_max * log.segment_bytes,
        log_bytes_used: (log.segments - log.segments_free) * log.segment_bytes,
        log_bytes_made: log.segments * log.segment_bytes,
        checkpoints: pages.batches,
        page_bytes: pages.page_bytes,
        pages: pages.pages,
        pages_free: pages.pages_free,
    };
    output.result(&info, |info| {
        let mut text = table(&["what", "value"]);
        let log = format!(
            "{} in use, {} made, {} at most",
            human(info.log_bytes_used),
            human(info.log_bytes_made),
            human(info.log_bytes_max)
        );
        let pages = format!("{} of {}, {} free", info.pages, human(info.page_bytes), info.pages_free);
        text.add_row(["database", &info.database]);
        text.add_row(["tables", &info.tables.to_string()]);
        text.add_row(["rows, about", &info.rows.to_string()]);
        text.add_row(["closed in order", if info.was_clean { "yes" } else { "no" }]);
        text.add_row(["log", &log]);
        text.add_row(["log records read", &info.records_read.to_string()]);
        text.add_row(["checkpoints", &info.checkpoints.to_string()]);
        text.add_row(["pages", &pages]);
        text.add_row(["damaged copies", &info.copies_damaged.to_string()]);
        text.to_string()
    })
}
