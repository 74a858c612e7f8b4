//! The block that makes a batch count.

use lodestone_pmem::{Memory, PmAddr, PmPtr};
use lodestone_width::to_u64;
use zerocopy::IntoBytes;

use crate::error::Result;
use crate::layout::{BLOCK_MAGIC, BlockLine};

/// A checkpoint: the batch up to which pages count, and the position of each log from which its records are needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub batch: u64,
    pub from: Vec<u64>,
}

impl Block {
    /// The block at `at`, if it is whole.
    pub fn read(memory: &Memory, at: PmAddr, writers: u16) -> Option<Self> {
        let line: BlockLine = memory.get(PmPtr::new(at));
        let mut from = vec![0_u64; usize::from(writers)];
        memory.read(at.plus(64), from.as_mut_bytes());
        let is_whole = line.magic == BLOCK_MAGIC && line.zero == [0; 44] && line.crc == line.checksum(&from);
        is_whole.then_some(Self { batch: line.batch, from })
    }

    /// Writes the block to `at`. Durable on return.
    ///
    /// # Errors
    /// A medium that failed. Then the block is there or not.
    pub fn write(&self, memory: &Memory, at: PmAddr) -> Result<()> {
        let bytes = BlockLine::block(self.batch, &self.from);
        memory.write(at, &bytes);
        // The block that was here before wants log records and pages that are used again after this.
        memory.persist(at, to_u64(bytes.len()));
        Ok(memory.durable()?)
    }
}
