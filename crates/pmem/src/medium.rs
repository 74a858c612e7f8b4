//! The seam of media models: each access of code to a pool is reported to a [`Medium`].
//!
//! A memory can be made with a medium ([`PoolOptions::medium`](crate::PoolOptions::medium),
//! [`Memory::anonymous_with`](crate::Memory::anonymous_with)). It then tells the medium of each load, store,
//! write-back, streaming store and fence, before it happens and on the same thread. The medium may take time
//! (emulation) or only count.
//!
//! The domain decides which accesses are reported, by one rule: **those that the processor would make to the mapped
//! memory**.
//!
//! | domain | loads and stores | flush | stream | fence |
//! | --- | --- | --- | --- | --- |
//! | `dax`, `dax-emulated` | reported | reported | reported, and the store fence at its end as a fence | reported |
//! | `eadr`, `process` | reported | nothing happens, so nothing is reported | reported as ordinary stores | reported |
//! | `block` | reported | a copy to the commit group in DRAM: not reported | as ordinary stores | reported |
//! | `traced` | never: time means nothing to the explorer, and a medium that is given is ignored | | | |
//!
//! In the `block` domain the profile thus describes the memory of the pool's private mapping. Journal and file are real
//! I/O and take their real time.
//!
//! Invariants:
//! - a memory without a medium pays one predictable branch per primitive, shared with tracing and read-only pools;
//! - a medium sees addresses, never bytes, and changes nothing in the pool;
//! - bytes that `pmem` itself reads with read(2) (headers, journal replay) or copies for the block domain are not
//!   reported.

use std::fmt;

use crate::addr::{LineAddr, PmAddr};

/// An observer of the accesses to a memory. Called on the accessing thread, before the access. Several threads call at
/// once.
///
/// ```
/// # use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.pool");
/// # let options = PoolOptions { domain: DomainChoice::Process, size_bytes: 16 << 20, ..PoolOptions::default() };
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// use lodestone_pmem::{LineAddr, Medium, PmAddr};
///
/// /// Counts the fences of a pool.
/// #[derive(Debug, Default)]
/// struct Fences(AtomicU64);
///
/// impl Medium for Fences {
///     fn label(&self) -> String {
///         "fences, counted".to_owned()
///     }
///     fn read(&self, _: PmAddr, _: u64) {}
///     fn write(&self, _: PmAddr, _: u64) {}
///     fn flush(&self, _: LineAddr) {}
///     fn stream(&self, _: PmAddr, _: u64) {}
///     fn fence(&self) {
///         self.0.fetch_add(1, Ordering::Relaxed);
///     }
/// }
///
/// let fences = Arc::new(Fences::default());
/// let options = PoolOptions { medium: Some(fences.clone()), ..options };
/// let pool = Pool::create(&path, &options)?;
/// pool.memory().fence();
/// assert!(fences.0.load(Ordering::Relaxed) >= 1);
/// # Ok::<(), lodestone_pmem::Error>(())
/// ```
pub trait Medium: Send + Sync + fmt::Debug {
    /// Its name, for every output: `optane, virtual time`.
    fn label(&self) -> String;
    /// `len` bytes at `at` are about to be loaded.
    fn read(&self, at: PmAddr, len: u64);
    /// `len` bytes at `at` are about to be stored with ordinary stores, into the processor's cache.
    fn write(&self, at: PmAddr, len: u64);
    /// The write-back of `line` is about to be started.
    fn flush(&self, line: LineAddr);
    /// `len` bytes at `at` are about to be written around the cache.
    fn stream(&self, at: PmAddr, len: u64);
    /// The thread is about to wait until everything it flushed and streamed has left the cache.
    fn fence(&self);
}
