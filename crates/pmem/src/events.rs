//! Events of a pool, for the operator of a program: `docs/engine.md` lists targets, names and fields.
//!
//! - A program without a subscriber receives nothing. This library installs none.
//! - No store, flush, fence or load has an event. A wait for durability has one only when the device has failed.
//! - An event is emitted with no lock of the pool held that another thread needs to become durable. A subscriber may
//!   not call into the pool all the same: an open or a backup may be under way.

use std::path::Path;
use std::time::Duration;

use tracing::{Level, event};

use crate::block::JournalRecovery;
use crate::domain::Domain;
use crate::error::Error;
use crate::pool::CopyReport;

/// The target of all events here.
const POOL: &str = "lodestone::pool";
/// The target of copies and backups.
const BACKUP: &str = "lodestone::backup";
/// The target of failures of the device.
const DEVICE: &str = "lodestone::device";

/// A duration in microseconds.
fn us(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// A pool was opened.
pub(crate) struct PoolOpened<'p> {
    pub(crate) path: &'p Path,
    pub(crate) domain: Domain,
    pub(crate) reason: &'p str,
    pub(crate) boot: u64,
    pub(crate) was_clean: bool,
    pub(crate) is_read_only: bool,
    pub(crate) recovery: &'p JournalRecovery,
}

impl PoolOpened<'_> {
    pub(crate) fn emit(&self) {
        event!(
            name: "pool opened",
            target: POOL,
            Level::INFO,
            path = %self.path.display(),
            domain = %self.domain,
            reason = self.reason,
            boot = self.boot,
            was_clean = self.was_clean,
            read_only = self.is_read_only,
            journal_groups = self.recovery.groups,
            journal_lines = self.recovery.lines,
            unfinished_group = self.recovery.unfinished_group,
            "pool opened"
        );
    }
}

/// A part has another length from now on.
pub(crate) fn grown(path: &Path, part: u16, from: u64, to: u64) {
    event!(
        name: "pool grown",
        target: POOL,
        Level::INFO,
        path = %path.display(),
        part,
        bytes_before = from,
        bytes = to,
        "pool grown"
    );
}

/// Groups of the journal are in the files.
pub(crate) fn checkpointed(path: &Path, groups: u64, journal_bytes: u64, time: Duration) {
    event!(
        name: "journal checkpoint",
        target: POOL,
        Level::DEBUG,
        path = %path.display(),
        groups,
        journal_bytes,
        elapsed_us = us(time),
        "journal checkpoint"
    );
}

/// The device has failed for good. Once for each open pool.
pub(crate) fn device_failed(path: &Path, cause: &str) {
    event!(
        name: "device failed",
        target: DEVICE,
        Level::ERROR,
        path = %path.display(),
        cause,
        "device failed: nothing becomes durable any more"
    );
}

/// A copy begins.
pub(crate) fn copy_begins(path: &Path, to: &Path) {
    let (path, to) = (path.display(), to.display());
    event!(name: "copy begins", target: BACKUP, Level::INFO, path = %path, to = %to, "copy begins");
}

/// A copy has ended.
pub(crate) fn copied(path: &Path, to: &Path, outcome: &Result<CopyReport, Error>, time: Duration) {
    let (path, to, elapsed_us) = (path.display(), to.display(), us(time));
    match outcome {
        Ok(report) => event!(
            name: "copy ended",
            target: BACKUP,
            Level::INFO,
            path = %path,
            to = %to,
            pool_bytes = report.pool_bytes,
            written_bytes = report.written_bytes,
            rewritten_bytes = report.rewritten_bytes,
            passes = report.passes,
            writers_stopped_us = report.writers_stopped_ns / 1000,
            elapsed_us,
            "copy ended"
        ),
        Err(error) => event!(
            name: "copy failed",
            target: BACKUP,
            Level::WARN,
            path = %path,
            to = %to,
            cause = %error,
            elapsed_us,
            "copy failed"
        ),
    }
}
