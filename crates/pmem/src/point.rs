//! Points up to which something must be durable: taken now, waited for later, by a thread or by a task.
//!
//! In the `block` domain a point is a commit group; groups become durable in order, so points are ordered and the later
//! covers the earlier. In the other domains what is fenced is durable, and every point is reached at once.

use std::task::{Context, Poll};

use crate::addr::{PmAddr, lines_of};
use crate::error::Result;
use crate::memory::Memory;

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
/// # Ok::<(), lodestone_pmem::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct DurablePoint {
    group: u64,
}

impl Memory {
    fn point(&self, group: impl FnOnce(&crate::block::BlockDomain) -> u64) -> DurablePoint {
        DurablePoint { group: self.block().map_or(0, group) }
    }

    /// Where everything that this thread flushed is durable.
    #[must_use]
    pub fn flushed_here(&self) -> DurablePoint {
        self.point(crate::block::BlockDomain::flushed_here)
    }

    /// Where the newest flushed content of `len` bytes at `at` is durable, whichever thread flushed it.
    #[must_use]
    pub fn flushed_at(&self, at: PmAddr, len: u64) -> DurablePoint {
        self.point(|block| block.flushed_at(lines_of(at, len)))
    }

    /// Where everything is durable that any thread has flushed.
    #[must_use]
    pub fn flushed_anywhere(&self) -> DurablePoint {
        self.point(crate::block::BlockDomain::flushed_anywhere)
    }

    /// The point that a line flushed now would get, or an earlier one than it will get. Two equal ones with flushes of
    /// this thread between them: all those flushes have that point.
    #[must_use]
    #[inline]
    pub fn flushing_now(&self) -> DurablePoint {
        self.point(crate::block::BlockDomain::flushing_now)
    }

    /// Waits until `point` is reached.
    ///
    /// # Errors
    /// As [`durable`](Self::durable).
    pub fn wait_durable(&self, point: DurablePoint) -> Result<()> {
        self.pass_watch()?;
        self.block().map_or(Ok(()), |block| block.wait_for(point.group))
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
}
