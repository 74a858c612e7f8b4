//! Random numbers with a stream that never changes: the same seed draws the same workload on every machine and in
//! every release.
//!
//! Algorithm: xoshiro256++ (Blackman and Vigna). Its four words are filled by splitmix64 from the seed and a stream
//! number, so that every thread of a run has its own stream.
//!
//! Invariants:
//! - The state is never all zero: splitmix64 is a bijection on its counter, so four draws cannot all be zero.
//! - No platform type and no floating-point rounding mode enters the integer stream.

/// A small, fast, seedable generator; not for secrets.
#[derive(Debug, Clone)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    /// The stream number 0 of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self::for_stream(seed, 0)
    }

    /// One of many independent streams of `seed`, for example one per thread.
    #[must_use]
    pub fn for_stream(seed: u64, stream: u64) -> Self {
        let mut counter = seed ^ mix64(stream.wrapping_mul(GOLDEN));
        let mut next = || {
            counter = counter.wrapping_add(GOLDEN);
            mix64(counter)
        };
        Self { state: [next(), next(), next(), next()] }
    }

    /// The next 64 random bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let state = &mut self.state;
        let result = state[0].wrapping_add(state[3]).rotate_left(23).wrapping_add(state[0]);
        let shifted = state[1] << 17;
        state[2] ^= state[0];
        state[3] ^= state[1];
        state[1] ^= state[2];
        state[0] ^= state[3];
        state[2] ^= shifted;
        state[3] = state[3].rotate_left(45);
        result
    }

    /// A number in `[0, 1)` with 53 random bits.
    #[inline]
    pub fn next_fraction(&mut self) -> f64 {
        // 53 bits fit the mantissa, so the conversion is exact.
        (self.next_u64() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
    }

    /// A number in `[0, bound)`; 0 if `bound` is 0. The bias of the multiply-shift method is below `bound / 2^64`.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        let product = u128::from(self.next_u64()) * u128::from(bound);
        (product >> 64) as u64
    }
}

/// 2^64 divided by the golden ratio, made odd: the increment of splitmix64.
pub(crate) const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// The finalizer of splitmix64: a bijection on 64-bit words that spreads neighbours far apart.
#[inline]
#[must_use]
pub fn mix64(word: u64) -> u64 {
    let mut mixed = word;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// The inverse of [`mix64`].
#[inline]
#[must_use]
pub fn unmix64(word: u64) -> u64 {
    // Multiplicative inverses modulo 2^64 of the two factors of `mix64`, in reverse order.
    let mut plain = word;
    plain ^= (plain >> 31) ^ (plain >> 62);
    plain = plain.wrapping_mul(0x3196_42B2_D24D_8EC3);
    plain ^= (plain >> 27) ^ (plain >> 54);
    plain = plain.wrapping_mul(0x96DE_1B17_3F11_9089);
    plain ^ (plain >> 30) ^ (plain >> 60)
}

/// A hash of bytes: word after word through [`mix64`], the length first. Stable, quick for short keys, not for secrets.
#[inline]
#[must_use]
pub fn hash_bytes(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut hash = (bytes.len() as u64).wrapping_mul(GOLDEN);
    for word in words {
        hash = mix64(hash ^ u64::from_le_bytes(*word)).wrapping_add(GOLDEN);
    }
    if rest.is_empty() {
        return hash;
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    mix64(hash ^ u64::from_le_bytes(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_of_a_seed_is_fixed_for_all_time() {
        let mut random = Random::new(42);
        let drawn: Vec<u64> = (0..4).map(|_| random.next_u64()).collect();
        // Reference: xoshiro256++ of the published C code, state from four splitmix64 draws of seed 42.
        assert_eq!(
            drawn,
            [
                15_021_278_609_987_233_951,
                5_881_210_131_331_364_753,
                18_149_643_915_985_481_100,
                12_933_668_939_759_105_464
            ]
        );
    }

    #[test]
    fn streams_differ_and_repeat() {
        let draw = |stream| Random::for_stream(7, stream).next_u64();
        assert_eq!(draw(3), draw(3));
        assert_ne!(draw(3), draw(4));
    }

    #[test]
    fn fractions_and_bounds_stay_inside_and_cover() {
        let mut random = Random::new(1);
        let mut seen = [0_u32; 10];
        let mut sum = 0.0;
        for _ in 0..100_000 {
            let fraction = random.next_fraction();
            assert!((0.0..1.0).contains(&fraction));
            sum += fraction;
            seen[usize::try_from(random.below(10)).unwrap()] += 1;
        }
        assert!((sum / 100_000.0 - 0.5).abs() < 0.005);
        assert!(seen.iter().all(|count| (9_500..10_500).contains(count)), "{seen:?}");
        assert_eq!(random.below(0), 0);
    }

    #[test]
    fn mixing_is_undone() {
        let mut random = Random::new(9);
        for _ in 0..10_000 {
            let word = random.next_u64();
            assert_eq!(unmix64(mix64(word)), word);
            assert_eq!(mix64(unmix64(word)), word);
        }
    }

    #[test]
    fn hashes_tell_bytes_and_lengths_apart() {
        let mut seen = std::collections::HashSet::new();
        for length in 0..40 {
            assert!(seen.insert(hash_bytes(&vec![0; length])), "{length}");
            for bit in 0..length * 8 {
                let mut bytes = vec![0; length];
                bytes[bit / 8] |= 1 << (bit % 8);
                assert!(seen.insert(hash_bytes(&bytes)), "{length} {bit}");
            }
        }
    }
}
