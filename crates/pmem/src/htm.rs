//! Hardware transactional memory (HTM): that of the processor, or a model of one.
//!
//! A thread begins a transaction, loads and stores, and ends it. At the end all of its stores become visible at one
//! moment. Or the transaction is *aborted*: it had no effect, and its thread goes on where it began.
//!
//! - [`Rtm`] uses the instructions of Intel's restricted transactional memory. Few processors have them.
//! - A *model* observes the accesses and tells whether a processor would have aborted (`lodestone-media`). It has no
//!   power over memory: stores are visible at once, and an abort undoes nothing.
//!
//! So code that uses a [`HardwareTransactions`] must be correct both ways. It takes locks inside, which no thread needs
//! to see while the processor does the work, and it releases them by itself when a model aborts.
//!
//! Source: paper 3, sections 1.1 and 2.3.
#![expect(unsafe_code, reason = "transactional instructions have no safe form on stable Rust")]

use std::fmt;
use std::sync::Arc;

/// Why a hardware transaction was aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Abort {
    /// Another thread used a line of this one, and one of them stored to it.
    Conflict,
    /// The accesses do not fit into the caches that hold them until the end.
    Capacity,
    /// A line was flushed, or stored around the cache. Only a model can tell this from [`Other`](Self::Other).
    Flush,
    /// The code of the transaction gave up.
    Explicit,
    /// An interrupt, a system call, a page fault or an instruction that is not allowed.
    Other,
}

impl Abort {
    /// All reasons, for tables.
    pub const ALL: [Self; 5] = [Self::Conflict, Self::Capacity, Self::Flush, Self::Explicit, Self::Other];

    /// Whether the same transaction may succeed at once when it is tried again.
    ///
    /// ```
    /// use lodestone_pmem::htm::Abort;
    /// assert!(Abort::Conflict.may_succeed_again() && !Abort::Capacity.may_succeed_again());
    /// ```
    #[must_use]
    pub const fn may_succeed_again(self) -> bool {
        matches!(self, Self::Conflict | Self::Explicit | Self::Other)
    }

    /// Its name, in figures.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Conflict => "conflict",
            Self::Capacity => "capacity",
            Self::Flush => "flush",
            Self::Explicit => "explicit",
            Self::Other => "other",
        }
    }
}

/// Transactions of hardware, or of a model. A thread has one at a time. All methods are for transactions of the calling
/// thread, and several threads call at once.
///
/// ```
/// use lodestone_pmem::htm::{Abort, HardwareTransactions};
///
/// /// Begins when it can, and reports the counter that is raised inside.
/// fn raise(htm: &dyn HardwareTransactions, counter: &std::sync::atomic::AtomicU64) -> Result<(), Abort> {
///     htm.begin()?;
///     htm.writes(std::ptr::from_ref(counter).addr());
///     counter.store(counter.load(std::sync::atomic::Ordering::Relaxed) + 1, std::sync::atomic::Ordering::Relaxed);
///     htm.end()
/// }
/// ```
pub trait HardwareTransactions: Send + Sync + fmt::Debug {
    /// Its name, for every output.
    fn label(&self) -> String;

    /// Begins a transaction.
    ///
    /// # Errors
    /// The transaction was aborted. On a processor the call *returns a second time*: everything that the thread did
    /// since the first return is undone.
    fn begin(&self) -> Result<(), Abort>;

    /// The word at this address of DRAM is about to be loaded. For models; a processor sees it by itself.
    fn reads(&self, address: usize);

    /// The word at this address of DRAM is about to be stored to. For models.
    fn writes(&self, address: usize);

    /// Gives the transaction up for `reason`. On a processor this does not return: the call of
    /// [`begin`](Self::begin) does.
    fn abort(&self, reason: Abort);

    /// Ends the transaction. All of its stores are visible.
    ///
    /// # Errors
    /// A model found that a processor would have aborted.
    fn end(&self) -> Result<(), Abort>;
}

/// A model of transactional memory that others hand in: a name for a shared one that can be compared.
///
/// ```
/// use std::sync::Arc;
///
/// use lodestone_pmem::htm::{Abort, HardwareTransactions, HtmModel};
///
/// /// A processor that aborts everything.
/// #[derive(Debug)]
/// struct Never;
///
/// impl HardwareTransactions for Never {
///     fn label(&self) -> String {
///         "never".to_owned()
///     }
///     fn begin(&self) -> Result<(), Abort> {
///         Err(Abort::Other)
///     }
///     fn reads(&self, _: usize) {}
///     fn writes(&self, _: usize) {}
///     fn abort(&self, _: Abort) {}
///     fn end(&self) -> Result<(), Abort> {
///         Err(Abort::Other)
///     }
/// }
///
/// let model = HtmModel(Arc::new(Never));
/// assert_eq!((model.begin(), model.clone() == model), (Err(Abort::Other), true));
/// assert_ne!(model, HtmModel(Arc::new(Never)));
/// ```
#[derive(Clone, Debug)]
pub struct HtmModel(pub Arc<dyn HardwareTransactions>);

impl HardwareTransactions for HtmModel {
    fn label(&self) -> String {
        self.0.label()
    }

    fn begin(&self) -> Result<(), Abort> {
        self.0.begin()
    }

    fn reads(&self, address: usize) {
        self.0.reads(address);
    }

    fn writes(&self, address: usize) {
        self.0.writes(address);
    }

    fn abort(&self, reason: Abort) {
        self.0.abort(reason);
    }

    fn end(&self) -> Result<(), Abort> {
        self.0.end()
    }
}

impl PartialEq for HtmModel {
    /// Whether both are the same model, not an equal one.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for HtmModel {}

/// The transactional memory of this processor: Intel's RTM. A value of this type shows that there is one.
#[derive(Clone, Copy, Debug)]
pub struct Rtm(());

impl Rtm {
    /// That of this processor, if it has one. Where the vendor's microcode makes every transaction abort, there is
    /// none.
    ///
    /// ```
    /// use lodestone_pmem::htm::{Rtm, HardwareTransactions};
    /// match Rtm::detect() {
    ///     Some(rtm) => println!("transactions of the processor: {}", rtm.label()),
    ///     None => println!("this processor has no transactions"),
    /// }
    /// ```
    #[must_use]
    pub fn detect() -> Option<Self> {
        instructions::is_supported().then_some(Self(()))
    }
}

impl HardwareTransactions for Rtm {
    fn label(&self) -> String {
        "rtm".to_owned()
    }

    fn begin(&self) -> Result<(), Abort> {
        instructions::begin()
    }

    fn reads(&self, _: usize) {}

    fn writes(&self, _: usize) {}

    fn abort(&self, _: Abort) {
        instructions::abort();
    }

    fn end(&self) -> Result<(), Abort> {
        instructions::end()
    }
}

/// The meaning of an aborted transaction's status: Intel's manual, volume 1, table 16-1.
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "no other processor has this status"))]
const fn reason(status: u32) -> Abort {
    const EXPLICIT: u32 = 1;
    const CONFLICT: u32 = 1 << 2;
    const CAPACITY: u32 = 1 << 3;
    match status {
        status if status & EXPLICIT != 0 => Abort::Explicit,
        status if status & CAPACITY != 0 => Abort::Capacity,
        status if status & CONFLICT != 0 => Abort::Conflict,
        _ => Abort::Other,
    }
}

#[cfg(target_arch = "x86_64")]
mod instructions {
    //! The four instructions. Stable Rust has no intrinsics for them.
    //!
    //! Invariant: only a value of [`Rtm`](super::Rtm) leads here, and there is one only where CPUID says that the
    //! processor has the instructions.

    use std::arch::asm;

    use super::{Abort, reason};

    /// CPUID leaf 7: RTM in EBX, and "RTM always aborts" in EDX.
    pub(super) fn is_supported() -> bool {
        let leaf7 = std::arch::x86_64::__cpuid_count(7, 0);
        std::arch::x86_64::__cpuid(0).eax >= 7 && leaf7.ebx & (1 << 11) != 0 && leaf7.edx & (1 << 11) == 0
    }

    pub(super) fn begin() -> Result<(), Abort> {
        const STARTED: u32 = u32::MAX;
        let mut status = STARTED;
        // SAFETY: the processor has the instruction. On an abort it restores every register but EAX and undoes every
        // store since, also those to the stack, and goes on at the label. So the code after it meets the state in
        // which it ran the first time, but for `status`. The memory clobber keeps all accesses on their side of it.
        unsafe { asm!("xbegin 2f", "2:", inout("eax") status, options(nostack)) };
        if status == STARTED { Ok(()) } else { Err(reason(status)) }
    }

    pub(super) fn abort() {
        // SAFETY: the processor has the instruction. Outside a transaction it does nothing; inside, it undoes what the
        // thread did since `begin`, and goes on there.
        unsafe { asm!("xabort 1", options(nostack)) };
    }

    pub(super) fn end() -> Result<(), Abort> {
        let is_running: u8;
        // SAFETY: the processor has the instruction, which changes no memory. Only the flags and the output change.
        unsafe { asm!("xtest", "setnz {}", out(reg_byte) is_running, options(nostack, nomem)) };
        if is_running == 0 {
            return Err(Abort::Other);
        }
        // SAFETY: a transaction is running, outside of which the instruction would be a fault. The memory clobber keeps
        // the accesses before it inside.
        unsafe { asm!("xend", options(nostack)) };
        Ok(())
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod instructions {
    //! Other processors have none of them.

    use super::Abort;

    pub(super) fn is_supported() -> bool {
        false
    }

    pub(super) fn begin() -> Result<(), Abort> {
        Err(Abort::Other)
    }

    pub(super) fn abort() {}

    pub(super) fn end() -> Result<(), Abort> {
        Err(Abort::Other)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn a_status_has_one_reason() {
        assert_eq!(reason(0), Abort::Other, "an interrupt or a forbidden instruction");
        assert_eq!(reason(0b10), Abort::Other, "it may succeed again");
        assert_eq!(reason(0b110), Abort::Conflict);
        assert_eq!(reason(0b1000), Abort::Capacity);
        assert_eq!(reason(1 | (1 << 24)), Abort::Explicit);
        assert!(Abort::ALL.iter().all(|abort| !abort.name().is_empty()));
    }

    /// Where there are no transactions, the processor says so; where there are, they undo stores.
    #[test]
    fn an_aborted_transaction_of_the_processor_has_no_effect() {
        let Some(rtm) = Rtm::detect() else {
            let flags = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
            let has_flag = flags.split_whitespace().any(|flag| flag == "rtm");
            let always_aborts = flags.split_whitespace().any(|flag| flag == "rtm_always_abort");
            assert!(!has_flag || always_aborts, "Linux sees RTM, and we do not");
            return;
        };
        assert_eq!(rtm.end(), Err(Abort::Other), "there is no transaction");
        let counter = AtomicU64::new(0);
        let raise = |gives_up| {
            rtm.begin()?;
            counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            if gives_up {
                rtm.abort(Abort::Explicit);
            }
            rtm.end()
        };
        assert_eq!(raise(true), Err(Abort::Explicit));
        assert_eq!(counter.load(Ordering::Relaxed), 0);
        let ended = (0..1000).find(|_| raise(false).is_ok());
        assert_eq!(counter.load(Ordering::Relaxed), u64::from(ended.is_some()));
    }
}
