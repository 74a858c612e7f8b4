//! Tables: rows by key, inside transactions.

use std::ops::RangeBounds;
use std::sync::Arc;

use lodestone_pmem::PmAddr;

use crate::catalog::{Definition, Origin};
use crate::core::Handle;
use crate::database::Database;
use crate::error::{Error, Result};
use crate::index::{TableIndex, set_row};
use crate::reader::{Reader, View, view};
use crate::rows::Rows;
use crate::schema::Schema;
use crate::tree::Tree;
use crate::tx::Tx;
use crate::value::{Row, Value};

/// A table of a database. It is cheap to clone, and any number of threads may use it, each in its own transactions.
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
    definition: Arc<Definition>,
    pub(crate) tree: Arc<Tree>,
}

impl Table {
    pub(crate) fn new(database: &Database, definition: Definition, tree: u32) -> Self {
        let core = database.core().clone();
        let tree = core.tree(tree);
        Self { core, definition: Arc::new(definition), tree }
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
        let key = self.key(view, key)?;
        view.get(&self.tree, &key)?.map(|payload| self.decode(&key, &payload)).transpose()
    }

    /// Adds a row.
    ///
    /// # Errors
    /// [`Error::Duplicate`] if there is one with its key. Others as [`put`](Self::put).
    pub fn insert(&self, tx: &Tx, row: &[Value]) -> Result<()> {
        let (key, payload) = self.encode(tx, row)?;
        if tx.get(&self.tree, &key)?.is_some() {
            let (table, key) = (self.schema().name.clone(), self.key_text(&key));
            return Err(Error::Duplicate { table, index: None, key });
        }
        set_row(self, tx, key, None, Some((row, payload)))
    }

    /// Replaces the row with the same key.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is none. Others as [`put`](Self::put).
    pub fn update(&self, tx: &Tx, row: &[Value]) -> Result<()> {
        let (key, payload) = self.encode(tx, row)?;
        let Some(old) = tx.get(&self.tree, &key)? else {
            return Err(Error::NotFound { table: self.schema().name.clone(), key: self.key_text(&key) });
        };
        let old = self.decode_if_indexed(&key, &old)?;
        set_row(self, tx, key, old.as_ref(), Some((row, payload)))
    }

    /// Adds a row, or replaces the one with the same key. In a table without indexes it does not look at that one, so
    /// two transactions that put the same row do not conflict.
    ///
    /// # Errors
    /// [`Error::Conflict`]; [`Error::WrongType`], [`Error::WrongLength`], [`Error::TooLarge`] for a row that does not
    /// fit; [`Error::Duplicate`] when another row has the entry in a unique index; [`Error::TableChanged`];
    /// [`Error::ReadOnly`].
    pub fn put(&self, tx: &Tx, row: &[Value]) -> Result<()> {
        let (key, payload) = self.encode(tx, row)?;
        let old = match self.schema().indexes.is_empty() {
            true => None,
            false => tx.get(&self.tree, &key)?.map(|old| self.decode(&key, &old)).transpose()?,
        };
        set_row(self, tx, key, old.as_ref(), Some((row, payload)))
    }

    /// Removes the row with this key. Returns whether there was one.
    ///
    /// # Errors
    /// As [`get`](Self::get); [`Error::ReadOnly`].
    pub fn delete(&self, tx: &Tx, key: &[Value]) -> Result<bool> {
        let key = self.key(View::Tx(tx), key)?;
        let Some(old) = tx.get(&self.tree, &key)? else { return Ok(false) };
        let old = self.decode_if_indexed(&key, &old)?;
        set_row(self, tx, key, old.as_ref(), None)?;
        Ok(true)
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

    /// The table is used: a transaction conflicts with one that changes the table meanwhile.
    ///
    /// # Errors
    /// [`Error::OtherDatabase`]; [`Error::TableChanged`]; [`Error::Conflict`].
    pub(crate) fn enter(&self, view: View<'_>) -> Result<()> {
        let name = || self.schema().name.clone();
        if !self.core.is_same(view.core()) {
            return Err(Error::OtherDatabase { table: name() });
        }
        let Some(origin) = &self.definition.origin else { return Ok(()) };
        let is_same = match view {
            View::Tx(tx) => tx.live_state()?.use_table(&self.core, self.tree.number, origin)?,
            View::Snapshot(snapshot) => snapshot.sees_table(origin)?,
        };
        if is_same { Ok(()) } else { Err(Error::TableChanged { table: name() }) }
    }

    /// The table's row in the catalog, which this is, with this key.
    pub(crate) fn origin(&self, tx: &Tx, key: &[Value]) -> Result<Option<Origin>> {
        let key = self.key(View::Tx(tx), key)?;
        let found = tx.version_of(&self.tree, &key)?;
        Ok(found.map(|(slot, word)| Origin { catalog: self.tree.clone(), key, slot, word }))
    }

    fn key(&self, view: View<'_>, key: &[Value]) -> Result<Vec<u8>> {
        self.enter(view)?;
        self.schema().key_bytes(&self.definition.layout, key, false)
    }

    /// Key and payload of `row`.
    fn encode(&self, tx: &Tx, row: &[Value]) -> Result<(Vec<u8>, Vec<u8>)> {
        self.enter(View::Tx(tx))?;
        let Definition { schema, layout, .. } = &*self.definition;
        schema.verify_row(row)?;
        Ok((schema.key_of(layout, row)?, layout.encode(schema, row)?))
    }

    pub(crate) fn decode(&self, key: &[u8], payload: &[u8]) -> Result<Row> {
        let Definition { schema, layout, .. } = &*self.definition;
        let damaged = || self.damaged(format!("the row with the key `{}` makes no sense", key.escape_ascii()));
        schema.decode_row(layout, key, payload).ok_or_else(damaged)
    }

    pub(crate) fn decode_key(&self, key: &[u8]) -> Result<Row> {
        let mut rest = key;
        let found = self.schema().decode_columns(&self.definition.layout.key, &mut rest);
        let damaged = || self.damaged(format!("the key `{}` makes no sense", key.escape_ascii()));
        found.filter(|_| rest.is_empty()).ok_or_else(damaged)
    }

    /// The row, if an index needs it.
    fn decode_if_indexed(&self, key: &[u8], payload: &[u8]) -> Result<Option<Row>> {
        (!self.schema().indexes.is_empty()).then(|| self.decode(key, payload)).transpose()
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
