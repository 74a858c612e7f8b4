//! The side chains: versions that are about to be overwritten and that an active snapshot still sees, kept in DRAM.
//!
//! An engine keeps few versions of an object in place: one or two. A long snapshot may need an older one. A thread that
//! overwrites the last copy of such a version keeps it here first, so the snapshot never restarts. Paper 1 (section
//! 4.2) aborts.
//!
//! 1. *Keep* ([`SideChains::keep`], called by a commit that holds all its locks, before its first store to a version in
//!    place): the version is kept with the range of active snapshots that see it and not its successor.
//! 2. *Find* ([`SideChains::find`], called by a snapshot that does not see the newest version): take the version whose
//!    range holds the snapshot's epoch.
//! 3. *Release* ([`SideChains::release`], called when a snapshot has ended): the oldest active snapshot of its range
//!    owns a version. The version is handed to the next snapshot of the range, or dropped.
//!
//! **Why an active snapshot finds every version it sees.** Let snapshot `s` be active, `v` the version of an object
//! that it sees and `n` the next version.
//! - While `v` is in place, `s` reads it there, under a word that is read again afterwards. No thread stores to a
//!   version in place before the word says that a commit is under way.
//! - Then a thread overwrites the place of `v`, with `n` or with a later version. Either it is the writer of `n`
//!   itself, which has read an epoch later than `s`, or it has locked the object and seen the word of `n`. The writer
//!   of `n` read an epoch that began after `s` was published as active. With the word of `n` this became visible to the
//!   thread that locked it. So that thread finds `s` active; one relaxed load is enough, because the value is not older
//!   than that. It finds that `s` sees `v` and not `n`, and inserts the copy before it stores to the place.
//! - A reader that sees that thread's word sees the copy.
//! - The copy stays while `s` is active. `keep` asks which snapshots are active under the shard's lock. `release` comes
//!   to the shard after the snapshot has left the active ones. So either `keep` no longer finds the snapshot, or
//!   `release` finds the copy.
//!
//! **Bound.** Per object at most one version for each active snapshot. Nothing is kept while no snapshot is active.
//! When the limit of bytes is reached, versions are not kept, and [`SideChains::has_lost`] says so to the snapshots
//! that may have needed them.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::hash::Hash;

use crossbeam_utils::CachePadded;
use lodestone_pmem::sync::atomic::{AtomicU64, Ordering};
use lodestone_pmem::sync::{Mutex, lock};
use lodestone_pmem::{PmAddr, planted};
use lodestone_width::to_usize;

use crate::epochs::Epochs;
use crate::tick::{Tick, Writer};

/// Locks; a power of two.
const SHARDS: usize = if cfg!(feature = "shuttle") { 2 } else { 64 };
/// Bytes that a version takes beside its payload, about: entry, allocation, its share of the tables.
const OVERHEAD_BYTES: u64 = 112;

/// Names an object whose versions are kept.
pub trait SideKey: Clone + Eq + Hash + Debug {
    /// A number whose bits differ between neighbours, with which the objects are spread over locks.
    fn spread(&self) -> u64;
}

impl SideKey for PmAddr {
    fn spread(&self) -> u64 {
        (self.to_raw() / 64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32
    }
}

/// A version that was overwritten.
#[derive(Debug)]
struct SideVersion<V> {
    tick: Tick,
    /// Oldest and newest snapshot that sees it.
    range: (u64, u64),
    /// The oldest of them that was active at the last look.
    owner: u64,
    bytes: u64,
    content: V,
}

#[derive(Debug)]
struct Shard<K, V> {
    chains: HashMap<K, Vec<SideVersion<V>>>,
    /// Objects with versions that a snapshot owns, by its epoch.
    owned: BTreeMap<u64, Vec<K>>,
}

impl<K, V> Default for Shard<K, V> {
    fn default() -> Self {
        Self { chains: HashMap::new(), owned: BTreeMap::new() }
    }
}

type LockedShard<K, V> = CachePadded<Mutex<Shard<K, V>>>;

/// All side chains of an engine: versions with the content `V` of objects named by `K`. See the module.
///
/// Thread safety: any number of threads use them.
///
/// ```
/// use lodestone_pmem::PmAddr;
/// use lodestone_txn::{Epochs, SideChains, Tick, Writer};
///
/// let (epochs, side) = (Epochs::new(1), SideChains::new(1 << 20));
/// let (object, writer) = (PmAddr::NULL, Writer::default());
/// epochs.note(writer, epochs.present(), Tick(10));
/// let snapshot = epochs.begin();
/// // A commit overwrites version 10 with version 11.
/// epochs.note(writer, epochs.present(), Tick(11));
/// assert!(side.keep(&epochs, &object, (writer, Tick(10)), (writer, Tick(11)), 5, || "ten"));
/// assert_eq!(side.find(&object, snapshot.epoch(), |content| *content), Some("ten"));
/// let epoch = snapshot.epoch();
/// drop(snapshot);
/// side.release(&epochs, epoch);
/// assert_eq!(side.size(), (0, 0));
/// ```
#[derive(Debug)]
pub struct SideChains<K, V> {
    shards: Box<[LockedShard<K, V>]>,
    versions: AtomicU64,
    bytes: AtomicU64,
    bytes_max: u64,
    /// The newest snapshot for which a version was not kept, for want of room.
    lost: AtomicU64,
}

impl<K: SideKey, V> SideChains<K, V> {
    /// Empty; keeps up to about `bytes_max` bytes.
    #[must_use]
    pub fn new(bytes_max: u64) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| CachePadded::default()).collect(),
            versions: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            bytes_max,
            lost: AtomicU64::new(0),
        }
    }

    /// Versions kept at present, and about their bytes.
    #[must_use]
    pub fn size(&self) -> (u64, u64) {
        (self.versions.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }

    fn shard(&self, key: &K) -> &Mutex<Shard<K, V>> {
        &self.shards[to_usize(key.spread()) % SHARDS]
    }

    /// Keeps the version `older` of an object, with `bytes` bytes of content, for the active snapshots that see it and
    /// not `newer`, which superseded it. The object is locked, its place not stored to yet. Returns whether it did.
    pub fn keep(
        &self,
        epochs: &Epochs,
        key: &K,
        older: (Writer, Tick),
        newer: (Writer, Tick),
        bytes: u64,
        content: impl FnOnce() -> V,
    ) -> bool {
        let bytes = bytes + OVERHEAD_BYTES;
        let mut shard = lock(self.shard(key));
        // Before the look at the active snapshots: a thread that ends one of them afterwards sees that the count is not
        // zero.
        let total = self.bytes.fetch_add(bytes, Ordering::AcqRel) + bytes;
        self.versions.fetch_add(1, Ordering::AcqRel);
        let mut range = epochs.seen_between(older, newer);
        if let Some((_, last)) = range.filter(|_| total > self.bytes_max) {
            // Before the new version is visible: a snapshot that finds nothing here looks at this.
            self.lost.fetch_max(last, Ordering::AcqRel);
            range = None;
        }
        let chain = shard.chains.entry(key.clone()).or_default();
        match range {
            Some((first, last)) if chain.iter().all(|version| version.tick != older.1) => {
                let last = if planted::active("txn-side-first-only") { first } else { last };
                chain.push(SideVersion {
                    tick: older.1,
                    range: (first, last),
                    owner: first,
                    bytes,
                    content: content(),
                });
                shard.owned.entry(first).or_default().push(key.clone());
                true
            }
            _ => {
                if chain.is_empty() {
                    shard.chains.remove(key);
                }
                self.versions.fetch_sub(1, Ordering::AcqRel);
                self.bytes.fetch_sub(bytes, Ordering::AcqRel);
                false
            }
        }
    }

    /// The version of the object that the active snapshot of `epoch` sees, as `with` reads it, when it was kept.
    pub fn find<R>(&self, key: &K, epoch: u64, with: impl FnOnce(&V) -> R) -> Option<R> {
        // Every version to be found was counted before the word was published under which it is searched.
        if self.versions.load(Ordering::Acquire) == 0 {
            return None;
        }
        let shard = lock(self.shard(key));
        let chain = shard.chains.get(key)?;
        let version = chain.iter().find(|version| (version.range.0..=version.range.1).contains(&epoch))?;
        Some(with(&version.content))
    }

    /// Whether a version that the snapshot of `epoch` sees may not have been kept. Ask after [`find`](Self::find).
    #[must_use]
    pub fn has_lost(&self, epoch: u64) -> bool {
        epoch <= self.lost.load(Ordering::Acquire)
    }

    /// Drops the versions that only the snapshot of `epoch` needed. It is no longer active.
    pub fn release(&self, epochs: &Epochs, epoch: u64) {
        if self.versions.load(Ordering::Acquire) == 0 {
            return;
        }
        for shard in &self.shards {
            let mut shard = lock(shard);
            let Some(objects) = shard.owned.remove(&epoch) else { continue };
            for key in objects {
                self.hand_on(&mut shard, epochs, key, epoch);
            }
            if shard.chains.is_empty() {
                // Its room as well.
                *shard = Shard::default();
            }
        }
    }

    /// Hands the version of `key` that `epoch` owned to the next snapshot that needs it, or drops it.
    fn hand_on(&self, shard: &mut Shard<K, V>, epochs: &Epochs, key: K, epoch: u64) {
        let Some(chain) = shard.chains.get_mut(&key) else { return };
        let Some(number) = chain.iter().position(|version| version.owner == epoch) else { return };
        let next = epochs.next_active(epoch, chain[number].range.1);
        if let Some(next) = next.filter(|_| !planted::active("txn-side-freed-early")) {
            chain[number].owner = next;
            shard.owned.entry(next).or_default().push(key);
            return;
        }
        let dropped = chain.swap_remove(number);
        if chain.is_empty() {
            shard.chains.remove(&key);
        }
        self.versions.fetch_sub(1, Ordering::AcqRel);
        self.bytes.fetch_sub(dropped.bytes, Ordering::AcqRel);
    }
}
