//! Bulk load: a table with all its rows, which go to pages and not to the logs.
//!
//! 1. *Numbers*: a transaction takes the numbers of the trees. It is durable before a page of them counts. So whatever
//!    becomes of these pages, their trees are known to be without an owner until the catalog names them.
//! 2. *Rows*: each is verified and encoded, with its pieces and its entries in the indexes. Each tree is sorted, unless
//!    its rows came in order. Then equal keys are neighbours. The bytes are those that the tree keeps in DRAM.
//! 3. *Pages*: images of leaves that are three quarters full, in batches that count by one block each
//!    ([`lodestone_pages::Batch`]). A load of few rows has one batch. One of many rows writes what it has when its
//!    memory is full (`content.rs`). The positions in the logs stay those of the newest checkpoint, because the other
//!    trees have not been written. A last batch, which is empty, overwrites the older block: afterwards either of the
//!    two may be damaged.
//! 4. *Table*: a transaction adds the table to the catalog, or gives a table that is there these trees in place of its
//!    own ([`Database::put_loaded`]). **Not before step 3 is durable**: after a crash the table would be there, and its
//!    rows would not.
//!
//! A crash, or an error, before step 4 leaves pages of trees that the catalog does not name, or none. The next open
//! forgets such trees as those of dropped tables, and the next checkpoint frees their pages (`rounds.rs`).
//!
//! The rows have the first tick of this life. All later changes have larger ones, and no record of an earlier life is
//! of these trees. A transaction sees the rows when it sees the table in the catalog.

mod content;
mod rows;
mod runs;

use std::fmt;
use std::time::Instant;

use lodestone_pages::{Batch, Pages};
use lodestone_pmem::planted;

use crate::catalog::{self, Definition};
use crate::core::{Core, Handle};
use crate::database::Database;
use crate::error::{Error, Result};
use crate::events;
use crate::index::{Entry, IndexTree, entry};
use crate::large::{PIECES, piece_key};
use crate::schema::{Layout, Schema};
use crate::table::Table;
use crate::tx::Tx;
use crate::value::{Row, Value};
use content::Content;

/// Segments of the log that a load leaves room for at least.
const SPARE_SEGMENTS: u64 = 2;

/// The places of a table's trees among the contents.
const ROWS: usize = 0;
const LARGE: usize = 1;
const INDEXES: usize = 2;

/// Rows that are added to a table all at once, and that no transaction sees before that: see
/// [`Database::begin_load`]. Dropping it forgets them.
pub struct TableLoad {
    core: Handle,
    schema: Schema,
    layout: Layout,
    /// The numbers of the table's tree and of those of its indexes.
    trees: Vec<u32>,
    /// The rows, their pieces, and the entries of each index.
    contents: Vec<Content>,
    rows: u64,
}

impl fmt::Debug for TableLoad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableLoad").field("table", &self.schema.name).field("rows", &self.rows).finish_non_exhaustive()
    }
}

impl TableLoad {
    fn new(core: &Handle, schema: &Schema, trees: Vec<u32>) -> Result<Self> {
        let numbers = [trees[0], trees[0] | PIECES].into_iter().chain(trees[1..].iter().copied());
        let contents = numbers.map(Content::new).collect();
        let layout = schema.layout()?;
        // Before the pages are written. Forgotten with the trees if the load fails.
        core.place(&trees, &schema.place);
        Ok(Self { core: core.clone(), schema: schema.clone(), layout, trees, contents, rows: 0 })
    }

    /// Adds a row, in any order. Rows in the order of the key cost least.
    ///
    /// # Errors
    /// [`Error::WrongType`], [`Error::WrongLength`], [`Error::TooLarge`] for a row that does not fit;
    /// [`Error::Duplicate`] for rows before it; a full pool. The load cannot go on then.
    pub fn push(&mut self, row: &[Value]) -> Result<()> {
        let Self { core, schema, layout, contents, .. } = self;
        schema.verify_row(row)?;
        let key = schema.key_of(layout, row)?;
        let payload = layout.encode(schema, row, core.limits)?;
        for (id, value) in payload.moved {
            for (number, piece) in value.chunks(core.limits.piece_bytes).enumerate() {
                contents[LARGE].push(&piece_key(&key, id, number), piece);
            }
        }
        for ((index, columns), content) in schema.indexes.iter().zip(&layout.indexes).zip(&mut contents[INDEXES..]) {
            let Entry { key, payload } = entry(schema, columns, index, row, &key)?;
            content.push(&key, &payload);
        }
        contents[ROWS].push(&key, &payload.bytes);
        self.rows += 1;
        let bytes: usize = self.contents.iter().map(|content| content.buffer.bytes()).sum();
        if bytes > self.core.load_buffer_bytes { self.make_room() } else { Ok(()) }
    }

    /// How many rows were added.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Writes rows that are in memory.
    fn make_room(&mut self) -> Result<()> {
        if self.core.ways.durability.is_none() {
            // There are no pages: memory is where the rows stay.
            return Ok(());
        }
        for number in 0..self.contents.len() {
            if !self.contents[number].is_in_order() {
                self.contents[number].spill(&self.core)?.map_err(|key| self.duplicate(number, &key))?;
            }
        }
        self.write_part(|content| content.is_in_order(), false)
    }

    /// The error of a key that two rows of a tree have.
    fn duplicate(&self, number: usize, key: &[u8]) -> Error {
        let index = number.checked_sub(INDEXES);
        // Each piece has the key of a row, of which no two are the same once these were looked at.
        let columns = index.map_or(&self.layout.key, |index| &self.layout.indexes[index]);
        let key = self.schema.columns_text(columns, key);
        let index = index.map(|index| self.schema.indexes[index].name.clone());
        Error::Duplicate { table: self.schema.name.clone(), index, key }
    }

    /// Sorts and merges all rows and entries.
    fn sort(&mut self) -> Result<()> {
        for number in 0..self.contents.len() {
            if !self.contents[number].has_spilled() {
                self.contents[number].sort().map_err(|key| self.duplicate(number, &key))?;
            }
            let core = self.core.clone();
            let merged = self.contents[number].merge(&core, |content| {
                let mut pages = core.rounds.pages();
                let count = content.pages(&core, &pages, false);
                find_room(&core, &mut pages, content.tree, count)?;
                let mut batch = pages.batch();
                content.write(&core, &mut batch, false)?;
                publish(&core, batch)?;
                content.note_published();
                Ok(())
            })?;
            merged.map_err(|key| self.duplicate(number, &key))?;
        }
        Ok(())
    }

    /// Writes the images of the leaves of some contents, which count on return.
    fn write_part(&mut self, which: impl Fn(&Content) -> bool, is_all: bool) -> Result<()> {
        let core = self.core.clone();
        let mut pages = core.rounds.pages();
        let contents = || self.contents.iter().filter(|content| which(content));
        let count = contents().map(|content| content.pages(&core, &pages, is_all)).sum();
        find_room(&core, &mut pages, self.trees[0], count)?;
        let mut batch = pages.batch();
        for content in self.contents.iter_mut().filter(|content| which(content)) {
            content.write(&core, &mut batch, is_all)?;
            content.take_ended().into_iter().for_each(|image| batch.end(image));
        }
        publish(&core, batch)?;
        self.contents.iter_mut().for_each(Content::note_published);
        Ok(())
    }

    /// Writes all rows. On return they count, and are durable, and belong to no table yet.
    ///
    /// # Errors
    /// [`Error::Duplicate`]; a full pool ([`Error::is_full`]); a medium that failed; [`Error::Poisoned`].
    pub fn finish(mut self) -> Result<LoadedTable> {
        self.sort()?;
        let has_rows = self.contents.iter().any(|content| !content.is_empty());
        if has_rows && !self.core.ways.durability.is_none() {
            self.write_part(|_| true, true)?;
            if !planted::active("engine-load-in-one-checkpoint") {
                // The older checkpoint gets the images too, before a table needs them.
                self.core.rounds.pages().batch().publish_beside()?;
            }
        }
        let contents = std::mem::take(&mut self.contents);
        let all = contents.iter().map(|content| content.tree).collect();
        let filled = contents.into_iter().filter(|content| !content.is_empty());
        self.core.add_trees(filled.map(|content| content.tree(&self.core)));
        // The rows that were in memory are on the clock now, and may be more than the cache holds.
        self.core.ground.cache.iter().for_each(|cache| cache.make_much_room());
        let (core, schema, trees) = (self.core.clone(), self.schema.clone(), self.trees.clone());
        Ok(LoadedTable { core, schema, trees, all, replaced: Vec::new(), rows: self.rows, is_kept: false })
    }
}

impl Drop for TableLoad {
    fn drop(&mut self) {
        // Images that count, of a load that did not end.
        let images = std::mem::take(&mut self.contents).into_iter().flat_map(Content::into_images).collect();
        self.core.forget_images(self.trees[0], images);
    }
}

/// Looks for room for so many pages, and leaves some for the logs: without it commits would end in error until rows
/// are deleted.
fn find_room(core: &Core, pages: &mut Pages, tree: u32, count: usize) -> Result<()> {
    let log = core.wal.stats();
    let spare = (log.segments - log.segments_free).max(SPARE_SEGMENTS).saturating_sub(log.segments_free);
    let has_ranges = core.placements.has_ranges(tree);
    let part = if has_ranges { None } else { core.placements.of(tree) };
    pages.find_room(count, part, (spare, log.segment_bytes))?;
    if has_ranges {
        // Each part gives room for what it gets, and that is not known yet.
        pages.forget_room();
    }
    Ok(())
}

/// Makes the images of a batch count.
fn publish(core: &Core, batch: Batch<'_>) -> Result<()> {
    core.refuse_if_poisoned()?;
    if let Some(group) = &core.group {
        // The numbers of the trees, before pages of them count.
        group.flush(core)?;
    }
    Ok(batch.publish_beside()?)
}

/// The rows of a load that has ended, durable and without a table. Dropping it forgets them.
pub struct LoadedTable {
    core: Handle,
    schema: Schema,
    trees: Vec<u32>,
    /// All trees, also that of pieces.
    all: Vec<u32>,
    /// The trees of the table whose place it takes.
    replaced: Vec<u32>,
    rows: u64,
    /// Whether nothing of it is to be forgotten.
    is_kept: bool,
}

impl fmt::Debug for LoadedTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("LoadedTable");
        shown.field("table", &self.schema.name).field("rows", &self.rows).finish_non_exhaustive()
    }
}

impl LoadedTable {
    /// How many rows it has.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The transaction that gives it to a table had this outcome.
    fn settle<R>(mut self, outcome: &Result<R>) {
        match outcome {
            Ok(_) => {
                self.is_kept = true;
                if !planted::active("engine-load-keeps-rows-before") {
                    self.core.forget_trees(&self.replaced);
                }
            }
            // After an error of the medium the table may have either. The next open finds out.
            Err(error) => self.is_kept = is_unknown(error),
        }
    }
}

impl Drop for LoadedTable {
    fn drop(&mut self) {
        if !self.is_kept {
            self.core.forget_trees(&self.all);
        }
    }
}

/// The loads of a transaction, which ends. They are in the order in which tables got them.
#[derive(Debug)]
pub struct Pending {
    loads: Vec<LoadedTable>,
    /// By load: whether the transaction gives it to a table still. A savepoint may have taken that back, and the table
    /// may have got another one since.
    are_given: Vec<bool>,
}

impl Pending {
    /// Those of `tx`, which is about to commit.
    ///
    /// # Errors
    /// As a read of the catalog.
    pub fn of(tx: &Tx, loads: Vec<LoadedTable>) -> Result<Self> {
        let catalog = catalog::table(&tx.core)?;
        let is_given = |load: &LoadedTable| {
            let found = catalog::find_in(&catalog, tx, &load.schema.name)?;
            Ok(found.is_some_and(|found| found.tree == load.trees[0]))
        };
        let are_given = loads.iter().map(is_given).collect::<Result<_>>()?;
        Ok(Self { loads, are_given })
    }

    /// The commit had this outcome.
    pub fn settle<R>(self, outcome: &Result<R>) {
        let mut others: Vec<LoadedTable> = Vec::new();
        for (mut load, is_given) in self.loads.into_iter().zip(self.are_given) {
            if !is_given {
                others.push(load);
                continue;
            }
            // The rows that it took the place of may be those of a load that took the place of others.
            while let Some(before) = others.iter().position(|other| load.replaced.contains(&other.trees[0])) {
                load.replaced.retain(|tree| !others[before].all.contains(tree));
                let before = others.swap_remove(before);
                load.replaced.extend_from_slice(&before.replaced);
            }
            load.settle(outcome);
        }
    }
}

/// Whether a transaction with this error may have happened.
fn is_unknown(error: &Error) -> bool {
    matches!(error, Error::Pool(_) | Error::Poisoned { .. }) && !error.is_full()
}

impl Database {
    /// Begins to load rows for a table that has the columns and indexes of `schema`, also one that is there. No
    /// transaction sees them before one gives them to the table: see [`put_loaded`](Self::put_loaded), which has an
    /// example.
    ///
    /// The rows go to pages, and no log has a record of them. So a load may have more of them than a transaction, and
    /// than memory: of those that are not in the order of the key some wait in a file beside the pool.
    ///
    /// # Errors
    /// [`Error::FeedOpen`]; [`Error::BadSchema`]; [`Error::ReadOnly`]; as [`update`](Self::update).
    pub fn begin_load(&self, schema: &Schema) -> Result<TableLoad> {
        let catalog = self.catalog_for_load(schema)?;
        let trees = self.update(|tx| catalog::take_tree_numbers(&catalog, tx, 1 + schema.indexes.len()))?;
        TableLoad::new(self.core(), schema, trees)
    }

    fn catalog_for_load(&self, schema: &Schema) -> Result<Table> {
        if schema.is_dual() {
            let finding = "its rows are in cells, which a load does not write; add them by transactions".into();
            return Err(Error::BadSchema { table: schema.name.clone(), finding });
        }
        self.core().refuse_if_read_only()?;
        if self.core().holds.are_in_use() {
            return Err(Error::FeedOpen { table: schema.name.clone() });
        }
        self.verify_place(schema)?;
        schema.layout()?;
        catalog::table(self.core())
    }

    /// Gives the table these rows in place of its own, as part of the transaction `tx`. Without a look at the ones that
    /// it had: read them in `tx` if none may be lost. Returns a handle by which `tx` sees the new rows, and can change
    /// them. Other transactions see them after the commit. If it does not commit, the rows of the load are forgotten.
    ///
    /// # Errors
    /// [`Error::NoTable`], also for a table that `tx` has made; [`Error::SchemaDiffers`]; [`Error::IndexNotReady`] if
    /// an index of the table is being built; [`Error::LoadBesideTables`] if `tx` makes tables or indexes; as
    /// [`Table::put`].
    ///
    /// ```
    /// use lodestone_engine::{Database, DatabaseOptions, Error, Schema, row};
    /// # use lodestone_pmem::{DomainChoice, PoolOptions};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("shop.pool");
    /// # let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
    /// # let options =
    /// #     DatabaseOptions { pool, log_bytes: 1 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
    /// let db = Database::open_with(&path, &options)?;
    /// let users = db.create_table(&"users (id u64, town text) key (id)".parse::<Schema>()?)?;
    /// db.update(|tx| users.put(tx, &row![7_u64, "Oslo"]))?;
    /// let mut load = db.begin_load(users.schema())?;
    /// (0..1_000_u64).try_for_each(|id| load.push(&row![id, "Bern"]))?;
    /// let tx = db.begin();
    /// let inside = db.put_loaded(&tx, load.finish()?)?;
    /// inside.delete(&tx, &row![0_u64])?;
    /// assert_eq!(db.update(|other| users.get(other, &row![7_u64]))?, Some(row![7_u64, "Oslo"]));
    /// tx.commit()?;
    /// let users = db.table("users")?;
    /// assert_eq!(db.update(|tx| Ok(users.range(tx, ..)?.count()))?, 999);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn put_loaded(&self, tx: &Tx, mut loaded: LoadedTable) -> Result<Table> {
        let (core, catalog) = (self.core(), catalog::table(self.core())?);
        tx.note_load()?;
        let (origin, replaced) = catalog::replace_trees(&catalog, tx, &loaded.schema, &loaded.trees)?;
        loaded.replaced = replaced;
        let index = |tree: &u32| IndexTree { tree: core.tree(*tree), is_ready: true };
        let indexes = loaded.trees[1..].iter().map(index).collect();
        let (schema, layout) = (loaded.schema.clone(), loaded.schema.layout()?);
        let table = Table::new(core, Definition { schema, layout, indexes, origin }, loaded.trees[0]);
        tx.keep_load(loaded);
        Ok(table)
    }
}

/// Makes the table of `schema` with these rows. See the module.
pub fn load(database: &Database, schema: &Schema, rows: impl Iterator<Item = Result<Row>>) -> Result<Table> {
    let (core, began) = (database.core(), Instant::now());
    let catalog = database.catalog_for_load(schema)?;
    let layout = schema.layout()?;
    let trees = database.update(|tx| catalog::take_numbers(&catalog, tx, schema))?;
    let mut load = TableLoad::new(core, schema, trees.clone())?;
    for row in rows {
        load.push(&row?)?;
    }
    load.sort()?;
    let add_table = || database.update(|tx| catalog::create_loaded(&catalog, tx, schema, &layout, &trees));
    let is_early = planted::active("engine-load-table-first");
    if is_early {
        add_table()?;
    }
    let loaded = load.finish()?;
    let rows = loaded.rows();
    // The pages are durable. Before that the table may not be: a crash would leave it without its rows.
    let outcome = if is_early { Ok(()) } else { add_table() };
    loaded.settle(&outcome);
    outcome?;
    events::loaded(core, &schema.name, rows, began);
    database.table(&schema.name)
}
