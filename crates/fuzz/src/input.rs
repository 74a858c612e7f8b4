//! An input as decisions, and what a target saw.

use foldhash::HashSet;

/// Numbers near the limits of what they count.
const LIMITS: [u64; 12] =
    [1 << 62, (1 << 62) - 1, u64::MAX, u64::MAX - 63, 1 << 32, (1 << 32) - 1, 1 << 31, 1 << 16, 65_535, 255, 64, 63];

/// The bytes of an input. After its end every decision is 0.
#[derive(Clone, Debug)]
pub struct Input<'b>(&'b [u8]);

impl<'b> Input<'b> {
    /// An input of these bytes.
    #[must_use]
    pub const fn new(bytes: &'b [u8]) -> Self {
        Self(bytes)
    }

    /// Whether nothing is left to decide by.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A byte.
    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// Yes or no.
    pub fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// Yes in one of so many cases.
    pub fn once_in(&mut self, cases: u8) -> bool {
        self.byte().checked_rem(cases) == Some(1)
    }

    /// A number below `end`; 0 if there is none.
    pub fn below(&mut self, end: usize) -> usize {
        let number = if end > 256 { usize::from(self.short()) } else { usize::from(self.byte()) };
        number.checked_rem(end).unwrap_or(0)
    }

    /// Two bytes.
    pub fn short(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    /// A number: small, near a limit, or any.
    pub fn number(&mut self) -> u64 {
        match self.byte() {
            small @ 0..=199 => u64::from(small % 12),
            limit @ 200..=239 => LIMITS[usize::from(limit) % LIMITS.len()],
            _ => (0..8).fold(0, |number, _| number << 8 | u64::from(self.byte())),
        }
    }

    /// The same in four bytes.
    pub fn half(&mut self) -> u32 {
        let number = self.number();
        u32::try_from(number).unwrap_or(u32::MAX)
    }

    /// Up to `most` bytes.
    pub fn bytes(&mut self, most: usize) -> &'b [u8] {
        let length = self.below(most + 1).min(self.0.len());
        let (bytes, rest) = self.0.split_at(length);
        self.0 = rest;
        bytes
    }

    /// Everything that is left.
    pub fn rest(&mut self) -> &'b [u8] {
        std::mem::take(&mut self.0)
    }
}

/// Features that a target saw: inputs that show something new are kept.
#[derive(Clone, Debug, Default)]
pub struct Features(HashSet<u64>);

impl Features {
    /// Something of a kind was seen.
    pub fn saw(&mut self, kind: &str, value: u64) {
        let hash = kind
            .bytes()
            .fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3));
        self.0.insert((hash ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    }

    /// A count, by its number of binary digits.
    pub fn counted(&mut self, kind: &str, count: u64) {
        self.saw(kind, u64::from(64 - count.leading_zeros()));
    }

    /// Joins what another run saw. Whether there is something new in it.
    pub fn join(&mut self, other: &Self) -> bool {
        let before = self.0.len();
        self.0.extend(&other.0);
        self.0.len() > before
    }

    /// How many different things were seen.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing was seen.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
