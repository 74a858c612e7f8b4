//! A leaf as DRAM sees it: its address, the keys that it covers, its lock.
//!
//! Descriptors of leaves keep their place until the tree is dropped. The descriptor of a merged leaf is reused for a
//! later leaf. A reader that still holds it finds that its stamp is old, or that the leaf covers other keys. So readers
//! need not be counted.
//!
//! **The order that makes this true**: a stamp first, then the leaf's bounds and its address, then whether the stamp is
//! still true. Data read before the stamp may be about the descriptor's former leaf.
//!
//! A leaf's lower bound never changes while it is alive. Its upper bound changes when it splits or takes in its
//! neighbour, under its lock. Its neighbour lives as long as it says so, hence the neighbour's lower bound, which is
//! its upper one, can be read under its stamp.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::OnceLock;

use lodestone_pmem::sync::atomic::{AtomicU64, Ordering as Memory};
use lodestone_pmem::sync::{Mutex, lock};
use lodestone_pmem::{PmAddr, planted};
use lodestone_width::{low_u32, to_u64, to_usize};

use crate::cells::{Arena, Stamp, TableAt, Turn, VersionLock};
use crate::fptree::layout::{LINES_MAX, TreeLeafAt};
use crate::layout::KEY_BYTES_MAX;
use crate::traits::IndexKey;

/// Bytes of a word of a bound.
const WORD: usize = size_of::<u64>();
/// Number of no leaf.
const NONE: u32 = u32::MAX;

const LOW_BYTES_SHIFT: u32 = 32;
const LINES_SHIFT: u32 = 48;
const _: () = assert!(KEY_BYTES_MAX < 1 << (LINES_SHIFT - LOW_BYTES_SHIFT) && LINES_MAX < 1 << (64 - LINES_SHIFT));

/// A key, as bytes in order, with their first eight as a number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sought<'k> {
    pub(crate) word: u64,
    pub(crate) bytes: &'k [u8],
}

impl<'k> Sought<'k> {
    #[inline]
    pub(crate) fn new(bytes: &'k [u8]) -> Self {
        Self { word: word_at(bytes, 0), bytes }
    }
}

/// Eight bytes from `from` on as a number that orders as they do, filled up with zeroes.
#[inline]
fn word_at(bytes: &[u8], from: usize) -> u64 {
    let bytes = bytes.get(from..).unwrap_or_default();
    match bytes.first_chunk::<WORD>() {
        Some(first) => u64::from_be_bytes(*first),
        None => {
            let mut first = [0; WORD];
            first[..bytes.len()].copy_from_slice(bytes);
            u64::from_be_bytes(first)
        }
    }
}

/// A leaf. One line.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct TreeLeaf {
    pub(crate) lock: VersionLock,
    at: AtomicU64,
    /// Number of the next leaf, bytes of the lower bound << 32, lines << 48.
    shape: AtomicU64,
    /// The first eight bytes of the lower bound.
    low: AtomicU64,
    /// The first eight bytes of the upper one; means nothing in the last leaf.
    upper: AtomicU64,
    /// The further bytes of the lower bound, for as long bounds as it ever had room for.
    rest: OnceLock<Box<[AtomicU64]>>,
}

const _: () = assert!(cfg!(feature = "shuttle") || size_of::<TreeLeaf>() == 64, "a descriptor is one line");

impl TreeLeaf {
    /// Its address; as everything here, it is valid only under a stamp or the lock.
    #[inline]
    pub(crate) fn at(&self) -> TreeLeafAt {
        TreeLeafAt(PmAddr::from_raw(self.at.load(Memory::Acquire)))
    }

    #[inline]
    fn shape(&self) -> u64 {
        self.shape.load(Memory::Acquire)
    }

    /// Its lines; of what was one leaf all the while.
    #[inline]
    pub(crate) fn table(&self) -> TableAt {
        let shape = self.shape();
        let low_bytes = to_usize(shape >> LOW_BYTES_SHIFT) & ((1 << (LINES_SHIFT - LOW_BYTES_SHIFT)) - 1);
        self.at().table(low_u32(shape >> LINES_SHIFT), low_bytes)
    }

    /// Its place, and its lines, unless `stamp` is not true any more: those of two lives together may lie outside
    /// the pool.
    #[inline]
    pub(crate) fn place(&self, stamp: Stamp) -> Option<(TreeLeafAt, TableAt)> {
        let place = (self.at(), self.table());
        self.lock.is_still(stamp).then_some(place)
    }

    fn low_bytes(&self) -> usize {
        to_usize(self.shape() >> LOW_BYTES_SHIFT) & ((1 << (LINES_SHIFT - LOW_BYTES_SHIFT)) - 1)
    }

    /// Number of the next leaf, if there is one.
    #[inline]
    pub(crate) fn next(&self) -> Option<u32> {
        Some(low_u32(self.shape())).filter(|&next| next != NONE)
    }

    /// The first eight bytes of its lower bound.
    pub(crate) fn low_word(&self) -> u64 {
        self.low.load(Memory::Acquire)
    }

    /// Its lower bound beside `key`.
    #[inline]
    pub(crate) fn compare_low<K: IndexKey + ?Sized>(&self, key: Sought<'_>) -> Ordering {
        let order = self.low_word().cmp(&key.word);
        if K::IS_WORD || order.is_ne() { order } else { self.compare_rest(key) }
    }

    #[inline(never)]
    fn compare_rest(&self, key: Sought<'_>) -> Ordering {
        let low_bytes = self.low_bytes();
        let rest = self.rest.get().map_or(&[][..], |rest| rest);
        for (number, word) in rest.iter().enumerate().take(low_bytes.saturating_sub(WORD).div_ceil(WORD)) {
            let order = word.load(Memory::Acquire).cmp(&word_at(key.bytes, (number + 1) * WORD));
            if order.is_ne() {
                return order;
            }
        }
        low_bytes.cmp(&key.bytes.len())
    }

    /// The lower bound.
    pub(crate) fn low(&self) -> Vec<u8> {
        let rest = self.rest.get().map_or(&[][..], |rest| rest);
        let words = std::iter::once(&self.low).chain(rest);
        let mut low: Vec<u8> = words.flat_map(|word| word.load(Memory::Acquire).to_be_bytes()).collect();
        low.truncate(self.low_bytes());
        low
    }

    /// Whether it is the first leaf, which stays for ever.
    pub(crate) fn is_first(&self) -> bool {
        self.low_bytes() == 0
    }

    /// Lets the leaf end where `next` begins, or nowhere. Under the lock, with readers waiting, or before anyone knows
    /// the leaf.
    pub(crate) fn set_next(&self, next: Option<(u32, &TreeLeaf)>) {
        let number = next.map_or(NONE, |(number, _)| number);
        self.upper.store(next.map_or(0, |(_, next)| next.low_word()), Memory::Release);
        self.shape.store(self.shape() & !u64::from(NONE) | u64::from(number), Memory::Release);
    }
}

/// Unused descriptors, by the words that they have for further bytes of a bound.
#[derive(Debug, Default)]
struct Stock {
    count: u32,
    dead: BTreeMap<usize, Vec<u32>>,
}

/// All descriptors of a tree, by number. The first leaf has number 0.
#[derive(Debug)]
pub(crate) struct Leaves {
    arena: Arena<TreeLeaf>,
    stock: Mutex<Stock>,
}

impl Leaves {
    pub(crate) fn new() -> Self {
        Self { arena: Arena::new(), stock: Mutex::new(Stock::default()) }
    }

    /// The leaf with this number.
    #[inline]
    pub(crate) fn leaf(&self, number: u32) -> &TreeLeaf {
        self.arena.at(to_usize(number))
    }

    /// A descriptor for the leaf at `at`, which ends where the leaf `next` begins, or nowhere.
    pub(crate) fn add(&self, at: TreeLeafAt, lines: u32, low: &[u8], next: Option<u32>) -> u32 {
        let words = low.len().saturating_sub(WORD).div_ceil(WORD);
        let mut stock = lock(&self.stock);
        let number = match stock.dead.range_mut(words..).find_map(|(_, dead)| dead.pop()) {
            Some(number) => number,
            None => {
                stock.count += 1;
                stock.count - 1
            }
        };
        drop(stock);
        let leaf = self.arena.make(to_usize(number));
        if words > 0 {
            let room = || (0..words.next_power_of_two()).map(|_| AtomicU64::new(0)).collect();
            for (index, word) in leaf.rest.get_or_init(room).iter().enumerate() {
                word.store(word_at(low, (index + 1) * WORD), Memory::Release);
            }
        }
        leaf.at.store(at.0.to_raw(), Memory::Release);
        leaf.low.store(word_at(low, 0), Memory::Release);
        let shape = u64::from(NONE) | to_u64(low.len()) << LOW_BYTES_SHIFT | u64::from(lines) << LINES_SHIFT;
        leaf.shape.store(shape, Memory::Release);
        if planted::active("fptree-revived-endless") && leaf.lock.is_dead() {
            leaf.lock.revive();
            // Planted: it covers all keys after its lower bound until its end is set, and time to ask it.
            (0..8).for_each(|_| Turn::default().wait());
        }
        leaf.set_next(next.map(|next| (next, self.leaf(next))));
        // Last: a thread that has the number from its former use may ask at once which keys it covers now.
        if leaf.lock.is_dead() {
            leaf.lock.revive();
        }
        number
    }

    /// Takes back the descriptor of a dead leaf to which nothing leads any more.
    pub(crate) fn give(&self, number: u32) {
        let words = self.leaf(number).rest.get().map_or(0, |rest| rest.len());
        lock(&self.stock).dead.entry(words).or_default().push(number);
    }

    /// Whether `leaf` covers `key`.
    #[inline]
    pub(crate) fn covers<K: IndexKey + ?Sized>(&self, leaf: &TreeLeaf, key: Sought<'_>) -> bool {
        leaf.compare_low::<K>(key).is_le() && self.ends_behind::<K>(leaf, key)
    }

    /// Whether `leaf` covers the largest key below `key`, or is the first.
    pub(crate) fn covers_before<K: IndexKey + ?Sized>(&self, leaf: &TreeLeaf, key: Sought<'_>) -> bool {
        let begins = leaf.is_first() || leaf.compare_low::<K>(key).is_lt();
        begins && leaf.next().is_none_or(|next| self.leaf(next).compare_low::<K>(key).is_ge())
    }

    #[inline]
    fn ends_behind<K: IndexKey + ?Sized>(&self, leaf: &TreeLeaf, key: Sought<'_>) -> bool {
        let Some(next) = leaf.next() else { return true };
        let upper = leaf.upper.load(Memory::Acquire);
        upper > key.word || !K::IS_WORD && upper == key.word && self.leaf(next).compare_low::<K>(key).is_gt()
    }

    /// The upper bound of `leaf`.
    pub(crate) fn upper(&self, leaf: &TreeLeaf) -> Option<Vec<u8>> {
        leaf.next().map(|next| self.leaf(next).low())
    }

    /// Bytes of DRAM that the descriptors take.
    pub(crate) fn dram_bytes(&self) -> u64 {
        let count = lock(&self.stock).count;
        let rest = |number| self.leaf(number).rest.get().map_or(0, |rest| size_of_val(&**rest));
        (0..count).map(|number| to_u64(size_of::<TreeLeaf>() + rest(number))).sum()
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    fn bounds() -> Vec<Vec<u8>> {
        let mut bounds: Vec<Vec<u8>> = vec![b"".to_vec(), vec![0], vec![0; 8], vec![0; 9], vec![0; 17], vec![255; 30]];
        bounds.extend((0..40_u8).map(|number| [b"a-prefix-of-all-", &[number / 7, number % 7][..]].concat()));
        bounds.extend((0..20_usize).map(|bytes| b"abcdefghijklmnopqrstuvwxyz"[..bytes + 1].to_vec()));
        bounds.sort();
        bounds
    }

    #[test]
    fn bounds_order_as_their_bytes_do_also_in_descriptors_that_had_others() {
        let leaves = Leaves::new();
        let at = TreeLeafAt(PmAddr::new(0, 4096));
        for round in 0..3 {
            let numbers: Vec<u32> = bounds().iter().map(|low| leaves.add(at, 2, low, None)).collect();
            for (low, number) in bounds().iter().zip(&numbers) {
                assert_eq!(leaves.leaf(*number).low(), *low);
                for other in bounds() {
                    let order = leaves.leaf(*number).compare_low::<[u8]>(Sought::new(&other));
                    assert_eq!(order, low.cmp(&other), "{low:?} beside {other:?}, round {round}");
                }
            }
            assert_eq!(to_usize(lock(&leaves.stock).count), numbers.len(), "descriptors are used again");
            for number in numbers {
                leaves.leaf(number).lock.freeze();
                leaves.leaf(number).lock.kill();
                leaves.give(number);
            }
        }
    }

    /// The lines of a leaf with a long lower bound begin further after its place than those of the next leaf, which
    /// may be the pool's last block.
    #[test]
    fn a_stamp_of_a_former_life_gives_no_place() {
        let leaves = Leaves::new();
        let number = leaves.add(TreeLeafAt(PmAddr::new(0, 4096)), 2, &[7; 100], None);
        let leaf = leaves.leaf(number);
        let stamp = leaf.lock.stamp().expect("alive");
        assert_eq!(leaf.place(stamp), Some((leaf.at(), leaf.table())));
        assert!(leaf.lock.freeze());
        leaf.lock.kill();
        leaves.give(number);
        assert_eq!(leaves.add(TreeLeafAt(PmAddr::new(0, 8192)), 2, b"g", None), number);
        assert_eq!(leaf.place(stamp), None);
    }

    #[test]
    fn a_leaf_covers_what_lies_between_its_bounds() {
        let (leaves, bounds) = (Leaves::new(), bounds());
        let numbers: Vec<u32> = bounds.iter().map(|low| leaves.add(TreeLeafAt(PmAddr::NULL), 1, low, None)).collect();
        for pair in numbers.windows(2) {
            leaves.leaf(pair[0]).set_next(Some((pair[1], leaves.leaf(pair[1]))));
        }
        for key in bounds.iter().flat_map(|low| [low.clone(), [&low[..], &[0]].concat(), [&low[..], &[200]].concat()]) {
            let sought = Sought::new(&key);
            let covering = numbers.iter().filter(|number| leaves.covers::<[u8]>(leaves.leaf(**number), sought));
            let expected = bounds.iter().rposition(|low| *low <= key).map(|position| numbers[position]);
            assert_eq!(covering.copied().collect::<Vec<_>>(), Vec::from_iter(expected), "{key:?}");
            let before = numbers.iter().filter(|number| leaves.covers_before::<[u8]>(leaves.leaf(**number), sought));
            let expected = bounds.iter().rposition(|low| *low < key).unwrap_or(0);
            assert_eq!(before.copied().collect::<Vec<_>>(), [numbers[expected]], "before {key:?}");
        }
    }
}
