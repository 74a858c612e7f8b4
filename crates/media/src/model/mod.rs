//! The model: a profile that charges time and counts blocks.
//!
//! 1. *Load*: lines in the thread's cache are free. A run of missing lines is fetched: blocks in the medium's buffers
//!    cost the buffered latency; else the latency by size, sequential when the run goes on where the last one ended.
//!    Each new block also takes its time from the part's bandwidth and waits where that is used up.
//! 2. *Store*: a missing line is fetched as for a load, but the thread goes on; the next fence waits for it.
//! 3. *Flush, stream*: the line goes to the medium's write buffer, where neighbours join; the oldest block there is
//!    written when room is needed, after a read when lines are missing. The thread goes on.
//! 4. *Fence*: waits until stores have their lines and everything sent since the last fence has passed: the write
//!    latency by size from its start, and room in the medium's bandwidth.
//! 5. A dirty line that has to leave the cache is sent like a flushed one, and nobody waits for it.
//!
//! Other threads at work on the part stretch latencies and shrink ceilings (`[read]`, `[write]`, `[mixed]`), another
//! node multiplies both (`[remote]`). A thread is not in its own way.
//!
//! **Time.** *Virtual*: each thread has a clock that only charges advance. *Spinning*: a charge ends at a moment of the
//! wall clock; what the thread really does between a flush and its fence overlaps with the write-back, as on the
//! medium. The model's own computation is time that the medium does not take: each hook's time beyond its charge is
//! kept as a credit (at most [`CREDIT_PS_MAX`]), and the next charges are shorter by it. So a thread's wall time is its
//! own work plus the larger of charges and hooks. What the real access takes afterwards is not subtracted, because
//! nobody knows whether it missed the real cache: emulated figures are upper bounds by at most the cost of the memory
//! in use.
//!
//! **Threads.** [`Model::as_thread`] and [`Model::simulate`] run many simulated threads on one: the one with the
//! smallest clock takes the next step, so the result is exact and repeatable. With real threads in virtual time, each
//! thread's own charges are exact but clocks drift apart, so who was in whose way is approximate (see [`bandwidth`]).
//!
//! Invariants: a thread's clock never goes back; charges depend on addresses, clocks and counts only, never on bytes or
//! on the wall clock (virtual); locks are taken in the order thread, part, and no lock is held while spinning but the
//! thread's own.

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
    /// By spinning until the wall clock has caught up: real programs feel the medium.
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

/// Time of hooks that later charges may make up for: some tens of accesses. A longer debt (the thread was descheduled
/// in a hook) is no cost of the model.
const CREDIT_PS_MAX: u64 = 5_000_000;

/// Most parts that a pool has.
const PARTS_MAX: usize = 16;

/// A medium that charges what a profile says. See the [module](self) for what is and is not modelled.
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
    // A thread that panicked inside left numbers, not broken invariants.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Model {
    /// A model of `profile` for memory whose part `i` lies on node `part_nodes[i]` of `topology`; parts behind the last
    /// lie where it lies, all on node 0 without any.
    #[must_use]
    pub fn new(profile: MediaProfile, mode: TimeMode, topology: &Topology, part_nodes: &[usize]) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        if mode == TimeMode::Spinning {
            // Calibrate now, not in the first access.
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

    /// Says on which node each part lies, as in [`new`](Self::new): what a pool knows once it is open.
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

    /// The clock of the calling (simulated) thread, ns. Virtual: its virtual time; a new thread starts at the latest
    /// time that any thread has reached. Spinning: the sum of its charges.
    #[must_use]
    pub fn thread_ns(&self) -> u64 {
        self.with_thread(|thread| match self.mode {
            TimeMode::Virtual => thread.clock_ps / 1000,
            TimeMode::Spinning => thread.charged_ps / 1000,
        })
    }

    /// Charges the calling thread `ns` for work of its own, such as computing or sending a message.
    pub fn charge_ns(&self, ns: u64) {
        self.with_thread(|thread| {
            let entry_ps = self.now_ps(thread);
            self.charge_until(thread, entry_ps, entry_ps + ns * 1000);
        });
    }

    /// Advances the calling thread's virtual clock to `ns` if it is behind: it waited for another thread. In spinning
    /// mode real waiting takes real time, and nothing happens.
    pub fn wait_until_ns(&self, ns: u64) {
        if self.mode == TimeMode::Virtual {
            self.with_thread(|thread| thread.clock_ps = thread.clock_ps.max(ns * 1000));
        }
    }

    /// Says that the calling (simulated) thread runs on node `node`. Without it, it is the node on which the thread was
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

    /// Writes the blocks that wait in the medium's write buffers, for exact counts. Nobody is charged; the calling
    /// thread counts them. Dirty lines in caches stay there.
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

    /// Empties the calling thread's cache (dirty lines are dropped, not sent) and the medium's read buffers: the next
    /// reads are cold.
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

    /// Runs `action` for an access of the calling thread; keeps what it took beyond its charge as a credit.
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

    /// Index of the part that `at` lies in.
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
