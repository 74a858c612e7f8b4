//! Flushes, streams and evictions: lines on their way to the medium.

use lodestone_pmem::{LINE_BYTES, LineAddr, PmAddr, lines_of};

use super::cache::Found;
use super::part::{Part, WriteCost};
use super::thread::ThreadState;
use super::{Model, lock, picoseconds};

/// Bytes that may always be under way before a thread waits without a fence.
const AHEAD_BYTES_MIN: u64 = 4096;

impl Model {
    /// The write-back of `line` begins.
    pub(super) fn flush_line(&self, thread: &mut ThreadState, line: LineAddr) {
        // Absent means that another thread may hold it dirty, so it counts as sent.
        if thread.cache.look(line) == Found::Clean {
            thread.counts.needless_flushes += 1;
            return;
        }
        thread.cache.clean(line, self.profile.cpu_cache.flush_keeps_line);
        self.send(thread, line.start(), LINE_BYTES);
    }

    /// `len` bytes at `at` go around the cache.
    pub(super) fn stream_bytes(&self, thread: &mut ThreadState, at: PmAddr, len: u64) {
        thread.counts.stream_bytes += len;
        for line in lines_of(at, len) {
            thread.cache.clean(line, false);
        }
        if len > 0 {
            self.send(thread, at, len);
        }
    }

    /// Sends the lines that `len` bytes at `at` touch; the thread goes on.
    fn send(&self, thread: &mut ThreadState, at: PmAddr, len: u64) {
        let now_ps = self.now_ps(thread);
        let index = self.part_index(at);
        let is_remote = self.is_remote(thread, index);
        let mut part = lock(&self.parts[index]);
        let crowd = part.crowd(thread.slot, now_ps);
        let cost = WriteCost::new(&self.reads, &self.writes, crowd, is_remote);
        self.begin(thread, index, at, now_ps);
        let mut lines = 0;
        for line in lines_of(at, len) {
            lines += 1;
            let unfenced = &mut thread.unfenced[index];
            unfenced.since_fence_bytes += LINE_BYTES;
            let queue_ps = unfenced.queue_ps.max(now_ps);
            unfenced.queue_ps = queue_ps;
            if let Some(written) = part.put(line, &mut thread.counts) {
                unfenced.queue_ps = part.write_block(written, queue_ps, cost, &mut thread.counts);
            }
            if crowd.writers > 0 {
                self.tear(thread, &mut part, index, line, cost);
            }
        }
        let factor = self.writes.latency_factor(crowd.writers, crowd.readers, is_remote);
        let end_ps = self.extend(&mut thread.unfenced[index], at, len, lines, factor);
        part.mark_write(thread.slot, now_ps, end_ps);
        drop(part);
        thread.counts.remote_write_lines += if is_remote { lines } else { 0 };
        // The processor's and the medium's buffers are small, so a thread that is far ahead waits for its oldest lines.
        let until_ps = thread.unfenced[index].queue_ps.saturating_sub(self.ahead_ps());
        self.charge_until(thread, now_ps, until_ps);
    }

    /// How far a thread may be ahead of the medium's writing: one write buffer, but at least a page.
    fn ahead_ps(&self) -> u64 {
        let bytes = self.profile.device.write_buffer_bytes.max(AHEAD_BYTES_MIN);
        picoseconds(bytes as f64 * 1e9 / self.profile.write.bandwidth_bytes_per_second)
    }

    /// Before a write to a part: starts a new latency if the former writes have long passed.
    fn begin(&self, thread: &mut ThreadState, index: usize, at: PmAddr, now_ps: u64) {
        // A write-back begins once the stores before it have their lines.
        let start_ps = now_ps.max(thread.stores_ready_ps);
        let unfenced = &mut thread.unfenced[index];
        if unfenced.end_ps <= now_ps {
            unfenced.start_ps = start_ps;
            unfenced.bytes = 0;
            unfenced.small_ps = 0;
            unfenced.sequential = unfenced.next == at.to_raw();
        } else {
            unfenced.start_ps = unfenced.start_ps.max(thread.stores_ready_ps);
        }
    }

    /// After a write of `len` bytes in `lines` lines: sets the time at which everything under way has passed.
    fn extend(&self, unfenced: &mut super::thread::Unfenced, at: PmAddr, len: u64, lines: u64, factor: f64) -> u64 {
        let latency = if unfenced.sequential { &self.writes.sequential } else { &self.writes.random };
        if len < LINE_BYTES {
            // The processor has no neighbour to join it with: it goes as a partial write, and so does the next one.
            unfenced.small_ps += picoseconds(latency.ns(len) * factor);
        } else {
            unfenced.bytes += lines * LINE_BYTES;
        }
        unfenced.next = at.to_raw() + len;
        let whole_ps = if unfenced.bytes == 0 { 0 } else { picoseconds(latency.ns(unfenced.bytes) * factor) };
        unfenced.end_ps =
            (unfenced.start_ps + whole_ps + unfenced.small_ps).max(unfenced.queue_ps).max(unfenced.end_ps);
        unfenced.end_ps
    }

    /// Lines of a long write without a fence leave the processor out of order, so some blocks are written twice.
    fn tear(&self, thread: &mut ThreadState, part: &mut Part, index: usize, line: LineAddr, cost: WriteCost) {
        let unfenced = &mut thread.unfenced[index];
        if unfenced.since_fence_bytes <= self.profile.write.unfenced_bytes_max || !part.starts_block(line) {
            return;
        }
        unfenced.torn += self.profile.write.torn_fraction;
        if unfenced.torn >= 1.0 {
            unfenced.torn -= 1.0;
            thread.counts.blocks_torn += 1;
            let half = super::buffer::Written { whole: false };
            unfenced.queue_ps = part.write_block(half, unfenced.queue_ps, cost, &mut thread.counts);
        }
    }

    /// Sends the dirty lines that were evicted from the cache. No thread waits for them.
    pub(super) fn send_evicted(&self, thread: &mut ThreadState) {
        let now_ps = self.now_ps(thread);
        while let Some(line) = thread.evicted.pop() {
            let index = self.part_index(line.start());
            let is_remote = self.is_remote(thread, index);
            let mut part = lock(&self.parts[index]);
            let crowd = part.crowd(thread.slot, now_ps);
            let cost = WriteCost::new(&self.reads, &self.writes, crowd, is_remote);
            thread.counts.evicted_lines += 1;
            thread.counts.remote_write_lines += u64::from(is_remote);
            if let Some(written) = part.put(line, &mut thread.counts) {
                let end_ps = part.write_block(written, now_ps, cost, &mut thread.counts);
                part.mark_write(thread.slot, now_ps, end_ps);
            }
        }
    }
}
