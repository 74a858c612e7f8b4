//! Acknowledgement separate from the commit: a ticket waits until the transaction is durable, as a thread or as a task.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::task::{Context, Poll};

use lodestone_pmem::{DurablePoint, Memory};

use crate::error::Result;

/// A committed transaction that may not be durable yet. See [`Stm::update_async`](crate::Stm::update_async).
///
/// A thread waits with [`durable`](Self::durable), a task with `ticket.await` on any executor. Nothing here needs a
/// runtime, and no thread waits for a task.
///
/// ```
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # use lodestone_store::Store;
/// # use lodestone_stm::{FromBytes, Immutable, IntoBytes, KnownLayout, PmObject, Stm};
/// # #[derive(FromBytes, IntoBytes, Immutable, KnownLayout, PmObject)]
/// # #[repr(C)]
/// # struct Account { cents: u64 }
/// # let folder = tempfile::tempdir().unwrap();
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let stm = Stm::open(&Store::create(folder.path().join("bank.pool"), &options)?)?;
/// # let account = stm.root::<Account>()?;
/// let answer = async {
///     let ticket = stm.update_async(|tx| {
///         tx.write(account)?.cents += 100;
///         Ok(tx.read(account)?.cents)
///     })?;
///     // Others see it already; the outside is told when it survives power loss.
///     ticket.await
/// };
/// # fn block_on<T>(future: impl Future<Output = T>) -> T {
/// #     let mut task = std::task::Context::from_waker(std::task::Waker::noop());
/// #     let mut future = std::pin::pin!(future);
/// #     loop { if let std::task::Poll::Ready(done) = future.as_mut().poll(&mut task) { return done } }
/// # }
/// assert_eq!(block_on(answer)?, 100);
/// # Ok::<(), lodestone_stm::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "the transaction is acknowledged by `durable` or `await`"]
pub struct Ticket<R> {
    memory: Memory,
    point: DurablePoint,
    value: R,
}

impl<R> Ticket<R> {
    pub(crate) fn new(memory: Memory, point: DurablePoint, value: R) -> Self {
        Self { memory, point, value }
    }

    /// The result of the transaction. Do not pass it to the outside before [`durable`](Self::durable).
    pub fn value(&self) -> &R {
        &self.value
    }

    /// The result of the transaction, without waiting. The transaction becomes durable with a later one, or with
    /// [`Stm::snapshot`](crate::Stm::snapshot), which waits for all of them.
    pub fn into_value(self) -> R {
        self.value
    }

    /// Waits until the transaction, and everything that it saw, survives power loss.
    ///
    /// # Errors
    /// [`Error::Pool`](crate::Error::Pool) when the medium failed. Then the transaction may be lost.
    pub fn durable(self) -> Result<R> {
        self.memory.wait_durable(self.point)?;
        Ok(self.value)
    }
}

impl<R> IntoFuture for Ticket<R> {
    type Output = Result<R>;
    type IntoFuture = Acknowledgement<R>;

    fn into_future(self) -> Acknowledgement<R> {
        Acknowledgement { memory: self.memory, point: self.point, value: Some(self.value) }
    }
}

/// The future of a [`Ticket`]: ready when the transaction survives power loss. In the `block` domain the thread that
/// commits the group wakes its task. The pool's background thread commits at once when a task waits. In the other
/// domains it is ready at once.
#[derive(Debug)]
#[must_use = "futures do nothing unless they are awaited"]
pub struct Acknowledgement<R> {
    memory: Memory,
    point: DurablePoint,
    value: Option<R>,
}

/// The value is never pinned.
impl<R> Unpin for Acknowledgement<R> {}

impl<R> Future for Acknowledgement<R> {
    type Output = Result<R>;

    /// # Panics
    /// When it was ready before.
    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Result<R>> {
        match self.memory.poll_durable(self.point, task) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(error)) => Poll::Ready(Err(error.into())),
            Poll::Ready(Ok(())) => {
                Poll::Ready(Ok(self.value.take().expect("a future is not asked again when it was ready")))
            }
        }
    }
}
