//! How much a transaction is protected from others.

/// How much a transaction sees of others that run at the same time, and when it meets a conflict.
///
/// In each of them a transaction sees its own changes, nothing that was not committed, and no answer that could be lost
/// is told. In each of them no update is lost: a commit never replaces a version of a row that is newer than the one
/// that the transaction saw.
///
/// | | reads | a commit with changes checks | possible anomalies |
/// | --- | --- | --- | --- |
/// | `Serializable` | the newest rows, all current at one moment | everything that was read | none |
/// | `SerializableOnSnapshot` | a snapshot | everything that was read | none |
/// | `Snapshot` | a snapshot | the rows that it changes | write skew |
/// | `ReadCommitted` | each operation anew | the rows that it changes, as it saw them last | all but lost updates |
///
/// ```
/// use lodestone_engine::{Database, DatabaseOptions, Error, Isolation, Schema, Type, row};
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("shop.pool");
/// # let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let options = DatabaseOptions { pool, log_bytes: 1 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
/// let db = Database::open_with(&path, &options)?;
/// let table = db.create_table(&Schema::new("t").column("k", Type::U64).column("v", Type::I64).key(["k"]))?;
/// db.update(|tx| table.put(tx, &row![1_u64, 1_i64]))?;
/// let old = db.begin_with(Isolation::Snapshot);
/// db.update(|tx| table.put(tx, &row![1_u64, 2_i64]))?;
/// assert_eq!(table.get(&old, &row![1_u64])?, Some(row![1_u64, 1_i64]), "as it was at the begin");
/// table.put(&old, &row![1_u64, 10_i64])?;
/// assert!(matches!(old.commit(), Err(Error::Conflict)), "another one was first");
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Isolation {
    /// As if it ran alone, in real time.
    #[default]
    Serializable,
    /// As if it ran alone. It reads a snapshot of its begin. So one that changes nothing never meets a conflict, and
    /// its place in the order is its begin. One that changes rows meets a conflict at its commit when anything that it
    /// read has changed since.
    SerializableOnSnapshot,
    /// `REPEATABLE READ` of `PostgreSQL`: it reads a snapshot of its begin. The first that commits a change of a row
    /// wins.
    Snapshot,
    /// Each operation reads what is committed when it begins. A range reads a snapshot of its own.
    ReadCommitted,
}

impl Isolation {
    /// Whether the whole transaction reads one snapshot.
    pub(crate) fn has_snapshot(self) -> bool {
        matches!(self, Self::SerializableOnSnapshot | Self::Snapshot)
    }
}
