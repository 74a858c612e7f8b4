//! The bare instructions on the same memory, for one purpose: to measure the cost of the primitives beside them.
//!
//! Nothing here is counted, traced or checked per call. The range is checked once. Do not write data with it: the
//! stores go to a scratch range whose content is lost.
#![expect(unsafe_code, reason = "the comparison is with unchecked instructions")]

use lodestone_width::{to_u64, to_usize};

use crate::addr::{LINE_BYTES, PmAddr};
use crate::cpu::{self, FlushInstruction, StreamInstruction};
use crate::memory::Memory;

/// A scratch range of lines in a memory of the `dax` or `dax-emulated` domain.
#[derive(Debug)]
pub struct BareLines<'m> {
    /// Keeps the mapping alive.
    _memory: &'m Memory,
    base: *mut u8,
    lines: u64,
    flush: FlushInstruction,
    stream: StreamInstruction,
}

impl<'m> BareLines<'m> {
    /// The `lines` lines at `at`. `None` when they are not inside a part, are no power of two, or `at` does not start a
    /// line. `None` too outside the `dax` and `dax-emulated` domains, where the primitives use other instructions.
    #[must_use]
    pub fn new(memory: &'m Memory, at: PmAddr, lines: u64) -> Option<Self> {
        // A length that wraps would pass for a short one.
        let bytes = lines.checked_mul(LINE_BYTES)?;
        let usable = memory.domain().has_dax_instructions()
            && !memory.is_read_only()
            && at.line().start() == at
            && lines.is_power_of_two()
            && memory.contains(at, bytes);
        let (flush, stream) = memory.instructions();
        usable.then(|| {
            let base = memory.pointer(at, bytes);
            Self { _memory: memory, base, lines, flush, stream }
        })
    }

    /// Stores eight words to line `line` (modulo the range), flushes it and fences.
    #[inline(always)]
    pub fn persist_line(&self, line: u64, words: &[u64; 8]) {
        // SAFETY: the line is taken modulo the range. The range was checked at construction and stays mapped while the
        // memory is borrowed. Words are written as atomics, so racing readers see whole words.
        unsafe {
            let target = self.base.add(to_usize((line & (self.lines - 1)) * LINE_BYTES));
            for (index, word) in words.iter().enumerate() {
                let word_pointer = target.cast::<u64>().add(index);
                std::sync::atomic::AtomicU64::from_ptr(word_pointer).store(*word, std::sync::atomic::Ordering::Release);
            }
            cpu::flush_line(self.flush, target);
        }
        cpu::store_fence();
    }

    /// Streams `source` (whole lines) to the lines from `line` on and fences. Starts over at line 0 when the rest of
    /// the range is too short.
    ///
    /// # Panics
    /// When `source` is longer than the range or no multiple of 64 bytes.
    #[inline(always)]
    pub fn stream(&self, line: u64, source: &[u8]) {
        let count = to_u64(source.len()) / LINE_BYTES;
        assert!(to_u64(source.len()) == count * LINE_BYTES && count <= self.lines, "whole lines that fit");
        let line = if line <= self.lines - count { line } else { 0 };
        // SAFETY: `line + count <= lines`, so the target is in the checked range. The source is a live slice. The
        // instruction was checked when the memory chose it.
        unsafe {
            let target = self.base.add(to_usize(line * LINE_BYTES));
            cpu::stream_lines(self.stream, target, source.as_ptr(), to_usize(count));
        }
        cpu::store_fence();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Result;

    #[test]
    fn bare_lines_write_what_the_primitives_read() -> Result<()> {
        let memory = Memory::anonymous(8192)?;
        assert!(BareLines::new(&memory, PmAddr::new(0, 8), 1).is_none());
        assert!(BareLines::new(&memory, PmAddr::new(0, 4096), 65).is_none());
        // Their bytes would wrap to none, which are inside every part.
        assert!(BareLines::new(&memory, PmAddr::new(0, 4096), 1 << 58).is_none());
        assert!(BareLines::new(&memory, PmAddr::new(0, 4096), 1 << 63).is_none());
        let bare = BareLines::new(&memory, PmAddr::new(0, 4096), 64).expect("inside");
        bare.persist_line(65, &[1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(memory.load(PmAddr::new(0, 4096 + 64 + 56)), 8);
        bare.stream(0, &[0xAB; 128]);
        assert_eq!(memory.load(PmAddr::new(0, 4096 + 64)), 0xABAB_ABAB_ABAB_ABAB);
        Ok(())
    }
}
