//! A check of words that costs a multiplication per two words.
//!
//! For lines that are verified at every read: a checksum by table or by the processor's CRC takes several times as long
//! as reading the line from the cache. A changed word goes unnoticed with a probability of 2 to the power of minus the
//! bits kept.

use lodestone_width::product;

/// Folds the 128-bit product of `left` and `right`, each first mixed with a constant.
#[inline]
pub(crate) const fn fold(left: u64, right: u64) -> u64 {
    let (low, high) = product(left ^ 0x9E37_79B9_7F4A_7C15, right ^ 0xD6E8_FEB8_6659_FD93);
    low ^ high
}
