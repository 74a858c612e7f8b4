//! A tree of rows in DRAM: leaves of bounded size, in the order of their keys.
//!
//! A row has a *slot*: its key, its version word and its payload. The slot stays the same as long as the row is in the
//! tree, also when its leaf is replaced, so a transaction may hold one. Readers take no lock: they load the root, go
//! down through branches whose keys never change (`branch.rs`), and search the leaf between two looks at its count of
//! changes (`leaf.rs`). So an access writes no line that threads share, but for the count of references to the slot it
//! finds.
//!
//! 1. *Claim*: a commit adds a locked slot for a key that has none ([`Tree::take`]). A commit that fails takes it out
//!    again.
//! 2. *Delete*: the slot stays, its word says "absent". A later insert uses it again.
//! 3. *Replace*: a leaf without room ends. One new leaf or two have its rows. The rows that were deleted are *purged*,
//!    but for those with a version before that an active snapshot sees. Each of them is locked first and stays so: a
//!    transaction that still holds it meets a conflict, and finds the key anew in its next attempt. The new leaves keep
//!    the largest tick of the purged rows as their *floor*, so a row that is inserted again gets a later one. They also
//!    keep the point at which these deletions are durable.
//!
//! Invariants:
//! - a slot is in at most one leaf that is not ended, and a key has at most one such slot in the tree;
//! - the *shape* of the tree is locked before a leaf, and no leaf before another one;
//! - a leaf ends before the root or its branch shows those that take its place. So a range that was read in it is
//!   looked at again before anything that was added there can count.
//!
//! The page of a leaf is *dirty* when a row of it may have changed since its image was written. A commit says so after
//! it has locked a slot. If the leaf has ended by then, its slot may be in a leaf with another page, and the commit
//! says it there. A new page is dirty from its beginning.
//!
//! A leaf may be cold: its rows are read from its image when they are used (`cold.rs`).

mod evict;
mod merge;
mod place;

use std::sync::{Arc, Weak};

use arc_swap::{ArcSwap, Guard};
use lodestone_pages::Image;
use lodestone_pmem::sync::atomic::{AtomicBool, Ordering};
use lodestone_pmem::sync::{Mutex, lock, spin};
use lodestone_pmem::{DurablePoint, planted, prefetch_value};
use lodestone_txn::{RowState, RowWord, Tick, Writer};
use lodestone_width::to_u64;

use crate::branch::Branch;
use crate::cache::Cache;
use crate::cold::Source;
use crate::core::Core;
use crate::dual::is_dual;
use crate::error::{Error, Result};
use crate::events;
use crate::leaf::{Changes, ChangesHint, Leaf, LockedLeaf, Page, Purged, Span};
use crate::leaf_size::{LeafSize, are_in_a_run};
pub use crate::slot::{Bytes, Slot};

/// A leaf as it was at one moment.
#[derive(Clone, Debug)]
pub struct Look {
    leaf: Arc<Leaf>,
    /// The count of its changes at that moment.
    changes: u64,
}

impl Look {
    /// Whether the leaf has the same rows since that moment. A row that was added and taken out counts as a change.
    pub fn is_current(&self) -> bool {
        self.leaf.changes() == self.changes
    }

    /// The address of the count that [`is_current`](Self::is_current) reads.
    pub fn address(&self) -> usize {
        self.leaf.address()
    }

    /// No purged row of the leaf was later.
    pub fn floor(&self) -> Tick {
        self.leaf.purged().floor
    }

    /// The number of the last purge of the leaf; 0: there was none.
    pub fn purge(&self) -> u64 {
        self.leaf.purged().number
    }

    /// Where the deletions of all purged rows of the leaf are durable.
    pub fn purged(&self) -> DurablePoint {
        self.leaf.purged().point
    }
}

/// The answer to a search for a key.
#[derive(Debug)]
pub enum Lookup {
    /// Its slot.
    Slot(Arc<Slot>),
    /// The leaf that has no such key.
    Nothing(Look),
}

/// The rows of a leaf within a range.
#[derive(Debug)]
pub struct Segment {
    /// The leaf.
    pub look: Look,
    /// By key.
    pub slots: Vec<Arc<Slot>>,
    /// The first key of the range that could be in the leaf.
    pub from: Vec<u8>,
    /// The end of the range's keys that could be in the leaf, exclusive. `None`: no end.
    pub to: Option<Vec<u8>>,
}

/// The slot that a commit works on.
#[derive(Debug)]
pub enum Taken {
    /// Locked at this version.
    Locked(Arc<Slot>, RowWord),
    /// It has this version, and is not locked.
    Found(Arc<Slot>, RowWord),
    /// Added, locked. Its row must be later than the tick.
    Claimed(Arc<Slot>, Tick),
    /// Another transaction has locked it.
    Busy,
    /// Its version is pending: the caller waits, then tries again.
    Pending(Arc<Slot>),
}

/// Rows of earlier lives: those of one image, with the changes since.
#[derive(Debug)]
pub enum TreePart {
    /// The rows are those of an image, which was not read: the leaf, and how many rows the image has.
    Cold(Arc<Leaf>, usize),
    /// The rows were read.
    Loaded(Box<Loaded>),
}

/// Rows that were read.
#[derive(Debug)]
pub struct Loaded {
    /// The keys that could be among them.
    pub span: Span,
    /// In the order of their keys.
    pub rows: Vec<(Bytes, Bytes)>,
    /// The image.
    pub home: Option<Image>,
    /// Whether the image is not equal to the rows.
    pub is_dirty: bool,
    /// See [`Page::suspect`].
    pub is_suspect: bool,
}

impl TreePart {
    /// The rows of the image `home`, which are so many.
    pub fn cold(span: Span, home: Image, rows: usize) -> Self {
        Self::Cold(Leaf::cold(span, Purged::default(), Page::new(Some(home), false)), rows)
    }

    fn empty() -> Self {
        let span = Span { low: Bytes::default(), high: None };
        Self::Loaded(Box::new(Loaded { span, rows: Vec::new(), home: None, is_dirty: false, is_suspect: false }))
    }

    /// How many rows it has.
    pub fn len(&self) -> usize {
        match self {
            Self::Cold(_, rows) => *rows,
            Self::Loaded(loaded) => loaded.rows.len(),
        }
    }

    /// Adds its leaves to `leaves`. The rows all have the first version of the life that began at `base`: every thread
    /// knows that they are committed.
    pub fn leaves(self, base: Tick, size: &LeafSize, leaves: &mut Vec<Arc<Leaf>>) {
        let word = RowWord::new(base, Writer::default(), false);
        let Loaded { span: Span { mut low, high }, rows, mut home, is_dirty, is_suspect } = match self {
            Self::Cold(leaf, _) => return leaves.push(leaf),
            Self::Loaded(loaded) => *loaded,
        };
        let is_whole = size.take(&low, &rows) >= rows.len();
        let mut rest = &rows[..];
        loop {
            let count = size.take(&low, rest).min(rest.len());
            let (rows, after) = rest.split_at(count);
            rest = after;
            let slots: Vec<_> =
                rows.iter().map(|(key, payload)| Slot::new(key.clone(), word, payload.clone())).collect();
            // A copy, as in `replace`.
            let next = rest.first().map(|(key, _)| Bytes::from(&key[..]));
            let span = Span { low, high: next.clone().or_else(|| high.clone()) };
            let home = home.take();
            let page = if is_suspect { Page::suspect(home) } else { Page::new(home, is_dirty || !is_whole) };
            leaves.push(Leaf::new(room(size, &slots), span, slots, Purged::default(), page));
            match next {
                Some(next) => low = next,
                None => return,
            }
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Tree {
    /// Its number in the logs.
    pub number: u32,
    root: ArcSwap<Branch>,
    /// Held by a thread that replaces leaves.
    shape: Mutex<()>,
    ground: Ground,
    /// Whether its table or index is gone: then its images may be gone as well.
    is_dropped: AtomicBool,
    /// Whether its leaves stay in DRAM, beside those of the cache.
    is_kept: AtomicBool,
    /// How much changes between two rounds of most pages that the last one wrote.
    pub changes: ChangesHint,
    /// How many leaves it has.
    leaves: std::sync::atomic::AtomicUsize,
    /// For the cache, which refers to it.
    me: Weak<Self>,
}

/// The things that all trees of a database share.
#[derive(Clone, Debug)]
pub struct Ground {
    pub leaf_size: LeafSize,
    /// The tick at which this life began.
    pub base: Tick,
    /// Of cold leaves.
    pub source: Source,
    /// Where the rows need not all be in DRAM.
    pub cache: Option<Arc<Cache>>,
    /// A tree of so many leaves is large beside the log: the records between two rounds are about few rows of a leaf.
    pub many_leaves: usize,
}

impl Tree {
    /// An empty tree.
    pub fn new(number: u32, ground: &Ground) -> Arc<Self> {
        let mut leaves = Vec::new();
        TreePart::empty().leaves(ground.base, &ground.leaf_size, &mut leaves);
        Self::of_leaves(number, ground, leaves)
    }

    /// A tree of leaves by their first possible keys, of which the first one is empty. Each ends where the next begins.
    pub fn of_leaves(number: u32, ground: &Ground, leaves: Vec<Arc<Leaf>>) -> Arc<Self> {
        let count = leaves.len();
        let tree = Arc::new_cyclic(|me| {
            let (root, shape) = (ArcSwap::new(Branch::root(leaves)), Mutex::new(()));
            let (ground, is_dropped, changes) = (ground.clone(), AtomicBool::new(false), ChangesHint::default());
            // Its rows are not read again while commits may write their cells.
            let (is_kept, leaves) = (AtomicBool::new(is_dual(number)), count.into());
            Self { number, root, shape, ground, is_dropped, is_kept, changes, leaves, me: me.clone() }
        });
        if let Some(cache) = &ground.cache {
            // Not before: the hand drops leaves whose tree is not there.
            tree.give_all_to_clock();
            cache.note_leaves(count);
        }
        tree
    }

    /// Its table or index is gone. Transactions that still use it end with a conflict when they need its images.
    pub fn drop_images(&self) {
        // From here on no leaf becomes cold.
        let _shape = lock(&self.shape);
        self.is_dropped.store(true, Ordering::SeqCst);
    }

    /// Whether a row of it may still have to be read from an image.
    pub fn has_cold_leaf(&self) -> bool {
        let mut has_one = false;
        self.root.load().for_each_leaf(&mut |leaf| has_one |= !leaf.is_loaded());
        has_one
    }

    /// Whether the rows of the leaf that may hold `key` would be read from its image.
    pub fn is_cold_at(&self, key: &[u8]) -> bool {
        !self.root.load().leaf_of(key).is_loaded()
    }

    /// Reads the images of the cold leaves with keys from `from` to before `to`, as a check does. Returns the errors.
    pub fn load_between(&self, from: &[u8], to: Option<&[u8]>) -> Vec<Error> {
        let (mut errors, root) = (Vec::new(), self.root.load());
        let mut leaf = root.leaf_of(from);
        loop {
            errors.extend(self.warm(&leaf).err());
            match leaf.span.high.clone().filter(|high| to.is_none_or(|to| **high < *to)) {
                Some(next) => leaf = root.leaf_of(&next),
                None => return errors,
            }
        }
    }

    /// Loads the leaf that may hold `key`. Returns whether this call did.
    ///
    /// # Errors
    /// An image that cannot be read.
    pub fn load_at(&self, key: &[u8]) -> Result<bool> {
        let leaf = self.root.load().leaf_of(key).clone();
        let is_cold = !leaf.is_loaded() && !leaf.is_ended();
        if is_cold {
            self.load(&leaf)?;
        }
        Ok(is_cold)
    }

    /// Makes sure that the rows of `leaf` are loaded.
    fn warm(&self, leaf: &Arc<Leaf>) -> Result<()> {
        if !leaf.is_loaded() {
            self.load(leaf)?;
            // Else the hand could take it away before its first use.
            self.note_leaf_use(leaf);
        }
        Ok(())
    }

    /// A leaf was used, and not for one row alone.
    fn note_leaf_use(&self, leaf: &Leaf) {
        if self.ground.cache.is_some() {
            leaf.note_use();
        }
    }

    #[cold]
    fn load(&self, leaf: &Arc<Leaf>) -> Result<()> {
        // Before: the hand must not take this leaf away before it is used.
        self.ground.cache.iter().for_each(|cache| cache.make_room());
        let read = |image: &Image| self.ground.source.slots(image, self.number, &leaf.span, self.ground.base);
        match leaf.load(|slots| room(&self.ground.leaf_size, slots), read) {
            // The pages may be used again.
            Err(Error::Damaged { .. }) if self.is_dropped.load(Ordering::SeqCst) => return Err(Error::Conflict),
            Ok(Some(early)) => {
                self.ground.cache.iter().for_each(|cache| cache.note_load(early));
                self.give_to_clock(leaf);
            }
            loaded => return loaded.map(|_| ()).inspect_err(events::damage),
        }
        Ok(())
    }

    /// How many leaves it has.
    pub fn leaf_count(&self) -> usize {
        self.leaves.load(Ordering::Relaxed)
    }

    /// The images of all leaves.
    pub fn homes(&self) -> Vec<Image> {
        let mut homes = Vec::new();
        self.for_each_home(|_, home| homes.push(home));
        homes
    }

    /// Calls `search` for a look at the leaf to which `descend` leads: see [`Leaf::read`].
    ///
    /// # Errors
    /// An image that cannot be read.
    fn read<R>(
        &self,
        descend: impl Fn(&Branch) -> Guard<Arc<Leaf>>,
        mut search: impl FnMut(&Arc<Leaf>, u64) -> Option<R>,
    ) -> Result<R> {
        let search = |leaf: &Arc<Leaf>, changes| {
            self.note_leaf_use(leaf);
            search(leaf, changes)
        };
        self.read_or(descend, |_| None, search)
    }

    /// As [`read`](Self::read), for a look at one row, which notes itself whether the leaf is used for more. If the
    /// leaf is not loaded, `early` may find the answer without that.
    fn read_or<R>(
        &self,
        descend: impl Fn(&Branch) -> Guard<Arc<Leaf>>,
        early: impl Fn(&Arc<Leaf>) -> Option<R>,
        mut search: impl FnMut(&Arc<Leaf>, u64) -> Option<R>,
    ) -> Result<R> {
        let mut turn = 0;
        loop {
            let root = self.root.load();
            let leaf = descend(&root);
            prefetch_value(&**leaf);
            if !leaf.is_loaded()
                && let Some(found) = early(&leaf)
            {
                return Ok(found);
            }
            self.warm(&leaf)?;
            if let Some(found) = leaf.read(|changes| search(&leaf, changes)) {
                return Ok(found);
            }
            // Another leaf takes its place: the next root has it.
            spin(turn);
            turn += 1;
        }
    }

    /// Whether a look for the row with `key` reads nothing of the medium now. It is no use of the row.
    pub fn is_in_memory(&self, key: &[u8]) -> bool {
        self.root.load().leaf_of(key).is_in_memory(key)
    }

    /// The leaf that may hold `key`, locked for `with`. It is loaded, unless nothing of it was ever used.
    fn with_leaf<R>(&self, key: &[u8], with: impl FnOnce(LockedLeaf<'_>) -> R) -> R {
        let mut turn = 0;
        loop {
            let root = self.root.load();
            if let Some(leaf) = root.leaf_of(key).lock() {
                return with(leaf);
            }
            spin(turn);
            turn += 1;
        }
    }

    /// The slot of `key`.
    ///
    /// # Errors
    /// An image that cannot be read.
    pub fn find(&self, key: &[u8]) -> Result<Lookup> {
        self.read_or(
            |root| root.leaf_of(key),
            |leaf| self.cold_row(leaf, key).map(Lookup::Slot),
            |leaf, changes| {
                Some(match leaf.search(key)? {
                    Ok(number) => Lookup::Slot(self.used(leaf.slot(number)?).clone()),
                    Err(_) => {
                        self.note_leaf_use(leaf);
                        Lookup::Nothing(Look { leaf: leaf.clone(), changes })
                    }
                })
            },
        )
    }

    /// The slot of the row with `key`, and whether few lines of its page change between two rounds, as far as that is
    /// known: if not of the page, of most pages of the tree; and if not of these, by the size of the tree.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub fn find_with_page(&self, key: &[u8]) -> Result<Option<(Arc<Slot>, bool)>> {
        let changes_little = |leaf: &Leaf| match (leaf.page.changes.get(), self.changes.get()) {
            (Changes::Unknown, Changes::Unknown) => self.leaves.load(Ordering::Relaxed) >= self.ground.many_leaves,
            (Changes::Unknown, changes) | (changes, _) => changes == Changes::Few,
        };
        let slot = |leaf: &Leaf| match leaf.search(key)? {
            Ok(number) => Some(Some((leaf.slot(number)?.clone(), changes_little(leaf)))),
            Err(_) => Some(None),
        };
        self.read(|root| root.leaf_of(key), |leaf, _| slot(leaf))
    }

    /// Where the deletions of all rows are durable that were purged from the leaf of `key`.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub fn purged(&self, key: &[u8]) -> Result<DurablePoint> {
        self.read(|root| root.leaf_of(key), |leaf, _| Some(leaf.purged().point))
    }

    /// Locks the row with `key`, or adds a locked slot, for a row whose payload takes so many bytes.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub fn take(&self, core: &Core, key: &Bytes, bytes: usize) -> Result<Taken> {
        self.take_by(core, key, bytes, lock_slot)
    }

    /// As [`take`](Self::take), but the caller locks a row that was found, and then calls
    /// [`soil_locked`](Self::soil_locked).
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub fn look_or_claim(&self, core: &Core, key: &Bytes, bytes: usize) -> Result<Taken> {
        self.take_by(core, key, bytes, look_at_slot)
    }

    fn take_by(&self, core: &Core, key: &Bytes, bytes: usize, take: impl Fn(Arc<Slot>) -> Taken) -> Result<Taken> {
        loop {
            let root = self.root.load();
            let leaf = root.leaf_of(key);
            self.warm(&leaf)?;
            // Rows are changed in leaves that are loaded: one row would not do.
            self.note_leaf_use(&leaf);
            let found = leaf.read(|_| match leaf.search(key)? {
                Ok(number) => leaf.slot(number).cloned().map(Some),
                Err(_) => Some(None),
            });
            if let Some(Some(slot)) = found {
                let taken = take(slot);
                if matches!(taken, Taken::Locked(..)) {
                    self.soil_leaf(&leaf, key);
                }
                return Ok(taken);
            }
            let claimed = self.with_leaf(key, |mut leaf| {
                if !leaf.is_loaded() {
                    return Claim::Late;
                }
                match leaf.search(key) {
                    // Another transaction has added it.
                    Ok(_) => Claim::Late,
                    Err(_) if leaf.is_full() => Claim::NoRoom,
                    Err(number) => {
                        let claim = RowWord::new(self.ground.base, Writer::default(), true).locked();
                        let slot = Slot::new(key.clone(), claim, Bytes::default());
                        leaf.insert(number, slot.clone());
                        soil(leaf.leaf);
                        if let Some(cache) = self.ground.cache.as_ref().filter(|_| !self.is_kept()) {
                            cache.grow(leaf.leaf, to_u64(slot.bytes() + bytes));
                        }
                        Claim::Added(slot, leaf.leaf.purged().floor)
                    }
                }
            });
            match claimed {
                Claim::Late => {}
                Claim::NoRoom => {
                    self.replace(core, key, |leaf| leaf.is_full());
                    self.ground.cache.iter().for_each(|cache| cache.make_room());
                }
                Claim::Added(slot, floor) => return Ok(Taken::Claimed(slot, floor)),
            }
        }
    }

    /// Notes that the row with `key`, which the caller has locked, will change.
    pub fn soil_locked(&self, key: &[u8]) {
        let root = self.root.load();
        self.soil_leaf(&root.leaf_of(key), key);
    }

    /// Notes that the row with `key`, which is locked and was found in `leaf`, will change.
    fn soil_leaf(&self, leaf: &Leaf, key: &[u8]) {
        soil(leaf);
        // It may have ended before. Then the slot is in a leaf that may have another page.
        if leaf.is_ended() && !planted::active("engine-soils-ended-leaf") {
            self.soil_present(key);
        }
    }

    /// As [`soil_locked`](Self::soil_locked), for the leaf that has the row now.
    #[cold]
    fn soil_present(&self, key: &[u8]) {
        self.with_leaf(key, |leaf| soil(leaf.leaf));
    }

    /// Takes a slot out that this thread added and still has locked.
    pub fn untake(&self, slot: &Arc<Slot>) {
        self.with_leaf(slot.key(), |mut leaf| {
            if let Ok(number) = leaf.search(slot.key())
                && Arc::ptr_eq(leaf.slot(number), slot)
            {
                leaf.remove(number);
            }
        });
    }

    /// Replaces the leaf of `key`, if that `is_due`, by one without its deleted rows, or by two.
    #[cold]
    fn replace(&self, core: &Core, key: &[u8], is_due: impl Fn(&LockedLeaf<'_>) -> bool) {
        let _shape = lock(&self.shape);
        let root = self.root.load_full();
        let leaf = root.leaf_of(key);
        let Some(mut old) = leaf.lock() else { return };
        if !old.is_loaded() || !is_due(&old) {
            return;
        }
        let mut slots = old.slots();
        let purged = self.purge(core, old.leaf, &mut slots);
        let Leaf { span: Span { low, high }, page, .. } = &**old.leaf;
        let mut new = Vec::new();
        let size = &self.ground.leaf_size;
        let (mut low, mut page) = (low.clone(), page.clone());
        loop {
            let upper = slots.split_off(self.split_at(&low, &slots));
            // A copy: the leaf keeps it when its rows are gone, and with it the block that the keys of a page share.
            let next = upper.first().map(|slot| Bytes::from(&slot.key()[..]));
            let span = Span { low, high: next.clone().or_else(|| high.clone()) };
            new.push(Leaf::new(room(size, &slots), span, slots, purged, page));
            let Some(next) = next else { break };
            (low, slots, page) = (next, upper, Page::new(None, true));
        }
        self.leaves.fetch_add(new.len() - 1, Ordering::Relaxed);
        if let Some(cache) = &self.ground.cache {
            new.iter().for_each(|leaf| self.give_to_clock(leaf));
            cache.note_leaves(new.len() - 1);
        }
        // All copies are made before the leaf ends, since readers wait from then on.
        let new = root.replace(new);
        // The image of the old leaf may have rows of the upper one. It must not be kept when that has its own, or none.
        if !planted::active("engine-split-soils-nothing") {
            soil(old.leaf);
        }
        old.end();
        self.forget(old.leaf);
        self.root.store(new);
    }

    /// The rows of a leaf that has ended do not count any more.
    fn forget(&self, leaf: &Leaf) {
        self.ground.cache.iter().for_each(|cache| cache.forget(leaf));
    }

    /// How many of `slots`, the rows of a leaf without room or of one that does not fit a page, a new leaf has.
    fn split_at(&self, low: &[u8], slots: &[Arc<Slot>]) -> usize {
        let size = &self.ground.leaf_size;
        let lengths = || slots.iter().map(|slot| slot.image_bytes());
        if size.is_too_wide(low, lengths()) {
            let ticks: Vec<_> = slots.iter().map(|slot| slot.word().version().tick(self.ground.base).0).collect();
            let rows = match are_in_a_run(&ticks) {
                true => size.take_lengths(low, lengths()),
                false => size.take_even(low, &lengths().collect::<Vec<_>>()),
            };
            rows.min(slots.len())
        } else if slots.len() > size.rows_max * 3 / 4 {
            // Else a leaf that is nearly full would be copied again and again.
            slots.len() / 2
        } else {
            slots.len()
        }
    }

    /// Splits the leaf of `low` if it is dirty and does not fit a page.
    pub fn narrow(&self, core: &Core, low: &[u8]) {
        let is_due = |leaf: &Leaf| {
            let lengths = (0..leaf.len()).map_while(|number| Some(leaf.slot(number)?.image_bytes()));
            self.ground.leaf_size.is_too_wide(low, lengths)
        };
        let root = self.root.load();
        let leaf = root.leaf_of(low);
        if leaf.is_loaded() && leaf.page.is_busy() && is_due(&leaf) {
            self.replace(core, low, |leaf| is_due(leaf.leaf));
        }
    }

    /// Takes the deleted rows of a leaf out of `slots`. They stay locked for ever.
    fn purge(&self, core: &Core, leaf: &Leaf, slots: &mut Vec<Arc<Slot>>) -> Purged {
        let (earlier, before) = (leaf.purged(), slots.len());
        let mut floor = earlier.floor;
        slots.retain(|slot| {
            let word = slot.word();
            let locks = || planted::active("engine-stale-slot") || slot.try_lock(word);
            let is_purged = may_purge(core, word) && locks();
            if is_purged && !planted::active("engine-no-floor") {
                floor = floor.max(word.version().tick(self.ground.base));
            }
            !is_purged
        });
        if slots.len() == before {
            return earlier;
        }
        // After the rows are locked: a thread that knows this number validates after their deletions.
        Purged { floor, number: core.next_purge(), point: core.memory.flushed_anywhere() }
    }

    /// Takes the deleted rows out of the leaf of `key`, which was deleted, if they are a quarter of what it may hold.
    ///
    /// A queue inserts at its end and deletes at its beginning, where no insert ever needs the room. Without this its
    /// readers would pass all rows that were ever deleted.
    pub fn tidy(&self, core: &Core, key: &[u8]) {
        let is_due = |leaf: &Leaf| {
            let slots = (0..leaf.len()).map_while(|number| leaf.slot(number));
            let deleted = slots.filter(|slot| may_purge(core, slot.word())).count();
            deleted >= (leaf.room() / 4).max(2)
        };
        let root = self.root.load();
        let leaf = root.leaf_of(key);
        if leaf.is_loaded() && is_due(&leaf) {
            self.replace(core, key, |leaf| is_due(leaf.leaf));
        }
    }

    /// The leaf of `low`, where it begins: its page, and its rows if it is dirty. A cold leaf is not.
    pub fn take_dirt(&self, low: &[u8]) -> (Arc<Page>, Option<Vec<Arc<Slot>>>) {
        self.with_leaf(low, |mut leaf| (leaf.leaf.page.clone(), leaf.take_dirt()))
    }

    /// Where the leaf after that of `key` begins.
    pub fn next_low(&self, key: &[u8]) -> Option<Bytes> {
        self.root.load().leaf_of(key).span.high.clone()
    }

    /// The first rows of the range from `from` to before `to`: those of one leaf, at most `rows_max`.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub fn first_segment(&self, from: &[u8], to: Option<&[u8]>, rows_max: usize) -> Result<Segment> {
        self.segment(
            |root| root.leaf_of(from),
            (from, to),
            |rows| rows.start..rows.end.min(rows.start.saturating_add(rows_max)),
        )
    }

    /// The last rows of the range from `from` to before `to`: those of one leaf, at most `rows_max`.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub fn last_segment(&self, from: &[u8], to: Option<&[u8]>, rows_max: usize) -> Result<Segment> {
        let last = |rows: std::ops::Range<usize>| rows.start.max(rows.end.saturating_sub(rows_max))..rows.end;
        self.segment(|root| root.leaf_before(to), (from, to), last)
    }

    /// The rows of a range in a leaf, of which `select` takes a part.
    fn segment(
        &self,
        descend: impl Fn(&Branch) -> Guard<Arc<Leaf>>,
        (from, to): (&[u8], Option<&[u8]>),
        select: impl Fn(std::ops::Range<usize>) -> std::ops::Range<usize>,
    ) -> Result<Segment> {
        self.read(descend, |leaf, changes| {
            let Span { low, high } = &leaf.span;
            let place = |key: &[u8]| Some(leaf.search(key)?.unwrap_or_else(|number| number));
            let begin = if from <= &**low { 0 } else { place(from)? };
            let (stop, end) = match (to, high.as_deref()) {
                (Some(to), high) if high.is_none_or(|high| to < high) => (place(to)?, Some(to)),
                (_, high) => (leaf.len(), high),
            };
            let all = begin..stop.max(begin);
            let some = select(all.clone());
            // The rows that are left out are for the next segment, which begins or ends there.
            let from = if some.start > all.start { leaf.slot(some.start)?.key() } else { from.max(low) };
            let end = if some.end < all.end { Some(&**leaf.slot(some.end)?.key()) } else { end };
            let (from, to) = (from.to_vec(), end.map(<[u8]>::to_vec));
            let slots = some.map(|number| leaf.slot(number).cloned()).collect::<Option<_>>()?;
            Some(Segment { look: Look { leaf: leaf.clone(), changes }, slots, from, to })
        })
    }

    /// The slots of all keys from `from` to before `to`, by key.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub fn slots_between(&self, from: &[u8], to: Option<&[u8]>) -> Result<Vec<Arc<Slot>>> {
        let mut found = Vec::new();
        let mut from = from.to_vec();
        loop {
            let segment = self.first_segment(&from, to, usize::MAX)?;
            found.extend(segment.slots);
            match segment.to {
                Some(end) if to != Some(&end[..]) && end > from => from = end,
                _ => return Ok(found),
            }
        }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        if let Some(cache) = &self.ground.cache {
            cache.forget_leaves(*self.leaves.get_mut());
            self.root.load().for_each_leaf(&mut |leaf| cache.forget(leaf));
        }
    }
}

/// For how many rows a leaf has room that begins with `slots`.
pub fn room(size: &LeafSize, slots: &[Arc<Slot>]) -> usize {
    size.room(slots.len(), slots.iter().map(|slot| slot.image_bytes()).sum())
}

/// The end of an attempt to add a row.
enum Claim {
    Added(Arc<Slot>, Tick),
    Late,
    NoRoom,
}

/// Notes that a row of the leaf changes, or will.
fn soil(leaf: &Leaf) {
    if !planted::active("engine-dirt-forgotten") {
        leaf.page.soil();
    }
}

fn may_purge(core: &Core, word: RowWord) -> bool {
    word.state() == RowState::Absent && core.may_purge(word)
}

fn lock_slot(slot: Arc<Slot>) -> Taken {
    loop {
        let seen = slot.word();
        match seen.state() {
            RowState::Locked => return Taken::Busy,
            RowState::Pending if !planted::active("engine-locks-pending") => return Taken::Pending(slot),
            _ if slot.try_lock(seen) => return Taken::Locked(slot, seen),
            _ => {}
        }
    }
}

/// The version of a slot that may be locked.
fn look_at_slot(slot: Arc<Slot>) -> Taken {
    let seen = slot.word();
    match seen.state() {
        RowState::Locked => Taken::Busy,
        RowState::Pending => Taken::Pending(slot),
        _ => Taken::Found(slot, seen),
    }
}

#[cfg(test)]
mod tests {
    use lodestone_pmem::{DomainChoice, PoolOptions};

    use super::*;
    use crate::{Database, DatabaseOptions, Result, Schema, Type, row};

    #[test]
    fn a_queue_does_not_keep_its_deleted_rows() -> Result<()> {
        let folder = tempfile::tempdir().expect("a folder");
        let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
        let options = DatabaseOptions {
            pool,
            log_bytes: 1 << 20,
            segment_bytes: 1 << 16,
            leaf_rows_max: 16,
            ..DatabaseOptions::default()
        };
        let db = Database::open_with(folder.path().join("a.pool"), &options)?;
        let queue = db.create_table(&Schema::new("queue").column("k", Type::U64).key(["k"]))?;
        (0..1_000_u64).try_for_each(|key| db.update(|tx| queue.put(tx, &row![key])))?;
        // No insert ever comes near the beginning again.
        (0..900_u64).try_for_each(|key| db.update(|tx| queue.delete(tx, &row![key]).map(|_| ())))?;
        let left = queue.tree.slots_between(&[], None)?;
        // At most three deleted rows for each of the leaves, which were half full.
        let deleted = left.iter().filter(|slot| slot.word().is_absent()).count();
        assert!(left.len() - deleted == 100 && deleted < 3 * 1_000 / 8, "{deleted} of {}", left.len());
        let Lookup::Nothing(look) = queue.tree.find(&0_u64.to_be_bytes())? else { panic!("row 0 is purged") };
        assert!(look.floor() > Tick::NEVER, "a row that is inserted again must be later than its deletion");
        Ok(())
    }
}
