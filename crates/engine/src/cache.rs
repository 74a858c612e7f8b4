//! The leaves whose rows are in DRAM, where these need not be all: a cache with a bound.
//!
//! - Every leaf with loaded rows is on the *clock*, and so is every row that a cold leaf keeps. A leaf counts as many
//!   bytes as it held when the hand passed it last, and those of rows that were added since. A leaf that was split
//!   counts no more: those in its place do.
//! - A leaf takes some bytes also when it is cold. They count as well, and so does a sixteenth of the bound for what
//!   the allocator takes beside. The rows have what is left, and an eighth of the bound at least.
//! - A thread that loads or splits a leaf adds it. If the cache holds more than its bound, a thread that is about to
//!   load a leaf, or has split one, moves the hand until there is room again. One thread at a time does that.
//! - The hand takes one from the count of uses of a leaf that was used since, and of those of its rows. It passes on,
//!   but a leaf that was not used becomes cold ([`Tree::evict`]). So does one of which only few single rows were used
//!   since: it keeps copies of these. A leaf stays while a row has changed since the image was written, while one is
//!   locked, and while a transaction holds one. So no transaction loses a row that it has read.
//! - A kept row that was not used since the hand passed it goes. Its leaf finds it as long as a thread holds it.
//! - In a full cache most rows that are read alone do not stay: they are here as long as a thread holds them. Most
//!   would not be used again before the hand comes, and to keep and remove them costs more than to read them. A row
//!   stays if the last one of its leaf that was read was the same, and fewer were read since than fit into the cache:
//!   it gets on the clock. One of [`FRESH_OF`] others stays too, and is *fresh* first: where many rows of a leaf are
//!   read, the last one is seldom the same. A tenth of the bytes may be fresh. A fresh row that was used again gets on
//!   the clock. (Einziger et al., "TinyLFU", 2017: a row that is read takes the place of another only if it is used
//!   more. Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023: most rows are used once, and need
//!   little room.)
//! - Rows that are read and stay are in an [`Arena`], for whose holes a part of the bound is kept (`cache/holes.rs`).
//!   Others are in memory of the allocator, also when their leaf is loaded while a thread holds them. When a cache
//!   shrinks, because leaves that are cold take more of it, the rows that stay leave holes everywhere. If these
//!   are more than a tenth of the bound, the hand evicts the leaves of its emptiest parts, which go back to the
//!   allocator.
//! - If an eighth of the cache is dirty and in the way, the hand asks for a round, after which it is clean. When the
//!   cache holds an eighth more than its bound, all that add to it wait for the hand, and commits for the round.
//!
//! - The leaves of tables that are [kept](crate::Schema::kept) are not on the clock, and their rows do not count.
//!
//! - The first two looks at rows of a cold leaf that are not in DRAM read these alone (`cold.rs`). A third one loads
//!   the leaf, if each is at another row than the one before it, and comes before half as many leaves and rows went, or
//!   did not stay, as there are: many rows of the leaf are used. Fewer looks, or more time, would load leaves whose
//!   other rows are not used before the hand comes. While all stay no time passes. A cache that has room for all rows
//!   loads a leaf at the first look.
//!
//! So the cache holds more than its bound only while rows are dirty or held. A transaction that reads more rows than
//! fit keeps them all until it ends; a snapshot keeps one leaf at a time.
//!
//! Paper 4, Figure 4: hot pages in DRAM, the others on the medium.

mod holes;
#[cfg(all(test, not(feature = "shuttle")))]
mod tests;

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, OnceLock, Weak};

use lodestone_blocks::Arena;
use lodestone_pmem::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use lodestone_pmem::sync::{Mutex, MutexGuard, lock};
use lodestone_pmem::{count_shared_rmws, prefetch_weak};
use lodestone_width::{to_u64, to_usize};

use crate::core::Core;
use crate::events;
use crate::leaf::{EarlyPass, FewRows, Leaf, Look, LookTurns, UsedRows, charge_of};
use crate::tree::{Bytes, Slot, Tree};

pub use holes::arena;

/// About how many bytes of DRAM a cold leaf takes, with its page and its place in a branch.
pub const COLD_LEAF_BYTES: u64 = 280;
/// So many looks at rows of a cold leaf that are not in DRAM, each soon after the one before it, load it.
const LOOKS_MIN: u32 = 3;
/// The time in which as many pages are read as fit has about as many parts as these bits have numbers.
const TURN_BITS: u32 = 6;
/// This part of the bytes for rows may be fresh ones.
const FRESH_PART: u64 = 10;
/// Of the rows that are read in a full cache, and that are not read again, one of so many stays.
const FRESH_OF: u64 = 16;
/// Of so many rows that were read last the mean size is known.
const MEAN_OF: u64 = 16;
/// A cache is full that has less room than this part of the rows. The hand makes less room than that.
const FULL_PART: u64 = 32;
/// So many leaves may refer to rows which were read alone, and which no thread holds any more.
const EARLY_MAX: usize = 128;
/// Such a part of the bound is for holes of the arena: a cache that is full has a few hundredths.
const HOLES_PART: u64 = 32;
/// The hand makes room for such a part of the rows at once, so that it moves seldom.
const FREE_PART: u64 = 64;
/// The entry that the hand passes after so many others is brought into the cache of the processor.
const PREFETCHED: usize = 3;
/// Such a part of the bound is for what the allocator takes beside what it is asked for: blocks that are free in pages
/// which have others. `docs/engine.md` has a command that shows how much that is. WiredTiger has an option
/// `cache_overhead` for it.
const ALLOCATOR_PART: u64 = 16;
/// The hand passes each leaf at most so often before it gives up: once for each use that is counted, and once more.
const TURNS_MAX: usize = 5;

/// See the module.
#[derive(Debug)]
pub struct Cache {
    bytes_max: u64,
    /// Memory of the rows that were read.
    arena: Option<Arena>,
    /// Whether a row may be read alone.
    reads_rows: bool,
    /// Bytes of a page.
    page_bytes: usize,
    /// A part of the time of looks has two to the power of so many reads. It stays the same, since times are compared.
    part_bits: u32,
    clock: Mutex<Queue>,
    /// Rows that were read a first time, before they are on the clock.
    fresh: Mutex<Queue>,
    /// The sum of what the leaves count.
    bytes: AtomicU64,
    /// All leaves, loaded or not.
    leaves: AtomicU64,
    /// Bytes of the arena that no row had, when they were counted last.
    holes: AtomicU64,
    /// No part of the arena is evacuated before so many reads: leaves that were in the way may be so still.
    evacuates_from: AtomicU64,
    /// Held while the hand moves.
    hand: Mutex<()>,
    /// The hand rests until the cache holds more than so many bytes, a sixteenth of its bound more than when it had met
    /// all leaves and found no room.
    in_vain_to: AtomicU64,
    /// Whether the hand found too many leaves that a round would make clean.
    needs_round: AtomicBool,
    /// Whether a round is under way that was due because of that.
    is_in_round: AtomicBool,
    loads: AtomicU64,
    evictions: AtomicU64,
    /// Rows that went without a leaf, and those that did not stay.
    row_evictions: AtomicU64,
    /// Rows that were read alone.
    row_reads: AtomicU64,
    /// Leaves that were loaded before they were used.
    warm_loads: AtomicU64,
    /// Entries of the clock, and fresh ones.
    on_clock: AtomicU64,
    /// About how many bytes a row counts that was read alone; 0: there was none.
    row_mean: AtomicU64,
    /// Leaves with a row that is not kept, and that a thread may hold. Each is here once.
    early: Mutex<VecDeque<Weak<Leaf>>>,
    core: OnceLock<Weak<Core>>,
}

#[derive(Clone, Debug)]
struct Entry {
    tree: Weak<Tree>,
    leaf: Weak<Leaf>,
    /// A row that the leaf keeps while it is cold, and the bytes that it counts. `None`: the leaf, which is loaded.
    row: Option<(Weak<Slot>, u64)>,
}

/// Entries in the order in which the hand passes them.
#[derive(Debug, Default)]
struct Queue {
    entries: VecDeque<Entry>,
    /// Bytes of its rows without leaves.
    row_bytes: u64,
}

impl Queue {
    fn push(&mut self, entry: Entry) {
        self.row_bytes += entry.row_bytes();
        self.entries.push_back(entry);
    }

    fn pop(&mut self) -> Option<Entry> {
        let entry = self.entries.pop_front()?;
        // Each look at a leaf and a row of long ago waits for DRAM.
        if let Some(Entry { leaf, row, .. }) = self.entries.get(PREFETCHED) {
            prefetch_weak(leaf);
            row.iter().for_each(|(slot, _)| prefetch_weak(slot));
        }
        self.row_bytes -= entry.row_bytes();
        Some(entry)
    }

    /// Takes the entries of a tree out.
    fn take_out(&mut self, tree: &Weak<Tree>) -> Vec<Entry> {
        let (gone, stay) = self.entries.drain(..).partition(|entry| entry.tree.ptr_eq(tree));
        (self.entries, self.row_bytes) = Default::default();
        Vec::into_iter(stay).for_each(|entry| self.push(entry));
        gone
    }
}

impl Entry {
    fn row_bytes(&self) -> u64 {
        self.row.as_ref().map_or(0, |(_, bytes)| *bytes)
    }
}

/// A look at a row of a cold leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Looked {
    /// It loads the leaf.
    Leaf,
    /// It reads the row.
    Row(Stay),
}

/// Whether a row that was read alone stays in DRAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stay {
    /// As long as a thread holds it.
    No,
    /// Until a tenth of all rows that stay came after it, if it is not used again.
    Fresh,
    /// It is known to be used again.
    OnClock,
}

/// Findings of the hand when it passed a leaf.
#[derive(Default)]
struct Passed {
    /// Bytes that could not go because they are dirty.
    in_the_way: u64,
    is_used: bool,
}

impl Cache {
    /// A cache of so many bytes, whose rows are in `arena`, for pages of `page_bytes`. `reads_rows`: the first looks at
    /// rows of a cold leaf read them alone.
    pub fn new(bytes_max: u64, arena: Option<Arena>, reads_rows: bool, page_bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            bytes_max,
            arena,
            reads_rows,
            page_bytes,
            part_bits: (bytes_max / to_u64(page_bytes).max(1)).max(1).ilog2().saturating_sub(TURN_BITS),
            clock: Mutex::default(),
            fresh: Mutex::default(),
            bytes: AtomicU64::new(0),
            leaves: AtomicU64::new(0),
            holes: AtomicU64::new(0),
            evacuates_from: AtomicU64::new(0),
            hand: Mutex::default(),
            in_vain_to: AtomicU64::new(0),
            needs_round: AtomicBool::new(false),
            is_in_round: AtomicBool::new(false),
            loads: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
            row_evictions: AtomicU64::new(0),
            row_reads: AtomicU64::new(0),
            warm_loads: AtomicU64::new(0),
            on_clock: AtomicU64::new(0),
            row_mean: AtomicU64::new(0),
            early: Mutex::default(),
            core: OnceLock::new(),
        })
    }

    /// From now on the hand may move: the database is open.
    pub fn begin(&self, core: &Arc<Core>) {
        let _ = self.core.set(Arc::downgrade(core));
        self.make_room();
    }

    /// Bytes of the loaded rows with the holes between them, and of all leaves.
    pub fn bytes(&self) -> u64 {
        self.row_bytes() + self.hole_bytes() + self.leaf_bytes()
    }

    /// Bytes of the loaded rows.
    fn row_bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// A row of so many bytes is added to a leaf that is loaded.
    pub fn grow(&self, leaf: &Leaf, bytes: u64) {
        count_shared_rmws(1);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        leaf.grow_charge(bytes);
    }

    /// Counts the rows of a leaf as they are now. Returns their bytes.
    fn count(&self, leaf: &Leaf) -> u64 {
        let now = leaf.bytes();
        self.bytes.fetch_add(now, Ordering::Relaxed);
        self.bytes.fetch_sub(leaf.charge(now), Ordering::Relaxed);
        if leaf.is_ended() {
            // The thread that has ended it may have found the count of before.
            self.forget(leaf);
        }
        now
    }

    /// The rows of a leaf do not count any more: it has ended, is gone with its tree, or stays for ever.
    pub fn forget(&self, leaf: &Leaf) {
        self.bytes.fetch_sub(leaf.uncharge(), Ordering::Relaxed);
    }

    fn leaf_bytes(&self) -> u64 {
        self.leaves.load(Ordering::Relaxed) * COLD_LEAF_BYTES
    }

    /// Bytes that are left for rows.
    fn row_bytes_max(&self) -> u64 {
        // Not the holes that there are: rows that go leave holes, so these would become more and more.
        let holes = if self.arena.is_some() { self.bytes_max / HOLES_PART } else { 0 };
        let allocator = self.bytes_max / ALLOCATOR_PART;
        self.bytes_max.saturating_sub(self.leaf_bytes() + holes + allocator).max(self.bytes_max / 8)
    }

    /// There are so many leaves more.
    pub fn note_leaves(&self, count: usize) {
        self.leaves.fetch_add(to_u64(count), Ordering::Relaxed);
    }

    /// So many leaves are gone with their tree.
    pub fn forget_leaves(&self, count: usize) {
        self.leaves.fetch_sub(to_u64(count), Ordering::Relaxed);
    }

    /// How many leaves were loaded.
    pub fn loads(&self) -> u64 {
        self.loads.load(Ordering::Relaxed)
    }

    /// How many leaves became cold.
    pub fn evictions(&self) -> u64 {
        self.evictions.load(Ordering::Relaxed)
    }

    /// How many rows were read alone.
    pub fn row_reads(&self) -> u64 {
        self.row_reads.load(Ordering::Relaxed)
    }

    /// How many leaves were loaded before they were used.
    pub fn warm_loads(&self) -> u64 {
        self.warm_loads.load(Ordering::Relaxed)
    }

    /// A leaf was loaded before it was used.
    pub fn note_warm_load(&self) {
        self.warm_loads.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether a leaf whose page has so many bytes can be loaded, and nothing is evicted for it. Rows take more in
    /// DRAM than in their page.
    pub fn has_room(&self, page_bytes: usize) -> bool {
        let max = self.row_bytes_max();
        self.row_bytes() + max / 16 + 4 * to_u64(page_bytes) <= max
    }

    /// How many leaves whose pages have so many bytes can be here at most.
    pub fn leaves_max(&self, page_bytes: usize) -> usize {
        to_usize(self.row_bytes_max() / to_u64(page_bytes).max(1))
    }

    /// The leaves that are here, or have rows here, and have images: their trees and first possible keys. First those
    /// that were used most since the hand passed them. Others are in the order of the clock: so leaves that a warm-up
    /// has read, and that were not used since, keep their ranks.
    pub fn loaded(&self) -> Vec<(u32, Bytes)> {
        let entries = |of: &Mutex<Queue>| lock(of).entries.iter().cloned().collect::<Vec<_>>();
        let entries = entries(&self.clock).into_iter().chain(entries(&self.fresh));
        let place = |Entry { tree, leaf, row }: Entry| {
            let leaf = leaf.upgrade().filter(|leaf| !leaf.is_ended() && leaf.page.home().is_some())?;
            let uses = match row {
                None => leaf.is_loaded().then(|| leaf.uses_of_any()),
                Some((row, _)) => row.upgrade().filter(|_| !leaf.is_loaded()).map(|slot| slot.uses()),
            };
            Some((uses?, (tree.upgrade()?.number, leaf.span.low.clone())))
        };
        let mut places: Vec<_> = entries.filter_map(place).collect();
        places.sort_by_key(|(uses, _)| std::cmp::Reverse(*uses));
        let mut present = HashSet::new();
        places.into_iter().map(|(_, place)| place).filter(|place| present.insert(place.clone())).collect()
    }

    /// A row was read alone.
    pub fn note_row_read(&self) {
        self.row_reads.fetch_add(1, Ordering::Relaxed);
        self.note_read();
    }

    /// Counts a row that a cold leaf is about to keep. Returns it with its bytes.
    pub fn charge_row(&self, slot: Arc<Slot>) -> (Arc<Slot>, u64) {
        let bytes = charge_of(&slot);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        // A lost one of two threads does no harm.
        let mean = match self.row_mean.load(Ordering::Relaxed) {
            0 => bytes,
            mean => mean - mean / MEAN_OF + bytes / MEAN_OF,
        };
        self.row_mean.store(mean, Ordering::Relaxed);
        (slot, bytes)
    }

    /// A cold leaf keeps a row that is [counted](Self::charge_row).
    pub fn add_row(&self, tree: &Weak<Tree>, leaf: &Arc<Leaf>, (slot, bytes): &(Arc<Slot>, u64), stay: Stay) {
        self.on_clock.fetch_add(1, Ordering::Relaxed);
        let row = Some((Arc::downgrade(slot), *bytes));
        let entry = Entry { tree: tree.clone(), leaf: Arc::downgrade(leaf), row };
        lock(if stay == Stay::OnClock { &self.clock } else { &self.fresh }).push(entry);
    }

    /// A cold leaf has a row that does not stay.
    pub fn note_held(&self, leaf: &Arc<Leaf>) {
        self.row_evictions.fetch_add(1, Ordering::Relaxed);
        self.forget_later(leaf);
    }

    /// About how many rows that are read alone fit.
    fn rows_max(&self) -> u64 {
        self.row_bytes_max().checked_div(self.row_mean.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Whether a row that is read alone stays. `is_again`: it was read not long ago.
    fn stay(&self, is_again: bool) -> Stay {
        let max = self.row_bytes_max();
        let is_full = || self.row_bytes() + max / FULL_PART >= max;
        // The fractions of multiples of the golden ratio are spread evenly, and follow no order of keys.
        let is_one_of = |count| self.row_reads().wrapping_mul(0x9E37_79B9_7F4A_7C15) < u64::MAX / count;
        match is_again {
            true => Stay::OnClock,
            false if !is_full() || is_one_of(FRESH_OF) => Stay::Fresh,
            false => Stay::No,
        }
    }

    /// Whether the first looks at rows of a cold leaf read them alone.
    pub fn reads_rows(&self) -> bool {
        self.reads_rows
    }

    /// A look at the row with `key` of a cold leaf, which is not in DRAM.
    pub fn look(&self, leaf: &Leaf, key: &[u8]) -> Looked {
        // Time is the number of evictions, and of rows that did not stay, in parts of a turn: so a few bits hold it.
        let evictions = self.evictions() + self.row_evictions.load(Ordering::Relaxed);
        let on_clock = self.on_clock.load(Ordering::Relaxed);
        let parts = |reads: u64| (reads >> self.part_bits).max(1);
        // Where most entries are leaves, more rows fit than there are entries.
        let turns = LookTurns { row: parts(on_clock.max(self.rows_max())), leaf: parts(on_clock) };
        let Look { is_again, looks } = leaf.note_look(key, evictions >> self.part_bits, turns);
        let has_room_for_all = || self.leaves.load(Ordering::Relaxed) * to_u64(self.page_bytes) <= self.bytes_max;
        if looks >= LOOKS_MIN || evictions == 0 && has_room_for_all() {
            Looked::Leaf
        } else {
            Looked::Row(self.stay(is_again))
        }
    }

    /// Whether commits must wait for a round: the cache holds an eighth more than its bound, and the round that is due
    /// for that has not ended.
    pub fn is_full(&self) -> bool {
        self.is_over() && (self.needs_round() || self.is_in_round.load(Ordering::Relaxed))
    }

    /// Whether the cache holds an eighth more than its bound.
    pub fn is_over(&self) -> bool {
        let max = self.row_bytes_max();
        self.row_bytes() > max + max / 8
    }

    /// Whether a round is due because too many leaves are dirty.
    pub fn needs_round(&self) -> bool {
        self.needs_round.load(Ordering::Relaxed)
    }

    /// A round begins: what is dirty now is clean after it.
    pub fn begin_round(&self) {
        let is_due = self.needs_round.swap(false, Ordering::Relaxed);
        self.is_in_round.store(is_due, Ordering::Relaxed);
    }

    /// A round has counted, or has failed.
    pub fn end_round(&self, has_counted: bool) {
        if has_counted {
            self.in_vain_to.store(0, Ordering::Relaxed);
            self.evacuates_from.store(0, Ordering::Relaxed);
            self.make_room();
        }
        self.is_in_round.store(false, Ordering::Relaxed);
    }

    /// Adds a leaf whose rows are loaded.
    pub fn add(&self, tree: &Weak<Tree>, leaf: &Arc<Leaf>) {
        self.count(leaf);
        self.on_clock.fetch_add(1, Ordering::Relaxed);
        lock(&self.clock).push(Entry { tree: tree.clone(), leaf: Arc::downgrade(leaf), row: None });
    }

    /// Takes the leaves of a tree from the clock: they stay, and do not count. One that the hand holds goes when the
    /// hand has looked at it.
    pub fn take_out(&self, tree: &Weak<Tree>) {
        let mut gone = lock(&self.clock).take_out(tree);
        gone.extend(lock(&self.fresh).take_out(tree));
        // No other lock is taken while that of the clock is held.
        gone.iter().filter_map(|entry| entry.leaf.upgrade()).for_each(|leaf| self.forget(&leaf));
        self.on_clock.fetch_sub(to_u64(gone.len()), Ordering::Relaxed);
        // The leaves in the way may be those.
        self.in_vain_to.store(0, Ordering::Relaxed);
    }

    /// A leaf was loaded, whose rows that were here before counted so many bytes.
    pub fn note_load(&self, early: u64) {
        self.bytes.fetch_sub(early, Ordering::Relaxed);
        self.loads.fetch_add(1, Ordering::Relaxed);
        self.note_read();
    }

    /// How many leaves were loaded and rows read alone.
    fn reads(&self) -> u64 {
        self.loads() + self.row_reads()
    }

    /// Moves the hand if the cache holds more than its bound. The caller holds no lock of a tree or a leaf. It may hold
    /// locks of rows, for which the hand does not wait.
    pub fn make_room(&self) {
        if self.row_bytes() <= self.row_bytes_max() && !self.has_to_evacuate() {
            return;
        }
        if let Ok(hand) = self.hand.try_lock() {
            self.move_hand(&hand);
        } else if self.is_over() {
            // Another thread moves it, and others add rows faster than it takes them away.
            drop(lock(&self.hand));
        }
    }

    /// As [`make_room`](Self::make_room), for a caller that has added many leaves at once: it waits for its turn.
    pub fn make_much_room(&self) {
        let hand = lock(&self.hand);
        // Another thread's hand may have moved in vain while only some of these leaves were on the clock, and have
        // counted all of their bytes as bytes that cannot go.
        self.in_vain_to.store(0, Ordering::Relaxed);
        self.move_hand(&hand);
    }

    fn move_hand(&self, _hand: &MutexGuard<'_, ()>) {
        if self.has_to_evacuate() {
            self.evacuate();
        }
        let max = self.row_bytes_max();
        if self.row_bytes() <= max.max(self.in_vain_to.load(Ordering::Relaxed)) {
            return;
        }
        let Some(core) = self.core.get().and_then(Weak::upgrade) else { return };
        let wanted = max - max / FREE_PART;
        let leaves = lock(&self.clock).entries.len();
        let mut turns = leaves * TURNS_MAX;
        let (mut dirty, mut dirty_and_used) = (0, 0);
        while self.row_bytes() > wanted {
            if self.pass_fresh(&core, max / FRESH_PART) {
                continue;
            }
            if turns == 0 {
                break;
            }
            turns -= 1;
            let Some(entry) = lock(&self.clock).pop() else { return };
            let Passed { in_the_way, is_used } = self.pass(&core, entry);
            let is_first = turns + leaves >= leaves * TURNS_MAX;
            let is_last = turns < leaves;
            dirty_and_used += if is_first { in_the_way } else { 0 };
            // In the last turn all uses are taken.
            dirty += if is_last && !is_used { in_the_way } else { 0 };
            let is_end_of_first = turns + leaves == leaves * TURNS_MAX;
            if is_end_of_first && dirty_and_used + max / 16 >= self.row_bytes() {
                // Nearly all is dirty: no other turn will help.
                dirty = dirty_and_used;
                break;
            }
        }
        // Else each call would pass all of them again, if it was in vain.
        self.in_vain_to.store(self.row_bytes() + max / 16, Ordering::Relaxed);
        if self.row_bytes() > max {
            // Else rounds would follow each other while a transaction holds more than fits.
            if dirty > max / 8 {
                if !self.needs_round.swap(true, Ordering::Relaxed) {
                    events::evictions_wait(&core, dirty, self.row_bytes());
                }
                core.rounds.bell.ring();
            }
        }
    }

    /// The hand passes the first of the fresh rows, if these have more than so many bytes: one that was used again gets
    /// on the clock. Returns whether they had.
    fn pass_fresh(&self, core: &Core, bytes_max: u64) -> bool {
        let mut fresh = lock(&self.fresh);
        let entry = if fresh.row_bytes > bytes_max { fresh.pop() } else { None };
        drop(fresh);
        let is_passed = entry.is_some();
        entry.into_iter().for_each(|entry| _ = self.pass(core, entry));
        is_passed
    }

    /// The hand passes a row of a cold leaf. Returns whether it stays.
    fn pass_row(&self, entry: &Entry, row: &Weak<Slot>, must_go: bool) -> bool {
        if let (Some(tree), Some(leaf)) = (entry.tree.upgrade(), entry.leaf.upgrade()) {
            if tree.is_kept() {
                self.forget(&leaf);
            }
            match leaf.pass_early(row, must_go) {
                EarlyPass::Used => return true,
                EarlyPass::Gone => {}
                EarlyPass::Taken(bytes) => {
                    self.bytes.fetch_sub(bytes, Ordering::Relaxed);
                    self.row_evictions.fetch_add(1, Ordering::Relaxed);
                    if row.strong_count() > 0 {
                        self.forget_later(&leaf);
                    }
                }
            }
        }
        self.on_clock.fetch_sub(1, Ordering::Relaxed);
        false
    }

    /// A thread holds a row that `leaf` does not keep. The leaf refers to it until it is loaded, or so many other
    /// leaves came after it that it is asked to [forget](Leaf::forget_early) rows that no thread holds.
    fn forget_later(&self, leaf: &Arc<Leaf>) {
        if leaf.list_early() {
            lock(&self.early).push_back(Arc::downgrade(leaf));
        }
        // Two: after a transaction that held many rows there are fewer again.
        for _ in 0..2 {
            // The list is free while the leaf is looked at, and the last owner of a leaf is dropped.
            let Some(first) = self.next_to_forget() else { return };
            if let Some(first) = first.upgrade().filter(|first| first.forget_early()) {
                lock(&self.early).push_back(Arc::downgrade(&first));
            }
        }
    }

    /// Takes the first leaf from the list, if there are more than enough.
    fn next_to_forget(&self) -> Option<Weak<Leaf>> {
        let mut early = lock(&self.early);
        if early.len() <= EARLY_MAX {
            early.shrink_to(2 * EARLY_MAX);
            return None;
        }
        early.pop_front()
    }

    /// The hand passes a leaf, or a row of a cold one.
    fn pass(&self, core: &Core, entry: Entry) -> Passed {
        if let Some((row, _)) = &entry.row {
            let is_used = self.pass_row(&entry, row, false);
            if is_used {
                lock(&self.clock).push(entry);
            }
            return Passed { in_the_way: 0, is_used };
        }
        let (tree, leaf) = (entry.tree.upgrade(), entry.leaf.upgrade());
        let stays = tree.zip(leaf.as_ref()).filter(|(tree, leaf)| !leaf.is_ended() && !tree.is_kept());
        let is_used_whole = stays.as_ref().is_some_and(|(_, leaf)| leaf.take_use());
        let rows = stays.as_ref().map_or(UsedRows::None, |(_, leaf)| leaf.take_used());
        let is_used = is_used_whole || rows != UsedRows::None;
        let stays = stays.filter(|(tree, leaf)| {
            let kept = match rows {
                UsedRows::None => Some(FewRows::new()),
                // Used for few of its rows only, it becomes cold as well, and keeps these.
                UsedRows::Few(rows) if self.reads_rows => Some(rows),
                UsedRows::Few(_) | UsedRows::Many => None,
            };
            let is_evicted = !is_used_whole && kept.is_some_and(|kept| tree.evict(core, leaf, &kept));
            self.evictions.fetch_add(is_evicted.into(), Ordering::Relaxed);
            !is_evicted
        });
        let Some((_, leaf)) = stays else {
            leaf.iter().for_each(|leaf| self.forget(leaf));
            self.on_clock.fetch_sub(1, Ordering::Relaxed);
            return Passed::default();
        };
        let bytes = self.count(leaf);
        lock(&self.clock).push(entry);
        Passed { in_the_way: if leaf.page.is_busy() { bytes } else { 0 }, is_used }
    }
}
