//! A guide in DRAM from keys to places: where a search starts, so that it need not come from the root.
//!
//! It holds hints, never answers. A caller that gets a place from it verifies there that the place covers the key. If
//! it does not, the caller searches from the root. So the guide may lack entries: after each open it is empty, and
//! searches fill it. No state on the medium depends on it.
//!
//! **The one promise**: a place that [`Guide::floor`] returns was in the guide at a moment of the call. The owner makes
//! this sufficient by three rules:
//! 1. Readers pin before they ask.
//! 2. A thread that takes a place out of the structure marks it dead there, *then* removes it here, *then* retires its
//!    block.
//! 3. A thread enters a place by [`Guide::insert_if`] with a test for that mark. The test runs under the same lock as
//!    the removal.
//!
//! So a place that a pinned reader gets is not allocated again before the reader leaves.
//!
//! **Keys** are numbers: the order words of the actual keys. Different keys may have one order word (strings with the
//! same first eight bytes). Then an [`Asker`] distinguishes their places by reading the key at each place, under the
//! same promise.
//!
//! It is a B+-tree of nodes of [`FANOUT`] pairs in an arena. Writers hold one lock. Readers take no lock: a node has a
//! version, odd while a writer changes it, and a read counts only if the version did not change. If a node's pairs have
//! moved on, a reader there gets a worse hint. If a node has been reused, a reader there notices its level, or finds a
//! place that is as true as any. Nodes are freed only with the guide; empty nodes are used again.

use std::sync::OnceLock;

use lodestone_pmem::sync::atomic::{AtomicU64, Ordering};
use lodestone_pmem::sync::{Mutex, lock, spin};
use lodestone_pmem::{advise_huge_pages, prefetch_value};
use lodestone_width::{to_u64, to_usize};

/// Pairs of a node, a power of two.
const FANOUT: usize = if cfg!(any(test, feature = "shuttle")) { 4 } else { 32 };
/// Nodes in the first chunk of the arena; each further chunk has twice as many.
const CHUNK_FIRST: usize = 8;
/// Chunks of the arena.
const CHUNKS: usize = 40;
/// Attempts at reading nodes that change under a reader before it continues without a hint.
const TRIES_MAX: usize = 16;

/// A node: `head` is the number of pairs and the level (0: the values are places, else numbers of nodes). Keys after
/// the last pair are the largest possible, so that a search looks at a fixed number of them.
///
/// A node that is not in the cache costs one wait: its nine lines are asked for together.
#[repr(align(64))]
struct Node {
    version: AtomicU64,
    head: AtomicU64,
    keys: Line<FANOUT>,
    values: [AtomicU64; FANOUT],
}

/// Words that start a line.
#[repr(align(64))]
struct Line<const WORDS: usize>([AtomicU64; WORDS]);

/// A pair of key and value.
type Pair = (u64, u64);

/// The searcher for a key, identified by its order word.
pub(crate) trait Asker {
    /// Whether the order word identifies the key, so that there are no ties to break.
    const IS_WORD: bool;

    /// Whether the key of `place`, which has the same order word, is above the key searched for.
    fn is_above(&self, place: u64) -> bool;
}

/// Asks for keys that are order words.
pub(crate) struct Words;

impl Asker for Words {
    const IS_WORD: bool = true;

    fn is_above(&self, _: u64) -> bool {
        false
    }
}

/// A reader's view of a node for a key.
struct Seen {
    /// The last pair whose key is not above; without one, the first pair of an inner node.
    pair: Option<Pair>,
    /// The pair before it.
    before: Option<Pair>,
}

/// State that only writers use.
#[derive(Default)]
struct Stock {
    nodes: usize,
    unused: Vec<u64>,
}

/// Numbers with places, in order.
pub(crate) struct Guide {
    chunks: [OnceLock<Box<[Node]>>; CHUNKS],
    /// Number of the root and its level << 48.
    root: AtomicU64,
    stock: Mutex<Stock>,
}

const LEVEL_SHIFT: u32 = 48;

impl Node {
    fn new() -> Self {
        let keys = Line(std::array::from_fn(|_| AtomicU64::new(u64::MAX)));
        let values = std::array::from_fn(|_| AtomicU64::new(0));
        Self { version: AtomicU64::new(0), head: AtomicU64::new(0), keys, values }
    }

    fn count(&self) -> usize {
        (to_usize(self.head.load(Ordering::Acquire)) & 0xFFFF).min(FANOUT)
    }

    fn level(&self) -> u64 {
        self.head.load(Ordering::Acquire) >> 16
    }

    #[inline]
    fn pair(&self, index: usize) -> Pair {
        (self.keys.0[index].load(Ordering::Acquire), self.values[index].load(Ordering::Acquire))
    }

    /// Number of the first `count` pairs whose keys are not above `key`.
    #[inline]
    fn rank(&self, key: u64, count: usize) -> usize {
        let is_left = |index: usize| self.keys.0[index & (FANOUT - 1)].load(Ordering::Acquire) <= key;
        // Halves without branches: the key's position is as good as random.
        let (mut rank, mut step) = (0, FANOUT / 2);
        while step > 0 {
            rank = std::hint::select_unpredictable(is_left(rank + step - 1), rank + step, rank);
            step /= 2;
        }
        (rank + usize::from(is_left(rank))).min(count)
    }

    /// Reads the node; `rank` says how many of its pairs are not above the reader's key. (`rank` gets the number of
    /// pairs, and can ask whether the words it read still count.) `None` when the node changes meanwhile or has another
    /// use.
    #[inline]
    fn look(&self, level: u64, rank: impl FnOnce(usize, &dyn Fn() -> bool) -> usize) -> Option<Seen> {
        let version = self.version.load(Ordering::Acquire);
        if version & 1 != 0 || self.level() != level {
            return None;
        }
        let count = self.count();
        let is_still = || self.version.load(Ordering::Acquire) == version;
        let rank = rank(count, &is_still);
        let index = if rank == 0 && level > 0 && count > 0 { Some(0) } else { rank.checked_sub(1) };
        let seen = Seen {
            pair: index.map(|index| self.pair(index)),
            before: index.and_then(|index| index.checked_sub(1)).map(|index| self.pair(index)),
        };
        // The words were loaded with acquire order, so this load stays after them.
        is_still().then_some(seen)
    }

    /// Lets `change` change the pairs and return the new number of them, while the odd version keeps readers away. The
    /// caller holds the lock of writers.
    fn write(&self, level: u64, change: impl FnOnce(usize) -> usize) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Relaxed);
        let before = self.count();
        let count = change(before);
        for index in count..before {
            self.keys.0[index].store(u64::MAX, Ordering::Release);
        }
        self.head.store(to_u64(count) | level << 16, Ordering::Release);
        self.version.store(version + 2, Ordering::Release);
    }

    /// Within [`write`](Self::write).
    fn set(&self, index: usize, pair: Pair) {
        // A reader that sees one of these with acquire order sees the odd version, too.
        self.keys.0[index].store(pair.0, Ordering::Release);
        self.values[index].store(pair.1, Ordering::Release);
    }

    fn insert(&self, level: u64, index: usize, pair: Pair) {
        self.write(level, |count| {
            (index..count).rev().for_each(|from| self.set(from + 1, self.pair(from)));
            self.set(index, pair);
            count + 1
        });
    }

    fn remove(&self, level: u64, index: usize) {
        self.write(level, |count| {
            (index + 1..count).for_each(|from| self.set(from - 1, self.pair(from)));
            count - 1
        });
    }
}

impl Guide {
    pub(crate) fn new() -> Self {
        let guide = Self {
            chunks: [const { OnceLock::new() }; CHUNKS],
            root: AtomicU64::new(0),
            stock: Mutex::new(Stock::default()),
        };
        guide.take_node(&mut lock(&guide.stock));
        guide
    }

    #[inline]
    fn node(&self, number: u64) -> &Node {
        let shifted = to_usize(number) + CHUNK_FIRST;
        let chunk = to_usize((shifted / CHUNK_FIRST).ilog2());
        let nodes = self.chunks[chunk].get().map_or(&[][..], |chunk| chunk);
        &nodes[shifted - (CHUNK_FIRST << chunk)]
    }

    /// Number of pairs of `node`, on `level`, that are not above the key with the order word `word`.
    #[inline]
    fn rank<A: Asker>(
        &self,
        (node, level): (&Node, u64),
        count: usize,
        word: u64,
        asker: &A,
        is_still: &dyn Fn() -> bool,
    ) -> usize {
        if A::IS_WORD {
            return node.rank(word, count);
        }
        let is_left = |index: usize| {
            let (key, value) = node.pair(index);
            match key.cmp(&word) {
                std::cmp::Ordering::Less => true,
                std::cmp::Ordering::Greater => false,
                std::cmp::Ordering::Equal => {
                    let place = self.first_below(value, level);
                    // A place read while the node changed may not be a place at all.
                    place.is_some_and(|place| is_still() && !asker.is_above(place))
                }
            }
        };
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = low.midpoint(high);
            if is_left(middle) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// As [`rank`](Self::rank), under the lock of writers.
    fn rank_locked<A: Asker>(&self, node: &Node, level: u64, word: u64, asker: &A) -> usize {
        self.rank((node, level), node.count(), word, asker, &|| true)
    }

    /// The first place below `value` of a node on `level`.
    fn first_below(&self, mut value: u64, level: u64) -> Option<u64> {
        for level in (0..level).rev() {
            value = self.node_if_any(value)?.look(level, |count, _| count.min(1))?.pair?.1;
        }
        Some(value)
    }

    /// As [`node`](Self::node), of a number that may be none.
    fn node_if_any(&self, number: u64) -> Option<&Node> {
        let shifted = usize::try_from(number).ok()?.checked_add(CHUNK_FIRST)?;
        let chunk = to_usize((shifted / CHUNK_FIRST).ilog2());
        self.chunks.get(chunk)?.get()?.get(shifted - (CHUNK_FIRST << chunk))
    }

    /// The pair with the largest key that is not above `key`, as far as the guide knows. For keys that are order words.
    #[inline]
    pub(crate) fn floor(&self, key: u64) -> Option<Pair> {
        self.floor_by(key, &Words)
    }

    /// As [`floor`](Self::floor), for the key of `asker`, whose order word is `word`.
    #[inline]
    pub(crate) fn floor_by<A: Asker>(&self, word: u64, asker: &A) -> Option<Pair> {
        (0..TRIES_MAX).find_map(|_| self.look_down(word, asker)).flatten()
    }

    /// As [`floor_by`](Self::floor_by), but it waits for the writers of the guide: a place that it does not name is not
    /// in the guide.
    #[inline]
    pub(crate) fn floor_surely<A: Asker>(&self, word: u64, asker: &A) -> Option<Pair> {
        for turn in 1.. {
            if let Some(found) = self.look_down(word, asker) {
                return found;
            }
            spin(turn);
        }
        None
    }

    /// The pair that [`floor_by`](Self::floor_by) is asked for; `None` when a node on the way changed meanwhile.
    #[inline]
    fn look_down<A: Asker>(&self, word: u64, asker: &A) -> Option<Option<Pair>> {
        let root = self.root.load(Ordering::Acquire);
        let (mut number, mut level) = (root & ((1 << LEVEL_SHIFT) - 1), root >> LEVEL_SHIFT);
        let mut left = None;
        loop {
            let at = (self.node(number), level);
            prefetch_value(at.0);
            let rank = |count, is_still: &dyn Fn() -> bool| self.rank(at, count, word, asker, is_still);
            let seen = at.0.look(level, rank)?;
            if level == 0 {
                return match (seen.pair, left) {
                    (None, Some((number, level))) => self.last_below(number, level).map(Some),
                    (found, _) => Some(found),
                };
            }
            level -= 1;
            if let Some(before) = seen.before {
                left = Some((before.1, level));
            }
            number = seen.pair?.1;
        }
    }

    /// Reads the value of the pair for `key` and the values of the following pairs whose keys are not above `until`. It
    /// reads as many as fit `places` and are at hand, and returns how many. None when the pair for `key` is not at
    /// hand; [`floor`](Self::floor) looks further. For keys that are order words.
    #[inline]
    pub(crate) fn run(&self, key: u64, until: u64, places: &mut [u64]) -> usize {
        (0..TRIES_MAX).find_map(|_| self.run_once(key, until, places)).unwrap_or(0)
    }

    /// As [`run`](Self::run); `None` when a node on the way changed meanwhile.
    #[inline]
    fn run_once(&self, key: u64, until: u64, places: &mut [u64]) -> Option<usize> {
        let root = self.root.load(Ordering::Acquire);
        let (mut number, mut level) = (root & ((1 << LEVEL_SHIFT) - 1), root >> LEVEL_SHIFT);
        while level > 0 {
            let node = self.node(number);
            prefetch_value(node);
            (number, level) = (node.look(level, |count, _| node.rank(key, count))?.pair?.1, level - 1);
        }
        let node = self.node(number);
        prefetch_value(node);
        let version = node.version.load(Ordering::Acquire);
        if version & 1 != 0 || node.level() != 0 {
            return None;
        }
        let count = node.count();
        let Some(from) = node.rank(key, count).checked_sub(1) else { return Some(0) };
        let values = &node.values[from..node.rank(until, count).max(from + 1)];
        places.iter_mut().zip(values).for_each(|(place, value)| *place = value.load(Ordering::Acquire));
        // The words were loaded with acquire order, so this load stays after them.
        (node.version.load(Ordering::Acquire) == version).then_some(places.len().min(values.len()))
    }

    /// The last pair below a node: for keys before the first pair of the node that is to their right.
    #[cold]
    fn last_below(&self, mut number: u64, mut level: u64) -> Option<Pair> {
        loop {
            let pair = self.node(number).look(level, |count, _| count)?.pair?;
            if level == 0 {
                return Some(pair);
            }
            (number, level) = (pair.1, level - 1);
        }
    }

    /// Enters a pair, or sets the key's value, if `holds` still says so. For keys that are order words.
    pub(crate) fn insert_if(&self, key: u64, value: u64, holds: impl FnOnce() -> bool) {
        let mut stock = lock(&self.stock);
        if holds() {
            self.insert_locked(&mut stock, key, value, true, &Words);
        }
    }

    /// Enters the place of the key of `asker`, which has none; its order word is `word`.
    pub(crate) fn insert_by<A: Asker>(&self, word: u64, place: u64, asker: &A) {
        self.insert_locked(&mut lock(&self.stock), word, place, false, asker);
    }

    /// Removes the pair of `key` if it has this value. For keys that are order words.
    pub(crate) fn remove(&self, key: u64, value: u64) {
        self.remove_by(key, value, &Words);
    }

    /// Removes the place of the key of `asker` if it is this one; its order word is `key`.
    pub(crate) fn remove_by<A: Asker>(&self, key: u64, value: u64, asker: &A) {
        let mut stock = lock(&self.stock);
        let mut path = self.path(key, asker);
        let Some((mut number, _)) = path.pop() else { return };
        let node = self.node(number);
        let Some(index) = self.rank_locked(node, 0, key, asker).checked_sub(1) else { return };
        if node.pair(index) != (key, value) {
            return;
        }
        node.remove(0, index);
        // Empty nodes leave, but for the root.
        let mut level = 0;
        while self.node(number).count() == 0
            && let Some((parent, index)) = path.pop()
        {
            level += 1;
            self.node(parent).remove(level, index);
            stock.unused.push(number);
            number = parent;
        }
        if level > 0 && self.node(number).count() == 0 {
            self.node(number).write(0, |_| 0);
            self.root.store(number, Ordering::Release);
        }
    }

    /// Bytes of DRAM that the guide takes.
    pub(crate) fn dram_bytes(&self) -> u64 {
        let chunks = self.chunks.iter().filter_map(OnceLock::get).map(|chunk| size_of_val(&**chunk)).sum::<usize>();
        to_u64(size_of::<Self>() + chunks)
    }

    /// The nodes from the root to the lowest one for `key`, each with the index of the pair that was followed.
    fn path<A: Asker>(&self, key: u64, asker: &A) -> Vec<(u64, usize)> {
        let root = self.root.load(Ordering::Acquire);
        let (mut number, mut level) = (root & ((1 << LEVEL_SHIFT) - 1), root >> LEVEL_SHIFT);
        let mut path = Vec::with_capacity(8);
        loop {
            let node = self.node(number);
            let index = self.rank_locked(node, level, key, asker).saturating_sub(1);
            path.push((number, index));
            if level == 0 {
                return path;
            }
            (number, level) = (node.pair(index).1, level - 1);
        }
    }

    /// `replaces`: a key is its order word, and one that is there gets another value.
    fn insert_locked<A: Asker>(&self, stock: &mut Stock, key: u64, value: u64, replaces: bool, asker: &A) {
        let mut path = self.path(key, asker);
        let (mut pair, mut level) = ((key, value), 0);
        while let Some((number, index)) = path.pop() {
            let node = self.node(number);
            // A new node comes after the one that was followed and split.
            let rank = if level > 0 { index + 1 } else { self.rank_locked(node, 0, key, asker) };
            let present = rank.checked_sub(1).map(|index| node.pair(index));
            if level == 0 && present == Some(pair) {
                return;
            }
            if level == 0 && replaces && present.is_some_and(|present| present.0 == key) {
                return node.write(0, |count| {
                    node.set(rank - 1, pair);
                    count
                });
            }
            if node.count() < FANOUT {
                return node.insert(level, rank, pair);
            }
            pair = self.split(stock, node, level, rank, pair);
            level += 1;
            // Keys below all others go into the first child: now it is told from another, so its key must be true.
            let first = node.pair(0).0;
            if let Some(&(parent, index)) = path.last()
                && self.node(parent).pair(index).0 > first
            {
                let parent = self.node(parent);
                parent.write(level, |count| {
                    parent.set(index, (first, number));
                    count
                });
            }
            if path.is_empty() {
                let root = self.take_node(stock);
                self.node(root).write(level, |_| {
                    self.node(root).set(0, (first, number));
                    self.node(root).set(1, pair);
                    2
                });
                self.root.store(root | level << LEVEL_SHIFT, Ordering::Release);
            }
        }
    }

    /// Splits a full node that `pair` goes into at `rank`; returns the pair for the parent.
    fn split(&self, stock: &mut Stock, node: &Node, level: u64, rank: usize, pair: Pair) -> Pair {
        // Keys that ascend fill their nodes.
        let kept = if rank == FANOUT { FANOUT } else { FANOUT / 2 };
        let number = self.take_node(stock);
        let right = self.node(number);
        right.write(level, |_| {
            (kept..FANOUT).for_each(|index| right.set(index - kept, node.pair(index)));
            FANOUT - kept
        });
        if rank >= kept {
            right.insert(level, rank - kept, pair);
        }
        let first = right.pair(0).0;
        node.write(level, |_| kept);
        if rank < kept {
            node.insert(level, rank, pair);
        }
        (first, number)
    }

    /// A node that is unused and empty.
    fn take_node(&self, stock: &mut Stock) -> u64 {
        let number = stock.unused.pop().unwrap_or_else(|| {
            stock.nodes += 1;
            to_u64(stock.nodes) - 1
        });
        let chunk = to_usize(((to_usize(number) + CHUNK_FIRST) / CHUNK_FIRST).ilog2());
        self.chunks[chunk].get_or_init(|| {
            let mut nodes = Vec::with_capacity(CHUNK_FIRST << chunk);
            advise_huge_pages(nodes.spare_capacity_mut());
            nodes.extend((0..CHUNK_FIRST << chunk).map(|_| Node::new()));
            nodes.into_boxed_slice()
        });
        number
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::atomic::AtomicBool;

    use super::*;

    fn mixed(number: u64) -> u64 {
        number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40
    }

    #[test]
    fn agrees_with_a_map_while_it_grows_and_shrinks() {
        let (guide, mut model) = (Guide::new(), BTreeMap::new());
        for number in 0..40_000_u64 {
            let key = mixed(number) % 700;
            let growing = (number / 5000).is_multiple_of(2);
            if number % 3 == 0 || growing {
                guide.insert_if(key, number, || number % 7 != 0);
                if number % 7 != 0 {
                    model.insert(key, number);
                }
            } else {
                let value = model.get(&key).copied().unwrap_or(1);
                guide.remove(key, value + 1);
                guide.remove(key, value);
                model.remove(&key);
            }
            let asked = mixed(number + 77) % 720;
            let expected = model.range(..=asked).next_back().map(|(key, value)| (*key, *value));
            assert_eq!(guide.floor(asked), expected, "step {number}, key {asked}");
        }
        let keys: Vec<_> = model.into_iter().collect();
        keys.iter().for_each(|(key, value)| guide.remove(*key, *value));
        assert_eq!(guide.floor(u64::MAX), None);
        let before = guide.dram_bytes();
        keys.iter().for_each(|(key, value)| guide.insert_if(*key, *value, || true));
        assert_eq!(guide.dram_bytes(), before, "nodes are used again");
    }

    /// Keys of eight bits that share order words: the word is the key without its lower four bits, the place the key
    /// and a mark.
    struct Coarse(u64);

    const MARK: u64 = 1 << 40;

    impl Asker for Coarse {
        const IS_WORD: bool = false;

        fn is_above(&self, place: u64) -> bool {
            assert_eq!(place & !0xFF, MARK, "is no place");
            place ^ MARK > self.0
        }
    }

    #[test]
    fn keys_with_one_order_word_are_told_apart_by_their_places() {
        let (guide, mut model) = (Guide::new(), BTreeSet::new());
        for number in 0..20_000_u64 {
            // Phases in which nearly all keys have one of two words, and phases with many words.
            let key = mixed(number) % if (number / 2000).is_multiple_of(2) { 32 } else { 256 };
            if model.insert(key) {
                guide.insert_by(key >> 4, MARK | key, &Coarse(key));
            } else {
                model.remove(&key);
                guide.remove_by(key >> 4, MARK | key ^ 1, &Coarse(key));
                guide.remove_by(key >> 4, MARK | key, &Coarse(key));
            }
            let asked = mixed(number + 77) % 256;
            let expected = model.range(..=asked).next_back().map(|key| (key >> 4, MARK | key));
            assert_eq!(guide.floor_by(asked >> 4, &Coarse(asked)), expected, "step {number}, key {asked}");
        }
    }

    #[test]
    fn places_are_told_apart_while_others_come_and_go() {
        let (guide, stop) = (Guide::new(), AtomicBool::new(false));
        let key = |number: u64| (number >> 4, MARK | number);
        (0..256).step_by(2).for_each(|even| guide.insert_by(key(even).0, key(even).1, &Coarse(even)));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut number = 0;
                    while !stop.load(Ordering::Relaxed) {
                        number += 1;
                        let asked = mixed(number) % 256;
                        if let Some((word, place)) = guide.floor_by(asked >> 4, &Coarse(asked)) {
                            assert_eq!(((place ^ MARK) >> 4, place & !0xFF), (word, MARK), "the pair of another key");
                        }
                    }
                });
            }
            for round in 1..300_u64 {
                for odd in (1..256).step_by(2).filter(|odd| mixed(odd + round).is_multiple_of(3)) {
                    guide.insert_by(key(odd).0, key(odd).1, &Coarse(odd));
                }
                (1..256).step_by(2).for_each(|odd| guide.remove_by(key(odd).0, key(odd).1, &Coarse(odd)));
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert!((0..256).all(|asked| guide.floor_by(asked >> 4, &Coarse(asked)) == Some(key(asked & !1))));
    }

    #[test]
    fn readers_get_pairs_that_are_there() {
        let (guide, stop) = (Guide::new(), AtomicBool::new(false));
        // Even keys stay; odd ones come and go. A value is its key and a round.
        (0..200).for_each(|key| guide.insert_if(2 * key, (2 * key) << 32, || true));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut number = 0;
                    while !stop.load(Ordering::Relaxed) {
                        number += 1;
                        let asked = mixed(number) % 400;
                        if let Some((key, value)) = guide.floor(asked) {
                            assert_eq!(value >> 32, key, "the pair of another key");
                            assert!(key <= asked, "not below");
                        }
                    }
                });
            }
            for round in 1..300_u64 {
                for key in (1..400).step_by(2).filter(|key| mixed(key + round).is_multiple_of(3)) {
                    guide.insert_if(key, key << 32 | round, || true);
                }
                for key in (1..400).step_by(2) {
                    if let Some((found, value)) = guide.floor(key)
                        && found == key
                    {
                        guide.remove(key, value);
                    }
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert!((0..200).all(|key| guide.floor(2 * key + 1) == Some((2 * key, (2 * key) << 32))));
    }
}
