//! Events of a database, for the operator of a program. `docs/engine.md` lists targets, names and fields.
//!
//! - A program without a subscriber receives nothing, and this library installs none.
//! - No commit and no read has an event of its own. They emit one only when they wait for room, meet damage, or end
//!   with an error after which the database must be opened again. A test counts the events of transactions: none.
//! - An event is emitted by the thread that does the work, some with the lock of the rounds held. A subscriber may not
//!   call into the database that told it.

use std::path::Path;
use std::time::{Duration, Instant};

use lodestone_pages::PageStats;
use lodestone_width::to_u64;
use tracing::{Level, event};

use crate::core::Core;
use crate::error::{Error, Result};
use crate::recover::RecoveryReport;
use crate::rounds::CheckpointReport;

/// Opening and closing.
const OPEN: &str = "lodestone::open";
/// Checkpoints.
const ROUND: &str = "lodestone::round";
/// Transactions that wait for room.
const WAIT: &str = "lodestone::wait";
/// Tables and columns.
const TABLE: &str = "lodestone::table";
/// Builds and ends of indexes.
const INDEX: &str = "lodestone::index";
/// Bytes that do not verify.
const DAMAGE: &str = "lodestone::damage";
/// Commits that failed in the middle.
const DEVICE: &str = "lodestone::device";

/// Rows of an index build between two events.
const ROWS_PER_EVENT: u64 = 4096;

/// A duration in microseconds.
fn us(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// The phases of an open, one after the other.
pub struct Phases<'p> {
    path: &'p Path,
    began: Instant,
    phase_began: Instant,
}

impl<'p> Phases<'p> {
    pub fn begin(path: &'p Path) -> Self {
        let now = Instant::now();
        Self { path, began: now, phase_began: now }
    }

    /// The phase since the last call has ended, with so many pieces of work.
    pub fn end(&mut self, phase: &'static str, pieces: usize) {
        let time = self.phase_began.elapsed();
        event!(
            name: "open phase",
            target: OPEN,
            Level::DEBUG,
            path = %self.path.display(),
            phase,
            pieces = to_u64(pieces),
            elapsed_us = us(time),
            "open phase"
        );
        self.phase_began = Instant::now();
    }

    /// The database is open.
    pub fn opened(&self, report: &RecoveryReport) {
        let RecoveryReport { was_clean, records, rows, .. } = *report;
        event!(
            name: "database opened",
            target: OPEN,
            Level::INFO,
            path = %self.path.display(),
            was_clean,
            records,
            rows,
            elapsed_us = us(self.began.elapsed()),
            "database opened"
        );
        let copies = (report.copies_damaged, report.log_copies_damaged, report.page_copies_damaged);
        if copies != (0, 0, 0) {
            event!(
                name: "copies mended",
                target: DAMAGE,
                Level::WARN,
                path = %self.path.display(),
                copies = copies.0,
                log_copies = copies.1,
                page_copies = copies.2,
                after_crash = !was_clean,
                "copies of metadata were not whole: the other ones were used"
            );
        }
    }

    /// The open has failed.
    pub fn failed(&self, error: &Error) {
        damage(error);
        event!(
            name: "open failed",
            target: OPEN,
            Level::ERROR,
            path = %self.path.display(),
            cause = %error,
            elapsed_us = us(self.began.elapsed()),
            "open failed"
        );
    }
}

/// The last handle is gone. `in_order`: the next open finds a life that ended.
pub fn closed(path: &Path, in_order: bool) {
    event!(name: "database closed", target: OPEN, Level::INFO, path = %path.display(), in_order, "database closed");
}

/// A round has ended, for better or worse. `before` and `after`: figures of the pages.
pub fn round(core: &Core, outcome: &Result<CheckpointReport>, before: &PageStats, after: &PageStats, began: Instant) {
    let path = core.heap.pool().path().display();
    let elapsed_us = us(began.elapsed());
    match outcome {
        Ok(report) => {
            let log = core.wal.stats();
            event!(
                name: "round ended",
                target: ROUND,
                Level::INFO,
                path = %path,
                images = report.images,
                pages = report.pages,
                rows_in_place = report.rows_in_place,
                lines = report.lines,
                bytes = after.written_bytes - before.written_bytes,
                log_segments = log.segments,
                log_segments_free = log.segments_free,
                elapsed_us,
                "round ended"
            );
        }
        Err(error) => {
            damage(error);
            event!(
                name: "round failed",
                target: ROUND,
                Level::WARN,
                path = %path,
                cause = %error,
                elapsed_us,
                "round failed: the logs keep all changes"
            );
        }
    }
}

/// A commit has waited because `what` was full.
pub fn waited(core: &Core, what: &'static str, began: Instant) {
    event!(
        name: "waited for room",
        target: WAIT,
        Level::INFO,
        path = %core.heap.pool().path().display(),
        what,
        elapsed_us = us(began.elapsed()),
        "waited for room"
    );
}

/// Leaves could not leave the cache because they have changed. A round is due.
pub fn evictions_wait(core: &Core, dirty_bytes: u64, cache_bytes: u64) {
    event!(
        name: "evictions wait",
        target: WAIT,
        Level::DEBUG,
        path = %core.heap.pool().path().display(),
        dirty_bytes,
        cache_bytes,
        "evictions wait for a round"
    );
}

/// Leaves of the last close are in the cache again. `left`: those for which there was no room or no time.
pub fn warmed_up(core: &Core, leaves: u64, left: usize, began: Instant) {
    event!(
        name: "warm-up ended",
        target: OPEN,
        Level::INFO,
        path = %core.heap.pool().path().display(),
        leaves,
        left = to_u64(left),
        elapsed_us = us(began.elapsed()),
        "warm-up ended"
    );
}

/// The list of leaves for a warm-up cannot be read or written.
pub fn warm_up_refused(core: &Core, error: &Error) {
    let path = core.heap.pool().path().display();
    event!(
        name: "warm-up list refused",
        target: OPEN,
        Level::WARN,
        path = %path,
        cause = %error,
        "warm-up list refused: the cache begins empty"
    );
}

/// A table was made, changed or dropped.
pub fn table(core: &Core, action: &'static str, table: &str) {
    event!(
        name: "table changed",
        target: TABLE,
        Level::INFO,
        path = %core.heap.pool().path().display(),
        action,
        table,
        "table changed"
    );
}

/// A table was made of rows in bulk.
pub fn loaded(core: &Core, table: &str, rows: u64, began: Instant) {
    event!(
        name: "table loaded",
        target: TABLE,
        Level::INFO,
        path = %core.heap.pool().path().display(),
        table,
        rows,
        elapsed_us = us(began.elapsed()),
        "table loaded"
    );
}

/// An index was dropped.
pub fn index_dropped(core: &Core, table: &str, index: &str) {
    let path = core.heap.pool().path().display();
    event!(name: "index dropped", target: INDEX, Level::INFO, path = %path, table, index, "index dropped");
}

/// The build of an index.
pub struct IndexBuild<'b> {
    path: &'b Path,
    table: &'b str,
    index: &'b str,
    began: Instant,
    rows: u64,
}

impl<'b> IndexBuild<'b> {
    pub fn begin(core: &'b Core, table: &'b str, index: &'b str) -> Self {
        let path = core.heap.pool().path();
        event!(
            name: "index build begins",
            target: INDEX,
            Level::INFO,
            path = %path.display(),
            table,
            index,
            "index build begins"
        );
        Self { path, table, index, began: Instant::now(), rows: 0 }
    }

    /// So many rows have their entries.
    pub fn reached(&mut self, rows: u64) {
        if rows / ROWS_PER_EVENT > self.rows / ROWS_PER_EVENT {
            event!(
                name: "index build progress",
                target: INDEX,
                Level::DEBUG,
                path = %self.path.display(),
                table = self.table,
                index = self.index,
                rows,
                elapsed_us = us(self.began.elapsed()),
                "index build progress"
            );
        }
        self.rows = rows;
    }

    pub fn end(&self, outcome: &Result<()>) {
        let Self { path, table, index, rows, .. } = *self;
        let (path, elapsed_us) = (path.display(), us(self.began.elapsed()));
        match outcome {
            Ok(()) => event!(
                name: "index ready",
                target: INDEX,
                Level::INFO,
                path = %path,
                table,
                index,
                rows,
                elapsed_us,
                "index ready"
            ),
            Err(error) => event!(
                name: "index build failed",
                target: INDEX,
                Level::WARN,
                path = %path,
                table,
                index,
                rows,
                cause = %error,
                elapsed_us,
                "index build failed"
            ),
        }
    }
}

/// Emits an event if `error` says that bytes do not verify.
pub fn damage(error: &Error) {
    if let Error::Damaged { path, what, at, finding } = error {
        event!(
            name: "damage found",
            target: DAMAGE,
            Level::ERROR,
            path = %path.display(),
            what,
            at = %at,
            finding = finding.as_str(),
            "damage found"
        );
    }
}

/// A commit failed after its record was written. Only the next open knows whether it counts.
pub fn poisoned(core: &Core) {
    event!(
        name: "database poisoned",
        target: DEVICE,
        Level::ERROR,
        path = %core.heap.pool().path().display(),
        "a commit failed in the middle: open the database again"
    );
}
