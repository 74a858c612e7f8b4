//! Reading whole tables between runs, in transactions of a bounded length.

use std::ops::{ControlFlow, Range};

use crate::engine::{EngineError, Result};
use crate::oltp::{Access, Key, Order, Table, Transaction, Worker};

/// Rows that one transaction reads.
const ROWS_MAX: usize = 2_000;

/// The next rows from a key.
struct Part {
    table: Table,
    from: (u64, String),
    to: u64,
    rows: Vec<(u64, String, Vec<u8>)>,
}

impl Transaction for Part {
    type Out = ();
    const IS_READ_ONLY: bool = true;

    fn run<X: Access>(&mut self, access: &mut X) -> Result<(), X::Abort> {
        let Self { table, from, to, rows } = self;
        rows.clear();
        let range = Key { number: from.0, text: &from.1 }..Key::from(*to);
        access.scan(*table, range, Order::Ascending, &mut |key, row| {
            rows.push((key.number, key.text.into(), row.into()));
            if rows.len() < ROWS_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })
    }
}

/// Calls `visit` with each row whose number is in `numbers`, in the order of the keys. No other thread changes the
/// table meanwhile.
///
/// # Errors
/// Those of the engine.
pub fn for_each_row<W: Worker>(
    worker: &mut W,
    table: Table,
    numbers: Range<u64>,
    mut visit: impl FnMut(Key<'_>, &[u8]),
) -> Result<()> {
    let mut part = Part { table, from: (numbers.start, String::new()), to: numbers.end, rows: Vec::new() };
    loop {
        worker.run(&mut part)?.ok_or_else(|| EngineError::new("a transaction that only reads was cancelled"))?;
        for (number, text, row) in &part.rows {
            visit(Key { number: *number, text }, row);
        }
        match part.rows.pop() {
            // The first key after this one. Where there are texts, none is empty.
            Some((number, text, _)) if part.rows.len() + 1 == ROWS_MAX => {
                part.from = if text.is_empty() { (number + 1, text) } else { (number, text + "\0") };
                part.rows.clear();
            }
            _ => return Ok(()),
        }
    }
}

/// The number of rows whose number is in `numbers`.
///
/// # Errors
/// As [`for_each_row`].
pub fn count_rows<W: Worker>(worker: &mut W, table: Table, numbers: Range<u64>) -> Result<u64> {
    let mut count = 0;
    for_each_row(worker, table, numbers, |_, _| count += 1)?;
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oltp::memory::MemoryTables;
    use crate::oltp::{OltpEngine, TableSpec};

    #[test]
    fn every_row_is_visited_once_over_many_transactions() -> Result<()> {
        let engine = MemoryTables::new(&[TableSpec::numbers("n"), TableSpec::texts("t")]);
        for number in 0..5_000_u64 {
            engine.set(Table(0), number.into(), Some(&number.to_le_bytes()));
            let text = format!("{:04}", number / 2);
            engine.set(Table(1), Key { number: number % 2, text: &text }, Some(b"x"));
        }
        let (mut worker, mut seen) = (engine.worker()?, Vec::new());
        for_each_row(&mut worker, Table(0), 3..4_990, |key, row| {
            assert_eq!(key.number.to_le_bytes(), row);
            seen.push(key.number);
        })?;
        assert!(seen.into_iter().eq(3..4_990));
        assert_eq!(count_rows(&mut worker, Table(1), 0..2)?, 5_000);
        assert_eq!(count_rows(&mut worker, Table(1), 1..2)?, 2_500);
        assert_eq!(worker.attempts(), 3 + 3 + 2);
        Ok(())
    }
}
