//! A tree of rows in DRAM: leaves of bounded size, in the order of their keys.
//!
//! A row has a *slot*: its version word and its payload. The slot stays the same as long as the row is in the tree,
//! also when its leaf is split, so a transaction may hold one. A leaf counts its changes: a row was added or removed,
//! or the leaf was split. A range that was read is unchanged while the counts of its leaves are.
//!
//! 1. *Claim*: a commit adds a locked slot for a key that has none ([`Tree::take`]). A commit that fails takes it out
//!    again.
//! 2. *Delete*: the slot stays, its word says "absent". A later insert uses it again.
//! 3. *Purge*: when a leaf is full, its absent slots are taken out, but for those with a version before that an active
//!    snapshot sees. Each is locked first and stays so: a transaction that still holds it meets a conflict, and finds
//!    the key anew in its next attempt. The leaf keeps the largest tick of its purged rows as its *floor*, so a row
//!    that is inserted again gets a later one. It also keeps the point at which they are durable.
//! 4. *Split*: when a leaf stays full, its upper half becomes a new leaf, with the same floor.
//!
//! Invariants:
//! - a slot is in at most one leaf, and a key has at most one slot in the tree;
//! - the list of leaves is locked before a leaf, and no leaf before another one.
//!
//! A leaf is *dirty* when a row of it may have changed since its image was written. A commit says so when it locks or
//! claims a slot, with the leaf locked.
//!
//! This structure is the simplest correct one. The list of leaves is under one lock, so each access writes a line that
//! all threads share. Pages will replace it.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, PoisonError};

use lodestone_pages::Image;
use lodestone_pmem::sync::atomic::{AtomicU64, Ordering};
use lodestone_pmem::sync::{Mutex, RwLock, lock, spin};
use lodestone_pmem::{DurablePoint, count_shared_rmws, planted};
use lodestone_txn::{RowState, RowWord, Tick, Writer};

use crate::core::Core;

/// How often a thread looks at a locked slot before it gives up.
const LOOKS_MAX: u32 = if cfg!(feature = "shuttle") { 8 } else { 4096 };

/// The bytes of a key or payload. Threads share them.
pub type Bytes = Arc<[u8]>;

/// A row: its version word and payload.
#[derive(Debug)]
pub struct Slot {
    word: AtomicU64,
    payload: Mutex<Bytes>,
}

impl Slot {
    fn new(word: RowWord, payload: Bytes) -> Arc<Self> {
        Arc::new(Self { word: AtomicU64::new(word.to_raw()), payload: Mutex::new(payload) })
    }

    /// The version word.
    pub fn word(&self) -> RowWord {
        RowWord::from_raw(self.word.load(Ordering::Acquire))
    }

    /// A version: its word and payload. `None` if the slot stays locked.
    pub fn read(&self) -> Option<(RowWord, Bytes)> {
        for turn in 0..LOOKS_MAX {
            let word = self.word();
            if word.state() != RowState::Locked {
                let payload = lock(&self.payload).clone();
                // A commit locks before it changes the payload. So an equal word means that the payload is its own.
                let now = self.word();
                if now.same_version(word) && now.state() != RowState::Locked {
                    return Some((now, payload));
                }
            }
            spin(turn);
        }
        None
    }

    /// Locks the version `seen`. Returns whether that succeeded.
    pub fn try_lock(&self, seen: RowWord) -> bool {
        count_shared_rmws(1);
        let (from, to) = (seen.to_raw(), seen.locked().to_raw());
        self.word.compare_exchange(from, to, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Stores another word. The caller holds the lock, or the version is its own.
    pub fn set_word(&self, word: RowWord) {
        // Release: a thread that sees the word sees the payload.
        self.word.store(word.to_raw(), Ordering::Release);
    }

    /// The payload. The caller holds the lock.
    pub fn payload(&self) -> Bytes {
        lock(&self.payload).clone()
    }

    /// Stores another payload. The caller holds the lock.
    pub fn set_payload(&self, payload: Bytes) {
        *lock(&self.payload) = payload;
    }
}

/// A part of the keys of a tree.
#[derive(Debug)]
pub struct Leaf {
    changes: AtomicU64,
    rows: Mutex<Rows>,
}

#[derive(Debug)]
struct Rows {
    /// By key.
    slots: Vec<(Bytes, Arc<Slot>)>,
    floor: Tick,
    /// Where the deletions of all purged rows are durable.
    purged: DurablePoint,
    /// The image that has these rows, unless they are dirty.
    home: Option<Image>,
    /// Whether a row may have changed since the image was written.
    is_dirty: bool,
}

impl Leaf {
    fn new(slots: Vec<(Bytes, Arc<Slot>)>, floor: Tick) -> Arc<Self> {
        Self::with_home(slots, floor, None, true)
    }

    fn with_home(slots: Vec<(Bytes, Arc<Slot>)>, floor: Tick, home: Option<Image>, is_dirty: bool) -> Arc<Self> {
        let purged = DurablePoint::default();
        Arc::new(Self { changes: AtomicU64::new(0), rows: Mutex::new(Rows { slots, floor, purged, home, is_dirty }) })
    }

    /// The slots, if the leaf is dirty. It is clean then: the caller writes an image, or [soils](Self::soil) it again.
    ///
    /// A commit locks a slot and makes its leaf dirty in one step. So a slot is locked here, or newer, or its commit
    /// makes the leaf dirty again.
    pub fn take_dirt(&self) -> Option<Vec<(Bytes, Arc<Slot>)>> {
        let mut rows = lock(&self.rows);
        std::mem::take(&mut rows.is_dirty).then(|| rows.slots.clone())
    }

    /// Makes the leaf dirty.
    pub fn soil(&self) {
        lock(&self.rows).is_dirty = true;
    }

    /// The image that was written last.
    pub fn home(&self) -> Option<Image> {
        lock(&self.rows).home.clone()
    }

    /// Notes the image that has the rows from now on.
    pub fn set_home(&self, home: Option<Image>) {
        lock(&self.rows).home = home;
    }

    /// The count of its changes.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Counts a change. The caller has locked the rows.
    fn change(&self) {
        if !planted::active("engine-no-leaf-version") {
            self.changes.store(self.changes.load(Ordering::Relaxed) + 1, Ordering::Release);
        }
    }
}

impl Rows {
    /// Notes that a row changes, or will.
    fn touch(&mut self) {
        if !planted::active("engine-dirt-forgotten") {
            self.is_dirty = true;
        }
    }

    fn find(&self, key: &[u8]) -> Result<usize, usize> {
        self.slots.binary_search_by(|(found, _)| (**found).cmp(key))
    }
}

/// A leaf as it was at one moment.
#[derive(Clone, Debug)]
pub struct Look {
    /// The leaf.
    pub leaf: Arc<Leaf>,
    /// The count of its changes at that moment.
    pub changes: u64,
    /// No purged row of the leaf was later.
    pub floor: Tick,
    /// Where the deletions of all purged rows of the leaf are durable.
    pub purged: DurablePoint,
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
    pub slots: Vec<(Bytes, Arc<Slot>)>,
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
    /// Added, locked. Its row must be later than the tick.
    Claimed(Arc<Slot>, Tick),
    /// Another transaction has locked it.
    Busy,
    /// Its version is pending: the caller waits, then tries again.
    Pending(Arc<Slot>),
}

/// Rows of earlier lives: those of one image, with the changes since.
#[derive(Debug, Default)]
pub struct TreePart {
    /// The first key that could be in it.
    pub low: Vec<u8>,
    /// In the order of their keys.
    pub rows: Vec<(Bytes, Bytes)>,
    /// The image.
    pub home: Option<Image>,
    /// Whether the image is not equal to the rows.
    pub is_dirty: bool,
}

impl TreePart {
    /// Its leaves, by their first possible keys. The rows all have the first version of the life that began at `base`:
    /// every thread knows that they are committed.
    pub fn leaves(self, base: Tick, leaf_rows_max: usize) -> Vec<(Vec<u8>, Arc<Leaf>)> {
        let word = RowWord::new(base, Writer::default(), false);
        let Self { mut low, rows, mut home, is_dirty } = self;
        let is_whole = rows.len() <= leaf_rows_max;
        // Where a part is too long, a quarter of each leaf is left for inserts.
        let count = if is_whole { leaf_rows_max } else { (leaf_rows_max * 3 / 4).max(1) };
        let mut rows = rows.into_iter().map(|(key, payload)| (key, Slot::new(word, payload))).peekable();
        let mut leaves = Vec::new();
        loop {
            let slots: Vec<_> = rows.by_ref().take(count).collect();
            leaves.push((low, Leaf::with_home(slots, Tick::NEVER, home.take(), is_dirty || !is_whole)));
            match rows.peek() {
                Some((key, _)) => low = key.to_vec(),
                None => return leaves,
            }
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Tree {
    /// Its number in the logs.
    pub number: u32,
    /// By the first key that could be in each. The first leaf begins with the empty key.
    leaves: RwLock<BTreeMap<Vec<u8>, Arc<Leaf>>>,
    leaf_rows_max: usize,
    /// The tick at which this life began.
    base: Tick,
}

impl Tree {
    /// An empty tree.
    pub fn new(number: u32, leaf_rows_max: usize, base: Tick) -> Self {
        Self::of_leaves(number, leaf_rows_max, base, TreePart::default().leaves(base, leaf_rows_max))
    }

    /// A tree of leaves by their first possible keys, of which the first one is empty.
    pub fn of_leaves(number: u32, leaf_rows_max: usize, base: Tick, leaves: Vec<(Vec<u8>, Arc<Leaf>)>) -> Self {
        Self { number, leaves: RwLock::new(leaves.into_iter().collect()), leaf_rows_max, base }
    }

    /// The first leaf whose first possible key is not before `from`, with that key.
    pub fn leaf_from(&self, from: Bound<&[u8]>) -> Option<(Vec<u8>, Arc<Leaf>)> {
        let leaves = self.leaves.read().unwrap_or_else(PoisonError::into_inner);
        leaves.range::<[u8], _>((from, Bound::Unbounded)).next().map(|(low, leaf)| (low.clone(), leaf.clone()))
    }

    /// The images of all leaves.
    pub fn homes(&self) -> Vec<Image> {
        let leaves = self.leaves.read().unwrap_or_else(PoisonError::into_inner);
        leaves.values().filter_map(|leaf| leaf.home()).collect()
    }

    /// The leaf that may hold `key`, its rows locked for `with`.
    fn with_leaf<R>(&self, key: &[u8], with: impl FnOnce(&Arc<Leaf>, &mut Rows) -> R) -> R {
        count_shared_rmws(2);
        let leaves = self.leaves.read().unwrap_or_else(PoisonError::into_inner);
        let (_, leaf) =
            leaves.range::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back().expect("the first leaf");
        with(leaf, &mut lock(&leaf.rows))
    }

    /// The slot of `key`.
    pub fn find(&self, key: &[u8]) -> Lookup {
        self.with_leaf(key, |leaf, rows| match rows.find(key) {
            Ok(number) => Lookup::Slot(rows.slots[number].1.clone()),
            Err(_) => Lookup::Nothing(look(leaf, rows)),
        })
    }

    /// Where the deletions of all rows are durable that were purged from the leaf of `key`.
    pub fn purged(&self, key: &[u8]) -> DurablePoint {
        self.with_leaf(key, |_, rows| rows.purged)
    }

    /// Locks the row with `key`, or adds a locked slot.
    pub fn take(&self, core: &Core, key: &Bytes) -> Taken {
        let claim = RowWord::new(self.base, Writer::default(), true).locked();
        loop {
            let taken = self.with_leaf(key, |leaf, rows| match rows.find(key) {
                Ok(number) => {
                    // With the leaf locked: see `take_dirt`.
                    let taken = lock_slot(rows.slots[number].1.clone());
                    rows.touch();
                    Some(taken)
                }
                Err(_) if rows.slots.len() >= self.leaf_rows_max => None,
                Err(number) => {
                    let slot = Slot::new(claim, Bytes::default());
                    rows.slots.insert(number, (key.clone(), slot.clone()));
                    leaf.change();
                    rows.touch();
                    Some(Taken::Claimed(slot, rows.floor))
                }
            });
            match taken {
                None => self.make_room(core, key),
                Some(taken) => return taken,
            }
        }
    }

    /// Takes a slot out that this thread added and still has locked.
    pub fn untake(&self, key: &[u8], slot: &Arc<Slot>) {
        self.with_leaf(key, |leaf, rows| {
            if let Ok(number) = rows.find(key)
                && Arc::ptr_eq(&rows.slots[number].1, slot)
            {
                rows.slots.remove(number);
                leaf.change();
            }
        });
    }

    /// Purges the leaf of `key`, and splits it if that is not enough.
    #[cold]
    fn make_room(&self, core: &Core, key: &[u8]) {
        let mut leaves = self.leaves.write().unwrap_or_else(PoisonError::into_inner);
        let (_, leaf) =
            leaves.range::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back().expect("the first leaf");
        let leaf = leaf.clone();
        let mut rows = lock(&leaf.rows);
        self.purge(core, &leaf, &mut rows);
        let Rows { slots, floor, purged, .. } = &mut *rows;
        if slots.len() >= self.leaf_rows_max {
            let upper = slots.split_off(slots.len() / 2);
            let (low, upper) = (upper[0].0.to_vec(), Leaf::new(upper, *floor));
            lock(&upper.rows).purged = *purged;
            leaves.insert(low, upper);
        }
    }

    /// Takes the deleted rows out of a leaf. Their slots stay locked for ever.
    fn purge(&self, core: &Core, leaf: &Leaf, rows: &mut Rows) {
        rows.touch();
        let Rows { slots, floor, purged, .. } = rows;
        slots.retain(|(_, slot)| {
            let word = slot.word();
            let locks = || planted::active("engine-stale-slot") || slot.try_lock(word);
            let is_purged = word.state() == RowState::Absent && core.may_purge(word) && locks();
            if is_purged && !planted::active("engine-no-floor") {
                *floor = (*floor).max(word.version().tick(self.base));
            }
            !is_purged
        });
        *purged = core.memory.flushed_anywhere();
        leaf.change();
    }

    /// Takes the deleted rows out of the leaf of `key`, which was deleted, if they are a quarter of what it may hold.
    ///
    /// A queue inserts at its end and deletes at its beginning, where no insert ever needs the room. Without this its
    /// readers would pass all rows that were ever deleted.
    pub fn tidy(&self, core: &Core, key: &[u8]) {
        self.with_leaf(key, |leaf, rows| {
            let may_go = |word: RowWord| word.state() == RowState::Absent && core.may_purge(word);
            let absent = rows.slots.iter().filter(|(_, slot)| may_go(slot.word())).count();
            if absent >= (self.leaf_rows_max / 4).max(2) {
                self.purge(core, leaf, rows);
            }
        });
    }

    /// The rows of the range from `from` to before `to` in its first leaf.
    pub fn first_segment(&self, from: &[u8], to: Option<&[u8]>) -> Segment {
        let leaves = self.leaves.read().unwrap_or_else(PoisonError::into_inner);
        let first = leaves.range::<[u8], _>((Bound::Unbounded, Bound::Included(from))).next_back();
        self.segment(&leaves, first, from, to)
    }

    /// The rows of the range from `from` to before `to` in its last leaf.
    pub fn last_segment(&self, from: &[u8], to: Option<&[u8]>) -> Segment {
        let leaves = self.leaves.read().unwrap_or_else(PoisonError::into_inner);
        let last = match to {
            None => leaves.last_key_value(),
            Some(to) => leaves.range::<[u8], _>((Bound::Unbounded, Bound::Excluded(to))).next_back(),
        };
        self.segment(&leaves, last.or_else(|| leaves.first_key_value()), from, to)
    }

    fn segment(
        &self,
        leaves: &BTreeMap<Vec<u8>, Arc<Leaf>>,
        leaf: Option<(&Vec<u8>, &Arc<Leaf>)>,
        from: &[u8],
        to: Option<&[u8]>,
    ) -> Segment {
        count_shared_rmws(2);
        let (first, leaf) = leaf.expect("the first leaf begins with the empty key");
        let next = leaves.range::<[u8], _>((Bound::Excluded(&first[..]), Bound::Unbounded)).next();
        let end = match (next.map(|(key, _)| &key[..]), to) {
            (Some(end), Some(to)) => Some(end.min(to)),
            (end, to) => end.or(to),
        };
        let from = from.max(first);
        let rows = lock(&leaf.rows);
        let begin = rows.find(from).unwrap_or_else(|number| number);
        let stop = end.map_or(rows.slots.len(), |end| rows.find(end).unwrap_or_else(|number| number)).max(begin);
        Segment {
            look: look(leaf, &rows),
            slots: rows.slots[begin..stop].to_vec(),
            from: from.to_vec(),
            to: end.map(<[u8]>::to_vec),
        }
    }

    /// The slots of all keys from `from` to before `to`, by key.
    pub fn slots_between(&self, from: &[u8], to: Option<&[u8]>) -> Vec<Arc<Slot>> {
        let mut found = Vec::new();
        let mut from = from.to_vec();
        loop {
            let segment = self.first_segment(&from, to);
            found.extend(segment.slots.into_iter().map(|(_, slot)| slot));
            match segment.to {
                Some(end) if to != Some(&end[..]) && end > from => from = end,
                _ => return found,
            }
        }
    }
}

fn look(leaf: &Arc<Leaf>, rows: &Rows) -> Look {
    Look { leaf: leaf.clone(), changes: leaf.changes(), floor: rows.floor, purged: rows.purged }
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
        let left = queue.tree.slots_between(&[], None);
        // At most three deleted rows for each of the leaves, which were half full.
        let deleted = left.iter().filter(|slot| slot.word().is_absent()).count();
        assert!(left.len() - deleted == 100 && deleted < 3 * 1_000 / 8, "{deleted} of {}", left.len());
        let Lookup::Nothing(look) = queue.tree.find(&0_u64.to_be_bytes()) else { panic!("row 0 is purged") };
        assert!(look.floor > Tick::NEVER, "a row that is inserted again must be later than its deletion");
        Ok(())
    }
}
