//! Looks now and then, during waits for durability, whether the files of an open pool still have a name.
//!
//! A deleted file, or one that another file was renamed over, takes stores, flushes and syncs as before. All of it is
//! gone when the pool is closed, and no call fails by itself. So one in so many waits asks the kernel for the number of
//! names (one fstat(2), below a microsecond). When it is 0, that wait and every later one is refused.
//!
//! Only the number of names is looked at here: it cannot be mistaken. A file that was moved away by its name still has
//! one;
//! [`Pool::verify_linked`](crate::Pool::verify_linked) looks at names too.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::domain::Domain;
use crate::error::Result;

/// Waits between two looks in the `block` domain, where a wait takes tens of microseconds at least; and elsewhere. Odd,
/// so that a thread that waits for several pools in turn looks at each of them.
const WAITS_PER_LOOK_BLOCK: u32 = 61;
const WAITS_PER_LOOK: u32 = 4093;

thread_local! {
    /// Waits of this thread since its last look.
    static WAITS: Cell<u32> = const { Cell::new(0) };
}

/// The look at the files of one pool.
pub(crate) struct Watch {
    look: Box<dyn Fn() -> Result<()> + Send + Sync>,
    waits_per_look: u32,
    /// A look failed once.
    is_lost: AtomicBool,
}

impl Watch {
    /// A watch of a pool in `domain` that asks `look`.
    pub(crate) fn new(domain: Domain, look: Box<dyn Fn() -> Result<()> + Send + Sync>) -> Self {
        let waits_per_look = if domain == Domain::Block { WAITS_PER_LOOK_BLOCK } else { WAITS_PER_LOOK };
        Self { look, waits_per_look, is_lost: AtomicBool::new(false) }
    }

    /// The look that every wait for durability passes.
    #[inline]
    pub(crate) fn pass(&self) -> Result<()> {
        let waits = WAITS.get() + 1;
        if waits >= self.waits_per_look || self.is_lost.load(Ordering::Relaxed) {
            return self.look();
        }
        WAITS.set(waits);
        Ok(())
    }

    #[cold]
    fn look(&self) -> Result<()> {
        WAITS.set(0);
        (self.look)().inspect_err(|_| self.is_lost.store(true, Ordering::Relaxed))
    }
}
