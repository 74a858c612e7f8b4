//! A transaction: reads of a consistent state, and changes that no other sees before its commit.

use std::cell::{Cell, RefCell, RefMut};
use std::fmt;
use std::sync::Arc;

use lodestone_txn::RowWord;

use crate::catalog::Definition;
use crate::commit::commit;
use crate::core::Handle;
use crate::durability::Point;
use crate::error::{Error, Result};
use crate::isolation::Isolation;
use crate::load::{LoadedTable, Pending};
use crate::savepoint::Savepoint;
use crate::snapshot::Cut;
use crate::state::State;
use crate::ticket::Ticket;
use crate::tree::{Bytes, Slot, Tree};

/// A transaction. [`Database::update`](crate::Database::update) passes one to its closure and commits it.
/// [`Database::begin`](crate::Database::begin) returns one that its user commits.
///
/// It reads its own changes first. Everything else that it reads was committed, and true at one moment. A conflict with
/// another transaction is an error of the operation that finds it, and of the commit. [`Isolation`] has levels that
/// promise less.
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
    isolation: Cell<Isolation>,
    state: RefCell<Option<State>>,
    /// Loads that it gives to tables.
    loads: RefCell<Vec<LoadedTable>>,
}

impl fmt::Debug for Tx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tx").finish_non_exhaustive()
    }
}

impl Tx {
    pub(crate) fn new(core: Handle, isolation: Isolation) -> Self {
        let mut state = core.take_state();
        state.begin(&core, isolation);
        Self { core, isolation: Cell::new(isolation), state: RefCell::new(Some(state)), loads: RefCell::default() }
    }

    /// Its level.
    #[must_use]
    pub fn isolation(&self) -> Isolation {
        self.isolation.get()
    }

    /// Makes the rest of the transaction serializable: from here on its commit validates everything that it reads,
    /// also ranges. Its earlier reads keep the level that it had. For a change that depends on all rows of a table,
    /// such as a definition.
    ///
    /// # Errors
    /// [`Error::Conflict`]; [`Error::Poisoned`].
    ///
    /// ```
    /// use lodestone_engine::{Database, DatabaseOptions, Error, Isolation, Schema, Type, row};
    /// # use lodestone_pmem::{DomainChoice, PoolOptions};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("shop.pool");
    /// # let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
    /// # let options =
    /// #     DatabaseOptions { pool, log_bytes: 1 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
    /// let db = Database::open_with(&path, &options)?;
    /// let table = db.create_table(&Schema::new("t").column("k", Type::U64).key(["k"]))?;
    /// let tx = db.begin_with(Isolation::ReadCommitted);
    /// tx.serialize()?;
    /// assert_eq!(table.range(&tx, ..)?.count(), 0);
    /// table.put(&tx, &row![1_u64])?;
    /// db.update(|tx| table.put(tx, &row![2_u64]))?;
    /// assert!(matches!(tx.commit(), Err(Error::Conflict)), "it has counted the rows");
    /// # Ok::<(), Error>(())
    /// ```
    pub fn serialize(&self) -> Result<()> {
        let mut state = self.live_state()?;
        state.serialize(&self.core)?;
        self.isolation.set(state.isolation());
        Ok(())
    }

    /// The state, for one operation.
    pub(crate) fn state(&self) -> RefMut<'_, State> {
        RefMut::map(self.state.borrow_mut(), |state| state.get_or_insert_with(|| self.core.take_state()))
    }

    /// A snapshot for one statement, where each has its own.
    pub(crate) fn statement(&self) -> Option<Cut> {
        (self.isolation.get() == Isolation::ReadCommitted).then(|| Cut::new(self.core.clone()))
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

    /// As [`get`](Self::get), for some columns: see [`State::read_columns`].
    pub(crate) fn get_columns(
        &self,
        tree: &Arc<Tree>,
        key: &[u8],
        columns: (&Arc<Definition>, &[usize]),
    ) -> Result<Option<Bytes>> {
        let mut state = self.live_state()?;
        if let Some(own) = state.changes.get(&tree.number).and_then(|changes| changes.rows.get(key)) {
            return Ok(own.clone());
        }
        state.read_columns(&self.core, tree, key, columns)
    }

    /// As [`get`](Self::get), at the moment of a statement.
    pub(crate) fn get_at(&self, cut: &Cut, tree: &Arc<Tree>, key: &[u8]) -> Result<Option<Bytes>> {
        let mut state = self.live_state()?;
        if let Some(own) = state.changes.get(&tree.number).and_then(|changes| changes.rows.get(key)) {
            return Ok(own.clone());
        }
        let found = cut.read(tree, key)?;
        Ok(state.accept_for_statement(tree, &key.into(), found))
    }

    /// The slot of the row with `key`, and the version that the transaction read. `None`: there is no such row.
    pub(crate) fn version_of(&self, tree: &Arc<Tree>, key: &[u8]) -> Result<Option<(Arc<Slot>, RowWord)>> {
        self.live_state()?.version_of(&self.core, tree, key)
    }

    /// Sets the row with `key`, without a look at it. `None` deletes.
    pub(crate) fn set(&self, tree: &Arc<Tree>, key: Vec<u8>, payload: Option<Vec<u8>>) -> Result<()> {
        self.core.refuse_if_read_only()?;
        self.live_state()?.set(tree, key.into(), payload.map(Bytes::from));
        Ok(())
    }

    /// A point to which the changes can be [rolled back](Self::rollback_to). They nest to any depth.
    ///
    /// # Errors
    /// [`Error::Conflict`]; [`Error::Poisoned`].
    ///
    /// ```
    /// use lodestone_engine::{Database, DatabaseOptions, Error, Schema, Type, row};
    /// # use lodestone_pmem::{DomainChoice, PoolOptions};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("shop.pool");
    /// # let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
    /// # let options =
    /// #     DatabaseOptions { pool, log_bytes: 1 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
    /// let db = Database::open_with(&path, &options)?;
    /// let table = db.create_table(&Schema::new("t").column("k", Type::U64).key(["k"]))?;
    /// db.update(|tx| {
    ///     table.put(tx, &row![1_u64])?;
    ///     let before = tx.savepoint()?;
    ///     table.delete(tx, &row![1_u64])?;
    ///     table.put(tx, &row![2_u64])?;
    ///     tx.rollback_to(before)?;
    ///     table.put(tx, &row![3_u64])?;
    ///     tx.release(before)?;
    ///     assert!(matches!(tx.rollback_to(before), Err(Error::NoSavepoint)));
    ///     Ok(())
    /// })?;
    /// let rows = db.update(|tx| table.range(tx, ..)?.collect::<Result<Vec<_>, _>>())?;
    /// assert_eq!(rows, [row![1_u64], row![3_u64]]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn savepoint(&self) -> Result<Savepoint> {
        let number = self.core.next_savepoint();
        Ok(self.live_state()?.savepoints.open(number))
    }

    /// Takes back all changes since `savepoint`, and ends all later savepoints. It stays itself. Reads are not
    /// forgotten: the commit validates them all.
    ///
    /// # Errors
    /// [`Error::NoSavepoint`] if it has ended, or is of another transaction. As [`savepoint`](Self::savepoint).
    pub fn rollback_to(&self, savepoint: Savepoint) -> Result<()> {
        self.live_state()?.roll_back(savepoint).ok_or(Error::NoSavepoint)
    }

    /// Ends `savepoint` and all later ones. The changes since then stay.
    ///
    /// # Errors
    /// As [`rollback_to`](Self::rollback_to).
    pub fn release(&self, savepoint: Savepoint) -> Result<()> {
        self.live_state()?.savepoints.release(savepoint).ok_or(Error::NoSavepoint)
    }

    /// Commits. After `Ok` the changes survive power loss, and so does everything that the transaction read.
    ///
    /// # Errors
    /// [`Error::Conflict`]: begin again. [`Error::Full`], [`Error::TransactionTooLarge`], [`Error::Poisoned`]. Nothing
    /// has changed then. [`Error::Pool`] when the medium failed: the outcome is unknown.
    pub fn commit(self) -> Result<()> {
        self.conclude(Ok(()))
    }

    /// As [`commit`](Self::commit), but returns when the transaction is ordered: others see it, and no transaction that
    /// depends on it survives without it. The ticket waits until it is durable. In the block domain that is when its
    /// commit group is; in the others it is so already.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    ///
    /// ```
    /// use lodestone_engine::{Database, DatabaseOptions, Error, Schema, Type, row};
    /// # use lodestone_pmem::{DomainChoice, PoolOptions};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("shop.pool");
    /// # let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
    /// # let options =
    /// #     DatabaseOptions { pool, log_bytes: 1 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
    /// let db = Database::open_with(&path, &options)?;
    /// let table = db.create_table(&Schema::new("t").column("k", Type::U64).key(["k"]))?;
    /// let tx = db.begin();
    /// table.put(&tx, &row![1_u64])?;
    /// let ticket = tx.commit_async()?;
    /// ticket.durable()?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn commit_async(self) -> Result<Ticket<()>> {
        self.conclude_async(Ok(()))
    }

    /// A ticket for what the transaction has read so far: an answer in the middle of it waits for that. The transaction
    /// goes on.
    ///
    /// # Errors
    /// [`Error::Conflict`]; [`Error::Poisoned`].
    ///
    /// ```
    /// use lodestone_engine::{Database, DatabaseOptions, Error, Schema, Type, row};
    /// # use lodestone_pmem::{DomainChoice, PoolOptions};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("shop.pool");
    /// # let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
    /// # let options =
    /// #     DatabaseOptions { pool, log_bytes: 1 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
    /// let db = Database::open_with(&path, &options)?;
    /// let table = db.create_table(&Schema::new("t").column("k", Type::U64).key(["k"]))?;
    /// let first = db.update_async(|tx| table.put(tx, &row![1_u64]))?;
    /// let tx = db.begin();
    /// assert!(table.get(&tx, &row![1_u64])?.is_some());
    /// tx.seen()?.durable()?; // from here on the outside may be told of the row
    /// assert!(first.is_durable());
    /// tx.commit()?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn seen(&self) -> Result<Ticket<()>> {
        let state = self.live_state()?;
        state.settle(&self.core)?;
        Ok(Ticket::new(&self.core, self.core.seen_point(&state), ()))
    }

    /// Ends an attempt whose closure returned `outcome`. Its answer is durable.
    pub(crate) fn conclude<R>(&self, outcome: Result<R>) -> Result<R> {
        let (value, point) = self.order(outcome)?;
        self.core.acknowledge(point)?;
        Ok(value)
    }

    /// As [`conclude`](Self::conclude), with a ticket for the answer.
    pub(crate) fn conclude_async<R>(&self, outcome: Result<R>) -> Result<Ticket<R>> {
        let (value, point) = self.order(outcome)?;
        Ok(Ticket::new(&self.core, point, value))
    }

    /// Ends an attempt, and returns where its answer is durable. An error that is no conflict is durable on return.
    fn order<R>(&self, outcome: Result<R>) -> Result<(R, Point)> {
        let loads = std::mem::take(&mut *self.loads.borrow_mut());
        if loads.is_empty() {
            return self.order_rows(outcome);
        }
        let loads = Pending::of(self, loads)?;
        let outcome = self.order_rows(outcome);
        loads.settle(&outcome);
        outcome
    }

    fn order_rows<R>(&self, outcome: Result<R>) -> Result<(R, Point)> {
        // Also in place of an error, which may result from a state that never was.
        let mut state = self.live_state()?;
        let core = &*self.core;
        match outcome {
            Ok(value) => {
                let point = commit(core, &mut state)?;
                if state.changes.is_empty() {
                    state.counts().read_only(1)
                } else {
                    state.counts().commits(1)
                }
                state.made.clear();
                let dropped = std::mem::take(&mut state.dropped);
                drop(state);
                if !dropped.is_empty() {
                    crate::define::forget(&self.core, dropped);
                }
                Ok((value, point))
            }
            Err(Error::Conflict | Error::SnapshotTooOld) => Err(state.conflict()),
            Err(error) => {
                // An answer, which must be true and durable like any other.
                state.validate(core, None)?;
                state.settle(core)?;
                core.acknowledge(core.seen_point(&state))?;
                state.counts().cancelled(1);
                Err(error)
            }
        }
    }

    /// Whether it changes rows.
    pub(crate) fn has_changes(&self) -> bool {
        !self.state().changes.is_empty()
    }

    /// Whether it changes the row with `key` of a tree.
    pub(crate) fn changes_key(&self, tree: u32, key: &[u8]) -> bool {
        self.state().changes.get(&tree).is_some_and(|changes| changes.rows.contains_key(key))
    }

    /// Whether it changes rows of a tree.
    pub(crate) fn changes_tree(&self, tree: u32) -> bool {
        self.state().changes.get(&tree).is_some_and(|changes| !changes.rows.is_empty())
    }

    /// It gives a table the rows of a load.
    ///
    /// # Errors
    /// [`Error::LoadBesideTables`].
    pub(crate) fn note_load(&self) -> Result<()> {
        if self.makes_trees()? {
            return Err(Error::LoadBesideTables);
        }
        self.live_state()?.has_load = true;
        Ok(())
    }

    /// Keeps a load that it gives to a table until it ends.
    pub(crate) fn keep_load(&self, load: LoadedTable) {
        self.loads.borrow_mut().push(load);
    }

    /// Whether it gives a table the rows of a load.
    pub(crate) fn has_load(&self) -> bool {
        self.state().has_load
    }

    /// Whether it makes or changes tables or indexes. Then no load can begin before it ends: both take numbers of
    /// trees.
    ///
    /// # Errors
    /// [`Error::Conflict`]; [`Error::Poisoned`].
    pub fn makes_trees(&self) -> Result<bool> {
        let defines = self.live_state()?.defines;
        Ok(defines || crate::catalog::takes_numbers(&crate::catalog::table(&self.core)?, self)?)
    }

    /// It defines tables.
    pub(crate) fn note_definition(&self) -> Result<()> {
        self.live_state()?.defines = true;
        Ok(())
    }

    /// Forgets everything, for the next attempt.
    pub(crate) fn reset(&self) {
        self.loads.borrow_mut().clear();
        let mut state = self.state();
        self.core.forget_trees(&std::mem::take(&mut state.made));
        state.reset();
        state.begin(&self.core, self.isolation.get());
        state.counts().retries(1);
    }
}

impl Drop for Tx {
    fn drop(&mut self) {
        if let Some(mut state) = self.state.get_mut().take() {
            // Trees of tables that were not committed: no other transaction knows them.
            let made = std::mem::take(&mut state.made);
            if !made.is_empty() {
                self.core.forget_trees(&made);
            }
            self.core.give_state(state);
        }
    }
}
