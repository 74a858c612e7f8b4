//! Rows of a table in the order of their keys, in transactions of bounded size.

use std::ops::Bound;

use lodestone_engine::{Database, Error, Row, Table};

use super::values;

/// Rows that one transaction reads.
const BATCH: usize = 1000;

/// The rows of a range, batch after batch. Each batch is one transaction. No other process changes the pool meanwhile,
/// so batches fit together.
#[derive(Debug)]
pub struct Batches<'t> {
    database: &'t Database,
    table: &'t Table,
    range: (Bound<Row>, Bound<Row>),
    is_reversed: bool,
    left: usize,
}

impl<'t> Batches<'t> {
    /// At most `limit` rows of `range`, from its end if `is_reversed`.
    pub fn new(
        database: &'t Database,
        table: &'t Table,
        range: (Bound<Row>, Bound<Row>),
        is_reversed: bool,
        limit: usize,
    ) -> Self {
        Self { database, table, range, is_reversed, left: limit }
    }

    fn read(&self) -> Result<Vec<Row>, Error> {
        let limit = self.left.min(BATCH);
        self.database.update(|tx| {
            let rows = self.table.range(tx, self.range.clone())?;
            if self.is_reversed { rows.rev().take(limit).collect() } else { rows.take(limit).collect() }
        })
    }
}

impl Iterator for Batches<'_> {
    type Item = Result<Vec<Row>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        let rows = self.read();
        // Nothing follows an error.
        self.left = rows.as_ref().map_or(0, |rows| self.left - rows.len());
        let last = rows.as_ref().map_or(None, |rows| rows.last());
        match last {
            Some(last) => {
                let last = Bound::Excluded(values::key_of(self.table.schema(), last));
                *if self.is_reversed { &mut self.range.1 } else { &mut self.range.0 } = last;
                Some(rows)
            }
            None => rows.is_err().then_some(rows),
        }
    }
}
