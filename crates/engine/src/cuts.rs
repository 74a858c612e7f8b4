//! Cuts through all logs while commits go on: the records below a cut are closed under dependency.
//!
//! An *epoch* is the time between two cuts. A commit reads the epoch when it holds all its locks, and notes the ends of
//! its record before it releases one. So a commit that builds on another one, or that overwrites it, has the same epoch
//! or a later one.
//!
//! A cut raises the epoch, then reads for each log where its first record of the new epoch begins, or its end:
//!
//! 1. A record of the new epoch is not below the cut. Its epoch is stored before its end, and read by the cut after the
//!    end.
//! 2. A record of the old epoch is below the cut if another commit of that epoch was built on it. That one found the
//!    locks released, so the end of the record was stored, and then read the epoch before it rose. The cut reads the
//!    end after that. These four accesses are sequentially consistent: no weaker order has the load of the epoch before
//!    the cut's read-modify-write of it.
//! 3. Any other record of the old epoch, one that is being written, may be on either side.
//!
//! No thread waits for another one. A commit writes to a line of its own, and reads one that changes with each cut.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use crossbeam_utils::CachePadded;
use lodestone_pmem::sync::atomic::{AtomicBool, AtomicU64};
use lodestone_pmem::sync::{Mutex, lock};
use lodestone_txn::Writer;

/// See the module. Many threads note records, each as the one owner of its writer. Cuts wait for each other.
#[derive(Debug)]
pub struct Cuts {
    /// Cuts that have begun.
    epoch: AtomicU64,
    /// Held during a cut: a position belongs to one of them.
    cutting: Mutex<()>,
    writers: Box<[CachePadded<Marks>]>,
}

/// The log of a writer, as a cut sees it.
#[derive(Debug, Default)]
struct Marks {
    /// The epoch of the last record.
    epoch: AtomicU64,
    /// The position of the first record of that epoch.
    first: AtomicU64,
    /// The position after the last record.
    end: AtomicU64,
    /// The position after the last record that is persistent.
    settled: AtomicU64,
    /// Whether a commit without a record is under way.
    is_unrecorded: AtomicBool,
}

/// A commit without a record, which is under way.
#[derive(Debug)]
pub struct Unrecorded<'c>(&'c Marks);

impl Drop for Unrecorded<'_> {
    fn drop(&mut self) {
        // Release: a feed that sees this sees what the commit has made visible.
        self.0.is_unrecorded.store(false, Release);
    }
}

impl Cuts {
    /// For logs that end at these positions.
    pub fn new(writers: u16, ends: impl IntoIterator<Item = (Writer, u64)>) -> Self {
        let writers: Box<[CachePadded<Marks>]> = (0..writers).map(|_| CachePadded::default()).collect();
        for (writer, position) in ends {
            writers[writer.index()].end.store(position, Relaxed);
            writers[writer.index()].settled.store(position, Relaxed);
        }
        Self { epoch: AtomicU64::new(0), cutting: Mutex::new(()), writers }
    }

    /// All writers.
    pub fn writers(&self) -> impl Iterator<Item = Writer> {
        (0..).zip(&self.writers).filter_map(|(number, _)| Writer::new(number))
    }

    /// The epoch of a commit, which holds all its locks.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(SeqCst)
    }

    /// Notes that `writer` begins to append a record of `epoch` at `position`. Before [`ends`](Self::ends).
    pub fn begins(&self, writer: Writer, epoch: u64, position: u64) {
        let marks = &self.writers[writer.index()];
        if epoch > marks.epoch.load(Relaxed) {
            marks.first.store(position, Relaxed);
            marks.epoch.store(epoch, Release);
        }
    }

    /// A commit of `writer` without a record begins. Then it asks whether there is a feed.
    pub fn begins_unrecorded(&self, writer: Writer) -> Unrecorded<'_> {
        let marks = &*self.writers[writer.index()];
        // One of the two sees the other: this commit the feed, or the feed this commit.
        marks.is_unrecorded.store(true, SeqCst);
        Unrecorded(marks)
    }

    /// Whether such a commit of `writer` is under way. A feed asks after it has said that it is there.
    pub fn is_unrecorded(&self, writer: Writer) -> bool {
        self.writers[writer.index()].is_unrecorded.load(SeqCst)
    }

    /// Notes the position after the record. Before a lock of the commit is released.
    pub fn ends(&self, writer: Writer, position: u64) {
        self.writers[writer.index()].end.store(position, SeqCst);
    }

    /// Notes that all records of `writer` before `position` are persistent. After their fence.
    pub fn settles(&self, writer: Writer, position: u64) {
        // Release: a thread that sees the position sees the records, which may be streamed.
        self.writers[writer.index()].settled.store(position, Release);
    }

    /// The position before which all records of `writer` are persistent.
    pub fn settled(&self, writer: Writer) -> u64 {
        self.writers[writer.index()].settled.load(Acquire)
    }

    /// The sum of the positions after the last records: bytes of all records that were ever appended.
    pub fn bytes(&self) -> u64 {
        self.writers.iter().map(|marks| marks.end.load(Relaxed)).sum()
    }

    /// Begins a new epoch. Returns the one before, and for each log the position of the cut.
    pub fn cut(&self) -> (u64, Vec<u64>) {
        let _alone = lock(&self.cutting);
        let epoch = self.raise();
        (epoch, self.positions(epoch))
    }

    /// Ends an epoch and returns it.
    fn raise(&self) -> u64 {
        self.epoch.fetch_add(1, SeqCst)
    }

    /// For each log the position below which its records are of `epoch` or earlier.
    fn positions(&self, epoch: u64) -> Vec<u64> {
        let position = |marks: &CachePadded<Marks>| {
            let end = marks.end.load(SeqCst);
            if marks.epoch.load(Acquire) > epoch {
                // The last record is of the epoch after: only the thread of the cut raises it.
                return marks.first.load(Relaxed);
            }
            end
        };
        self.writers.iter().map(position).collect()
    }
}

#[cfg(all(test, feature = "shuttle"))]
mod schedules;
