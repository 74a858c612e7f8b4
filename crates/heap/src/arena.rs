//! Reservation of small blocks: which slabs a thread takes blocks from.
//!
//! 1. A thread locks its own arena, found by thread number, and takes the first free block of the newest listed slab of
//!    the class. Other threads lock it only to steal or return a slab. Nothing is stored on the medium.
//! 2. A slab without free blocks leaves the list. A thread that frees a block of an unlisted slab puts the slab back.
//! 3. Without a listed slab the arena takes a new chunk, else a slab of another arena. Else empty slabs of all classes
//!    go back to the chunk lists, and the search starts again.
//!
//! Invariants:
//! - only slabs of one arena are used by a thread, so threads rarely write the same bitmap line;
//! - a slab is in at most one list, that of its owner, and `listed` says so. `listed` and the taken bits change only
//!   under the owner's lock. They are atomics so that other threads can read them without it.

use std::sync::atomic::Ordering;

use lodestone_pmem::PmAddr;
use lodestone_width::{exact_u32, to_usize};

use crate::chunks::format_slab;
use crate::class::Class;
use crate::core::{Core, lock, thread_index};
use crate::error::{Error, Result};
use crate::layout::{BLOCKS_PER_WORD, ChunkId, ChunkWord};
use crate::table::{Slab, State};

/// Slabs with free blocks, by class.
#[derive(Debug)]
pub struct Arena {
    listed: Box<[Vec<u32>]>,
}

impl Arena {
    pub fn new(classes: usize) -> Self {
        Self { listed: (0..classes).map(|_| Vec::new()).collect() }
    }
}

/// A reserved block of a slab.
#[derive(Clone, Copy, Debug)]
pub struct Reserved {
    pub at: PmAddr,
    pub word_at: PmAddr,
    pub mask: u64,
}

/// Takes a free block of `slab`; the caller holds the owner's lock.
fn take_block(slab: &Slab, class: &Class) -> Option<(u32, u32)> {
    let hint = slab.hint.load(Ordering::Relaxed).min(class.words - 1);
    for word in (hint..class.words).chain(0..hint) {
        let bits = &slab.bits[to_usize(word)];
        let taken = bits.taken.load(Ordering::Relaxed);
        let free = !taken & class.mask(word);
        if free != 0 {
            let bit = free.trailing_zeros();
            bits.taken.store(taken | (1 << bit), Ordering::Relaxed);
            slab.hint.store(word, Ordering::Relaxed);
            return Some((word, bit));
        }
    }
    None
}

impl Core {
    fn arena_index(&self, part: u16) -> usize {
        to_usize(part) * self.arenas_per_part + thread_index() % self.arenas_per_part
    }

    pub fn slab(&self, id: ChunkId, class_index: usize) -> &Slab {
        let chunk = self.tables[to_usize(id.part)].chunk(id, &self.geometry).expect("slabs lie in formatted zones");
        chunk.slab(self.classes.get(class_index), self.words_max)
    }

    /// Reserves a block of class `class_index` in `part`.
    pub fn reserve_small(&self, part: u16, class_index: usize) -> Result<Reserved> {
        let arena = self.arena_index(part);
        loop {
            if let Some(found) = self.reserve_listed(arena, part, class_index) {
                return Ok(found);
            }
            // Before the look for room: growth of another thread in between counts.
            let seen_end = self.pool.heap_area(part).1;
            let found = self.new_slab(arena, part, class_index)
                || self.steal_slab(arena, part, class_index)
                || self.reclaim_empty(part);
            if !found {
                let wanted_bytes = u64::from(self.classes.get(class_index).block_bytes);
                self.grow_or_refuse(part, wanted_bytes, self.geometry.chunk_bytes(), seen_end)?;
            }
        }
    }

    /// Grows `part`, which ended at `seen_end` when it had no room, by at least `bytes`, if the pool may grow by
    /// itself.
    ///
    /// # Errors
    /// [`Error::NoSpace`] for `wanted_bytes` when it may not, or has reached its limit; the error of the growth when
    /// that failed.
    #[cold]
    pub fn grow_or_refuse(&self, part: u16, wanted_bytes: u64, bytes: u64, seen_end: PmAddr) -> Result<()> {
        match self.pool.grow_when_full(part, bytes, seen_end)? {
            true => Ok(()),
            false => Err(Error::NoSpace { path: self.path().to_owned(), part, wanted_bytes }),
        }
    }

    fn reserve_listed(&self, arena: usize, part: u16, class_index: usize) -> Option<Reserved> {
        let class = self.classes.get(class_index);
        let mut guard = lock(&self.arenas[arena]);
        let list = &mut guard.listed[class_index];
        while let Some(&index) = list.last() {
            let id = ChunkId { part, index };
            let slab = self.slab(id, class_index);
            if let Some((word, bit)) = take_block(slab, class) {
                let block = u64::from(word) * BLOCKS_PER_WORD + u64::from(bit);
                let inside = u64::from(class.blocks_offset) + block * u64::from(class.block_bytes);
                let at = self.chunk_addr(id).plus(inside);
                return Some(Reserved { at, word_at: self.bitmap_word(id, word), mask: 1 << bit });
            }
            slab.listed.store(false, Ordering::Relaxed);
            list.pop();
        }
        None
    }

    /// Makes a free chunk a slab of the arena.
    fn new_slab(&self, arena: usize, part: u16, class_index: usize) -> bool {
        let Some(id) = lock(&self.chunks).take_one(self, part) else { return false };
        let class = self.classes.get(class_index);
        format_slab(self, id, class.block_bytes, class.words);
        let slab = self.slab(id, class_index);
        for bits in &slab.bits {
            bits.taken.store(0, Ordering::Relaxed);
            bits.live.store(0, Ordering::Relaxed);
        }
        self.list_slab(id, class_index, arena);
        true
    }

    /// Puts a slab that is in no list into the list of `arena` and opens it for use.
    pub fn list_slab(&self, id: ChunkId, class_index: usize, arena: usize) {
        let slab = self.slab(id, class_index);
        let mut guard = lock(&self.arenas[arena]);
        slab.listed.store(true, Ordering::Relaxed);
        slab.owner.store(exact_u32(arena), Ordering::Release);
        if let Some((_, chunk, _)) = self.locate(self.chunk_addr(id)) {
            chunk.set_state(State::Slab(class_index));
        }
        guard.listed[class_index].push(id.index);
    }

    /// Takes a listed slab over from another arena of the part.
    fn steal_slab(&self, arena: usize, part: u16, class_index: usize) -> bool {
        let first = to_usize(part) * self.arenas_per_part;
        for victim in (first..first + self.arenas_per_part).filter(|&victim| victim != arena) {
            let mut guard = lock(&self.arenas[victim]);
            let Some(index) = guard.listed[class_index].pop() else { continue };
            let id = ChunkId { part, index };
            // It stays marked as listed, so no other thread lists it meanwhile.
            self.slab(id, class_index).owner.store(exact_u32(arena), Ordering::Relaxed);
            drop(guard);
            lock(&self.arenas[arena]).listed[class_index].push(index);
            return true;
        }
        false
    }

    /// Returns the chunks of empty slabs to the chunk lists. Returns whether there were any.
    pub fn reclaim_empty(&self, part: u16) -> bool {
        let first = to_usize(part) * self.arenas_per_part;
        let mut empty = Vec::new();
        for arena in first..first + self.arenas_per_part {
            let mut guard = lock(&self.arenas[arena]);
            for (class_index, list) in guard.listed.iter_mut().enumerate() {
                list.retain(|&index| {
                    let id = ChunkId { part, index };
                    let slab = self.slab(id, class_index);
                    let words = to_usize(self.classes.get(class_index).words);
                    let used = slab.bits[..words].iter().any(|bits| bits.taken.load(Ordering::Relaxed) != 0);
                    if !used {
                        empty.push(id);
                    }
                    used
                });
            }
        }
        for &id in &empty {
            if let Some((_, chunk, _)) = self.locate(self.chunk_addr(id)) {
                chunk.set_state(State::None);
            }
            let at = self.chunk_word(id);
            self.memory.store(at, ChunkWord::Free.encode(at));
            self.memory.flush(at, 8);
        }
        // The next owner of the chunk overwrites the bitmap: that may not overtake the end of the slab.
        self.memory.fence();
        let mut chunks = lock(&self.chunks);
        for &id in &empty {
            chunks.give(self, id, 1);
        }
        !empty.is_empty()
    }

    /// Makes blocks of a slab available again, once nothing on the medium or in an open action refers to them.
    #[inline]
    pub fn release_small(&self, id: ChunkId, class_index: usize, word: u32, mask: u64) {
        let slab = self.slab(id, class_index);
        loop {
            let owner = slab.owner.load(Ordering::Acquire);
            let mut guard = lock(&self.arenas[to_usize(owner)]);
            if slab.owner.load(Ordering::Relaxed) != owner {
                continue;
            }
            let taken = &slab.bits[to_usize(word)].taken;
            taken.store(taken.load(Ordering::Relaxed) & !mask, Ordering::Relaxed);
            if !slab.listed.load(Ordering::Relaxed) {
                slab.listed.store(true, Ordering::Relaxed);
                guard.listed[class_index].push(id.index);
            }
            return;
        }
    }
}
