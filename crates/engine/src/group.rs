//! Group commit by epochs, as Silo and DBX do it: the baseline of paper 3 (section 2.1, figures 2 and 3).
//!
//! 1. A commit locks, reads the *epoch*, validates, and takes a tick. Its entries go to a buffer of its writer, in
//!    DRAM. Then its changes are visible and live. It has no fence.
//! 2. The logger *closes* the epoch at each interval: it raises the epoch, and waits for the commits that may have read
//!    the old one.
//! 3. It collects the buffers of the closed epoch into *one record*, streams that to its log, and fences once.
//! 4. The epoch is durable. All that wait for it are told.
//!
//! A record counts when all of it is there (`lodestone_wal`). So an epoch survives as a whole or not at all, and its
//! record is its own mark. The paper's loggers write a record for each transaction, and a mark after them. In the
//! record an entry names the tick of each transaction, so recovery does the same with both kinds.
//!
//! Invariants:
//! - a commit that builds on another one, or overwrites it, has its epoch or a later one: it reads the epoch when it
//!   has all its locks, and before it validates;
//! - an answer waits for the epochs of the writers whose versions it has seen;
//! - a checkpoint counts when all that its images may have seen is durable ([`Group::flush`]);
//! - each commit is *admitted* before it takes locks: then the log has room for it, and the logger never waits for a
//!   checkpoint, while a checkpoint may wait for the logger.
//!
//! Any thread may close an epoch, one at a time does. Where runs must repeat exactly (traced memory, schedules) there
//! is no logger thread: a thread that waits for an epoch closes it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::PoisonError;
use std::sync::atomic::AtomicBool;
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use lodestone_pmem::sync::atomic::{AtomicU64, Ordering};
use lodestone_pmem::sync::{Condvar, Mutex, lock, spin};
use lodestone_pmem::{Domain, planted};
use lodestone_txn::{RowWord, Tick};
use lodestone_wal::Record;

use crate::commit::Locks;
use crate::core::{Committer, Core};
use crate::delta;
use crate::dual::Plan;
use crate::error::{Error, Result};
use crate::events;
use crate::rounds;
use crate::state::State;
use crate::threads;

/// Bytes of the entry that names the tick of a transaction.
const COMMIT_BYTES: u64 = 24;
/// A shorter wait is no sleep: timers are late by about as much.
const SLEEP_MIN: Duration = Duration::from_micros(200);

/// See the module.
#[derive(Debug)]
pub struct Group {
    interval: Duration,
    /// The open epoch, from 1.
    epoch: CachePadded<AtomicU64>,
    members: Box<[CachePadded<Member>]>,
    /// Whether the open epoch is to be closed: a commit has joined it, or a thread waits for it.
    is_wanted: AtomicBool,
    /// Whether the log got another segment since a commit looked.
    took_segment: AtomicBool,
    /// Bytes that were admitted and are not in the log.
    admitted: Mutex<u64>,
    /// Held while an epoch is closed.
    logger: Mutex<Option<Committer>>,
    /// The last durable epoch, and how those that wait for one are woken.
    durable: AtomicU64,
    waiting: (Mutex<()>, Condvar),
    /// Tasks that wait for one.
    wakers: Mutex<Vec<Waker>>,
    has_thread: AtomicBool,
    /// Whether the thread ends, and how it is woken for that.
    end: (Mutex<bool>, Condvar),
}

/// A writer.
#[derive(Debug, Default)]
struct Member {
    /// Odd while a commit of the writer may join an epoch.
    turns: AtomicU64,
    /// The epoch of its last commit.
    last: AtomicU64,
    /// By epoch: at most the open one and the one before.
    parts: Mutex<Vec<Part>>,
}

/// Commits of a writer in an epoch.
#[derive(Debug)]
struct Part {
    epoch: u64,
    latest: Tick,
    entries: Record,
}

/// Room in the log for a commit. Dropping it gives the room back: the commit has failed.
struct Admission<'g> {
    group: &'g Group,
    bytes: u64,
}

impl Drop for Admission<'_> {
    fn drop(&mut self) {
        *lock(&self.group.admitted) -= self.bytes;
    }
}

/// While there is one, the epoch that was read after it is not collected.
struct Turn<'g>(&'g Member);

impl<'g> Turn<'g> {
    fn begin(member: &'g Member) -> Self {
        // Before the load of the epoch: `close` raises the epoch, then looks here. One of them sees the other.
        member.turns.fetch_add(1, Ordering::SeqCst);
        Self(member)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // Release: the one who sees it sees the entries.
        self.0.turns.fetch_add(1, Ordering::Release);
    }
}

impl Group {
    pub fn new(interval: Duration, writers: u16) -> Self {
        Self {
            interval,
            epoch: CachePadded::new(AtomicU64::new(1)),
            members: (0..writers).map(|_| CachePadded::default()).collect(),
            is_wanted: AtomicBool::new(false),
            took_segment: AtomicBool::new(false),
            admitted: Mutex::new(0),
            logger: Mutex::new(None),
            durable: AtomicU64::new(0),
            waiting: (Mutex::new(()), Condvar::new()),
            wakers: Mutex::default(),
            has_thread: AtomicBool::new(false),
            end: (Mutex::new(false), Condvar::new()),
        }
    }

    /// Takes the log that the epochs go to. Before the first commit.
    pub fn begin(&self, core: &Core) -> Result<()> {
        *lock(&self.logger) = Some(core.take_committer()?);
        Ok(())
    }

    /// Gives the log back. No commit runs any more.
    pub fn end(&self) {
        *lock(&self.logger) = None;
    }

    /// Whether a thread can close the epochs.
    pub fn needs_thread(core: &Core) -> bool {
        !cfg!(feature = "shuttle") && core.memory.domain() != Domain::Traced
    }

    /// Closes epochs until [`stop`](Self::stop) is called. For a thread of its own.
    pub fn run(&self, core: &Core) {
        let _leaves = Leaves(self);
        while !self.rest() {
            if self.is_wanted.load(Ordering::Relaxed) && self.close(core).is_err() {
                // The database is poisoned, and those that wait know.
                break;
            }
            if core.timeline.is_poisoned() {
                break;
            }
        }
    }

    /// Whether [`run`](Self::run) runs.
    pub fn has_thread(&self) -> bool {
        self.has_thread.load(Ordering::SeqCst)
    }

    /// Ends [`run`](Self::run).
    pub fn stop(&self) {
        *lock(&self.end.0) = true;
        self.end.1.notify_all();
    }

    /// Waits for the next end of an epoch. Returns whether the thread is to end.
    fn rest(&self) -> bool {
        if self.interval < SLEEP_MIN {
            let begun = Instant::now();
            while begun.elapsed() < self.interval {
                spin(0);
            }
            return *lock(&self.end.0);
        }
        let is_over = lock(&self.end.0);
        if *is_over {
            return true;
        }
        *self.wait_a_while(is_over)
    }

    #[cfg(not(feature = "shuttle"))]
    fn wait_a_while<'g>(&'g self, guard: std::sync::MutexGuard<'g, bool>) -> std::sync::MutexGuard<'g, bool> {
        self.end.1.wait_timeout(guard, self.interval).unwrap_or_else(PoisonError::into_inner).0
    }

    #[cfg(feature = "shuttle")]
    fn wait_a_while<'g, G>(&'g self, guard: G) -> G {
        guard
    }

    /// The epoch of the last commit of `writer`, or a later one.
    pub fn epoch_of(&self, writer: usize) -> u64 {
        self.members[writer].last.load(Ordering::Acquire)
    }

    /// The open epoch: all commits that have returned are of it or earlier.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::SeqCst)
    }

    /// Asks for the end of the open epoch, also where no commit has joined it: an answer may wait for an epoch that was
    /// open when a row was read as absent.
    fn want(&self) {
        // The line is shared by all writers: it is written once an epoch.
        if !self.is_wanted.load(Ordering::Relaxed) {
            self.is_wanted.store(true, Ordering::Relaxed);
        }
    }

    /// Makes everything durable that any thread may have seen.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn flush(&self, core: &Core) -> Result<()> {
        let epoch = self.epoch();
        while !self.is_durable(epoch) {
            self.close(core)?;
        }
        Ok(())
    }

    /// Whether `epoch` is durable.
    pub fn is_durable(&self, epoch: u64) -> bool {
        self.durable.load(Ordering::Acquire) >= epoch
    }

    /// Waits until `epoch` is durable.
    ///
    /// # Errors
    /// [`Error::Poisoned`]; those of the medium.
    pub fn wait(&self, core: &Core, epoch: u64) -> Result<()> {
        if planted::active("engine-epoch-answers-early") {
            return Ok(());
        }
        if self.is_durable(epoch) {
            return Ok(());
        }
        self.want();
        let mut guard = lock(&self.waiting.0);
        while !self.is_durable(epoch) {
            core.refuse_if_poisoned()?;
            if self.has_thread.load(Ordering::SeqCst) {
                guard = self.waiting.1.wait(guard).unwrap_or_else(PoisonError::into_inner);
            } else {
                drop(guard);
                self.close(core)?;
                guard = lock(&self.waiting.0);
            }
        }
        Ok(())
    }

    /// As [`wait`](Self::wait), for a task: it is woken when the epoch is durable.
    pub fn poll(&self, core: &Core, epoch: u64, task: &mut Context<'_>) -> Poll<Result<()>> {
        if !self.has_thread.load(Ordering::SeqCst) {
            return Poll::Ready(self.wait(core, epoch));
        }
        // First the waker: the thread that makes the epoch durable looks here after that. It is foreign code, so it is
        // cloned without the lock.
        self.add_waker(task.waker().clone());
        if self.durable.load(Ordering::SeqCst) >= epoch {
            return Poll::Ready(Ok(()));
        }
        self.want();
        if let Err(error) = core.refuse_if_poisoned() {
            return Poll::Ready(Err(error));
        }
        // Again: a thread that has ended since may not have seen the waker.
        if self.has_thread() { Poll::Pending } else { Poll::Ready(self.wait(core, epoch)) }
    }

    fn add_waker(&self, waker: Waker) {
        let mut wakers = lock(&self.wakers);
        if !wakers.last().is_some_and(|last| last.will_wake(&waker)) {
            wakers.push(waker);
        }
    }

    /// Wakes all that wait. Not under a lock of the caller: a waker is foreign code, and may drop the last handle.
    fn wake(&self) {
        // A thread that waits has looked with this lock held.
        drop(lock(&self.waiting.0));
        self.waiting.1.notify_all();
        let wakers = std::mem::take(&mut *lock(&self.wakers));
        for waker in wakers {
            // One that panics keeps no other task from its wake-up. The panic hook has reported it.
            let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
        }
    }

    /// Closes the open epoch and makes it durable.
    ///
    /// # Errors
    /// Those of the medium and of the log. The database is poisoned then.
    pub fn close(&self, core: &Core) -> Result<()> {
        // Before the lock, so that the lock is free again when the others are woken.
        let _wakes = Wakes(self);
        let mut logger = lock(&self.logger);
        core.refuse_if_poisoned()?;
        // After the lock, so that the next one finds the database poisoned. It would make a later epoch durable, and
        // this one seem so.
        let mut closing = Closing { core, is_done: false };
        let closed = logger.as_mut().map_or(Ok(()), |logger| self.close_with(core, logger));
        if planted::active("engine-epoch-poisons-late") {
            planted::let_others_in(logger);
        }
        closed?;
        closing.is_done = true;
        Ok(())
    }

    fn close_with(&self, core: &Core, logger: &mut Committer) -> Result<()> {
        // Before the epoch is raised: the thread that then reads the new one sees this, and what it sets stays.
        self.is_wanted.store(false, Ordering::Relaxed);
        let epoch = self.epoch.fetch_add(1, Ordering::SeqCst);
        let record = &mut logger.record;
        record.clear();
        let mut latest = Tick::NEVER;
        for member in &self.members {
            wait_for_turn(member);
            lock(&member.parts).retain(|part| {
                let is_closed = part.epoch <= epoch;
                if is_closed {
                    record.append(&part.entries);
                    latest = latest.max(part.latest);
                }
                !is_closed
            });
        }
        if !record.is_empty() {
            write(core, logger, latest)?;
            self.took_segment.fetch_or(logger.log.took_segment(), Ordering::Relaxed);
            *lock(&self.admitted) -= logger.record.entry_bytes();
        }
        // Before the wakers are looked at.
        self.durable.store(epoch, Ordering::SeqCst);
        Ok(())
    }

    /// Makes sure that the log has room for a commit with so many bytes of entries. No lock is held.
    fn admit(&self, core: &Core, bytes: u64) -> Result<Admission<'_>> {
        let (bytes, limit) = (bytes + COMMIT_BYTES, core.wal.record_bytes_max());
        if bytes > limit {
            return Err(Error::TransactionTooLarge { bytes, limit });
        }
        if self.took_segment.swap(false, Ordering::Relaxed) {
            rounds::ask_if_due(core)?;
        }
        let mut rounds = 0;
        loop {
            let mut admitted = lock(&self.admitted);
            let is_short = *admitted + bytes <= limit;
            if is_short && has_room(core, *admitted + bytes) {
                *admitted += bytes;
                return Ok(Admission { group: self, bytes });
            }
            drop(admitted);
            if !is_short {
                // All that was admitted could be in one epoch, which is one record.
                self.flush(core)?;
            } else if rounds < rounds::ROUNDS_MAX {
                rounds::round(core, &mut core.rounds.pages())?;
                rounds += 1;
            } else {
                return Err(Error::Full { path: core.heap.pool().path().to_owned(), bytes: core.places.log_bytes() });
            }
        }
    }
}

/// The thread that closes the epochs. When it ends, also by a panic, others close them.
struct Leaves<'g>(&'g Group);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.0.has_thread.store(false, Ordering::SeqCst);
        self.0.wake();
    }
}

/// An epoch that is being closed. If that fails, its commits are visible and will not survive.
struct Closing<'c> {
    core: &'c Core,
    is_done: bool,
}

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            self.core.timeline.poison();
            events::poisoned(self.core);
        }
    }
}

/// The end of a close, for better or worse.
struct Wakes<'g>(&'g Group);

impl Drop for Wakes<'_> {
    fn drop(&mut self) {
        self.0.wake();
    }
}

/// Waits for the commit of a writer that may be of the epoch that was closed.
fn wait_for_turn(member: &Member) {
    let turns = member.turns.load(Ordering::SeqCst);
    let is_over = || turns.is_multiple_of(2) || member.turns.load(Ordering::Acquire) != turns;
    let mut turn = 0;
    while !is_over() {
        spin(turn);
        turn += 1;
    }
}

/// Writes the record of an epoch, and makes it durable.
fn write(core: &Core, logger: &mut Committer, latest: Tick) -> Result<()> {
    let Committer { lease, log, record, .. } = logger;
    let room = log.reserve(record).map_err(|error| core.log_error(error))?;
    let tick = latest.max(log.last_tick().next());
    core.timeline.reserve(tick)?;
    // A clean end of the life is after it.
    core.timeline.registry().set_clock(lease, tick);
    core.rounds.cuts.begins(lease.writer(), core.rounds.cuts.epoch(), log.position());
    core.rounds.cuts.ends(lease.writer(), log.append(room, record, tick)?);
    // The one fence of the epoch. No answer may overtake the record.
    core.memory.fence();
    core.memory.durable()?;
    core.rounds.cuts.settles(lease.writer(), log.position());
    Ok(())
}

/// Whether the log has room for so many bytes in records of two epochs.
fn has_room(core: &Core, bytes: u64) -> bool {
    let log = core.wal.stats();
    let usage = core.heap.usage();
    let makes = (log.segments_max - log.segments).min(usage.chunks_free * usage.chunk_bytes / log.segment_bytes);
    let piece_bytes = core.wal.record_bytes_max() / (log.segments_max / 4).max(1);
    bytes / piece_bytes + 2 <= log.segments_free + makes
}

/// Commits the changes in `state`, with all of the group.
///
/// # Errors
/// [`Error::Conflict`] and others. Nothing has changed then.
pub fn commit(core: &Core, group: &Group, state: &mut State, committer: &mut Committer) -> Result<u64> {
    let mut may_delta = core.ways.deltas;
    loop {
        // No table has rows in cells: see `DatabaseOptions::check_with`.
        let bases = delta::encode(core, state, &mut committer.record, may_delta, &mut Plan::new(core, false, false))?;
        let admission = group.admit(core, committer.record.entry_bytes())?;
        let locks = Locks::of(core, state)?;
        if locks.have(&bases) {
            let epoch = join(core, group, state, committer, locks)?;
            // The logger gives the room back.
            std::mem::forget(admission);
            return Ok(epoch);
        }
        may_delta = false;
    }
}

/// Joins the open epoch with all locks held, and makes the changes count.
fn join(core: &Core, group: &Group, state: &mut State, committer: &mut Committer, mut locks: Locks<'_>) -> Result<u64> {
    let Committer { lease, record, .. } = committer;
    let member = &*group.members[lease.writer().index()];
    let turn = Turn::begin(member);
    // With all locks held: a commit that builds on this one has the same epoch, or a later one.
    let epoch = group.epoch();
    let tick = locks.decide(state, lease)?;
    let version = |is_absent| RowWord::new(tick, lease.writer(), is_absent);
    locks.is_recorded = true;
    member.push(epoch, tick, record)?;
    group.want();
    core.timeline.registry().set_clock(lease, tick);
    state.know(version(false));
    locks.settle(version, false);
    drop(turn);
    Ok(epoch)
}

impl Member {
    /// Adds a commit of the writer. Before its changes are visible: a reader waits for the epoch that it finds here.
    fn push(&self, epoch: u64, tick: Tick, record: &Record) -> Result<()> {
        let mut parts = lock(&self.parts);
        if parts.last().is_none_or(|part| part.epoch != epoch) {
            parts.push(Part { epoch, latest: Tick::NEVER, entries: Record::new() });
        }
        if let Some(part) = parts.last_mut() {
            part.entries.join(record, tick)?;
            part.latest = part.latest.max(tick);
        }
        self.last.store(epoch, Ordering::Release);
        Ok(())
    }
}

/// The thread that closes the epochs. Dropping it ends the thread.
#[derive(Debug)]
pub struct LoggerThread {
    core: std::sync::Arc<Core>,
    thread: Option<JoinHandle<()>>,
}

impl LoggerThread {
    /// Begins the thread, if the database has groups. Without it those that wait close the epochs.
    pub fn begin(core: &std::sync::Arc<Core>) -> Option<Self> {
        core.group.as_ref().filter(|_| Group::needs_thread(core))?;
        let shared = core.clone();
        let run = move || shared.group.iter().for_each(|group| group.run(&shared));
        core.group.iter().for_each(|group| group.has_thread.store(true, Ordering::SeqCst));
        let thread = std::thread::Builder::new().name("lodestone-logger".into()).spawn(run).ok();
        if thread.is_none() {
            core.group.iter().for_each(|group| group.has_thread.store(false, Ordering::SeqCst));
        }
        Some(Self { core: core.clone(), thread })
    }
}

impl Drop for LoggerThread {
    fn drop(&mut self) {
        self.core.group.iter().for_each(Group::stop);
        self.thread.take().into_iter().for_each(threads::join);
    }
}
