//! The model: a profile that charges time and counts blocks.
//!
//! 1. *Load*: lines in the thread's cache are free. A run of missing lines is fetched. Blocks in the medium's buffers
//!    cost the buffered latency. Other blocks cost the latency by size, which is the sequential one if the run
//!    continues where the last one ended. Each new block also takes its time from the part's bandwidth, and waits where
//!    that is used up.
//! 2. *Store*: a missing line is fetched as for a load, but the thread goes on. The next fence waits for the line.
//! 3. *Flush, stream*: the line goes to the medium's write buffer, where neighbours join. The oldest block there is
//!    written when room is needed, after a read if lines are missing. The thread goes on.
//! 4. *Fence*: waits until stores have their lines and everything sent since the last fence has passed. That means the
//!    write latency by size from its start, and room in the medium's bandwidth.
//! 5. A dirty line that has to leave the cache is sent like a flushed one, but no thread waits for it.
//!
//! Other threads at work on the part stretch latencies and shrink ceilings (`[read]`, `[write]`, `[mixed]`). Another
//! node multiplies both (`[remote]`). A thread does not slow itself down.
//!
//! **Time.** *Virtual*: each thread has a clock that only charges advance. *Spinning*: a charge ends at a moment of the
//! wall clock. Real work of the thread between a flush and its fence overlaps with the write-back, as on the medium.
//! The model's own computation costs time that the medium would not take. Each hook's time beyond its charge is
//! therefore kept as a credit (at most `CREDIT_PS_MAX`), which shortens the next charges. So a thread's wall time is
//! its own work plus the larger of charges and hooks. The time of the real access afterwards is not subtracted, because
//! the model cannot tell whether it missed the real cache. Emulated figures are therefore upper bounds, too high by at
//! most the cost of the memory in use.
//!
//! **Threads.** [`Model::as_thread`] and [`Model::simulate`] run many simulated threads on one. The thread with the
//! smallest clock takes the next step, so the result is exact and repeatable. With real threads in virtual time, each
//! thread's own charges are exact. Their clocks drift apart, however, so contention between them is approximate (see
//! `bandwidth.rs`).
//!
//! Invariants:
//! - a thread's clock never goes back;
//! - charges depend on addresses, clocks and counts only, never on bytes or (in virtual time) on the wall clock;
//! - locks are taken in the order thread, part, and while spinning no lock is held except the thread's own.

mod bandwidth;
mod buffer;
mod cache;
mod clock;
mod counts;
mod fence;
mod fetch;
mod part;
mod prices;
mod send;
mod simulate;
mod thread;
mod threads;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lodestone_pmem::{LineAddr, Medium, PmAddr, Topology};

pub use counts::MediaCounts;
pub use simulate::{SimulatedRun, SimulatedThread};

use crate::profile::MediaProfile;
use part::Part;
use prices::{Direction, picoseconds};
use thread::ThreadState;
use threads::Threads;

/// How charges are paid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeMode {
    /// By spinning until the wall clock has caught up: real programs run at the medium's speed.
    Spinning,
    /// On a clock per thread: nothing waits, and single-threaded figures are exact.
    Virtual,
}

impl std::fmt::Display for TimeMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Spinning => "spinning",
            Self::Virtual => "virtual time",
        })
    }
}

/// Limit of the time of hooks that later charges may make up for: some tens of accesses. A longer excess means that the
/// thread was descheduled in a hook, which is not a cost of the model.
const CREDIT_PS_MAX: u64 = 5_000_000;

/// Largest number of parts of a pool.
const PARTS_MAX: usize = 16;

/// A medium that charges the times of a profile. The [module](self) says which effects are modelled.
#[derive(Debug)]
pub struct Model {
    /// Tells the states of several models in one thread apart.
    id: u64,
    profile: MediaProfile,
    mode: TimeMode,
    topology: Topology,
    /// Node of each part; as many as a pool may have.
    part_nodes: [AtomicUsize; PARTS_MAX],
    reads: Direction,
    writes: Direction,
    parts: Box<[Mutex<Part>]>,
    threads: Mutex<Threads>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A thread that panicked inside left only numbers, not broken invariants.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Model {
    /// A model of `profile` for memory whose part `i` is on node `part_nodes[i]` of `topology`. Further parts are on
    /// the node of the last one, or on node 0 if `part_nodes` is empty.
    #[must_use]
    pub fn new(profile: MediaProfile, mode: TimeMode, topology: &Topology, part_nodes: &[usize]) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        if mode == TimeMode::Spinning {
            // Calibrate now, not during the first access.
            clock::wall_ps();
        }
        let model = Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            mode,
            topology: topology.clone(),
            reads: Direction::of_reads(&profile),
            writes: Direction::of_writes(&profile),
            parts: (0..PARTS_MAX).map(|_| Mutex::new(Part::new(&profile))).collect(),
            part_nodes: Default::default(),
            profile,
            threads: Mutex::default(),
        };
        model.place_parts(part_nodes);
        Arc::new(model)
    }

    /// Sets the node of each part, as in [`new`](Self::new). A pool knows the nodes once it is open.
    pub fn place_parts(&self, nodes: &[usize]) {
        for (index, place) in self.part_nodes.iter().enumerate() {
            let node = nodes.get(index).or(nodes.last()).copied().unwrap_or(0);
            place.store(node, Ordering::Relaxed);
        }
    }

    /// The profile.
    #[must_use]
    pub fn profile(&self) -> &MediaProfile {
        &self.profile
    }

    /// How charges are paid.
    #[must_use]
    pub fn mode(&self) -> TimeMode {
        self.mode
    }

    /// The clock of the calling (simulated) thread, ns. Virtual: its virtual time, which for a new thread starts at the
    /// latest time that any thread has reached. Spinning: the sum of its charges.
    #[must_use]
    pub fn thread_ns(&self) -> u64 {
        self.with_thread(|thread| match self.mode {
            TimeMode::Virtual => thread.clock_ps / 1000,
            TimeMode::Spinning => thread.charged_ps / 1000,
        })
    }

    /// Charges the calling thread `ns` for its own work, such as computing or sending a message.
    pub fn charge_ns(&self, ns: u64) {
        self.with_thread(|thread| {
            let entry_ps = self.now_ps(thread);
            self.charge_until(thread, entry_ps, entry_ps + ns * 1000);
        });
    }

    /// Advances the calling thread's virtual clock to `ns` if it is earlier: the thread waited for another one. In
    /// spinning mode this does nothing, because real waiting takes real time.
    pub fn wait_until_ns(&self, ns: u64) {
        if self.mode == TimeMode::Virtual {
            self.with_thread(|thread| thread.clock_ps = thread.clock_ps.max(ns * 1000));
        }
    }

    /// Sets the node on which the calling (simulated) thread runs. The default is the node on which the thread was
    /// running when it first touched this medium.
    pub fn set_thread_node(&self, node: usize) {
        self.with_thread(|thread| thread.node = node);
    }

    /// Counts of all threads that ever used this model.
    #[must_use]
    pub fn counts(&self) -> MediaCounts {
        lock(&self.threads).counts()
    }

    /// Counts of the calling (simulated) thread.
    #[must_use]
    pub fn thread_counts(&self) -> MediaCounts {
        self.with_thread(|thread| thread.snapshot())
    }

    /// Writes the blocks that wait in the medium's write buffers, for exact counts. No thread is charged; the calling
    /// thread counts the blocks. Dirty lines in caches stay there.
    pub fn drain(&self) {
        self.with_thread(|thread| {
            for part in &self.parts {
                for written in lock(part).drain() {
                    thread.counts.blocks_written += 1;
                    thread.counts.blocks_read += u64::from(!written.whole);
                    thread.counts.blocks_modified += u64::from(!written.whole);
                }
            }
        });
    }

    /// Blocks that wait in the medium's write buffers.
    #[must_use]
    pub fn waiting_blocks(&self) -> usize {
        self.parts.iter().map(|part| lock(part).waiting_blocks()).sum()
    }

    /// Empties the calling thread's cache (dirty lines are dropped, not sent) and the medium's read buffers, so that
    /// the next reads are cold.
    pub fn cool(&self) {
        self.with_thread(|thread| thread.cache.clear());
        for part in &self.parts {
            lock(part).cool();
        }
    }

    fn now_ps(&self, thread: &ThreadState) -> u64 {
        match self.mode {
            TimeMode::Virtual => thread.clock_ps,
            TimeMode::Spinning => clock::wall_ps(),
        }
    }

    /// Charges the time from `entry_ps` to `until_ps`.
    fn charge_until(&self, thread: &mut ThreadState, entry_ps: u64, until_ps: u64) {
        let Some(charge_ps) = until_ps.checked_sub(entry_ps).filter(|charge_ps| *charge_ps > 0) else { return };
        thread.charged_ps += charge_ps;
        match self.mode {
            TimeMode::Virtual => thread.clock_ps = until_ps,
            TimeMode::Spinning => {
                let paid_ps = thread.credit_ps.min(charge_ps);
                thread.credit_ps -= paid_ps;
                thread.hook_paid_ps += charge_ps - paid_ps;
                clock::spin_until(until_ps - paid_ps);
            }
        }
    }

    /// Runs `action` for an access of the calling thread, and keeps the time it took beyond its charge as a credit.
    fn hook(&self, action: impl FnOnce(&mut ThreadState)) {
        self.with_thread(|thread| {
            if self.mode == TimeMode::Virtual {
                return action(thread);
            }
            let entry_ps = clock::wall_ps();
            thread.hook_paid_ps = 0;
            action(thread);
            let spent_ps = clock::wall_ps().saturating_sub(entry_ps);
            let beyond_ps = spent_ps.saturating_sub(thread.hook_paid_ps);
            thread.credit_ps = (thread.credit_ps + beyond_ps).min(CREDIT_PS_MAX);
        });
    }

    /// Index of the part that contains `at`.
    fn part_index(&self, at: PmAddr) -> usize {
        usize::from(at.part()).min(self.parts.len() - 1)
    }

    fn is_remote(&self, thread: &ThreadState, part: usize) -> bool {
        self.part_nodes[part].load(Ordering::Relaxed) != thread.node
    }
}

impl Medium for Model {
    fn label(&self) -> String {
        format!("{}, {}", self.profile.name, self.mode)
    }

    fn read(&self, at: PmAddr, len: u64) {
        self.hook(|thread| self.load(thread, at, len));
    }

    fn write(&self, at: PmAddr, len: u64) {
        self.hook(|thread| self.store(thread, at, len));
    }

    fn flush(&self, line: LineAddr) {
        self.hook(|thread| self.flush_line(thread, line));
    }

    fn stream(&self, at: PmAddr, len: u64) {
        self.hook(|thread| self.stream_bytes(thread, at, len));
    }

    fn fence(&self) {
        self.hook(|thread| self.wait_for_writes(thread));
    }
}

#[cfg(test)]
mod tests;
