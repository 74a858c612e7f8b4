//! Blocks of objects: pages of one size each, and which blocks are free.
//!
//! 1. A page's first word is the stride of its blocks; 0 means that the page is unused. It is persistent before any of
//!    its blocks is allocated, and never changes again. So an old reference always finds a block of its own size.
//! 2. A block's first word says whether it is taken. Only a transaction's commit changes it.
//! 3. Free blocks are known in DRAM only: read from the words at open, then kept by the workers.
//!
//! Blocks of up to a line never cross a line. Larger ones start at a line, header included.

use std::sync::{Mutex, PoisonError};

use lodestone_pmem::{LINE_BYTES, Memory, PmAddr, checked};
use lodestone_workload::engine::EngineError;

use super::layout::{Geometry, STRIDE_MAX};

/// The header word of a taken block; a free one holds 0.
pub const TAKEN: u64 = 0x7461_6B65_6E21;
/// Bytes of the header word.
pub(super) const BLOCK_HEADER_BYTES: u64 = 8;
/// Free blocks that a worker takes at a time.
const REFILL: usize = 64;

/// Index of the list of a stride.
#[inline]
pub(super) fn class_of(payload_words: usize) -> usize {
    let words = payload_words + 1;
    // 16, 32 and 64 bytes, then whole lines.
    if words <= 2 {
        0
    } else if words <= 4 {
        1
    } else {
        1 + words.div_ceil(8)
    }
}

/// Bytes from block to block.
pub(super) fn stride_of(class: usize) -> u64 {
    match class {
        0 => 16,
        1 => 32,
        lines => (lines as u64 - 1) * LINE_BYTES,
    }
}

/// Number of classes.
pub(super) const CLASSES: usize = (STRIDE_MAX / LINE_BYTES) as usize + 2;

/// The free blocks that are not with a worker.
#[derive(Debug)]
pub(super) struct Blocks {
    shared: Mutex<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Payload addresses by class.
    free: Vec<Vec<u64>>,
    unused_pages: Vec<u64>,
}

/// The blocks of a page.
fn blocks_of(geometry: &Geometry, page: u64, stride: u64) -> impl DoubleEndedIterator<Item = PmAddr> {
    let count = (geometry.page_bytes - LINE_BYTES) / stride;
    let first = geometry.page(page).plus(LINE_BYTES);
    (0..count).map(move |index| first.plus(index * stride))
}

/// The stride of a page's blocks; 0 if the page is unused.
fn page_stride(memory: &Memory, geometry: &Geometry, page: u64) -> Result<u64, EngineError> {
    let at = geometry.page(page);
    let damaged = |finding| EngineError::new(format!("TL2 page at {at}: {finding}; restore a backup"));
    match memory.load(at) {
        0 => Ok(0),
        word => match checked::decode(at, word) {
            Some(stride) if (0..CLASSES).any(|class| stride_of(class) == stride) => Ok(stride),
            Some(stride) => Err(damaged(format!("{stride} bytes are no size of blocks"))),
            None => Err(damaged("the class word fails its checksum".into())),
        },
    }
}

impl Blocks {
    /// Reads the headers of all blocks.
    pub(super) fn read(memory: &Memory, geometry: &Geometry) -> Result<Self, EngineError> {
        let mut free = vec![Vec::new(); CLASSES];
        let mut unused_pages = Vec::new();
        for page in (0..geometry.pages).rev() {
            match page_stride(memory, geometry, page)? {
                0 => unused_pages.push(page),
                stride => {
                    let class = (0..CLASSES).find(|&class| stride_of(class) == stride).unwrap_or(0);
                    let blocks = blocks_of(geometry, page, stride).rev().filter(|&at| memory.load(at) != TAKEN);
                    free[class].extend(blocks.map(|at| at.plus(BLOCK_HEADER_BYTES).to_raw()));
                }
            }
        }
        Ok(Self { shared: Mutex::new(Shared { free, unused_pages }) })
    }

    /// Counts taken blocks on the medium.
    pub(super) fn count_taken(memory: &Memory, geometry: &Geometry) -> u64 {
        let used = (0..geometry.pages).filter_map(|page| match page_stride(memory, geometry, page) {
            Ok(0) | Err(_) => None,
            Ok(stride) => Some(blocks_of(geometry, page, stride).filter(|&at| memory.load(at) == TAKEN).count()),
        });
        used.sum::<usize>() as u64
    }

    /// Moves free blocks of `class` into `cache`, and makes a page of them if there are none. Returns false if memory
    /// is full.
    #[cold]
    pub(super) fn refill(&self, memory: &Memory, geometry: &Geometry, class: usize, cache: &mut Vec<u64>) -> bool {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if shared.free[class].is_empty() {
            let Some(page) = shared.unused_pages.pop() else { return false };
            let stride = stride_of(class);
            for at in blocks_of(geometry, page, stride) {
                memory.store(at, 0);
                memory.flush(at, 8);
            }
            // The class word may not overtake the headers that it makes count.
            memory.fence();
            let at = geometry.page(page);
            memory.store(at, checked::encode(at, stride));
            // No block of the page may be published before the page is known.
            memory.persist(at, 8);
            let blocks = blocks_of(geometry, page, stride).rev();
            shared.free[class].extend(blocks.map(|at| at.plus(BLOCK_HEADER_BYTES).to_raw()));
        }
        let left = shared.free[class].len().saturating_sub(REFILL);
        // The nearest blocks come last, so that they are used first.
        cache.extend(shared.free[class].drain(left..));
        true
    }

    /// Takes back a worker's free blocks.
    pub(super) fn give_back(&self, class: usize, cache: &mut Vec<u64>) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.free[class].append(cache);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_has_a_class_that_holds_it() {
        for words in 1..(STRIDE_MAX / 8) as usize {
            let stride = stride_of(class_of(words));
            let bytes = (words as u64 + 1) * 8;
            assert!(stride >= bytes, "{words} words in {stride} bytes");
            assert!(stride < 2 * bytes.max(16) || stride - bytes < 64, "{words} words in {stride} bytes");
        }
        assert_eq!([1, 3, 4, 7, 8, 30].map(class_of).map(stride_of), [16, 32, 64, 64, 128, 256]);
    }
}
