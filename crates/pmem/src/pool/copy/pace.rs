//! How fast a copy beside writers goes.
//!
//! Without rest it takes a processor, and the bandwidth of medium and file system, from the writers. A file system may
//! also let a writer that syncs its log wait until all that was written to another file is on the medium. So the copy
//! sleeps for most of the time, and syncs what it has written every few megabytes.

use std::thread;
use std::time::{Duration, Instant};

/// Work without a rest.
const WORK_MIN: Duration = Duration::from_millis(1);
/// Bytes that are written before they are synced.
pub(super) const UNSYNCED_MAX: u64 = 2 << 20;

/// See the module.
#[derive(Debug)]
pub(super) struct Pace {
    /// Percent of the time for work.
    share: u32,
    began: Instant,
}

impl Pace {
    pub(super) fn new(share_percent: u8) -> Self {
        Self { share: share_percent.into(), began: Instant::now() }
    }

    /// Work begins.
    pub(super) fn begin(&mut self) {
        self.began = Instant::now();
    }

    /// Another pass begins: with twice the share.
    pub(super) fn hurry(&mut self) {
        self.share = (self.share * 2).min(100);
        self.begin();
    }

    /// Some work is done. Sleeps, when it is time.
    pub(super) fn rest(&mut self) {
        let worked = self.began.elapsed();
        if worked >= WORK_MIN && self.share < 100 {
            thread::sleep(worked * (100 - self.share) / self.share);
            self.begin();
        }
    }
}
