//! The ticket of a transaction of this crate.

use crate::error::Error;

/// A committed transaction that may not be durable yet. See [`Stm::update_async`](crate::Stm::update_async).
///
/// A thread waits with [`durable`](lodestone_txn::Ticket::durable), a task with `ticket.await` on any executor. A
/// transaction whose ticket is dropped becomes durable with a later one, or with
/// [`Stm::snapshot`](crate::Stm::snapshot), which waits for all of them.
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
pub type Ticket<R> = lodestone_txn::Ticket<R, Error>;
