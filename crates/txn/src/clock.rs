//! Clocks: where new ticks come from, and which ticks a thread knows.
//!
//! *Thread clock* (the default; paper 1, section 3): each thread counts for itself, and a commit takes the largest of its
//! own count and of all versions it read or overwrote, plus one (a Lamport clock; the paper's plain count orders nothing
//! between threads). No shared word is written.
//! *Global clocks* (the paper's baselines, section 2.1): one word for all, advanced under a mutex, by fetch-and-add or by
//! compare-and-exchange. Each commit writes a line that every thread reads.
//!
//! *Start clocks* (paper 1, Algorithm 1, `scs[]`): per thread id, up to which tick this thread knows that everything is
//! committed. A version at or below it may be read without a look at what was read before. One above it is learned: the
//! reads so far are validated, and only then the start clock is raised ("dynamic extension"). With a global clock all
//! threads share one start clock.

use crossbeam_utils::CachePadded;
use lodestone_pmem::count_shared_rmws;
use lodestone_pmem::sync::atomic::{AtomicU64, Ordering};
use lodestone_pmem::sync::{Mutex, lock};

use crate::tick::{Tick, WRITERS_MAX};
use crate::word::VersionWord;

/// Where new ticks come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClockKind {
    /// Each thread has a clock of its own.
    #[default]
    Thread,
    /// One clock, advanced under a mutex.
    GlobalMutex,
    /// One clock, advanced by fetch-and-add.
    GlobalFetchAdd,
    /// One clock, advanced by compare-and-exchange.
    GlobalCompareExchange,
}

/// A clock of any kind.
#[derive(Debug)]
pub struct Clock {
    kind: ClockKind,
    word: CachePadded<AtomicU64>,
    mutex: CachePadded<Mutex<()>>,
}

impl Clock {
    /// A clock that gives ticks above `base`.
    #[must_use]
    pub fn new(kind: ClockKind, base: Tick) -> Self {
        Self { kind, word: CachePadded::new(AtomicU64::new(base.0)), mutex: CachePadded::new(Mutex::new(())) }
    }

    /// What kind it is.
    #[must_use]
    pub fn kind(&self) -> ClockKind {
        self.kind
    }

    /// The present time of a global clock, `None` of a thread clock (paper 1: `get_time`).
    #[must_use]
    #[inline]
    pub fn now(&self) -> Option<Tick> {
        match self.kind {
            ClockKind::Thread => None,
            _ => Some(Tick(self.word.load(Ordering::Acquire))),
        }
    }

    /// A new tick (paper 1: `new_time`): above `seen`, the largest of the thread's own clock and of all versions that the
    /// transaction read or overwrote.
    #[must_use]
    #[inline]
    pub fn next(&self, seen: Tick) -> Tick {
        if self.kind == ClockKind::Thread { seen.next() } else { self.next_global() }
    }

    fn next_global(&self) -> Tick {
        count_shared_rmws(1);
        let word = &*self.word;
        match self.kind {
            ClockKind::GlobalMutex => {
                // Taking and giving back a lock writes its line twice.
                count_shared_rmws(1);
                let _guard = lock(&self.mutex);
                let next = word.load(Ordering::Relaxed) + 1;
                word.store(next, Ordering::Release);
                Tick(next)
            }
            ClockKind::GlobalFetchAdd => Tick(word.fetch_add(1, Ordering::AcqRel) + 1),
            _ => {
                let mut found = word.load(Ordering::Relaxed);
                loop {
                    match word.compare_exchange_weak(found, found + 1, Ordering::AcqRel, Ordering::Relaxed) {
                        Ok(_) => return Tick(found + 1),
                        Err(other) => found = other,
                    }
                    count_shared_rmws(1);
                }
            }
        }
    }
}

/// Up to which tick a thread knows each writer.
///
/// Counted from the base of the life, so that one comparison also refuses the words of earlier lives: seen from the base
/// they are almost 2^51 ticks ahead.
#[derive(Debug)]
pub struct StartClocks {
    base: Tick,
    mask: usize,
    known: Box<[u64]>,
}

impl StartClocks {
    /// Knows the base of the life, of every writer.
    #[must_use]
    pub fn new(kind: ClockKind, base: Tick) -> Self {
        let len = if kind == ClockKind::Thread { usize::from(WRITERS_MAX) } else { 1 };
        Self { base, mask: len - 1, known: vec![0; len].into_boxed_slice() }
    }

    /// Whether the version that `word` names is of this life and known to be committed (paper 1: the first half of
    /// `cmp_time`).
    #[inline]
    #[must_use]
    pub fn covers(&self, word: VersionWord) -> bool {
        word.ticks_since(self.base) <= self.known[word.writer().index() & self.mask]
    }

    /// Learns that everything that the writer of `word` committed up to it is known (the second half of `cmp_time`). Call
    /// it when all reads of the transaction were found valid after `word` was seen.
    #[inline]
    pub fn raise(&mut self, word: VersionWord) {
        let known = &mut self.known[word.writer().index() & self.mask];
        *known = (*known).max(word.ticks_since(self.base));
    }

    /// Learns `tick` of the writer with index `writer` (paper 1: `get_time`).
    #[inline]
    pub fn know(&mut self, writer: usize, tick: Tick) {
        let known = &mut self.known[writer & self.mask];
        *known = (*known).max(tick.0 - self.base.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tick::Writer;
    use crate::word::{State, Which};

    #[test]
    fn every_global_clock_counts_and_reports_what_it_writes() {
        for kind in [ClockKind::GlobalMutex, ClockKind::GlobalFetchAdd, ClockKind::GlobalCompareExchange] {
            let clock = Clock::new(kind, Tick(10));
            let scope = lodestone_pmem::CounterScope::start();
            assert_eq!((clock.next(Tick(3)), clock.next(Tick(3)), clock.now()), (Tick(11), Tick(12), Some(Tick(12))));
            assert!(scope.delta().shared_rmws >= 2, "{kind:?}");
        }
        let scope = lodestone_pmem::CounterScope::start();
        assert_eq!(Clock::new(ClockKind::Thread, Tick(10)).next(Tick(41)), Tick(42));
        assert_eq!(scope.delta().shared_rmws, 0);
    }

    #[test]
    fn start_clocks_know_what_they_learned_and_nothing_of_earlier_lives() {
        let word =
            |tick, writer| VersionWord::new(Tick(tick), Writer::new(writer).expect("small"), Which::First, State::Live);
        let mut known = StartClocks::new(ClockKind::Thread, Tick(100));
        assert!(known.covers(word(100, 3)) && !known.covers(word(101, 3)) && !known.covers(word(99, 3)));
        known.raise(word(105, 3));
        assert!(known.covers(word(105, 3)) && !known.covers(word(105, 4)), "each writer counts for itself");
        let mut global = StartClocks::new(ClockKind::GlobalFetchAdd, Tick(100));
        global.know(0, Tick(105));
        assert!(global.covers(word(105, 9)));
    }
}
