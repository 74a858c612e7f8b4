//! Size classes: which block sizes a slab chunk is cut into.
//!
//! 1. Up to 64 bytes in steps of 16, up to 512 in steps of 64, then four steps per doubling, rounded to 64.
//! 2. The largest classes cut a chunk into exactly four, three and two blocks; larger blocks are extents.
//!
//! So a block of 64 bytes or more starts a line. It wastes at most a quarter of itself, a third in the last two
//! classes. A slab's chunk word holds its block size, so the list may change without a new format.

use lodestone_width::{exact_u8, exact_u32, to_usize};

use crate::layout::{BLOCKS_PER_WORD, Geometry};

/// One block size and how a chunk is cut into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Blocks in a chunk.
    pub blocks: u32,
    /// Bitmap words in a chunk.
    pub words: u32,
    /// Offset of the first block in the chunk.
    pub blocks_offset: u32,
}

impl Class {
    /// Cuts a chunk of `chunk_bytes` into blocks of `block_bytes`; `None` when not even one fits or the size is odd.
    pub fn cut(chunk_bytes: u64, block_bytes: u32) -> Option<Self> {
        let size = u64::from(block_bytes);
        if size < 16 || !size.is_multiple_of(16) {
            return None;
        }
        let blocks_offset = |blocks: u64| (blocks.div_ceil(BLOCKS_PER_WORD) * 8).next_multiple_of(64);
        let mut blocks = chunk_bytes / size;
        while blocks > 0 && blocks_offset(blocks) + blocks * size > chunk_bytes {
            blocks -= 1;
        }
        (blocks > 0).then(|| Self {
            block_bytes,
            blocks: exact_u32(blocks),
            words: exact_u32(blocks.div_ceil(BLOCKS_PER_WORD)),
            blocks_offset: exact_u32(blocks_offset(blocks)),
        })
    }

    /// The bits of bitmap word `word` that are used for blocks.
    #[inline]
    pub fn mask(&self, word: u32) -> u64 {
        let rest = u64::from(self.blocks) - u64::from(word) * BLOCKS_PER_WORD;
        if rest >= BLOCKS_PER_WORD { (1 << BLOCKS_PER_WORD) - 1 } else { (1 << rest) - 1 }
    }
}

/// All classes of a heap and the way from a size to its class.
#[derive(Debug)]
pub struct Classes {
    list: Box<[Class]>,
    /// Class by size in units of 16 bytes, rounded up.
    by_size: Box<[u8]>,
}

impl Classes {
    /// The classes for chunks of the given geometry.
    pub fn new(geometry: &Geometry) -> Self {
        let chunk_bytes = geometry.chunk_bytes();
        let mut list: Vec<Class> = Vec::new();
        let mut push = |size: u64, blocks_min: u32| {
            let next = u32::try_from(size).ok().and_then(|size| Class::cut(chunk_bytes, size));
            if let Some(next) = next
                && next.blocks >= blocks_min
                && list.last().is_none_or(|last| next.block_bytes > last.block_bytes)
            {
                list.push(next);
            }
        };
        for size in (16..64).step_by(16).chain((64..512).step_by(64)) {
            push(size, 5);
        }
        let mut base = 512;
        while base < chunk_bytes {
            for quarter in 4..8 {
                push((base * quarter / 4).next_multiple_of(64), 5);
            }
            base *= 2;
        }
        for parts in [4, 3, 2] {
            push((chunk_bytes - 64) / parts / 64 * 64, 2);
        }
        let largest = list.last().map_or(0, |class| class.block_bytes);
        let by_size = (0..=largest / 16)
            .map(|units| exact_u8(list.partition_point(|class| class.block_bytes < units * 16)))
            .collect();
        Self { list: list.into_boxed_slice(), by_size }
    }

    /// The class for `bytes`, or `None` when it takes an extent.
    #[inline]
    pub fn index_for(&self, bytes: u64) -> Option<usize> {
        self.by_size.get(usize::try_from(bytes.div_ceil(16)).ok()?).map(|&index| to_usize(index))
    }

    /// The class whose blocks have exactly `block_bytes` bytes.
    pub fn index_of(&self, block_bytes: u32) -> Option<usize> {
        let index = self.index_for(u64::from(block_bytes))?;
        (self.list[index].block_bytes == block_bytes).then_some(index)
    }

    /// Class number `index`.
    #[inline]
    pub fn get(&self, index: usize) -> &Class {
        &self.list[index]
    }

    /// Number of classes.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// All classes, by ascending size.
    pub fn iter(&self) -> impl Iterator<Item = &Class> {
        self.list.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classes(chunk_shift: u32) -> (Geometry, Classes) {
        let geometry = Geometry { chunk_shift, zone_shift: 6, lanes: 1, lane_bytes: 4096 };
        (geometry, Classes::new(&geometry))
    }

    #[test]
    fn every_size_gets_the_smallest_class_that_holds_it() {
        for chunk_shift in 9..=20 {
            let (geometry, classes) = classes(chunk_shift);
            assert!(classes.len() < 256, "class numbers fit a byte");
            let largest = u64::from(classes.get(classes.len() - 1).block_bytes);
            for bytes in 0..=largest {
                let index = classes.index_for(bytes).expect("a class");
                let class = classes.get(index);
                assert!(u64::from(class.block_bytes) >= bytes);
                assert!(index == 0 || u64::from(classes.get(index - 1).block_bytes) < bytes);
                let end = u64::from(class.blocks_offset) + u64::from(class.blocks) * u64::from(class.block_bytes);
                assert!(end <= geometry.chunk_bytes());
                assert!(class.block_bytes < 64 || class.block_bytes % 64 == 0, "large blocks start a line");
            }
            assert_eq!(classes.index_for(largest + 1), None);
        }
    }

    #[test]
    fn masks_cover_exactly_the_blocks() {
        let (_, classes) = classes(16);
        for class in classes.iter() {
            let bits: u32 = (0..class.words).map(|word| class.mask(word).count_ones()).sum();
            assert_eq!(bits, class.blocks);
        }
    }
}
