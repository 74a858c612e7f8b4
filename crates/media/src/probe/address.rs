//! The order of blocks: sequential, or by a permutation in which every block comes once before any comes again.
//!
//! The permutation is a bijection on the `bits` bits of a block's number. It is computed, not stored: two rounds of an
//! odd multiplication (modulo a power of two) and a xor with its own upper half. It needs a few instructions and no
//! memory, so the figure is that of the medium and not of a table of addresses. No prefetcher can follow it.

/// Odd multipliers with bits in all positions (from splitmix64's finaliser and the golden ratio).
const MULTIPLIERS: [u64; 2] = [0xBF58_476D_1CE4_E5B9, 0x9E37_79B9_7F4A_7C15];

/// A walk over the blocks of a slice.
#[derive(Clone, Copy, Debug)]
pub struct Walk {
    base: u64,
    block_bytes: u64,
    mask: u64,
    shift: u32,
    start: u64,
}

impl Walk {
    /// A walk over the blocks of `block_bytes` in `slice_bytes` from `base` on. The number of blocks is the largest
    /// power of two that fits; `None` if not even one does. `seed` chooses the start of the walk.
    #[must_use]
    pub fn new(base: u64, slice_bytes: u64, block_bytes: u64, seed: u64) -> Option<Self> {
        let blocks = slice_bytes.checked_div(block_bytes).filter(|blocks| *blocks > 0)?;
        let bits = blocks.ilog2();
        let mask = (1 << bits) - 1;
        Some(Self { base, block_bytes, mask, shift: (bits / 2).max(1), start: seed & mask })
    }

    /// Number of blocks: a power of two.
    #[cfg(test)]
    fn blocks(&self) -> u64 {
        self.mask + 1
    }

    /// Offset of block number `step` in sequential order.
    #[inline(always)]
    #[must_use]
    pub fn sequential(&self, step: u64) -> u64 {
        self.base + ((self.start + step) & self.mask) * self.block_bytes
    }

    /// Offset of block number `step` of the permutation.
    #[inline(always)]
    #[must_use]
    pub fn random(&self, step: u64) -> u64 {
        let mut number = (self.start + step) & self.mask;
        for multiplier in MULTIPLIERS {
            number = number.wrapping_mul(multiplier) & self.mask;
            number ^= number >> self.shift;
        }
        self.base + number * self.block_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_comes_exactly_once() {
        for blocks in [1_u64, 2, 4, 8, 1024, 1 << 16] {
            for seed in [0, 77] {
                let walk = Walk::new(4096, blocks * 64 + 63, 64, seed).expect("blocks");
                assert_eq!(walk.blocks(), blocks);
                for order in [Walk::sequential as fn(&Walk, u64) -> u64, Walk::random] {
                    let mut seen: Vec<u64> = (0..blocks).map(|step| order(&walk, step)).collect();
                    assert!(seen.iter().all(|offset| (offset - 4096) % 64 == 0));
                    seen.sort_unstable();
                    seen.dedup();
                    assert_eq!(seen.len() as u64, blocks);
                    assert_eq!((seen[0], seen[seen.len() - 1]), (4096, 4096 + (blocks - 1) * 64));
                }
            }
        }
    }

    #[test]
    fn the_permutation_has_no_stride() {
        let walk = Walk::new(0, 1 << 20, 64, 0).expect("blocks");
        let steps: Vec<u64> = (0..1000).map(|step| walk.random(step + 1).wrapping_sub(walk.random(step))).collect();
        let mut distinct = steps.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert!(distinct.len() > 20, "neighbours in time have {} distances", distinct.len());
        assert!(steps.iter().filter(|step| **step == 64).count() < 10);
    }

    #[test]
    fn a_slice_too_short_for_one_block_is_none() {
        assert!(Walk::new(0, 63, 64, 0).is_none());
        assert!(Walk::new(0, 64, 0, 0).is_none());
        assert_eq!(Walk::new(0, 3 * 64, 64, 0).map(|walk| walk.blocks()), Some(2));
    }
}
