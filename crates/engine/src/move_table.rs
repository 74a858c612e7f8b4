//! A table, or a range of its keys, moves to another part of the pool and so to another node, beside transactions.
//!
//! 1. The catalog gets the new part, in a transaction. From now on new images go there.
//! 2. Leaf by leaf, those with an image elsewhere are made dirty, so that the next round writes a new image. Cold
//!    leaves are loaded for that. A round comes after so many leaves, and whenever the cache has no room but that of
//!    dirty leaves.
//! 3. A last round. The former pages are free when both checkpoints have the new ones.
//!
//! After a crash in between the table has pages in both parts, and a second call goes on. Rows never change.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use lodestone_pmem::sync::lock;
use lodestone_width::to_u64;

use crate::catalog;
use crate::core::Core;
use crate::database::Database;
use crate::error::{Error, Result};
use crate::events;
use crate::key::after;
use crate::placement::{Place, RANGES_MAX, RangePlacement, TablePlacement};
use crate::rounds;
use crate::schema::{Layout, Schema};
use crate::tree::{Bytes, Tree};
use crate::value::Row;

/// A round that began before the first pass may write some leaves where they were. A second pass finds them. More of
/// them would be in vain: then the part is full.
const PASSES_MAX: u32 = 2;
/// Leaves between two rounds.
const LEAVES_PER_ROUND: u64 = 4096;

/// The work of [`Database::move_table`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MoveReport {
    /// Leaves whose images were elsewhere.
    pub leaves: u64,
    /// Rounds that were made for them.
    pub checkpoints: u64,
}

impl Database {
    /// Moves the table, its indexes and its long values to a part of the pool, and so to the node of that part.
    /// Transactions go on meanwhile. Durable on return. `None`: new pages go where there is room from now on, and none
    /// is moved.
    ///
    /// After a crash or an error pages may be in both parts. Call it again, or leave it: only costs depend on it.
    ///
    /// # Errors
    /// [`Error::NoTable`]; [`Error::BadSchema`] for a part that the pool does not have; those of a
    /// [checkpoint](Self::checkpoint).
    ///
    /// ```
    /// use lodestone_engine::{Database, DatabaseOptions, Error, Schema, row};
    /// use lodestone_pmem::{DomainChoice, PoolOptions};
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("shop.pool");
    /// // A part on each of two nodes.
    /// let parts = vec![folder.path().join("shop.pool.1")];
    /// let pool = PoolOptions { parts, virtual_nodes: 2, domain: DomainChoice::Process, ..PoolOptions::default() };
    /// let options = DatabaseOptions { pool, log_bytes: 1 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
    /// let db = Database::open_with(&path, &options)?;
    /// let schema: Schema = "users (id u64, town text) key (id)".parse()?;
    /// let users = db.create_table(&schema.in_part(0))?;
    /// db.update(|tx| users.put(tx, &row![1_u64, "Oslo"]))?;
    /// db.checkpoint()?;
    /// assert_eq!(db.move_table("users", Some(1))?.leaves, 1);
    /// assert_eq!(db.placement("users")?.pages, [0, 1]);
    /// // The handle is as good as before.
    /// assert_eq!(db.update(|tx| users.get(tx, &row![1_u64]))?, Some(row![1_u64, "Oslo"]));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn move_table(&self, table: &str, part: Option<u16>) -> Result<MoveReport> {
        self.relocate(table, part, |_, _, place| {
            *place = std::mem::take(place).whole(part);
            Ok(())
        })
    }

    /// Moves the rows of a range of keys, with their long values, to a part of the pool, as
    /// [`move_table`](Self::move_table) does with all of them. The other rows stay where they are, and so do the
    /// indexes: those have keys of their own. The bounds are keys, or the first columns of some. A table may have 256
    /// ranges; `move_table` ends all of them.
    ///
    /// Pages have rows of neighbouring keys, so a page over a border of the range is in the part of its first row. With
    /// [`LogPlacement::ByTable`](crate::LogPlacement) the records of the rows are in the log of their part.
    ///
    /// # Errors
    /// As [`move_table`](Self::move_table); [`Error::BadSchema`] also for a range without keys, and for too many of
    /// them; [`Error::WrongType`] and [`Error::WrongLength`] for bounds that are no keys.
    ///
    /// ```
    /// use lodestone_engine::{Database, DatabaseOptions, Error, Schema, row};
    /// use lodestone_pmem::{DomainChoice, PoolOptions};
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("shop.pool");
    /// # let parts = vec![folder.path().join("shop.pool.1")];
    /// let pool = PoolOptions { parts, virtual_nodes: 2, domain: DomainChoice::Process, ..PoolOptions::default() };
    /// let options = DatabaseOptions { pool, log_bytes: 1 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
    /// let db = Database::open_with(&path, &options)?;
    /// let schema: Schema = "users (id u64, town text) key (id)".parse()?;
    /// let users = db.create_table(&schema.in_part(0))?;
    /// db.move_range("users", row![3000_u64].., Some(1))?;
    /// db.update(|tx| (0..6000_u64).try_for_each(|id| users.put(tx, &row![id, "Oslo"])))?;
    /// db.checkpoint()?;
    /// let placement = db.placement("users")?;
    /// assert_eq!((placement.ranges[0].from.as_str(), placement.ranges[0].part), ("(3000)", Some(1)));
    /// assert!(placement.pages.iter().all(|pages| *pages > 5));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn move_range(&self, table: &str, keys: impl RangeBounds<Row>, part: Option<u16>) -> Result<MoveReport> {
        self.relocate(table, part, |schema, layout, place| {
            let bad = |finding: String| Err(Error::BadSchema { table: table.into(), finding });
            let bytes = |key: &Row| schema.key_bytes(layout, key, true);
            let low = match keys.start_bound() {
                Bound::Unbounded => Some(Vec::new()),
                Bound::Included(key) => Some(bytes(key)?),
                Bound::Excluded(key) => after(&bytes(key)?),
            };
            let high = match keys.end_bound() {
                Bound::Unbounded => None,
                Bound::Included(key) => after(&bytes(key)?),
                Bound::Excluded(key) => Some(bytes(key)?),
            };
            let Some(low) = low.filter(|low| high.as_ref().is_none_or(|high| low < high)) else {
                return bad("the range has no keys: it ends before it begins".into());
            };
            place.set(low, high, part);
            match place.ranges().len() {
                0..=RANGES_MAX => Ok(()),
                count => bad(format!("it would have {count} ranges of keys with parts; the limit is {RANGES_MAX}")),
            }
        })
    }

    /// Keeps the rows of the table, its indexes and its long values in DRAM from now on, beside the
    /// [cache](crate::DatabaseOptions) of the others; or puts them into the cache again. Rows that are on pages alone
    /// are read. Transactions go on meanwhile. Durable on return, also for later lives of the database.
    ///
    /// Without a bound of the cache all tables are kept, and this says what is to be when there is one.
    ///
    /// # Errors
    /// [`Error::NoTable`]; [`Error::Damaged`] for pages that cannot be read; as [`update`](Self::update).
    ///
    /// ```
    /// # use lodestone_engine::{Database, DatabaseOptions, Error, Schema, row};
    /// # use lodestone_pmem::{DomainChoice, PoolOptions};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("shop.pool");
    /// # let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
    /// let options = DatabaseOptions {
    ///     pool,
    ///     log_bytes: 1 << 20,
    ///     segment_bytes: 1 << 16,
    ///     cache_bytes: Some(64 << 10),
    ///     ..DatabaseOptions::default()
    /// };
    /// let db = Database::open_with(&path, &options)?;
    /// let towns = "towns (id u64, name text) key (id)".parse::<Schema>()?;
    /// db.load_table(&towns, (0..5000_u64).map(|id| Ok(row![id, format!("town {id}")])))?;
    /// db.keep_table("towns", true)?;
    /// assert!(db.placement("towns")?.is_kept && db.stats().cache_bytes < 64 << 10);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn keep_table(&self, table: &str, is_kept: bool) -> Result<()> {
        let core: &Core = self.core();
        let (trees, _) = self.change_place(table, |schema, _| {
            schema.place.is_kept = is_kept;
            Ok(())
        })?;
        events::table(core, "keep", table);
        // The rows of a table that is not kept any more are on the clock.
        core.ground.cache.iter().for_each(|cache| cache.make_much_room());
        let mut trees = trees.iter().filter_map(|tree| core.find_tree(*tree)).filter(|tree| tree.is_kept());
        trees.try_for_each(|tree| tree.load_while(|| true).map(|_| ()))
    }

    /// Changes the place of a table, in the catalog and for what is written from now on. Returns the numbers of its
    /// trees, and the place.
    fn change_place(
        &self,
        table: &str,
        change: impl Fn(&mut Schema, &Layout) -> Result<()>,
    ) -> Result<(Vec<u32>, Place)> {
        let core: &Core = self.core();
        let catalog = catalog::table(self.core())?;
        let _placing = lock(&core.placing);
        let (trees, place) = self.update(|tx| catalog::place_table(&catalog, tx, table, &change))?;
        core.place(&trees, &place);
        Ok((trees, place))
    }

    /// Changes the place of a table, and moves its pages there.
    fn relocate(
        &self,
        table: &str,
        part: Option<u16>,
        change: impl Fn(&Schema, &Layout, &mut Place) -> Result<()>,
    ) -> Result<MoveReport> {
        let core: &Core = self.core();
        if core.ways.durability.is_none() {
            return Err(Error::WithoutDurability { path: self.pool().path().to_owned() });
        }
        self.verify_part(table, part)?;
        let (trees, place) = self.change_place(table, |schema, layout| {
            let mut place = schema.place.clone();
            change(schema, layout, &mut place)?;
            schema.place = place;
            Ok(())
        })?;
        events::table(core, "move", table);
        let mut moved = Move { core, report: MoveReport::default(), since_round: 0 };
        let mut is_left = place.parts().next().is_some();
        for _ in 0..PASSES_MAX {
            let before = moved.report.leaves;
            if is_left {
                trees.iter().filter_map(|tree| core.find_tree(*tree)).try_for_each(|tree| moved.tree(&tree))?;
                is_left = moved.report.leaves > before;
            }
            if is_left {
                moved.round()?;
            }
        }
        Ok(moved.report)
    }

    /// Where the pages of the table are.
    ///
    /// # Errors
    /// [`Error::NoTable`]; [`Error::Damaged`].
    pub fn placement(&self, table: &str) -> Result<TablePlacement> {
        let catalog = catalog::table(self.core())?;
        let found = self.update(|tx| catalog::must_find(&catalog, tx, table))?;
        let (schema, nodes) = (&found.schema, self.pool().part_nodes());
        let node = |part: Option<u16>| nodes.get(usize::from(part?))?.id;
        let layout = schema.layout()?;
        let range = |(from, part): &(Vec<u8>, Option<u16>)| RangePlacement {
            from: schema.prefix_text(&layout, from),
            part: *part,
            node: node(*part),
        };
        let mut placement = TablePlacement {
            part: schema.part(),
            node: node(schema.part()),
            ranges: schema.place.ranges().iter().map(range).collect(),
            pages: vec![0; nodes.len()],
            pages_elsewhere: 0,
            is_kept: schema.is_kept(),
            is_dual: schema.is_dual(),
        };
        let trees: Vec<Arc<Tree>> = found.trees().into_iter().filter_map(|tree| self.core().find_tree(tree)).collect();
        for tree in trees {
            let place = self.core().placements.place(tree.number);
            tree.for_each_home(|low, home| {
                for part in home.parts() {
                    placement.pages[usize::from(part)] += 1;
                    placement.pages_elsewhere += u64::from(place.at(low).is_some_and(|wanted| wanted != part));
                }
            });
        }
        Ok(placement)
    }

    /// The first part of the pool on the node with this number, for [`Schema::in_part`](crate::Schema::in_part). It is
    /// the kernel's number, or that of a virtual node.
    ///
    /// # Errors
    /// [`Error::NoPartOnNode`].
    pub fn part_on(&self, node: u32) -> Result<u16> {
        let mut nodes = (0..).zip(self.pool().part_nodes());
        let found = nodes.find(|(_, of)| of.id == Some(node)).map(|(part, _)| part);
        found.ok_or_else(|| Error::NoPartOnNode { path: self.pool().path().to_owned(), node })
    }

    /// Pages of images of all tables and indexes. For proofs that no page is lost.
    ///
    /// # Errors
    /// As [`tables`](Self::tables).
    #[doc(hidden)]
    pub fn pages_in_use(&self) -> Result<u64> {
        let catalog = catalog::table(self.core())?;
        let numbers = self.update(|tx| catalog::Numbers::read(&catalog, tx))?;
        let trees = self.core().trees().into_iter().filter(|tree| !numbers.is_dropped(tree.number));
        Ok(trees.flat_map(|tree| tree.homes()).map(|home| to_u64(home.page_count())).sum())
    }

    /// Refuses a schema for a table that cannot be where it says: in a part that the pool does not have, or in cells
    /// where there can be none. [`create_table`](Self::create_table) and its relatives do the same.
    ///
    /// # Errors
    /// [`Error::BadSchema`]; [`Error::OlderDatabase`].
    ///
    /// ```
    /// # use lodestone_engine::{Database, DatabaseOptions, Error, Schema};
    /// # use lodestone_pmem::{DomainChoice, PoolOptions};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("shop.pool");
    /// # let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
    /// # let options =
    /// #     DatabaseOptions { pool, log_bytes: 1 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
    /// let db = Database::open_with(&path, &options)?;
    /// let towns = || "towns (id u64, name text) key (id)".parse::<Schema>();
    /// db.verify_place(&towns()?.dual())?;
    /// assert!(matches!(db.verify_place(&towns()?.in_part(1)), Err(Error::BadSchema { .. })));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn verify_place(&self, schema: &Schema) -> Result<()> {
        let refuse = |finding: &str| Err(Error::BadSchema { table: schema.name.clone(), finding: finding.into() });
        if schema.is_dual() && self.core().cells.is_none() {
            return Err(Error::OlderDatabase);
        }
        if schema.is_dual() && self.core().group.is_some() {
            return refuse("rows in cells are not written by group commit by epochs");
        }
        schema.place.parts().try_for_each(|part| self.verify_part(&schema.name, Some(part)))
    }

    /// Refuses a part that the pool does not have.
    pub(crate) fn verify_part(&self, table: &str, part: Option<u16>) -> Result<()> {
        let parts = self.pool().memory().part_count();
        match part {
            Some(part) if part >= parts => {
                let finding = format!("the pool has no part {part}: it has {parts}, counted from 0");
                Err(Error::BadSchema { table: table.into(), finding })
            }
            _ => Ok(()),
        }
    }

    /// Takes the parts of all trees from the catalog.
    pub(crate) fn read_placements(&self) -> Result<()> {
        let catalog = catalog::table(self.core())?;
        for (tree, place) in self.update(|tx| catalog::placements(&catalog, tx))? {
            // A part that is not there: the catalog of a damaged pool.
            if place.parts().all(|part| part < self.pool().memory().part_count()) {
                self.core().placements.set_tree(tree, place);
                self.core().keep(&[tree]);
            }
        }
        Ok(())
    }

    /// Takes the part of a table, which was made or has another index, from the catalog.
    pub(crate) fn note_placement(&self, table: &str) -> Result<()> {
        let catalog = catalog::table(self.core())?;
        if let Some(found) = self.update(|tx| catalog::find(&catalog, tx, table))? {
            self.core().place(&found.trees(), &found.schema.place);
        }
        Ok(())
    }
}

/// A table on its way.
struct Move<'c> {
    core: &'c Core,
    report: MoveReport,
    since_round: u64,
}

impl Move<'_> {
    fn tree(&mut self, tree: &Tree) -> Result<()> {
        let place = self.core.placements.place(tree.number);
        let mut next = Some(Bytes::default());
        while let Some(low) = next {
            if let Some(part) = place.at(&low)
                && tree.renew_outside(&low, part)?
            {
                self.report.leaves += 1;
                self.since_round += 1;
            }
            let is_short = self.core.ground.cache.as_ref().is_some_and(|cache| cache.needs_round());
            if is_short || self.since_round >= LEAVES_PER_ROUND {
                self.round()?;
            }
            next = tree.next_low(&low);
        }
        Ok(())
    }

    fn round(&mut self) -> Result<()> {
        rounds::round(self.core, &mut self.core.rounds.pages())?;
        self.report.checkpoints += 1;
        self.since_round = 0;
        Ok(())
    }
}
