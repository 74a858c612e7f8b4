//! Loads and stores: lines missing from the cache are fetched from the medium.

use lodestone_pmem::{LINE_BYTES, LineAddr, PmAddr, lines_of};

use super::cache::Found;
use super::prices::picoseconds;
use super::thread::ThreadState;
use super::{Model, lock};

/// Neighbouring lines that are missing.
#[derive(Clone, Copy, Debug)]
struct Run {
    first: LineAddr,
    lines: u64,
    /// Bytes that the code asks for in these lines.
    bytes: u64,
}

impl Model {
    /// `len` bytes at `at` are loaded: the thread waits for the missing lines.
    pub(super) fn load(&self, thread: &mut ThreadState, at: PmAddr, len: u64) {
        thread.counts.read_bytes += len;
        self.access(thread, at, len, false);
    }

    /// `len` bytes at `at` are stored: missing lines are fetched, and the next fence waits for them.
    pub(super) fn store(&self, thread: &mut ThreadState, at: PmAddr, len: u64) {
        thread.counts.write_bytes += len;
        self.access(thread, at, len, true);
    }

    fn access(&self, thread: &mut ThreadState, at: PmAddr, len: u64, is_store: bool) {
        let mut run: Option<Run> = None;
        for line in lines_of(at, len) {
            if thread.cache.touch(line, is_store) != Found::Absent {
                thread.counts.cached_lines += 1;
                if let Some(run) = run.take() {
                    self.fetch(thread, run, is_store);
                }
                continue;
            }
            let bytes = bytes_in(line, at, len);
            run = Some(match run {
                Some(run) => Run { lines: run.lines + 1, bytes: run.bytes + bytes, ..run },
                None => Run { first: line, lines: 1, bytes },
            });
            let gone = thread.cache.insert(line, is_store);
            thread.evicted.extend(gone);
        }
        if let Some(run) = run {
            self.fetch(thread, run, is_store);
        }
        if !thread.evicted.is_empty() {
            self.send_evicted(thread);
        }
    }

    fn fetch(&self, thread: &mut ThreadState, run: Run, is_store: bool) {
        let start_ps = self.now_ps(thread);
        let start = run.first.start().to_raw();
        let next = if is_store { &mut thread.next_store } else { &mut thread.next_load };
        let sequential = *next == start;
        *next = start + run.lines * LINE_BYTES;
        // A whole line is fetched, but the profile may know the cost of a smaller access.
        let bytes = if run.lines == 1 { run.bytes } else { run.lines * LINE_BYTES };
        let index = self.part_index(run.first.start());
        let is_remote = self.is_remote(thread, index);

        let mut part = lock(&self.parts[index]);
        let looked = part.look(run.first, run.lines);
        let crowd = part.crowd(thread.slot, start_ps);
        let end_ps = if looked.blocks_new == 0 {
            // A buffered block does not queue for the medium, so other readers do not delay it.
            let factor = self.reads.latency_factor(0, crowd.writers, is_remote);
            start_ps + picoseconds(self.profile.read.buffered_latency_ns * looked.blocks_buffered as f64 * factor)
        } else {
            let latency = if sequential { &self.reads.sequential } else { &self.reads.random };
            let factor = self.reads.latency_factor(crowd.readers, crowd.writers, is_remote);
            let fraction = self.profile.read.bandwidth_fraction.at(bytes);
            let occupancy_ps = self.reads.occupancy_ps(crowd.readers, crowd.writers, is_remote, fraction);
            part.read_blocks(looked.blocks_new, start_ps, picoseconds(latency.ns(bytes) * factor), occupancy_ps)
        };
        part.mark_read(thread.slot, start_ps, end_ps);
        drop(part);

        let counts = &mut thread.counts;
        counts.fetched_lines += run.lines;
        counts.blocks_read += looked.blocks_new;
        counts.read_buffer_hits += looked.blocks_buffered;
        counts.remote_read_lines += if is_remote { run.lines } else { 0 };
        if is_store {
            thread.stores_ready_ps = thread.stores_ready_ps.max(end_ps);
        } else {
            self.charge_until(thread, start_ps, end_ps);
        }
    }
}

/// How many of `len` bytes at `at` are in `line`.
fn bytes_in(line: LineAddr, at: PmAddr, len: u64) -> u64 {
    let line = line.start().to_raw();
    (at.to_raw() + len).min(line + LINE_BYTES) - at.to_raw().max(line)
}
