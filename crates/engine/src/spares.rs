//! Things that transactions use in turn, such as buffers and writers.
//!
//! A thread takes what it gave back last, so its lines stay with its processor, and so does the lock of its shelf.
//! Only a thread that finds its shelf empty looks at the others. With more threads than shelves, some share one.

use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;
use lodestone_pmem::sync::{Mutex, lock};

/// The explorer's schedules are the same in each run only if the shelves of its threads are.
const SHELVES: usize = if cfg!(feature = "shuttle") { 1 } else { 16 };

thread_local! {
    /// The shelf of this thread.
    static SHELF: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed) % SHELVES
    };
}

/// See the module.
#[derive(Debug)]
pub struct Spares<T> {
    shelves: [CachePadded<Mutex<Vec<T>>>; SHELVES],
}

impl<T> Default for Spares<T> {
    fn default() -> Self {
        Self { shelves: std::array::from_fn(|_| CachePadded::new(Mutex::new(Vec::new()))) }
    }
}

impl<T> Spares<T> {
    /// One of them, best the one that this thread gave back last. `None`: all are in use.
    pub fn take(&self) -> Option<T> {
        let own = SHELF.with(|own| *own);
        (0..SHELVES).find_map(|turn| lock(&self.shelves[(own + turn) % SHELVES]).pop())
    }

    /// Gives one back.
    pub fn give(&self, spare: T) {
        lock(&self.shelves[SHELF.with(|own| *own)]).push(spare);
    }

    /// Drops all that are not in use.
    pub fn clear(&self) {
        self.shelves.iter().for_each(|shelf| lock(shelf).clear());
    }
}
