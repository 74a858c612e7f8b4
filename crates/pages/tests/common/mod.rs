//! A page store beside a model of it, for the tests of this crate.
#![allow(dead_code, reason = "each test uses a part")]

use std::collections::BTreeMap;

use lodestone_heap::{Heap, HeapOptions};
use lodestone_pages::{Error, Image, PageOptions, PageRow, Pages, Patch, Result, RowWrite};
use lodestone_pmem::{DomainChoice, PmAddr, Pool, PoolOptions};
use lodestone_txn::{Tick, Writer};
use lodestone_width::to_usize;

/// Rows of a leaf by key, each with its tick.
pub type Rows = BTreeMap<Vec<u8>, (u64, Vec<u8>)>;

/// Leaves by tree and lowest key.
pub type Leaves = BTreeMap<(u32, Vec<u8>), Rows>;

/// A change of a batch: the leaf, and its new rows; `None` ends it.
pub type Change = ((u32, Vec<u8>), Option<Rows>);

/// Logs with positions.
pub const WRITERS: u16 = 2;

/// The content of a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    pub leaves: Leaves,
    /// The images of the leaves.
    pub homes: BTreeMap<(u32, Vec<u8>), Image>,
    /// The position of both logs.
    pub from: u64,
}

/// A store in a pool, and the states of its two checkpoints.
pub struct Fixture {
    pub heap: Heap,
    pub at: PmAddr,
    pub newest: State,
    pub older: State,
    /// Whether the newest checkpoint is the only one.
    pub is_alone: bool,
    _folder: tempfile::TempDir,
}

impl Fixture {
    pub fn new() -> Result<Self> {
        Self::with_pages_of(256)
    }

    pub fn with_pages_of(page_bytes: u32) -> Result<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let mut pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
        (pool.size_bytes, pool.journal_bytes) = (4 << 20, 256 << 10);
        let pool = Pool::create(folder.path().join("a.pool"), &pool)?;
        let heap = Heap::open(&pool, &HeapOptions::default())?;
        let mut action = heap.action();
        let options = PageOptions { page_bytes, extent_pages: 4, writers: WRITERS };
        let at = Pages::make(&heap, &mut action, &options)?;
        action.set(heap.root_word(0), at.to_raw());
        action.commit()?;
        let (newest, older) = (State::default(), State::default());
        Ok(Self { heap, at, newest, older, is_alone: false, _folder: folder })
    }

    /// Opens the store, and ends what a batch that does not count has added, as a database does.
    pub fn open(&self) -> Result<Pages> {
        let pages = Pages::open(&self.heap, self.at)?;
        let (reader, listed) = (pages.reader(), pages.listed().unwrap_or_default());
        for found in listed.iter().filter_map(|listed| reader.read_with_torn(&listed.image).ok()) {
            assert_eq!(reader.end_unpublished(&found.image)?, found.has_unpublished());
        }
        Ok(pages)
    }

    /// Writes a batch. Both logs are needed from `from` on afterwards, if it is published.
    pub fn batch(&mut self, pages: &mut Pages, changes: &[Change], from: u64, is_published: bool) -> Result<()> {
        let mut homes = homes(pages)?;
        let mut next = State { from, ..self.newest.clone() };
        let mut batch = pages.batch();
        for (leaf, rows) in changes {
            if let Some(rows) = rows {
                let image = rows.iter().map(|(key, (tick, payload))| row(key, *tick, payload));
                let image = batch.write(leaf.0, &leaf.1, image)?;
                if next.leaves.insert(leaf.clone(), rows.clone()).is_some() {
                    batch.end(homes.remove(leaf).expect("an image"));
                }
                homes.insert(leaf.clone(), image);
            } else if next.leaves.remove(leaf).is_some() {
                batch.end(homes.remove(leaf).expect("an image"));
            }
            next.homes = homes.clone();
        }
        if is_published {
            batch.publish(vec![from; usize::from(WRITERS)])?;
            self.older = std::mem::replace(&mut self.newest, next);
            self.is_alone = false;
        }
        Ok(())
    }

    /// Makes the rows of a leaf those of `rows`, in place. Returns whether that can be done. Changes count at once, in
    /// both checkpoints if they have the image; rows that are added with the batch.
    pub fn patch(&mut self, pages: &mut Pages, leaf: &(u32, Vec<u8>), rows: &Rows, is_published: bool) -> Result<bool> {
        let image = homes(pages)?.remove(leaf).expect("an image");
        let from = self.newest.from;
        let mut batch = pages.batch();
        let new: Vec<_> =
            rows.iter().map(|(key, (tick, payload))| (row(key, *tick, payload), RowWrite::Allowed)).collect();
        let patched = batch.patch(&image, (leaf.0, &leaf.1), new.into_iter(), Tick::NEVER)?;
        if is_published {
            batch.publish(vec![from; usize::from(WRITERS)])?;
            self.older = self.newest.clone();
            self.is_alone = false;
        }
        let is_done = matches!(patched, Patch::Done(_));
        for state in [&mut self.newest, &mut self.older] {
            if is_done && state.homes.get(leaf) == Some(&image) {
                let before = state.leaves.get_mut(leaf).expect("its image");
                before.iter_mut().for_each(|(key, row)| row.clone_from(&rows[key]));
            }
        }
        if is_done && is_published {
            self.newest.leaves.insert(leaf.clone(), rows.clone());
        }
        Ok(is_done)
    }

    /// Damages the newest checkpoint, after which the older one counts.
    pub fn spoil(&mut self, pages: Pages) {
        let (memory, at) = (self.heap.memory(), pages.newest_checkpoint());
        memory.store(at.plus(64), !memory.load(at.plus(64)));
        self.newest = self.older.clone();
        self.is_alone = true;
    }

    /// Whether `pages` has the newest state, and needs the logs of both checkpoints.
    pub fn is_right(&self, pages: &Pages) -> Result<bool> {
        let from = if self.is_alone { self.newest.from } else { self.older.from };
        Ok(leaves(pages)? == self.newest.leaves && pages.from(Writer::new(1).expect("a writer")) == from)
    }
}

fn row<'r>(key: &'r [u8], tick: u64, payload: &'r [u8]) -> PageRow<'r> {
    PageRow { key, tick: Tick(tick), writer: Writer::default(), payload }
}

/// The leaves that count.
pub fn leaves(pages: &Pages) -> Result<Leaves> {
    let mut leaves = Leaves::new();
    pages.images::<Error>(&mut |found| {
        let rows = found.rows().map(|row| (row.key.to_vec(), (row.tick.0, row.payload.to_vec()))).collect();
        let former = leaves.insert((found.tree, found.low.clone()), rows);
        assert!(former.is_none(), "two images of one leaf");
        Ok(())
    })?;
    // The page table says the same, by tree and first key, but for the rows that were added since.
    let listed = pages.listed()?;
    let said = listed.iter().map(|listed| (listed.tree, &listed.low[..]));
    assert!(said.eq(leaves.keys().map(|(tree, low)| (*tree, &low[..]))), "{listed:?}");
    assert!(listed.iter().zip(leaves.values()).all(|(listed, rows)| to_usize(listed.rows) <= rows.len()), "{listed:?}");
    Ok(leaves)
}

fn homes(pages: &Pages) -> Result<BTreeMap<(u32, Vec<u8>), Image>> {
    let mut homes = BTreeMap::new();
    pages.images::<Error>(&mut |found| {
        homes.insert((found.tree, found.low.clone()), found.image.clone());
        Ok(())
    })?;
    Ok(homes)
}

/// A leaf of tree 1 with `rows` rows whose payloads are `bytes` long.
pub fn leaf(low: &[u8], rows: u64, bytes: usize) -> Change {
    let row = |number: u64| ([low, &number.to_be_bytes()].concat(), (number + 1, vec![7; bytes]));
    ((1, low.to_vec()), Some((0..rows).map(row).collect()))
}
