//! A table moves to another part of the pool, and so to another node, while transactions go on.
//!
//! 1. The catalog gets the new part, in a transaction. From now on new images go there.
//! 2. Leaf by leaf, those with an image elsewhere are made dirty, so that the next round writes a new image. Cold
//!    leaves are loaded for that. A round comes after so many leaves, and whenever the cache has no room but that of
//!    dirty leaves.
//! 3. A last round. The former pages are free when both checkpoints have the new ones.
//!
//! After a crash in between the table has pages in both parts, and a second call goes on. Rows never change.

use std::sync::Arc;

use lodestone_width::to_u64;

use crate::catalog;
use crate::core::Core;
use crate::database::Database;
use crate::error::{Error, Result};
use crate::events;
use crate::placement::TablePlacement;
use crate::rounds;
use crate::tree::{Bytes, Tree};

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
        let core: &Core = self.core();
        if core.ways.durability.is_none() {
            return Err(Error::WithoutDurability { path: self.pool().path().to_owned() });
        }
        self.verify_part(table, part)?;
        let catalog = catalog::table(self.core())?;
        let trees = self.update(|tx| catalog::place_table(&catalog, tx, table, part))?;
        core.placements.set(&trees, part);
        events::table(core, "move", table);
        let mut moved = Move { core, part: part.unwrap_or(0), report: MoveReport::default(), since_round: 0 };
        let mut is_left = part.is_some();
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
        let (part, nodes) = (found.schema.part(), self.pool().part_nodes());
        let node = part.and_then(|part| nodes.get(usize::from(part))?.id);
        let mut pages = vec![0; nodes.len()];
        let trees: Vec<Arc<Tree>> = found.trees().into_iter().filter_map(|tree| self.core().find_tree(tree)).collect();
        for home in trees.iter().flat_map(|tree| tree.homes()) {
            home.parts().for_each(|part| pages[usize::from(part)] += 1);
        }
        Ok(TablePlacement { part, node, pages })
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
        for (tree, part) in self.update(|tx| catalog::placements(&catalog, tx))? {
            // A part that is not there: the catalog of a damaged pool.
            if part < self.pool().memory().part_count() {
                self.core().placements.set(&[tree], Some(part));
            }
        }
        Ok(())
    }

    /// Takes the part of a table, which was made or has another index, from the catalog.
    pub(crate) fn note_placement(&self, table: &str) -> Result<()> {
        let catalog = catalog::table(self.core())?;
        if let Some(found) = self.update(|tx| catalog::find(&catalog, tx, table))? {
            self.core().placements.set(&found.trees(), found.schema.part());
        }
        Ok(())
    }
}

/// A table on its way.
struct Move<'c> {
    core: &'c Core,
    part: u16,
    report: MoveReport,
    since_round: u64,
}

impl Move<'_> {
    fn tree(&mut self, tree: &Tree) -> Result<()> {
        let mut next = Some(Bytes::default());
        while let Some(low) = next {
            if tree.renew_outside(&low, self.part)? {
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
