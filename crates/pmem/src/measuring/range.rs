//! The kernels that measure a medium: reads, stores with write-back and streams of any size, as bare instructions.
//!
//! 1. [`BareRange::new`] checks once that a range is inside a part. Every access is a bounds check and the
//!    instructions.
//! 2. Reads of 64 bytes and more go line by line with the widest loads of the processor. They return the last word
//!    read, so a caller can make the next address depend on it (a dependent chain).
//! 3. Writes either store and flush each line in turn, or stream around the cache. Both end with a fence. On request
//!    they also fence after every so many bytes (paper 2, Figure 5).
//!
//! Invariant: nothing here looks at what it reads, and nothing it writes means anything. It is for measuring alone.
#![expect(unsafe_code, reason = "the medium is measured by bare instructions")]

use std::sync::atomic::{AtomicU64, Ordering};

use lodestone_width::{to_u64, to_usize};

use super::kernels;
use crate::addr::{LINE_BYTES, PmAddr, WORD_BYTES};
use crate::cpu::{self, FlushInstruction, StreamInstruction};
use crate::domain::Domain;
use crate::memory::Memory;

/// Bytes of the source that [`BareRange::stream`] copies from: enough for every chunk, and always in the nearest cache.
pub const STREAM_SOURCE_BYTES: usize = 4096;

/// A range of a memory whose content may be read and, where the memory is writable, overwritten with anything.
#[derive(Debug)]
pub struct BareRange<'m> {
    /// Keeps the mapping alive.
    _memory: &'m Memory,
    base: *mut u8,
    bytes: u64,
    writable: bool,
    flush: FlushInstruction,
    stream: StreamInstruction,
    wide: bool,
}

impl<'m> BareRange<'m> {
    /// The `bytes` bytes at `at`. `None` when they are not inside a part, when `at` does not start a line, or when the
    /// memory is traced: the explorer must see every access. The range is writable in the `dax`, `dax-emulated` and
    /// `eadr` domains unless the memory is read-only. In the `eadr` domain lines are not flushed.
    #[must_use]
    pub fn new(memory: &'m Memory, at: PmAddr, bytes: u64) -> Option<Self> {
        let usable =
            memory.domain() != Domain::Traced && at.line().start() == at && bytes > 0 && memory.contains(at, bytes);
        let is_direct = memory.domain().has_dax_instructions() || memory.domain() == Domain::Eadr;
        let writable = is_direct && !memory.is_read_only();
        let (flush, stream) = memory.instructions();
        let flush = if memory.domain() == Domain::Eadr { FlushInstruction::None } else { flush };
        let wide = StreamInstruction::Avx512.is_supported();
        usable.then(|| {
            let base = memory.pointer(at, bytes);
            Self { _memory: memory, base, bytes, writable, flush, stream, wide }
        })
    }

    /// Bytes of the range.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    #[inline(always)]
    fn pointer(&self, offset: u64, bytes: u64) -> *mut u8 {
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        assert!(inside && (offset | bytes).is_multiple_of(WORD_BYTES), "whole words inside the range");
        assert!(bytes < LINE_BYTES || (offset | bytes).is_multiple_of(LINE_BYTES), "whole lines from a line's start");
        // SAFETY: the range was checked at construction and stays mapped; the offset is in it.
        unsafe { self.base.add(to_usize(offset)) }
    }

    /// Reads `bytes` bytes at `offset` and returns the word that was read last, mixed with the others.
    ///
    /// # Panics
    /// When the bytes are not inside the range, no whole words, or, from 64 on, no whole lines.
    #[inline(always)]
    #[must_use]
    pub fn read(&self, offset: u64, bytes: u64) -> u64 {
        let source = self.pointer(offset, bytes);
        if bytes >= LINE_BYTES {
            // SAFETY: `pointer` checked that these lines are in the range; `wide` was found by CPUID.
            return unsafe { kernels::load_lines(self.wide, source, to_usize(bytes / LINE_BYTES)) };
        }
        let mut mixed = 0;
        for word in 0..bytes / WORD_BYTES {
            // SAFETY: as above, for an aligned word; all code accesses words as atomics.
            let word = unsafe { AtomicU64::from_ptr(source.cast::<u64>().add(to_usize(word))) };
            mixed ^= word.load(Ordering::Relaxed);
        }
        mixed
    }

    /// Stores `value` all over the `bytes` bytes at `offset` and flushes each line after its stores. Fences at the end
    /// and, unless `fence_bytes` is 0, after every `fence_bytes` bytes.
    ///
    /// # Panics
    /// As [`read`](Self::read), and when the range is not writable.
    #[inline(always)]
    pub fn store_and_flush(&self, offset: u64, bytes: u64, fence_bytes: u64, value: u64) {
        assert!(self.writable, "the memory is read-only");
        let target = self.pointer(offset, bytes);
        if bytes < LINE_BYTES {
            self.store_words(target, bytes, value);
            // SAFETY: the line is inside the mapping, and the instruction was found by CPUID.
            unsafe { cpu::flush_line(self.flush, target) };
        } else {
            let lines_per_fence = if fence_bytes == 0 { u64::MAX } else { (fence_bytes / LINE_BYTES).max(1) };
            let lines = bytes / LINE_BYTES;
            for line in 1..=lines {
                // SAFETY: `pointer` checked all these lines; the instructions were found by CPUID.
                unsafe {
                    let place = target.add(to_usize((line - 1) * LINE_BYTES));
                    kernels::store_line(self.wide, place, value);
                    cpu::flush_line(self.flush, place);
                }
                if line % lines_per_fence == 0 && line < lines {
                    // The measurement asks for it: lines may not overtake those of the chunk before them.
                    cpu::store_fence();
                }
            }
        }
        // The write counts as done when all of its lines are on their way in order: no later access may be timed
        // before.
        cpu::store_fence();
    }

    #[inline(always)]
    fn store_words(&self, target: *mut u8, bytes: u64, value: u64) {
        for word in 0..bytes / WORD_BYTES {
            // SAFETY: the caller checked the range; all code accesses words as atomics.
            let word = unsafe { AtomicU64::from_ptr(target.cast::<u64>().add(to_usize(word))) };
            word.store(value, Ordering::Release);
        }
    }

    /// Streams `bytes` bytes to `offset` around the cache and fences at the end and, unless `fence_bytes` is 0, after
    /// every `fence_bytes` bytes. Below 64 bytes each word is a non-temporal store of its own.
    ///
    /// # Panics
    /// As [`read`](Self::read), when the range is not writable, and when `fence_bytes` is above
    /// [`STREAM_SOURCE_BYTES`] or no whole lines.
    #[inline(always)]
    pub fn stream(&self, offset: u64, bytes: u64, fence_bytes: u64, source: &[u8; STREAM_SOURCE_BYTES]) {
        assert!(self.writable, "the memory is read-only");
        let chunk = if fence_bytes == 0 { to_u64(STREAM_SOURCE_BYTES) } else { fence_bytes };
        assert!(chunk <= to_u64(STREAM_SOURCE_BYTES) && chunk.is_multiple_of(LINE_BYTES), "chunks of whole lines");
        let target = self.pointer(offset, bytes);
        if bytes < LINE_BYTES {
            for word in 0..bytes / WORD_BYTES {
                // SAFETY: `pointer` checked the range; the place is an aligned word.
                unsafe {
                    kernels::stream_word(self.flush, target.cast::<u64>().add(to_usize(word)), u64::from(source[0]))
                };
            }
        } else {
            let mut done = 0;
            while done < bytes {
                let step = chunk.min(bytes - done);
                self.stream_lines(target.wrapping_add(to_usize(done)), to_usize(step / LINE_BYTES), source);
                done += step;
                if fence_bytes != 0 && done < bytes {
                    // The measurement asks for it: lines may not overtake those of the chunk before them.
                    cpu::store_fence();
                }
            }
        }
        // As at the end of `store_and_flush`.
        cpu::store_fence();
    }

    #[inline(always)]
    fn stream_lines(&self, target: *mut u8, lines: usize, source: &[u8; STREAM_SOURCE_BYTES]) {
        // SAFETY: the caller checked the target's lines; the source holds at least as many bytes, and the instructions
        // were found by CPUID.
        unsafe {
            cpu::stream_lines(self.stream, target, source.as_ptr(), lines);
            if self.stream == StreamInstruction::Plain {
                for line in 0..lines {
                    cpu::flush_line(self.flush, target.add(line * to_usize(LINE_BYTES)));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Result;

    #[test]
    fn every_kernel_touches_exactly_its_bytes() -> Result<()> {
        let memory = Memory::anonymous(64 << 10)?;
        let range = BareRange::new(&memory, PmAddr::new(0, 4096), 32 << 10).expect("inside");
        let source = [0xAB; STREAM_SOURCE_BYTES];
        let word = |offset: u64| memory.load(PmAddr::new(0, 4096 + offset));
        for bytes in [8, 16, 32, 64, 256, 4096, 8192] {
            for fence_bytes in [0, 256] {
                for streamed in [false, true] {
                    memory.zero(PmAddr::new(0, 4096), 32 << 10);
                    if streamed {
                        range.stream(8192, bytes, fence_bytes, &source);
                    } else {
                        range.store_and_flush(8192, bytes, fence_bytes, u64::MAX);
                    }
                    let last = word(8192 + bytes - 8);
                    assert!(last != 0 && word(8192) != 0, "{bytes} {fence_bytes} {streamed}");
                    assert_eq!((word(8192 - 8), word(8192 + bytes)), (0, 0), "{bytes} {fence_bytes} {streamed}");
                }
                let _ = range.read(8192, bytes);
            }
        }
        assert_eq!(range.bytes(), 32 << 10);
        Ok(())
    }

    #[test]
    fn a_read_gives_what_it_read() -> Result<()> {
        let memory = Memory::anonymous(8192)?;
        let range = BareRange::new(&memory, PmAddr::new(0, 0), 8192).expect("inside");
        memory.store(PmAddr::new(0, 128), 7);
        assert_eq!(range.read(128, 8), 7);
        for word in 0..8 {
            memory.store(PmAddr::new(0, 192 + word * 8), 9);
        }
        assert_eq!(range.read(192, 64), 9, "the last line read");
        assert_eq!(range.read(128, 128), 9);
        Ok(())
    }

    #[test]
    fn what_is_no_measurable_range_is_refused() -> Result<()> {
        let memory = Memory::anonymous(8192)?;
        assert!(BareRange::new(&memory, PmAddr::new(0, 8), 64).is_none(), "not at a line");
        assert!(BareRange::new(&memory, PmAddr::new(0, 64), 8192).is_none(), "behind the end");
        assert!(BareRange::new(&memory, PmAddr::new(0, 64), 0).is_none(), "nothing");
        Ok(())
    }

    #[test]
    #[should_panic(expected = "inside the range")]
    fn an_access_behind_the_range_panics() {
        let memory = Memory::anonymous(8192).expect("memory");
        let range = BareRange::new(&memory, PmAddr::new(0, 0), 4096).expect("inside");
        let _ = range.read(4096, 64);
    }
}
