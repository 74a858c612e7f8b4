//! The figures of `lodestone bench ycsb --engine db` about its pages: the bytes that checkpoints write for each update.
//!
//! A checkpoint before the run and one after it: so the pages have all updates of the run, and nothing else.

use std::cell::Cell;

use anyhow::Result;
use lodestone_engine::{Database, DatabaseOptions, FlushUnit};
use lodestone_pmem::Domain;
use lodestone_workload::result::BenchResult;

/// Counts of the pages at the begin of the run.
pub struct PageWatch<'d> {
    database: &'d Database,
    written_bytes: Cell<u64>,
    commits: Cell<u64>,
    batches: Cell<u64>,
}

impl<'d> PageWatch<'d> {
    pub fn new(database: &'d Database) -> Self {
        Self { database, written_bytes: Cell::new(0), commits: Cell::new(0), batches: Cell::new(0) }
    }

    /// The run begins.
    pub fn begin(&self) -> Result<()> {
        self.database.checkpoint()?;
        let stats = self.database.stats();
        self.written_bytes.set(stats.pages.written_bytes);
        self.commits.set(stats.commits);
        self.batches.set(stats.pages.batches);
        Ok(())
    }

    /// Adds the figures of a run to its result.
    pub fn add_to(&self, result: &mut BenchResult, options: &DatabaseOptions) -> Result<()> {
        self.database.checkpoint()?;
        let stats = self.database.stats();
        let (bytes, updates) =
            (stats.pages.written_bytes - self.written_bytes.get(), stats.commits - self.commits.get());
        let has_lines = self.database.pool().memory().domain() != Domain::Block;
        let unit = if has_lines && options.flush_unit == FlushUnit::Line { "line" } else { "page" };
        result.set_extra("flush_unit", unit);
        result.set_extra("checkpoints", stats.pages.batches - self.batches.get());
        result.set_extra("page_bytes_per_update", bytes as f64 / updates.max(1) as f64);
        result.set_extra("log_bytes", options.log_bytes);
        Ok(())
    }
}
