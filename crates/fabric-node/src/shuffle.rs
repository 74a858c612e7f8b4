//! Random numbers with a stable stream for each seed.

/// The stream.
#[derive(Clone, Debug)]
pub struct Shuffle(u64);

impl Shuffle {
    /// The stream of a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed ^ 0x9E37_79B9_7F4A_7C15)
    }

    /// The next word.
    pub const fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ (word >> 31)
    }

    /// A number below `end`, which is not 0.
    pub const fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Whether something happens that does so in `share` of 10,000 cases.
    pub fn happens(&mut self, share: u32) -> bool {
        self.below(10_000) < u64::from(share)
    }
}
