//! A transaction: reads of a consistent state, and changes that no other sees before its commit.

use std::cell::{RefCell, RefMut};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::commit::commit;
use crate::core::Handle;
use crate::durability::Point;
use crate::error::{Error, Result};
use crate::state::{Changes, State};
use crate::tree::{Bytes, Tree};

/// A transaction. [`Database::update`](crate::Database::update) passes one to its closure and commits it.
/// [`Database::begin`](crate::Database::begin) returns one that its user commits.
///
/// It reads its own changes first. Everything else that it reads was committed, and true at one moment. A conflict with
/// another transaction is an error of the operation that finds it, and of the commit.
///
/// Thread safety: it may move to another thread, and one thread uses it at a time. Dropping it forgets its changes.
///
/// ```
/// use lodestone_engine::{Database, DatabaseOptions, Error, Schema, Type, row};
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("shop.pool");
/// # let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let options = DatabaseOptions { pool, log_bytes: 1 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
/// let db = Database::open_with(&path, &options)?;
/// let table = db.create_table(&Schema::new("t").column("k", Type::U64).column("v", Type::I64).key(["k"]))?;
/// let (first, second) = (db.begin(), db.begin());
/// for tx in [&first, &second] {
///     assert_eq!(table.get(tx, &row![1_u64])?, None);
///     table.put(tx, &row![1_u64, 5_i64])?;
/// }
/// first.commit()?;
/// // It read that there was no row, and that is no longer true.
/// assert!(matches!(second.commit(), Err(Error::Conflict)));
/// # Ok::<(), Error>(())
/// ```
pub struct Tx {
    pub(crate) core: Handle,
    state: RefCell<Option<State>>,
}

impl fmt::Debug for Tx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tx").finish_non_exhaustive()
    }
}

impl Tx {
    pub(crate) fn new(core: Handle) -> Self {
        let state = RefCell::new(Some(core.take_state()));
        Self { core, state }
    }

    /// The state, for one operation.
    pub(crate) fn state(&self) -> RefMut<'_, State> {
        RefMut::map(self.state.borrow_mut(), |state| state.get_or_insert_with(|| self.core.take_state()))
    }

    /// The state, unless the transaction met a conflict.
    ///
    /// # Errors
    /// [`Error::Conflict`]; [`Error::Poisoned`].
    pub(crate) fn live_state(&self) -> Result<RefMut<'_, State>> {
        self.core.refuse_if_poisoned()?;
        let state = self.state();
        if state.is_doomed { Err(Error::Conflict) } else { Ok(state) }
    }

    /// The row with `key`: the own change, or else the committed row.
    pub(crate) fn get(&self, tree: &Arc<Tree>, key: &[u8]) -> Result<Option<Bytes>> {
        let mut state = self.live_state()?;
        if let Some(own) = state.changes.get(&tree.number).and_then(|changes| changes.rows.get(key)) {
            return Ok(own.clone());
        }
        state.read_key(&self.core, tree, key)
    }

    /// Sets the row with `key`, without a look at it. `None` deletes.
    pub(crate) fn set(&self, tree: &Arc<Tree>, key: Vec<u8>, payload: Option<Vec<u8>>) -> Result<()> {
        self.core.refuse_if_read_only()?;
        let mut state = self.live_state()?;
        let make = || Changes { tree: tree.clone(), rows: BTreeMap::new() };
        let changes = state.changes.entry(tree.number).or_insert_with(make);
        changes.rows.insert(key.into(), payload.map(Bytes::from));
        Ok(())
    }

    /// Commits. After `Ok` the changes survive power loss, and so does everything that the transaction read.
    ///
    /// # Errors
    /// [`Error::Conflict`]: begin again. [`Error::Full`], [`Error::TransactionTooLarge`], [`Error::Poisoned`]. Nothing
    /// has changed then. [`Error::Pool`] when the medium failed: the outcome is unknown.
    pub fn commit(self) -> Result<()> {
        let ((), point) = self.conclude(Ok(()))?;
        self.core.acknowledge(point)
    }

    /// Ends an attempt whose closure returned `outcome`. An answer is durable at the point that is returned, an error
    /// that is not a conflict on return.
    pub(crate) fn conclude<R>(&self, outcome: Result<R>) -> Result<(R, Point)> {
        // Also in place of an error, which may result from a state that never was.
        let mut state = self.live_state()?;
        let core = &*self.core;
        match outcome {
            Ok(value) => {
                let point = commit(core, &mut state)?;
                Ok((value, point))
            }
            Err(Error::Conflict) => Err(state.conflict()),
            Err(error) => {
                // An answer, which must be true and durable like any other.
                state.validate(core, None)?;
                state.settle(core)?;
                core.acknowledge(core.point_of(&state))?;
                Err(error)
            }
        }
    }

    /// Whether it changes rows.
    pub(crate) fn has_changes(&self) -> bool {
        !self.state().changes.is_empty()
    }

    /// Forgets everything, for the next attempt.
    pub(crate) fn reset(&self) {
        self.state().reset();
    }
}

impl Drop for Tx {
    fn drop(&mut self) {
        if let Some(state) = self.state.get_mut().take() {
            self.core.give_state(state);
        }
    }
}
