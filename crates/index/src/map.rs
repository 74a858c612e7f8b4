//! The ordered map: point operations.
//!
//! *Lookup.* 1. The directory (shared lock, released at once) names the leaf that covers the key. 2. The leaf is
//! locked. If it was split or merged away meanwhile, the lookup starts again. 3. Tags name the slots to look at, and
//! the record's key is compared.
//!
//! *Insert and update.* 1. A record is reserved and written, and its write-back is started. No pointer leads to it yet.
//! 2. Under the leaf's lock one heap action publishes it: allocation, slot word and, for an update, the release of the
//! old record become persistent together. 3. The lock is released. Then the caller waits for durability, if it asked
//! for it.
//!
//! *Remove.* One action clears the slot and frees the record. A leaf that has become small joins its left neighbour.
//!
//! Invariants:
//! - any record that a reader can find under a lock is persistent in order: a later crash may lose it only together
//!   with everything that was stored after it;
//! - no lock is held while waiting for a device;
//! - locks are taken left to right, leaves before the directory, and no leaf is locked under the directory's lock.

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use lodestone_heap::Heap;
use lodestone_pmem::sync::RwLock;
use lodestone_pmem::{LINE_BYTES, PmAddr, WORD_BYTES, checked, planted};
use lodestone_width::to_u64;

use crate::anchor::Anchor;
use crate::directory::Directory;
use crate::error::{Error, Result, committed};
use crate::layout::{KEY_BYTES_MAX, VALUE_BYTES_MAX, encode_record, record_bytes};
use crate::leaf::{Found, Leaf, LeafState, tag_of};
use crate::medium::IndexMemory;

/// A durable ordered map from byte strings to byte strings. Share it by reference or [`Arc`]; every method takes
/// `&self`.
///
/// ```
/// use lodestone_store::Store;
/// use lodestone_index::OrderedMap;
/// use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
///
/// let folder = tempfile::tempdir()?;
/// let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// let pool = Pool::create(folder.path().join("example.pool"), &options)?;
/// let store = Store::over(&pool)?;
/// let map = OrderedMap::open(&store, "capitals")?;
/// map.insert(b"France", b"Paris")?;
/// assert_eq!(map.get(b"France")?.as_deref(), Some(&b"Paris"[..]));
/// assert!(map.remove(b"France")?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct OrderedMap {
    pub(crate) heap: Heap,
    pub(crate) anchor: Anchor,
    pub(crate) slots_per_leaf: usize,
    pub(crate) directory: RwLock<Directory>,
    pub(crate) records: AtomicU64,
    /// The durability that operations of the index traits wait for.
    pub(crate) index_durability: Durability,
}

impl std::fmt::Debug for OrderedMap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OrderedMap")
            .field("anchor", &self.anchor)
            .field("slots_per_leaf", &self.slots_per_leaf)
            .field("records", &self.records.load(Ordering::Relaxed))
            .finish_non_exhaustive()
    }
}

/// The durability that a caller waits for before the operation returns.
///
/// ```
/// use lodestone_index::{Durability, FastFair, PointIndex};
/// use lodestone_pmem::{DomainChoice, PoolOptions};
/// use lodestone_store::Store;
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.pool");
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// let store = Store::create(&path, &options)?;
/// let tree = FastFair::<u64>::open(&store, "tree", &Default::default(), Durability::Relaxed)?;
/// for key in 0..100 {
///     tree.insert(&key, key)?; // in order, but not yet durable
/// }
/// tree.sync()?; // one wait for all of them
/// assert_eq!(tree.len()?, 100);
/// # Ok::<(), lodestone_index::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Durability {
    /// A change survives power loss before the call returns. A read returns only data that would survive.
    #[default]
    Sync,
    /// A change is ordered but may still be lost, together with everything after it, until [`OrderedMap::sync`]. A read
    /// may return data that could still be lost.
    Relaxed,
}

/// A stretch of the medium whose newest content an answer depends on.
#[derive(Clone, Copy)]
pub(crate) struct Basis {
    at: PmAddr,
    bytes: u64,
}

/// The action of a put on a key that is not in the map.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Absent {
    Inserts,
    IsLeft,
}

/// The result of a put.
enum Put {
    Done { replaced: bool },
    Absent(Basis),
}

thread_local! {
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Largest buffer that a thread keeps for its next record.
const SCRATCH_BYTES_MAX: usize = 64 << 10;

/// Writes the record at the reserved place `at` and starts its write-back; the commit that publishes it fences.
pub(crate) fn write_record(medium: IndexMemory<'_>, at: PmAddr, key: &[u8], value: &[u8]) {
    // Taken out, not borrowed: a deterministic scheduler may run another thread in between on the same stack of locals.
    let mut scratch = SCRATCH.take();
    let memory = medium.memory;
    encode_record(medium.owner, at, key, value, &mut scratch);
    if planted::active("index-record-not-flushed") {
        memory.write(at, &scratch);
    } else {
        // The slot word that names this record may not overtake it: the action's first fence comes between.
        memory.write_back(at, &scratch);
    }
    if scratch.capacity() <= SCRATCH_BYTES_MAX {
        SCRATCH.set(scratch);
    }
}

impl OrderedMap {
    pub(crate) fn medium(&self) -> IndexMemory<'_> {
        IndexMemory::of(&self.heap, self.anchor.at)
    }

    pub(crate) fn path(&self) -> &Path {
        self.heap.pool().path()
    }

    pub(crate) fn writable(&self, what: &'static str) -> Result<()> {
        if self.heap.memory().is_read_only() {
            return Err(Error::ReadOnly { path: self.path().to_owned(), what });
        }
        Ok(())
    }

    /// The leaf that covers `key` at this moment; lock it and ask [`LeafState::covers`].
    #[inline]
    pub(crate) fn leaf_of(&self, key: &[u8]) -> Arc<Leaf> {
        Arc::clone(self.directory.read().unwrap_or_else(PoisonError::into_inner).find(key))
    }

    /// The value of `key`. It is durable before it is returned.
    ///
    /// # Errors
    /// [`Error::Damaged`] when the record (or, if the key is not found, another record of its leaf) does not verify;
    /// [`Error::Pool`] when the pool is poisoned.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut out = Vec::new();
        Ok(self.get_into(key, &mut out)?.then_some(out))
    }

    /// As [`get`](Self::get), but the value replaces the content of `out`, so that a loop allocates nothing. Returns
    /// whether the key was found; `out` is empty if not.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn get_into(&self, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        self.get_with(key, out, Durability::Sync)
    }

    /// As [`get_into`](Self::get_into), with the choice to read data that could still be lost
    /// ([`Durability::Relaxed`]).
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn get_with(&self, key: &[u8], out: &mut Vec<u8>, durability: Durability) -> Result<bool> {
        out.clear();
        let medium = self.medium();
        let tag = tag_of(key);
        let (found, basis) = loop {
            let leaf = self.leaf_of(key);
            let state = leaf.read(medium)?;
            if !state.covers(key) {
                continue;
            }
            let found = state.find(leaf.at, medium, key, tag)?;
            if let Some(found) = found {
                medium.append_value(found.at, found.head, out)?;
            }
            break (found.is_some(), basis_of(&leaf, found));
        };
        self.settle(durability, basis)?;
        Ok(found)
    }

    /// Whether `key` is in the map. The answer is durable before it is returned.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn contains_key(&self, key: &[u8]) -> Result<bool> {
        let medium = self.medium();
        let (found, basis) = loop {
            let leaf = self.leaf_of(key);
            let state = leaf.read(medium)?;
            if state.covers(key) {
                let found = state.find(leaf.at, medium, key, tag_of(key))?;
                break (found.is_some(), basis_of(&leaf, found));
            }
        };
        self.settle(Durability::Sync, basis)?;
        Ok(found)
    }

    /// Waits until the data that an answer depends on would survive power loss.
    pub(crate) fn settle(&self, durability: Durability, basis: Basis) -> Result<()> {
        if durability == Durability::Sync {
            let memory = self.heap.memory();
            memory.wait_durable(memory.flushed_at(basis.at, basis.bytes))?;
        }
        Ok(())
    }

    /// Sets `key` to `value`. Durable on return. Returns whether it replaced an older value.
    ///
    /// # Errors
    /// [`Error::TooLong`] beyond [`KEY_BYTES_MAX`] and [`VALUE_BYTES_MAX`]; [`Error::Heap`] when the pool is full: the
    /// map is then as before and stays readable; [`Error::Damaged`] as for [`get`](Self::get).
    pub fn insert(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        let replaced = self.insert_relaxed(key, value)?;
        self.heap.memory().durable()?;
        Ok(replaced)
    }

    /// As [`insert`](Self::insert), ordered but not yet durable: call [`sync`](Self::sync) on this thread before
    /// reporting the change to others.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    pub fn insert_relaxed(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        match self.put(key, value, Absent::Inserts)? {
            Put::Done { replaced } => Ok(replaced),
            Put::Absent(_) => Ok(false),
        }
    }

    /// Sets `key` to `value` if it is in the map, and changes nothing if not. Durable on return. Returns whether it was
    /// there.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    pub fn update(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        match self.put(key, value, Absent::IsLeft)? {
            Put::Done { .. } => self.sync().map(|()| true),
            // The answer "not there" depends on a removal that may be in flight.
            Put::Absent(basis) => self.settle(Durability::Sync, basis).map(|()| false),
        }
    }

    /// As [`update`](Self::update), ordered but not yet durable: call [`sync`](Self::sync) on this thread before
    /// reporting the change to others.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    pub fn update_relaxed(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        Ok(matches!(self.put(key, value, Absent::IsLeft)?, Put::Done { .. }))
    }

    fn put(&self, key: &[u8], value: &[u8], absent: Absent) -> Result<Put> {
        limit("key", key.len(), KEY_BYTES_MAX)?;
        limit("value", value.len(), VALUE_BYTES_MAX)?;
        self.writable("an insert or update")?;
        let medium = self.medium();
        let tag = tag_of(key);
        let mut action = self.heap.action();
        let record = action.alloc(record_bytes(key.len(), value.len()))?;
        write_record(medium, record, key, value);
        loop {
            let leaf = self.leaf_of(key);
            let mut state = leaf.write(medium)?;
            if !state.covers(key) {
                continue;
            }
            let found = state.find(leaf.at, medium, key, tag)?;
            if found.is_none() && absent == Absent::IsLeft {
                // The action is dropped: the reserved record goes back.
                return Ok(Put::Absent(basis_of(&leaf, None)));
            }
            let Some(slot) = found.map(|found| found.slot).or_else(|| state.free_slot()) else {
                self.split(&leaf, &mut state, key)?;
                continue;
            };
            let word = leaf.at.slot(slot);
            if planted::active("index-slot-before-record") {
                self.publish_at_once(word, record);
            } else {
                action.set(word, checked::encode_addr(word, record));
            }
            if let Some(old) = found {
                if planted::active("index-update-frees-first") {
                    self.free_at_once(old.at)?;
                } else {
                    action.free(old.at)?;
                }
            }
            let (took_effect, outcome) = committed(action.commit());
            if took_effect {
                state.put(slot, tag, record);
                self.records.fetch_add(u64::from(found.is_none()), Ordering::Relaxed);
            }
            return outcome.map(|()| Put::Done { replaced: found.is_some() });
        }
    }

    /// Removes `key`. Durable on return. Returns whether it was there.
    ///
    /// # Errors
    /// [`Error::Damaged`] as for [`get`](Self::get); [`Error::Pool`] when the pool is poisoned.
    pub fn remove(&self, key: &[u8]) -> Result<bool> {
        self.remove_with(key, Durability::Sync)
    }

    /// As [`remove`](Self::remove), ordered but not yet durable: call [`sync`](Self::sync) on this thread before
    /// reporting the change to others.
    ///
    /// # Errors
    /// As [`remove`](Self::remove).
    pub fn remove_relaxed(&self, key: &[u8]) -> Result<bool> {
        self.remove_with(key, Durability::Relaxed)
    }

    fn remove_with(&self, key: &[u8], durability: Durability) -> Result<bool> {
        self.writable("a removal")?;
        let medium = self.medium();
        let tag = tag_of(key);
        loop {
            let leaf = self.leaf_of(key);
            let mut state = leaf.write(medium)?;
            if !state.covers(key) {
                continue;
            }
            let Some(found) = state.find(leaf.at, medium, key, tag)? else {
                drop(state);
                // The answer "not there" depends on a removal that may be in flight.
                self.settle(durability, basis_of(&leaf, None))?;
                return Ok(false);
            };
            let word = leaf.at.slot(found.slot);
            let mut action = self.heap.action();
            if planted::active("index-remove-flushes-wrong-line") {
                self.clear_and_flush_another_line(&leaf, word);
            } else {
                action.set(word, checked::encode_addr(word, PmAddr::NULL));
            }
            action.free(found.at)?;
            let (took_effect, outcome) = committed(action.commit());
            if took_effect {
                state.clear(found.slot);
                self.records.fetch_sub(1, Ordering::Relaxed);
            }
            outcome?;
            let is_small = state.is_worth_merging();
            drop(state);
            if is_small {
                self.merge_left(&leaf);
            }
            if durability == Durability::Sync {
                medium.memory.durable()?;
            }
            return Ok(true);
        }
    }

    /// Follows in DRAM a persistent change of `slot`, which `was_used`, to `record` (null: removed).
    pub(crate) fn note_change(&self, state: &mut LeafState, slot: usize, tag: u16, record: PmAddr, was_used: bool) {
        if record.is_null() {
            state.clear(slot);
            self.records.fetch_sub(1, Ordering::Relaxed);
        } else {
            state.put(slot, tag, record);
            self.records.fetch_add(u64::from(!was_used), Ordering::Relaxed);
        }
    }

    /// Waits until every change that this thread made would survive power loss.
    ///
    /// # Errors
    /// [`Error::Pool`] when the pool is poisoned: relaxed changes since the last success may be lost.
    pub fn sync(&self) -> Result<()> {
        Ok(self.heap.memory().durable()?)
    }

    /// Number of records.
    ///
    /// # Errors
    /// None at present; other maps of the same interface may have to read the medium.
    pub fn len(&self) -> Result<u64> {
        Ok(self.records.load(Ordering::Relaxed))
    }

    /// Whether the map holds no record. The answer is durable before it is returned.
    ///
    /// # Errors
    /// As [`scan`](Self::scan).
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.first()?.is_none())
    }
}

/// The stretch that an answer depends on: the slot that names the record, or, for an absence, the whole leaf.
///
/// A slot's line becomes durable after the action that set it (the commit record goes first). A leaf that a split made
/// holds only what was durable-ordered before the split, in the left leaf's slots; groups land in order.
pub(crate) fn basis_of(leaf: &Leaf, found: Option<Found>) -> Basis {
    match found {
        Some(found) => Basis { at: leaf.at.slot(found.slot).line().start(), bytes: LINE_BYTES },
        None => Basis { at: leaf.at.0, bytes: leaf.bytes().next_multiple_of(WORD_BYTES) },
    }
}

pub(crate) fn limit(what: &'static str, bytes: usize, bytes_max: usize) -> Result<()> {
    if bytes <= bytes_max {
        Ok(())
    } else {
        Err(Error::TooLong { what, bytes: to_u64(bytes), bytes_max: to_u64(bytes_max) })
    }
}

/// Lets the compiler check that a map can be shared between threads.
const _: fn() = || {
    fn assert_shared<T: Send + Sync>() {}
    assert_shared::<OrderedMap>();
};

impl LeafState {
    /// Whether a removal left the leaf so small that it should try to join its neighbour. That is so at a quarter of
    /// its slots and at each halving below, so that not every removal asks a neighbour that is too full.
    pub(crate) fn is_worth_merging(&self) -> bool {
        let count = self.count();
        count <= self.capacity() / 4 && (count == 0 || count.is_power_of_two() || count == self.capacity() / 4)
    }
}
