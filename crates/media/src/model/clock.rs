//! Wall time for spinning: the processor's time-stamp counter, calibrated against the monotonic clock.
//!
//! 1. If the processor has an invariant counter (CPUID leaf 8000_0007h, EDX bit 8), its rate is measured once per
//!    process against `Instant` over a few milliseconds. A read of the counter then takes a few nanoseconds instead of
//!    twenty-five.
//! 2. Elsewhere `Instant` is the clock.
//!
//! Times are picoseconds since the first use in this process.
#![expect(unsafe_code, reason = "the time-stamp counter has no safe interface")]

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How long the calibration compares both clocks.
const CALIBRATION: Duration = Duration::from_millis(5);

#[derive(Debug)]
struct Calibration {
    start: Instant,
    start_ticks: u64,
    /// Picoseconds per tick; `None` without a usable counter.
    tick_ps: Option<f64>,
}

static CALIBRATED: OnceLock<Calibration> = OnceLock::new();

fn calibrated() -> &'static Calibration {
    CALIBRATED.get_or_init(|| {
        let (start, start_ticks) = (Instant::now(), ticks());
        let tick_ps = has_invariant_ticks().then(|| {
            while start.elapsed() < CALIBRATION {
                std::hint::spin_loop();
            }
            let (elapsed, passed) = (start.elapsed(), ticks().wrapping_sub(start_ticks));
            elapsed.as_nanos() as f64 * 1000.0 / passed.max(1) as f64
        });
        Calibration { start, start_ticks, tick_ps }
    })
}

/// Picoseconds since the first use.
pub(super) fn wall_ps() -> u64 {
    let calibration = calibrated();
    match calibration.tick_ps {
        // A process does not run for 213 days, times the factor that the conversion could lose.
        Some(tick_ps) => (ticks().wrapping_sub(calibration.start_ticks) as f64 * tick_ps) as u64,
        None => u64::try_from(calibration.start.elapsed().as_nanos()).unwrap_or(u64::MAX).saturating_mul(1000),
    }
}

/// Spins until `wall_ps` says at least `until_ps`.
pub(super) fn spin_until(until_ps: u64) {
    while wall_ps() < until_ps {
        std::hint::spin_loop();
    }
}

#[cfg(target_arch = "x86_64")]
fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has the instruction, and user code may execute it under Linux.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn ticks() -> u64 {
    0
}

#[cfg(target_arch = "x86_64")]
fn has_invariant_ticks() -> bool {
    use core::arch::x86_64::__cpuid;
    const LEAF: u32 = 0x8000_0007;
    const INVARIANT: u32 = 1 << 8;
    __cpuid(0x8000_0000).eax >= LEAF && __cpuid(LEAF).edx & INVARIANT != 0
}

#[cfg(not(target_arch = "x86_64"))]
fn has_invariant_ticks() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spinning_ends_no_earlier_than_asked() {
        let start_ps = wall_ps();
        spin_until(start_ps + 2_000_000);
        assert!(wall_ps() >= start_ps + 2_000_000);
    }
}
