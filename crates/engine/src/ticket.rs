//! The ticket of a transaction of this crate.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::core::Handle;
use crate::durability::Point;
use crate::error::{Error, Result};

/// A transaction that is ordered, and that may not be durable yet. See
/// [`Database::update_async`](crate::Database::update_async) and [`Tx::commit_async`](crate::Tx::commit_async).
///
/// A thread waits with [`durable`](Self::durable), a task with `ticket.await` on any executor. A
/// transaction that only read has one as well: it waits until the newest version that it saw is durable.
///
/// A waker is called by the thread that made a commit group durable, maybe in the middle of a checkpoint. So it must
/// not wait for the database. It may drop tickets and handles, also the last one.
///
/// ```
/// use lodestone_engine::{Database, DatabaseOptions, Error, Schema, Type, row};
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("shop.pool");
/// # let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let options = DatabaseOptions { pool, log_bytes: 1 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
/// let db = Database::open_with(&path, &options)?;
/// let table = db.create_table(&Schema::new("t").column("k", Type::U64).key(["k"]))?;
/// let tickets: Vec<_> =
///     (0..10_u64).map(|k| db.update_async(|tx| table.put(tx, &row![k]))).collect::<Result<_, Error>>()?;
/// // Others see all of them already. In the block domain they share a sync.
/// assert_eq!(db.update_async(|tx| Ok(table.range(tx, ..)?.count()))?.into_value(), 10);
/// for ticket in tickets {
///     if !ticket.is_durable() {
///         println!("a wait");
///     }
///     ticket.durable()?; // from here on the outside may be told
/// }
/// # Ok::<(), Error>(())
/// ```
#[must_use = "the transaction is acknowledged by `durable` or `await`"]
pub struct Ticket<R>(Kind<R>);

enum Kind<R> {
    /// Durable at a point of the pool.
    Pool(lodestone_txn::Ticket<R, Error>),
    /// Durable with an epoch of group commit.
    Epoch { core: Handle, epoch: u64, value: R },
}

impl<R: fmt::Debug> fmt::Debug for Ticket<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").field("value", self.value()).finish_non_exhaustive()
    }
}

impl<R> Ticket<R> {
    pub(crate) fn new(core: &Handle, point: Point, value: R) -> Self {
        Self(match &core.group {
            Some(_) => Kind::Epoch { core: core.clone(), epoch: point.epoch, value },
            None => Kind::Pool(lodestone_txn::Ticket::new(core.memory.clone(), point.flushed, value)),
        })
    }

    /// The result of the transaction. Do not pass it to the outside before [`durable`](Self::durable).
    pub fn value(&self) -> &R {
        match &self.0 {
            Kind::Pool(ticket) => ticket.value(),
            Kind::Epoch { value, .. } => value,
        }
    }

    /// The result of the transaction, without waiting. The transaction becomes durable with a later one.
    pub fn into_value(self) -> R {
        match self.0 {
            Kind::Pool(ticket) => ticket.into_value(),
            Kind::Epoch { value, .. } => value,
        }
    }

    /// Whether the transaction, and everything that it saw, survives power loss by now. It does not wait, and asks for
    /// no sync and no end of an epoch. `false` for ever when the medium failed before: [`durable`](Self::durable) then
    /// returns the error.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        match &self.0 {
            Kind::Pool(ticket) => ticket.is_durable(),
            Kind::Epoch { core, epoch, .. } => core.group.as_ref().is_none_or(|group| group.is_durable(*epoch)),
        }
    }

    /// Waits until the transaction, and everything that it saw, survives power loss.
    ///
    /// # Errors
    /// [`Error::Pool`] when the medium failed; [`Error::Poisoned`]. Then the transaction may be lost.
    pub fn durable(self) -> Result<R> {
        match self.0 {
            Kind::Pool(ticket) => ticket.durable(),
            Kind::Epoch { core, epoch, value } => core.wait_for(Point::of_epoch(epoch)).map(|()| value),
        }
    }
}

impl<R> IntoFuture for Ticket<R> {
    type Output = Result<R>;
    type IntoFuture = Acknowledgement<R>;

    fn into_future(self) -> Acknowledgement<R> {
        Acknowledgement(match self.0 {
            Kind::Pool(ticket) => Waiting::Pool(ticket.into_future()),
            Kind::Epoch { core, epoch, value } => Waiting::Epoch { core, epoch, value: Some(value) },
        })
    }
}

/// The future of a [`Ticket`]: ready when the transaction survives power loss.
#[must_use = "futures do nothing unless they are awaited"]
pub struct Acknowledgement<R>(Waiting<R>);

enum Waiting<R> {
    Pool(lodestone_txn::Acknowledgement<R, Error>),
    Epoch { core: Handle, epoch: u64, value: Option<R> },
}

impl<R> fmt::Debug for Acknowledgement<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acknowledgement").finish_non_exhaustive()
    }
}

/// The value is never pinned.
impl<R> Unpin for Acknowledgement<R> {}

impl<R> Future for Acknowledgement<R> {
    type Output = Result<R>;

    /// # Panics
    /// When it was ready before.
    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Result<R>> {
        match &mut self.0 {
            Waiting::Pool(future) => Pin::new(future).poll(task),
            Waiting::Epoch { core, epoch, value } => {
                let is_durable = match &core.group {
                    Some(group) => group.poll(core, *epoch, task),
                    None => Poll::Ready(Ok(())),
                };
                let mut take = || value.take().expect("a future is not asked again when it was ready");
                is_durable.map(|outcome| outcome.map(|()| take()))
            }
        }
    }
}
