//! The block domain: power-loss durability on an ordinary file, one device sync per group of fences.
//!
//! The pool is mapped privately, so the file changes only by what this module writes.
//!
//! 1. *Flush* copies the line into the open commit group ([`group`]).
//! 2. *Durable* waits for the caller's group. The first waiter becomes the committer: it closes the group, writes it as
//!    one checksummed record to the journal, syncs, and wakes the group's waiters; whoever waits for the next group then
//!    commits that one. One record is in flight at a time.
//! 3. *Checkpoint*: a thread writes the lines of committed groups to the file, syncs it, and moves the journal's tail.
//!    The same thread commits, every fifth of a second, what was flushed and nobody waits for, and at once what a task
//!    waits for ([`tasks`]). A committer that finds no room in the ring checkpoints itself.
//! 4. *Open* replays the journal ([`journal`]).
//!
//! Invariants:
//! - a group is on disk whole or not at all, and groups become durable in order, so what is on disk is always a state
//!   that the persistence contract allows;
//! - lines reach the file only after their group's record is durable, and leave the journal only after they are durable
//!   in the file;
//! - after a failed write or sync the domain is poisoned: every later `durable` fails, nothing is retried.

mod group;
pub(crate) mod journal;
mod tasks;

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;

use crate::addr::LineAddr;
use crate::counters;
use crate::error::{Error, Result};
use crate::memory::Memory;
use crate::storage::Storage;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::thread;
use crate::sync::{Condvar, Mutex, MutexGuard, lock};
use group::{Groups, Joined};
use journal::{JOURNAL_BYTES_MIN, JournalArea, Record, apply, record_bytes, verify_lines};
use tasks::Tasks;

/// The files of a pool and the place of its journal, as the block domain needs them.
#[derive(Clone, Debug)]
pub(crate) struct BlockFiles {
    pub(crate) path: PathBuf,
    /// One storage per part; the journal lies in part 0.
    pub(crate) parts: Vec<Arc<dyn Storage>>,
    /// Lengths of the parts at open: the journal never names a line behind them.
    pub(crate) part_bytes: Vec<u64>,
    pub(crate) journal_offset: u64,
    pub(crate) journal_bytes: u64,
}

impl BlockFiles {
    fn area(&self) -> JournalArea<'_> {
        JournalArea {
            path: &self.path,
            storage: self.parts[0].as_ref(),
            offset: self.journal_offset,
            bytes: self.journal_bytes,
        }
    }
}

/// What an open found in the journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplayReport {
    /// Commit groups that were not yet in the file.
    pub groups: u64,
    /// Lines in them.
    pub lines: u64,
}

/// Brings the parts up to the last durable group: replays the journal into the files and empties it.
///
/// Done before the parts are mapped, in every domain, so that a pool that was last open in the block domain can be
/// opened in any other. Nothing is written when the journal is refused.
pub(crate) fn replay(files: &BlockFiles) -> Result<ReplayReport> {
    let found = read_journal(files, |_, _| {})?;
    apply_journal(files, found)?;
    Ok(found)
}

/// Second half of [`replay`]: applies what [`read_journal`] found.
pub(crate) fn apply_journal(files: &BlockFiles, found: ReplayReport) -> Result<()> {
    if found.groups == 0 {
        return Ok(());
    }
    let area = files.area();
    let Some(header) = area.start()? else { return Ok(()) };
    sync_journal(files)?;
    let end = area.walk(&header, |record| {
        verify_lines(record, &files.part_bytes, &files.path)?;
        apply(record, &files.parts, &files.path)
    })?;
    if (end.records, end.lines) != (found.groups, found.lines) {
        let source = std::io::Error::other(format!("{} groups at first, {} now", found.groups, end.records));
        let hint = "replace the device, or open again when nobody else writes to the file";
        return Err(Error::io(&files.path, "reading the journal a second time", hint, source));
    }
    // The tail may not pass the records before their lines are durable in the files.
    sync_parts(files)?;
    area.write_header(header.generation, end.position, end.group)
}

/// Empties a damaged journal, which [`replay`] refuses. What stands before the damage is applied first, unless it may be older than what
/// the parts hold; the rest is lost.
pub(crate) fn drop_journal(files: &BlockFiles) -> Result<()> {
    let area = files.area();
    // All of it is verified before the first line is written.
    area.salvage(|record| verify_lines(record, &files.part_bytes, &files.path))?;
    sync_journal(files)?;
    area.salvage(|record| apply(record, &files.parts, &files.path))?;
    // What was applied must be durable before the journal goes.
    sync_parts(files)?;
    area.clear()
}

/// Gives every line that [`drop_journal`] would apply to `visit`; changes nothing.
pub(crate) fn read_salvage(files: &BlockFiles, mut visit: impl FnMut(LineAddr, &[u8])) -> Result<()> {
    let area = files.area();
    area.salvage(|record| verify_lines(record, &files.part_bytes, &files.path))?;
    area.salvage(|record| {
        record.entries().for_each(|(line, bytes)| visit(line, bytes));
        Ok(())
    })
}

/// Damage of the journal, as (offset in part 0, finding); changes nothing.
pub(crate) fn check_journal(files: &BlockFiles) -> Result<Vec<(u64, String)>> {
    if files.journal_bytes < JOURNAL_BYTES_MIN { Ok(Vec::new()) } else { files.area().check() }
}

/// Gives every line of the journal that is not yet in the file to `visit`, oldest group first, and refuses a damaged journal: a
/// read-only open brings its private memory up to date with it, and changes no byte of the file.
pub(crate) fn read_journal(files: &BlockFiles, mut visit: impl FnMut(LineAddr, &[u8])) -> Result<ReplayReport> {
    if files.journal_bytes < JOURNAL_BYTES_MIN {
        return Ok(ReplayReport::default());
    }
    let area = files.area();
    let Some(header) = area.start()? else { return Ok(ReplayReport::default()) };
    let end = area.scan(&header, |record| {
        verify_lines(record, &files.part_bytes, &files.path)?;
        record.entries().for_each(|(line, bytes)| visit(line, bytes));
        Ok(())
    })?;
    Ok(ReplayReport { groups: end.records, lines: end.lines })
}

/// Before a line is applied its record must be durable: what a killed writer wrote last may be in the page cache only, and a power
/// cut while its lines are written would leave some of them without the record that completes the group.
fn sync_journal(files: &BlockFiles) -> Result<()> {
    sync_part(files, &files.parts[0])
}

fn sync_parts(files: &BlockFiles) -> Result<()> {
    files.parts.iter().try_for_each(|part| sync_part(files, part))
}

fn sync_part(files: &BlockFiles, part: &Arc<dyn Storage>) -> Result<()> {
    counters::bump(&counters::local().syncs, 1);
    part.sync().map_err(|source| {
        Error::io(&files.path, "syncing", "check the device; open again to replay the journal", source)
    })
}

/// How a pool's block domain behaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockOptions {
    /// Start the checkpoint thread; without it only a committer that finds the ring full checkpoints (tests).
    pub(crate) background: bool,
    /// Longest time a committer waits for others to join before it closes a group.
    pub(crate) gather: Duration,
    /// Longest time a waiter spins (giving the processor away) before it sleeps; at most two syncs.
    pub(crate) spin: Duration,
    /// Flushed lines that nobody waits for are committed at the latest after about this time.
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
    generation: u64,
    groups: Groups,
    /// Every group up to this number is on disk.
    durable: AtomicU64,
    /// Moving average of the time that writing and syncing a record takes, in nanoseconds.
    sync_ns: AtomicU64,
    poisoned: AtomicBool,
    poison_cause: OnceLock<String>,
    commit: Mutex<CommitState>,
    /// Waiters of even and of odd groups.
    waiters: [Condvar; 2],
    /// Tasks that wait without a thread.
    tasks: Tasks,
    /// Threads that wait for even and for odd groups, the committer among them.
    arrived: [CachePadded<AtomicU64>; 2],
    /// `CommitState::committing` for those who spin.
    busy: AtomicBool,
    ring: Mutex<Ring>,
    /// Work for the checkpointer.
    ring_moved: Condvar,
    /// Held during a checkpoint.
    checkpoint: Mutex<()>,
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
    /// A task waits for the open group.
    wanted: bool,
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

/// A number that no other life of any pool is likely to have.
fn new_generation(path: &Path) -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |t| t.as_nanos() as u64);
    let seed =
        now ^ (u64::from(std::process::id()) << 40) ^ next_engine_id().rotate_left(20) ^ path.as_os_str().len() as u64;
    let mut mixed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (mixed ^ (mixed >> 31)) | 1
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
        // What this life acknowledges relies on all that stands in the parts. A life in another domain, or a tool that copied the files,
        // may have left that in the page cache: it must be durable before the first record.
        sync_parts(&files)?;
        let area = files.area();
        let (tail, group) = area.read_header()?.map_or((0, 1), |header| (header.tail, header.group));
        let generation = new_generation(&files.path);
        // Records of earlier lives must be void before this life writes its first one.
        area.write_header(generation, tail, group)?;
        // A quarter of the ring per group leaves room to write one while others are being applied.
        let lines_max = (area.ring_bytes() / 4 - 64) / 72;
        let engine = Arc::new(Engine {
            id: next_engine_id(),
            options,
            generation,
            groups: Groups::new(group, lines_max),
            durable: AtomicU64::new(group - 1),
            sync_ns: AtomicU64::new(0),
            poisoned: AtomicBool::new(false),
            poison_cause: OnceLock::new(),
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
                wanted: false,
                closing: false,
            }),
            ring_moved: Condvar::new(),
            checkpoint: Mutex::new(()),
            files,
        });
        let checkpointer = if options.background {
            let worker = Arc::clone(&engine);
            let spawned =
                std::thread::Builder::new().name("lodestone-checkpoint".into()).spawn(move || worker.run_checkpoints());
            Some(spawned.map_err(|source| {
                Error::io(&engine.files.path, "starting a thread", "free memory or threads", source)
            })?)
        } else {
            None
        };
        Ok(Self { engine, checkpointer: Mutex::new(checkpointer) })
    }

    /// Copies `line` into the open group; commits a group that is full first.
    #[inline]
    pub(crate) fn flush(&self, memory: &Memory, line: LineAddr) {
        loop {
            match self.engine.groups.join(memory, line) {
                Joined::Group(group) => {
                    LAST_FLUSH.with(|last| last.set((self.engine.id, group)));
                    return;
                }
                // After a failure nothing can be promised any more; the line stays in memory and `durable` says so.
                Joined::Full(group) => {
                    if self.engine.wait_for(group).is_err() {
                        return;
                    }
                }
            }
        }
    }

    /// Waits until the group of this thread's latest flush is on disk.
    pub(crate) fn durable(&self) -> Result<()> {
        self.engine.wait_for(self.flushed_here())
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

    /// Whether `group` is on disk; if not, `waker` is woken when it is, or when that failed.
    pub(crate) fn poll(&self, group: u64, waker: &Waker) -> Poll<Result<()>> {
        let engine = &self.engine;
        if engine.is_settled(group) {
            return Poll::Ready(engine.check_poison());
        }
        engine.tasks.add(group, waker);
        if engine.is_settled(group) {
            return Poll::Ready(engine.check_poison());
        }
        let mut ring = lock(&engine.ring);
        if !engine.options.background || ring.closing {
            drop(ring);
            return Poll::Ready(engine.wait_for(group));
        }
        ring.wanted = true;
        drop(ring);
        engine.ring_moved.notify_all();
        Poll::Pending
    }

    /// Waits until the newest groups that hold the given lines are on disk.
    pub(crate) fn durable_lines(&self, lines: impl Iterator<Item = LineAddr>) -> Result<()> {
        let newest = self.flushed_at(lines);
        if newest <= self.engine.durable.load(Ordering::Acquire) {
            return self.engine.check_poison();
        }
        self.engine.wait_for(newest)
    }

    /// Commits the open group, checkpoints and stops; the memory must not be flushed afterwards.
    pub(crate) fn close(&self) -> Result<()> {
        let committed = self.engine.wait_for(self.engine.groups.open_group());
        lock(&self.engine.ring).closing = true;
        self.engine.ring_moved.notify_all();
        if let Some(thread) = lock(&self.checkpointer).take() {
            let _ = thread.join();
        }
        committed.and_then(|()| self.engine.checkpoint())
    }
}

impl Drop for BlockDomain {
    fn drop(&mut self) {
        lock(&self.engine.ring).closing = true;
        self.engine.ring_moved.notify_all();
        if let Some(thread) = lock(&self.checkpointer).take() {
            let _ = thread.join();
        }
    }
}

fn wait<'m, T>(condition: &Condvar, guard: MutexGuard<'m, T>) -> MutexGuard<'m, T> {
    condition.wait(guard).unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Engine {
    fn check_poison(&self) -> Result<()> {
        if !self.poisoned.load(Ordering::Acquire) {
            return Ok(());
        }
        let cause = self.poison_cause.get().cloned().unwrap_or_default();
        Err(Error::Poisoned { path: self.files.path.clone(), cause })
    }

    fn poison(&self, cause: &str) -> Error {
        // Only the first cause is kept: later failures follow from it.
        let _ = self.poison_cause.set(cause.to_owned());
        self.poisoned.store(true, Ordering::SeqCst);
        self.ring_moved.notify_all();
        self.wake_all();
        Error::Poisoned { path: self.files.path.clone(), cause: cause.to_owned() }
    }

    fn wake_all(&self) {
        // Taking the lock once makes sure that a waiter is either woken or has not looked yet.
        drop(lock(&self.commit));
        self.waiters[0].notify_all();
        self.waiters[1].notify_all();
        self.tasks.wake(u64::MAX);
    }

    /// Whether waiting for `group` is over, for better or worse.
    fn is_settled(&self, group: u64) -> bool {
        self.durable.load(Ordering::Acquire) >= group || self.poisoned.load(Ordering::Acquire)
    }

    /// Waits until `group` is on disk, committing it if nobody else does.
    fn wait_for(&self, group: u64) -> Result<()> {
        if !self.is_settled(group) {
            let side = (group % 2) as usize;
            self.arrived[side].fetch_add(1, Ordering::AcqRel);
            let waited = self.commit_or_wait(group, side);
            self.arrived[side].fetch_sub(1, Ordering::AcqRel);
            waited?;
        }
        self.check_poison()
    }

    /// Waits for the commit under way by spinning, then asleep; commits as soon as nobody else does.
    ///
    /// Spinning threads give the processor away in every turn. They find their group durable without being woken, which
    /// matters: waking a sleeping thread on an idle processor takes about as long as a fast device takes to sync.
    fn commit_or_wait(&self, group: u64, side: usize) -> Result<()> {
        let spin = self.options.spin.min(Duration::from_nanos(self.sync_ns.load(Ordering::Relaxed) * 2));
        let start = Instant::now();
        while !self.is_settled(group) {
            let patient = !spin.is_zero() && start.elapsed() < spin;
            if patient && self.busy.load(Ordering::Acquire) {
                thread::yield_now();
                continue;
            }
            let mut state = lock(&self.commit);
            if !state.committing {
                if !self.is_settled(group) {
                    self.lead(state, side)?;
                }
            } else if !patient && !self.is_settled(group) {
                state.parked[side] += 1;
                state = wait(&self.waiters[side], state);
                state.parked[side] -= 1;
            }
        }
        Ok(())
    }

    /// Commits the open group as the only committer.
    fn lead(&self, mut state: MutexGuard<'_, CommitState>, side: usize) -> Result<()> {
        state.committing = true;
        self.busy.store(true, Ordering::Release);
        let expected = state.served;
        drop(state);
        self.gather(side, expected);
        let result = self.commit_group();
        let mut state = lock(&self.commit);
        state.committing = false;
        self.busy.store(false, Ordering::Release);
        match result {
            Ok(done) => {
                self.hand_over(&mut state, done);
                drop(state);
                self.tasks.wake(done);
                Ok(())
            }
            Err(error) => {
                drop(state);
                Err(self.poison(&error.to_string()))
            }
        }
    }

    /// Wakes the sleepers of `done` and one sleeper of the group after it, which commits next.
    fn hand_over(&self, state: &mut CommitState, done: u64) {
        let side = (done % 2) as usize;
        state.served = self.arrived[side].load(Ordering::Acquire);
        self.durable.store(done, Ordering::Release);
        if state.parked[side] > 0 {
            self.waiters[side].notify_all();
        }
        if state.parked[1 - side] > 0 {
            self.waiters[1 - side].notify_one();
        }
    }

    /// Gives threads that the last commit served a moment to join: a sync for eight costs what a sync for one costs.
    fn gather(&self, side: usize, expected: u64) {
        if expected <= 1 || self.options.gather.is_zero() {
            return;
        }
        let limit = self.options.gather.min(Duration::from_nanos(self.sync_ns.load(Ordering::Relaxed) / 2));
        let start = Instant::now();
        while self.arrived[side].load(Ordering::Acquire) < expected && start.elapsed() < limit {
            thread::yield_now();
        }
    }

    /// Closes the open group, writes its record and syncs. One caller at a time.
    fn commit_group(&self) -> Result<u64> {
        let (mut addrs, mut data) = (Vec::new(), Vec::new());
        let group = self.groups.close(&mut addrs, &mut data);
        let position = self.reserve(record_bytes(addrs.len() as u64))?;
        let record = Record::encode(self.generation, position, group, &addrs, &data);
        let start = Instant::now();
        self.files.area().append(&record, position).map_err(|source| {
            Error::io(
                &self.files.path,
                "writing and syncing the journal",
                "free space or replace the device, then reopen",
                source,
            )
        })?;
        let sync_ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.sync_ns.store((self.sync_ns.load(Ordering::Relaxed) * 7 + sync_ns) / 8, Ordering::Relaxed);
        let mut ring = lock(&self.ring);
        ring.head = position + record.len();
        ring.unapplied.push(record);
        let half_full = ring.head - ring.tail > self.files.area().ring_bytes() / 2;
        drop(ring);
        if half_full {
            self.ring_moved.notify_all();
        }
        Ok(group)
    }

    /// Makes room for `bytes` in the ring and gives the position to write at.
    ///
    /// Checkpoints itself, whoever else does: the checkpointer may be waiting for this very commit.
    fn reserve(&self, bytes: u64) -> Result<u64> {
        let ring_bytes = self.files.area().ring_bytes();
        assert!(bytes <= ring_bytes / 2, "groups are bounded by a quarter of the ring, rounded up to units");
        let mut ring = lock(&self.ring);
        while ring.head + bytes - ring.tail > ring_bytes {
            drop(ring);
            self.checkpoint()?;
            ring = lock(&self.ring);
        }
        Ok(ring.head)
    }

    /// The background thread: checkpoints whenever half of the ring is used, and commits what nobody waits for.
    fn run_checkpoints(&self) {
        let half = self.files.area().ring_bytes() / 2;
        loop {
            let mut ring = lock(&self.ring);
            if !ring.closing && !ring.wanted && ring.head - ring.tail <= half {
                let woken = self.ring_moved.wait_timeout(ring, self.options.commit_interval);
                ring = woken.unwrap_or_else(std::sync::PoisonError::into_inner).0;
            }
            if ring.closing || self.poisoned.load(Ordering::Acquire) {
                return;
            }
            let crowded = ring.head - ring.tail > half;
            let wanted = std::mem::take(&mut ring.wanted);
            drop(ring);
            let mut worked = if crowded { self.checkpoint() } else { Ok(()) };
            if wanted || !crowded {
                worked = worked.and_then(|()| self.commit_idle_group());
            }
            if let Err(error) = worked {
                self.poison(&error.to_string());
                return;
            }
        }
    }

    /// Commits lines that were flushed but that nobody asked to be durable: a crash loses them for a bounded time only.
    fn commit_idle_group(&self) -> Result<()> {
        if self.groups.is_dirty() { self.wait_for(self.groups.open_group()) } else { Ok(()) }
    }

    /// Writes the lines of all committed groups to the files, syncs them and frees their part of the ring.
    fn checkpoint(&self) -> Result<()> {
        let _one_at_a_time = lock(&self.checkpoint);
        self.check_poison()?;
        let (records, end, end_group) = {
            let mut ring = lock(&self.ring);
            let records = std::mem::take(&mut ring.unapplied);
            ring.first_group += records.len() as u64;
            (records, ring.head, ring.first_group)
        };
        if records.is_empty() {
            return Ok(());
        }
        self.apply_newest(&records)?;
        sync_parts(&self.files)?;
        // The lines are durable in the files; only now may their records be overwritten.
        self.files.area().write_header(self.generation, end, end_group)?;
        lock(&self.ring).tail = end;
        Ok(())
    }

    /// Writes the newest copy of each line, neighbours in one write.
    fn apply_newest(&self, records: &[Record]) -> Result<()> {
        let mut lines: Vec<(LineAddr, usize, &[u8])> = Vec::new();
        for (age, record) in records.iter().enumerate() {
            lines.extend(record.entries().map(|(line, bytes)| (line, age, bytes)));
        }
        // Newest copy first within a line; the rest is dropped.
        lines.sort_unstable_by_key(|(line, age, _)| (*line, std::cmp::Reverse(*age)));
        lines.dedup_by_key(|(line, _, _)| *line);
        let mut run = Vec::new();
        let mut start: Option<LineAddr> = None;
        let mut next: Option<LineAddr> = None;
        for (line, _, bytes) in lines {
            if next != Some(line) || run.len() >= 1 << 20 {
                self.write_run(start, &run)?;
                run.clear();
                start = Some(line);
            }
            run.extend_from_slice(bytes);
            next = Some(line.next());
        }
        self.write_run(start, &run)
    }

    fn write_run(&self, start: Option<LineAddr>, bytes: &[u8]) -> Result<()> {
        let Some(start) = start.map(LineAddr::start) else { return Ok(()) };
        let part = &self.files.parts[usize::from(start.part())];
        crate::storage::write_all(part.as_ref(), bytes, start.offset(), false).map_err(|source| {
            Error::io(
                &self.files.path,
                "writing the pool file",
                "free space or replace the device, then reopen",
                source,
            )
        })
    }
}

#[cfg(all(test, feature = "shuttle"))]
mod schedules;
#[cfg(all(test, not(feature = "shuttle")))]
mod tests;
