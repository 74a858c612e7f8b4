//! The model's state of one thread: its clock, its cache, and the work that its next fence waits for.

use lodestone_pmem::LineAddr;

use super::cache::CpuCache;
use super::counts::MediaCounts;
use crate::profile::CpuCacheProfile;

/// Writes to one part since the thread last waited for them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Unfenced {
    /// Start of the first of them.
    pub(super) start_ps: u64,
    /// Bytes of whole lines whose latency began at that time.
    pub(super) bytes: u64,
    /// Streaming stores of less than a line, one after another.
    pub(super) small_ps: u64,
    /// When all of them have left the cache; 0 if nothing is under way.
    pub(super) end_ps: u64,
    /// Whether the first line continued where the thread's last write ended.
    pub(super) sequential: bool,
    /// Bytes since the last fence.
    pub(super) since_fence_bytes: u64,
    /// When the medium has room for this thread's next block.
    pub(super) queue_ps: u64,
    /// Address after the last line that was sent.
    pub(super) next: u64,
    /// Fraction of a block that is due to be torn.
    pub(super) torn: f64,
}

#[derive(Debug)]
pub(super) struct ThreadState {
    /// Number among the threads that live now.
    pub(super) slot: usize,
    pub(super) node: usize,
    /// Virtual time.
    pub(super) clock_ps: u64,
    /// Sum of all charges.
    pub(super) charged_ps: u64,
    /// Spinning: time that hooks took beyond their charges, and the time that this hook spun.
    pub(super) credit_ps: u64,
    pub(super) hook_paid_ps: u64,
    pub(super) cache: CpuCache,
    /// Address after the last line fetched for a load, and for a store.
    pub(super) next_load: u64,
    pub(super) next_store: u64,
    /// When the lines that stores wait for have arrived.
    pub(super) stores_ready_ps: u64,
    /// By part.
    pub(super) unfenced: Vec<Unfenced>,
    /// Dirty lines that were evicted from the cache and wait to be sent; empty between calls.
    pub(super) evicted: Vec<LineAddr>,
    pub(super) counts: MediaCounts,
}

impl ThreadState {
    pub(super) fn new(slot: usize, node: usize, clock_ps: u64, cache: &CpuCacheProfile, parts: usize) -> Self {
        Self {
            slot,
            node,
            clock_ps,
            charged_ps: 0,
            credit_ps: 0,
            hook_paid_ps: 0,
            cache: CpuCache::new(cache),
            // No line ends at an odd address.
            next_load: 1,
            next_store: 1,
            stores_ready_ps: 0,
            unfenced: vec![Unfenced { next: 1, ..Unfenced::default() }; parts],
            evicted: Vec::new(),
            counts: MediaCounts::default(),
        }
    }

    /// The counts, with the time charged so far.
    pub(super) fn snapshot(&self) -> MediaCounts {
        MediaCounts { charged_ns: self.charged_ps / 1000, ..self.counts }
    }
}
