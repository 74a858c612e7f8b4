//! The hash of keys. It decides the place of entries in the pool, so it is part of the format (`docs/format.md`).
//!
//! Words of eight bytes (the last one filled with zeroes) are mixed one after the other into a state that begins with
//! the length. A step multiplies to 128 bits and folds the halves together. The spread is good. There is no protection
//! against keys that were made to collide. Those cost time (overflow pages), never correctness.

use lodestone_width::{product, to_u64};

/// See the module.
#[derive(Debug)]
pub struct Hasher;

const SEED: u64 = 0x9E37_79B9_7F4A_7C15;
const FACTOR: u64 = 0xD6E8_FEB8_6659_FD93;

const fn mix(state: u64, word: u64) -> u64 {
    let (low, high) = product(state ^ word, FACTOR);
    low ^ high
}

impl Hasher {
    /// The hash of `bytes`.
    pub fn of(bytes: &[u8]) -> u64 {
        let mut state = SEED ^ to_u64(bytes.len()).wrapping_mul(FACTOR);
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            state = mix(state, u64::from_le_bytes(word)).wrapping_add(SEED);
        }
        mix(state, !SEED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_never_changes() {
        // The places of entries in pools depend on these numbers.
        let of = |bytes: &[u8]| format!("{:016x}", Hasher::of(bytes));
        assert_eq!([of(b""), of(b"a"), of(b"lodestone"), of(&1_u64.to_le_bytes())], KNOWN);
    }

    const KNOWN: [&str; 4] = ["ffffffffffffffff", "d44aea6c44fc8b82", "c3c9ae30fb33cb96", "4aae9c5051370a91"];

    #[test]
    fn low_and_high_bits_are_spread() {
        for shift in [0, 6, 30, 54] {
            let mut counts = [0_u32; 64];
            (0..64_000_u64).for_each(|key| counts[(Hasher::of(&key.to_le_bytes()) >> shift) as usize & 63] += 1);
            assert!(counts.iter().all(|&count| (800..1200).contains(&count)), "shift {shift}: {counts:?}");
        }
    }
}
