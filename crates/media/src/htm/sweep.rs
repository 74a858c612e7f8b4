//! Aborts of the modelled transactions by size, order, medium, time and instruction: paper 3, figure 4.
//!
//! Each point is many transactions on one thread of virtual time, on memory of a modelled medium. A transaction ends
//! where a processor would abort it, so the accesses after that are not made.

use std::sync::Arc;

use lodestone_pmem::htm::{Abort, HardwareTransactions};
use lodestone_pmem::{Domain, LINE_BYTES, Memory, PmAddr, Topology};
use serde::Serialize;

use super::{Htm, HtmProfile, splitmix};
use crate::{MediaProfile, Model, TimeMode};

/// The order of the lines of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// One after the other, from a random one on.
    Sequential,
    /// Each is any line of the memory.
    Random,
}

/// The work of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// Nothing: it takes time.
    None,
    /// It loads a word.
    Load,
    /// It stores a word.
    Store,
    /// It stores 64 bytes around the cache (`nt-store`).
    Stream,
    /// It flushes a line (`clwb`, `clflush`).
    Flush,
}

impl Access {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::None, Self::Load, Self::Store, Self::Stream, Self::Flush];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Load => "load",
            Self::Store => "store",
            Self::Stream => "stream",
            Self::Flush => "flush",
        }
    }
}

/// The transactions of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Shape {
    /// The order of its lines.
    pub order: Order,
    /// Its work with each line.
    pub access: Access,
    /// Bytes of the lines; at least one line is used.
    pub bytes: u64,
    /// Time that it computes in addition, ns.
    pub compute_ns: u64,
}

/// The outcomes of the transactions of a point. Rates are 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// The transactions.
    #[serde(flatten)]
    pub shape: Shape,
    /// How many there were.
    pub transactions: u64,
    /// The part that was aborted.
    pub abort_rate: f64,
    /// Aborted because the lines did not fit.
    pub capacity_rate: f64,
    /// Aborted by a flush or a streaming store.
    pub flush_rate: f64,
    /// Aborted by an interrupt.
    pub interrupt_rate: f64,
    /// Mean virtual time until the end or the abort, ns.
    pub mean_ns: f64,
}

/// Bytes of the memory. Many times the caches, so that a random line is seldom cached.
const MEMORY_BYTES: u64 = 64 << 20;

/// Transactions on memory of one medium.
///
/// ```
/// use lodestone_media::htm::{Access, HtmProfile, Order, Shape, Sweep};
/// use lodestone_media::MediaProfile;
/// let optane = MediaProfile::builtin("optane").expect("it is built in");
/// let sweep = Sweep::new(optane, HtmProfile::default())?;
/// let shape = Shape { order: Order::Random, access: Access::Stream, bytes: 64, compute_ns: 0 };
/// assert_eq!(sweep.point(shape, 100).abort_rate, 1.0, "a streaming store ends every transaction");
/// # Ok::<(), lodestone_pmem::Error>(())
/// ```
#[derive(Debug)]
pub struct Sweep {
    profile: HtmProfile,
    model: Arc<Model>,
    htm: Arc<Htm>,
    memory: Memory,
}

impl Sweep {
    /// Transactions of a processor on this medium.
    ///
    /// # Errors
    /// When the system has no 64 MiB of memory.
    pub fn new(medium: MediaProfile, profile: HtmProfile) -> lodestone_pmem::Result<Self> {
        let model = Model::new(medium, TimeMode::Virtual, &Topology::of_machine(), &[0]);
        let htm = Htm::new(profile, Some(Arc::clone(&model)));
        let memory = Memory::anonymous_with(&[MEMORY_BYTES], Domain::DaxEmulated, Some(htm.clone()))?;
        Ok(Self { profile, model, htm, memory })
    }

    /// The transactions of a point, so many of them.
    #[must_use]
    pub fn point(&self, shape: Shape, transactions: u64) -> Point {
        let before = self.htm.counts();
        let time_ns: u64 = (0..transactions).map(|number| self.transaction(shape, number)).sum();
        let counts = self.htm.counts();
        let rate = |count: u64| count as f64 / transactions.max(1) as f64;
        let aborted = |reason| rate(counts.aborted_for(reason) - before.aborted_for(reason));
        Point {
            shape,
            transactions,
            abort_rate: rate(transactions - (counts.ended - before.ended)),
            capacity_rate: aborted(Abort::Capacity),
            flush_rate: aborted(Abort::Flush),
            interrupt_rate: aborted(Abort::Other),
            mean_ns: rate(time_ns),
        }
    }

    /// Returns its time, ns.
    fn transaction(&self, shape: Shape, number: u64) -> u64 {
        const LINES: u64 = MEMORY_BYTES / LINE_BYTES;
        let random = |index: u64| splitmix(self.profile.seed ^ splitmix((number << 32) + index)) % LINES;
        let lines = if shape.access == Access::None { 0 } else { shape.bytes.div_ceil(LINE_BYTES).max(1) };
        let first = random(0);
        let begun_ns = self.model.thread_ns();
        if self.htm.begin().is_err() {
            return 0;
        }
        for index in 0..lines {
            let line = match shape.order {
                Order::Sequential => (first + index) % LINES,
                Order::Random => random(index),
            };
            access(&self.memory, PmAddr::new(0, line * LINE_BYTES), shape.access, number);
            // A look at the clock takes as long as the access.
            if index % 16 == 0 && self.htm.is_aborted() {
                break;
            }
        }
        self.model.charge_ns(shape.compute_ns);
        // The counts have the outcome.
        let _ = self.htm.end();
        let time_ns = self.model.thread_ns() - begun_ns;
        // The next transaction does not wait for the lines that this one evicted.
        self.memory.fence();
        time_ns
    }
}

fn access(memory: &Memory, at: PmAddr, access: Access, number: u64) {
    match access {
        Access::None => {}
        Access::Load => {
            let _ = memory.load(at);
        }
        Access::Store => memory.store(at, number),
        Access::Stream => memory.stream(at, &[0; 64]),
        // The instruction under test, and nothing to order.
        Access::Flush => memory.flush(at, LINE_BYTES),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sweep(medium: &str, interrupt_ns: u64) -> Sweep {
        let medium = MediaProfile::builtin(medium).expect("it is built in");
        Sweep::new(medium, HtmProfile { interrupt_ns, ..HtmProfile::default() }).expect("memory")
    }

    fn rate(sweep: &Sweep, order: Order, access: Access, bytes: u64) -> f64 {
        sweep.point(Shape { order, access, bytes, compute_ns: 0 }, 30).abort_rate
    }

    #[test]
    fn sizes_have_the_limits_of_the_caches() {
        let sweep = sweep("optane", 0);
        let sequential = |access, bytes| rate(&sweep, Order::Sequential, access, bytes);
        assert_eq!([16, 32 << 10].map(|bytes| sequential(Access::Store, bytes)), [0.0, 0.0]);
        assert_eq!(sequential(Access::Store, (32 << 10) + 64), 1.0);
        assert_eq!([32 << 10, 1 << 20].map(|bytes| sequential(Access::Load, bytes)), [0.0, 0.0]);
        assert_eq!(sequential(Access::Load, (1 << 20) + 64), 1.0);
        // Random lines meet a full set sooner.
        let random = [4 << 10, 16 << 10, 32 << 10].map(|bytes| rate(&sweep, Order::Random, Access::Store, bytes));
        assert!(random[0] < 0.05 && random[1] > random[0] && random[2] > 0.95, "{random:?}");
    }

    #[test]
    fn a_slower_medium_meets_more_interrupts_and_instructions_abort_whatever_the_time() {
        let [dram, optane] = ["dram", "optane"].map(|medium| sweep(medium, 1_000_000));
        let read = |sweep: &Sweep| {
            sweep
                .point(Shape { order: Order::Sequential, access: Access::Load, bytes: 256 << 10, compute_ns: 0 }, 2_000)
        };
        let (dram_read, optane_read) = (read(&dram), read(&optane));
        assert!(optane_read.mean_ns > 1.5 * dram_read.mean_ns, "{dram_read:?} {optane_read:?}");
        assert!(optane_read.interrupt_rate > dram_read.interrupt_rate, "{dram_read:?} {optane_read:?}");
        for (access, expected) in
            [(Access::None, 0.0), (Access::Load, 0.0), (Access::Stream, 1.0), (Access::Flush, 1.0)]
        {
            let shape = Shape { order: Order::Random, access, bytes: 64, compute_ns: 100 };
            let found = optane.point(shape, 300);
            assert!((found.abort_rate - expected).abs() < 0.02, "{found:?}");
        }
    }
}
