//! Counts of the persistence primitives, per thread and summed on demand.
//!
//! Each thread owns one padded block of counters and is its only writer. So counting is a load, an add and a store on a
//! line that no other thread writes. Blocks outlive their threads. A finished thread's block goes to the next new
//! thread with its counts, so sums over the process never go backwards.

use std::cell::Cell;
use std::ops::Sub;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crossbeam_utils::CachePadded;

use crate::addr::{LINE_BYTES, LineAddr, MEDIA_BLOCK_BYTES};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        /// Counts of persistence events, of one thread or of the whole process.
        ///
        /// "Per operation" figures are differences of two snapshots; see [`CounterScope`].
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Counters { $($(#[$doc])* pub $name: u64),+ }

        #[derive(Default)]
        pub(crate) struct Block { $(pub(crate) $name: AtomicU64,)+ last_media_block: AtomicU64 }

        impl Block {
            fn snapshot(&self) -> Counters {
                Counters { $($name: self.$name.load(Ordering::Relaxed)),+ }
            }
        }

        impl Counters {
            fn add(&mut self, other: &Self) { $(self.$name += other.$name;)+ }
        }

        impl Sub for Counters {
            type Output = Self;
            /// Saturates at 0, so that snapshots taken in the wrong order do not panic.
            fn sub(self, earlier: Self) -> Self {
                Self { $($name: self.$name.saturating_sub(earlier.$name)),+ }
            }
        }
    };
}

counters! {
    /// Lines handed to `flush`, in every domain.
    flushes,
    /// Calls of `fence`.
    fences,
    /// Bytes written by streaming stores.
    streamed_bytes,
    /// 256-byte media blocks touched by flushes and streams; neighbours between two fences count once.
    media_blocks,
    /// Bytes written to the journal of the block domain, headers and padding included.
    journal_bytes,
    /// Bytes that checkpoints of the block domain moved from the journal to the files.
    checkpoint_bytes,
    /// Device syncs (fdatasync) that succeeded or failed.
    syncs,
    /// Calls of `durable`.
    durables,
    /// Atomic read-modify-writes on lines that other threads write, where the code that does them reports it.
    shared_rmws,
}

impl Counters {
    /// Bytes sent towards the medium: flushed lines and streamed bytes.
    #[must_use]
    pub fn pm_bytes(&self) -> u64 {
        self.flushes * LINE_BYTES + self.streamed_bytes
    }
}

#[inline]
pub(crate) fn bump(counter: &AtomicU64, by: u64) {
    // Only the owning thread writes its block, so a plain load and store lose nothing.
    counter.store(counter.load(Ordering::Relaxed) + by, Ordering::Relaxed);
}

impl Block {
    /// Counts `line` as flushed.
    #[inline]
    pub(crate) fn count_line(&self, line: LineAddr) {
        let media_block = line.start().to_raw() / MEDIA_BLOCK_BYTES;
        bump(&self.flushes, 1);
        if self.last_media_block.load(Ordering::Relaxed) != media_block {
            self.last_media_block.store(media_block, Ordering::Relaxed);
            bump(&self.media_blocks, 1);
        }
    }

    /// Counts a fence: lines after it cannot be merged with lines before it.
    #[inline]
    pub(crate) fn count_fence(&self) {
        bump(&self.fences, 1);
        self.last_media_block.store(u64::MAX, Ordering::Relaxed);
    }
}

struct Registry {
    all: Vec<&'static CachePadded<Block>>,
    free: Vec<&'static CachePadded<Block>>,
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry { all: Vec::new(), free: Vec::new() });

struct Lease(&'static CachePadded<Block>);

impl Drop for Lease {
    fn drop(&mut self) {
        LOCAL.set(None);
        REGISTRY.lock().unwrap_or_else(PoisonError::into_inner).free.push(self.0);
    }
}

thread_local! {
    static LOCAL: Cell<Option<&'static CachePadded<Block>>> = const { Cell::new(None) };
    static LEASE: Cell<Option<Lease>> = const { Cell::new(None) };
}

/// This thread's block.
#[inline]
pub(crate) fn local() -> &'static Block {
    match LOCAL.get() {
        Some(block) => block,
        None => register(),
    }
}

#[cold]
fn register() -> &'static Block {
    let mut registry = REGISTRY.lock().unwrap_or_else(PoisonError::into_inner);
    let block = registry.free.pop().unwrap_or_else(|| {
        let block: &'static CachePadded<Block> = Box::leak(Box::default());
        registry.all.push(block);
        block
    });
    drop(registry);
    // A thread that is already tearing down its locals counts on without a lease; its block is simply not reused.
    if LEASE.try_with(|lease| lease.set(Some(Lease(block)))).is_ok() {
        LOCAL.set(Some(block));
    }
    block
}

/// Snapshot of the calling thread's counters.
#[must_use]
pub fn thread_counters() -> Counters {
    local().snapshot()
}

/// Sum over all threads that ever lived in this process.
#[must_use]
pub fn process_counters() -> Counters {
    let registry = REGISTRY.lock().unwrap_or_else(PoisonError::into_inner);
    let mut sum = Counters::default();
    for block in &registry.all {
        sum.add(&block.snapshot());
    }
    sum
}

/// Reports `count` atomic read-modify-writes on a line that other threads write.
#[inline]
pub fn count_shared_rmws(count: u64) {
    bump(&local().shared_rmws, count);
}

/// Counts what one thread does between two points: the figure of one operation.
///
/// ```
/// use lodestone_pmem::{CounterScope, Memory, PmAddr};
/// let memory = Memory::anonymous(4096)?;
/// let scope = CounterScope::start();
/// memory.store(PmAddr::new(0, 64), 7);
/// memory.persist(PmAddr::new(0, 64), 8);
/// assert_eq!((scope.delta().flushes, scope.delta().fences), (1, 1));
/// # Ok::<(), lodestone_pmem::Error>(())
/// ```
#[derive(Debug)]
pub struct CounterScope {
    start: Counters,
}

impl CounterScope {
    /// Remembers the calling thread's counters.
    #[must_use]
    pub fn start() -> Self {
        Self { start: thread_counters() }
    }

    /// The counts of this thread since [`start`](Self::start). Call it on the thread that started the scope.
    #[must_use]
    pub fn delta(&self) -> Counters {
        thread_counters() - self.start
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::PmAddr;

    #[test]
    fn sums_survive_their_threads_and_blocks_are_reused() {
        let before = process_counters();
        for _ in 0..3 {
            std::thread::spawn(|| bump(&local().shared_rmws, 5)).join().expect("the thread only counts");
        }
        assert!((process_counters() - before).shared_rmws >= 15);
    }

    #[test]
    fn neighbouring_lines_of_one_media_block_count_once() {
        let scope = CounterScope::start();
        let line = |number: u64| PmAddr::new(0, number * LINE_BYTES).line();
        local().count_line(line(28));
        local().count_line(line(31));
        local().count_line(line(32));
        local().count_fence();
        local().count_line(line(32));
        let delta = scope.delta();
        assert_eq!((delta.flushes, delta.media_blocks, delta.fences), (4, 3, 1));
    }
}
