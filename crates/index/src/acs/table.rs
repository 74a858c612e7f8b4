//! The table: buckets of six entries, each bucket with its own state word.
//!
//! | word | content |
//! | --- | --- |
//! | 0 | state, see [`word`](super::word) |
//! | 1 | tags: a byte of the hash per entry, 0 for an empty one |
//! | 2, 3 | counts of hits and order; ghosts, see [`policy`] |
//! | 4 on | entries: value, then the words of the key |
//!
//! For `u64` keys a bucket is 128 bytes, so that a lookup costs one or two neighbouring lines. Content changes only under the latch;
//! counts of hits are raised by readers without it, and one that is lost decides nothing but who makes room.
//!
//! Whoever reads a bucket loads the state, then the content, then the state again: equal and even, and all of the content was there
//! at one moment. Content is stored with release and loaded with acquire order, so a reader that sees a new word sees the latch or what came behind it.

use std::marker::PhantomData;

use lodestone_pmem::count_shared_rmws;
use lodestone_pmem::planted;
use lodestone_pmem::sync::atomic::{AtomicU64, Ordering};
use lodestone_pmem::sync::spin;

use super::key;
use super::policy::{self, WAYS};
use super::word::{self, HELD, LATCH, VERSION, WRITER};
use crate::traits::IndexKey;

/// Words of a block: two lines, which processors fetch together.
const BLOCK_WORDS: usize = 16;
const HEAD_WORDS: usize = 4;
const STATE: usize = 0;
const TAGS: usize = 1;
const POLICY: usize = 2;
const GHOSTS: usize = 3;

const _: () = assert!(HEAD_WORDS + WAYS * 2 == BLOCK_WORDS, "a bucket of u64 keys is one block");

#[derive(Default)]
#[repr(align(128))]
struct Block([AtomicU64; BLOCK_WORDS]);

/// Buckets for keys of one number of words.
pub(super) struct Table<K: ?Sized> {
    blocks: Box<[Block]>,
    buckets: usize,
    key_words: usize,
    seed: u64,
    key: PhantomData<fn(&K)>,
}

/// One bucket.
#[derive(Clone, Copy)]
pub(super) struct Bucket<'t> {
    blocks: &'t [Block],
    key_words: usize,
    seed: u64,
}

/// What a bucket says about a key.
pub(super) enum Probe {
    /// Its value, right at a moment of the probe.
    Hit(u64),
    /// It was not cached when the state was this, and nothing was under way.
    Miss(u64),
    /// Something is under way: the bucket says nothing.
    Changing,
}

/// What became of a fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fill {
    /// The state had changed.
    Dropped,
    /// Into an empty entry.
    Fresh,
    /// In place of another key.
    Evicted,
}

/// What an operation of the index did to its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    /// Nothing.
    Same,
    /// It has this value.
    Value(u64),
    /// It is gone, or nobody knows.
    Unknown,
}

impl<K: IndexKey + ?Sized> Table<K> {
    /// Empty buckets for keys of `key_words` words.
    pub(super) fn new(buckets: usize, key_words: usize, seed: u64) -> Self {
        let blocks: Box<[Block]> = (0..buckets * Self::blocks_of(key_words)).map(|_| Block::default()).collect();
        let table = Self { blocks, buckets, key_words, seed, key: PhantomData };
        for bucket in table.all() {
            bucket.word(POLICY).store(policy::fresh(), Ordering::Relaxed);
        }
        table
    }

    /// Blocks of a bucket.
    #[inline]
    fn blocks_of(key_words: usize) -> usize {
        if K::IS_WORD { 1 } else { (HEAD_WORDS + WAYS * (1 + key_words)).div_ceil(BLOCK_WORDS) }
    }

    /// Bytes that a bucket takes.
    pub(super) fn bucket_bytes(key_words: usize) -> usize {
        Self::blocks_of(key_words) * size_of::<Block>()
    }

    /// Bucket `number`, from 0.
    #[inline]
    pub(super) fn bucket(&self, number: usize) -> Bucket<'_> {
        let blocks = Self::blocks_of(self.key_words);
        let key_words = if K::IS_WORD { 1 } else { self.key_words };
        let blocks = &self.blocks[number * blocks..(number + 1) * blocks];
        Bucket { blocks, key_words, seed: self.seed }
    }

    /// All buckets.
    pub(super) fn all(&self) -> impl Iterator<Item = Bucket<'_>> {
        (0..self.buckets).map(|number| self.bucket(number))
    }

    /// Keeps everybody out of the buckets: no hit and no fill from now on, no writer can enter, and those that were inside have left on
    /// return.
    pub(super) fn hold(&self) {
        for bucket in self.all() {
            bucket.state().fetch_or(HELD, Ordering::AcqRel);
        }
        for bucket in self.all() {
            let mut turn = 0;
            while word::has_writers(bucket.state().load(Ordering::Acquire)) {
                turn += 1;
                spin(turn);
            }
        }
    }

    /// Lets everybody in again. Fills that began before are dropped.
    pub(super) fn release(&self) {
        for bucket in self.all() {
            bucket.state().fetch_add(VERSION - HELD, Ordering::AcqRel);
        }
    }
}

#[inline]
fn tag_of(hash: u64) -> u8 {
    (hash as u8).max(1)
}

/// The high bit of every byte that may be `tag`: certainly of the first one that is.
#[inline]
fn candidates(tags: u64, tag: u8) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const USED: u64 = (1 << (8 * WAYS)) - 1;
    let differing = tags ^ (u64::from(tag) * ONES);
    differing.wrapping_sub(ONES) & !differing & (ONES << 7) & USED
}

impl Bucket<'_> {
    #[inline]
    fn word(&self, number: usize) -> &AtomicU64 {
        &self.blocks[number / BLOCK_WORDS].0[number % BLOCK_WORDS]
    }

    #[inline]
    fn state(&self) -> &AtomicU64 {
        self.word(STATE)
    }

    /// Whether the two are one.
    pub(super) fn is(&self, other: &Bucket<'_>) -> bool {
        std::ptr::eq(self.blocks, other.blocks)
    }

    #[inline]
    fn entry(&self, way: usize) -> usize {
        HEAD_WORDS + way * (1 + self.key_words)
    }

    #[inline]
    fn has_key(&self, way: usize, key: &[u64]) -> bool {
        let first = self.entry(way) + 1;
        key.iter().enumerate().all(|(at, word)| self.word(first + at).load(Ordering::Acquire) == *word)
    }

    /// The entry of `key`.
    #[inline]
    fn find(&self, key: &[u64], hash: u64) -> Option<usize> {
        let mut left = candidates(self.word(TAGS).load(Ordering::Acquire), tag_of(hash));
        while left != 0 {
            let way = left.trailing_zeros() as usize / 8;
            if self.has_key(way, key) {
                return Some(way);
            }
            left &= left - 1;
        }
        None
    }

    /// What is cached of `key`.
    #[inline]
    pub(super) fn probe(&self, key: &[u64], hash: u64) -> Probe {
        let state = self.state().load(Ordering::Acquire);
        if !word::is_even(state) && !planted::active("acs-hit-while-changing") {
            return Probe::Changing;
        }
        let Some(way) = self.find(key, hash) else { return Probe::Miss(state) };
        let value = self.word(self.entry(way)).load(Ordering::Acquire);
        let hits = self.word(POLICY).load(Ordering::Relaxed);
        if self.state().load(Ordering::Acquire) != state && !planted::active("acs-hit-while-changing") {
            return Probe::Changing;
        }
        if let Some(hits) = policy::touched(hits, way) {
            // Not exchanged: a count that is lost here, or comes back, is a count.
            self.word(POLICY).store(hits, Ordering::Relaxed);
        }
        Probe::Hit(value)
    }

    /// The state, for who is going to read the index.
    #[inline]
    pub(super) fn version(&self) -> u64 {
        self.state().load(Ordering::Acquire)
    }

    /// Caches `value` for `key`, which was not cached and had this value at some moment since the state was `version`; dropped if
    /// anything was or is under way since.
    pub(super) fn fill(&self, key: &[u64], hash: u64, value: u64, version: u64) -> Fill {
        let state = self.state();
        if planted::active("acs-fill-without-version") {
            // Planted: as published, a fill does not ask what happened since its value was read.
            word::latch(state);
            if self.find(key, hash).is_some() {
                state.fetch_sub(LATCH, Ordering::Release);
                return Fill::Dropped;
            }
        } else {
            count_shared_rmws(1);
            let latched = version | LATCH;
            if !word::is_even(version)
                || state.compare_exchange(version, latched, Ordering::AcqRel, Ordering::Relaxed).is_err()
            {
                return Fill::Dropped;
            }
        }
        count_shared_rmws(1);
        let (way, outcome) = self.make_room(hash);
        let entry = self.entry(way);
        self.word(entry).store(value, Ordering::Release);
        for (at, word) in key.iter().enumerate() {
            self.word(entry + 1 + at).store(*word, Ordering::Release);
        }
        self.set_tag(way, tag_of(hash));
        state.fetch_add(VERSION - LATCH, Ordering::Release);
        outcome
    }

    /// An entry for a new key with this hash; the latch is held.
    fn make_room(&self, hash: u64) -> (usize, Fill) {
        let (tags, word) = (self.word(TAGS).load(Ordering::Relaxed), self.word(POLICY).load(Ordering::Relaxed));
        let mut ghosts = self.word(GHOSTS).load(Ordering::Relaxed);
        let rest = policy::without_ghost(ghosts, policy::ghost_of(hash));
        let empty = candidates(tags, 0);
        let (way, word, outcome) = if empty != 0 {
            (empty.trailing_zeros() as usize / 8, word, Fill::Fresh)
        } else {
            let (way, word) = policy::victim(word);
            (way, word, Fill::Evicted)
        };
        ghosts = rest.unwrap_or(ghosts);
        if outcome == Fill::Evicted {
            ghosts = policy::remembered(ghosts, self.ghost_at(way));
        }
        self.word(GHOSTS).store(ghosts, Ordering::Relaxed);
        self.word(POLICY).store(policy::filled(word, way, rest.is_some()), Ordering::Relaxed);
        (way, outcome)
    }

    /// What is remembered of the key in entry `way` when it goes.
    fn ghost_at(&self, way: usize) -> u16 {
        let mut key = [0; key::WORDS_MAX];
        let key = &mut key[..self.key_words];
        for (at, word) in key.iter_mut().enumerate() {
            *word = self.word(self.entry(way) + 1 + at).load(Ordering::Relaxed);
        }
        policy::ghost_of(key::hash(self.seed, key))
    }

    fn set_tag(&self, way: usize, tag: u8) {
        let tags = self.word(TAGS).load(Ordering::Relaxed) & !(0xFF << (8 * way)) | u64::from(tag) << (8 * way);
        self.word(TAGS).store(tags, Ordering::Release);
    }

    /// Enters an operation that may change `key` in the index; `None` while the bucket is held.
    #[inline]
    pub(super) fn enter<'b>(self, key: &'b [u64], hash: u64) -> Option<Entered<'b>>
    where
        Self: 'b,
    {
        count_shared_rmws(1);
        // Before the index changes: who reads what the index holds from now on fills nothing.
        let found = self.state().fetch_add(WRITER, Ordering::AcqRel);
        if found & HELD != 0 {
            self.state().fetch_sub(WRITER, Ordering::Release);
            return None;
        }
        Some(Entered { bucket: self, key, hash, found, after: After::Unknown })
    }

    /// The keys that are cached, with their values; nobody may be using the bucket.
    pub(super) fn contents(&self) -> Vec<(Vec<u64>, u64)> {
        let tags = self.word(TAGS).load(Ordering::Acquire);
        let ways = (0..WAYS).filter(|way| (tags >> (8 * way)) as u8 != 0);
        let key = |way: usize| (1..=self.key_words).map(move |at| self.entry(way) + at);
        let load = |at: usize| self.word(at).load(Ordering::Acquire);
        ways.map(|way| (key(way).map(load).collect(), load(self.entry(way)))).collect()
    }
}

/// An operation that may change a key of the bucket is under way. When this is dropped, the cache follows the index, and the operation
/// has ended; after a panic the key is not cached.
pub(super) struct Entered<'b> {
    bucket: Bucket<'b>,
    key: &'b [u64],
    hash: u64,
    /// The state before.
    found: u64,
    after: After,
}

impl Entered<'_> {
    /// Ends the operation, which did this.
    pub(super) fn leave(mut self, after: After) {
        self.after = after;
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        count_shared_rmws(1);
        let state = self.bucket.state();
        if self.after == After::Same {
            state.fetch_sub(WRITER, Ordering::Release);
            return;
        }
        if self.found & LATCH != 0 {
            // A fill that began before this operation may put the key there.
            word::wait_for_latch(state);
        }
        // Since then keys only leave the bucket: fills ask for an even state.
        if self.bucket.find(self.key, self.hash).is_none() {
            state.fetch_add(VERSION - WRITER, Ordering::Release);
            return;
        }
        count_shared_rmws(1);
        let now = word::latch(state);
        if let Some(way) = self.bucket.find(self.key, self.hash) {
            match self.after {
                After::Value(value) if word::is_alone(self.found, now) || planted::active("acs-last-writer-wins") => {
                    self.bucket.word(self.bucket.entry(way)).store(value, Ordering::Release);
                }
                // Of several operations at once nobody knows which one the index took last.
                _ => self.bucket.set_tag(way, 0),
            }
        }
        state.fetch_add(VERSION - WRITER - LATCH, Ordering::Release);
    }
}
