//! The seam of the crash explorer: every access to traced memory passes through a [`Tracer`].
//!
//! A [`Memory`](crate::Memory) of the `traced` domain calls its tracer before each load and store of a line. It also
//! reports each store, streaming store, flush, fence and durable call. The tracer may decide the content of a line at
//! the moment of its first use. So states are enumerated only as far as recovery reads them.
//!
//! Traced memory is for one running thread at a time: a test thread, or the threads of a deterministic scheduler.

use std::panic::Location;

use lodestone_width::to_u64;

use crate::addr::{LineAddr, PmAddr};
use crate::memory::Memory;

/// Source position of a call, as the caller wrote it.
pub type Site = &'static Location<'static>;

/// Receives what happens to traced memory.
pub trait Tracer: Send + Sync {
    /// `line` is about to be loaded from or stored to. The tracer may still change it with [`TracedMemory::poke`].
    fn touch(&self, memory: &TracedMemory<'_>, line: LineAddr);
    /// `words` were stored at `at`, in this order, with ordinary stores.
    fn store(&self, at: PmAddr, words: &[u64], site: Site);
    /// `words` were written at `at` with streaming stores: unordered until the next fence.
    fn stream(&self, at: PmAddr, words: &[u64], site: Site);
    /// The write-back of `line` was started.
    fn flush(&self, line: LineAddr, site: Site);
    /// A fence was executed.
    fn fence(&self, site: Site);
    /// The caller waited until everything it fenced is durable.
    fn durable(&self, site: Site);
}

/// Records nothing: traced memory under a deterministic scheduler, where only the switches before each access count.
///
/// ```
/// use std::sync::Arc;
/// use lodestone_pmem::{Pool, PoolOptions, SilentTracer};
///
/// let options =
///     PoolOptions { size_bytes: 64 << 10, journal_bytes: 0, reserve_bytes: 1 << 20, ..PoolOptions::default() };
/// let pool = Pool::create_traced(&options, Arc::new(SilentTracer))?;
/// assert_eq!(pool.root("none")?, None);
/// # Ok::<(), lodestone_pmem::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct SilentTracer;

impl Tracer for SilentTracer {
    fn touch(&self, _: &TracedMemory<'_>, _: LineAddr) {}
    fn store(&self, _: PmAddr, _: &[u64], _: Site) {}
    fn stream(&self, _: PmAddr, _: &[u64], _: Site) {}
    fn flush(&self, _: LineAddr, _: Site) {}
    fn fence(&self, _: Site) {}
    fn durable(&self, _: Site) {}
}

/// Raw access to traced memory for a [`Tracer`]: not recorded itself.
#[derive(Debug)]
pub struct TracedMemory<'a> {
    pub(crate) memory: &'a Memory,
}

impl TracedMemory<'_> {
    /// The eight words of `line`.
    #[must_use]
    pub fn peek(&self, line: LineAddr) -> [u64; 8] {
        self.memory.raw_line(line)
    }

    /// The memory itself.
    #[must_use]
    pub fn memory(&self) -> &Memory {
        self.memory
    }

    /// Replaces the eight words of `line`.
    pub fn poke(&self, line: LineAddr, words: [u64; 8]) {
        for (index, word) in words.into_iter().enumerate() {
            self.memory.raw_store(line.start().plus(to_u64(index) * 8), word);
        }
    }
}
