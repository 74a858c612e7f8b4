//! Clocks: where new ticks come from, and which ticks a thread knows.
//!
//! - *Thread clock* (the default; paper 1, section 3): each thread counts for itself. A commit takes the largest of its
//!   own count and of all versions it read or overwrote, plus one. This is a Lamport clock: the paper's plain count
//!   orders nothing between threads. No shared word is written.
//! - *Global clocks* (the paper's baselines, section 2.1): one word for all threads, advanced under a mutex, by
//!   fetch-and-add or by compare-and-exchange. Each commit writes a line that every thread reads.
//! - *Start clocks* (paper 1, Algorithm 1, `scs[]`): for each thread id, the tick up to which this thread knows that
//!   everything is committed. A version at or below that tick may be read without checking the earlier reads. A version
//!   above it must be learned first: the reads so far are validated, and then the start clock is raised ("dynamic
//!   extension"). With a global clock all threads share one start clock.

use crossbeam_utils::CachePadded;
use lodestone_pmem::count_shared_rmws;
use lodestone_pmem::sync::atomic::{AtomicU64, Ordering};
use lodestone_pmem::sync::{Mutex, lock};
use lodestone_width::{const_usize, to_u64, to_usize, u16_to_u64};

use crate::tick::{LIFE_TICKS_MAX, TICK_BITS, Tick, WRITERS_MAX};
use crate::word::{AGE_TICK_SHIFT, VersionWord};

/// Where new ticks come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClockKind {
    /// Each thread has its own clock.
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
    /// A clock whose ticks are all above `base`.
    #[must_use]
    pub fn new(kind: ClockKind, base: Tick) -> Self {
        Self { kind, word: CachePadded::new(AtomicU64::new(base.0)), mutex: CachePadded::new(Mutex::new(())) }
    }

    /// The kind of this clock.
    #[must_use]
    #[inline]
    pub fn kind(&self) -> ClockKind {
        self.kind
    }

    /// The present time of a global clock; `None` for a thread clock (paper 1: `get_time`).
    #[must_use]
    #[inline]
    pub fn now(&self) -> Option<Tick> {
        match self.kind {
            ClockKind::Thread => None,
            _ => Some(Tick(self.word.load(Ordering::Acquire))),
        }
    }

    /// A new tick (paper 1: `new_time`): above `seen`, the largest of the thread's own clock and of all versions that
    /// the transaction read or overwrote.
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
                // Locking and unlocking each write the mutex's line once.
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

/// The tick up to which a thread knows the commits of each writer.
///
/// Ticks are counted from the base of the life. One comparison therefore also refuses the words of earlier lives:
/// counted from the base, they are almost 2^51 ticks ahead.
///
/// Hot readers compare the [`age`](VersionWord::age) of a word instead. An age has the state in its top bits, so one
/// comparison also refuses all words that are not live. A carry from tick to state would break this, so ages are not
/// used in a life in which the 51 bits may wrap.
#[derive(Debug)]
pub struct StartClocks {
    base: Tick,
    mask: usize,
    known: Box<[u64]>,
    origin: u64,
    age_mask: u64,
    /// The largest known age of each writer and slot. Writer and slot are the low bits of an age, so an entry is the
    /// known tick above eleven ones. All zero where ages are not used.
    ages: Box<[u64; AGES]>,
    has_ages: bool,
    /// The largest known tick of any writer, counted from the base.
    latest: u64,
}

const AGES: usize = 2 * const_usize(u16_to_u64(WRITERS_MAX));
const _: () = assert!(AGES == 1 << AGE_TICK_SHIFT, "writer and slot are the index of an age");

impl StartClocks {
    /// Start clocks that know every writer up to the base of the life.
    #[must_use]
    pub fn new(kind: ClockKind, base: Tick) -> Self {
        let len = if kind == ClockKind::Thread { usize::from(WRITERS_MAX) } else { 1 };
        let mut clocks = Self {
            base,
            mask: len - 1,
            known: vec![0; len].into_boxed_slice(),
            origin: VersionWord::age_origin(base),
            age_mask: if kind == ClockKind::Thread { to_u64(AGES) - 1 } else { 0 },
            ages: Box::new([0; AGES]),
            latest: 0,
            has_ages: (base.0 & ((1 << TICK_BITS) - 1)) + LIFE_TICKS_MAX < 1 << TICK_BITS,
        };
        for writer in 0..len {
            clocks.learn(writer, 0);
        }
        clocks
    }

    /// Whether the version that `word` names is of this life and known to be committed (paper 1: the first half of
    /// `cmp_time`).
    #[inline]
    #[must_use]
    pub fn covers(&self, word: VersionWord) -> bool {
        word.ticks_since(self.base) <= self.known[word.writer().index() & self.mask]
    }

    /// Whether the version that `word` names is live and [covered](Self::covers), by one comparison. May return `false`
    /// for a version that is covered.
    #[inline(always)]
    #[must_use]
    pub fn covers_live(&self, word: VersionWord) -> bool {
        let age = word.age(self.origin);
        age <= self.ages[to_usize(age & self.age_mask) % AGES]
    }

    /// Learns that all commits of the writer of `word`, up to this one, are known (the second half of `cmp_time`). Call
    /// it only after all reads of the transaction were found valid, checked after `word` was seen.
    #[inline]
    pub fn raise(&mut self, word: VersionWord) {
        self.learn(word.writer().index(), word.ticks_since(self.base));
    }

    /// The largest known tick of any writer: no covered version has a larger one.
    #[inline]
    #[must_use]
    pub fn latest(&self) -> Tick {
        Tick(self.base.0 + self.latest)
    }

    /// Learns that the commits of writer number `writer` are known up to `tick` (paper 1: `get_time`).
    #[inline]
    pub fn know(&mut self, writer: usize, tick: Tick) {
        self.learn(writer, tick.0 - self.base.0);
    }

    #[inline]
    fn learn(&mut self, writer: usize, ticks: u64) {
        let writer = writer & self.mask;
        let known = self.known[writer].max(ticks);
        self.known[writer] = known;
        self.latest = self.latest.max(known);
        if self.has_ages {
            let index = 2 * writer % AGES;
            let age = known << AGE_TICK_SHIFT | (to_u64(AGES) - 1);
            self.ages[index] = age;
            self.ages[index | 1] = age;
        }
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
        assert_eq!(known.latest(), Tick(100));
        known.raise(word(105, 3));
        known.know(4, Tick(103));
        assert_eq!(known.latest(), Tick(105));
        assert!(
            known.covers(word(105, 3)) && !known.covers(word(105, 4)) && known.covers(word(103, 4)),
            "each writer counts for itself"
        );
        let mut global = StartClocks::new(ClockKind::GlobalFetchAdd, Tick(100));
        global.know(0, Tick(105));
        assert!(global.covers(word(105, 9)) && global.covers_live(word(105, 9)) && !global.covers_live(word(106, 9)));
    }

    #[test]
    fn ages_cover_what_ticks_cover_and_nothing_that_is_not_live() {
        let wrap = 1 << TICK_BITS;
        for base in [100, wrap / 2 - 7, wrap - 7, wrap + 40, 5 * wrap + wrap / 3] {
            for kind in [ClockKind::Thread, ClockKind::GlobalMutex] {
                let mut known = StartClocks::new(kind, Tick(base));
                known.know(3, Tick(base + 5));
                known.know(9, Tick(base + 15));
                for tick in base - 30..base + 30 {
                    for writer in [0, 3, 9, 1023] {
                        for (state, slot) in [
                            (State::Live, Which::First),
                            (State::Live, Which::Second),
                            (State::Committing, Which::First),
                            (State::Free, Which::Second),
                        ] {
                            let writer = Writer::new(writer).expect("small");
                            let word = VersionWord::new(Tick(tick), writer, slot, state);
                            let covered = known.covers(word) && word.is_live();
                            let quick = known.covers_live(word);
                            assert!(covered || !quick, "{word:?} seen from {base}");
                            // Half of all bases are too near to a wrap of the word's ticks.
                            assert!(quick == covered || base % wrap > wrap / 3, "{word:?} seen from {base}");
                        }
                    }
                }
            }
        }
    }
}
