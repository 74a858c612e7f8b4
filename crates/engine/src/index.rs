//! Secondary indexes: a tree of entries for each, changed with the rows in the same transaction.
//!
//! ```text
//! index:   key of an entry: columns of the index, key of the row    payload: nothing
//! unique:  key of an entry: columns of the index                    payload: key of the row
//! ```
//!
//! All of them encoded as keys are. An entry of a unique index with a null among its columns is as one of an index:
//! nulls are never the same.
//!
//! 1. A change of a row reads the old row first, so both are locked and validated together. Entries that the old row
//!    has and the new one lacks are deleted, the others added. Equal ones are left alone.
//! 2. A unique index is asked before anything is changed. The answer, also that there is no such entry, is validated at
//!    the commit. So two transactions cannot both add it.
//! 3. A range of an index reads entries, then the row of each. The commit validates entries, the keys between them, and
//!    rows.
//!
//! Invariant: after each commit an index has exactly the entries of the rows of its table. [`verify`] proves it. One
//! that is being built (`build.rs`) may lack the entries of rows that have not changed since it was added.

use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use lodestone_pmem::planted;

use crate::catalog::Definition;
use crate::error::{Error, Result};
use crate::large::Before;
use crate::payload::Payload;
use crate::reader::{Moment, Reader, View, view};
use crate::rows::Cursor;
use crate::schema::{Index, Schema};
use crate::table::Table;
use crate::tree::{Bytes, Tree};
use crate::tx::Tx;
use crate::value::{Row, Value};

/// The entries of an index.
#[derive(Debug)]
pub struct IndexTree {
    pub tree: Arc<Tree>,
    /// Whether all entries are there. Before, changes of rows keep theirs, and nothing is read.
    pub is_ready: bool,
}

/// Key and payload of an entry.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    pub key: Vec<u8>,
    pub payload: Vec<u8>,
}

/// An index of a table: its rows by other columns. It is as cheap to clone as the table.
///
/// ```
/// use lodestone_engine::{Database, DatabaseOptions, Error, Schema, row};
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("shop.pool");
/// # let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let options = DatabaseOptions { pool, log_bytes: 1 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
/// let db = Database::open_with(&path, &options)?;
/// let text = "users (id u64, town text, mail text null) key (id) index by_town (town) unique by_mail (mail)";
/// let users = db.create_table(&text.parse::<Schema>()?)?;
/// db.update(|tx| {
///     users.insert(tx, &row![1_u64, "Oslo", "a@example.org"])?;
///     users.insert(tx, &row![2_u64, "Oslo", None::<&str>])?;
///     users.insert(tx, &row![3_u64, "Bern", None::<&str>])
/// })?;
/// let (by_town, by_mail) = (users.index("by_town")?, users.index("by_mail")?);
/// db.update(|tx| {
///     let found = by_town.range(tx, row!["Oslo"]..=row!["Oslo"])?.rev().collect::<Result<Vec<_>, _>>()?;
///     assert_eq!(found.iter().map(|row| row[0].as_u64()).collect::<Vec<_>>(), [Some(2), Some(1)]);
///     assert_eq!(by_mail.get(tx, &row!["a@example.org"])?, Some(row![1_u64, "Oslo", "a@example.org"]));
///     Ok(())
/// })?;
/// let again = db.update(|tx| users.insert(tx, &row![4_u64, "Rome", "a@example.org"]));
/// assert!(matches!(again, Err(Error::Duplicate { index: Some(index), .. }) if index == "by_mail"));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct TableIndex {
    table: Table,
    number: usize,
}

impl TableIndex {
    pub(crate) fn new(table: Table, number: usize) -> Self {
        Self { table, number }
    }

    /// Its name and columns.
    #[must_use]
    pub fn index(&self) -> &Index {
        &self.table.schema().indexes[self.number]
    }

    /// The table.
    #[must_use]
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// The first row with these values of the index's columns. A unique index has at most one, unless one is null.
    ///
    /// # Errors
    /// As [`range`](Self::range).
    pub fn get(&self, reader: &impl Reader, values: &[Value]) -> Result<Option<Row>> {
        let expected = self.columns().len();
        if values.len() != expected {
            let table = self.table.schema().name.clone();
            return Err(Error::WrongLength { table, what: "key of an index", found: values.len(), expected });
        }
        let values = Row(values.to_vec());
        self.range(reader, values.clone()..=values)?.next().transpose()
    }

    /// The rows of a range, in the order of the index's columns, then of the key. [`IndexRows::rev`] turns it round. A
    /// bound may have the first columns of the index only: it then means all rows that begin with them.
    ///
    /// As with [`Table::range`], a transaction that commits has seen the range without phantoms.
    ///
    /// # Errors
    /// [`Error::WrongType`] and [`Error::WrongLength`] for bounds of other columns; [`Error::NoIndex`] when it was
    /// dropped, or is not there yet for a snapshot; [`Error::IndexNotReady`]; [`Error::TableChanged`]. The iterator
    /// returns [`Error::Conflict`] and [`Error::Damaged`], and nothing after an error.
    pub fn range<'t>(&'t self, reader: &'t impl Reader, range: impl RangeBounds<Row>) -> Result<IndexRows<'t>> {
        let view = view(reader);
        let entered = self.table.enter(view)?;
        self.refuse_if_not_ready(&entered)?;
        let bytes = |bound: Bound<&Row>| match bound {
            Bound::Unbounded => Ok(Bound::Unbounded),
            Bound::Included(values) => self.bytes(values).map(Bound::Included),
            Bound::Excluded(values) => self.bytes(values).map(Bound::Excluded),
        };
        let tree = &self.table.definition().indexes[self.number].tree;
        let cursor = Cursor::new(Moment::of(view), tree, bytes(range.start_bound())?, bytes(range.end_bound())?);
        Ok(IndexRows { index: self, cursor })
    }

    /// The index can be read where the table is as `entered`.
    fn refuse_if_not_ready(&self, entered: &Definition) -> Result<()> {
        let tree = self.table.definition().indexes[self.number].tree.number;
        let (table, index) = (|| self.table.schema().name.clone(), || self.index().name.clone());
        match entered.indexes.iter().find(|index| index.tree.number == tree) {
            Some(found) if found.is_ready || planted::active("engine-index-read-early") => Ok(()),
            Some(_) => Err(Error::IndexNotReady { table: table(), index: index() }),
            None => Err(Error::NoIndex { table: table(), index: index() }),
        }
    }

    fn columns(&self) -> &[usize] {
        &self.table.definition().layout.indexes[self.number]
    }

    fn bytes(&self, values: &[Value]) -> Result<Vec<u8>> {
        let (schema, columns) = (self.table.schema(), self.columns());
        if values.len() > columns.len() {
            let (found, expected) = (values.len(), columns.len());
            return Err(Error::WrongLength { table: schema.name.clone(), what: "key of an index", found, expected });
        }
        let values = || columns.iter().copied().zip(values);
        schema.verify(values())?;
        schema.encode_key(values())
    }

    /// The key of the row that an entry leads to. `None` for bytes that no entry has.
    fn row_key(&self, key: &[u8], payload: &[u8]) -> Option<Vec<u8>> {
        let mut rest = key;
        let values = self.table.schema().decode_columns(self.columns(), &mut rest)?;
        match (self.index().is_unique && !values.contains(&Value::Null), rest, payload) {
            (true, [], row_key) | (false, row_key, []) => Some(row_key.to_vec()),
            _ => None,
        }
    }

    fn damaged(&self, key: &[u8], finding: &str) -> Error {
        let name = &self.index().name;
        self.table.damaged(format!("the entry `{}` of the index `{name}` {finding}", key.escape_ascii()))
    }

    /// Compares the entries with the rows of the table, all of which are `rows` by key. Returns what differs.
    pub(crate) fn verify(&self, tx: &Tx, rows: &BTreeMap<Vec<u8>, Row>) -> Result<Vec<Error>> {
        let mut findings = Vec::new();
        let mut expected = BTreeMap::new();
        for (key, row) in rows {
            let Entry { key: entry, payload } = entry(self.table.schema(), self.columns(), self.index(), row, key)?;
            if expected.insert(entry.clone(), payload).is_some() {
                findings.push(self.damaged(&entry, "is that of two rows"));
            }
        }
        let tree = &self.table.definition().indexes[self.number].tree;
        let mut cursor = Cursor::new(Moment::of(View::Tx(tx)), tree, Bound::Unbounded, Bound::Unbounded);
        while let Some((key, payload)) = cursor.step()? {
            match expected.remove(&key[..]) {
                Some(other) if other[..] == payload[..] => {}
                Some(_) => findings.push(self.damaged(&key, "leads to another row than its own")),
                None => findings.push(self.damaged(&key, "is that of no row")),
            }
        }
        if self.table.definition().indexes[self.number].is_ready {
            findings.extend(expected.keys().map(|key| self.damaged(key, "is missing")));
        }
        Ok(findings)
    }
}

/// The rows of a range of an index: see [`TableIndex::range`].
#[derive(Debug)]
pub struct IndexRows<'t> {
    index: &'t TableIndex,
    cursor: Cursor<'t>,
}

impl IndexRows<'_> {
    /// The same rows, from the last to the first. Call it before the first row is asked for.
    #[must_use]
    pub fn rev(mut self) -> Self {
        self.cursor.reverse();
        self
    }

    fn step(&mut self) -> Result<Option<Row>> {
        let Some((key, payload)) = self.cursor.step()? else { return Ok(None) };
        let row_key = self.index.row_key(&key, &payload);
        let row_key = row_key.ok_or_else(|| self.index.damaged(&key, "makes no sense"))?;
        let table = &self.index.table;
        match self.cursor.moment().get(&table.tree, &row_key)? {
            Some(payload) => table.decode(self.cursor.moment(), &row_key, &payload).map(Some),
            None => Err(self.index.damaged(&key, "leads to no row")),
        }
    }
}

impl Iterator for IndexRows<'_> {
    type Item = Result<Row>;

    fn next(&mut self) -> Option<Result<Row>> {
        let row = self.step();
        if row.is_err() {
            self.cursor.end();
        }
        row.transpose()
    }
}

/// The entry of a row with this key.
pub fn entry(schema: &Schema, columns: &[usize], index: &Index, row: &[Value], row_key: &[u8]) -> Result<Entry> {
    let values = || columns.iter().map(|number| (*number, &row[*number]));
    let mut key = schema.encode_key(values())?;
    if index.is_unique && values().all(|(_, value)| *value != Value::Null) {
        return Ok(Entry { key, payload: row_key.to_vec() });
    }
    key.extend(row_key);
    Ok(Entry { key, payload: Vec::new() })
}

/// Sets the row with `key` to `new`, with its payload, and changes the entries of all indexes. `before` is the row
/// before as far as it is known; where the table has indexes it is known whole. `definition`: the table as the
/// transaction sees it.
///
/// # Errors
/// [`Error::Duplicate`]. Nothing is changed then.
pub fn set_row(
    (table, definition): (&Table, &Definition),
    tx: &Tx,
    key: Vec<u8>,
    (before, old): (Before<'_>, Option<&Row>),
    new: Option<(&[Value], Payload<'_>)>,
) -> Result<()> {
    let schema = &definition.schema;
    let mut ended = Vec::new();
    let mut added = Vec::new();
    let parts = schema.indexes.iter().zip(&definition.layout.indexes).zip(&definition.indexes);
    for ((index, columns), tree) in parts {
        let of = |row: &[Value]| entry(schema, columns, index, row, &key);
        let entry_before = old.map(|row| of(row)).transpose()?;
        let after = new.as_ref().map(|(row, _)| of(row)).transpose()?;
        if entry_before == after {
            continue;
        }
        if let Some(after) = &after
            && !after.payload.is_empty()
            && tx.get(&tree.tree, &after.key)?.is_some_and(|found: Bytes| *found != *key)
        {
            return Err(Error::Duplicate {
                table: schema.name.clone(),
                index: Some(index.name.clone()),
                key: schema.columns_text(columns, &after.key),
            });
        }
        let entry_before = match entry_before {
            Some(before) if !tree.is_ready => own_entry(tx, tree, before)?,
            other => other,
        };
        let replaces = entry_before.as_ref().zip(after.as_ref()).is_some_and(|(before, after)| before.key == after.key);
        let ends = |_: &Entry| !replaces && !planted::active("engine-index-entry-kept");
        ended.extend(entry_before.filter(ends).map(|entry| (tree, entry)));
        added.extend(after.map(|entry| (tree, entry)));
    }
    ended.into_iter().try_for_each(|(index, entry)| tx.set(&index.tree, entry.key, None))?;
    added.into_iter().try_for_each(|(index, entry)| tx.set(&index.tree, entry.key, Some(entry.payload)))?;
    table.set(tx, key, before, new.map(|(_, payload)| payload))
}

/// The entry of a row before a change, as far as it is to be ended, while the index is being built: it may not be there
/// yet, and in a unique index another row may have it. Both had the same values before, and the build has not come to
/// the second of them.
///
/// The entry is set as it was found. So it is validated at every level of isolation that it stays so until the commit.
fn own_entry(tx: &Tx, index: &IndexTree, entry: Entry) -> Result<Option<Entry>> {
    let found = tx.get(&index.tree, &entry.key)?;
    if found.as_deref() == Some(&entry.payload[..]) || planted::active("engine-build-ends-others") {
        return Ok(Some(entry));
    }
    if !planted::active("engine-build-unvalidated") {
        tx.set(&index.tree, entry.key, found.map(|payload| payload.to_vec()))?;
    }
    Ok(None)
}
