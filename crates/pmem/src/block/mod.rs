//! The block domain: power-loss durability on an ordinary file, one device sync per group of fences.
//!
//! The pool is mapped privately, so the file changes only by writes of this module.
//!
//! 1. *Flush* copies the line into the open commit group ([`group`]).
//! 2. *Durable* waits for the caller's group. The first waiter becomes the committer: it closes the group, writes it as
//!    one checksummed record to the journal, syncs, and wakes the group's waiters. A waiter of the next group then
//!    commits that one ([`commit`]). One record is in flight at a time.
//! 3. *Checkpoint*: a thread writes the lines of committed groups to the file, syncs it, and moves the journal's tail
//!    ([`checkpoint`]). The same thread commits, every fifth of a second, flushed lines that no thread waits for, and
//!    at once what a task waits for ([`tasks`]). A committer that finds no room in the ring checkpoints itself.
//! 4. *Append and discard*: a log joins the group as a run of lines. A checkpoint leaves out the lines that a log no
//!    longer needs ([`areas`], [`checkpoint`]).
//! 5. *Direct writes* of bulk data go to the file at once, around the journal ([`direct`]).
//! 6. *Open* replays the journal ([`replay`]). Its format is in [`journal`] and [`record`].
//!
//! Invariants:
//! - a group is on disk whole or not at all, and groups become durable in order. So the disk always has a state that
//!   the persistence contract allows;
//! - lines of groups reach the file only after their record is durable, and leave the journal only after they are
//!   durable in the file;
//! - after a failed write or sync the domain is poisoned: every later `durable` fails, nothing is retried. The failure
//!   is noted under the lock that serialises the next step;
//! - journal, checkpoints and direct writes have open files of their own. The kernel reports an error of the device
//!   once to each open file, so no side can take the other's error away.

mod areas;
mod checkpoint;
mod commit;
mod direct;
mod group;
pub(crate) mod journal;
pub(crate) mod record;
mod replay;
mod tasks;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::task::{Poll, Waker};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use lodestone_width::to_u64;

use crate::addr::{LineAddr, PmAddr};
use crate::error::{Error, Result};
use crate::memory::Memory;
use crate::storage::Storage;
use crate::sync::atomic::{AtomicBool, AtomicU64};
use crate::sync::{Condvar, Mutex, lock};
use checkpoint::Discarded;
use direct::DirectFiles;
use group::{Groups, Joined};
use journal::{JOURNAL_BYTES_MIN, JournalArea, JournalState, new_life};
use record::{Life, Record};
pub use replay::JournalRecovery;
pub(crate) use replay::{
    apply_journal, check_journal, drop_journal, read_journal, read_salvage, replay, rewrite_header, sync_journal,
};
use tasks::Tasks;

/// The files of a pool and the place of its journal, as the block domain needs them.
#[derive(Clone, Debug)]
pub(crate) struct BlockFiles {
    pub(crate) path: PathBuf,
    /// One storage per part.
    pub(crate) parts: Vec<Arc<dyn Storage>>,
    /// Part 0 as the journal writes it: an open file of its own.
    pub(crate) journal: Arc<dyn Storage>,
    /// The parts as direct writes see them: open files of their own.
    pub(crate) direct: Vec<Arc<dyn Storage>>,
    /// Lengths of the parts at open: the journal never names a line after them.
    pub(crate) part_bytes: Vec<u64>,
    pub(crate) journal_offset: u64,
    pub(crate) journal_bytes: u64,
}

impl BlockFiles {
    fn area(&self) -> JournalArea<'_> {
        JournalArea {
            path: &self.path,
            storage: self.journal.as_ref(),
            offset: self.journal_offset,
            bytes: self.journal_bytes,
        }
    }

    /// Whether `line` is in the journal, which is written as a file and never as memory.
    #[inline]
    fn is_in_journal(&self, line: LineAddr) -> bool {
        // Part 0 is the upper bits of an address: none of another part is in this range.
        line.start().to_raw().wrapping_sub(self.journal_offset) < self.journal_bytes
    }
}

/// How a pool's block domain behaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockOptions {
    /// Start the checkpoint thread; without it only a committer that finds the ring full checkpoints (tests).
    pub(crate) background: bool,
    /// Longest time a committer waits for others to join before it closes a group.
    pub(crate) gather: Duration,
    /// Longest time a waiter spins (yielding the processor) before it sleeps; at most two syncs.
    pub(crate) spin: Duration,
    /// Flushed lines without a waiter are committed at the latest after about this time.
    pub(crate) commit_interval: Duration,
}

impl Default for BlockOptions {
    fn default() -> Self {
        Self {
            background: true,
            gather: Duration::from_micros(100),
            spin: Duration::from_micros(300),
            commit_interval: Duration::from_millis(200),
        }
    }
}

/// The group commit engine of one open pool.
#[derive(Debug)]
pub(crate) struct BlockDomain {
    engine: Arc<Engine>,
    checkpointer: Mutex<Option<std::thread::JoinHandle<()>>>,
}

#[derive(Debug)]
struct Engine {
    id: u64,
    files: BlockFiles,
    options: BlockOptions,
    /// The life whose records this engine writes.
    life: Life,
    groups: Groups,
    /// Every group up to this number is on disk.
    durable: AtomicU64,
    /// Moving average of the time that writing and syncing a record takes, in nanoseconds.
    sync_ns: AtomicU64,
    /// Nothing becomes durable any more. Set under the lock under which other threads would go on.
    halted: AtomicBool,
    halt: OnceLock<Halt>,
    /// Whether the failure of the device was told. Not one of the scheduler's: nothing waits for it.
    is_told: std::sync::atomic::AtomicBool,
    commit: Mutex<CommitState>,
    /// Waiters of even and of odd groups.
    waiters: [Condvar; 2],
    /// Tasks that wait without a thread.
    tasks: Tasks,
    /// Threads that wait for even and for odd groups, the committer among them.
    arrived: [CachePadded<AtomicU64>; 2],
    /// `CommitState::committing` for spinning threads.
    busy: AtomicBool,
    ring: Mutex<Ring>,
    /// Work for the checkpointer.
    ring_moved: Condvar,
    /// Held during a checkpoint. The cause of the one that failed.
    checkpoint: Mutex<Option<String>>,
    /// Held during a direct write.
    direct: Mutex<DirectFiles>,
    /// Held while direct writes are settled. It comes before `direct`.
    settling: Mutex<()>,
}

/// Why nothing becomes durable any more.
#[derive(Debug)]
enum Halt {
    /// The device failed; the first failure.
    Poisoned(String),
    Closed,
}

#[derive(Debug, Default)]
struct CommitState {
    committing: bool,
    /// Threads that gave up spinning and sleep until an even or an odd group is done.
    parked: [usize; 2],
    /// Threads that the last commit woke: they are likely to write again soon.
    served: u64,
}

#[derive(Debug)]
struct Ring {
    /// Position of the next record.
    head: u64,
    /// Position of the oldest record that is not yet in the files.
    tail: u64,
    /// Committed records from `tail` to `head`, oldest first.
    unapplied: Vec<Record>,
    /// Group number of the first of them.
    first_group: u64,
    /// All groups before this one are in the files. Later than `first_group` says while a checkpoint is under way.
    left_before: u64,
    /// Ranges whose lines in those records are no longer needed.
    discarded: Discarded,
    /// The newest group that a task waits for; 0 when the thread has seen to it.
    wanted: u64,
    closing: bool,
}

crate::sync::thread_local! {
    /// Engine and group of this thread's latest flush.
    #[allow(clippy::missing_const_for_thread_local, reason = "the deterministic scheduler's macro knows no const")]
    static LAST_FLUSH: Cell<(u64, u64)> = Cell::new((0, 0));
}

fn next_engine_id() -> u64 {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

impl BlockDomain {
    /// Takes over a pool whose journal was replayed: starts a new generation of records.
    ///
    /// # Errors
    /// When the journal is too small or its header cannot be written.
    pub(crate) fn start(files: BlockFiles, options: BlockOptions) -> Result<Self> {
        if files.journal_bytes < JOURNAL_BYTES_MIN {
            return Err(Error::Invalid {
                what: "journal of the pool",
                finding: format!("{} bytes, the block domain needs {JOURNAL_BYTES_MIN}", files.journal_bytes),
                hint: "open the pool in another domain, or copy it into one with a journal (`lodestone pool copy`)",
            });
        }
        // Acknowledgements of this life rely on all bytes in the parts. A life in another domain, or a tool that copied
        // the files, may have left some in the page cache. They must be durable before the first record.
        replay::sync_parts(&files)?;
        let area = files.area();
        let (tail, group) = area.read_header()?.map_or((0, 1), |header| (header.tail, header.group));
        let life = new_life(&files.path)?;
        // Records of earlier lives must be void before this life writes its first one.
        area.write_header(&JournalState { life, tail, group, closed: false })?;
        // A quarter of the ring per group leaves room to write one while others are being applied.
        let lines_max = record::lines_max(area.ring_bytes() / 4);
        let engine = Arc::new(Engine {
            id: next_engine_id(),
            options,
            life,
            groups: Groups::new(group, lines_max),
            durable: AtomicU64::new(group - 1),
            sync_ns: AtomicU64::new(0),
            halted: AtomicBool::new(false),
            halt: OnceLock::new(),
            is_told: std::sync::atomic::AtomicBool::new(false),
            commit: Mutex::default(),
            waiters: [Condvar::new(), Condvar::new()],
            tasks: Tasks::default(),
            arrived: [CachePadded::new(AtomicU64::new(0)), CachePadded::new(AtomicU64::new(0))],
            busy: AtomicBool::new(false),
            ring: Mutex::new(Ring {
                head: tail,
                tail,
                unapplied: Vec::new(),
                first_group: group,
                left_before: group,
                discarded: Discarded::default(),
                wanted: 0,
                closing: false,
            }),
            ring_moved: Condvar::new(),
            checkpoint: Mutex::new(None),
            direct: Mutex::new(DirectFiles::new(&files.direct)),
            settling: Mutex::new(()),
            files,
        });
        let checkpointer = if options.background { Some(start_checkpointer(&engine)?) } else { None };
        Ok(Self { engine, checkpointer: Mutex::new(checkpointer) })
    }

    /// Copies `line` into the open group; commits a group that is full first.
    ///
    /// # Panics
    /// When the line is in the journal: it would be written over records.
    #[inline]
    pub(crate) fn flush(&self, memory: &Memory, line: LineAddr) {
        assert!(!self.engine.files.is_in_journal(line), "{line:?} is in the journal of the pool, which is not memory");
        loop {
            match self.engine.groups.join(memory, line) {
                Joined::Group(group) => {
                    LAST_FLUSH.with(|last| last.set((self.engine.id, group)));
                    return;
                }
                // After a failure or a close nothing can be promised any more; the line stays in memory, and a wait for
                // this group says so. No later group is committed: see `commit`.
                Joined::Full(group) => {
                    if self.engine.wait_for(group).is_err() {
                        self.engine.groups.leave_out(line, group);
                        LAST_FLUSH.with(|last| last.set((self.engine.id, group)));
                        return;
                    }
                }
            }
        }
    }

    /// Puts whole lines, which were stored at `at`, into the open group; commits a group that is full first.
    ///
    /// # Panics
    /// As [`flush`](Self::flush).
    pub(crate) fn append(&self, at: PmAddr, bytes: &[u8]) {
        let engine = &self.engine;
        let mut next = at;
        for run in bytes.chunks(engine.groups.area_bytes_max()) {
            let end = next.plus(to_u64(run.len()) - 1);
            let is_in_journal = [next, end].iter().any(|at| engine.files.is_in_journal(at.line()));
            assert!(!is_in_journal, "the run at {next:?} is in the journal of the pool, which is not memory");
            loop {
                match engine.groups.join_area(next, run) {
                    Joined::Group(group) => {
                        LAST_FLUSH.with(|last| last.set((engine.id, group)));
                        break;
                    }
                    // As in `flush`.
                    Joined::Full(group) => {
                        if engine.wait_for(group).is_err() {
                            engine.groups.leave_out_area(next, to_u64(run.len()), group);
                            LAST_FLUSH.with(|last| last.set((engine.id, group)));
                            return;
                        }
                    }
                }
            }
            next = end.plus(1);
        }
    }

    /// The group of this thread's latest flush.
    pub(crate) fn flushed_here(&self) -> u64 {
        let (id, group) = LAST_FLUSH.with(Cell::get);
        // A thread whose latest flush went to another pool no longer knows its group here: the open one covers it.
        if id == self.engine.id { group } else { self.engine.groups.open_group() }
    }

    /// The newest group that holds one of the lines.
    pub(crate) fn flushed_at(&self, lines: impl Iterator<Item = LineAddr>) -> u64 {
        lines.map(|line| self.engine.groups.last_group(line)).max().unwrap_or(0)
    }

    /// The newest group that has lines.
    pub(crate) fn flushed_anywhere(&self) -> u64 {
        self.engine.groups.newest_used()
    }

    /// The open group.
    #[inline]
    pub(crate) fn flushing_now(&self) -> u64 {
        self.engine.groups.open_group()
    }

    /// Waits until `group` is on disk.
    pub(crate) fn wait_for(&self, group: u64) -> Result<()> {
        self.engine.wait_for(group)
    }

    /// Whether `group` is on disk.
    pub(crate) fn is_on_disk(&self, group: u64) -> bool {
        self.engine.is_on_disk(group)
    }

    /// Whether `group` is on disk; if not, `waker` is woken when it is, or when that failed.
    pub(crate) fn poll(&self, group: u64, waker: &Waker) -> Poll<Result<()>> {
        let engine = &self.engine;
        if engine.is_settled(group) {
            return Poll::Ready(engine.outcome(group));
        }
        engine.tasks.add(group, waker);
        if engine.is_settled(group) {
            return Poll::Ready(engine.outcome(group));
        }
        let mut ring = lock(&engine.ring);
        if !engine.options.background || ring.closing {
            drop(ring);
            return Poll::Ready(engine.wait_for(group));
        }
        ring.wanted = ring.wanted.max(group);
        drop(ring);
        engine.ring_moved.notify_all();
        Poll::Pending
    }

    /// Makes everything durable that was flushed before the call, checkpoints, says in the journal that nothing
    /// follows, and stops. Every later wait is an error.
    ///
    /// # Errors
    /// The first failure of the device in this life. Everything acknowledged before is in the journal then.
    pub(crate) fn close(&self) -> Result<()> {
        let engine = &self.engine;
        let stopped = engine.wait_for(engine.groups.newest_used()).and_then(|()| engine.stop_committing());
        self.stop_checkpointer();
        let closed = stopped.and_then(|()| engine.checkpoint_and_close());
        // Wakes tasks that began to wait meanwhile.
        engine.wake_all();
        closed
    }

    /// Stops without another write, because the files were changed from outside. Every later wait is an error.
    pub(crate) fn abandon(&self) {
        // An error says that it has stopped already.
        let _ = self.engine.stop_committing();
        self.stop_checkpointer();
        self.engine.wake_all();
    }

    fn stop_checkpointer(&self) {
        lock(&self.engine.ring).closing = true;
        self.engine.ring_moved.notify_all();
        let Some(thread) = lock(&self.checkpointer).take() else { return };
        // A waker that the thread itself calls may drop the last handle: a thread cannot wait for its own end. It looks
        // at `closing` when the waker returns, and ends.
        if thread.thread().id() != std::thread::current().id() {
            let _ = thread.join();
        }
    }
}

impl Drop for BlockDomain {
    fn drop(&mut self) {
        self.stop_checkpointer();
    }
}

fn start_checkpointer(engine: &Arc<Engine>) -> Result<std::thread::JoinHandle<()>> {
    let worker = Arc::clone(engine);
    let run = move || {
        if catch_unwind(AssertUnwindSafe(|| worker.run_checkpoints())).is_err() {
            // Nothing commits for waiting tasks any more: they get an error instead of waiting for ever.
            worker.halt(Halt::Poisoned("the checkpoint thread panicked".into()));
            worker.wake_all();
        }
    };
    let spawned = std::thread::Builder::new().name("lodestone-checkpoint".into()).spawn(run);
    spawned.map_err(|source| Error::io(&engine.files.path, "starting a thread", "free memory or threads", source))
}

#[cfg(all(test, not(feature = "shuttle")))]
mod area_tests;
#[cfg(all(test, not(feature = "shuttle")))]
mod fault_tests;
#[cfg(all(test, feature = "shuttle"))]
mod schedules;
#[cfg(all(test, not(feature = "shuttle")))]
mod tests;
