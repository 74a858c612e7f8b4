//! The pages of files: where they are, and their checksums.
//!
//! Pages are written around the journal (`Memory::write_directly`): in the `block` domain they go to the file at once,
//! so a volume may be larger than memory. A page is written before anything refers to it. The checksums are in the
//! operation that makes the page count, and from the next batch of the image on in the table of its area.

use std::sync::{PoisonError, RwLock};

use lodestone_heap::Heap;
use lodestone_pmem::sync::{Mutex, lock};
use lodestone_pmem::{Memory, PmAddr, WORD_BYTES, checked, planted};
use lodestone_width::{low_u32, to_u64, to_usize};

use crate::error::{Error, Refusal, Result};
use crate::extents::Run;
use crate::layout::{self, Super};

/// The pages.
#[derive(Debug)]
pub(crate) struct Data {
    heap: Heap,
    memory: Memory,
    at: PmAddr,
    head: Super,
    areas: RwLock<Vec<Option<PmAddr>>>,
    /// One thread allocates at a time.
    growing: Mutex<()>,
}

impl Data {
    pub(crate) fn open(heap: &Heap, at: PmAddr, head: Super) -> Result<Self> {
        let memory = heap.memory().clone();
        let mut areas = Vec::new();
        for number in 0..head.areas() {
            let area = layout::area(&memory, at, &head, number)?;
            if let Some(area) = area.filter(|_| !memory.is_read_only()) {
                memory.clear_for_direct_writes(head.pages_of(area), head.area_pages * head.page_bytes)?;
            }
            areas.push(area);
        }
        Ok(Self { heap: heap.clone(), memory, at, head, areas: RwLock::new(areas), growing: Mutex::new(()) })
    }

    fn area(&self, number: usize) -> Option<PmAddr> {
        self.areas.read().unwrap_or_else(PoisonError::into_inner).get(number).copied().flatten()
    }

    /// The blocks of the areas that exist.
    pub(crate) fn blocks(&self) -> Vec<PmAddr> {
        self.areas.read().unwrap_or_else(PoisonError::into_inner).iter().copied().flatten().collect()
    }

    /// Sees to it that the area of `page` exists.
    fn grow(&self, number: usize) -> Result<PmAddr> {
        let _growing = lock(&self.growing);
        if let Some(area) = self.area(number) {
            return Ok(area);
        }
        let mut action = self.heap.action();
        let area = action.alloc(self.head.area_bytes()).map_err(|error| match error {
            lodestone_heap::Error::NoSpace { .. } => Error::Refused(Refusal::NoSpace),
            other => other.into(),
        })?;
        for word_at in self.head.area_words(self.at, to_u64(number)) {
            action.set(word_at, checked::encode_addr(word_at, area));
        }
        action.commit()?;
        // The block may have been another object's in this life, whose end is not durable yet.
        self.memory.leave_journal(self.memory.flushed_here())?;
        self.memory.clear_for_direct_writes(self.head.pages_of(area), self.head.area_pages * self.head.page_bytes)?;
        self.areas.write().unwrap_or_else(PoisonError::into_inner)[number] = Some(area);
        Ok(area)
    }

    /// The parts of `run` that are neighbours in memory: place, pages.
    fn pieces(&self, run: Run) -> impl Iterator<Item = (usize, u64, u64)> + '_ {
        let mut page = run.page;
        std::iter::from_fn(move || {
            let (area, within) = layout::split(&self.head, page);
            let count = (self.head.area_pages - within).min((run.page + run.count).saturating_sub(page));
            page += count;
            (count > 0).then_some((area, within, count))
        })
    }

    /// Bytes of the pages of `run`, which exist.
    pub(crate) fn bytes_of(&self, run: Run) -> usize {
        to_usize(run.count * self.head.page_bytes)
    }

    /// Writes the pages of `run`, not yet settled. Adds their checksums to `crcs`.
    pub(crate) fn write(&self, run: Run, bytes: &[u8], crcs: &mut Vec<u32>) -> Result<()> {
        debug_assert!(to_u64(bytes.len()) == run.count * self.head.page_bytes, "whole pages");
        let mut rest = bytes;
        for (area, within, count) in self.pieces(run) {
            let at = self.area(area).map_or_else(|| self.grow(area), Ok)?;
            let (piece, others) = rest.split_at(to_usize(count * self.head.page_bytes));
            self.memory.write_directly(self.head.pages_of(at).plus(within * self.head.page_bytes), piece)?;
            rest = others;
        }
        crcs.extend(bytes.chunks_exact(to_usize(self.head.page_bytes)).map(crc32c::crc32c));
        Ok(())
    }

    /// Reads the pages of `run`, whatever their checksums. `false` when they were never written.
    pub(crate) fn read(&self, run: Run, out: &mut [u8]) -> Result<bool> {
        let mut rest = out;
        for (area, within, count) in self.pieces(run) {
            let Some(at) = self.area(area) else { return Ok(false) };
            let (piece, others) = rest.split_at_mut(to_usize(count * self.head.page_bytes));
            self.memory.read_directly(self.head.pages_of(at).plus(within * self.head.page_bytes), piece)?;
            rest = others;
        }
        Ok(true)
    }

    /// Whether `page` has the checksum.
    pub(crate) fn verifies(&self, page: u64, crc: u32) -> Result<bool> {
        if page >= self.head.pages {
            return Ok(false);
        }
        let mut bytes = vec![0; to_usize(self.head.page_bytes)];
        Ok(self.read(Run { page, count: 1 }, &mut bytes)? && crc32c::crc32c(&bytes) == crc)
    }

    fn entry(&self, page: u64) -> Option<(PmAddr, u64)> {
        let (area, within) = layout::split(&self.head, page);
        let at = self.area(area)?.plus(within * 4);
        let word = PmAddr::new(at.part(), at.offset() & !(WORD_BYTES - 1));
        Some((word, (at.offset() % WORD_BYTES) * 8))
    }

    /// The checksum of `page` in the table.
    pub(crate) fn checksum(&self, page: u64) -> Option<u32> {
        let (word, shift) = self.entry(page)?;
        Some(low_u32(self.memory.load(word) >> shift))
    }

    /// Sees to it that the tables have room for the checksums of pages that others keep.
    pub(crate) fn make_room(&self, checksums: &[(u64, u32)]) -> Result<()> {
        for (page, _) in checksums {
            let (area, _) = layout::split(&self.head, *page);
            if self.area(area).is_none() {
                self.grow(area)?;
            }
        }
        Ok(())
    }

    /// Puts checksums into the table and flushes them. Only the thread that writes the image calls it.
    pub(crate) fn save(&self, checksums: &[(u64, u32)]) {
        let mut last = None;
        for (page, crc) in checksums {
            let Some((word, shift)) = self.entry(*page) else { continue };
            let kept = self.memory.load(word) & !(u64::from(u32::MAX) << shift);
            self.memory.store(word, kept | u64::from(*crc) << shift);
            if let Some(before) = last.replace(word).filter(|before: &PmAddr| before.line() != word.line()) {
                // With the fence below: the batch gives up the operations that have these checksums.
                self.memory.flush(before, WORD_BYTES);
            }
        }
        if let Some(word) = last {
            // As above, for the last line.
            self.memory.flush(word, WORD_BYTES);
            // The transaction of the batch may count before its own fence, as soon as its slots have reached the
            // medium. The table may not lack its checksums then.
            self.memory.fence();
        }
    }

    /// The pages that were written are on the device.
    pub(crate) fn settle(&self) -> Result<()> {
        if planted::active("fs-pages-never-settled") {
            return Ok(());
        }
        Ok(self.memory.settle()?)
    }
}
