//! Tables: rows by key, inside transactions.

use std::ops::RangeBounds;
use std::sync::Arc;

use lodestone_pmem::PmAddr;

use crate::catalog::Definition;
use crate::core::Handle;
use crate::database::Database;
use crate::error::{Error, Result};
use crate::large::{Before, Pieces};
use crate::payload::{self, Payload};
use crate::rows::Rows;
use crate::schema::{Layout, Schema};
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
    /// The pieces of long values. `None`: there are no columns for them.
    pieces: Option<Pieces>,
}

impl Table {
    pub(crate) fn new(database: &Database, schema: Schema, layout: Layout, tree: u32) -> Self {
        let core = database.core().clone();
        let pieces = Pieces::of(&core, tree, &layout);
        let tree = core.tree(tree);
        Self { core, definition: Definition::new(schema, layout), tree, pieces }
    }

    /// Its columns and key.
    #[must_use]
    pub fn schema(&self) -> &Schema {
        &self.definition.schema
    }

    /// The row with this key.
    ///
    /// # Errors
    /// [`Error::Conflict`]; [`Error::WrongType`] and [`Error::WrongLength`] for a key of other columns;
    /// [`Error::Damaged`].
    pub fn get(&self, tx: &Tx, key: &[Value]) -> Result<Option<Row>> {
        let key = self.key(tx, key)?;
        tx.get(&self.tree, &key)?.map(|payload| self.decode(tx, &key, &payload)).transpose()
    }

    /// Adds a row.
    ///
    /// # Errors
    /// [`Error::Duplicate`] if there is one with its key. Others as [`put`](Self::put).
    pub fn insert(&self, tx: &Tx, row: &[Value]) -> Result<()> {
        let (key, payload) = self.encode(tx, row)?;
        if tx.get(&self.tree, &key)?.is_some() {
            return Err(Error::Duplicate { table: self.schema().name.clone(), key: self.key_text(&key) });
        }
        self.set(tx, key, Before::Nothing, Some(payload))
    }

    /// Replaces the row with the same key.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is none. Others as [`put`](Self::put).
    pub fn update(&self, tx: &Tx, row: &[Value]) -> Result<()> {
        let (key, payload) = self.encode(tx, row)?;
        let Some(before) = tx.get(&self.tree, &key)? else {
            return Err(Error::NotFound { table: self.schema().name.clone(), key: self.key_text(&key) });
        };
        self.set(tx, key, Before::Payload(&before), Some(payload))
    }

    /// Adds a row, or replaces the one with the same key. It does not look at it, so two transactions that put the same
    /// row do not conflict for that. They do when one of the rows has long values, which are kept in pieces.
    ///
    /// # Errors
    /// [`Error::Conflict`]; [`Error::WrongType`], [`Error::WrongLength`], [`Error::TooLarge`] for a row that does not
    /// fit; [`Error::ReadOnly`].
    pub fn put(&self, tx: &Tx, row: &[Value]) -> Result<()> {
        let (key, payload) = self.encode(tx, row)?;
        self.set(tx, key, Before::Unknown, Some(payload))
    }

    /// Removes the row with this key. Returns whether there was one.
    ///
    /// # Errors
    /// As [`get`](Self::get); [`Error::ReadOnly`].
    pub fn delete(&self, tx: &Tx, key: &[Value]) -> Result<bool> {
        let key = self.key(tx, key)?;
        let Some(before) = tx.get(&self.tree, &key)? else { return Ok(false) };
        self.set(tx, key, Before::Payload(&before), None)?;
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
    /// [`Error::Conflict`] and [`Error::Damaged`], and nothing after an error.
    pub fn range<'t>(&'t self, tx: &'t Tx, range: impl RangeBounds<Row>) -> Result<Rows<'t>> {
        self.same_database(tx)?;
        let Definition { schema, layout } = &*self.definition;
        let bytes = |bound: std::ops::Bound<&Row>| match bound {
            std::ops::Bound::Unbounded => Ok(std::ops::Bound::Unbounded),
            std::ops::Bound::Included(key) => schema.key_bytes(layout, key, true).map(std::ops::Bound::Included),
            std::ops::Bound::Excluded(key) => schema.key_bytes(layout, key, true).map(std::ops::Bound::Excluded),
        };
        Ok(Rows::new(tx, self, bytes(range.start_bound())?, bytes(range.end_bound())?))
    }

    fn same_database(&self, tx: &Tx) -> Result<()> {
        if self.core.is_same(&tx.core) {
            Ok(())
        } else {
            Err(Error::OtherDatabase { table: self.schema().name.clone() })
        }
    }

    fn key(&self, tx: &Tx, key: &[Value]) -> Result<Vec<u8>> {
        self.same_database(tx)?;
        self.schema().key_bytes(&self.definition.layout, key, false)
    }

    /// Key and payload of `row`.
    fn encode<'r>(&self, tx: &Tx, row: &'r [Value]) -> Result<(Vec<u8>, Payload<'r>)> {
        self.same_database(tx)?;
        let Definition { schema, layout } = &*self.definition;
        schema.verify_row(row)?;
        Ok((schema.key_of(layout, row)?, layout.encode(schema, row, self.core.limits)?))
    }

    /// Sets the row with `key`, and the pieces of its long values. `None` deletes.
    fn set(&self, tx: &Tx, key: Vec<u8>, before: Before<'_>, payload: Option<Payload<'_>>) -> Result<()> {
        let (payload, moved) = payload.map_or((None, Vec::new()), |payload| (Some(payload.bytes), payload.moved));
        if let Some(pieces) = &self.pieces {
            pieces.replace(tx, &key, before, &moved)?;
        }
        tx.set(&self.tree, key, payload)
    }

    pub(crate) fn decode(&self, tx: &Tx, key: &[u8], payload: &[u8]) -> Result<Row> {
        let Definition { schema, layout } = &*self.definition;
        let damaged = |finding: &str| self.damaged(format!("the row with the key `{}` {finding}", key.escape_ascii()));
        let (mut row, moved) = schema.decode_row(layout, key, payload).ok_or_else(|| damaged("makes no sense"))?;
        for moved in &moved {
            let Some(pieces) = &self.pieces else { return Err(damaged("has pieces")) };
            let column = &schema.columns[moved.column];
            let bytes = pieces
                .read(tx, key, moved)?
                .map_err(|finding| damaged(&format!("lacks the value of `{column}`: {finding}")))?;
            row.0[moved.column] =
                payload::moved_value(moved, bytes).ok_or_else(|| damaged(&format!("has no text in `{column}`")))?;
        }
        Ok(row)
    }

    /// The trees of the table: of its rows, and of the pieces of long values.
    pub(crate) fn trees(&self) -> impl Iterator<Item = u32> {
        std::iter::once(self.tree.number).chain(self.pieces.iter().map(|pieces| pieces.tree.number))
    }

    /// What is wrong with the pieces of long values: those that no row names. A row without its pieces is an error when
    /// it is read.
    pub(crate) fn pieces_left_over(&self, tx: &Tx) -> Result<Vec<String>> {
        let layout = &self.definition.layout;
        self.pieces.as_ref().map_or(Ok(Vec::new()), |pieces| pieces.left_over(tx, &self.tree, layout))
    }

    /// The columns of a key, for messages.
    fn key_text(&self, key: &[u8]) -> String {
        let Definition { schema, layout } = &*self.definition;
        let mut rest = key;
        let column = |number: &usize| {
            let column = &schema.columns[*number];
            crate::key::decode(&mut rest, column.kind, column.nullable)
        };
        let columns: Option<Row> = layout.key.iter().map(column).collect::<Option<Vec<_>>>().map(Row);
        columns.map_or_else(|| key.escape_ascii().to_string(), |row| row.to_string())
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
