//! How long a thread spins before it sleeps.
//!
//! Spinning saves the time that a wake-up takes. A thread that spins offers its processor to others now and then. On a
//! busy processor that costs a turn of another program, milliseconds, where a sleeping thread is woken at once. So an
//! offer that took long ends the spinning, and the next waits sleep early.

use std::time::{Duration, Instant};

use lodestone_pmem::sync::{SPINS_PER_YIELD, spin};

/// Turns before sleep if every agent has a processor: some tens of microseconds, the time that waking a thread takes.
const SPINS_MANY: u32 = 5_000;
/// Turns before sleep if threads share processors: a thread that spins keeps the other one from answering. The
/// processor is not offered in so few.
const SPINS_FEW: u32 = 20;
/// An offer of the processor that takes longer has cost the turn of another thread: of an own one it is shorter.
const OFFER_MAX: Duration = Duration::from_micros(500);
/// Waits that sleep early after such an offer. The next one that spins may cost a turn again.
const WAITS_EARLY: u32 = 64;

/// The turns of one thread.
#[derive(Clone, Debug)]
pub(crate) struct Patience {
    spins_max: u32,
    /// Whether offers that take long count: the number of turns is not one that was asked for.
    learns: bool,
    /// Waits that are still to sleep early.
    early: u32,
}

impl Patience {
    /// At most `asked` turns in each wait. `None`: as many as serve.
    pub(crate) fn new(asked: Option<u32>, crowded: bool) -> Self {
        let spins_max = asked.unwrap_or(if crowded { SPINS_FEW } else { SPINS_MANY });
        Self { spins_max, learns: asked.is_none(), early: 0 }
    }

    /// Whether a wait that has had `turns` has another one.
    pub(crate) fn has_more(&self, turns: u32) -> bool {
        turns < if self.early > 0 { self.spins_max.min(SPINS_FEW) } else { self.spins_max }
    }

    /// Turn number `turn` of a wait.
    pub(crate) fn spin(&mut self, turn: u32) {
        // Schedules have no time.
        if cfg!(feature = "shuttle") || !self.learns || !turn.is_multiple_of(SPINS_PER_YIELD) {
            return spin(turn);
        }
        let begun = Instant::now();
        spin(turn);
        if begun.elapsed() > OFFER_MAX {
            self.early = WAITS_EARLY;
        }
    }

    /// The wait sleeps.
    pub(crate) fn sleeps(&mut self) {
        self.early = self.early.saturating_sub(1);
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn after_a_long_offer_waits_sleep_early_for_a_while() {
        let mut patience = Patience::new(None, false);
        assert!(patience.has_more(SPINS_FEW));
        patience.early = WAITS_EARLY;
        for _ in 0..WAITS_EARLY {
            assert!(patience.has_more(SPINS_FEW - 1) && !patience.has_more(SPINS_FEW));
            patience.sleeps();
        }
        assert!(patience.has_more(SPINS_MANY - 1) && !patience.has_more(SPINS_MANY));
        assert!(!Patience::new(Some(0), false).has_more(0), "none at all");
    }
}
