//! A model of a processor's hardware transactions: which ones would it abort, and why.
//!
//! Such a transaction lives in the caches. Lines that it stores to must stay in the first level until it ends, and
//! lines that it loads in the second one. Each level is set-associative: a set has room for as many lines as it has
//! ways, so few lines can be too many. A line that is flushed, or stored around the cache, ends the transaction, and so
//! does an interrupt.
//!
//! [`Htm`] is told the words of DRAM as a [`HardwareTransactions`], and the accesses to a pool as a [`Medium`]. It
//! passes the latter on to the medium that it is made over, whose virtual time says how long a transaction takes.
//!
//! Assumptions, which [`HtmProfile`] states:
//! - interrupts come at random, with a mean time between them. A transaction that takes longer meets more of them;
//! - the caches hold nothing else, and lines map to sets by their addresses;
//! - conflicts are found by the code under test, which takes locks; the model adds a chance of conflicts on request.
//!
//! Source: paper 3, section 2.3 and figure 4; design of the caches: Intel's manual of optimization, volume 1.

mod sweep;

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use lodestone_pmem::htm::{Abort, HardwareTransactions};
use lodestone_pmem::{LINE_BYTES, LineAddr, Medium, PmAddr, lines_of};

use crate::model::Model;

pub use sweep::{Access, Order, Point, Shape, Sweep};

/// A cache: so many bytes in sets of so many lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheShape {
    /// Bytes.
    pub bytes: u64,
    /// Lines of a set.
    pub ways: u64,
}

impl CacheShape {
    fn sets(self) -> u64 {
        (self.bytes / LINE_BYTES / self.ways.max(1)).max(1)
    }
}

/// The parameters of a processor's transactions.
///
/// ```
/// use lodestone_media::{CacheShape, HtmProfile};
/// let small = HtmProfile { writes: CacheShape { bytes: 4096, ways: 4 }, ..HtmProfile::default() };
/// assert_eq!((small.writes.bytes, small.reads.ways), (4096, 16));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HtmProfile {
    /// The cache that holds the lines that were stored to.
    pub writes: CacheShape,
    /// The cache that holds the lines that were loaded.
    pub reads: CacheShape,
    /// Mean time between interrupts, ns; 0: there are none.
    pub interrupt_ns: u64,
    /// The chance that a transaction meets a conflict that the code under test does not make, 0 to 1.
    pub conflict_chance: f64,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl Default for HtmProfile {
    /// The first two levels of an Intel Xeon Gold 5215 (paper 3's processor: 32 KiB of 8 ways, 1 MiB of 16), and an
    /// interrupt each millisecond, which is an assumption.
    fn default() -> Self {
        Self {
            writes: CacheShape { bytes: 32 << 10, ways: 8 },
            reads: CacheShape { bytes: 1 << 20, ways: 16 },
            interrupt_ns: 1_000_000,
            conflict_chance: 0.0,
            seed: 1,
        }
    }
}

/// How many transactions a model let pass, and how many it aborted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HtmCounts {
    /// Ended well.
    pub ended: u64,
    /// By the order of [`Abort::ALL`].
    pub aborted: [u64; Abort::ALL.len()],
}

impl HtmCounts {
    /// Those that were aborted for this reason.
    #[must_use]
    pub fn aborted_for(&self, reason: Abort) -> u64 {
        Abort::ALL.iter().position(|other| *other == reason).map_or(0, |at| self.aborted[at])
    }

    /// The part of all that was aborted, 0 to 1.
    #[must_use]
    pub fn abort_rate(&self) -> f64 {
        let aborted: u64 = self.aborted.iter().sum();
        aborted as f64 / (aborted + self.ended).max(1) as f64
    }
}

/// See the [module](self).
///
/// ```
/// use lodestone_media::{Htm, HtmProfile};
/// use lodestone_pmem::htm::{Abort, HardwareTransactions};
/// let htm = Htm::new(HtmProfile { interrupt_ns: 0, ..HtmProfile::default() }, None);
/// htm.begin()?;
/// // Nine lines of one set of eight ways.
/// (0..9).for_each(|number| htm.writes(number * 4096));
/// assert_eq!(htm.end(), Err(Abort::Capacity));
/// # Ok::<(), Abort>(())
/// ```
#[derive(Debug)]
pub struct Htm {
    /// Tells the transactions of several models in one thread apart.
    id: u64,
    profile: HtmProfile,
    below: Option<Arc<Model>>,
    begun: AtomicU64,
    /// Threads count here at the end of a transaction. Measuring code: a lock does not matter.
    counts: Mutex<HtmCounts>,
}

/// The transaction of a thread, and its buffers between transactions.
#[derive(Debug)]
struct Running {
    is_active: bool,
    begun_ns: u64,
    /// The time until the next interrupt.
    interrupt_ns: u64,
    writes: Sets,
    reads: Sets,
    aborted: Option<Abort>,
}

/// The lines of a transaction in one cache, by set.
#[derive(Debug)]
struct Sets {
    ways: usize,
    sets: Vec<Vec<u64>>,
    /// Those with lines.
    used: Vec<usize>,
}

impl Sets {
    fn new(shape: CacheShape) -> Self {
        let sets = usize::try_from(shape.sets()).unwrap_or(1);
        Self { ways: usize::try_from(shape.ways).unwrap_or(1), sets: vec![Vec::new(); sets], used: Vec::new() }
    }

    /// Adds a line. Returns whether its set has room.
    fn add(&mut self, line: u64) -> bool {
        let number = line % u64::try_from(self.sets.len()).unwrap_or(1);
        let number = usize::try_from(number).unwrap_or_default();
        let set = &mut self.sets[number];
        if set.is_empty() {
            self.used.push(number);
        }
        if !set.contains(&line) {
            set.push(line);
        }
        set.len() <= self.ways
    }

    fn clear(&mut self) {
        self.used.drain(..).for_each(|number| self.sets[number].clear());
    }
}

thread_local! {
    /// The transactions of this thread, by model.
    static RUNNING: RefCell<HashMap<u64, Running>> = RefCell::default();
}

impl Htm {
    /// A model over a medium, which is told each access to the pool, and whose clock is used. Without one it is the
    /// clock of the machine.
    #[must_use]
    pub fn new(profile: HtmProfile, below: Option<Arc<Model>>) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self { id, profile, below, begun: AtomicU64::new(0), counts: Mutex::default() })
    }

    /// The counts of all threads since the model was made.
    #[must_use]
    pub fn counts(&self) -> HtmCounts {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the transaction of this thread is lost, so that a processor would have left it.
    #[must_use]
    pub fn is_aborted(&self) -> bool {
        let now_ns = self.now_ns();
        self.with(|running| running.aborted.is_some() || running.is_interrupted(now_ns)).unwrap_or(false)
    }

    fn now_ns(&self) -> u64 {
        static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        match &self.below {
            Some(model) => model.thread_ns(),
            None => START.get_or_init(Instant::now).elapsed().as_nanos().try_into().unwrap_or(u64::MAX),
        }
    }

    /// Calls `act` with the transaction of this thread, if there is one.
    fn with<R>(&self, act: impl FnOnce(&mut Running) -> R) -> Option<R> {
        RUNNING.with_borrow_mut(|all| all.get_mut(&self.id).filter(|running| running.is_active).map(act))
    }

    fn idle(&self) -> Running {
        let (writes, reads) = (Sets::new(self.profile.writes), Sets::new(self.profile.reads));
        Running { is_active: false, begun_ns: 0, interrupt_ns: 0, writes, reads, aborted: None }
    }

    fn finish(&self, aborted: Option<Abort>) -> Result<(), Abort> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        match aborted {
            None => {
                counts.ended += 1;
                Ok(())
            }
            Some(reason) => {
                let at = Abort::ALL.iter().position(|other| *other == reason).unwrap_or_default();
                counts.aborted[at] += 1;
                Err(reason)
            }
        }
    }

    /// Two random numbers from 0 to 1 for transaction `number`.
    fn chances(&self, number: u64) -> [f64; 2] {
        [0, 1].map(|stream: u64| {
            let mixed = splitmix(self.profile.seed ^ splitmix(number.wrapping_mul(2).wrapping_add(stream)));
            (mixed >> 11) as f64 / (1_u64 << 53) as f64
        })
    }

    fn stores(&self, line: u64) {
        self.with(|running| {
            let fits = running.writes.add(line);
            running.lose(Abort::Capacity, !fits);
        });
    }

    fn loads(&self, line: u64) {
        self.with(|running| {
            let fits = running.reads.add(line);
            running.lose(Abort::Capacity, !fits);
        });
    }

    fn forbidden(&self) {
        self.with(|running| running.lose(Abort::Flush, true));
    }
}

impl Running {
    fn is_interrupted(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.begun_ns) >= self.interrupt_ns
    }

    /// Aborts if `is_lost`. The first reason counts.
    fn lose(&mut self, reason: Abort, is_lost: bool) {
        if is_lost {
            self.aborted.get_or_insert(reason);
        }
    }
}

/// The mixing step of SplitMix64: every bit of the input changes half of the output.
fn splitmix(seed: u64) -> u64 {
    let mut mixed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

impl HardwareTransactions for Htm {
    fn label(&self) -> String {
        let HtmProfile { writes, reads, interrupt_ns, conflict_chance, .. } = self.profile;
        format!(
            "a model: stores in {} KiB of {} ways, loads in {} KiB of {} ways, an interrupt each {interrupt_ns} ns, \
             other conflicts {conflict_chance}",
            writes.bytes >> 10,
            writes.ways,
            reads.bytes >> 10,
            reads.ways,
        )
    }

    fn begin(&self) -> Result<(), Abort> {
        let [conflict, interrupt] = self.chances(self.begun.fetch_add(1, Ordering::Relaxed));
        let begun_ns = self.now_ns();
        // Exponential times between interrupts: none is due at any moment rather than at another.
        let until = -(1.0 - interrupt).ln() * self.profile.interrupt_ns as f64;
        let interrupt_ns = if self.profile.interrupt_ns == 0 { u64::MAX } else { until as u64 };
        let aborted = (conflict < self.profile.conflict_chance).then_some(Abort::Conflict);
        RUNNING.with_borrow_mut(|all| {
            let running = all.entry(self.id).or_insert_with(|| self.idle());
            (running.is_active, running.begun_ns, running.interrupt_ns) = (true, begun_ns, interrupt_ns);
            running.aborted = aborted;
            running.writes.clear();
            running.reads.clear();
        });
        Ok(())
    }

    fn reads(&self, address: usize) {
        self.loads(line_of(address));
    }

    fn writes(&self, address: usize) {
        self.stores(line_of(address));
    }

    fn abort(&self, reason: Abort) {
        if self.with(|running| running.is_active = false).is_some() {
            let _ = self.finish(Some(reason));
        }
    }

    fn end(&self) -> Result<(), Abort> {
        let now_ns = self.now_ns();
        let outcome = self.with(|running| {
            running.is_active = false;
            running.aborted.or(running.is_interrupted(now_ns).then_some(Abort::Other))
        });
        outcome.map_or(Err(Abort::Other), |aborted| self.finish(aborted))
    }
}

/// The line of an address of DRAM.
fn line_of(address: usize) -> u64 {
    u64::try_from(address).unwrap_or(u64::MAX) / LINE_BYTES
}

/// The line of a pool, apart from those of DRAM: no address of a process is so high.
fn line_of_pool(line: LineAddr) -> u64 {
    line.start().to_raw() / LINE_BYTES + (1 << 62)
}

impl Medium for Htm {
    fn label(&self) -> String {
        self.below.as_ref().map_or_else(|| "transactions watched".to_owned(), |model| Medium::label(&**model))
    }

    fn read(&self, at: PmAddr, len: u64) {
        self.below.iter().for_each(|model| model.read(at, len));
        lines_of(at, len).for_each(|line| self.loads(line_of_pool(line)));
    }

    fn write(&self, at: PmAddr, len: u64) {
        self.below.iter().for_each(|model| model.write(at, len));
        lines_of(at, len).for_each(|line| self.stores(line_of_pool(line)));
    }

    fn flush(&self, line: LineAddr) {
        // Orders nothing: it tells the medium below.
        self.below.iter().for_each(|model| model.flush(line));
        self.forbidden();
    }

    fn stream(&self, at: PmAddr, len: u64) {
        self.below.iter().for_each(|model| model.stream(at, len));
        self.forbidden();
    }

    fn fence(&self) {
        // Orders nothing: it tells the medium below.
        self.below.iter().for_each(|model| model.fence());
    }
}

#[cfg(test)]
mod tests {
    use lodestone_pmem::{Domain, Memory, Topology};

    use super::*;
    use crate::{MediaProfile, TimeMode};

    const QUIET: HtmProfile = HtmProfile {
        writes: CacheShape { bytes: 32 << 10, ways: 8 },
        reads: CacheShape { bytes: 1 << 20, ways: 16 },
        interrupt_ns: 0,
        conflict_chance: 0.0,
        seed: 1,
    };

    fn outcome(htm: &Htm, body: impl FnOnce()) -> Result<(), Abort> {
        htm.begin()?;
        body();
        htm.end()
    }

    #[test]
    fn a_set_has_room_for_its_ways_and_no_more() {
        let htm = Htm::new(QUIET, None);
        // The whole first level, each line twice.
        assert_eq!(outcome(&htm, || (0..1024).for_each(|line| htm.writes(line % 512 * 64))), Ok(()));
        assert_eq!(outcome(&htm, || (0..513).for_each(|line| htm.writes(line * 64))), Err(Abort::Capacity));
        assert_eq!(outcome(&htm, || (0..9).for_each(|line| htm.writes(line * 64 * 64))), Err(Abort::Capacity));
        assert_eq!(outcome(&htm, || (0..8).for_each(|line| htm.writes(line * 64 * 64 + 7))), Ok(()));
        // Loads have the second level.
        assert_eq!(outcome(&htm, || (0..1 << 14).for_each(|line| htm.reads(line * 64))), Ok(()));
        assert_eq!(outcome(&htm, || (0..=1 << 14).for_each(|line| htm.reads(line * 64))), Err(Abort::Capacity));
        let counts = htm.counts();
        assert_eq!((counts.ended, counts.aborted_for(Abort::Capacity)), (3, 3));
        assert!((counts.abort_rate() - 0.5).abs() < 1e-9);
        assert_eq!(htm.end(), Err(Abort::Other), "there is no transaction");
    }

    #[test]
    fn a_flush_or_a_streaming_store_of_the_pool_aborts_always() {
        let model = Model::new(
            MediaProfile::builtin("optane").expect("it is built in"),
            TimeMode::Virtual,
            &Topology::of_machine(),
            &[0],
        );
        let htm = Htm::new(QUIET, Some(model));
        let memory = Memory::anonymous_with(&[1 << 20], Domain::DaxEmulated, Some(htm.clone())).expect("memory");
        let at = PmAddr::new(0, 4096);
        assert_eq!(outcome(&htm, || memory.store(at, memory.load(at) + 1)), Ok(()));
        assert_eq!(outcome(&htm, || memory.flush(at, 8)), Err(Abort::Flush));
        assert_eq!(outcome(&htm, || memory.stream(at, &[1; 256])), Err(Abort::Flush));
        // Outside a transaction they do no harm.
        memory.flush(at, 8);
        memory.fence();
        assert_eq!(outcome(&htm, || memory.store(at, 1)), Ok(()));
    }

    #[test]
    fn longer_transactions_meet_more_interrupts() {
        let model = Model::new(
            MediaProfile::builtin("dram").expect("it is built in"),
            TimeMode::Virtual,
            &Topology::of_machine(),
            &[0],
        );
        let rate = |ns| {
            let htm = Htm::new(HtmProfile { interrupt_ns: 1_000_000, ..QUIET }, Some(model.clone()));
            (0..4000).for_each(|_| {
                let _ = outcome(&htm, || model.charge_ns(ns));
            });
            htm.counts().abort_rate()
        };
        // 1 - 1/e of those that take as long as the mean time.
        assert!((rate(1_000_000) - 0.632).abs() < 0.03, "{}", rate(1_000_000));
        assert!(rate(1_000) < 0.01, "{}", rate(1_000));
    }

    #[test]
    fn a_chance_of_conflicts_is_met() {
        let htm = Htm::new(HtmProfile { conflict_chance: 0.25, ..QUIET }, None);
        (0..4000).for_each(|_| {
            let _ = outcome(&htm, || {});
        });
        assert!((htm.counts().abort_rate() - 0.25).abs() < 0.03, "{:?}", htm.counts());
    }
}
