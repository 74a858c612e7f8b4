//! Conversions between the widths of integers, on processors of 64 bits.
//!
//! Places on the medium are 64 bits wide, and places in memory are a `usize`. The standard library converts between
//! the two only by functions that can fail, because other processors have other widths. Lodestone runs on processors
//! of 64 bits only, which this crate asserts when it is compiled. So a conversion here costs nothing and cannot fail.
//!
//! The crates above use no bare `as`. Its reader cannot see whether a cast widens, drops bits on purpose, or drops
//! them by mistake. Each function here is one of the three:
//!
//! - [`to_u64`], [`to_usize`], [`const_usize`] widen, or keep the width. So do [`u32_to_u64`], [`u16_to_u64`] and
//!   [`u8_to_u64`] in constant functions.
//! - [`low_u64`], [`low_u32`], [`low_u16`], [`low_u8`] drop the upper bits on purpose.
//! - [`exact_u32`], [`exact_u16`], [`exact_u8`] narrow a value that the caller knows to fit. Debug builds check it.
//!
//! [`nearest_f64`] and [`whole_u64`] are for ratios and figures. [`product`] multiplies without loss.
//!
//! ```
//! use lodestone_width::{exact_u32, low_u8, to_u64, to_usize};
//!
//! let names = ["ash", "beech"];
//! let bytes_on_medium: u64 = 8 + to_u64(names.len());
//! assert_eq!(names[to_usize(bytes_on_medium - 9)], "beech");
//! assert_eq!(exact_u32(names.len()), 2);
//! assert_eq!(low_u8(0x1234), 0x34);
//! ```

const _: () = assert!(usize::BITS == 64, "Lodestone needs a processor of 64 bits");

mod sealed {
    pub trait Wide: Copy {
        fn to_word(self) -> u64;
    }

    impl Wide for u64 {
        #[inline(always)]
        fn to_word(self) -> u64 {
            self
        }
    }

    impl Wide for usize {
        #[inline(always)]
        fn to_word(self) -> u64 {
            super::to_u64(self)
        }
    }

    impl Wide for u32 {
        #[inline(always)]
        fn to_word(self) -> u64 {
            self.into()
        }
    }
}

/// A number that [`exact_u32`] and its siblings narrow: `usize`, `u64` or `u32`.
pub trait Wide: sealed::Wide {}

impl<N: sealed::Wide> Wide for N {}

/// The same number as a word of the medium.
#[must_use]
#[inline(always)]
pub const fn to_u64(number: usize) -> u64 {
    number as u64
}

/// The same number as a word of the medium, for constant functions. Others use `u64::from`.
#[must_use]
#[inline(always)]
pub const fn u32_to_u64(number: u32) -> u64 {
    number as u64
}

/// As [`u32_to_u64`], for 16 bits.
#[must_use]
#[inline(always)]
pub const fn u16_to_u64(number: u16) -> u64 {
    number as u64
}

/// As [`u32_to_u64`], for 8 bits.
#[must_use]
#[inline(always)]
pub const fn u8_to_u64(number: u8) -> u64 {
    number as u64
}

/// The same number as an index or a length in memory.
#[must_use]
#[inline(always)]
pub fn to_usize(number: impl Into<u64>) -> usize {
    const_usize(number.into())
}

/// As [`to_usize`], for constants.
#[must_use]
#[inline(always)]
pub const fn const_usize(number: u64) -> usize {
    number as usize
}

/// The low 64 bits.
#[must_use]
#[inline(always)]
pub const fn low_u64(number: u128) -> u64 {
    number as u64
}

/// The product of two words: its low word and its high word.
#[must_use]
#[inline(always)]
pub const fn product(left: u64, right: u64) -> (u64, u64) {
    let product = left as u128 * right as u128;
    (low_u64(product), low_u64(product >> 64))
}

/// The low 32 bits.
#[must_use]
#[inline(always)]
pub const fn low_u32(number: u64) -> u32 {
    number as u32
}

/// The low 16 bits.
#[must_use]
#[inline(always)]
pub const fn low_u16(number: u64) -> u16 {
    number as u16
}

/// The low 8 bits.
#[must_use]
#[inline(always)]
pub const fn low_u8(number: u64) -> u8 {
    number as u8
}

/// The same number in 32 bits.
///
/// # Panics
/// In debug builds when it does not fit. Other builds drop its upper bits.
#[must_use]
#[inline(always)]
pub fn exact_u32(number: impl Wide) -> u32 {
    debug_assert!(number.to_word() <= u32::MAX.into(), "{} needs more than 32 bits", number.to_word());
    low_u32(number.to_word())
}

/// The same number in 16 bits.
///
/// # Panics
/// In debug builds when it does not fit. Other builds drop its upper bits.
#[must_use]
#[inline(always)]
pub fn exact_u16(number: impl Wide) -> u16 {
    debug_assert!(number.to_word() <= u16::MAX.into(), "{} needs more than 16 bits", number.to_word());
    low_u16(number.to_word())
}

/// The same number in 8 bits.
///
/// # Panics
/// In debug builds when it does not fit. Other builds drop its upper bits.
#[must_use]
#[inline(always)]
pub fn exact_u8(number: impl Wide) -> u8 {
    debug_assert!(number.to_word() <= u8::MAX.into(), "{} needs more than 8 bits", number.to_word());
    low_u8(number.to_word())
}

/// The nearest floating-point number, for ratios and figures.
#[must_use]
#[inline]
pub const fn nearest_f64(number: u64) -> f64 {
    number as f64
}

/// The whole part of a number: 0 when it is negative or none, the largest word when it is larger.
#[must_use]
#[inline]
pub const fn whole_u64(number: f64) -> u64 {
    number as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_their_value_at_both_ends_of_their_range() {
        assert_eq!((to_u64(usize::MAX), to_usize(u64::MAX)), (u64::MAX, usize::MAX));
        assert_eq!((to_usize(u32::MAX), to_usize(u8::MAX)), (0xFFFF_FFFF, 255));
        assert_eq!((u32_to_u64(u32::MAX), u16_to_u64(u16::MAX), u8_to_u64(u8::MAX)), (0xFFFF_FFFF, 0xFFFF, 255));
        assert_eq!((exact_u32(0xFFFF_FFFF_usize), exact_u16(0xFFFF_u64), exact_u8(255_u32)), (u32::MAX, u16::MAX, 255));
        assert_eq!((low_u32(u64::MAX << 4), low_u16(0x12345), low_u8(0x1FF)), (0xFFFF_FFF0, 0x2345, 0xFF));
    }

    #[test]
    fn a_product_keeps_both_words_and_a_figure_its_whole_part() {
        assert_eq!(product(u64::MAX, u64::MAX), (1, u64::MAX - 1));
        assert_eq!(low_u64(1 << 64 | 7), 7);
        assert_eq!((whole_u64(2.9), whole_u64(-1.0), whole_u64(f64::NAN), whole_u64(1e30)), (2, 0, 0, u64::MAX));
        assert_eq!(nearest_f64(1 << 60), 2_f64.powi(60));
    }

    #[test]
    #[cfg(debug_assertions)]
    fn a_number_that_does_not_fit_is_noticed() {
        let caught = |narrow: fn()| std::panic::catch_unwind(narrow).is_err();
        assert!(caught(|| _ = std::hint::black_box(exact_u32(1_u64 << 32))));
        assert!(caught(|| _ = std::hint::black_box(exact_u16(1_usize << 16))));
        assert!(caught(|| _ = std::hint::black_box(exact_u8(256_u32))));
    }
}
