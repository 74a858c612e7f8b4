//! One open memory per pool and process: two would give out the same cells and write the same records.
//!
//! The second one is an error. A memory that was dropped may be held for an instant by a thread that is ending (it gives its
//! cells back), so an open waits a while before it gives up.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use lodestone_heap::Heap;
use lodestone_pmem::sync::thread;

use crate::error::{Error, Result};

/// Looks before an open gives up.
const LOOKS: u32 = if cfg!(feature = "shuttle") { 64 } else { 200 };

/// Open pools with a memory that may be written. Never held while anything is waited for, so it is no lock of the scheduler's.
static OPEN: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

/// The claim of an open memory on its pool; ends when dropped.
#[derive(Debug)]
pub struct Only {
    pool: usize,
}

impl Only {
    /// Claims the pool of `heap`.
    pub fn claim(heap: &Heap) -> Result<Self> {
        // The path's bytes stand at one place as long as the pool is open, and the memory keeps it open.
        let pool = heap.pool().path().as_os_str().as_encoded_bytes().as_ptr() as usize;
        for _ in 0..LOOKS {
            if OPEN.lock().unwrap_or_else(PoisonError::into_inner).insert(pool) {
                return Ok(Self { pool });
            }
            #[cfg(not(feature = "shuttle"))]
            std::thread::sleep(std::time::Duration::from_micros(500));
            thread::yield_now();
        }
        Err(Error::AlreadyOpen { path: heap.pool().path().to_owned() })
    }
}

impl Drop for Only {
    fn drop(&mut self) {
        OPEN.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.pool);
    }
}
