//! Savepoints: changes of a transaction that are taken back, while the transaction goes on.
//!
//! While a savepoint is open, each change notes what it replaced in the write buffer: an earlier change of the same
//! row,
//! or none. A rollback takes the notes back from the last one. Nothing is noted while no savepoint is open. Reads are
//! never forgotten: the transaction goes on with what it saw, so its commit still validates them.

use crate::state::State;
use crate::tree::Bytes;

/// A point in a transaction to which it can be rolled back. See [`Tx::savepoint`](crate::Tx::savepoint).
///
/// It is a name for the point, and dropping it ends nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Savepoint(u64);

/// A change of the write buffer.
#[derive(Debug)]
struct Replaced {
    tree: u32,
    key: Bytes,
    /// The change of the row before; `None`: it had none.
    before: Option<Option<Bytes>>,
}

/// The open savepoints of a transaction, and the changes since the first of them.
#[derive(Debug, Default)]
pub struct Savepoints {
    /// With the number of changes before.
    open: Vec<(Savepoint, usize)>,
    replaced: Vec<Replaced>,
}

impl Savepoints {
    /// Forgets everything.
    pub fn clear(&mut self) {
        self.open.clear();
        self.replaced.clear();
    }

    /// Opens one, named by a number that no other one has.
    pub fn open(&mut self, number: u64) -> Savepoint {
        self.open.push((Savepoint(number), self.replaced.len()));
        Savepoint(number)
    }

    /// Notes that a row had the change `before`.
    pub fn note(&mut self, tree: u32, key: &Bytes, before: Option<Option<Bytes>>) {
        if !self.open.is_empty() {
            self.replaced.push(Replaced { tree, key: key.clone(), before });
        }
    }

    fn place(&self, savepoint: Savepoint) -> Option<usize> {
        self.open.iter().position(|(open, _)| *open == savepoint)
    }

    /// Ends the savepoint and all later ones. `None`: it had ended before.
    pub fn release(&mut self, savepoint: Savepoint) -> Option<()> {
        let place = self.place(savepoint)?;
        self.open.truncate(place);
        if self.open.is_empty() {
            self.replaced.clear();
        }
        Some(())
    }
}

impl State {
    /// Takes back the changes since `savepoint`, and ends all later ones. `None`: it had ended before.
    pub fn roll_back(&mut self, savepoint: Savepoint) -> Option<()> {
        let place = self.savepoints.place(savepoint)?;
        let first = self.savepoints.open[place].1;
        self.savepoints.open.truncate(place + 1);
        for Replaced { tree, key, before } in self.savepoints.replaced.drain(first..).rev() {
            let Some(changes) = self.changes.get_mut(&tree) else { continue };
            match before {
                Some(before) => changes.rows.insert(key, before),
                None => changes.rows.remove(&key),
            };
            if changes.rows.is_empty() {
                self.changes.remove(&tree);
            }
        }
        Some(())
    }
}
