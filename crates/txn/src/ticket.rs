//! Acknowledgement separate from the commit: a ticket waits until the transaction is durable, as a thread or as a task.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

use lodestone_pmem::{DurablePoint, Memory};

/// A transaction that is committed, and that may not be durable yet. Each engine returns it with its own error type
/// `E`.
///
/// A thread waits with [`durable`](Self::durable), a task with `ticket.await` on any executor. Nothing here needs a
/// runtime, and no thread waits for a task.
///
/// ```
/// # use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
/// use lodestone_pmem::Error;
/// use lodestone_txn::Ticket;
/// # let folder = tempfile::tempdir().unwrap();
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let pool = Pool::create(folder.path().join("a.pool"), &options)?;
/// # let memory = pool.memory();
/// // A commit flushed something, and answers 5.
/// let ticket: Ticket<u64, Error> = Ticket::new(memory.clone(), memory.flushed_here(), 5);
/// assert!(*ticket.value() == 5 && ticket.is_durable());
/// assert_eq!(ticket.durable()?, 5);
/// # Ok::<(), Error>(())
/// ```
#[must_use = "the transaction is acknowledged by `durable` or `await`"]
pub struct Ticket<R, E> {
    memory: Memory,
    point: DurablePoint,
    value: R,
    error: PhantomData<fn() -> E>,
}

impl<R: fmt::Debug, E> fmt::Debug for Ticket<R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").field("point", &self.point).field("value", &self.value).finish_non_exhaustive()
    }
}

impl<R, E: From<lodestone_pmem::Error>> Ticket<R, E> {
    /// A transaction with the result `value` that is durable at `point`.
    pub fn new(memory: Memory, point: DurablePoint, value: R) -> Self {
        Self { memory, point, value, error: PhantomData }
    }

    /// The result of the transaction. Do not pass it to the outside before [`durable`](Self::durable).
    pub fn value(&self) -> &R {
        &self.value
    }

    /// The result of the transaction, without waiting. The transaction becomes durable with a later one.
    pub fn into_value(self) -> R {
        self.value
    }

    /// Whether the transaction, and everything that it saw, survives power loss by now. It does not wait, and asks for
    /// no sync.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.memory.is_durable(self.point)
    }

    /// Waits until the transaction, and everything that it saw, survives power loss.
    ///
    /// # Errors
    /// When the medium failed. Then the transaction may be lost.
    pub fn durable(self) -> Result<R, E> {
        self.memory.wait_durable(self.point)?;
        Ok(self.value)
    }
}

impl<R, E: From<lodestone_pmem::Error>> IntoFuture for Ticket<R, E> {
    type Output = Result<R, E>;
    type IntoFuture = Acknowledgement<R, E>;

    fn into_future(self) -> Acknowledgement<R, E> {
        Acknowledgement { memory: self.memory, point: self.point, value: Some(self.value), error: PhantomData }
    }
}

/// The future of a [`Ticket`]: ready when the transaction survives power loss. In the `block` domain the thread that
/// commits the group wakes its task. The pool's background thread commits at once when a task waits. In the other
/// domains it is ready at once.
#[must_use = "futures do nothing unless they are awaited"]
pub struct Acknowledgement<R, E> {
    memory: Memory,
    point: DurablePoint,
    value: Option<R>,
    error: PhantomData<fn() -> E>,
}

impl<R: fmt::Debug, E> fmt::Debug for Acknowledgement<R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acknowledgement")
            .field("point", &self.point)
            .field("value", &self.value)
            .finish_non_exhaustive()
    }
}

/// The value is never pinned.
impl<R, E> Unpin for Acknowledgement<R, E> {}

impl<R, E: From<lodestone_pmem::Error>> Future for Acknowledgement<R, E> {
    type Output = Result<R, E>;

    /// # Panics
    /// When it was ready before.
    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Result<R, E>> {
        match self.memory.poll_durable(self.point, task) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(error)) => Poll::Ready(Err(error.into())),
            Poll::Ready(Ok(())) => {
                Poll::Ready(Ok(self.value.take().expect("a future is not asked again when it was ready")))
            }
        }
    }
}
