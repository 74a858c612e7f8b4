//! The table: buckets of up to 24 entries.
//!
//! | word | content |
//! | --- | --- |
//! | 0 | *latch* (bit 0) and version: how often the content has changed |
//! | 1 to 3 | tags: a byte of the hash per entry, 0 for an empty one |
//! | 4 to 6 | a byte of stamp and uses per entry, see [`policy`] |
//! | 7 | time of the last fill |
//! | 8 to 11 | disputes, see [`policy`]; four unused words |
//! | 16 on | entries: value, then the words of the key |
//!
//! For `u64` keys a bucket is 512 bytes. A miss reads one line, the first. A hit reads that line and the line of its
//! entry; a fill also reads the second. Content changes only under the latch, which is held for some stores and never
//! waits. Readers set stamps and uses without it; a lost one affects only which entry makes room.
//!
//! A thread that reads a bucket loads word 0, then the content, then word 0 again. If both are equal and without latch,
//! all of the content was there at one moment. Content is stored with release and loaded with acquire order, so a
//! reader that sees a new word sees the latch or a later value of word 0.

use std::marker::PhantomData;

use crossbeam_utils::CachePadded;
use lodestone_pmem::sync::atomic::{AtomicU64, Ordering};
use lodestone_pmem::sync::spin;
use lodestone_pmem::{count_shared_rmws, planted, prefetch_line};
use lodestone_width::{low_u8, to_usize};

use super::key;
use super::policy::{self, BYTE_WORDS, DISPUTE_WORDS, Victim, WAYS};
use crate::traits::IndexKey;

/// Words of a block: two lines.
const BLOCK_WORDS: usize = 16;
const STATE: usize = 0;
const TAGS: usize = 1;
const BYTES: usize = TAGS + BYTE_WORDS;
const LAST_FILL: usize = BYTES + BYTE_WORDS;
const DISPUTES: usize = LAST_FILL + 1;
const HEAD_WORDS: usize = 16;

const _: () = assert!(LAST_FILL < 8, "what a miss reads is one line");
const _: () = assert!(DISPUTES + DISPUTE_WORDS <= HEAD_WORDS && HEAD_WORDS <= BLOCK_WORDS);

/// The content is being changed.
const LATCH: u64 = 1;
/// One change.
const CHANGE: u64 = 2;

#[derive(Default)]
#[repr(align(128))]
struct Block([AtomicU64; BLOCK_WORDS]);

/// Buckets for keys of one number of words.
pub(super) struct Table<K: ?Sized> {
    blocks: Box<[Block]>,
    buckets: usize,
    key_words: usize,
    /// Entries of a bucket that are used.
    ways: usize,
    seed: u64,
    key: PhantomData<fn(&K)>,
}

/// State shared by the buckets of a cache: the clock, and which of the two experts fills follow (see [`policy`]).
/// Changed without an exchange: a tick or a voice that is lost is one of many.
#[derive(Default)]
pub(super) struct Common {
    clock: CachePadded<AtomicU64>,
    balance: CachePadded<AtomicU64>,
}

impl Common {
    #[inline]
    pub(super) fn now(&self) -> u64 {
        self.clock.load(Ordering::Relaxed)
    }

    fn tick(&self) {
        self.clock.store(self.now() + 1, Ordering::Relaxed);
    }

    fn balance(&self) -> i64 {
        self.balance.load(Ordering::Relaxed).cast_signed()
    }

    /// Whether the expert of uses is followed.
    pub(super) fn by_uses(&self) -> bool {
        self.balance() >= 0
    }

    fn hear(&self, voices: i64) {
        if voices != 0 {
            self.balance.store(policy::heard(self.balance(), voices).cast_unsigned(), Ordering::Relaxed);
        }
    }
}

/// One bucket.
#[derive(Clone, Copy)]
pub(super) struct Bucket<'t> {
    blocks: &'t [Block],
    key_words: usize,
    ways: usize,
    seed: u64,
    /// Its fills make the clock tick.
    is_ticker: bool,
}

/// A question to a bucket about a key.
#[derive(Clone, Copy)]
pub(super) struct Key<'k> {
    pub(super) words: &'k [u64],
    pub(super) hash: u64,
}

/// The answer of a bucket, or of two, about a key.
#[derive(Clone, Copy)]
pub(super) enum Probe<V> {
    /// This value, all the time between two looks at the bucket.
    Hit(u64),
    /// It was not cached when the bucket had this version, or the two had these.
    Miss(V),
    /// Something is under way: the bucket says nothing.
    Changing,
}

/// The result of a fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fill {
    /// Something had changed.
    Dropped,
    /// Into an empty entry.
    Fresh,
    /// In place of another key.
    Evicted,
}

impl<K: IndexKey + ?Sized> Table<K> {
    /// Empty buckets of `ways` entries for keys of `key_words` words.
    pub(super) fn new(buckets: usize, ways: usize, key_words: usize, seed: u64) -> Self {
        assert!((1..=WAYS).contains(&ways), "a bucket has 1 to {WAYS} entries, not {ways}");
        let blocks = (0..buckets * Self::blocks_of(key_words)).map(|_| Block::default()).collect();
        Self { blocks, buckets, key_words, ways, seed, key: PhantomData }
    }

    /// Blocks of a bucket.
    #[inline]
    fn blocks_of(key_words: usize) -> usize {
        let key_words = if K::IS_WORD { 1 } else { key_words };
        (HEAD_WORDS + WAYS * (1 + key_words)).div_ceil(BLOCK_WORDS)
    }

    /// Bytes that a bucket takes.
    pub(super) fn bucket_bytes(key_words: usize) -> usize {
        Self::blocks_of(key_words) * size_of::<Block>()
    }

    /// Bucket `number`, from 0; `is_ticker`: its fills make the clock tick.
    #[inline]
    pub(super) fn bucket(&self, number: usize, is_ticker: bool) -> Bucket<'_> {
        let blocks = Self::blocks_of(self.key_words);
        let key_words = if K::IS_WORD { 1 } else { self.key_words };
        let blocks = &self.blocks[number * blocks..(number + 1) * blocks];
        Bucket { blocks, key_words, ways: self.ways, seed: self.seed, is_ticker }
    }

    /// All buckets.
    pub(super) fn all(&self) -> impl Iterator<Item = Bucket<'_>> {
        (0..self.buckets).map(|number| self.bucket(number, false))
    }
}

/// The tag of a key with this hash. Never 0, an empty entry, nor 1, which an empty entry may be taken for (see
/// [`candidates`]): the key that was thrown out of it is still there.
#[inline]
fn tag_of(hash: u64) -> u8 {
    low_u8(hash).max(2)
}

/// The high bit of every byte that may be `tag`: of all that are, and after the first one of those that differ from it
/// in the lowest bit, perhaps.
#[inline]
fn candidates(tags: u64, tag: u8) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let differing = tags ^ (u64::from(tag) * ONES);
    differing.wrapping_sub(ONES) & !differing & (ONES << 7)
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

    /// Tells the processor that the bucket will be asked soon.
    #[inline]
    pub(super) fn prefetch(&self) {
        prefetch_line(self.state());
    }

    #[inline]
    fn entry(&self, way: usize) -> usize {
        HEAD_WORDS + way * (1 + self.key_words)
    }

    #[inline]
    fn has_key(&self, way: usize, words: &[u64]) -> bool {
        let first = self.entry(way) + 1;
        if let [word] = words {
            return self.word(first).load(Ordering::Acquire) == *word;
        }
        words.iter().enumerate().all(|(at, word)| self.word(first + at).load(Ordering::Acquire) == *word)
    }

    /// The entry of `key`.
    #[inline]
    fn find(&self, key: Key<'_>) -> Option<usize> {
        for number in 0..BYTE_WORDS {
            let mut left = candidates(self.word(TAGS + number).load(Ordering::Acquire), tag_of(key.hash));
            while left != 0 {
                let way = 8 * number + to_usize(left.trailing_zeros()) / 8;
                if self.has_key(way, key.words) {
                    return Some(way);
                }
                left &= left - 1;
            }
        }
        None
    }

    /// The cached value of `key`, at the time `now` of the clock.
    #[inline]
    pub(super) fn probe(&self, key: Key<'_>, now: u64) -> Probe<u64> {
        let state = self.state().load(Ordering::Acquire);
        if state & LATCH != 0 {
            return Probe::Changing;
        }
        let Some(way) = self.find(key) else { return Probe::Miss(state) };
        let value = self.word(self.entry(way)).load(Ordering::Acquire);
        let bytes = self.word(BYTES + way / 8);
        let known = bytes.load(Ordering::Relaxed);
        if self.state().load(Ordering::Acquire) != state && !planted::active("acs-hit-without-second-look") {
            return Probe::Changing;
        }
        if let Some(known) = policy::touched(known, way % 8, now) {
            // Not exchanged: only a use can be lost here, or come back.
            bytes.store(known, Ordering::Relaxed);
        }
        Probe::Hit(value)
    }

    /// The version, or [`LATCH`] in it. Sequentially consistent: see [`fill`](Self::fill).
    pub(super) fn version(&self) -> u64 {
        self.state().load(Ordering::SeqCst)
    }

    /// The entry that would make room for a new key, none if an entry is empty; at a glance, without the latch.
    #[inline]
    pub(super) fn glance(&self, now: u64, by_uses: bool) -> Option<Victim> {
        if self.empty().is_some() {
            return None;
        }
        // The next event at the chosen bucket.
        prefetch_line(self.word(DISPUTES));
        Some(policy::victim(&self.load(BYTES), self.ways, now, by_uses))
    }

    /// Caches `value` for `key`, which was not cached in `version`; dropped if the bucket has changed since, or if
    /// `is_current` does not hold under the latch: whether the value is what the index has, and whether the key is
    /// nowhere else. `room`: whose turn it is to throw out an entry, and which one, as [`glance`](Self::glance) has
    /// said since.
    pub(super) fn fill(
        &self,
        key: Key<'_>,
        value: u64,
        version: u64,
        common: &Common,
        room: (bool, Option<Victim>),
        is_current: impl Fn() -> bool,
    ) -> Fill {
        let state = self.state();
        if planted::active("acs-fill-looks-early") && !is_current() {
            return Fill::Dropped;
        }
        if version & LATCH != 0 {
            return Fill::Dropped;
        }
        count_shared_rmws(1);
        // Sequentially consistent, as a writer's entrance: either this fill sees the writer below, or the writer sees
        // the latch when it leaves; and of two fills of the key into two buckets one sees the other.
        if state.compare_exchange(version, version | LATCH, Ordering::SeqCst, Ordering::Relaxed).is_err() {
            return Fill::Dropped;
        }
        if !planted::active("acs-fill-without-version") && !planted::active("acs-fill-looks-early") && !is_current() {
            state.store(version, Ordering::Release);
            return Fill::Dropped;
        }
        let (way, outcome) = self.make_room(key.hash, common, room);
        let entry = self.entry(way);
        self.word(entry).store(value, Ordering::Release);
        for (at, word) in key.words.iter().enumerate() {
            self.word(entry + 1 + at).store(*word, Ordering::Release);
        }
        self.set_tag(way, tag_of(key.hash));
        state.store(version + CHANGE, Ordering::Release);
        outcome
    }

    fn load<const COUNT: usize>(&self, first: usize) -> [u64; COUNT] {
        std::array::from_fn(|at| self.word(first + at).load(Ordering::Relaxed))
    }

    fn store<const COUNT: usize>(&self, first: usize, words: [u64; COUNT]) {
        for (at, word) in words.into_iter().enumerate() {
            self.word(first + at).store(word, Ordering::Relaxed);
        }
    }

    /// An entry for a new key with this hash; the latch is held, and the entries are those of the glance.
    fn make_room(&self, hash: u64, common: &Common, (by_uses, victim): (bool, Option<Victim>)) -> (usize, Fill) {
        let mut bytes = self.load(BYTES);
        if self.is_ticker {
            common.tick();
        }
        let now = common.now();
        let last_fill = self.word(LAST_FILL).load(Ordering::Relaxed);
        let (mut disputes, mut voices) = policy::settled(self.load(DISPUTES), &bytes, last_fill, now);
        let returned = policy::returned(disputes, policy::ghost_of(hash));
        if let Some((rest, voice)) = returned {
            disputes = rest;
            voices += voice;
        }
        common.hear(voices);
        let (way, outcome) = match victim {
            Some(Victim { way, .. }) => {
                let kept = policy::victim(&bytes, self.ways, now, !by_uses).way;
                disputes = policy::voided(disputes, way);
                if kept != way {
                    disputes = policy::disputed(disputes, self.ghost_at(way), kept, by_uses);
                }
                if by_uses {
                    bytes = policy::worn(&bytes, self.ways, way);
                }
                (way, Fill::Evicted)
            }
            None => (self.empty().unwrap_or(0), Fill::Fresh),
        };
        self.store(BYTES, policy::filled(&bytes, way, now, returned.is_some()));
        self.store(DISPUTES, disputes);
        self.word(LAST_FILL).store(now, Ordering::Relaxed);
        (way, outcome)
    }

    /// An empty entry.
    fn empty(&self) -> Option<usize> {
        (0..BYTE_WORDS).find_map(|number| {
            let empty = candidates(self.word(TAGS + number).load(Ordering::Relaxed), 0);
            let way = 8 * number + to_usize(empty.trailing_zeros()) / 8;
            (empty != 0 && way < self.ways).then_some(way)
        })
    }

    /// The trace that is kept of the key in entry `way` when it goes.
    fn ghost_at(&self, way: usize) -> u16 {
        let mut key = [0; key::WORDS_MAX];
        let key = &mut key[..self.key_words];
        for (at, word) in key.iter_mut().enumerate() {
            *word = self.word(self.entry(way) + 1 + at).load(Ordering::Relaxed);
        }
        policy::ghost_of(key::hash(self.seed, key))
    }

    fn set_tag(&self, way: usize, tag: u8) {
        let (word, shift) = (self.word(TAGS + way / 8), 8 * (way % 8));
        let tags = word.load(Ordering::Relaxed) & !(0xFF << shift) | u64::from(tag) << shift;
        word.store(tags, Ordering::Release);
    }

    /// Waits until no thread has the latch.
    pub(super) fn wait_for_latch(&self) {
        let mut turn = 0;
        while self.version() & LATCH != 0 && !planted::active("acs-leave-without-waiting") {
            turn += 1;
            spin(turn);
        }
    }

    /// Whether `key` is cached here, at a glance.
    #[inline]
    pub(super) fn has(&self, key: Key<'_>) -> bool {
        self.find(key).is_some()
    }

    /// Sets `key`, if it is cached here, to the value that `value` returns under the latch; or throws it out, if that
    /// is none. Whether it was here.
    pub(super) fn change(&self, key: Key<'_>, value: impl Fn() -> Option<u64>) -> bool {
        let version = self.latch();
        let found = self.find(key);
        if let Some(way) = found {
            match value() {
                Some(value) => self.word(self.entry(way)).store(value, Ordering::Release),
                None => self.set_tag(way, 0),
            }
        }
        self.state().store(version + CHANGE, Ordering::Release);
        found.is_some()
    }

    /// Takes the latch; the version before.
    fn latch(&self) -> u64 {
        let mut turn = 0;
        loop {
            count_shared_rmws(1);
            let found = self.state().load(Ordering::Relaxed);
            let free = found & LATCH == 0;
            if free && self.state().compare_exchange(found, found | LATCH, Ordering::SeqCst, Ordering::Relaxed).is_ok()
            {
                return found;
            }
            turn += 1;
            spin(turn);
        }
    }

    /// The cached keys, with their values. No thread may be using the bucket.
    pub(super) fn contents(&self) -> Vec<(Vec<u64>, u64)> {
        let is_used = |way: &usize| self.word(TAGS + way / 8).load(Ordering::Acquire) >> (8 * (way % 8)) & 0xFF != 0;
        let key = |way: usize| (1..=self.key_words).map(move |at| self.entry(way) + at);
        let load = |at: usize| self.word(at).load(Ordering::Acquire);
        (0..WAYS).filter(is_used).map(|way| (key(way).map(load).collect(), load(self.entry(way)))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(bucket: &Bucket<'_>, number: u64, hash: u64, common: &Common) {
        let key = Key { words: &[number], hash };
        let room = (true, bucket.glance(common.now(), true));
        assert_ne!(bucket.fill(key, 100 + number, bucket.version(), common, room, || true), Fill::Dropped);
    }

    fn cached(bucket: &Bucket<'_>, number: u64, hash: u64) -> Option<u64> {
        match bucket.probe(Key { words: &[number], hash }, 0) {
            Probe::Hit(value) => Some(value),
            Probe::Miss(_) => None,
            Probe::Changing => panic!("nobody has the latch"),
        }
    }

    /// Its words are still in the entry, and beside it is a key with the same tag.
    #[test]
    fn a_key_that_was_thrown_out_is_not_found() {
        for hash in 0..=u64::from(u8::MAX) {
            let (table, common) = (Table::<u64>::new(1, WAYS, 1, 1), Common::default());
            let bucket = table.bucket(0, false);
            assert_eq!(cached(&bucket, 0, hash), None, "an entry that was never used");
            (1..=9).for_each(|number| fill(&bucket, number, hash, &common));
            assert_eq!(cached(&bucket, 0, hash), None, "an entry that was never used");
            assert!([2, 3].iter().all(|number| bucket.change(Key { words: &[*number], hash }, || None)));
            let found: Vec<_> = (1..=9).filter(|number| cached(&bucket, *number, hash).is_some()).collect();
            assert_eq!(found, [1, 4, 5, 6, 7, 8, 9], "hash {hash}");
        }
    }

    #[test]
    fn an_entry_that_is_used_when_it_is_about_to_go_goes_all_the_same() {
        let (table, common) = (Table::<u64>::new(1, 3, 1, 1), Common::default());
        let bucket = table.bucket(0, false);
        (1..=3).for_each(|number| fill(&bucket, number, number, &common));
        let room = bucket.glance(common.now(), true);
        let goes = 1 + room.expect("the bucket is full").way as u64;
        // A reader comes between the glance and the latch.
        assert_eq!(cached(&bucket, goes, goes), Some(100 + goes));
        let key = Key { words: &[4], hash: 4 };
        assert_eq!(bucket.fill(key, 104, bucket.version(), &common, (true, room), || true), Fill::Evicted);
        let left: Vec<_> = (1..=4).filter(|number| cached(&bucket, *number, *number).is_some()).collect();
        assert_eq!(left, (1..=4).filter(|number| *number != goes).collect::<Vec<_>>());
    }
}
