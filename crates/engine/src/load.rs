//! Bulk load: a new table with all its rows, which go to pages and not to the logs.
//!
//! 1. *Numbers*: a transaction takes the numbers of the trees. It is durable before a page of them counts. So whatever
//!    becomes of these pages, their trees are known to be without an owner until the catalog names them.
//! 2. *Rows*: each is verified and encoded, with its pieces and its entries in the indexes. Each tree is sorted, unless
//!    its rows came in order. Then equal keys are neighbours. The bytes are those that the tree keeps in DRAM.
//! 3. *Pages*: images of leaves that are three quarters full, in a batch that counts by one block
//!    ([`lodestone_pages::Batch`]). The positions in the logs stay those of the newest checkpoint, because the other
//!    trees have not been written. A second batch, which is empty, overwrites the older block: afterwards either of the
//!    two may be damaged.
//! 4. *Table*: a transaction adds the table to the catalog. **Not before step 3 is durable**: after a crash the table
//!    would be there, and its rows would not.
//!
//! A crash, or an error, before step 4 leaves pages of trees that the catalog does not name, or none. The next open
//! forgets such trees as those of dropped tables, and the next checkpoint frees their pages (`rounds.rs`).
//!
//! The rows have the first tick of this life. All later changes have larger ones, and no record of an earlier life is
//! of these trees. A transaction sees the rows when it sees the table in the catalog.

use std::sync::Arc;
use std::time::Instant;

use lodestone_pages::{Image, PageRow};
use lodestone_pmem::planted;
use lodestone_txn::{RowWord, Writer};

use crate::catalog;
use crate::core::Core;
use crate::database::Database;
use crate::error::{Error, Result};
use crate::events;
use crate::index::{Entry, entry};
use crate::large::{PIECES, piece_key};
use crate::leaf::{Leaf, Page, Purged, Span};
use crate::leaf_size::LeafSize;
use crate::schema::{Layout, Schema};
use crate::table::Table;
use crate::tree::{Bytes, Slot, Tree, room};
use crate::value::Row;

/// Segments of the log that a load leaves room for at least.
const SPARE_SEGMENTS: u64 = 2;

/// The rows of a tree that is made.
struct Content {
    tree: u32,
    rows: Vec<(Bytes, Bytes)>,
    /// Whether each key is after the one before it.
    is_sorted: bool,
}

impl Content {
    fn new(tree: u32) -> Self {
        Self { tree, rows: Vec::new(), is_sorted: true }
    }

    fn push(&mut self, key: Vec<u8>, payload: &[u8]) {
        self.is_sorted &= self.rows.last().is_none_or(|(last, _)| **last < key[..]);
        self.rows.push((key.into(), payload.into()));
    }

    /// Sorts the rows. Returns a key that two of them have.
    fn sort(&mut self) -> Option<&Bytes> {
        if self.is_sorted {
            return None;
        }
        self.rows.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        self.is_sorted = true;
        self.rows.windows(2).find(|pair| pair[0].0 == pair[1].0).map(|pair| &pair[0].0)
    }

    /// The rows of each leaf, with the first key that could be in it.
    fn leaves(&self, size: LeafSize) -> impl Iterator<Item = (Bytes, &[(Bytes, Bytes)])> {
        let (mut rest, mut low) = (&self.rows[..], Bytes::default());
        std::iter::from_fn(move || {
            let count = size.take(&low, rest).min(rest.len());
            let rows = rest.split_off(..count)?;
            let next = rest.first().map(|(key, _)| key.clone()).unwrap_or_default();
            (count > 0).then(|| (std::mem::replace(&mut low, next), rows))
        })
    }

    /// The tree of these rows, whose leaves have these images. None: they have no images.
    fn tree(self, core: &Core, images: Vec<Image>) -> Arc<Tree> {
        let base = core.timeline.base();
        // A version that every thread knows to be committed, as those that an open finds.
        let word = RowWord::new(base, Writer::default(), false);
        let counts: Vec<_> = self.leaves(core.ground.leaf_size).map(|(_, rows)| rows.len()).collect();
        let mut images = images.into_iter();
        let mut rows = self.rows.into_iter().map(|(key, payload)| Slot::new(key, word, payload)).peekable();
        let (mut leaves, mut low) = (Vec::new(), Bytes::default());
        for count in counts {
            let slots: Vec<_> = rows.by_ref().take(count).collect();
            let high = rows.peek().map(|slot| slot.key().clone());
            let span = Span { low: std::mem::replace(&mut low, high.clone().unwrap_or_default()), high };
            let (room, page) = (room(&core.ground.leaf_size, &slots), Page::new(images.next(), false));
            leaves.push(Leaf::new(room, span, slots, Purged::default(), page));
        }
        Tree::of_leaves(self.tree, &core.ground, leaves)
    }
}

fn page_rows<'r>(core: &Core, rows: &'r [(Bytes, Bytes)]) -> impl Iterator<Item = PageRow<'r>> {
    let tick = core.timeline.base();
    rows.iter().map(move |(key, payload)| PageRow { key, tick, writer: Writer::default(), payload })
}

/// A table that is made.
struct Load<'l> {
    core: &'l Core,
    schema: &'l Schema,
    layout: &'l Layout,
    /// The rows, their pieces, and the entries of each index.
    contents: Vec<Content>,
}

/// The places of a table's trees among the contents.
const ROWS: usize = 0;
const LARGE: usize = 1;
const INDEXES: usize = 2;

impl Load<'_> {
    fn push(&mut self, row: &Row) -> Result<()> {
        let Self { core, schema, layout, contents } = self;
        schema.verify_row(row)?;
        let key = schema.key_of(layout, row)?;
        let payload = layout.encode(schema, row, core.limits)?;
        for (id, value) in payload.moved {
            for (number, piece) in value.chunks(core.limits.piece_bytes).enumerate() {
                contents[LARGE].push(piece_key(&key, id, number), piece);
            }
        }
        for ((index, columns), content) in schema.indexes.iter().zip(&layout.indexes).zip(&mut contents[INDEXES..]) {
            let Entry { key, payload } = entry(schema, columns, index, row, &key)?;
            content.push(key, &payload);
        }
        contents[ROWS].push(key, &payload.bytes);
        Ok(())
    }

    /// Sorts all rows and entries.
    ///
    /// # Errors
    /// [`Error::Duplicate`].
    fn sort(&mut self) -> Result<()> {
        let duplicate = |index: Option<&str>, columns: &[usize], key: &[u8]| {
            let (table, index) = (self.schema.name.clone(), index.map(str::to_owned));
            Err(Error::Duplicate { table, index, key: self.schema.columns_text(columns, key) })
        };
        if let Some(key) = self.contents[ROWS].sort() {
            return duplicate(None, &self.layout.key, key);
        }
        // Each has the key of a row, of which no two are the same.
        self.contents[LARGE].sort();
        let indexes = self.schema.indexes.iter().zip(&self.layout.indexes);
        for ((index, columns), content) in indexes.zip(&mut self.contents[INDEXES..]) {
            if let Some(key) = content.sort() {
                return duplicate(Some(&index.name), columns, key);
            }
        }
        Ok(())
    }

    /// Writes the images of all leaves. They count on return, and are durable.
    fn write(&self) -> Result<Vec<Vec<Image>>> {
        let core = self.core;
        if core.ways.durability.is_none() {
            return Ok(self.contents.iter().map(|_| Vec::new()).collect());
        }
        let mut pages = core.rounds.pages();
        let leaves = || self.contents.iter().flat_map(|content| content.leaves(core.ground.leaf_size));
        let count = leaves().map(|(low, rows)| pages.image_pages(&low, page_rows(core, rows))).sum();
        // The logs need room as well. Without it commits would end in error until rows are deleted.
        let log = core.wal.stats();
        let spare = (log.segments - log.segments_free).max(SPARE_SEGMENTS).saturating_sub(log.segments_free);
        pages.find_room(count, self.schema.part(), (spare, log.segment_bytes))?;
        let mut batch = pages.batch();
        batch.place(self.schema.part());
        let mut images = Vec::new();
        for content in &self.contents {
            let mut of_tree = Vec::new();
            for (low, rows) in content.leaves(core.ground.leaf_size) {
                core.refuse_if_poisoned()?;
                of_tree.push(batch.write(content.tree, &low, page_rows(core, rows))?);
            }
            images.push(of_tree);
        }
        core.refuse_if_poisoned()?;
        if let Some(group) = &core.group {
            // The numbers of the trees, before pages of them count.
            group.flush(core)?;
        }
        batch.publish_beside()?;
        if !planted::active("engine-load-in-one-checkpoint") {
            // The older checkpoint gets the images too, before a table needs them.
            pages.batch().publish_beside()?;
        }
        Ok(images)
    }

    /// Makes trees of the rows. Returns their numbers.
    fn add_trees(self, images: Vec<Vec<Image>>) -> Vec<u32> {
        let filled: Vec<_> =
            self.contents.into_iter().zip(images).filter(|(content, _)| !content.rows.is_empty()).collect();
        let numbers = filled.iter().map(|(content, _)| content.tree).collect();
        self.core.add_trees(filled.into_iter().map(|(content, images)| content.tree(self.core, images)));
        numbers
    }
}

/// Makes the table of `schema` with these rows. See the module.
pub fn load(database: &Database, schema: &Schema, rows: impl Iterator<Item = Result<Row>>) -> Result<Table> {
    let (core, began): (&Core, _) = (database.core(), Instant::now());
    core.refuse_if_read_only()?;
    if core.holds.are_in_use() {
        return Err(Error::FeedOpen { table: schema.name.clone() });
    }
    database.verify_part(&schema.name, schema.part())?;
    let (layout, catalog) = (schema.layout()?, catalog::table(database.core())?);
    let trees = database.update(|tx| catalog::take_numbers(&catalog, tx, schema))?;
    let contents = [trees[0], trees[0] | PIECES].into_iter().chain(trees[1..].iter().copied()).map(Content::new);
    let mut load = Load { core, schema, layout: &layout, contents: contents.collect() };
    let mut count = 0;
    for row in rows {
        load.push(&row?)?;
        count += 1;
    }
    load.sort()?;
    let add_table = || database.update(|tx| catalog::create_loaded(&catalog, tx, schema, &layout, &trees));
    let is_early = planted::active("engine-load-table-first");
    if is_early {
        add_table()?;
    }
    // Before the pages are written. They are without an owner if the load fails.
    core.placements.set(&trees, schema.part());
    let images = load.write()?;
    let filled = load.add_trees(images);
    // The pages are durable. Before that the table may not be: a crash would leave it without its rows.
    let outcome = if is_early { Ok(()) } else { add_table() };
    if let Err(error) = outcome {
        // After an error of the medium the table may be there. The next open finds out.
        let is_unknown = matches!(error, Error::Pool(_) | Error::Poisoned { .. }) && !error.is_full();
        if !is_unknown {
            core.forget_trees(&filled);
        }
        return Err(error);
    }
    events::loaded(core, &schema.name, count, began);
    database.table(&schema.name)
}
