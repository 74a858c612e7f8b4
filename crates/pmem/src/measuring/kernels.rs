//! Loads, stores and streams of one size, as one instruction each: the parts of the kernels of a measurement.
#![expect(unsafe_code, reason = "the medium is measured by bare instructions")]

#[cfg(not(target_arch = "x86_64"))]
use std::sync::atomic::{AtomicU64, Ordering};

use crate::cpu::FlushInstruction;
#[cfg(not(target_arch = "x86_64"))]
use crate::cpu::flush_line;

/// Reads `lines` whole lines and returns a word of the last; `wide` with 64-byte loads.
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
            let word = unsafe { &*source.cast::<AtomicU64>().add(word) };
            last = std::hint::black_box(word.load(Ordering::Relaxed));
        }
        last
    }
}

/// Stores `value` eight times into the line at `target`; `wide` as one 64-byte store.
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
        let word = unsafe { &*target.cast::<AtomicU64>().add(word) };
        word.store(value, Ordering::Release);
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
        (*target.cast::<AtomicU64>()).store(value, Ordering::Release);
        flush_line(flush, target.cast());
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::asm;

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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::{StreamInstruction, store_fence, stream_lines};

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
            // The first line was stored word by word after the stream.
            let (stored, streamed) = target.0[..lines * 64].split_at(lines.min(1) * 64);
            assert!(stored.chunks(8).all(|word| word == 7_u64.to_le_bytes()) && streamed.iter().all(|byte| *byte == 7));
        }
    }
}
