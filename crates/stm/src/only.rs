//! One open memory per pool and process: two would give out the same cells and write the same records.
//!
//! The second one is an error while the first is in use. A memory that is in use by nobody any more is being closed: by
//! whoever dropped its last handle, or by a thread that was ending just then and gives its cells back. An open waits until
//! that is done.
//!
//! Invariant: the handles ([`InUse`]) of a memory are gone before its claim ([`Only`]) is.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use lodestone_heap::Heap;
use lodestone_pmem::sync::thread;

use crate::error::{Error, Result};

/// Looks before an open takes a close for one that never ends: half a minute.
const LOOKS: u32 = if cfg!(feature = "shuttle") { 64 } else { 60_000 };

/// Open pools with a memory that may be written, and whether it is in use. Never held while anything is waited for, so it is
/// no lock of the scheduler's.
static OPEN: Mutex<BTreeMap<usize, Weak<()>>> = Mutex::new(BTreeMap::new());

/// The claim of an open memory on its pool; ends when dropped.
#[derive(Debug)]
pub struct Only {
    pool: usize,
}

/// Somebody may use the memory.
#[derive(Clone, Debug)]
pub struct InUse {
    _count: Arc<()>,
}

impl Only {
    /// Claims the pool of `heap`.
    pub fn claim(heap: &Heap) -> Result<(Self, InUse)> {
        // The path's bytes stand at one place as long as the pool is open, and the memory keeps it open.
        let pool = heap.pool().path().as_os_str().as_encoded_bytes().as_ptr() as usize;
        for _ in 0..LOOKS {
            let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
            match open.get(&pool) {
                None => {
                    let count = Arc::new(());
                    open.insert(pool, Arc::downgrade(&count));
                    return Ok((Self { pool }, InUse { _count: count }));
                }
                Some(users) if users.strong_count() > 0 => break,
                Some(_) => drop(open),
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
