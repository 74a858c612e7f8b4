//! The claim of a heap on its open pool: two heaps over one pool would hand out the same memory.
//!
//! 1. A heap that may write claims the pool before it reads a byte, and holds the claim as long as it lives. The mark
//!    is in DRAM, shared by all handles of the open pool. It means nothing to a later open.
//! 2. A claim that finds another one waits a moment: the other heap may be ending on another thread.
//! 3. Heaps of a pool that is open read-only share it: they allocate nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Result};
use crate::pool::Pool;
use crate::sync::thread;

/// Looks before a claim takes the heap before it for one that stays: a tenth of a second.
const LOOKS: u32 = if cfg!(feature = "shuttle") { 64 } else { 200 };

/// The right to be the one heap of an open pool; ends when it is dropped.
///
/// It does not keep the pool open. Drop it after everything else of the heap: the next claimant may use the memory at
/// once.
///
/// ```
/// # use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.pool");
/// # let options = PoolOptions { domain: DomainChoice::Process, size_bytes: 16 << 20, ..PoolOptions::default() };
/// let pool = Pool::create(&path, &options)?;
/// let claim = pool.claim_heap()?;
/// assert!(pool.claim_heap().is_err(), "one heap at a time");
/// drop(claim);
/// assert!(pool.claim_heap().is_ok());
/// # Ok::<(), lodestone_pmem::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "dropping it lets another heap claim the pool"]
pub struct HeapClaim {
    /// `None` for a heap of a pool that is open read-only.
    held: Option<Arc<AtomicBool>>,
}

impl Pool {
    /// Claims the heap area of this open pool for one heap. A pool that is open read-only allows any number of claims.
    ///
    /// Threads may call it at the same time: one of them gets the claim.
    ///
    /// # Errors
    /// [`Error::HeapInUse`] when another claim is held and does not end within a tenth of a second.
    ///
    /// ```
    /// use lodestone_pmem::{DomainChoice, Error, Pool, PoolOptions};
    /// let folder = tempfile::tempdir()?;
    /// let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
    /// let pool = Pool::create(folder.path().join("a.pool"), &options)?;
    /// let claim = pool.claim_heap()?;
    /// assert!(matches!(pool.clone().claim_heap(), Err(Error::HeapInUse { .. })));
    /// drop(claim);
    /// let _claim = pool.claim_heap()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn claim_heap(&self) -> Result<HeapClaim> {
        if self.memory().is_read_only() {
            return Ok(HeapClaim { held: None });
        }
        let flag = &self.shared.heap_claimed;
        for _ in 0..LOOKS {
            // Acquire: the stores of the heap before are visible to the next one.
            if flag.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return Ok(HeapClaim { held: Some(Arc::clone(flag)) });
            }
            #[cfg(not(feature = "shuttle"))]
            thread::sleep(std::time::Duration::from_micros(500));
            #[cfg(feature = "shuttle")]
            thread::yield_now();
        }
        Err(Error::HeapInUse { path: self.path().to_owned() })
    }
}

impl Drop for HeapClaim {
    fn drop(&mut self) {
        if let Some(flag) = &self.held {
            // Release: as above.
            flag.store(false, Ordering::Release);
        }
    }
}
