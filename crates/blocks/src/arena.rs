//! Memory for blocks, in shards.
//!
//! A shard has *regions* of memory from the allocator, and one list of what is free in them, under a lock. A thread
//! first asks the shard that it had memory from last, so threads seldom meet. When that has no room, the others are
//! asked, and only then the smallest one takes another region. A block goes back to the shard that it is from.
//!
//! Each [class](Arena::new) of sizes has shards of its own. Among blocks that come and go one by one there is no room
//! for a much longer one: each would take another region, whose rest the others would fill again. And much shorter ones
//! would leave rests where no other fits.
//!
//! Regions stay as long as their shard has a block: a cache that is full uses them again. When a cache shrinks, each
//! region has some blocks that are left, and holes between them. [`Arena::evacuate`] chooses shards that give no memory
//! from then on. Their owner drops the blocks that [have to move](Block::is_evacuating). With the last one, all regions
//! of a shard go back to the allocator.

#![expect(unsafe_code, reason = "memory of regions, and the list of what is free in them")]

use std::alloc::{Layout, alloc, dealloc};
use std::cell::Cell;
use std::fmt;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use lodestone_pmem::{advise_huge_pages, advise_small_pages};
use lodestone_width::to_u64;
use rlsf::Tlsf;

use crate::block::{Block, Memory};

/// Sizes up to 32 bytes times two to this power have lists.
const POWERS: usize = 24;
/// Lists for the sizes between two powers of two.
const STEPS: usize = 64;
/// Bytes before each block in a region.
const BEFORE_BYTES: usize = rlsf::GRANULARITY / 2;
/// Shards of each class, of which threads use different ones, and one can be evacuated. Each may have a region that is
/// not full.
const SHARDS: usize = 8;
/// Classes of sizes.
const CLASSES: usize = 3;
/// A class with less than this part of all free memory is not evacuated: a row goes with its key, which is in another
/// class.
const LITTLE_PART: u64 = 4;
/// A block of more than this part of a region comes from the allocator: it would leave most of one unused.
const PART_MAX: usize = 8;
/// Alignment of regions: that of a line, so that no other owner writes the first and the last one.
const REGION_ALIGN: usize = 64;
/// Alignment of regions that have as many bytes: that of a huge page. Blocks are looked at in any order, and an entry
/// of the translation cache covers a huge page.
const HUGE_ALIGN: usize = 2 << 20;

thread_local! {
    /// The shard of each class that the thread asks first, once it has asked an arena for memory.
    static FIRST: [Cell<Option<usize>>; CLASSES] = const { [const { Cell::new(None) }; CLASSES] };
}
/// The next number of a thread.
static THREADS: AtomicUsize = AtomicUsize::new(0);

/// Memory for the blocks of a cache: see the [crate](crate).
///
/// Threads may share it. It lives as long as one of its blocks, at least.
///
/// ```
/// use lodestone_blocks::Arena;
///
/// let arena = Arena::new(1 << 20, [256, 4096]);
/// let blocks: Vec<_> = (0..100).map(|_| arena.of_parts(2000, [&[0; 2000][..]])).collect();
/// assert!(arena.used() >= 100 * 2000 && arena.taken() >= arena.used());
/// drop(blocks);
/// // The next blocks use it again.
/// assert_eq!(arena.used(), 0);
/// assert!(arena.taken() > 0);
/// ```
#[derive(Clone)]
pub struct Arena(Arc<Shared>);

struct Shared {
    /// As many of each class.
    shards: Box<[Arc<Shard>]>,
    region_bytes: usize,
    /// See [`Arena::new`].
    bounds: [usize; CLASSES - 1],
}

/// A part of the memory, with a lock.
pub(crate) struct Shard {
    free: Mutex<Free>,
    /// Bytes of the regions. Changes under the lock.
    taken: AtomicUsize,
    /// Bytes of the blocks. Changes under the lock.
    used: AtomicUsize,
    /// Whether it gives no memory until its last block is gone. Changes under the lock.
    is_evacuating: AtomicBool,
}

struct Free {
    list: Tlsf<'static, u32, u64, POWERS, STEPS>,
    regions: Vec<Region>,
}

/// Memory from the allocator. It goes back to it when the shard ends.
struct Region {
    at: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the region owns its memory. The lock of the shard decides who may have a part of it.
unsafe impl Send for Region {}

impl Region {
    /// `None`: the allocator has no memory.
    fn new(bytes: usize) -> Option<Self> {
        let align = if bytes < HUGE_ALIGN { REGION_ALIGN } else { HUGE_ALIGN };
        let layout = Layout::from_size_align(bytes, align).ok().filter(|layout| layout.size() > 0)?;
        // SAFETY: the layout has bytes.
        let region = NonNull::new(unsafe { alloc(layout) }).map(|at| Self { at, layout })?;
        advise_huge_pages(region.memory());
        Some(region)
    }

    /// The memory, of which no block has a part yet or any more.
    fn memory(&self) -> &[MaybeUninit<u8>] {
        // SAFETY: the memory is there, and need not be initialized.
        unsafe { slice::from_raw_parts(self.at.as_ptr().cast(), self.layout.size()) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        advise_small_pages(self.memory());
        // SAFETY: the allocator gave it, with this layout. No block is in it: each owns the shard, which ends here or
        // has counted that the last one is gone. The list that has its memory as free ends before.
        unsafe { dealloc(self.at.as_ptr(), self.layout) };
    }
}

impl Arena {
    /// An empty arena, which takes memory in regions of `region_bytes`: from 16 KiB to 16 MiB; others are taken as the
    /// nearer end. Blocks are in one region only if their sizes have the same number of `bounds` up to them.
    ///
    /// Small regions take less at once, and leave more at their ends. A 128th of what the cache may hold is a good
    /// size. Good bounds are between the sizes that most blocks have.
    #[must_use]
    pub fn new(region_bytes: usize, bounds: [usize; 2]) -> Self {
        Self::with_shards(region_bytes, bounds, SHARDS)
    }

    /// With so many shards for each class.
    fn with_shards(region_bytes: usize, bounds: [usize; CLASSES - 1], shards: usize) -> Self {
        let shard = || {
            let free = Mutex::new(Free { list: Tlsf::new(), regions: Vec::new() });
            let (taken, used, is_evacuating) = Default::default();
            Arc::new(Shard { free, taken, used, is_evacuating })
        };
        let shards = std::iter::repeat_with(shard).take(CLASSES * shards).collect();
        Self(Arc::new(Shared { shards, region_bytes: region_bytes.clamp(16 << 10, 16 << 20), bounds }))
    }

    /// A copy of `bytes`.
    #[must_use]
    pub fn block(&self, bytes: &[u8]) -> Block {
        self.of_parts(bytes.len(), [bytes])
    }

    /// Copies of `parts` one after the other, which have `bytes` bytes. A block of more than an eighth of a region is
    /// in memory of the allocator, and not counted here; so is one for which there is no other region.
    ///
    /// # Panics
    /// If the parts have another number of bytes.
    #[must_use]
    pub fn of_parts<'p>(&self, bytes: usize, parts: impl IntoIterator<Item = &'p [u8]>) -> Block {
        Block::fill(bytes, parts, |layout| self.take(layout).unwrap_or_else(|| Memory::of_allocator(layout)))
    }

    /// Bytes of memory that it has taken, with what is free in it.
    #[must_use]
    pub fn taken(&self) -> u64 {
        to_u64(self.sum(|shard| &shard.taken))
    }

    /// Bytes of its blocks, with what is before each, and what rounding adds.
    #[must_use]
    pub fn used(&self) -> u64 {
        to_u64(self.sum(|shard| &shard.used))
    }

    fn sum(&self, of: impl Fn(&Shard) -> &AtomicUsize) -> usize {
        self.0.shards.iter().map(|shard| of(shard).load(Ordering::Relaxed)).sum()
    }

    fn take(&self, layout: Layout) -> Option<Memory> {
        let Shared { shards, region_bytes, bounds } = &*self.0;
        if Shard::taken(layout.size()) > region_bytes / PART_MAX {
            return None;
        }
        let class = bounds.iter().filter(|bound| layout.size() >= **bound).count();
        let of_class = shards.len() / CLASSES;
        let shards = &shards[class * of_class..][..of_class];
        let first = first_shard(class) % shards.len();
        let own = shards[first].allocate(shards[first].lock(), layout).map(|at| (first, at));
        let others = || (first + 1..shards.len()).chain(0..first);
        let of_another =
            || others().find_map(|other| Some((other, shards[other].allocate(shards[other].try_lock()?, layout)?)));
        // Then those are waited for that other threads are in: a region more would stay.
        let of_any = || others().find_map(|other| Some((other, shards[other].allocate(shards[other].lock(), layout)?)));
        let of_a_new_region = || {
            let open = shards.iter().enumerate().filter(|(_, shard)| !shard.is_evacuating());
            let (least, shard) = open.min_by_key(|(_, shard)| shard.taken.load(Ordering::Relaxed))?;
            let region = Region::new(*region_bytes)?;
            let mut free = shard.lock();
            shard.taken.fetch_add(region.layout.size(), Ordering::Relaxed);
            free.add(region);
            Some((least, shard.allocate(free, layout)?))
        };
        let (number, at) = own.or_else(of_another).or_else(of_any).or_else(of_a_new_region)?;
        if number != first {
            FIRST.with(|first| first[class].set(Some(number)));
        }
        Some(Memory { at, shard: Some(shards[number].clone()) })
    }

    /// Begins to evacuate shards that have `bytes` of free memory or more in all, but at most half of those of a class:
    /// first the ones of which the largest part is free, and none of a class with little free memory. They give no
    /// memory from now on, and their blocks say that they [have to move](Block::is_evacuating). When the last block of
    /// one is gone, its memory goes back to the allocator.
    ///
    /// Does nothing while a shard is evacuated, and if none has free memory. Blocks that stay keep the memory of their
    /// shard, which no other block can use before [`end_evacuation`](Self::end_evacuation).
    ///
    /// ```
    /// use lodestone_blocks::Arena;
    ///
    /// let arena = Arena::new(16 << 10, [256, 4096]);
    /// let blocks: Vec<_> = (0..200).map(|_| arena.block(&[0; 1000])).collect();
    /// let mut kept: Vec<_> = blocks.into_iter().step_by(4).collect();
    /// let taken = arena.taken();
    /// arena.evacuate(taken / 10);
    /// kept.retain(|block| !block.is_evacuating());
    /// assert!(arena.taken() < taken && !arena.is_evacuating());
    /// ```
    pub fn evacuate(&self, bytes: u64) {
        if self.is_evacuating() {
            return;
        }
        let of_class = self.0.shards.len() / CLASSES;
        let classes = self.0.shards.chunks(of_class).map(|class| {
            let sizes = |shard: &Shard| [&shard.taken, &shard.used].map(|size| to_u64(size.load(Ordering::Relaxed)));
            let shards = class.iter().map(|shard| (shard, sizes(shard)));
            shards.filter(|(_, [taken, used])| taken > used).collect::<Vec<_>>()
        });
        let free_of = |class: &[(_, [u64; 2])]| class.iter().map(|(_, [taken, used])| taken - used).sum::<u64>();
        let classes: Vec<_> = classes.collect();
        let all: u64 = classes.iter().map(|class| free_of(class)).sum();
        // Of two parts of shards that are used, the smaller one comes first.
        let order = |[taken, used]: &[u64; 2], [other_taken, other_used]: &[u64; 2]| {
            (u128::from(*used) * u128::from(*other_taken)).cmp(&(u128::from(*other_used) * u128::from(*taken)))
        };
        let chosen = classes.into_iter().filter(|class| free_of(class) >= all / LITTLE_PART).flat_map(|mut class| {
            class.sort_by(|(_, one), (_, other)| order(one, other));
            class.truncate(class.len().div_ceil(2));
            class
        });
        let mut chosen: Vec<_> = chosen.collect();
        chosen.sort_by(|(_, one), (_, other)| order(one, other));
        let mut left = bytes;
        for (shard, [taken, used]) in chosen {
            if left > 0 {
                left = left.saturating_sub(taken - used);
                let mut list = shard.lock();
                shard.is_evacuating.store(true, Ordering::Relaxed);
                shard.end_if_empty(&mut list);
            }
        }
    }

    /// Ends what [`evacuate`](Self::evacuate) began: shards with blocks that have not moved give memory again.
    ///
    /// ```
    /// use lodestone_blocks::Arena;
    ///
    /// let arena = Arena::new(16 << 10, [256, 4096]);
    /// let block = arena.block(&[0; 1000]);
    /// arena.evacuate(1);
    /// assert!(block.is_evacuating());
    /// arena.end_evacuation();
    /// assert!(!block.is_evacuating() && arena.taken() > 0);
    /// ```
    pub fn end_evacuation(&self) {
        for shard in &self.0.shards {
            let _free = shard.lock();
            shard.is_evacuating.store(false, Ordering::Relaxed);
        }
    }

    /// Whether blocks have to move.
    #[must_use]
    pub fn is_evacuating(&self) -> bool {
        self.0.shards.iter().any(|shard| shard.is_evacuating())
    }
}

/// The shard that this thread asks first, modulo their number: at the beginning the next one of the threads' order.
fn first_shard(class: usize) -> usize {
    FIRST.with(|first| {
        first[class].get().unwrap_or_else(|| {
            let number = THREADS.fetch_add(1, Ordering::Relaxed);
            first[class].set(Some(number));
            number
        })
    })
}

impl Shard {
    /// Bytes that a block of so many takes of a region. Sizes are those of the lists: so a block that is free is found
    /// for the next one of its size, and not only for smaller ones.
    pub(crate) fn taken(bytes: usize) -> usize {
        let bytes = bytes + BEFORE_BYTES;
        bytes.next_multiple_of(((1 << bytes.ilog2()) / STEPS).max(rlsf::GRANULARITY))
    }

    fn lock(&self) -> MutexGuard<'_, Free> {
        // A panic leaves the lists whole: what may panic runs before or after them.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, Free>> {
        match self.free.try_lock() {
            Ok(free) => Some(free),
            Err(TryLockError::Poisoned(free)) => Some(free.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Takes the memory of a block back.
    ///
    /// # Safety
    /// The block is from this shard, and `layout` is that of its memory. It has no owner, and this is called once.
    pub(crate) unsafe fn free(&self, at: NonNull<u8>, layout: Layout) {
        let mut free = self.lock();
        // SAFETY: the list has given it, for this alignment.
        unsafe { free.list.deallocate(at, layout.align()) };
        self.used.fetch_sub(Self::taken(layout.size()), Ordering::Relaxed);
        self.end_if_empty(&mut free);
    }

    /// Memory for a block. `None`: there is no room, or the shard is evacuated.
    fn allocate(&self, mut free: MutexGuard<'_, Free>, layout: Layout) -> Option<NonNull<u8>> {
        let at = if self.is_evacuating() { None } else { free.allocate(layout) }?;
        // Under the lock: a shard without blocks has none that is not counted yet.
        self.used.fetch_add(Self::taken(layout.size()), Ordering::Relaxed);
        Some(at)
    }

    /// Whether its blocks have to move.
    pub(crate) fn is_evacuating(&self) -> bool {
        self.is_evacuating.load(Ordering::Relaxed)
    }

    /// Gives the regions back if all blocks are gone that had to move.
    fn end_if_empty(&self, free: &mut Free) {
        if self.is_evacuating() && self.used.load(Ordering::Relaxed) == 0 {
            free.list = Tlsf::new();
            free.regions.clear();
            self.taken.store(0, Ordering::Relaxed);
            self.is_evacuating.store(false, Ordering::Relaxed);
        }
    }
}

impl Free {
    /// `None`: there is no room.
    fn allocate(&mut self, layout: Layout) -> Option<NonNull<u8>> {
        let bytes = Shard::taken(layout.size()) - BEFORE_BYTES;
        self.list.allocate(Layout::from_size_align(bytes, layout.align()).ok()?)
    }

    fn add(&mut self, region: Region) {
        let memory = NonNull::slice_from_raw_parts(region.at, region.layout.size());
        // SAFETY: the shard owns the memory, which stays as long as the list: both end with the shard, or the list ends
        // first.
        let _ = unsafe { self.list.insert_free_block_ptr(memory) };
        self.regions.push(region);
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena").field("taken", &self.taken()).field("used", &self.used()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::thread;

    use proptest::prelude::*;

    use super::*;

    /// All blocks in one class.
    const ONE_CLASS: [usize; 2] = [usize::MAX; 2];

    /// Numbers that look random.
    fn next(state: &mut u64) -> usize {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        usize::try_from(*state >> 1).expect("63 bits")
    }

    fn filled(arena: &Arena, seed: u64, bytes: usize) -> Block {
        arena.block(&content(seed, bytes))
    }

    fn content(seed: u64, bytes: usize) -> Vec<u8> {
        (0..bytes).map(|number| seed.wrapping_mul(31).wrapping_add(to_u64(number)).to_le_bytes()[0]).collect()
    }

    #[test]
    fn a_size_is_rounded_by_a_64th_at_most() {
        for bytes in 24..20_000 {
            let taken = Shard::taken(bytes);
            let above = taken - bytes - BEFORE_BYTES;
            assert!(
                taken.is_multiple_of(rlsf::GRANULARITY) && above < rlsf::GRANULARITY.max(taken.div_ceil(STEPS)),
                "{bytes}"
            );
        }
    }

    #[test]
    fn holes_are_a_few_hundredths_of_blocks_that_come_and_go_at_random() {
        // Sizes as those of leaves with one to four rows of 2,000 bytes, and of rows alone.
        let size = |state: &mut u64| match next(state) % 10 {
            0..7 => 2040 + next(state) % 64,
            rest => 60 + (rest - 5) * 2030,
        };
        for shards in [1, 4] {
            let (bound, arena) = (8 << 20, Arena::with_shards(128 << 10, ONE_CLASS, shards));
            let (mut state, mut blocks, mut used) = (88_172_645_463_325_252, Vec::new(), 0);
            for turn in 0..20_000 {
                FIRST.with(|first| first[0].set(Some(turn / 7)));
                let block = arena.of_parts(2, [&b"ab"[..]]);
                assert_eq!(&*block, b"ab");
                let bytes = size(&mut state);
                blocks.push(arena.block(&vec![0; bytes]));
                used += bytes;
                while used > bound {
                    let block = blocks.swap_remove(next(&mut state) % blocks.len());
                    used -= block.len();
                }
            }
            let (taken, used) = (arena.taken(), to_u64(used));
            assert!(taken * 100 < used * 115, "{taken} bytes for {used}, {shards} shards");
            drop(blocks);
            assert_eq!((arena.used(), arena.taken()), (0, taken));
        }
    }

    /// Memory that an arena takes for rows of 2,080 bytes with a key of about 60, of which one in a hundred is a leaf
    /// of about five rows, in per cent of their bytes. They come and go as in a cache that is full.
    fn taken_by_rows_and_leaves(bounds: [usize; 2]) -> u64 {
        let (bound, arena) = (8 << 20, Arena::with_shards(128 << 10, bounds, 2));
        let (mut state, mut rows, mut used) = (88_172_645_463_325_252, Vec::new(), 0);
        for _ in 0..60_000 {
            let is_leaf = next(&mut state).is_multiple_of(100);
            let bytes = if is_leaf { 8_000 + next(&mut state) % 6_000 } else { 2_080 };
            let row = [50 + next(&mut state) % 20, bytes].map(|bytes| arena.block(&vec![0; bytes]));
            used += row.iter().map(|block| block.len()).sum::<usize>();
            rows.push(row);
            while used > bound {
                let row = rows.swap_remove(next(&mut state) % rows.len());
                used -= row.iter().map(|block| block.len()).sum::<usize>();
            }
        }
        arena.taken() * 100 / to_u64(used)
    }

    #[test]
    fn blocks_of_other_sizes_are_apart() {
        let (apart, together) = (taken_by_rows_and_leaves([256, 4096]), taken_by_rows_and_leaves(ONE_CLASS));
        assert!(apart < 112 && together > apart + 10, "{apart} and {together} per cent");
    }

    #[test]
    fn a_cache_that_shrinks_gives_its_memory_back() {
        let arena = Arena::with_shards(64 << 10, ONE_CLASS, SHARDS);
        let mut blocks: Vec<_> = (0..4000).map(|seed| (seed, filled(&arena, seed, 2000))).collect();
        let full = arena.taken();
        // Every fourth one stays: no region is free.
        blocks.retain(|(seed, _)| seed % 4 == 0);
        assert_eq!(arena.taken(), full);
        let mut turns = 0;
        while arena.taken() - arena.used() > arena.used() / 4 {
            turns += 1;
            assert!(turns <= SHARDS, "{arena:?}");
            arena.evacuate(1);
            for (seed, block) in &mut blocks {
                if block.is_evacuating() {
                    *block = filled(&arena, *seed, 2000);
                    assert!(!block.is_evacuating());
                }
            }
            assert!(!arena.is_evacuating(), "all of them moved");
            // They moved into holes.
            assert!(arena.taken() < full, "{arena:?}");
        }
        assert!(blocks.iter().all(|(seed, block)| **block == *content(*seed, 2000)));
        drop(blocks);
        (0..SHARDS).for_each(|_| arena.evacuate(1));
        assert_eq!((arena.used(), arena.taken()), (0, 0));
        // It can be used again.
        assert_eq!(*filled(&arena, 1, 2000), *content(1, 2000));
    }

    #[test]
    fn shards_that_are_nearly_empty_are_evacuated_first() {
        let arena = Arena::with_shards(64 << 10, [1000, 5000], 2);
        let sizes: Vec<_> = (0..600).map(|number| [100, 2000, 2000, 2000, 2000, 7000][number % 6]).collect();
        let mut blocks: Vec<_> = (0..).zip(&sizes).map(|(seed, bytes)| filled(&arena, seed, *bytes)).collect();
        // All but three of the long ones go, and half of the others.
        let mut number = 0;
        blocks.retain(|block| {
            number += 1;
            if block.len() == 7000 { number <= 18 } else { number % 2 != 0 }
        });
        let (taken, used) = (arena.taken(), arena.used());
        arena.evacuate(taken / 8);
        let moves = |block: &Block| block.is_evacuating().then_some(block.len());
        let moved: Vec<_> = blocks.iter().filter_map(moves).collect();
        assert!(moved.iter().all(|bytes| *bytes == 7000), "{moved:?}");
        blocks.retain(|block| !block.is_evacuating());
        assert!(taken - arena.taken() >= taken / 8 && used - arena.used() < 30_000, "{arena:?}");
        // Not more than half of a class: there is room for new ones.
        arena.evacuate(u64::MAX);
        for bytes in [100, 2000, 7000] {
            let before = arena.used();
            let block = filled(&arena, 1, bytes);
            assert!(arena.used() > before && !block.is_evacuating());
        }
    }

    #[test]
    fn a_block_that_stays_keeps_the_memory_of_its_shard() {
        let arena = Arena::with_shards(64 << 10, ONE_CLASS, 1);
        let (block, other) = (filled(&arena, 1, 2000), filled(&arena, 2, 2000));
        arena.evacuate(1);
        // The only shard gives none, and another one is not begun.
        let third = filled(&arena, 3, 2000);
        arena.evacuate(1);
        assert!(block.is_evacuating() && other.is_evacuating() && !third.is_evacuating());
        assert_eq!(arena.taken(), 64 << 10);
        drop(other);
        assert_eq!((*block == *content(1, 2000), arena.taken()), (true, 64 << 10));
        drop(block);
        assert_eq!((arena.taken(), arena.is_evacuating()), (0, false));
        assert!(arena.0.shards[0].lock().regions.is_empty());
        // A shard whose blocks stay for ever can be used again.
        let (block, other) = (filled(&arena, 1, 2000), filled(&arena, 2, 2000));
        arena.evacuate(1);
        drop(other);
        arena.end_evacuation();
        let used = arena.used();
        let third = filled(&arena, 3, 2000);
        assert!(arena.used() > used && !block.is_evacuating() && !third.is_evacuating());
        assert_eq!(arena.taken(), 64 << 10);
        drop((block, third));
        assert_eq!((arena.used(), arena.taken()), (0, 64 << 10));
    }

    #[test]
    fn a_block_that_is_too_large_is_from_the_allocator() {
        let arena = Arena::with_shards(1 << 16, ONE_CLASS, 1);
        let large = filled(&arena, 1, 60_000);
        assert_eq!((&large[..], arena.taken()), (&content(1, 60_000)[..], 0));
        let small = filled(&arena, 1, 6_000);
        assert_eq!((&small[..], arena.taken()), (&content(1, 6_000)[..], 64 << 10));
    }

    #[test]
    fn blocks_live_longer_than_the_arena() {
        let arena = Arena::new(1 << 16, [256, 4096]);
        let blocks: Vec<_> = (0..100).map(|seed| filled(&arena, seed, 3000)).collect();
        drop(arena);
        for (seed, block) in (0..).zip(blocks) {
            assert_eq!(*block, *content(seed, 3000));
        }
    }

    #[test]
    fn threads_share_an_arena_and_drop_blocks_of_each_other() {
        let arena = Arena::with_shards(1 << 16, ONE_CLASS, 3);
        let (to, from) = std::sync::mpsc::sync_channel::<(u64, Block)>(64);
        let from = Mutex::new(from);
        thread::scope(|scope| {
            for first in [0, 10_000, 20_000] {
                let (arena, to, from) = (&arena, to.clone(), &from);
                scope.spawn(move || {
                    for seed in first..first + 2000 {
                        if seed % 100 == 0 {
                            arena.evacuate(1);
                        }
                        let block = filled(arena, seed, 1 + usize::try_from(seed % 4000).expect("small"));
                        let kept = block.clone();
                        to.send((seed, block)).expect("the receiver is there");
                        let (other, block) = from.lock().expect("no panic").recv().expect("one for each");
                        assert_eq!(*block, *content(other, block.len()));
                        assert_eq!(*kept, *content(seed, kept.len()));
                    }
                });
            }
        });
        assert_eq!(arena.used(), 0);
        assert!(arena.taken() < 1 << 20, "{arena:?}");
    }

    proptest! {
        #[test]
        fn blocks_keep_their_bytes_whatever_others_do(
            steps in prop::collection::vec((0_usize..40, prop_oneof![0_usize..100, 0_usize..9000]), 1..300),
        ) {
            let (arena, mut blocks) = (Arena::with_shards(1 << 16, ONE_CLASS, 2), BTreeMap::new());
            for (seed, (place, bytes)) in (0..).zip(steps) {
                blocks.insert(place, (seed, filled(&arena, seed, bytes)));
                let used: usize = blocks.values().map(|(_, block)| block.taken()).sum();
                prop_assert!(arena.used() <= to_u64(used), "a large one is not counted");
            }
            for (seed, block) in blocks.values() {
                prop_assert_eq!(&**block, &content(*seed, block.len())[..]);
            }
            blocks.clear();
            prop_assert_eq!(arena.used(), 0);
        }
    }
}
