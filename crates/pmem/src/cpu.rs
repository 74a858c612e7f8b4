//! The instructions that move cache lines towards the medium, chosen once by CPUID.
//!
//! Stable Rust has no intrinsics for `clwb`, `clflushopt` and `movdir64b`. Valgrind and older processors do not know
//! them. So each is a one-instruction `asm!`, used after a run-time check.
//!
//! Invariants:
//! - an instruction is executed only after [`FlushInstruction::detect`] or [`StreamInstruction::detect`] found it, or
//!   after a test asked for it by name and [`is_supported`](FlushInstruction::is_supported) agreed;
//! - every `asm!` block keeps its implicit memory clobber, so the compiler moves no store across it;
//! - every `asm!` block declares each register that it changes, at its full width. Those with AVX-512 use `zmm16`
//!   alone. No instruction of older extensions can name it, so a value left in it slows none of them down. No
//!   `vzeroupper`, which changes sixteen registers, has to follow.
#![expect(unsafe_code, reason = "cache-line write-back has no safe form on stable Rust")]

use crate::addr::LINE_BYTES;

/// How a line is written back to the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushInstruction {
    /// Writes the line back and may keep it cached.
    Clwb,
    /// Writes the line back and evicts it; unordered among other flushes.
    ClflushOpt,
    /// Writes the line back and evicts it; ordered, hence slow in a row.
    Clflush,
    /// This processor has none that we know; only domains without flushing can be opened.
    None,
}

impl FlushInstruction {
    /// The best instruction of this processor: clwb, else clflushopt, else clflush.
    #[must_use]
    pub fn detect() -> Self {
        [Self::Clwb, Self::ClflushOpt, Self::Clflush].into_iter().find(|i| i.is_supported()).unwrap_or(Self::None)
    }

    /// Whether this processor has the instruction.
    #[must_use]
    pub fn is_supported(self) -> bool {
        let leaf7 = x86::leaf7_ebx();
        match self {
            Self::Clwb => leaf7 & (1 << 24) != 0,
            Self::ClflushOpt => leaf7 & (1 << 23) != 0,
            Self::Clflush => x86::leaf1_edx() & (1 << 19) != 0,
            Self::None => true,
        }
    }
}

/// How bulk data is written around the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamInstruction {
    /// 64 bytes at a time with AVX-512 non-temporal stores.
    Avx512,
    /// 64 bytes at a time with one direct store.
    Movdir64b,
    /// 16 bytes at a time with SSE2 non-temporal stores.
    Sse2,
    /// Ordinary 8-byte stores; the caller flushes the lines.
    Plain,
}

impl StreamInstruction {
    /// The best instruction of this processor.
    #[must_use]
    pub fn detect() -> Self {
        [Self::Avx512, Self::Movdir64b, Self::Sse2].into_iter().find(|i| i.is_supported()).unwrap_or(Self::Plain)
    }

    /// Whether this processor (and, for AVX-512, the operating system) has the instruction.
    #[must_use]
    pub fn is_supported(self) -> bool {
        match self {
            Self::Avx512 => x86::has_avx512f(),
            Self::Movdir64b => x86::leaf7_ecx() & (1 << 28) != 0,
            Self::Sse2 => cfg!(target_arch = "x86_64"),
            Self::Plain => true,
        }
    }
}

/// Starts the write-back of the line at `line` with `instruction`.
///
/// # Safety
/// `line` points into a live mapping and this processor supports `instruction`.
#[inline(always)]
pub(crate) unsafe fn flush_line(instruction: FlushInstruction, line: *const u8) {
    // SAFETY: the caller guarantees the mapping and the instruction; a write-back changes no architectural state.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        use std::arch::asm;
        match instruction {
            FlushInstruction::Clwb => asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags)),
            FlushInstruction::ClflushOpt => asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags)),
            FlushInstruction::Clflush => asm!("clflush [{}]", in(reg) line, options(nostack, preserves_flags)),
            FlushInstruction::None => {}
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (instruction, line);
}

/// Asks for the line of `address` to be brought into the cache.
#[inline(always)]
pub(crate) fn prefetch(address: *const u8) {
    // SAFETY: a prefetch changes no architectural state and never faults, whatever the address.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!("prefetcht0 [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Tells the processor that the line where `value` begins, in ordinary memory, will be read soon: a hint without effect
/// on any value. For persistent memory there is [`Memory::prefetch`](crate::Memory::prefetch).
#[inline(always)]
pub fn prefetch_line<T>(value: &T) {
    prefetch(std::ptr::from_ref(value).cast());
}

/// Tells the processor that all lines of `value` will be read soon: for nodes in DRAM, which then cost one wait. A
/// hint.
#[inline(always)]
pub fn prefetch_value<T>(value: &T) {
    let start = std::ptr::from_ref(value).cast::<u8>();
    for offset in (0..size_of::<T>()).step_by(64) {
        prefetch(start.wrapping_add(offset));
    }
}

/// Orders everything this thread flushed or streamed before anything it stores after.
#[inline(always)]
pub(crate) fn store_fence() {
    // SAFETY: sfence has no operands and touches no memory of its own.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!("sfence", options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

/// Copies `lines` whole lines from `source` to `target` around the cache.
///
/// # Safety
/// `target` is 64-byte aligned. Both ranges of `lines * 64` bytes are live and do not overlap. `source` is not written
/// meanwhile. Every other access to `target` is atomic by word. This processor supports `instruction`.
#[inline(always)]
pub(crate) unsafe fn stream_lines(instruction: StreamInstruction, target: *mut u8, source: *const u8, lines: usize) {
    debug_assert_eq!(target as usize % LINE_BYTES as usize, 0);
    // SAFETY: the obligations are the caller's; each helper touches exactly the given lines.
    unsafe {
        match instruction {
            #[cfg(target_arch = "x86_64")]
            StreamInstruction::Avx512 => x86::stream_avx512(target, source, lines),
            #[cfg(target_arch = "x86_64")]
            StreamInstruction::Movdir64b => x86::stream_movdir64b(target, source, lines),
            #[cfg(target_arch = "x86_64")]
            StreamInstruction::Sse2 => x86::stream_sse2(target, source, lines),
            _ => {
                for word in 0..lines * 8 {
                    let value = source.cast::<u64>().add(word).read_unaligned();
                    std::sync::atomic::AtomicU64::from_ptr(target.cast::<u64>().add(word))
                        .store(value, std::sync::atomic::Ordering::Relaxed);
                }
            }
        }
    }
}

/// Reads `lines` whole lines and returns a word of the last; `wide` with 64-byte loads. For measuring a medium.
///
/// # Safety
/// The `lines * 64` bytes at `source` are live, 8-byte aligned, written by whole words only, `lines > 0`, and this
/// processor has AVX-512 when `wide`.
#[inline(always)]
pub(crate) unsafe fn load_lines(wide: bool, source: *const u8, lines: usize) -> u64 {
    // SAFETY: the obligations are the caller's; the helpers read exactly these lines.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        if wide { x86::load_avx512(source, lines) } else { x86::load_sse2(source, lines) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = wide;
        let mut last = 0;
        for word in 0..lines * 8 {
            // SAFETY: as above, word by word.
            let word = unsafe { &*source.cast::<std::sync::atomic::AtomicU64>().add(word) };
            last = std::hint::black_box(word.load(std::sync::atomic::Ordering::Relaxed));
        }
        last
    }
}

/// Stores `value` eight times into the line at `target`; `wide` as one 64-byte store. For measuring a medium.
///
/// # Safety
/// `target` starts a live line, all other access to it is atomic by word, and this processor has AVX-512 when `wide`.
#[inline(always)]
pub(crate) unsafe fn store_line(wide: bool, target: *mut u8, value: u64) {
    // SAFETY: the obligations are the caller's; the helpers write exactly this line.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        if wide { x86::store_avx512(target, value) } else { x86::store_sse2(target, value) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    for word in 0..8 {
        let _ = wide;
        // SAFETY: as above, word by word.
        let word = unsafe { &*target.cast::<std::sync::atomic::AtomicU64>().add(word) };
        word.store(value, std::sync::atomic::Ordering::Release);
    }
}

/// Stores one word around the cache; where there is no such instruction, stores and flushes it with `flush`.
///
/// # Safety
/// `target` is an aligned live word, all other access to it is atomic, and this processor supports `flush`.
#[inline(always)]
pub(crate) unsafe fn stream_word(flush: FlushInstruction, target: *mut u64, value: u64) {
    // SAFETY: the obligations are the caller's; movnti belongs to SSE2, which every x86-64 processor has.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        let _ = flush;
        std::arch::asm!("movnti [{}], {}", in(reg) target, in(reg) value, options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: as above.
    unsafe {
        (*target.cast::<std::sync::atomic::AtomicU64>()).store(value, std::sync::atomic::Ordering::Release);
        flush_line(flush, target.cast());
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::asm;
    use std::arch::x86_64::{__cpuid, __cpuid_count};

    pub(super) fn leaf1_edx() -> u32 {
        __cpuid(1).edx
    }

    pub(super) fn leaf7_ebx() -> u32 {
        if __cpuid(0).eax < 7 { 0 } else { __cpuid_count(7, 0).ebx }
    }

    pub(super) fn leaf7_ecx() -> u32 {
        if __cpuid(0).eax < 7 { 0 } else { __cpuid_count(7, 0).ecx }
    }

    pub(super) fn has_avx512f() -> bool {
        std::arch::is_x86_feature_detected!("avx512f")
    }

    #[inline(always)]
    pub(super) unsafe fn load_avx512(source: *const u8, lines: usize) -> u64 {
        let last: u64;
        // SAFETY: the caller of `load_lines` guarantees the range and the instruction; nothing is written.
        unsafe {
            asm!(
                "2:", "vmovdqu64 zmm16, [{s}]", "add {s}, 64", "dec {n}", "jnz 2b",
                "vmovq {last}, xmm16",
                n = inout(reg) lines => _, s = inout(reg) source => _, last = lateout(reg) last, out("zmm16") _,
                options(nostack)
            );
        }
        last
    }

    #[inline(always)]
    pub(super) unsafe fn load_sse2(source: *const u8, lines: usize) -> u64 {
        let last: u64;
        // SAFETY: as above, 16 bytes at a time.
        unsafe {
            asm!(
                "2:", "movdqu {a}, [{s}]", "movdqu {b}, [{s} + 16]", "movdqu {c}, [{s} + 32]", "movdqu {d}, [{s} + 48]",
                "add {s}, 64", "dec {n}", "jnz 2b", "movq {last}, {d}",
                n = inout(reg) lines => _, s = inout(reg) source => _, last = lateout(reg) last,
                a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,
                options(nostack)
            );
        }
        last
    }

    #[inline(always)]
    pub(super) unsafe fn store_avx512(target: *mut u8, value: u64) {
        // SAFETY: the caller of `store_line` guarantees the line and the instruction; aligned words are written whole.
        unsafe {
            asm!(
                "vpbroadcastq zmm16, {v}", "vmovdqu64 [{t}], zmm16",
                v = in(reg) value, t = in(reg) target, out("zmm16") _, options(nostack, preserves_flags)
            );
        }
    }

    #[inline(always)]
    pub(super) unsafe fn store_sse2(target: *mut u8, value: u64) {
        // SAFETY: as above, 16 bytes at a time.
        unsafe {
            asm!(
                "movq {x}, {v}", "punpcklqdq {x}, {x}",
                "movdqu [{t}], {x}", "movdqu [{t} + 16], {x}", "movdqu [{t} + 32], {x}", "movdqu [{t} + 48], {x}",
                v = in(reg) value, t = in(reg) target, x = out(xmm_reg) _, options(nostack, preserves_flags)
            );
        }
    }

    #[inline(always)]
    pub(super) unsafe fn stream_avx512(target: *mut u8, source: *const u8, lines: usize) {
        // SAFETY: the caller of `stream_lines` guarantees both ranges and the instruction. Each vector store writes
        // aligned 8-byte words whole, and the memory model of a pool asks for no more.
        unsafe {
            asm!(
                "test {n}, {n}", "jz 3f",
                "2:", "vmovdqu64 zmm16, [{s}]", "vmovntdq [{t}], zmm16", "add {s}, 64", "add {t}, 64", "dec {n}", "jnz 2b", "3:",
                n = inout(reg) lines => _, s = inout(reg) source => _, t = inout(reg) target => _, out("zmm16") _,
                options(nostack)
            );
        }
    }

    #[inline(always)]
    pub(super) unsafe fn stream_movdir64b(target: *mut u8, source: *const u8, lines: usize) {
        // SAFETY: as above; movdir64b reads 64 bytes at `s` and writes the aligned line at `t` in one transaction.
        unsafe {
            asm!(
                "test {n}, {n}", "jz 3f",
                "2:", "movdir64b {t}, [{s}]", "add {s}, 64", "add {t}, 64", "dec {n}", "jnz 2b", "3:",
                n = inout(reg) lines => _, s = inout(reg) source => _, t = inout(reg) target => _,
                options(nostack)
            );
        }
    }

    #[inline(always)]
    pub(super) unsafe fn stream_sse2(target: *mut u8, source: *const u8, lines: usize) {
        // SAFETY: as above, 16 bytes at a time.
        unsafe {
            asm!(
                "test {n}, {n}", "jz 3f",
                "2:", "movdqu {v}, [{s}]", "movntdq [{t}], {v}", "add {s}, 16", "add {t}, 16", "dec {n}", "jnz 2b", "3:",
                n = inout(reg) lines * 4 => _, s = inout(reg) source => _, t = inout(reg) target => _, v = out(xmm_reg) _,
                options(nostack)
            );
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod x86 {
    pub(super) fn leaf1_edx() -> u32 {
        0
    }
    pub(super) fn leaf7_ebx() -> u32 {
        0
    }
    pub(super) fn leaf7_ecx() -> u32 {
        0
    }
    pub(super) fn has_avx512f() -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(align(64))]
    struct Lines([u8; 256]);

    #[test]
    fn lines_are_stored_and_loaded_narrow_and_wide() {
        for wide in [false, true] {
            if wide && !StreamInstruction::Avx512.is_supported() {
                continue;
            }
            let mut target = Lines([0; 256]);
            // SAFETY: `Lines` is four aligned lines, and support was checked.
            unsafe {
                store_line(wide, target.0.as_mut_ptr().add(128), 0x0101_0101_0101_0101);
                assert_eq!(load_lines(wide, target.0.as_ptr(), 3), 0x0101_0101_0101_0101);
                assert_eq!(load_lines(wide, target.0.as_ptr(), 4), 0);
                stream_word(FlushInstruction::None, target.0.as_mut_ptr().cast(), 5);
            }
            store_fence();
            assert_eq!((target.0[0], target.0[127], target.0[128], target.0[191], target.0[192]), (5, 0, 1, 1, 0));
        }
    }

    /// Eight 32-byte values that are in registers while `lines` lines are streamed, read and written.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn values_across(lines: usize, target: &mut Lines, seed: i64) -> [[i64; 4]; 8] {
        use std::arch::x86_64::{__m256i, _mm256_add_epi64, _mm256_set_epi64x, _mm256_storeu_si256};
        let one: [i64; 4] = std::hint::black_box([1, 2, 3, 4]);
        let step = _mm256_set_epi64x(one[3], one[2], one[1], one[0]);
        let mut value = _mm256_set_epi64x(seed + 3, seed + 2, seed + 1, seed);
        let mut values: [__m256i; 8] = std::array::from_fn(|_| {
            value = _mm256_add_epi64(value, step);
            value
        });
        for value in &mut values {
            // SAFETY: no instruction. The value must be there now and cannot be computed later.
            unsafe { std::arch::asm!("/* {} */", inout(ymm_reg) * value, options(nostack, preserves_flags)) };
        }
        let source = Lines([7; 256]);
        // SAFETY: both ranges hold four lines, and `lines` is 0 where AVX-512 is missing: then no instruction of it is
        // executed.
        unsafe {
            stream_lines(StreamInstruction::Avx512, target.0.as_mut_ptr(), source.0.as_ptr(), lines);
            if lines > 0 {
                store_line(true, target.0.as_mut_ptr(), 7);
                std::hint::black_box(load_lines(true, target.0.as_ptr(), lines));
            }
        }
        store_fence();
        values.map(|value| {
            let mut words = [0; 4];
            // SAFETY: the array is as large as the register.
            unsafe { _mm256_storeu_si256(words.as_mut_ptr().cast(), value) };
            words
        })
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn registers_that_are_in_use_keep_their_upper_halves() {
        if !std::arch::is_x86_feature_detected!("avx2") {
            println!("skipped: this processor has no AVX2");
            return;
        }
        for lines in if StreamInstruction::Avx512.is_supported() { [0, 4] } else { [0, 0] } {
            let mut target = Lines([0; 256]);
            // SAFETY: AVX2 was found.
            let found = unsafe { values_across(lines, &mut target, std::hint::black_box(1000)) };
            for (index, words) in (1..).zip(found) {
                assert_eq!(
                    words,
                    [1000 + index, 1001 + 2 * index, 1002 + 3 * index, 1003 + 4 * index],
                    "value {index}"
                );
            }
            assert!(target.0[..lines * 64].iter().all(|byte| *byte == 7));
        }
    }

    #[test]
    fn every_supported_instruction_copies_and_flushes() {
        let source: Vec<u8> = (0..=255).collect();
        for instruction in
            [StreamInstruction::Avx512, StreamInstruction::Movdir64b, StreamInstruction::Sse2, StreamInstruction::Plain]
        {
            if !instruction.is_supported() {
                continue;
            }
            let mut target = Lines([0; 256]);
            // SAFETY: both ranges hold four lines, `Lines` is aligned, and support was checked.
            unsafe { stream_lines(instruction, target.0.as_mut_ptr(), source.as_ptr(), 4) };
            store_fence();
            assert_eq!(target.0[..], source[..], "{instruction:?}");
            for flush in [FlushInstruction::Clwb, FlushInstruction::ClflushOpt, FlushInstruction::Clflush] {
                if flush.is_supported() {
                    // SAFETY: the line is live and support was checked.
                    unsafe { flush_line(flush, target.0.as_ptr()) };
                }
            }
        }
    }
}
