//! Tables: rows by key, inside transactions.

use std::ops::RangeBounds;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use lodestone_pmem::PmAddr;

use crate::catalog::{self, Definition, Origin};
use crate::core::Handle;
use crate::error::{Error, Result};
use crate::index::{TableIndex, set_row};
use crate::isolation::Isolation;
use crate::large::{Before, Pieces};
use crate::payload::{self, Moved, Payload};
use crate::reader::{Moment, Reader, View, view};
use crate::rows::Rows;
use crate::schema::{Index, Schema};
use crate::tree::{Bytes, Tree};
use crate::tx::Tx;
use crate::value::{Row, Value};

/// A table as a transaction or snapshot sees it.
pub(crate) type Entered = Guard<Arc<Definition>>;

/// A table of a database. It is cheap to clone, and any number of threads may use it, each in its own transactions.
///
/// A handle stays valid when indexes are added or dropped: its changes keep the entries of all indexes that the table
/// has by then. It is refused ([`Error::TableChanged`]) when the table was dropped or renamed, or has other columns.
///
/// ```
/// use lodestone_engine::{Database, DatabaseOptions, Error, Schema, row};
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("shop.pool");
/// # let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let options = DatabaseOptions { pool, log_bytes: 1 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
/// let db = Database::open_with(&path, &options)?;
/// let orders: Schema = "orders (customer text, number u64, cents i64) key (customer, number)".parse()?;
/// let orders = db.create_table(&orders)?;
/// db.update(|tx| {
///     orders.insert(tx, &row!["alice", 1_u64, 500_i64])?; // an error if there is one
///     orders.put(tx, &row!["alice", 2_u64, 700_i64])?; // whether or not there is one
///     orders.put(tx, &row!["bob", 1_u64, 100_i64])?;
///     orders.update(tx, &row!["bob", 1_u64, 150_i64])?; // an error if there is none
///     assert_eq!(orders.get(tx, &row!["bob", 1_u64])?, Some(row!["bob", 1_u64, 150_i64]));
///     assert!(orders.delete(tx, &row!["bob", 1_u64])?);
///     // The first columns of the key are enough for a range.
///     assert_eq!(orders.range(tx, row!["alice"]..=row!["alice"])?.count(), 2);
///     Ok(())
/// })?;
/// let again = db.update(|tx| orders.insert(tx, &row!["alice", 1_u64, 0_i64]));
/// assert!(matches!(again, Err(Error::Duplicate { .. })));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Table {
    core: Handle,
    /// The table as it was when the handle was made.
    definition: Arc<Definition>,
    /// The table as a transaction saw it last by this handle or one of its clones: with other indexes perhaps.
    latest: Arc<ArcSwap<Definition>>,
    pub(crate) tree: Arc<Tree>,
    /// The pieces of long values. `None`: there are no columns for them.
    pieces: Option<Pieces>,
}

impl Table {
    pub(crate) fn new(core: &Handle, definition: Definition, tree: u32) -> Self {
        let pieces = Pieces::of(core, tree, &definition.layout);
        let tree = core.tree(tree);
        let definition = Arc::new(definition);
        let latest = Arc::new(ArcSwap::new(definition.clone()));
        Self { core: core.clone(), definition, latest, tree, pieces }
    }

    pub(crate) fn core(&self) -> &Handle {
        &self.core
    }

    pub(crate) fn definition(&self) -> &Definition {
        &self.definition
    }

    /// The index called `name`.
    ///
    /// # Errors
    /// [`Error::NoIndex`].
    pub fn index(&self, name: &str) -> Result<TableIndex> {
        let number = self.schema().indexes.iter().position(|index| index.name == name);
        let number = number.ok_or_else(|| Error::NoIndex { table: self.schema().name.clone(), index: name.into() })?;
        Ok(TableIndex::new(self.clone(), number))
    }

    /// The indexes that are being built, when the handle was made: see
    /// [`Database::create_index`](crate::Database::create_index).
    pub fn indexes_being_built(&self) -> impl Iterator<Item = &Index> {
        let all = self.definition.schema.indexes.iter().zip(&self.definition.indexes);
        all.filter(|(_, tree)| !tree.is_ready).map(|(index, _)| index)
    }

    /// Its columns, key and indexes.
    #[must_use]
    pub fn schema(&self) -> &Schema {
        &self.definition.schema
    }

    /// The row with this key, in a transaction or a snapshot.
    ///
    /// # Errors
    /// [`Error::Conflict`], or [`Error::SnapshotTooOld`]; [`Error::WrongType`] and [`Error::WrongLength`] for a key of
    /// other columns; [`Error::Damaged`].
    pub fn get(&self, reader: &impl Reader, key: &[Value]) -> Result<Option<Row>> {
        let view = view(reader);
        let (_, key) = self.key(view, key)?;
        let (payload, moment) = self.find(view, &key)?;
        payload.map(|payload| self.decode(&moment, &key, &payload)).transpose()
    }

    /// Whether a look at the row with this key would read nothing from the pool now: for figures of a cache with a
    /// bound. Values in pieces are not looked at, and a row that does not exist counts as its neighbors do. The answer
    /// is not a use of the row, and other threads may change it at once.
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
    /// let shops = db.create_table(&Schema::new("shops").column("id", Type::U64).key(["id"]))?;
    /// db.update(|tx| shops.insert(tx, &row![1_u64]))?;
    /// assert!(shops.is_in_memory(&row![1_u64])?);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::WrongType`] and [`Error::WrongLength`] for a key of other columns.
    pub fn is_in_memory(&self, key: &[Value]) -> Result<bool> {
        Ok(self.tree.is_in_memory(&self.schema().key_bytes(&self.definition.layout, key, false)?))
    }

    /// The values of `columns` in the row with this key, in that order.
    ///
    /// A serializable transaction does not conflict with others that change only other columns of the row. Use it where
    /// many transactions read a column of a row that others update, such as the tax rate beside a running sum. (Rows
    /// with values in pieces, and the key itself, are read as by [`get`](Self::get). So is every row of a snapshot.)
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
    /// let schema = Schema::new("shops").column("id", Type::U64).column("tax", Type::I64).column("sum", Type::I64);
    /// let shops = db.create_table(&schema.key(["id"]))?;
    /// let schema = Schema::new("orders").column("id", Type::U64).column("tax", Type::I64);
    /// let orders = db.create_table(&schema.key(["id"]))?;
    /// db.update(|tx| shops.put(tx, &row![1_u64, 7_i64, 0_i64]))?;
    /// let order = db.begin();
    /// let tax = shops.get_columns(&order, &row![1_u64], &["tax"])?.unwrap();
    /// // Meanwhile the sum changes.
    /// db.update(|tx| shops.put(tx, &row![1_u64, 7_i64, 100_i64]))?;
    /// orders.insert(&order, &row![1_u64, tax[0].clone()])?;
    /// order.commit()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoColumn`]. Others as [`get`](Self::get).
    pub fn get_columns(&self, reader: &impl Reader, key: &[Value], columns: &[&str]) -> Result<Option<Row>> {
        let view = view(reader);
        let (_, key) = self.key(view, key)?;
        let numbers = self.numbers(columns)?;
        let noted = match view {
            View::Tx(tx) => tx.get_columns(&self.tree, &key, (&self.definition, &numbers))?,
            View::Snapshot(snapshot) => snapshot.get(&self.tree, &key)?,
        };
        let Some(payload) = noted else { return Ok(None) };
        let row = if payload::has_moved(&payload) {
            let (payload, moment) = self.find(view, &key)?;
            payload.map(|payload| self.decode(&moment, &key, &payload)).transpose()?
        } else {
            Some(self.decode(&Moment { view, statement: None }, &key, &payload)?)
        };
        Ok(row.map(|row| Row(numbers.iter().map(|number| row[*number].clone()).collect())))
    }

    /// The numbers of columns.
    fn numbers(&self, columns: &[&str]) -> Result<Vec<usize>> {
        let no_column = |column: &str| Error::NoColumn { table: self.schema().name.clone(), column: column.into() };
        let number = |column: &&str| self.schema().number_of(column).ok_or_else(|| no_column(column));
        columns.iter().map(number).collect()
    }

    /// Whether there is a row with this key. The commit of the transaction fails if there is none any more, at every
    /// level of isolation; other changes of the row do no harm. For a row that names another one.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    ///
    /// ```
    /// use lodestone_engine::{Database, DatabaseOptions, Error, Isolation, Schema, row};
    /// # use lodestone_pmem::{DomainChoice, PoolOptions};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("shop.pool");
    /// # let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
    /// # let options =
    /// #     DatabaseOptions { pool, log_bytes: 1 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
    /// let db = Database::open_with(&path, &options)?;
    /// let users = db.create_table(&"users (id u64, cents i64) key (id)".parse::<Schema>()?)?;
    /// let orders = db.create_table(&"orders (number u64, user u64) key (number)".parse::<Schema>()?)?;
    /// db.update(|tx| users.put(tx, &row![7_u64, 0_i64]))?;
    /// for (number, is_deleted) in [(1_u64, false), (2, true)] {
    ///     let order = db.begin_with(Isolation::ReadCommitted);
    ///     assert!(users.hold(&order, &row![7_u64])?);
    ///     orders.put(&order, &row![number, 7_u64])?;
    ///     db.update(|tx| match is_deleted {
    ///         true => users.delete(tx, &row![7_u64]).map(drop),
    ///         false => users.put(tx, &row![7_u64, 5_i64]),
    ///     })?;
    ///     assert_eq!(matches!(order.commit(), Err(Error::Conflict)), is_deleted);
    /// }
    /// # Ok::<(), Error>(())
    /// ```
    pub fn hold(&self, tx: &Tx, key: &[Value]) -> Result<bool> {
        self.hold_columns(tx, key, &[])
    }

    /// As [`hold`](Self::hold): the commit is also a conflict if one of these columns has another value by then.
    ///
    /// # Errors
    /// As [`get_columns`](Self::get_columns).
    pub fn hold_columns(&self, tx: &Tx, key: &[Value], columns: &[&str]) -> Result<bool> {
        let numbers = self.numbers(columns)?;
        let (_, key) = self.key(View::Tx(tx), key)?;
        let mut state = tx.live_state()?;
        if let Some(own) = state.changes.get(&self.tree.number).and_then(|changes| changes.rows.get(&key[..])) {
            return Ok(own.is_some());
        }
        state.hold(&self.core, &self.tree, &key, (&self.definition, numbers))
    }

    /// Whether no commit has changed the row with `key` since the snapshot of the transaction. So one that has locked
    /// the row by other means need not go on to a conflict at its commit. It is `true` for a transaction without a
    /// snapshot, and own changes do not count.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    ///
    /// ```
    /// use lodestone_engine::{Database, DatabaseOptions, Isolation, Schema, row};
    /// # use lodestone_pmem::{DomainChoice, PoolOptions};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("shop.pool");
    /// # let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
    /// # let options =
    /// #     DatabaseOptions { pool, log_bytes: 1 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
    /// let db = Database::open_with(&path, &options)?;
    /// let users = db.create_table(&"users (id u64, cents i64) key (id)".parse::<Schema>()?)?;
    /// db.update(|tx| users.put(tx, &row![7_u64, 0_i64]))?;
    /// let old = db.begin_with(Isolation::Snapshot);
    /// assert!(users.is_newest(&old, &row![7_u64])?);
    /// db.update(|tx| users.put(tx, &row![7_u64, 5_i64]))?;
    /// assert!(!users.is_newest(&old, &row![7_u64])?);
    /// # Ok::<(), lodestone_engine::Error>(())
    /// ```
    pub fn is_newest(&self, tx: &Tx, key: &[Value]) -> Result<bool> {
        let (_, key) = self.key(View::Tx(tx), key)?;
        tx.live_state()?.is_newest(&self.tree, &key)
    }

    /// Adds a row.
    ///
    /// # Errors
    /// [`Error::Duplicate`] if there is one with its key. Others as [`put`](Self::put).
    pub fn insert(&self, tx: &Tx, row: &[Value]) -> Result<()> {
        let (entered, key, payload) = self.encode(tx, row)?;
        if tx.get(&self.tree, &key)?.is_some() {
            let (table, key) = (self.schema().name.clone(), self.key_text(&key));
            return Err(Error::Duplicate { table, index: None, key });
        }
        set_row((self, &entered), tx, key, (Before::Nothing, None), Some((row, payload)))
    }

    /// Replaces the row with the same key.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is none. Others as [`put`](Self::put).
    pub fn update(&self, tx: &Tx, row: &[Value]) -> Result<()> {
        let (entered, key, payload) = self.encode(tx, row)?;
        let (Some(old), moment) = self.find(View::Tx(tx), &key)? else {
            return Err(Error::NotFound { table: self.schema().name.clone(), key: self.key_text(&key) });
        };
        let row_before = self.decode_if_indexed(&entered, &moment, &key, &old)?;
        set_row((self, &entered), tx, key, (Before::Payload(&old), row_before.as_ref()), Some((row, payload)))
    }

    /// Adds a row, or replaces the one with the same key. In a table without indexes it does not look at that one, so
    /// two transactions that put the same row do not conflict. They do when one of the rows has long values, which are
    /// kept in pieces.
    ///
    /// # Errors
    /// [`Error::Conflict`]; [`Error::WrongType`], [`Error::WrongLength`], [`Error::TooLarge`] for a row that does not
    /// fit; [`Error::Duplicate`] when another row has the entry in a unique index; [`Error::TableChanged`];
    /// [`Error::ReadOnly`].
    pub fn put(&self, tx: &Tx, row: &[Value]) -> Result<()> {
        let (entered, key, payload) = self.encode(tx, row)?;
        // Pieces of a row that another transaction replaces meanwhile: the other levels note that there are none.
        let is_seen =
            !entered.indexes.is_empty() || self.pieces.is_some() && tx.isolation() == Isolation::ReadCommitted;
        if !is_seen {
            return set_row((self, &entered), tx, key, (Before::Unknown, None), Some((row, payload)));
        }
        let (old, moment) = self.find(View::Tx(tx), &key)?;
        let decode = |old| self.decode_if_indexed(&entered, &moment, &key, old);
        let row_before = old.as_ref().map(|old| decode(old)).transpose()?.flatten();
        let before = old.as_deref().map_or(Before::Nothing, Before::Payload);
        set_row((self, &entered), tx, key, (before, row_before.as_ref()), Some((row, payload)))
    }

    /// Removes the row with this key. Returns whether there was one.
    ///
    /// # Errors
    /// As [`get`](Self::get); [`Error::ReadOnly`].
    pub fn delete(&self, tx: &Tx, key: &[Value]) -> Result<bool> {
        let (entered, key) = self.key(View::Tx(tx), key)?;
        let (Some(old), moment) = self.find(View::Tx(tx), &key)? else { return Ok(false) };
        let row_before = self.decode_if_indexed(&entered, &moment, &key, &old)?;
        set_row((self, &entered), tx, key, (Before::Payload(&old), row_before.as_ref()), None)?;
        Ok(true)
    }

    /// Whether the transaction has changed rows of the table.
    #[must_use]
    pub fn is_changed_in(&self, tx: &Tx) -> bool {
        tx.changes_tree(self.tree.number)
    }

    /// The rows of a range, in the order of their keys; [`Rows::rev`] turns it round. A bound may have the first
    /// columns of the key only: it then means all keys that begin with them.
    ///
    /// A transaction that commits has seen the range without phantoms: no row was added to the part that it read, and
    /// none removed from it.
    ///
    /// # Errors
    /// [`Error::WrongType`] and [`Error::WrongLength`] for bounds of other columns. The iterator returns
    /// [`Error::Conflict`], or [`Error::SnapshotTooOld`], and [`Error::Damaged`], and nothing after an error.
    pub fn range<'t>(&'t self, reader: &'t impl Reader, range: impl RangeBounds<Row>) -> Result<Rows<'t>> {
        let view = view(reader);
        self.enter(view)?;
        let Definition { schema, layout, .. } = &*self.definition;
        let bytes = |bound: std::ops::Bound<&Row>| match bound {
            std::ops::Bound::Unbounded => Ok(std::ops::Bound::Unbounded),
            std::ops::Bound::Included(key) => schema.key_bytes(layout, key, true).map(std::ops::Bound::Included),
            std::ops::Bound::Excluded(key) => schema.key_bytes(layout, key, true).map(std::ops::Bound::Excluded),
        };
        Ok(Rows::new(view, self, bytes(range.start_bound())?, bytes(range.end_bound())?))
    }

    /// The table is used: a transaction conflicts with one that changes the table meanwhile. Returns the table as the
    /// transaction or snapshot sees it, which may have other indexes than when the handle was made.
    ///
    /// # Errors
    /// [`Error::OtherDatabase`]; [`Error::TableChanged`]; [`Error::Conflict`].
    pub(crate) fn enter(&self, view: View<'_>) -> Result<Entered> {
        if !self.core.is_same(view.core()) {
            return Err(Error::OtherDatabase { table: self.schema().name.clone() });
        }
        let latest = self.latest.load();
        let Some(origin) = &latest.origin else { return Ok(latest) };
        match view {
            View::Tx(tx) => {
                let is_same = tx.live_state()?.use_table(&self.core, self.tree.number, origin)?;
                if is_same { Ok(latest) } else { self.follow(tx).map(Guard::from_inner) }
            }
            View::Snapshot(snapshot) => {
                // Most snapshots see the table as it was when the handle was made, or as it is.
                let sees = |definition: &Definition| {
                    definition.origin.as_ref().map_or(Ok(true), |origin| snapshot.sees_table(origin))
                };
                if sees(&self.definition)? {
                    return Ok(Guard::from_inner(self.definition.clone()));
                }
                if sees(&latest)? {
                    return Ok(latest);
                }
                let found = catalog::find_in(&catalog::table(&self.core)?, snapshot, &self.schema().name)?;
                self.same_rows(found).map(Guard::from_inner)
            }
        }
    }

    /// The table as the transaction sees it, whose row in the catalog has changed.
    fn follow(&self, tx: &Tx) -> Result<Arc<Definition>> {
        let found = catalog::find(&catalog::table(&self.core)?, tx, &self.schema().name)?;
        let definition = self.same_rows(found)?;
        let mut state = tx.live_state()?;
        if let Some(origin) = &definition.origin {
            // The transaction has used the table before it changed; or the table changed while its indexes were read,
            // and then a snapshot of the origin's moment must not find these.
            let is_used = state.use_table(&self.core, self.tree.number, origin)?;
            if !is_used || !state.still_sees(origin) {
                return Err(state.conflict());
            }
        }
        self.latest.store(definition.clone());
        Ok(definition)
    }

    /// The table that was found, if it is this one and has the columns that the handle knows.
    fn same_rows(&self, found: Option<catalog::Found>) -> Result<Arc<Definition>> {
        let is_same =
            |found: &catalog::Found| found.tree == self.tree.number && found.schema.has_rows_of(self.schema());
        match found.filter(is_same) {
            Some(found) => Ok(Arc::new(found.definition(&self.core)?)),
            None => Err(Error::TableChanged { table: self.schema().name.clone() }),
        }
    }

    /// The table's row in the catalog, which this is, with this key.
    pub(crate) fn origin(&self, tx: &Tx, key: &[Value]) -> Result<Option<Origin>> {
        let (_, key) = self.key(View::Tx(tx), key)?;
        let found = tx.version_of(&self.tree, &key)?;
        Ok(found.map(|(slot, word)| Origin { catalog: self.tree.clone(), key, slot, word }))
    }

    /// Whether the transaction is one of the same database.
    pub(crate) fn is_of(&self, tx: &Tx) -> bool {
        self.core.is_same(&tx.core)
    }

    /// Whether the transaction itself has set the row with this key.
    pub(crate) fn has_own_change(&self, tx: &Tx, key: &[Value]) -> Result<bool> {
        let key = self.schema().key_bytes(&self.definition.layout, key, false)?;
        let state = tx.live_state()?;
        Ok(state.changes.get(&self.tree.number).is_some_and(|changes| changes.rows.contains_key(&key[..])))
    }

    /// The table as it is now, and the bytes of a key.
    fn key(&self, view: View<'_>, key: &[Value]) -> Result<(Entered, Vec<u8>)> {
        let entered = self.enter(view)?;
        Ok((entered, self.schema().key_bytes(&self.definition.layout, key, false)?))
    }

    /// The table as it is now, key and payload of `row`.
    fn encode<'r>(&self, tx: &Tx, row: &'r [Value]) -> Result<(Entered, Vec<u8>, Payload<'r>)> {
        let entered = self.enter(View::Tx(tx))?;
        let Definition { schema, layout, .. } = &*self.definition;
        schema.verify_row(row)?;
        Ok((entered, schema.key_of(layout, row)?, layout.encode(schema, row, self.core.limits)?))
    }

    /// Sets the row with `key`, and the pieces of its long values. `None` deletes.
    pub(crate) fn set(&self, tx: &Tx, key: Vec<u8>, before: Before<'_>, payload: Option<Payload<'_>>) -> Result<()> {
        let (payload, moved) = payload.map_or((None, Vec::new()), |payload| (Some(payload.bytes), payload.moved));
        if let Some(pieces) = &self.pieces {
            pieces.replace(tx, &key, before, &moved)?;
        }
        tx.set(&self.tree, key, payload)
    }

    /// The payload of the row with `key`, and the moment to which it belongs.
    fn find<'t>(&self, view: View<'t>, key: &[u8]) -> Result<(Option<Bytes>, Moment<'t>)> {
        let found = view.get(&self.tree, key)?;
        if !found.as_deref().is_some_and(payload::has_moved) {
            return Ok((found, Moment { view, statement: None }));
        }
        // Its pieces are read next. Where each statement has a moment of its own, row and pieces have the same one.
        let moment = Moment::of(view);
        let found = if moment.statement.is_some() { moment.get(&self.tree, key)? } else { found };
        Ok((found, moment))
    }

    pub(crate) fn decode(&self, moment: &Moment<'_>, key: &[u8], payload: &[u8]) -> Result<Row> {
        self.decode_with(key, payload, |pieces, moved| pieces.read(moment, key, moved))
    }

    /// The row, whose moved columns `read` completes.
    pub(crate) fn decode_with(
        &self,
        key: &[u8],
        payload: &[u8],
        mut read: impl FnMut(&Pieces, &Moved) -> Result<std::result::Result<Vec<u8>, String>>,
    ) -> Result<Row> {
        let Definition { schema, layout, .. } = &*self.definition;
        let damaged = |finding: &str| self.damaged(format!("the row with the key `{}` {finding}", key.escape_ascii()));
        let (mut row, moved) = schema.decode_row(layout, key, payload).ok_or_else(|| damaged("makes no sense"))?;
        for moved in &moved {
            // Of a column that was dropped the row still has the pieces.
            let Some(number) = moved.number else { continue };
            let Some(pieces) = &self.pieces else { return Err(damaged("has pieces")) };
            let column = &schema.columns[number];
            let bytes = read(pieces, moved)?
                .map_err(|finding| damaged(&format!("lacks the value of `{column}`: {finding}")))?;
            row.0[number] =
                payload::moved_value(moved, bytes).ok_or_else(|| damaged(&format!("has no text in `{column}`")))?;
        }
        Ok(row)
    }

    /// The trees of the table: of its rows, of the pieces of long values, and of its indexes.
    pub(crate) fn trees(&self) -> impl Iterator<Item = u32> {
        let indexes = self.definition.indexes.iter().map(|index| index.tree.number);
        let pieces = self.pieces.iter().map(|pieces| pieces.tree.number);
        std::iter::once(self.tree.number).chain(pieces).chain(indexes)
    }

    /// Findings about the pieces of long values: those that no row names. A row without its pieces is an error when
    /// it is read.
    pub(crate) fn pieces_left_over(&self, tx: &Tx) -> Result<Vec<String>> {
        let layout = &self.definition.layout;
        self.pieces.as_ref().map_or(Ok(Vec::new()), |pieces| pieces.left_over(tx, &self.tree, layout))
    }

    pub(crate) fn decode_key(&self, key: &[u8]) -> Result<Row> {
        let mut rest = key;
        let found = self.schema().decode_columns(&self.definition.layout.key, &mut rest);
        let damaged = || self.damaged(format!("the key `{}` makes no sense", key.escape_ascii()));
        found.filter(|_| rest.is_empty()).ok_or_else(damaged)
    }

    /// The row, if an index needs it.
    fn decode_if_indexed(
        &self,
        entered: &Definition,
        moment: &Moment<'_>,
        key: &[u8],
        payload: &[u8],
    ) -> Result<Option<Row>> {
        (!entered.indexes.is_empty()).then(|| self.decode(moment, key, payload)).transpose()
    }

    /// The columns of a key, for messages.
    fn key_text(&self, key: &[u8]) -> String {
        self.schema().columns_text(&self.definition.layout.key, key)
    }

    pub(crate) fn damaged(&self, finding: String) -> Error {
        Error::Damaged {
            path: self.core.heap.pool().path().to_owned(),
            what: "table",
            at: PmAddr::NULL,
            finding: format!("table `{}`: {finding}", self.schema().name),
        }
    }
}
