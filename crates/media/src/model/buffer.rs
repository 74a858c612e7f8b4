//! The two buffers inside a medium: one of the blocks read last, one of blocks whose written lines wait for neighbours.
//!
//! Both are short lists in LRU order, most recent first, of block numbers (address / block size, part included).

/// Blocks that were read last.
#[derive(Debug)]
pub(super) struct ReadBuffer {
    blocks: Vec<u64>,
    blocks_max: usize,
}

impl ReadBuffer {
    pub(super) fn new(blocks_max: usize) -> Self {
        Self { blocks: Vec::with_capacity(blocks_max), blocks_max }
    }

    /// Whether `block` is in the buffer. If so, it becomes the most recent one.
    pub(super) fn hit(&mut self, block: u64) -> bool {
        let Some(at) = self.blocks.iter().position(|known| *known == block) else { return false };
        self.blocks[..=at].rotate_right(1);
        true
    }

    /// Inserts a block that is not in the buffer.
    pub(super) fn insert(&mut self, block: u64) {
        if self.blocks_max == 0 {
            return;
        }
        if self.blocks.len() == self.blocks_max {
            self.blocks.pop();
        }
        self.blocks.insert(0, block);
    }

    pub(super) fn clear(&mut self) {
        self.blocks.clear();
    }
}

/// A block that leaves the write buffer for the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Written {
    /// Whether all its lines were present. If not, the medium reads the block first.
    pub(super) whole: bool,
}

/// Blocks in which written lines wait.
#[derive(Debug)]
pub(super) struct WriteBuffer {
    /// Block number and mask of the lines that are present.
    blocks: Vec<(u64, u64)>,
    blocks_max: usize,
    mask_whole: u64,
}

impl WriteBuffer {
    pub(super) fn new(blocks_max: usize, lines_per_block: u64) -> Self {
        // A block has at most 64 lines (4096 bytes).
        let mask_whole = u64::MAX >> (64 - lines_per_block.clamp(1, 64));
        Self { blocks: Vec::with_capacity(blocks_max), blocks_max, mask_whole }
    }

    /// Whether `block` waits here.
    pub(super) fn holds(&self, block: u64) -> bool {
        self.blocks.iter().any(|(known, _)| *known == block)
    }

    /// Takes line `index` of `block`. Returns whether it joined lines already present, and the block that was evicted
    /// for it.
    pub(super) fn put(&mut self, block: u64, index: u64) -> (bool, Option<Written>) {
        if let Some(at) = self.blocks.iter().position(|(known, _)| *known == block) {
            self.blocks[at].1 |= 1 << index;
            self.blocks[..=at].rotate_right(1);
            return (true, None);
        }
        if self.blocks_max == 0 {
            return (false, Some(Written { whole: self.mask_whole == 1 }));
        }
        let full = self.blocks.len() == self.blocks_max;
        let gone = if full { self.blocks.pop() } else { None };
        self.blocks.insert(0, (block, 1 << index));
        (false, gone.map(|(_, mask)| Written { whole: mask == self.mask_whole }))
    }

    /// Sends everything to the medium, oldest first.
    pub(super) fn drain(&mut self) -> Vec<Written> {
        let whole = self.mask_whole;
        self.blocks.drain(..).rev().map(|(_, mask)| Written { whole: mask == whole }).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.blocks.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_of_the_latest_blocks_hit() {
        let mut buffer = ReadBuffer::new(2);
        assert!(!buffer.hit(1));
        buffer.insert(1);
        buffer.insert(2);
        assert!(buffer.hit(1));
        buffer.insert(3);
        assert!(!buffer.hit(2) && buffer.hit(1) && buffer.hit(3));
        let mut none = ReadBuffer::new(0);
        none.insert(1);
        assert!(!none.hit(1));
    }

    #[test]
    fn neighbours_join_and_a_lone_line_goes_alone() {
        let mut buffer = WriteBuffer::new(2, 4);
        assert_eq!([0, 1, 2, 3].map(|line| buffer.put(7, line).0), [false, true, true, true]);
        assert_eq!(buffer.put(8, 0), (false, None));
        assert_eq!(buffer.put(9, 0), (false, Some(Written { whole: true })), "block 7 was whole");
        assert_eq!(buffer.put(8, 0), (true, None), "the same line again");
        assert_eq!(buffer.put(10, 0), (false, Some(Written { whole: false })), "block 9 was the oldest");
        assert!(buffer.holds(8) && !buffer.holds(9));
        assert_eq!(buffer.drain(), [Written { whole: false }; 2]);
        assert_eq!(buffer.len(), 0);
        assert_eq!(WriteBuffer::new(0, 1).put(1, 0), (false, Some(Written { whole: true })));
    }
}
