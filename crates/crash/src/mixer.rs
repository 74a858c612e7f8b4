//! A fast 128-bit hash of states, to recognize those that were judged.
//!
//! Two independent multiply-and-rotate lanes over 64-bit words. It does not resist adversaries. Among a billion states
//! two would collide with a probability of about 2^-68, and the same run always hashes the same way.

use std::hash::Hasher;

/// Hashes into 128 bits.
pub(crate) struct Mixer {
    lanes: [u64; 2],
}

const FACTORS: [u64; 2] = [0x9E37_79B9_7F4A_7C15, 0xD6E8_FEB8_6659_FD93];

impl Mixer {
    pub(crate) fn new() -> Self {
        Self { lanes: [0x243F_6A88_85A3_08D3, 0x1319_8A2E_0370_7344] }
    }

    /// All 128 bits.
    pub(crate) fn wide(&self) -> u128 {
        let finish = |lane: u64, factor: u64| {
            let mixed = (lane ^ (lane >> 32)).wrapping_mul(factor);
            mixed ^ (mixed >> 29)
        };
        u128::from(finish(self.lanes[0], FACTORS[1])) << 64 | u128::from(finish(self.lanes[1], FACTORS[0]))
    }
}

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.wide() as u64
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
        self.write_u64(bytes.len() as u64);
    }

    fn write_u64(&mut self, word: u64) {
        self.lanes[0] = (self.lanes[0].rotate_left(23) ^ word).wrapping_mul(FACTORS[0]);
        self.lanes[1] = (self.lanes[1].rotate_left(41) ^ word.rotate_left(32)).wrapping_mul(FACTORS[1]);
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    fn write_u8(&mut self, word: u8) {
        self.write_u64(u64::from(word));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::hash::Hash;

    use super::*;

    #[test]
    fn neighbours_differ_in_both_halves() {
        let mut seen = HashSet::new();
        for line in 0..64_u64 {
            for word in 0..8 {
                for value in 0..64_u64 {
                    let mut content = [0_u64; 8];
                    content[word] = value + 1;
                    let mut mixer = Mixer::new();
                    (line, content).hash(&mut mixer);
                    let wide = mixer.wide();
                    assert!(seen.insert((wide >> 64) as u64) && seen.insert(wide as u64), "{line} {word} {value}");
                }
            }
        }
    }
}
