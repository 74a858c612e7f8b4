//! Memory barriers that one thread executes for all.
//!
//! Let two threads each store a word and then load the other's. Both need a barrier between store and load, or both may
//! miss the other's store. Where one side is rare, it can execute the barrier for both: `membarrier(2)` makes every
//! running thread of the process execute one between two of its instructions. The other side then only has to stop the
//! compiler from exchanging the two.

use std::sync::OnceLock;
use std::sync::atomic::{Ordering, compiler_fence, fence};

use rustix::thread::{MembarrierCommand, membarrier};

/// Whether the kernel has the barrier that takes microseconds; it must be registered once.
fn is_expedited() -> bool {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    *REGISTERED.get_or_init(|| membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok())
}

/// Every running thread of this process executes a full barrier during the call. Where the kernel has only the plain
/// one, that takes milliseconds.
pub(crate) fn everywhere() -> rustix::io::Result<()> {
    if is_expedited() && membarrier(MembarrierCommand::PrivateExpedited).is_ok() {
        return Ok(());
    }
    membarrier(MembarrierCommand::Global)
}

/// A barrier in two halves: one is passed often and costs nothing, the other is rare and pays for both. Where the
/// kernel has no quick `membarrier(2)`, both are full barriers.
///
/// Let two threads each store a word, pass a half, and load the other's word, and let one of the halves be the rare
/// one. Then at least one thread sees the other's store.
///
/// ```
/// use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
///
/// use lodestone_pmem::AsymmetricBarrier;
///
/// let (barrier, wants, must_stop) = (AsymmetricBarrier::of_process(), AtomicBool::new(false), AtomicBool::new(false));
/// let (often, seldom) = std::thread::scope(|scope| {
///     let often = scope.spawn(|| {
///         wants.store(true, Relaxed);
///         barrier.light();
///         must_stop.load(Relaxed)
///     });
///     must_stop.store(true, Relaxed);
///     barrier.heavy().expect("it was there when it was registered");
///     let seldom = wants.load(Relaxed);
///     (often.join().expect("no panic"), seldom)
/// });
/// assert!(often || seldom);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct AsymmetricBarrier {
    is_asymmetric: bool,
}

impl AsymmetricBarrier {
    /// The halves that are right in this process: the same ones at every call.
    #[must_use]
    pub fn of_process() -> Self {
        Self { is_asymmetric: is_expedited() }
    }

    /// The half that is passed often, between its store and its load.
    #[inline(always)]
    pub fn light(self) {
        if self.is_asymmetric {
            compiler_fence(Ordering::SeqCst);
        } else {
            fence(Ordering::SeqCst);
        }
    }

    /// The rare half, between its store and its load: some microseconds.
    ///
    /// # Errors
    /// When the kernel refuses a call that it allowed before: nothing is ordered then.
    pub fn heavy(self) -> std::io::Result<()> {
        fence(Ordering::SeqCst);
        if self.is_asymmetric {
            membarrier(MembarrierCommand::PrivateExpedited)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64};
    use std::thread;

    use super::*;

    /// In each round, each thread raises its flag and looks at the other's. Returns how often neither saw the other.
    fn both_missed(rounds: u64, barrier: AsymmetricBarrier) -> u64 {
        let flags = [const { AtomicBool::new(false) }; 2];
        let [begun, done] = [const { AtomicU64::new(0) }; 2];
        let seen = AtomicBool::new(false);
        let wait = |counter: &AtomicU64, round: u64| {
            while counter.load(Ordering::Acquire) < round {
                thread::yield_now();
            }
        };
        let mut missed = 0;
        thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=rounds {
                    wait(&begun, round);
                    flags[0].store(true, Ordering::Relaxed);
                    barrier.light();
                    seen.store(flags[1].load(Ordering::Relaxed), Ordering::Relaxed);
                    done.store(round, Ordering::Release);
                }
            });
            for round in 1..=rounds {
                flags.iter().for_each(|flag| flag.store(false, Ordering::Relaxed));
                begun.store(round, Ordering::Release);
                // So that both sides meet at different places.
                (0..round % 64).for_each(|_| std::hint::spin_loop());
                flags[1].store(true, Ordering::Relaxed);
                barrier.heavy().expect("it was there when it was registered");
                let sees = flags[0].load(Ordering::Relaxed);
                wait(&done, round);
                missed += u64::from(!sees && !seen.load(Ordering::Relaxed));
            }
        });
        missed
    }

    #[test]
    fn one_of_two_sees_the_other() {
        assert_eq!(both_missed(20_000, AsymmetricBarrier::of_process()), 0);
        assert_eq!(both_missed(20_000, AsymmetricBarrier { is_asymmetric: false }), 0);
        everywhere().expect("one of the two barriers");
    }
}
