//! One stripe of the hash in DRAM: the keys whose hashes agree in their upper bits, one writer at a time, readers
//! without a lock.
//!
//! *Version.* One word. Bit 0, *busy*: tree and hash are being changed together, or the hash alone. Bit 1, *complete*:
//! a key that is not here is not in the tree. Bit 2, *lossy*: entries were forgotten, so it never is complete again.
//! The other bits count.
//!
//! 1. A writer waits until the word is free and makes it busy, changes the tree, then the hash, and makes the word free
//!    and different.
//! 2. A reader sees a free word, searches, and sees the same word again. Then it has searched at one moment at which
//!    every entry here was what the tree held. In every other case it asks the tree.
//!
//! The word is the lock, too. It is freed by a plain store, which need not wait for the write-back of the tree's line
//! as an exchange would. Where a change waits for a device (the block domain), writers first take turns by a mutex, so
//! that they sleep.
//!
//! Why loads suffice: a writer's stores release and a reader's loads acquire, so a reader that saw any store of a
//! writer also sees that writer's version.
//!
//! *Table.* A table consists of lines of four keys and four values, each a line of the processor's cache. A key is in
//! the first line with room, counted from its home. So a search reads one line in most cases and ends at the first line
//! with a free slot. A removal moves keys back into the hole; there are no marks of removed keys. Words are hashed one
//! to one, so the hash represents the key. A string's entry names a copy of it (`keys`).
//!
//! The table doubles in place, while the stripe is busy and readers ask the tree: stripes are many, so each has a small
//! part of the keys.
//!
//! *Waiting for memory.* With many keys the line of a key is in no cache. A change requests it before it changes the
//! tree, and comes back to it afterwards: it waits for DRAM and medium at once. All other state of a stripe that every
//! change reads is one line. These lines are so few that they stay in the second cache.

use std::sync::Arc;

use lodestone_pmem::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use lodestone_pmem::sync::{Mutex, MutexGuard, lock, spin};
use lodestone_pmem::{planted, prefetch_line};
use lodestone_width::{exact_u8, to_u64, to_usize};

use crate::hybrid_plus::grown::Grown;
use crate::hybrid_plus::keys::Blocks;
use crate::traits::IndexKey;

const BUSY: u64 = 1;
const COMPLETE: u64 = 2;
const LOSSY: u64 = 4;
const VERSION_STEP: u64 = 8;

/// Slots of a line.
const SLOTS: usize = 4;
/// Lines of the first segment, as a power of two.
const BASE_BITS: u32 = 2;
/// Stripes whose tables share their segments.
const GROUP: usize = 16;

/// Four keys, then four values. A key of 0: the slot is free.
#[derive(Default)]
#[repr(align(64))]
struct Line([AtomicU64; 2 * SLOTS]);

/// The result of a search in DRAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// The key's value, or that it is in neither structure, at one moment of the search.
    Yes(Option<u64>),
    /// Only the tree knows.
    No,
}

/// See the module text.
#[repr(C, align(64))]
pub(super) struct Stripe {
    version: AtomicU64,
    /// Number of pairs that changes of the tree in this stripe completed; fills do not count.
    changes: AtomicU64,
    count: AtomicU64,
    /// Lines of the table; a power of two, or 0.
    lines_len: AtomicUsize,
    lines: Arc<Grown<Line>>,
    /// Where writers wait for devices: who may make the word busy.
    turn: Option<Box<Mutex<()>>>,
    /// Copies of strings.
    blocks: Option<Box<Blocks>>,
    /// Which of the arrays in `lines` is this stripe's.
    share: u8,
    /// Whether the last change had nothing to do.
    is_idle: AtomicBool,
    // Here the second line of the processor's cache begins.
    /// The word whose hash is 0, which no slot can hold: 1 when it is there, and its value.
    zero: [AtomicU64; 2],
}

#[cfg(not(feature = "shuttle"))]
const _: () = assert!(std::mem::offset_of!(Stripe, zero) == 64, "what every change looks at is one line");

/// While it lives, the stripe is busy.
pub(super) struct Writing<'s> {
    stripe: &'s Stripe,
    _turn: Option<MutexGuard<'s, ()>>,
    is_done: bool,
}

/// The position of an entry.
#[derive(Clone, Copy)]
struct Place {
    line: usize,
    slot: usize,
}

/// The content of a slot for a key with this hash.
#[inline]
fn tag_of<K: IndexKey + ?Sized>(hash: u64) -> u64 {
    if K::IS_WORD { hash } else { hash.max(1) }
}

/// Whether this hash has its own place.
#[inline]
fn is_zero<K: IndexKey + ?Sized>(hash: u64) -> bool {
    K::IS_WORD && hash == 0
}

impl Line {
    #[inline]
    fn tag(&self, slot: usize) -> u64 {
        self.0[slot].load(Ordering::Acquire)
    }

    #[inline]
    fn word(&self, slot: usize) -> u64 {
        self.0[SLOTS + slot].load(Ordering::Acquire)
    }

    fn set(&self, slot: usize, tag: u64, word: u64) {
        self.0[SLOTS + slot].store(word, Ordering::Release);
        self.0[slot].store(tag, Ordering::Release);
    }
}

impl Stripe {
    /// `count` empty stripes, a power of two; `is_complete`: the tree holds no key of them either; `sleeps`: changes
    /// wait for a device.
    pub(super) fn many<K: IndexKey + ?Sized>(count: usize, is_complete: bool, sleeps: bool) -> Box<[Self]> {
        let group = count.min(GROUP);
        let mut all = Vec::with_capacity(count);
        while all.len() < count {
            let lines = Arc::new(Grown::new(BASE_BITS, group.trailing_zeros()));
            all.extend((0..exact_u8(group)).map(|share| Self {
                version: AtomicU64::new(if is_complete { COMPLETE } else { 0 }),
                changes: AtomicU64::new(0),
                count: AtomicU64::new(0),
                lines_len: AtomicUsize::new(0),
                lines: Arc::clone(&lines),
                turn: sleeps.then(Box::default),
                blocks: (!K::IS_WORD).then(|| Box::new(Blocks::new())),
                share,
                is_idle: AtomicBool::new(false),
                zero: Default::default(),
            }));
        }
        all.into_boxed_slice()
    }

    /// Asks the processor for the line that most likely holds a key with this hash.
    #[inline]
    pub(super) fn expect<K: IndexKey + ?Sized>(&self, hash: u64) {
        let len = self.lines_len.load(Ordering::Relaxed);
        if let Some(line) = self.lines.get(self.share.into(), to_usize(tag_of::<K>(hash)) & len.wrapping_sub(1)) {
            prefetch_line(line);
        }
    }

    /// Whether the last change had nothing to do: then the next one may have nothing to do either, and should look here
    /// before it goes to the tree.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.is_idle.load(Ordering::Relaxed)
    }

    /// Notes whether a change had nothing to do.
    #[inline]
    pub(super) fn set_idle(&self, is_idle: bool) {
        if self.is_idle.load(Ordering::Relaxed) != is_idle {
            self.is_idle.store(is_idle, Ordering::Relaxed);
        }
    }

    /// The state of `key` in DRAM.
    #[inline]
    pub(super) fn read<K: IndexKey + ?Sized>(&self, hash: u64, key: &K) -> Known {
        let before = self.version.load(Ordering::Acquire);
        let ignores_version = planted::active("hybrid-plus-no-parity");
        if before & BUSY != 0 && !ignores_version {
            return Known::No;
        }
        let found = self.find_value(hash, key);
        // The words were loaded with acquire order, so this load stays after them.
        if self.version.load(Ordering::Acquire) != before && !ignores_version {
            return Known::No;
        }
        let misses_count = before & COMPLETE != 0 || planted::active("hybrid-plus-miss-is-absent");
        if found.is_some() || misses_count { Known::Yes(found) } else { Known::No }
    }

    /// Whether a key that is not here is not in the tree.
    pub(super) fn is_complete(&self) -> bool {
        self.version.load(Ordering::Acquire) & COMPLETE != 0
    }

    /// Number of keys here.
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// Number of changes of the tree that were completed here.
    #[inline]
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Waits for the writer before, and makes the stripe busy.
    pub(super) fn write(&self) -> Writing<'_> {
        let turn = self.turn.as_deref().map(lock);
        let mut turns = 0;
        loop {
            let version = self.version.load(Ordering::Relaxed);
            // A thread that sees a store of the tree or of the table that follows sees this one too: they release.
            let take = || self.version.compare_exchange(version, version | BUSY, Ordering::Acquire, Ordering::Relaxed);
            if version & BUSY == 0 && take().is_ok() {
                break;
            }
            turns += 1;
            spin(turns);
        }
        Writing { stripe: self, _turn: turn, is_done: false }
    }

    /// Bytes of DRAM besides the stripe itself; the first of those that share segments names all of them.
    pub(super) fn dram_bytes(&self) -> u64 {
        let lines = if self.share == 0 { self.lines.dram_bytes() } else { 0 };
        lines + self.blocks.as_ref().map_or(0, |blocks| blocks.dram_bytes())
    }

    #[inline]
    fn value_in<K: IndexKey + ?Sized>(&self, word: u64, key: &K) -> Option<u64> {
        let Some(blocks) = &self.blocks else { return Some(word) };
        let at = to_usize(word);
        if key.with_bytes(|key| blocks.holds(at, key)) { blocks.value(at) } else { None }
    }

    #[inline]
    fn find_value<K: IndexKey + ?Sized>(&self, hash: u64, key: &K) -> Option<u64> {
        if is_zero::<K>(hash) {
            return (self.zero[0].load(Ordering::Acquire) == 1).then(|| self.zero[1].load(Ordering::Acquire));
        }
        let tag = tag_of::<K>(hash);
        let len = self.lines_len.load(Ordering::Acquire);
        for step in 0..len {
            let line = self.lines.get(self.share.into(), to_usize(tag).wrapping_add(step) & (len - 1))?;
            let mut is_last = false;
            for slot in 0..SLOTS {
                let found = line.tag(slot);
                if found == tag
                    && let Some(value) = self.value_in(line.word(slot), key)
                {
                    return Some(value);
                }
                is_last |= found == 0;
            }
            if is_last {
                return None;
            }
        }
        None
    }

    /// The position of `key`.
    fn place<K: IndexKey + ?Sized>(&self, tag: u64, key: &K) -> Option<Place> {
        let len = self.lines_len.load(Ordering::Relaxed);
        for step in 0..len {
            let number = to_usize(tag).wrapping_add(step) & (len - 1);
            let line = self.line(number);
            let of_key = |slot: &usize| line.tag(*slot) == tag && self.value_in(line.word(*slot), key).is_some();
            if let Some(slot) = (0..SLOTS).find(of_key) {
                return Some(Place { line: number, slot });
            }
            if (0..SLOTS).any(|slot| line.tag(slot) == 0) {
                return None;
            }
        }
        None
    }

    fn line(&self, number: usize) -> &Line {
        self.lines.get(self.share.into(), number).expect("a line below the table's length")
    }
}

impl Writing<'_> {
    /// The content here for `key`.
    pub(super) fn get<K: IndexKey + ?Sized>(&self, hash: u64, key: &K) -> Option<u64> {
        self.stripe.find_value(hash, key)
    }

    /// Sets the value of `key`.
    pub(super) fn put<K: IndexKey + ?Sized>(&mut self, hash: u64, key: &K, value: u64) {
        let stripe = self.stripe;
        if is_zero::<K>(hash) {
            let was = stripe.zero[0].load(Ordering::Relaxed);
            stripe.zero[1].store(value, Ordering::Release);
            stripe.zero[0].store(1, Ordering::Release);
            return self.add_count(1 - was);
        }
        let tag = tag_of::<K>(hash);
        if let Some(place) = stripe.place(tag, key) {
            let line = stripe.line(place.line);
            match &stripe.blocks {
                Some(blocks) => blocks.set_value(to_usize(line.word(place.slot)), value),
                None => line.set(place.slot, tag, value),
            }
            return;
        }
        let word = match &stripe.blocks {
            Some(blocks) => to_u64(key.with_bytes(|key| blocks.add(key, value))),
            None => value,
        };
        // Seven of eight slots at most, so that every search ends at a free one.
        if (to_usize(stripe.count()) + 1) * 8 > stripe.lines_len.load(Ordering::Relaxed) * SLOTS * 7 {
            self.grow();
        }
        self.insert(tag, word);
        self.add_count(1);
    }

    /// Removes `key`, if it is here.
    pub(super) fn remove<K: IndexKey + ?Sized>(&mut self, hash: u64, key: &K) {
        let stripe = self.stripe;
        if is_zero::<K>(hash) {
            let was = stripe.zero[0].swap(0, Ordering::Release);
            return stripe.count.store(stripe.count() - was, Ordering::Release);
        }
        let Some(place) = stripe.place(tag_of::<K>(hash), key) else { return };
        if let Some(blocks) = &stripe.blocks {
            blocks.free(to_usize(stripe.line(place.line).word(place.slot)));
        }
        stripe.line(place.line).set(place.slot, 0, 0);
        self.close_hole(place);
        stripe.count.store(stripe.count() - 1, Ordering::Release);
    }

    /// Ends a pair of changes of tree and hash.
    pub(super) fn finish(mut self) {
        self.count_change();
        self.is_done = true;
    }

    /// Ends a change of the hash alone, which now agrees with the tree.
    pub(super) fn finish_fill(mut self) {
        self.is_done = true;
    }

    /// Says whether a key that is not here is not in the tree. A stripe that lost entries cannot say so.
    pub(super) fn set_complete(mut self, is_complete: bool) {
        let version = self.stripe.version.load(Ordering::Relaxed);
        let is_complete = is_complete && version & LOSSY == 0;
        self.stripe.version.store(version & !COMPLETE | if is_complete { COMPLETE } else { 0 }, Ordering::Release);
        self.is_done = true;
    }

    fn count_change(&self) {
        // Only the lock holder counts. The count comes after the change of the tree: a fill that saw the count before
        // it may have missed that change.
        self.stripe.changes.store(self.stripe.changes() + 1, Ordering::Release);
    }

    fn add_count(&self, more: u64) {
        self.stripe.count.store(self.stripe.count() + more, Ordering::Release);
    }

    fn insert(&self, tag: u64, word: u64) {
        let stripe = self.stripe;
        let len = stripe.lines_len.load(Ordering::Relaxed);
        for step in 0..len {
            let line = stripe.line(to_usize(tag).wrapping_add(step) & (len - 1));
            if let Some(slot) = (0..SLOTS).find(|slot| line.tag(*slot) == 0) {
                return line.set(slot, tag, word);
            }
        }
        unreachable!("an eighth of the slots is free");
    }

    #[cold]
    fn grow(&self) {
        let stripe = self.stripe;
        let len = stripe.lines_len.load(Ordering::Relaxed);
        let mut all = Vec::with_capacity(to_usize(stripe.count()));
        for number in 0..len {
            let line = stripe.line(number);
            for slot in 0..SLOTS {
                if line.tag(slot) != 0 {
                    all.push((line.tag(slot), line.word(slot)));
                    line.set(slot, 0, 0);
                }
            }
        }
        stripe.lines_len.store(stripe.lines.grow(len), Ordering::Release);
        all.into_iter().for_each(|(tag, word)| self.insert(tag, word));
    }

    /// Moves keys back that are after a line which has room now, so that a search may end there.
    fn close_hole(&self, mut hole: Place) {
        let stripe = self.stripe;
        let mask = stripe.lines_len.load(Ordering::Relaxed) - 1;
        let had_room =
            |number: usize, but: usize| (0..SLOTS).any(|slot| slot != but && stripe.line(number).tag(slot) == 0);
        if had_room(hole.line, hole.slot) {
            return;
        }
        let mut number = hole.line;
        for _ in 0..mask {
            number = (number + 1) & mask;
            let line = stripe.line(number);
            // A key may be in the hole when the hole is on its way from home to here.
            let fits = |tag: u64| number.wrapping_sub(to_usize(tag)) & mask >= number.wrapping_sub(hole.line) & mask;
            let ends = had_room(number, SLOTS);
            if let Some(slot) = (0..SLOTS).find(|slot| line.tag(*slot) != 0 && fits(line.tag(*slot))) {
                stripe.line(hole.line).set(hole.slot, line.tag(slot), line.word(slot));
                line.set(slot, 0, 0);
                hole = Place { line: number, slot };
            }
            if ends {
                return;
            }
        }
    }

    /// Forgets every entry: from now on the tree answers for this stripe.
    fn distrust(&mut self) {
        let stripe = self.stripe;
        for number in 0..stripe.lines_len.load(Ordering::Relaxed) {
            (0..SLOTS).for_each(|slot| stripe.line(number).set(slot, 0, 0));
        }
        stripe.zero[0].store(0, Ordering::Release);
        stripe.count.store(0, Ordering::Release);
        if let Some(blocks) = &stripe.blocks {
            blocks.clear();
        }
        let version = stripe.version.load(Ordering::Relaxed);
        stripe.version.store(version & !COMPLETE | LOSSY, Ordering::Release);
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            // The tree failed between the two changes, or a panic came: the entries here may be wrong.
            self.distrust();
            self.count_change();
        }
        let version = self.stripe.version.load(Ordering::Relaxed);
        self.stripe.version.store((version & !BUSY) + VERSION_STEP, Ordering::Release);
    }
}

#[cfg(test)]
#[path = "stripe_tests.rs"]
mod tests;
