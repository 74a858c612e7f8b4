//! The ticket of a transaction of this crate.

use crate::error::Error;

/// A transaction that is ordered, and that may not be durable yet. See
/// [`Database::update_async`](crate::Database::update_async) and [`Tx::commit_async`](crate::Tx::commit_async).
///
/// A thread waits with [`durable`](lodestone_txn::Ticket::durable), a task with `ticket.await` on any executor. A
/// transaction that only read has one as well: it waits until the newest version that it saw is durable.
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
///     ticket.durable()?; // from here on the outside may be told
/// }
/// # Ok::<(), Error>(())
/// ```
pub type Ticket<R> = lodestone_txn::Ticket<R, Error>;
