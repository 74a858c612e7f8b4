//! CRC-32C of whole words. A transaction checks only a handful of words, so the cost of the call matters, not
//! throughput.
#![expect(unsafe_code, reason = "the CRC instruction after a run-time check")]

use lodestone_width::exact_u32;
use zerocopy::IntoBytes;

/// Continues the CRC-32C `crc` with the bytes of the words of `header` and of `rest`.
#[must_use]
#[inline]
pub fn append<const N: usize>(crc: u32, header: [u64; N], rest: &[u64]) -> u32 {
    // Long payloads go three streams at a time.
    #[cfg(target_arch = "x86_64")]
    if rest.len() <= 64 && std::arch::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has the instruction.
        return unsafe { append_sse42(crc, header, rest) };
    }
    crc32c::crc32c_append(crc32c::crc32c_append(crc, header.as_bytes()), rest.as_bytes())
}

/// # Safety
/// The processor has SSE 4.2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
unsafe fn append_sse42<const N: usize>(crc: u32, header: [u64; N], rest: &[u64]) -> u32 {
    let state = header.iter().chain(rest).fold(u64::from(!crc), |state, word| {
        // No bounds, no branches: one instruction a word.
        std::arch::x86_64::_mm_crc32_u64(state, *word)
    });
    !exact_u32(state)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_crc_of_the_bytes() {
        let words: Vec<u64> = (0..100_u64).map(|n| n.wrapping_mul(0x9E37_79B9_7F4A_7C15)).collect();
        for len in 0..words.len() {
            let whole = crc32c::crc32c_append(77, words[..len].as_bytes());
            assert_eq!(append(77, [], &words[..len]), whole, "{len} words");
            if let Some((header, rest)) = words[..len].split_first_chunk::<3>() {
                assert_eq!(append(77, *header, rest), whole, "{len} words, three of them the header");
            }
        }
    }
}
