//! Transactions that workloads share: loading rows, and numbering sessions.

use crate::engine::{EngineError, Result};
use crate::oltp::{Access, Table, Transaction, Worker};

/// Adds rows.
struct Insert(Vec<(Table, u64, Vec<u8>)>);

impl Transaction for Insert {
    type Out = ();

    fn run<X: Access>(&mut self, x: &mut X) -> Result<(), X::Abort> {
        self.0.iter().try_for_each(|(table, key, row)| x.insert(*table, (*key).into(), row))
    }
}

/// Adds rows in transactions of a bounded length.
pub(super) fn insert_all<W: Worker>(
    worker: &mut W,
    rows: impl IntoIterator<Item = (Table, u64, Vec<u8>)>,
) -> Result<()> {
    let mut rows = rows.into_iter();
    loop {
        let batch: Vec<_> = rows.by_ref().take(200).collect();
        if batch.is_empty() {
            return Ok(());
        }
        worker.run(&mut Insert(batch))?.ok_or_else(|| EngineError::new("a transaction of the load was cancelled"))?;
    }
}

/// Takes the next number of a session from row 0 of a table.
struct NextSession(Table);

impl Transaction for NextSession {
    type Out = u64;

    fn run<X: Access>(&mut self, x: &mut X) -> Result<u64, X::Abort> {
        let mut row = Vec::new();
        let last = match x.get_to_change(self.0, 0.into(), &mut row)? {
            true => row.first_chunk().map_or(0, |word| u64::from_le_bytes(*word)),
            false => 0,
        };
        x.put(self.0, 0.into(), &(last + 1).to_le_bytes())?;
        Ok(last + 1)
    }
}

/// The number of a new session, which `table` counts. It is at least 1.
pub(super) fn next_session<W: Worker>(worker: &mut W, table: Table) -> Result<u64> {
    worker.run(&mut NextSession(table))?.ok_or_else(|| EngineError::new("a session was cancelled"))
}
