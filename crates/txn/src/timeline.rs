//! The timeline of an opened pool object: one place for its lives, clock, thread ids and snapshot epochs.
//!
//! Every floor that commits opens one. It holds the rules that all of them share:
//! 1. A tick is used only when it is reserved, which is persistent ([`Timeline::reserve`]).
//! 2. A version word is of this life iff its tick is one that this life has reserved ([`Timeline::is_of_this_life`]).
//! 3. After a commit that failed in the middle nothing is committed any more ([`Timeline::poison`]), and the life ends
//!    as in a crash.
//! 4. A clean close persists the last tick ([`Timeline::close`]).

use std::sync::atomic::AtomicBool;

use crossbeam_utils::CachePadded;
use lodestone_pmem::sync::atomic::{AtomicU64, Ordering};
use lodestone_pmem::sync::{Mutex, lock};
use lodestone_pmem::{Memory, planted};

use crate::clock::{Clock, ClockKind};
use crate::epochs::Epochs;
use crate::error::Result;
use crate::lives::Lives;
use crate::registry::Registry;
use crate::tick::Tick;
use crate::word::VersionWord;

/// See the module.
///
/// Thread safety: any number of threads use it.
#[derive(Debug)]
pub struct Timeline {
    memory: Memory,
    lives: Lives,
    base: Tick,
    clock: Clock,
    registry: Registry,
    epochs: Epochs,
    /// Ticks up to this one may be used.
    limit: CachePadded<AtomicU64>,
    /// The persistent clock; locked when more ticks are reserved.
    reserved: Mutex<Lives>,
    poisoned: AtomicBool,
}

impl Timeline {
    /// The timeline of the life that `lives` has begun, for `threads` thread ids.
    #[must_use]
    pub fn new(memory: &Memory, lives: Lives, kind: ClockKind, threads: u16) -> Self {
        // S12: the paper's clocks begin at 0 in every life.
        let restarts = planted::active("stm-s12") || planted::active("engine-clock-restarts");
        let base = if restarts { Tick(1) } else { lives.base() };
        Self {
            memory: memory.clone(),
            base,
            clock: Clock::new(kind, base),
            registry: Registry::new(threads, base),
            epochs: Epochs::new(threads),
            limit: CachePadded::new(AtomicU64::new(lives.limit().0)),
            reserved: Mutex::new(lives.clone()),
            poisoned: AtomicBool::new(false),
            lives,
        }
    }

    /// The lives before this one. They decide which versions count.
    #[must_use]
    #[inline]
    pub fn lives(&self) -> &Lives {
        &self.lives
    }

    /// The tick at which this life began.
    #[must_use]
    #[inline]
    pub fn base(&self) -> Tick {
        self.base
    }

    /// The source of new ticks.
    #[must_use]
    #[inline]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The thread ids.
    #[must_use]
    #[inline]
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The snapshot epochs.
    #[must_use]
    #[inline]
    pub fn epochs(&self) -> &Epochs {
        &self.epochs
    }

    /// Makes sure that `tick` may be used. The cost is one comparison, and one persisted line when a range is used up.
    ///
    /// # Errors
    /// [`Error::ClockExhausted`](crate::Error::ClockExhausted).
    #[inline]
    pub fn reserve(&self, tick: Tick) -> Result<()> {
        if tick.0 <= self.limit.load(Ordering::Acquire) { Ok(()) } else { self.reserve_more(tick) }
    }

    #[cold]
    fn reserve_more(&self, tick: Tick) -> Result<()> {
        let mut lives = lock(&self.reserved);
        lives.reserve(&self.memory, tick)?;
        self.limit.store(lives.limit().0, Ordering::Release);
        Ok(())
    }

    /// Whether `word` is of this life, that is, of a tick that this life has reserved. A version word has no checksum:
    /// the bytes of a damaged line pass this test with a chance of one in 2^23.
    #[must_use]
    #[inline]
    pub fn is_of_this_life(&self, word: VersionWord) -> bool {
        // The limit is loaded after the word: the thread that published the word had reserved its tick.
        let reserved = self.limit.load(Ordering::Acquire).saturating_sub(self.base.0);
        word.ticks_since(self.base) <= reserved
    }

    /// Ends all commits: one failed in the middle, so a later one could build on what a crash takes back.
    pub fn poison(&self) {
        self.poisoned.store(true, std::sync::atomic::Ordering::Relaxed);
    }

    /// Whether a commit failed in the middle.
    #[must_use]
    #[inline]
    pub fn is_poisoned(&self) -> bool {
        self.poisoned.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Ends the life in order, unless it is poisoned or the pool is open read-only. No transaction may run.
    pub fn close(&self) {
        if self.memory.is_read_only() || self.is_poisoned() {
            return;
        }
        let last = self.clock.now().unwrap_or_else(|| self.registry.latest());
        lock(&self.reserved).close(&self.memory, last);
    }
}
