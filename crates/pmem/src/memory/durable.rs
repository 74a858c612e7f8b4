//! Waiting for durability: there is one thing to wait for, a [`DurablePoint`].
//!
//! 1. *Take a point*: of this thread's flushes (`flushed_here`), of some bytes whichever thread flushed them
//!    (`flushed_at`), or of everything (`flushed_anywhere`).
//! 2. *Wait for it*, now or later: as a thread (`wait_durable`) or as a task (`poll_durable`). A reader waits for the
//!    bytes that its answer rests on, before it answers the outside.
//!
//! [`Memory::durable`] does both for the calling thread. It is the call that the explorer records.
//!
//! In the `block` domain a point is a commit group. Groups become durable in order, so points are ordered and the later
//! covers the earlier. In the other domains fenced lines are durable, and every point is reached at once.

use std::panic::Location;
use std::task::{Context, Poll};

use super::Memory;
use crate::addr::{PmAddr, lines_of};
use crate::block::BlockDomain;
use crate::error::Result;
use crate::watch::Watch;

/// A point in the order in which flushed lines become durable. The default is reached from the beginning.
///
/// ```
/// use lodestone_pmem::{DomainChoice, PmAddr, Pool, PoolOptions};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.pool");
/// let options = PoolOptions { domain: DomainChoice::Block, ..PoolOptions::default() };
/// let pool = Pool::create(&path, &options)?;
/// let (memory, at) = (pool.memory(), pool.heap_area(0).0);
/// memory.store(at, 7);
/// memory.persist(at, 8);
/// let point = memory.flushed_here();
/// // Something else meanwhile; then, before anybody is told:
/// memory.wait_durable(point)?;
/// assert!(memory.is_durable(point));
/// # Ok::<(), lodestone_pmem::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct DurablePoint {
    group: u64,
}

impl Memory {
    /// Waits until everything this thread flushed and fenced would survive power loss (in the `process` domain: the
    /// death of the process). After `Ok` it may be acknowledged to the outside. The short form of
    /// [`wait_durable`](Self::wait_durable) for [`flushed_here`](Self::flushed_here).
    ///
    /// # Errors
    /// [`Error::Poisoned`](crate::Error::Poisoned) in the `block` domain when a journal write or sync failed: the data
    /// may be lost. [`Error::Changed`](crate::Error::Changed) when a file of the pool was deleted: all of it is lost
    /// when the pool is closed. That is noticed after some thousand calls at the latest.
    /// [`Pool::verify_linked`](crate::Pool::verify_linked) looks at once.
    #[inline]
    #[track_caller]
    pub fn durable(&self) -> Result<()> {
        self.hook_durable(Location::caller());
        self.wait_durable(self.flushed_here())
    }

    #[inline]
    fn point(&self, group: impl FnOnce(&BlockDomain) -> u64) -> DurablePoint {
        DurablePoint { group: self.block().map_or(0, group) }
    }

    /// Where everything that this thread flushed is durable.
    #[must_use]
    #[inline]
    pub fn flushed_here(&self) -> DurablePoint {
        self.point(BlockDomain::flushed_here)
    }

    /// Where the newest flushed content of `len` bytes at `at` is durable, whichever thread flushed it.
    #[must_use]
    #[inline]
    pub fn flushed_at(&self, at: PmAddr, len: u64) -> DurablePoint {
        self.point(|block| block.flushed_at(lines_of(at, len)))
    }

    /// Where everything is durable that any thread has flushed.
    #[must_use]
    pub fn flushed_anywhere(&self) -> DurablePoint {
        self.point(BlockDomain::flushed_anywhere)
    }

    /// The point that a line flushed now would get, or an earlier one than it will get. Two equal ones with flushes of
    /// this thread between them: all those flushes have that point.
    #[must_use]
    #[inline]
    pub fn flushing_now(&self) -> DurablePoint {
        self.point(BlockDomain::flushing_now)
    }

    /// Waits until `point` is reached.
    ///
    /// # Errors
    /// As [`durable`](Self::durable).
    #[inline]
    pub fn wait_durable(&self, point: DurablePoint) -> Result<()> {
        self.pass_watch()?;
        self.block().map_or(Ok(()), |block| block.wait_for(point.group))
    }

    /// Waits until `point` is reached and, in the `block` domain, until the file has everything up to it: whatever
    /// becomes of the journal. Lines that were [discarded](Self::discard) are left out.
    ///
    /// ```
    /// use lodestone_pmem::{Memory, PmAddr};
    /// let memory = Memory::anonymous(1 << 20)?;
    /// let at = PmAddr::new(0, 4096);
    /// memory.store(at, 7);
    /// memory.persist(at, 8);
    /// memory.leave_journal(memory.flushed_here())?;
    /// # Ok::<(), lodestone_pmem::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`durable`](Self::durable).
    pub fn leave_journal(&self, point: DurablePoint) -> Result<()> {
        self.wait_durable(point)?;
        self.block().map_or(Ok(()), |block| block.checkpoint_upto(point.group))
    }

    /// Whether the file has everything up to `point`: see [`leave_journal`](Self::leave_journal). It does not wait. In
    /// domains without a journal it is always so.
    ///
    /// ```
    /// use lodestone_pmem::{Memory, PmAddr};
    /// let memory = Memory::anonymous(1 << 20)?;
    /// memory.persist(PmAddr::new(0, 4096), 8);
    /// assert!(memory.has_left_journal(memory.flushed_here()));
    /// # Ok::<(), lodestone_pmem::Error>(())
    /// ```
    #[must_use]
    pub fn has_left_journal(&self, point: DurablePoint) -> bool {
        self.block().is_none_or(|block| block.has_left(point.group))
    }

    /// Whether `point` is reached, without waiting, and without asking for a commit. `false` for ever when the medium
    /// has failed before: [`wait_durable`](Self::wait_durable) then returns the error.
    #[must_use]
    pub fn is_durable(&self, point: DurablePoint) -> bool {
        self.block().is_none_or(|block| block.is_on_disk(point.group))
    }

    /// Whether `point` is reached; if not, the task of `task` is woken when it is, or when the medium has failed. No
    /// thread waits meanwhile: the pool's background thread commits. A memory without one (tests) makes the caller
    /// wait.
    ///
    /// # Errors
    /// As [`durable`](Self::durable).
    pub fn poll_durable(&self, point: DurablePoint, task: &mut Context<'_>) -> Poll<Result<()>> {
        if let Err(error) = self.pass_watch() {
            return Poll::Ready(Err(error));
        }
        self.block().map_or(Poll::Ready(Ok(())), |block| block.poll(point.group, task.waker()))
    }

    /// From now on every wait for durability passes `watch`.
    pub(crate) fn attach_watch(&self, watch: Watch) {
        let fresh = self.inner.watch.set(watch).is_ok();
        assert!(fresh, "one watch per memory");
    }

    /// Looks once in many waits. An error when a file of the pool has lost its name.
    #[inline]
    pub(crate) fn pass_watch(&self) -> Result<()> {
        self.inner.watch.get().map_or(Ok(()), Watch::pass)
    }
}
