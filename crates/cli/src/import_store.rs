//! The importer's view of a store, so that it can be tested without one on a medium.

use anyhow::Result;

/// Keys and values in order, with explicit durability, and a few marks beside them.
pub trait ImportStore {
    /// Inserts or replaces. Ordered before every later change of this thread, durable after [`sync`](Self::sync).
    /// Returns whether a value was replaced.
    fn insert(&self, key: &[u8], value: &[u8]) -> Result<bool>;

    /// Waits until every earlier change of this thread is durable.
    fn sync(&self) -> Result<()>;

    /// Fails when the stored data can no longer be found under its name. It would be lost with the process.
    fn verify(&self) -> Result<()> {
        Ok(())
    }

    /// The mark `name`.
    fn mark(&self, name: &str) -> Result<Option<Vec<u8>>>;

    /// Sets the mark `name`. It is ordered after every earlier change, so a durable mark proves them durable.
    fn set_mark(&self, name: &str, mark: &[u8]) -> Result<()>;

    /// Removes the mark `name`.
    fn clear_mark(&self, name: &str) -> Result<()>;

    /// Longest key and value that [`insert`](Self::insert) takes.
    fn limits(&self) -> (usize, usize);
}

#[cfg(test)]
pub mod memory {
    //! A store in memory that can "lose power": changes that were not synced are gone.

    use std::cell::RefCell;
    use std::collections::BTreeMap;

    use super::{ImportStore, Result};

    type Map = BTreeMap<Vec<u8>, Vec<u8>>;

    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    struct State {
        rows: Map,
        marks: BTreeMap<String, Vec<u8>>,
    }

    /// A [`ImportStore`] whose every change fails after a number of them.
    #[derive(Debug, Default)]
    pub struct MemoryStore {
        /// One state per change: a crash may leave any from the last synced one on.
        history: RefCell<Vec<State>>,
        durable: RefCell<usize>,
        changes_left: RefCell<Option<usize>>,
    }

    impl MemoryStore {
        /// Lets `count` more changes or syncs succeed. The next one fails.
        pub fn fail_after(&self, count: usize) {
            *self.changes_left.borrow_mut() = Some(count);
        }

        /// The rows.
        pub fn rows(&self) -> Map {
            self.newest().rows
        }

        /// Number of marks.
        pub fn marks(&self) -> usize {
            self.newest().marks.len()
        }

        /// The state after a crash: that of the last sync, and `further` of the changes after it.
        pub fn crash(&self, further: usize) -> Self {
            let history = self.history.borrow();
            let at = (*self.durable.borrow() + further).min(history.len());
            let state = if at == 0 { State::default() } else { history[at - 1].clone() };
            Self { history: RefCell::new(vec![state]), durable: RefCell::new(1), changes_left: RefCell::new(None) }
        }

        fn newest(&self) -> State {
            self.history.borrow().last().cloned().unwrap_or_default()
        }

        fn step(&self) -> Result<()> {
            if let Some(left) = self.changes_left.borrow_mut().as_mut() {
                anyhow::ensure!(*left > 0, "killed");
                *left -= 1;
            }
            Ok(())
        }

        fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> Result<R> {
            self.step()?;
            let mut state = self.newest();
            let result = change(&mut state);
            self.history.borrow_mut().push(state);
            Ok(result)
        }
    }

    impl ImportStore for MemoryStore {
        fn insert(&self, key: &[u8], value: &[u8]) -> Result<bool> {
            self.change(|state| state.rows.insert(key.to_vec(), value.to_vec()).is_some())
        }

        fn sync(&self) -> Result<()> {
            self.step()?;
            *self.durable.borrow_mut() = self.history.borrow().len();
            Ok(())
        }

        fn mark(&self, name: &str) -> Result<Option<Vec<u8>>> {
            Ok(self.newest().marks.get(name).cloned())
        }

        fn set_mark(&self, name: &str, mark: &[u8]) -> Result<()> {
            self.change(|state| state.marks.insert(name.to_owned(), mark.to_vec())).map(|_| ())
        }

        fn clear_mark(&self, name: &str) -> Result<()> {
            self.change(|state| state.marks.remove(name)).map(|_| ())
        }

        fn limits(&self) -> (usize, usize) {
            (64, 4096)
        }
    }
}
