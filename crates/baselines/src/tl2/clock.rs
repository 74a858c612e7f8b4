//! The global clock in the three compared forms: under a mutex, by fetch-and-add, by compare-and-swap.
//!
//! Each tick writes one line that every thread shares. Ticks are counted (`shared_rmws`), because their number limits
//! many threads, not their time on two processors.

use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crossbeam_utils::CachePadded;
use lodestone_pmem::count_shared_rmws;

/// How the clock ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockKind {
    /// A mutex around the counter: two atomic operations for a tick.
    Mutex,
    /// One fetch-and-add.
    Add,
    /// Compare-and-swap until it succeeds.
    Cas,
}

impl ClockKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Mutex, Self::Add, Self::Cas];

    /// Name for results and the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Mutex => "mutex",
            Self::Add => "add",
            Self::Cas => "cas",
        }
    }
}

impl FromStr for ClockKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == text);
        found.ok_or_else(|| format!("unknown clock '{text}'; use mutex, add or cas"))
    }
}

/// A counter that all transactions share.
#[derive(Debug)]
pub struct Clock {
    kind: ClockKind,
    counter: CachePadded<AtomicU64>,
    mutex: CachePadded<Mutex<()>>,
}

impl Clock {
    /// A clock at 0.
    #[must_use]
    pub fn new(kind: ClockKind) -> Self {
        Self { kind, counter: CachePadded::new(AtomicU64::new(0)), mutex: CachePadded::new(Mutex::new(())) }
    }

    /// The kind of the clock.
    #[must_use]
    pub fn kind(&self) -> ClockKind {
        self.kind
    }

    /// The time now.
    #[inline]
    #[must_use]
    pub fn now(&self) -> u64 {
        self.counter.load(Ordering::Acquire)
    }

    /// The next time. No other thread receives the same.
    #[inline]
    pub fn tick(&self) -> u64 {
        match self.kind {
            ClockKind::Mutex => {
                // Locking and unlocking the mutex.
                count_shared_rmws(2);
                let _guard = self.mutex.lock().unwrap_or_else(PoisonError::into_inner);
                let next = self.counter.load(Ordering::Relaxed) + 1;
                self.counter.store(next, Ordering::Release);
                next
            }
            ClockKind::Add => {
                count_shared_rmws(1);
                self.counter.fetch_add(1, Ordering::AcqRel) + 1
            }
            ClockKind::Cas => {
                let mut found = self.counter.load(Ordering::Relaxed);
                loop {
                    count_shared_rmws(1);
                    match self.counter.compare_exchange_weak(found, found + 1, Ordering::AcqRel, Ordering::Relaxed) {
                        Ok(_) => return found + 1,
                        Err(other) => found = other,
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_clock_gives_every_time_once() {
        for kind in ClockKind::ALL {
            let clock = Clock::new(kind);
            let mut drawn: Vec<u64> = std::thread::scope(|scope| {
                let threads: Vec<_> =
                    (0..2).map(|_| scope.spawn(|| (0..5_000).map(|_| clock.tick()).collect::<Vec<_>>())).collect();
                threads.into_iter().flat_map(|thread| thread.join().expect("ticks")).collect()
            });
            drawn.sort_unstable();
            assert_eq!(drawn, (1..=10_000).collect::<Vec<_>>(), "{kind:?}");
            assert_eq!((clock.now(), kind.name().parse()), (10_000, Ok(kind)));
        }
    }
}
