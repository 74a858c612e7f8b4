//! The side chains: versions that are about to be overwritten and that an active snapshot still sees, copied to DRAM.
//!
//! An object has room for two versions. A long snapshot may need one that is older than both. A thread that overwrites
//! the last copy of such a version keeps it here first, so the snapshot never restarts. The paper (section 4.2) aborts.
//!
//! 1. *Keep* ([`SideChains::keep`], called by the commit after validation and before the first store to a slot): when a
//!    snapshot is active, this runs for each object of the write set. If the oldest active snapshot sees the newest
//!    version, so do all, and no snapshot needs the other one. Else the other one is copied, with the range of active
//!    snapshots that see it and not the newest.
//! 2. *Find* ([`SideChains::find`], called by the snapshot): take the version whose range holds the snapshot's epoch,
//!    before a look at the older slot.
//! 3. *Release* ([`SideChains::release`], called when a snapshot has ended): the oldest active snapshot of its range
//!    owns a version. The version is handed to the next snapshot of the range, or dropped.
//!
//! **Why an active snapshot finds every version it sees.** Let snapshot `s` be active, `v` the version of an object
//! that it sees and `n` the next version.
//! - While `v` is in a slot, `s` reads it there. The newest slot is read under its word, the older one under a word
//!   that is read again afterwards. No thread writes to a slot before the word says "committing".
//! - Then a thread overwrites `v`. It has locked the object, hence seen the word of `n`. `n` is of an epoch later than
//!   `s`, so its writer read an epoch that began after `s` was published as active. With the word of `n` this became
//!   visible to the thread that locked it. So that thread finds `s` active; one relaxed load is enough, because the
//!   value is not older than that. It finds that `s` sees `v` and not `n`, and inserts the copy before it stores to the
//!   slot.
//! - A reader that sees that thread's word sees the copy. A reader that still sees the word of `n` reads the word again
//!   after the slot, and it has changed. So a read takes at most two turns, not counting waits for commits under way.
//! - The copy stays while `s` is active. `keep` asks which snapshots are active under the shard's lock. `release` comes
//!   to the shard after the snapshot has left the active ones. So either `keep` no longer finds the snapshot, or
//!   `release` finds the copy.
//!
//! A freed object is a version that says "deleted", and its cell never changes its shape. So frees and cells used again
//! need no special case.
//!
//! **Bound.** Per object at most one version for each active snapshot. The total is snapshots times objects that were
//! written twice since the snapshot began, each with its payload and about a hundred bytes. Nothing is kept while no
//! snapshot is active. When [`StmOptions::side_bytes_max`](crate::StmOptions::side_bytes_max) is reached, versions are
//! not kept, and a snapshot that needs one restarts.

use std::collections::{BTreeMap, HashMap};

use crossbeam_utils::CachePadded;
use lodestone_pmem::sync::atomic::{AtomicU64, Ordering};
use lodestone_pmem::sync::{Mutex, lock};
use lodestone_pmem::{PmAddr, planted};
use lodestone_txn::{Epochs, SLOT_HEADER_WORDS, SlotHeader, Tick, Writer};
use lodestone_width::{to_u64, to_usize};
use zerocopy::IntoBytes;

use crate::context::{Change, Context};
use crate::core::Core;

/// Locks; a power of two.
const SHARDS: usize = if cfg!(feature = "shuttle") { 2 } else { 64 };
/// Bytes that a version takes beside its payload, about: entry, allocation, its share of the tables.
const OVERHEAD_BYTES: u64 = 112;

/// A version that was overwritten.
#[derive(Debug)]
struct SideVersion {
    tick: Tick,
    is_deleted: bool,
    /// Oldest and newest snapshot that sees it.
    range: (u64, u64),
    /// The oldest of them that was active at the last look.
    owner: u64,
    words: Box<[u64]>,
}

#[derive(Debug, Default)]
struct Shard {
    chains: HashMap<PmAddr, Vec<SideVersion>>,
    /// Objects with versions that a snapshot owns, by its epoch.
    owned: BTreeMap<u64, Vec<PmAddr>>,
}

/// All side chains of a memory.
#[derive(Debug)]
pub struct SideChains {
    shards: Box<[CachePadded<Mutex<Shard>>]>,
    versions: AtomicU64,
    bytes: AtomicU64,
    bytes_max: u64,
}

/// The result of a snapshot's search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The payload was copied.
    Payload,
    /// The size of the object differs from the requested size.
    OtherSize,
    /// For the snapshot the object does not exist.
    Deleted,
}

impl SideChains {
    /// Empty; keeps up to about `bytes_max` bytes.
    pub fn new(bytes_max: u64) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| CachePadded::default()).collect(),
            versions: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            bytes_max,
        }
    }

    /// Versions kept at present, and about their bytes.
    pub fn size(&self) -> (u64, u64) {
        (self.versions.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }

    fn shard(&self, at: PmAddr) -> &Mutex<Shard> {
        let mixed = (at.to_raw() / 64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        &self.shards[to_usize(mixed >> 32) % SHARDS]
    }

    /// Keeps the versions that active snapshots still see and that the commit of `context` is about to overwrite. All
    /// its objects are locked, and none of their slots has been stored to.
    #[cold]
    pub fn keep(&self, core: &Core, context: &mut Context) {
        let epochs = core.timeline.epochs();
        let Context { horizon, writes, .. } = context;
        let (oldest, newest) = (epochs.oldest_active(), epochs.newest_active());
        horizon.turn_to(oldest);
        for entry in writes.iter().filter(|entry| entry.change != Change::Nothing) {
            let present = (entry.seen.writer(), entry.seen.tick(core.timeline.base()));
            if present.1 <= core.timeline.base() || horizon.sees(epochs, present.0, present.1) {
                continue;
            }
            let which = entry.seen.slot().other();
            let at = entry.shape.slot_at(entry.at, which);
            let header = SlotHeader::decode(core.memory.load(at), core.memory.load(at.plus(8)));
            // A version that the newest snapshot does not see is seen by no older one.
            let mut is_seen = || match oldest == newest {
                true => horizon.sees(epochs, header.writer, header.tick),
                false => epochs.is_visible(header.writer, header.tick, newest),
            };
            if header.tick == Tick::NEVER || !core.lives_count(&header) || !is_seen() {
                continue;
            }
            let words = to_usize(header.words.min(entry.shape.slot_words(which)));
            let mut payload = vec![0; words].into_boxed_slice();
            core.memory.read(at.plus(to_u64(SLOT_HEADER_WORDS) * 8), payload.as_mut_bytes());
            self.insert(epochs, entry.at, present, &header, payload);
            core.stats.of(context.writer.index()).side_copies();
        }
    }

    fn insert(&self, epochs: &Epochs, at: PmAddr, present: (Writer, Tick), header: &SlotHeader, words: Box<[u64]>) {
        let bytes = to_u64(words.len()) * 8 + OVERHEAD_BYTES;
        let mut shard = lock(self.shard(at));
        // Before the look at the active snapshots: a thread that ends one of them afterwards sees that the count is not
        // zero.
        let total = self.bytes.fetch_add(bytes, Ordering::AcqRel) + bytes;
        self.versions.fetch_add(1, Ordering::AcqRel);
        let range = epochs.seen_between((header.writer, header.tick), present);
        let range = range.filter(|_| total <= self.bytes_max);
        let chain = shard.chains.entry(at).or_default();
        match range {
            Some((first, last)) if chain.iter().all(|version| version.tick != header.tick) => {
                let last = if planted::active("stm-side-first-only") { first } else { last };
                let is_deleted = header.flags.deleted;
                chain.push(SideVersion { tick: header.tick, is_deleted, range: (first, last), owner: first, words });
                shard.owned.entry(first).or_default().push(at);
            }
            _ => {
                if chain.is_empty() {
                    shard.chains.remove(&at);
                }
                self.versions.fetch_sub(1, Ordering::AcqRel);
                self.bytes.fetch_sub(bytes, Ordering::AcqRel);
            }
        }
    }

    /// Copies the version of the object of `words` words at `at` that the active snapshot of `epoch` sees into `out`,
    /// when it was kept.
    pub fn find(&self, at: PmAddr, epoch: u64, words: u32, out: &mut [u8]) -> Option<Found> {
        // Every version to be found was counted before the word was published under which it is searched.
        if self.versions.load(Ordering::Acquire) == 0 {
            return None;
        }
        let shard = lock(self.shard(at));
        let chain = shard.chains.get(&at)?;
        let version = chain.iter().find(|version| (version.range.0..=version.range.1).contains(&epoch))?;
        if version.is_deleted {
            return Some(Found::Deleted);
        }
        if version.words.len() != to_usize(words) {
            return Some(Found::OtherSize);
        }
        out.copy_from_slice(&version.words.as_bytes()[..out.len()]);
        Some(Found::Payload)
    }

    /// Drops the versions that only the snapshot of `epoch` needed. It is no longer active.
    pub fn release(&self, epochs: &Epochs, epoch: u64) {
        if self.versions.load(Ordering::Acquire) == 0 {
            return;
        }
        for shard in &self.shards {
            let mut shard = lock(shard);
            let Some(objects) = shard.owned.remove(&epoch) else { continue };
            for at in objects {
                self.hand_on(&mut shard, epochs, at, epoch);
            }
            if shard.chains.is_empty() {
                // Its room as well.
                *shard = Shard::default();
            }
        }
    }

    /// Hands the version of `at` that `epoch` owned to the next snapshot that needs it, or drops it.
    fn hand_on(&self, shard: &mut Shard, epochs: &Epochs, at: PmAddr, epoch: u64) {
        let Some(chain) = shard.chains.get_mut(&at) else { return };
        let Some(number) = chain.iter().position(|version| version.owner == epoch) else { return };
        let next = epochs.next_active(epoch, chain[number].range.1);
        if let Some(next) = next.filter(|_| !planted::active("stm-side-freed-early")) {
            chain[number].owner = next;
            shard.owned.entry(next).or_default().push(at);
            return;
        }
        let dropped = chain.swap_remove(number);
        if chain.is_empty() {
            shard.chains.remove(&at);
        }
        self.versions.fetch_sub(1, Ordering::AcqRel);
        self.bytes.fetch_sub(to_u64(dropped.words.len()) * 8 + OVERHEAD_BYTES, Ordering::AcqRel);
    }
}
