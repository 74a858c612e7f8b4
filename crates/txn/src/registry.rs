//! Thread ids. A thread receives one with its first transaction and returns it when the thread ends. The next thread
//! takes the id over together with its clock (paper 1, section 3.1).
//!
//! Invariants:
//! - an id has one holder at a time, and only the holder writes its clock;
//! - a clock is never set back: the next holder continues where the last one stopped, so no tick is used twice.

use crossbeam_utils::CachePadded;
use lodestone_pmem::sync::atomic::{AtomicU64, Ordering};
use lodestone_pmem::sync::{Mutex, lock};

use crate::error::{Error, Result};
use crate::tick::{Tick, Writer};

/// All ids of one engine.
#[derive(Debug)]
pub struct Registry {
    free: Mutex<Vec<Writer>>,
    clocks: Box<[CachePadded<AtomicU64>]>,
}

/// The right to use an id. Return it with [`Registry::release`].
#[derive(Debug)]
pub struct Lease {
    writer: Writer,
}

impl Lease {
    /// The id.
    #[must_use]
    #[inline]
    pub fn writer(&self) -> Writer {
        self.writer
    }
}

impl Registry {
    /// Ids from 0 to `threads`, exclusive. Their clocks start at `base`.
    #[must_use]
    pub fn new(threads: u16, base: Tick) -> Self {
        Self {
            free: Mutex::new((0..threads).rev().filter_map(Writer::new).collect()),
            clocks: (0..threads).map(|_| CachePadded::new(AtomicU64::new(base.0))).collect(),
        }
    }

    /// A free id: the one that was returned last, or else the smallest one that was never used.
    ///
    /// # Errors
    /// [`Error::TooManyThreads`] if all are taken.
    pub fn lease(&self) -> Result<Lease> {
        let threads_max = self.clocks.len();
        lock(&self.free).pop().map(|writer| Lease { writer }).ok_or(Error::TooManyThreads { threads_max })
    }

    /// Takes an id back; its clock stays as it is.
    pub fn release(&self, lease: Lease) {
        lock(&self.free).push(lease.writer);
    }

    /// The clock of the leased id.
    #[must_use]
    #[inline]
    pub fn clock(&self, lease: &Lease) -> Tick {
        Tick(self.clocks[lease.writer.index()].load(Ordering::Relaxed))
    }

    /// Sets the clock of the leased id.
    #[inline]
    pub fn set_clock(&self, lease: &Lease, tick: Tick) {
        // Relaxed: only the holder reads it until the id is handed on, and handing on goes through the lock.
        self.clocks[lease.writer.index()].store(tick.0, Ordering::Relaxed);
    }

    /// The largest clock. Exact only while no thread commits.
    #[must_use]
    pub fn latest(&self) -> Tick {
        Tick(self.clocks.iter().map(|clock| clock.load(Ordering::Acquire)).max().unwrap_or(0))
    }

    /// Number of ids.
    #[must_use]
    pub fn threads_max(&self) -> usize {
        self.clocks.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_handed_on_with_its_clock_and_never_held_twice() {
        let registry = Registry::new(2, Tick(5));
        let first = registry.lease().expect("an id");
        let second = registry.lease().expect("an id");
        assert_eq!((first.writer().number(), second.writer().number()), (0, 1));
        assert!(matches!(registry.lease(), Err(Error::TooManyThreads { threads_max: 2 })));
        registry.set_clock(&first, Tick(9));
        registry.release(first);
        let again = registry.lease().expect("an id");
        assert_eq!((again.writer().number(), registry.clock(&again)), (0, Tick(9)));
        assert_eq!(registry.latest(), Tick(9));
    }
}
