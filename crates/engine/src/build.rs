//! An index for a table that has rows, while transactions go on.
//!
//! 1. A transaction adds the index to the catalog, as one that is being built, and writes the table's row again. So
//!    every transaction that commits from then on knows the index: it keeps the entries of the rows that it changes.
//! 2. Transactions of some rows each, in the order of the key, add the entries that are missing. Each of them has read
//!    the rows whose entries it adds, so none of these is changed meanwhile.
//! 3. A transaction notes that the index is ready.
//!
//! Why that is enough: a row has its entry after step 2 came to it, or since it was changed after step 1, and each
//! later change keeps the entry. A row that step 2 does not see was added after step 1. A row keeps its key, so none
//! moves from the part ahead to the part that is done.
//!
//! The first of two rows with the same values of a unique index gets the entry. If a transaction adds the second one,
//! it is refused. Step 2 ends with an error when it comes to the second one. A change of one of them may not end the
//! entry of the other: that is why a change looks whose entry it is (`index::set_row`).
//!
//! A crash leaves an index that is being built. Its entries are those of rows, so the next
//! [`create_index`](crate::Database::create_index) goes on with it: it begins at the first row, and finds most entries.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::{Arc, Mutex, PoisonError};

use lodestone_width::to_u64;

use crate::catalog::{self, Definition};
use crate::database::Database;
use crate::error::{Error, Result};
use crate::events::IndexBuild;
use crate::index::{Entry, entry};
use crate::schema::Index;
use crate::table::Table;
use crate::tree::Tree;
use crate::tx::Tx;
use crate::value::Row;

/// Most rows of one transaction.
const ROWS_MAX: usize = 1024;

/// The trees of the indexes that threads of this process build.
#[derive(Debug, Default)]
pub struct Builds(Mutex<BTreeSet<u32>>);

/// While there is one, no other thread builds the index.
struct Running<'b> {
    builds: &'b Builds,
    tree: u32,
}

impl Builds {
    /// `None`: another thread builds the index with this tree.
    fn begin(&self, tree: u32) -> Option<Running<'_>> {
        let is_first = self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(tree);
        is_first.then_some(Running { builds: self, tree })
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.builds.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.tree);
    }
}

/// An index that is being built.
struct Build<'d> {
    database: &'d Database,
    catalog: Table,
    /// The tree of the table, which may be renamed meanwhile.
    table: u32,
    name: String,
    index: &'d Index,
    tree: Arc<Tree>,
}

/// Adds `index` to the table called `name`. `progress` is told how many rows have been read. Returns the table, which
/// may have another name by then.
///
/// # Errors
/// As [`Database::create_index`]; those of `progress`. There is no such index then.
pub fn create_index(
    database: &Database,
    name: &str,
    index: &Index,
    mut progress: impl FnMut(u64) -> Result<()>,
) -> Result<Table> {
    let core = database.core();
    let catalog = catalog::table(core)?;
    let (table, number) = database.update(|tx| catalog::begin_index(&catalog, tx, name, index))?;
    let exists = || Error::IndexExists { table: name.into(), index: index.name.clone() };
    let _running = core.builds.begin(number).ok_or_else(exists)?;
    core.placements.add_indexes(&[number], table);
    core.keep(&[number]);
    let tree = core.tree(number);
    let mut build = Build { database, catalog, table, name: name.into(), index, tree };
    let mut told = IndexBuild::begin(core, name, &index.name);
    let mut progress = |rows| {
        told.reached(rows);
        progress(rows)
    };
    let outcome = build.fill(&mut progress).and_then(|()| build.end());
    told.end(&outcome);
    if outcome.is_err() {
        build.undo();
    }
    outcome.and_then(|()| build.handle())
}

impl Build<'_> {
    /// Adds the entries of all rows.
    fn fill(&mut self, progress: &mut impl FnMut(u64) -> Result<()>) -> Result<()> {
        let mut handle = self.handle()?;
        let (mut last, mut done, mut limit) = (None, 0, ROWS_MAX);
        loop {
            let mut attempts = 0_u32;
            let outcome = self.database.update(|tx| {
                // Others change rows of the batch: a smaller one has more luck.
                limit = if attempts == 0 { limit } else { (limit / 2).max(1) };
                attempts += 1;
                self.add_entries(tx, &handle, last.as_ref(), limit)
            });
            match outcome {
                Ok((_, 0)) => return Ok(()),
                Ok((row, count)) => {
                    (last, done) = (row, done + to_u64(count));
                    limit = if attempts == 1 { (limit * 2).min(ROWS_MAX) } else { limit };
                    progress(done)?;
                }
                Err(Error::TransactionTooLarge { .. }) if limit > 1 => limit /= 2,
                // It has another name by now, or none.
                Err(Error::TableChanged { .. }) => handle = self.handle()?,
                Err(error) => return Err(error),
            }
        }
    }

    /// A handle on the table, by its tree.
    fn handle(&mut self) -> Result<Table> {
        let changed = || Error::TableChanged { table: self.name.clone() };
        let name = self.database.update(|tx| catalog::name_of(&self.catalog, tx, self.table))?.ok_or_else(changed)?;
        let handle = self.database.table(&name)?;
        self.name = name;
        Ok(handle)
    }

    /// Adds the entries of at most `limit` rows after the one with the key `last`. Returns the key of the last of them,
    /// and their number.
    fn add_entries(&self, tx: &Tx, handle: &Table, last: Option<&Row>, limit: usize) -> Result<(Option<Row>, usize)> {
        let from = last.map_or(Bound::Unbounded, |last| Bound::Excluded(last.clone()));
        let entered = handle.enter(crate::reader::View::Tx(tx))?;
        let Definition { schema, layout, indexes, .. } = &**entered;
        let number = indexes.iter().position(|index| index.tree.number == self.tree.number);
        let no_index = || Error::NoIndex { table: self.name.clone(), index: self.index.name.clone() };
        let number = number.ok_or_else(no_index)?;
        let columns = &layout.indexes[number];
        let (mut end, mut count) = (None, 0);
        for row in handle.range(tx, (from, Bound::Unbounded))?.take(limit) {
            let row = row?;
            let row_key = schema.key_of(layout, &row)?;
            let Entry { key, payload } = entry(schema, columns, self.index, &row, &row_key)?;
            match tx.get(&self.tree, &key)? {
                Some(found) if found[..] == payload[..] => {}
                Some(_) => {
                    let (table, index) = (self.name.clone(), Some(self.index.name.clone()));
                    return Err(Error::Duplicate { table, index, key: schema.columns_text(columns, &key) });
                }
                None => tx.set(&self.tree, key, Some(payload))?,
            }
            (end, count) = (Some(Row(layout.key.iter().map(|number| row[*number].clone()).collect())), count + 1);
        }
        Ok((end, count))
    }

    /// Notes that the index is ready.
    fn end(&mut self) -> Result<()> {
        loop {
            match self.database.update(|tx| catalog::end_index(&self.catalog, tx, &self.name, self.tree.number)) {
                Err(Error::NoTable { .. }) => drop(self.handle()?),
                outcome => return outcome,
            }
        }
    }

    /// Takes the index away again, if it is there. If that fails too, it stays as one that is being built.
    fn undo(&mut self) {
        if self.handle().is_err() {
            return;
        }
        let (catalog, tree) = (&self.catalog, self.tree.number);
        if self.database.update(|tx| catalog::drop_index_tree(catalog, tx, &self.name, tree)).is_ok() {
            self.database.core().forget_trees(&[tree]);
        }
    }
}
