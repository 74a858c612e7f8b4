//! The progress of an index that answers before it is at full speed. The indexes that rebuild a structure in DRAM (both
//! hybrids, the tree of leaves) report it, and benchmarks measure it.

use std::time::{Duration, Instant};

use lodestone_pmem::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use lodestone_pmem::sync::{Condvar, Mutex, lock};
use lodestone_width::{nearest_f64, whole_u64};

/// How far the structure in DRAM of an index has been rebuilt since the index was opened.
///
/// ```
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # use lodestone_store::Store;
/// # let folder = tempfile::tempdir().unwrap();
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let store = Store::create(folder.path().join("a.pool"), &options)?;
/// use lodestone_index::{Durability, Hybrid, OpenIndex, PointIndex};
///
/// let index = Hybrid::<u64>::open_index(&store, "orders", &Default::default(), Durability::Sync)?;
/// index.insert(&7, 700)?;
/// drop(index);
/// let index = Hybrid::<u64>::open_index(&store, "orders", &Default::default(), Durability::Sync)?;
/// assert_eq!(index.get(&7)?, Some(700));
/// let recovery = index.recovery();
/// assert!(!recovery.has_failed && recovery.share_done <= 1.0);
/// # Ok::<(), lodestone_index::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Recovery {
    /// From the call of open until it returned: then point operations were answered.
    pub time_to_points: Duration,
    /// From the call of open until ranges were answered; `None` while they wait.
    pub time_to_ranges: Option<Duration>,
    /// From the call of open until the rebuild was done; `None` while it goes on.
    pub time_to_warm: Option<Duration>,
    /// Keys that the rebuild went through; of [`FpTree`](crate::FpTree), leaves: it reads no keys.
    pub keys_done: u64,
    /// How many it will be: known when it is done, an estimate once a part of it is, else `None`.
    pub keys_total: Option<u64>,
    /// Share of the work that is done, 0 to 1.
    pub share_done: f64,
    /// Whether the rebuild met damage and stopped. Requests that it would have served go to the structure on the
    /// medium, or report the damage.
    pub has_failed: bool,
}

#[derive(Default)]
struct State {
    time_to_points: Option<Duration>,
    time_to_ranges: Option<Duration>,
    time_to_warm: Option<Duration>,
    /// Threads that rebuild.
    running: usize,
    has_failed: bool,
}

/// Counts a rebuild, and lets threads wait for its end.
pub(crate) struct Progress {
    begun: Instant,
    keys: AtomicU64,
    parts_done: AtomicU64,
    parts_total: AtomicU64,
    /// A copy of `state` for threads that only look.
    is_warm: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

/// Held by a thread that rebuilds, so that its end is noticed, even by a panic.
pub(crate) struct Running<'p>(&'p Progress);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).running -= 1;
        self.0.changed.notify_all();
    }
}

impl Progress {
    /// Begins to measure.
    pub(crate) fn new() -> Self {
        let (keys, parts_done, parts_total) = Default::default();
        let state = Mutex::new(State::default());
        let is_warm = AtomicBool::new(false);
        Self { begun: Instant::now(), keys, parts_done, parts_total, is_warm, state, changed: Condvar::new() }
    }

    /// Point operations are answered from now on.
    pub(crate) fn points_ready(&self) {
        lock(&self.state).time_to_points = Some(self.begun.elapsed());
    }

    /// Ranges are answered from now on.
    pub(crate) fn ranges_ready(&self) {
        lock(&self.state).time_to_ranges = Some(self.begun.elapsed());
        self.changed.notify_all();
    }

    /// The rebuild is done.
    pub(crate) fn warm(&self) {
        let mut state = lock(&self.state);
        state.time_to_warm.get_or_insert(self.begun.elapsed());
        state.has_failed = false;
        // Release: a thread that sees it sees the rebuilt structure.
        self.is_warm.store(true, Ordering::Release);
        drop(state);
        self.changed.notify_all();
    }

    /// The rebuild met an error.
    pub(crate) fn fail(&self) {
        lock(&self.state).has_failed = true;
        self.changed.notify_all();
    }

    /// Announces `count` threads that will rebuild.
    pub(crate) fn announce(&self, count: usize) {
        lock(&self.state).running += count;
    }

    /// One of the announced threads begins.
    pub(crate) fn run(&self) -> Running<'_> {
        Running(self)
    }

    /// The work has this many parts.
    pub(crate) fn set_parts(&self, parts: u64) {
        self.parts_total.store(parts, Ordering::Release);
    }

    /// The work begins again, in this many parts.
    pub(crate) fn restart(&self, parts: u64) {
        self.parts_done.store(0, Ordering::Release);
        self.keys.store(0, Ordering::Release);
        self.set_parts(parts);
    }

    /// `count` keys more (leaves, where a rebuild goes by leaves) are done.
    pub(crate) fn add_keys(&self, count: u64) {
        self.keys.fetch_add(count, Ordering::Relaxed);
    }

    /// One part more is done; whether it was the last.
    pub(crate) fn part_done(&self) -> bool {
        self.parts_done.fetch_add(1, Ordering::AcqRel) + 1 == self.parts_total.load(Ordering::Acquire)
    }

    /// Whether the rebuild is done.
    pub(crate) fn is_warm(&self) -> bool {
        self.is_warm.load(Ordering::Acquire)
    }

    /// Waits until the rebuild is done or no thread works on it any more. Returns whether it is done.
    pub(crate) fn wait(&self) -> bool {
        let mut state = lock(&self.state);
        while state.time_to_warm.is_none() && state.running > 0 {
            state = self.changed.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        state.time_to_warm.is_some()
    }

    /// The progress of the rebuild.
    pub(crate) fn recovery(&self) -> Recovery {
        let state = lock(&self.state);
        let keys_done = self.keys.load(Ordering::Relaxed);
        let (done, total) = (self.parts_done.load(Ordering::Relaxed), self.parts_total.load(Ordering::Relaxed));
        let is_done = state.time_to_warm.is_some();
        let share_done = match (is_done, total) {
            (true, _) => 1.0,
            (false, 0) => 0.0,
            (false, total) => nearest_f64(done) / nearest_f64(total),
        };
        let estimate = (done > 0).then(|| whole_u64(nearest_f64(keys_done) / share_done));
        Recovery {
            time_to_points: state.time_to_points.unwrap_or_default(),
            time_to_ranges: state.time_to_ranges,
            time_to_warm: state.time_to_warm,
            keys_done,
            keys_total: if is_done { Some(keys_done) } else { estimate },
            share_done,
            has_failed: state.has_failed,
        }
    }
}
