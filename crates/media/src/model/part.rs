//! One module of the medium: its buffers, its bandwidth, and the threads at work on it. All threads share it.
//!
//! A thread counts as at work from the start of its latest access until [`LINGER_PS`] after the end of that access. So
//! a closed loop of accesses counts as work without gaps, and a thread that turns to other work stops counting.

use lodestone_pmem::{LINE_BYTES, LineAddr};

use super::bandwidth::Bandwidth;
use super::buffer::{ReadBuffer, WriteBuffer, Written};
use super::counts::MediaCounts;
use super::prices::{Crowd, Direction};
use crate::profile::MediaProfile;

/// How long a thread still counts after its access.
const LINGER_PS: u64 = 1_000_000;

#[derive(Clone, Copy, Debug, Default)]
struct Span {
    start_ps: u64,
    /// 0 means never.
    end_ps: u64,
}

impl Span {
    fn covers(self, now_ps: u64) -> bool {
        self.end_ps > 0 && self.start_ps <= now_ps + LINGER_PS && now_ps <= self.end_ps + LINGER_PS
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Activity {
    reads: Span,
    writes: Span,
}

#[derive(Debug)]
pub(super) struct Part {
    block_bytes: u64,
    reads: Bandwidth,
    writes: Bandwidth,
    read_buffer: ReadBuffer,
    write_buffer: WriteBuffer,
    /// By slot of the thread.
    activity: Vec<Activity>,
}

/// The blocks of a fetch that the medium had to read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Looked {
    pub(super) blocks_new: u64,
    pub(super) blocks_buffered: u64,
}

impl Part {
    pub(super) fn new(profile: &MediaProfile) -> Self {
        let device = &profile.device;
        let blocks = |bytes: u64| usize::try_from(bytes / device.block_bytes).unwrap_or(0);
        Self {
            block_bytes: device.block_bytes,
            reads: Bandwidth::new(),
            writes: Bandwidth::new(),
            read_buffer: ReadBuffer::new(blocks(device.read_buffer_bytes)),
            write_buffer: WriteBuffer::new(blocks(device.write_buffer_bytes), device.block_bytes / LINE_BYTES),
            activity: Vec::new(),
        }
    }

    /// Threads other than that of `slot` that are at work at `now_ps`.
    pub(super) fn crowd(&self, slot: usize, now_ps: u64) -> Crowd {
        let mut crowd = Crowd::default();
        for (other, activity) in self.activity.iter().enumerate() {
            if other != slot {
                crowd.readers += u64::from(activity.reads.covers(now_ps));
                crowd.writers += u64::from(activity.writes.covers(now_ps));
            }
        }
        crowd
    }

    fn activity(&mut self, slot: usize) -> &mut Activity {
        if self.activity.len() <= slot {
            self.activity.resize(slot + 1, Activity::default());
        }
        &mut self.activity[slot]
    }

    pub(super) fn mark_read(&mut self, slot: usize, start_ps: u64, end_ps: u64) {
        self.activity(slot).reads = Span { start_ps, end_ps };
    }

    pub(super) fn mark_write(&mut self, slot: usize, start_ps: u64, end_ps: u64) {
        self.activity(slot).writes = Span { start_ps, end_ps };
    }

    /// The thread of `slot` has ended.
    pub(super) fn forget(&mut self, slot: usize) {
        *self.activity(slot) = Activity::default();
    }

    fn block_of(&self, line: LineAddr) -> u64 {
        line.start().to_raw() / self.block_bytes
    }

    /// Looks up the blocks of `lines` lines from `first` on in the buffers. New ones are inserted into the read buffer.
    pub(super) fn look(&mut self, first: LineAddr, lines: u64) -> Looked {
        let last = first.start().to_raw() + (lines - 1) * LINE_BYTES;
        let mut looked = Looked { blocks_new: 0, blocks_buffered: 0 };
        for block in self.block_of(first)..=last / self.block_bytes {
            if self.read_buffer.hit(block) || self.write_buffer.holds(block) {
                looked.blocks_buffered += 1;
            } else {
                looked.blocks_new += 1;
                self.read_buffer.insert(block);
            }
        }
        looked
    }

    /// Reads `blocks` blocks one after another from `start_ps` on, which takes `latency_ps` without contention. Returns
    /// the end.
    pub(super) fn read_blocks(&mut self, blocks: u64, start_ps: u64, latency_ps: u64, occupancy_ps: u64) -> u64 {
        let mut now_ps = start_ps;
        for index in 0..blocks {
            let step_ps = latency_ps * (index + 1) / blocks - latency_ps * index / blocks;
            now_ps = self.reads.take(now_ps, occupancy_ps).max(now_ps + step_ps);
        }
        now_ps
    }

    /// Takes a line into the write buffer. Returns the block that was evicted for it.
    pub(super) fn put(&mut self, line: LineAddr, counts: &mut MediaCounts) -> Option<Written> {
        let index = line.start().to_raw() % self.block_bytes / LINE_BYTES;
        let (joined, gone) = self.write_buffer.put(self.block_of(line), index);
        counts.sent_lines += 1;
        counts.write_buffer_hits += u64::from(joined);
        gone
    }

    /// Whether `line` is the first one of its block.
    pub(super) fn starts_block(&self, line: LineAddr) -> bool {
        line.start().to_raw().is_multiple_of(self.block_bytes)
    }

    /// Writes a block from `now_ps` on, after reading it if it is not whole. Returns the time at which there was room
    /// for it.
    pub(super) fn write_block(
        &mut self,
        written: Written,
        now_ps: u64,
        cost: WriteCost,
        counts: &mut MediaCounts,
    ) -> u64 {
        counts.blocks_written += 1;
        if !written.whole {
            counts.blocks_read += 1;
            counts.blocks_modified += 1;
            // It takes its share of the read bandwidth. Only the block itself waits for it.
            self.reads.take(now_ps, cost.read_ps);
        }
        self.writes.take(now_ps, cost.write_ps).max(now_ps)
    }

    pub(super) fn drain(&mut self) -> Vec<Written> {
        self.write_buffer.drain()
    }

    pub(super) fn waiting_blocks(&self) -> usize {
        self.write_buffer.len()
    }

    /// Empties the read buffer.
    pub(super) fn cool(&mut self) {
        self.read_buffer.clear();
    }
}

/// The occupancy of a written block.
#[derive(Clone, Copy, Debug)]
pub(super) struct WriteCost {
    read_ps: u64,
    write_ps: u64,
}

impl WriteCost {
    pub(super) fn new(reads: &Direction, writes: &Direction, crowd: Crowd, is_remote: bool) -> Self {
        Self {
            read_ps: reads.occupancy_ps(crowd.readers, crowd.writers, is_remote, 1.0),
            write_ps: writes.occupancy_ps(crowd.writers, crowd.readers, is_remote, 1.0),
        }
    }
}
