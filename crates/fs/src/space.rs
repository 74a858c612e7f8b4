//! Which pages of the volume are free.
//!
//! 1. *Reserve*: pages for a write that is under way. Nothing refers to them; a crash forgets the reservation.
//! 2. *Take*: the operation is in the log, its pages belong to a file.
//! 3. *Free*: an operation freed pages. They are in quarantine until the image has that operation durably.
//! 4. *Release*: the quarantine ends. Only now the pages may be written again.
//!
//! Rule 4 is what recovery rests on. A crash brings back the image and the operations after it. None of these refers to
//! a page that was free in the image, except the operation that wrote it. So a page is never overwritten while a state
//! that may come back refers to it, and pages of operations after the image can be compared with their checksums.
//!
//! The image has the taken pages as a bitmap in chunks. Page 0 is not used: it means "none".

use std::collections::BTreeSet;

use lodestone_width::{to_u64, to_usize};

use crate::extents::Run;

/// Bytes of a chunk of the bitmap, a value of the image.
pub(crate) const CHUNK_BYTES: usize = 480;
/// Pages of a chunk.
pub(crate) const CHUNK_PAGES: u64 = 480 * 8;

/// The pages.
#[derive(Debug)]
pub(crate) struct Space {
    pages: u64,
    /// Bits of pages that belong to files.
    taken: Vec<u64>,
    /// Bits of pages that are reserved or in quarantine.
    held: Vec<u64>,
    free: u64,
    used: u64,
    cursor: u64,
    /// Freed since the last batch of the image began.
    freed: Vec<Run>,
    /// Chunks whose bits have changed since then.
    changed: BTreeSet<u64>,
}

impl Space {
    pub(crate) fn new(pages: u64) -> Self {
        let words = to_usize(pages.div_ceil(64));
        let mut space = Self {
            pages,
            taken: vec![0; words],
            held: vec![0; words],
            free: pages,
            used: 0,
            cursor: 1,
            freed: Vec::new(),
            changed: BTreeSet::new(),
        };
        // Page 0 does not exist, and neither do the bits after the last page.
        (pages..to_u64(words) * 64).chain([0]).for_each(|page| set(&mut space.held, page));
        space.free = pages.saturating_sub(1);
        space
    }

    /// Pages that there are.
    pub(crate) const fn pages(&self) -> u64 {
        self.pages
    }

    /// Pages that can be reserved now.
    pub(crate) const fn free(&self) -> u64 {
        self.free
    }

    /// Pages that belong to files.
    pub(crate) const fn used(&self) -> u64 {
        self.used
    }

    /// Pages in quarantine or reserved.
    #[cfg(test)]
    pub(crate) const fn held(&self) -> u64 {
        self.pages.saturating_sub(1) - self.free - self.used
    }

    /// Puts a chunk in as the image has it. `None` when it takes pages that do not exist.
    pub(crate) fn load_chunk(&mut self, chunk: u64, bytes: &[u8]) -> Option<()> {
        if bytes.len() != CHUNK_BYTES {
            return None;
        }
        let first = chunk.checked_mul(CHUNK_PAGES)?;
        for (index, word) in bytes.as_chunks::<8>().0.iter().enumerate() {
            let bits = u64::from_le_bytes(*word);
            if bits == 0 {
                continue;
            }
            let place = to_usize(first / 64) + index;
            let room = self.taken.get_mut(place)?;
            if self.held.get(place)? & bits != 0 || *room != 0 {
                return None;
            }
            *room = bits;
            (self.free, self.used) =
                (self.free - u64::from(bits.count_ones()), self.used + u64::from(bits.count_ones()));
        }
        Some(())
    }

    /// The bytes of a chunk; empty when no page of it is taken.
    pub(crate) fn chunk(&self, chunk: u64) -> Vec<u8> {
        let first = to_usize(chunk * CHUNK_PAGES / 64);
        let words = (first..first + CHUNK_BYTES / 8).map(|place| self.taken.get(place).copied().unwrap_or(0));
        let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        if bytes.iter().all(|byte| *byte == 0) { Vec::new() } else { bytes }
    }

    fn is_free(&self, page: u64) -> bool {
        let (place, bit) = (to_usize(page / 64), 1 << (page % 64));
        (self.taken[place] | self.held[place]) & bit == 0
    }

    /// Whether the page belongs to a file.
    pub(crate) fn is_taken(&self, page: u64) -> bool {
        self.taken.get(to_usize(page / 64)).is_some_and(|word| word & (1 << (page % 64)) != 0)
    }

    /// The next free page at or after `from`, if there is one before the end.
    fn next_free(&self, from: u64) -> Option<u64> {
        let mut place = to_usize(from / 64);
        let mut mask = u64::MAX << (from % 64);
        while let (Some(taken), Some(held)) = (self.taken.get(place), self.held.get(place)) {
            let free = !(taken | held) & mask;
            if free != 0 {
                return Some(to_u64(place) * 64 + u64::from(free.trailing_zeros()));
            }
            (place, mask) = (place + 1, u64::MAX);
        }
        None
    }

    /// Reserves `count` pages in few runs, or none of them.
    pub(crate) fn reserve(&mut self, count: u64) -> Option<Vec<Run>> {
        if count > self.free {
            return None;
        }
        let (mut runs, mut left) = (Vec::new(), count);
        while left > 0 {
            let first = self.next_free(self.cursor).or_else(|| self.next_free(1))?;
            let mut end = first;
            while end - first < left && end < self.pages && self.is_free(end) {
                set(&mut self.held, end);
                end += 1;
            }
            runs.push(Run { page: first, count: end - first });
            left -= end - first;
            self.cursor = if end < self.pages { end } else { 1 };
        }
        self.free -= count;
        Some(runs)
    }

    /// Gives up a reservation.
    pub(crate) fn unreserve(&mut self, run: Run) {
        (run.page..run.page + run.count).for_each(|page| clear(&mut self.held, page));
        self.free += run.count;
    }

    /// Whether the pages exist and belong to no file.
    pub(crate) fn may_take(&self, run: Run) -> bool {
        let end = run.page.checked_add(run.count).filter(|end| *end <= self.pages && run.page > 0);
        end.is_some_and(|end| !(run.page..end).any(|page| self.is_taken(page)))
    }

    /// The pages belong to a file now. They were reserved, or free as recovery finds them. `false`, and nothing
    /// happens, when they belong to a file already or do not exist.
    #[must_use]
    pub(crate) fn take(&mut self, run: Run) -> bool {
        if !self.may_take(run) {
            return false;
        }
        for page in run.page..run.page + run.count {
            if self.is_free(page) {
                self.free -= 1;
            }
            clear(&mut self.held, page);
            set(&mut self.taken, page);
        }
        self.used += run.count;
        self.note(run);
        true
    }

    /// The pages belong to no file any more: quarantine. `false`, and nothing happens, when one of them did not.
    #[must_use]
    pub(crate) fn give(&mut self, run: Run) -> bool {
        if !(run.page..run.page + run.count).all(|page| self.is_taken(page)) {
            return false;
        }
        for page in run.page..run.page + run.count {
            clear(&mut self.taken, page);
            set(&mut self.held, page);
        }
        self.used -= run.count;
        self.freed.push(run);
        self.note(run);
        true
    }

    fn note(&mut self, run: Run) {
        self.changed.extend(run.page / CHUNK_PAGES..=(run.page + run.count - 1) / CHUNK_PAGES);
    }

    /// For a batch of the image: the changed chunks, and the pages that were freed up to now.
    pub(crate) fn begin_batch(&mut self) -> (Vec<(u64, Vec<u8>)>, Vec<Run>) {
        let changed = std::mem::take(&mut self.changed);
        let chunks = changed.into_iter().map(|chunk| (chunk, self.chunk(chunk))).collect();
        (chunks, std::mem::take(&mut self.freed))
    }

    /// The batch did not become durable: its chunks and freed pages wait for the next one.
    pub(crate) fn undo_batch(&mut self, chunks: impl Iterator<Item = u64>, freed: &[Run]) {
        self.changed.extend(chunks);
        self.freed.extend(freed);
    }

    /// The quarantine of `runs` ends: the image has the operations that freed them.
    pub(crate) fn release(&mut self, runs: &[Run]) {
        runs.iter().for_each(|run| self.unreserve(*run));
    }

    /// The quarantine of everything that was freed ends at once: a mistake, for tests.
    pub(crate) fn skip_quarantine(&mut self) {
        let freed = std::mem::take(&mut self.freed);
        self.release(&freed);
    }

    /// Whether pages wait for the next batch.
    pub(crate) fn has_freed(&self) -> bool {
        !self.freed.is_empty()
    }
}

fn set(bits: &mut [u64], page: u64) {
    bits[to_usize(page / 64)] |= 1 << (page % 64);
}

fn clear(bits: &mut [u64], page: u64) {
    bits[to_usize(page / 64)] &= !(1 << (page % 64));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freed_page_is_not_reserved_before_its_release() {
        let mut space = Space::new(100);
        let all = space.reserve(99).expect("all pages");
        assert_eq!(all, [Run { page: 1, count: 99 }]);
        assert!(space.take(all[0]));
        assert!(space.reserve(1).is_none());
        assert!(space.give(Run { page: 10, count: 5 }));
        assert!(!space.give(Run { page: 10, count: 1 }), "freed twice");
        assert!(space.reserve(1).is_none(), "in quarantine");
        assert_eq!((space.used(), space.held()), (94, 5));
        let (chunks, freed) = space.begin_batch();
        assert_eq!((chunks.len(), &*freed), (1, &[Run { page: 10, count: 5 }][..]));
        space.release(&freed);
        assert_eq!(space.reserve(5), Some(vec![Run { page: 10, count: 5 }]));
        assert!(!space.take(Run { page: 9, count: 1 }), "it is another file's");
        assert!(!space.take(Run { page: 99, count: 2 }), "beyond the end");
    }

    #[test]
    fn a_chunk_comes_back() {
        let mut space = Space::new(10_000);
        assert!(space.take(Run { page: 3000, count: 2000 }));
        let (chunks, _) = space.begin_batch();
        let mut again = Space::new(10_000);
        assert!(chunks.iter().all(|(chunk, bytes)| again.load_chunk(*chunk, bytes).is_some()));
        assert_eq!((again.used(), again.free()), (2000, 7999));
        assert!(again.is_taken(4999) && !again.is_taken(5000));
        assert!(again.load_chunk(2, &[255; CHUNK_BYTES]).is_none(), "pages beyond the end");
        assert!(again.load_chunk(0, &[1; 3]).is_none(), "a chunk of another length");
    }
}
