//! Failure-atomic actions: several words change together or not at all.
//!
//! 1. `alloc` reserves a block in DRAM, `free` claims one, `set` notes a word: nothing is stored on the medium yet. The
//!    caller writes the contents of new blocks and flushes them.
//! 2. `commit` makes all of it persistent at once (the protocol and its fences: see `commit`).
//! 3. Freed blocks become available again. It happens only now, so that no new owner writes a block whose free a crash
//!    undoes.
//!
//! Invariant: a block that an open action reserved or freed is taken and not live; the drop of an action undoes both.

use std::sync::atomic::Ordering;

#[cfg(doc)]
use lodestone_pmem::Memory;
use lodestone_pmem::PmAddr;
use lodestone_width::{exact_u32, to_u64, to_usize};

use crate::arena::Reserved;
use crate::commit::{for_entry, make_available, make_freed_available};
use crate::core::{Block, Core, lock};
use crate::error::{Error, Result};
use crate::heap::no_such_part;
use crate::record::{Entries, Entry, EntryKind};
use crate::table::State;

/// Several changes that become persistent together. An action that is dropped without [`commit`](Self::commit) changes
/// nothing.
///
/// ```
/// use lodestone_heap::{Heap, HeapOptions};
/// use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.pool");
/// let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// let pool = Pool::create(&path, &options)?;
/// let heap = Heap::open(&pool, &HeapOptions::default())?;
///
/// // A block and the root word that points to it: together or not at all.
/// let mut action = heap.action();
/// let at = action.alloc(108)?;
/// heap.memory().write_back(at, b"written before the commit, no fence needed");
/// action.set(heap.root_word(0), at.to_raw());
/// action.commit()?;
/// heap.memory().durable()?;
/// assert_eq!(heap.block_bytes(at), Some(128));
/// # Ok::<(), lodestone_heap::Error>(())
/// ```
#[derive(Debug)]
pub struct Action<'h> {
    pub(crate) core: &'h Core,
    pub(crate) entries: Entries,
    pub(crate) bad_word: Option<PmAddr>,
}

/// Blocks that a committed action freed and that are not yet available again.
///
/// Keep it as long as a thread may still be reading the blocks, then drop it. The free itself is persistent already:
/// after a crash the blocks are available at once.
///
/// ```
/// use lodestone_heap::{Heap, HeapOptions};
/// use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.pool");
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// let pool = Pool::create(&path, &options)?;
/// let heap = Heap::open(&pool, &HeapOptions::default())?;
/// let mut action = heap.action();
/// let at = action.alloc(64)?;
/// action.commit()?;
///
/// let mut action = heap.action();
/// action.free(at)?;
/// let (freed, outcome) = action.commit_keeping();
/// outcome?;
/// assert_eq!(heap.block_bytes(at), None, "it is free, but readers may still be there");
/// drop(freed); // now it can be allocated again
/// # Ok::<(), lodestone_heap::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "dropping it makes the freed blocks available at once"]
pub struct Freed<'h> {
    core: &'h Core,
    entries: Entries,
}

/// As [`Freed`], without a borrow of the heap, for structures that own one. Pass it to
/// [`Heap::give_out_again`](crate::Heap::give_out_again). If it is dropped instead, the blocks stay unused until the
/// heap is opened anew.
///
/// ```
/// # use lodestone_heap::{Heap, HeapOptions};
/// # use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
/// # let folder = tempfile::tempdir().unwrap();
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let pool = Pool::create(folder.path().join("a.pool"), &options)?;
/// # let heap = Heap::open(&pool, &HeapOptions::default())?;
/// let mut action = heap.action();
/// let at = action.alloc(64)?;
/// action.commit()?;
/// let mut action = heap.action();
/// action.free(at)?;
/// let (freed, outcome) = action.commit_keeping();
/// outcome?;
/// let kept = freed.expect("one block was freed").detach();
/// // Later, when no reader is left:
/// heap.give_out_again(kept);
/// # Ok::<(), lodestone_heap::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "the freed blocks are available again only after Heap::give_out_again"]
pub struct FreedBlocks {
    pub(crate) entries: Entries,
}

impl Freed<'_> {
    /// Whether a block of whole chunks is among them. Keeping such a block withholds much memory from others.
    #[must_use]
    pub fn is_large(&self) -> bool {
        self.entries.as_slice().iter().any(|entry| matches!(entry.kind(), Some(EntryKind::Release)))
    }

    /// Ends the borrow of the heap.
    pub fn detach(mut self) -> FreedBlocks {
        FreedBlocks { entries: std::mem::take(&mut self.entries) }
    }
}

impl<'h> Action<'h> {
    pub(crate) fn new(core: &'h Core) -> Self {
        Self { core, entries: Entries::default(), bad_word: None }
    }

    /// Reserves a block of at least `bytes` bytes. It is in the part that the heap's [`Placement`](crate::Placement)
    /// names, by default the nearest to the calling thread's node, or in another part when that is full. Blocks of 64
    /// bytes or more start a line, smaller ones are aligned to 16. The block holds old bytes: write its content with
    /// [`Memory::write_back`] before the commit. No fence is needed.
    ///
    /// # Errors
    /// [`Error::NoSpace`] when all parts are full (it names the first that was tried), [`Error::TooLarge`] when no
    /// block can have that size.
    #[inline]
    pub fn alloc(&mut self, bytes: u64) -> Result<PmAddr> {
        if self.core.bases.len() == 1 {
            return self.alloc_in(0, bytes);
        }
        let core = self.core;
        self.alloc_in_order(core.placer.order(bytes), bytes)
    }

    /// Reserves a block in the first of `parts` that has room.
    fn alloc_in_order(&mut self, parts: &[u16], bytes: u64) -> Result<PmAddr> {
        let Some((&first, others)) = parts.split_first() else { return self.alloc_in(0, bytes) };
        let full = match self.alloc_in(first, bytes) {
            Err(full @ Error::NoSpace { .. }) => full,
            other => return other,
        };
        for &part in others {
            match self.alloc_in(part, bytes) {
                Err(Error::NoSpace { .. }) => {}
                Ok(at) => {
                    self.core.placer.count_fallback(bytes);
                    return Ok(at);
                }
                Err(other) => return Err(other),
            }
        }
        Err(full)
    }

    /// As [`alloc`](Self::alloc), in the given part of the pool.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc), and [`Error::Invalid`] when there is no such part.
    pub fn alloc_in(&mut self, part: u16, bytes: u64) -> Result<PmAddr> {
        self.core.writable()?;
        if usize::from(part) >= self.core.bases.len() {
            return Err(no_such_part(part));
        }
        match self.core.classes.index_for(bytes) {
            Some(class_index) => {
                let Reserved { at, word_at, mask } = self.core.reserve_small(part, class_index)?;
                self.entries.push_bits(EntryKind::BitsSet, word_at, mask);
                Ok(at)
            }
            None => self.alloc_extent(part, bytes),
        }
    }

    fn alloc_extent(&mut self, part: u16, bytes: u64) -> Result<PmAddr> {
        let core = self.core;
        let limit_bytes = core.geometry.extent_bytes_max();
        if bytes > limit_bytes {
            return Err(Error::TooLarge { wanted_bytes: bytes, limit_bytes });
        }
        let chunks = exact_u32(bytes.div_ceil(core.geometry.chunk_bytes()));
        let take = || lock(&core.chunks).take_run(core, part, chunks);
        let id = loop {
            // Before the look for room: growth of another thread in between counts.
            let seen_end = core.pool.heap_area(part).1;
            let found = take().or_else(|| if core.reclaim_empty(part) { take() } else { None });
            match found {
                Some(id) => break id,
                None => core.grow_or_refuse(part, bytes, bytes + core.geometry.chunk_bytes(), seen_end)?,
            }
        };
        let at = core.chunk_addr(id);
        if let Some((_, chunk, _)) = core.locate(at) {
            chunk.set_state(State::Busy(chunks));
        }
        self.entries.push(Entry::new(EntryKind::Extent, core.chunk_word(id), u64::from(chunks)));
        Ok(at)
    }

    /// As [`alloc`](Self::alloc), and fills the whole block with zeroes (flushed, persistent with the commit).
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc).
    pub fn alloc_zeroed(&mut self, bytes: u64) -> Result<PmAddr> {
        const ZEROES: [u8; 4096] = [0; 4096];
        let at = self.alloc(bytes)?;
        let mut done = 0;
        while done < bytes {
            let step = (bytes - done).next_multiple_of(8).min(4096);
            self.core.memory.write_back(at.plus(done), &ZEROES[..to_usize(step)]);
            done += step;
        }
        Ok(at)
    }

    /// Returns a block of at least `bytes` bytes with the contents of the block at `at`, as far as they fit. It is the
    /// same block when its size is right or not much too large. Else it is a new one, and `at` is freed. The contents
    /// of a new block are flushed. Set every pointer to the block in this same action.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc) and [`free`](Self::free); [`Error::NotAllocated`] also when this action frees `at`.
    pub fn realloc(&mut self, at: PmAddr, bytes: u64) -> Result<PmAddr> {
        let old_bytes = self.bytes_of_taken(at)?;
        if bytes <= old_bytes && bytes >= old_bytes / 2 {
            return Ok(at);
        }
        let core = self.core;
        // The new block goes to the same part first: the old one was placed there on purpose.
        let new = self.alloc_in_order(core.placer.from(at.part()), bytes)?;
        let mut buffer = [0; 4096];
        let mut done = 0;
        let copied = bytes.min(old_bytes);
        while done < copied {
            let step = to_usize((copied - done).min(4096));
            self.core.memory.read(at.plus(done), &mut buffer[..step]);
            self.core.memory.write_back(new.plus(done), &buffer[..step]);
            done += to_u64(step);
        }
        // After the copy: a block that this action reserved is available to other threads at once.
        if let Err(error) = self.free(at) {
            self.cancel(new);
            return Err(error);
        }
        Ok(new)
    }

    /// Usable bytes of the block at `at`, which is allocated and not being freed, or reserved by this action.
    fn bytes_of_taken(&self, at: PmAddr) -> Result<u64> {
        let core = self.core;
        match core.block(at) {
            Block::Small { id, class_index, word, mask } => {
                let live = core.slab(id, class_index).bits[to_usize(word)].live.load(Ordering::Acquire);
                if live & mask == 0 && !self.entries.contains(EntryKind::BitsSet, core.bitmap_word(id, word), mask) {
                    return Err(Error::NotAllocated { at, finding: "it is free, or an open action frees it" });
                }
                Ok(u64::from(core.classes.get(class_index).block_bytes))
            }
            Block::Large { chunks, .. } => Ok(u64::from(chunks) << core.geometry.chunk_shift),
            Block::None(finding) => match core.locate(at) {
                Some((id, chunk, 0)) => match chunk.state() {
                    State::Busy(chunks)
                        if self.entries.contains(EntryKind::Extent, core.chunk_word(id), u64::from(chunks)) =>
                    {
                        Ok(u64::from(chunks) << core.geometry.chunk_shift)
                    }
                    _ => Err(Error::NotAllocated { at, finding }),
                },
                _ => Err(Error::NotAllocated { at, finding }),
            },
        }
    }

    /// Frees the block at `at` with the commit. Until then (and when the action is dropped) it stays allocated. A block
    /// that this action allocated is given back at once.
    ///
    /// # Errors
    /// [`Error::NotAllocated`] when `at` is not the start of an allocated block, or another action frees it.
    pub fn free(&mut self, at: PmAddr) -> Result<()> {
        self.core.writable()?;
        match self.core.block(at) {
            Block::Small { id, class_index, word, mask } => {
                let live = &self.core.slab(id, class_index).bits[to_usize(word)].live;
                if live.fetch_and(!mask, Ordering::AcqRel) & mask != 0 {
                    let word_at = self.core.bitmap_word(id, word);
                    self.entries.push_bits(EntryKind::BitsClear, word_at, mask);
                    return Ok(());
                }
            }
            Block::Large { id, chunk, chunks } => {
                if chunk.claim(State::Extent(chunks), State::Busy(chunks)) {
                    self.entries.push(Entry::new(EntryKind::Release, self.core.chunk_word(id), u64::from(chunks)));
                    return Ok(());
                }
            }
            Block::None(finding) if !self.cancel(at) => return Err(Error::NotAllocated { at, finding }),
            Block::None(_) => return Ok(()),
        }
        let finding = "it is free, or an open action frees it";
        if self.cancel(at) { Ok(()) } else { Err(Error::NotAllocated { at, finding }) }
    }

    /// Returns a block that this action reserved to the heap.
    fn cancel(&mut self, at: PmAddr) -> bool {
        let core = self.core;
        if let Block::Small { id, class_index, word, mask } = core.block(at) {
            let reserved = self.entries.remove(EntryKind::BitsSet, core.bitmap_word(id, word), mask);
            if reserved {
                core.release_small(id, class_index, word, mask);
            }
            return reserved;
        }
        let Some((id, chunk, 0)) = core.locate(at) else { return false };
        let State::Busy(chunks) = chunk.state() else { return false };
        let reserved = self.entries.remove(EntryKind::Extent, core.chunk_word(id), u64::from(chunks));
        if reserved {
            chunk.set_state(State::None);
            lock(&core.chunks).give(core, id, chunks);
        }
        reserved
    }

    /// Notes that the word at `at` becomes `word` with the commit. Of two values for one word the later counts. No
    /// other action that is open at the same time, and no plain store, may change the word.
    ///
    /// An `at` that is not an aligned word of the pool makes the commit fail.
    #[inline]
    pub fn set(&mut self, at: PmAddr, word: u64) {
        if !at.offset().is_multiple_of(8) || !self.core.memory.contains(at, 8) {
            self.bad_word = Some(at);
            return;
        }
        self.entries.push(Entry::new(EntryKind::Set, at, word));
    }

    /// Makes everything persistent before any later store of this thread. Call [`Memory::durable`] before you
    /// acknowledge it. Freed blocks are available again on return.
    ///
    /// # Errors
    /// [`Error::ActionTooLarge`], [`Error::BadWord`] and [`Error::ReadOnly`]: nothing changed. [`Error::Damaged`] when
    /// metadata that the action changes is damaged: the rest of the action is persistent, and the report of
    /// [`Heap::check`](crate::Heap::check) names the place.
    pub fn commit(mut self) -> Result<()> {
        let damage = self.persist()?;
        make_freed_available(self.core, self.entries.as_slice());
        self.entries.clear();
        outcome_of(self.core, damage)
    }

    /// As [`commit`](Self::commit), but the freed blocks stay unavailable until the first value is dropped. That value
    /// is `Some` if the action took effect, even when the result is [`Error::Damaged`]. `None`: nothing changed.
    #[must_use = "dropping the freed blocks makes them available at once, and the outcome may be an error"]
    pub fn commit_keeping(mut self) -> (Option<Freed<'h>>, Result<()>) {
        match self.persist() {
            Ok(damage) => {
                let freed = Freed { core: self.core, entries: std::mem::take(&mut self.entries) };
                (Some(freed), outcome_of(self.core, damage))
            }
            Err(error) => (None, Err(error)),
        }
    }
}

fn outcome_of(core: &Core, damage: Option<PmAddr>) -> Result<()> {
    match damage {
        None => Ok(()),
        Some(at) => Err(core.damaged(at, "a word of metadata that the action changed fails its checksum")),
    }
}

impl Drop for Freed<'_> {
    fn drop(&mut self) {
        make_freed_available(self.core, self.entries.as_slice());
    }
}

impl Drop for Action<'_> {
    fn drop(&mut self) {
        let core = self.core;
        for entry in self.entries.as_slice() {
            match entry.kind() {
                Some(EntryKind::BitsSet | EntryKind::Extent) => make_available(core, entry),
                Some(EntryKind::BitsClear) => {
                    let small = |id, class_index, word: u32| {
                        core.slab(id, class_index).bits[to_usize(word)].live.fetch_or(entry.value, Ordering::AcqRel);
                    };
                    for_entry(core, entry, small, |_, _, _| {});
                }
                Some(EntryKind::Release) => {
                    for_entry(core, entry, |_, _, _| {}, |_, chunk, chunks| chunk.set_state(State::Extent(chunks)));
                }
                Some(EntryKind::Set) | None => {}
            }
        }
    }
}
