//! The random values of clauses 2.1.6 and 4.3.2.

use crate::random::Random;

/// The constants of `NURand` while the tables are loaded, by A: 255, 1,023, 8,191.
pub(super) const LOAD: Constants = Constants { c_last: 157, c_id: 867, i_id: 3_849 };
/// The constants of a run. Clause 2.1.6.1: the two of the last names differ by 65 to 119, but not by 96 or 112.
pub(super) const RUN: Constants = Constants { c_last: 223, c_id: 259, i_id: 7_911 };

#[derive(Debug, Clone, Copy)]
pub(super) struct Constants {
    pub c_last: u64,
    pub c_id: u64,
    pub i_id: u64,
}

/// Last names are made of numbers below this.
pub(super) const NAMES: u64 = 1_000;

/// From `low` to `high`.
#[inline]
pub(super) fn between(random: &mut Random, low: u64, high: u64) -> u64 {
    low + random.below(high - low + 1)
}

/// Not uniform, from `low` to `high` (clause 2.1.6).
#[inline]
fn nurand(random: &mut Random, a: u64, c: u64, low: u64, high: u64) -> u64 {
    let drawn = random.below(a + 1) | between(random, low, high);
    (drawn + c) % (high - low + 1) + low
}

impl Constants {
    /// A customer of `customers`.
    pub fn customer(self, random: &mut Random, customers: u64) -> u64 {
        nurand(random, 1_023, self.c_id, 1, customers)
    }

    /// An item of `items`.
    pub fn item(self, random: &mut Random, items: u64) -> u64 {
        nurand(random, 8_191, self.i_id, 1, items)
    }

    /// The number of a last name, below `names`.
    pub fn last_name(self, random: &mut Random, names: u64) -> u64 {
        nurand(random, 255, self.c_last, 0, names - 1)
    }
}

/// The last name of a number below 1,000 (clause 4.3.2.3), padded.
pub(super) fn last_name(number: u64) -> [u8; 16] {
    const SYLLABLES: [&str; 10] = ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];
    let digits = [number / 100, number / 10 % 10, number % 10];
    padded(digits.map(|digit| SYLLABLES[digit as usize]).concat().as_bytes())
}

/// `text`, padded with spaces to `N` bytes.
pub(super) fn padded<const N: usize>(text: &[u8]) -> [u8; N] {
    let mut padded = [b' '; N];
    padded[..text.len()].copy_from_slice(text);
    padded
}

/// A text of `low` to `high` letters and digits, padded to `N` bytes.
pub(super) fn text<const N: usize>(random: &mut Random, low: u64, high: u64) -> [u8; N] {
    let mut text = [b' '; N];
    let length = between(random, low, high) as usize;
    letters(random, &mut text[..length]);
    text
}

/// A text of `low` to `high` letters and digits.
pub(super) fn long_text(random: &mut Random, low: u64, high: u64) -> Vec<u8> {
    let mut text = vec![0; between(random, low, high) as usize];
    letters(random, &mut text);
    text
}

fn letters(random: &mut Random, text: &mut [u8]) {
    const ALL: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789ab";
    for part in text.chunks_mut(10) {
        let mut drawn = random.next_u64();
        for letter in part {
            *letter = ALL[(drawn & 63) as usize];
            drawn >>= 6;
        }
    }
}

/// Data of items and stock: one in ten contains `ORIGINAL`.
pub(super) fn data(random: &mut Random) -> Vec<u8> {
    let mut data = long_text(random, 26, 50);
    if random.below(10) == 0 {
        let at = random.below(data.len() as u64 - 8) as usize;
        data[at..at + 8].copy_from_slice(b"ORIGINAL");
    }
    data
}

/// Four digits and `11111`.
pub(super) fn zip(random: &mut Random) -> [u8; 9] {
    let mut zip = *b"000011111";
    zip[..4].copy_from_slice(format!("{:04}", random.below(10_000)).as_bytes());
    zip
}

/// The numbers from 1 to `count` in a random order.
pub(super) fn permutation(random: &mut Random, count: u64) -> Vec<u64> {
    let mut numbers: Vec<u64> = (1..=count).collect();
    for place in (1..numbers.len()).rev() {
        numbers.swap(place, random.below(place as u64 + 1) as usize);
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_constants_are_those_of_the_clauses() {
        assert_eq!(&last_name(371), b"PRICALLYOUGHT   ");
        assert_eq!(&last_name(0), b"BARBARBAR       ");
        let difference = RUN.c_last.abs_diff(LOAD.c_last);
        assert!((65..=119).contains(&difference) && difference != 96 && difference != 112);
    }

    #[test]
    fn skewed_draws_stay_in_range_and_are_skewed() {
        let mut random = Random::new(3);
        let mut counts = vec![0_u32; 3_001];
        for _ in 0..100_000 {
            counts[RUN.customer(&mut random, 3_000) as usize] += 1;
            assert!(RUN.last_name(&mut random, 30) < 30);
            assert!((1..=100).contains(&RUN.item(&mut random, 100)));
        }
        assert_eq!(counts[0], 0);
        counts.sort_unstable();
        let hottest: u32 = counts[2_700..].iter().sum();
        assert!(hottest > 20_000, "a tenth of the customers has {hottest} of 100,000 draws");
        let mut numbers = permutation(&mut random, 50);
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(1..=50));
    }
}
