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

use std::sync::Weak;

use lodestone_width::to_usize;

use crate::addr::LINE_BYTES;

/// How a line is written back to the medium.
///
/// ```
/// # use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.pool");
/// # let options = PoolOptions { domain: DomainChoice::Process, size_bytes: 16 << 20, ..PoolOptions::default() };
/// let info = Pool::create(&path, &options)?.info();
/// println!("lines are written back by {:?}", info.flush_instruction);
/// # Ok::<(), lodestone_pmem::Error>(())
/// ```
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
///
/// ```
/// # use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.pool");
/// # let options = PoolOptions { domain: DomainChoice::Process, size_bytes: 16 << 20, ..PoolOptions::default() };
/// let info = Pool::create(&path, &options)?.info();
/// println!("bulk data goes around the cache by {:?}", info.stream_instruction);
/// # Ok::<(), lodestone_pmem::Error>(())
/// ```
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
    prefetch_lines(std::ptr::from_ref(value));
}

/// As [`prefetch_value`], for a value that may have no owner any more: without looking at it.
#[inline(always)]
pub fn prefetch_weak<T>(value: &Weak<T>) {
    prefetch_lines(value.as_ptr());
}

#[inline(always)]
fn prefetch_lines<T>(value: *const T) {
    for offset in (0..size_of::<T>()).step_by(64) {
        prefetch(value.cast::<u8>().wrapping_add(offset));
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
    debug_assert_eq!(target.addr() % to_usize(LINE_BYTES), 0);
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
