//! CRC-32C of whole words: a handful of them per transaction, so the call counts, not the throughput.
#![expect(unsafe_code, reason = "the CRC instruction behind a run-time check")]

use zerocopy::IntoBytes;

/// Continues the CRC-32C `crc` with the bytes of `words`.
#[must_use]
#[inline]
pub fn append(crc: u32, words: &[u64]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has the instruction.
        return unsafe { append_sse42(crc, words) };
    }
    crc32c::crc32c_append(crc, words.as_bytes())
}

/// # Safety
/// The processor has SSE 4.2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
unsafe fn append_sse42(crc: u32, words: &[u64]) -> u32 {
    let mut state = u64::from(!crc);
    // Long payloads go three streams at a time.
    if words.len() > 64 {
        return crc32c::crc32c_append(crc, words.as_bytes());
    }
    for word in words {
        state = std::arch::x86_64::_mm_crc32_u64(state, *word);
    }
    !(state as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_crc_of_the_bytes() {
        let words: Vec<u64> = (0..100_u64).map(|n| n.wrapping_mul(0x9E37_79B9_7F4A_7C15)).collect();
        for len in 0..words.len() {
            assert_eq!(append(77, &words[..len]), crc32c::crc32c_append(77, words[..len].as_bytes()), "{len} words");
        }
    }
}
