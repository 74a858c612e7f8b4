//! Tables are read through a transaction or a snapshot.

use std::sync::Arc;

use crate::core::Handle;
use crate::error::Result;
use crate::snapshot::{Cut, Snapshot};
use crate::tree::{Bytes, Tree};
use crate::tx::Tx;

/// A transaction or a snapshot: what [`Table::get`](crate::Table::get) and [`Table::range`](crate::Table::range) read
/// through. Only this crate implements it.
///
/// ```
/// use lodestone_engine::{Database, DatabaseOptions, Error, Reader, Result, Schema, Table, Type, row};
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("shop.pool");
/// # let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let options = DatabaseOptions { pool, log_bytes: 1 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
/// fn count(table: &Table, reader: &impl Reader) -> Result<usize> {
///     table.range(reader, ..)?.try_fold(0, |count, row| row.map(|_| count + 1))
/// }
///
/// let db = Database::open_with(&path, &options)?;
/// let table = db.create_table(&Schema::new("t").column("k", Type::U64).key(["k"]))?;
/// let empty = db.snapshot()?;
/// assert_eq!(db.update(|tx| table.put(tx, &row![1_u64]).and_then(|()| count(&table, tx)))?, 1);
/// assert_eq!(count(&table, &empty)?, 0);
/// # Ok::<(), Error>(())
/// ```
pub trait Reader: sealed::Sealed {}

impl Reader for Tx {}

impl Reader for Snapshot {}

mod sealed {
    use super::{Snapshot, Tx, View};

    pub trait Sealed {
        fn view(&self) -> View<'_>;
    }

    impl Sealed for Tx {
        fn view(&self) -> View<'_> {
            View::Tx(self)
        }
    }

    impl Sealed for Snapshot {
        fn view(&self) -> View<'_> {
            View::Snapshot(self)
        }
    }
}

/// A [`Reader`].
#[derive(Clone, Copy, Debug)]
pub enum View<'r> {
    Tx(&'r Tx),
    Snapshot(&'r Snapshot),
}

/// The view of `reader`.
pub fn view(reader: &impl Reader) -> View<'_> {
    reader.view()
}

impl<'r> View<'r> {
    pub fn core(self) -> &'r Handle {
        match self {
            Self::Tx(tx) => &tx.core,
            Self::Snapshot(snapshot) => snapshot.core(),
        }
    }

    /// The row with `key`.
    pub fn get(self, tree: &Arc<Tree>, key: &[u8]) -> Result<Option<Bytes>> {
        match self {
            Self::Tx(tx) => tx.get(tree, key),
            Self::Snapshot(snapshot) => snapshot.get(tree, key),
        }
    }
}

/// A view, at the moment of one statement where each has its own.
#[derive(Clone, Debug)]
pub struct Moment<'t> {
    pub view: View<'t>,
    pub statement: Option<Arc<Cut>>,
}

impl<'t> Moment<'t> {
    /// The present moment of `view`.
    pub fn of(view: View<'t>) -> Self {
        let statement = if let View::Tx(tx) = view { tx.statement().map(Arc::new) } else { None };
        Self { view, statement }
    }

    /// The row with `key`.
    pub fn get(&self, tree: &Arc<Tree>, key: &[u8]) -> Result<Option<Bytes>> {
        match (self.view, &self.statement) {
            (View::Tx(tx), Some(cut)) => tx.get_at(cut, tree, key),
            (view, _) => view.get(tree, key),
        }
    }
}
