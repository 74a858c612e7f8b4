//! Which record an operation touches: distributions over record numbers, and the bytes of a record's key.
//!
//! 1. A [`Distribution`] names the shape (zipfian, self-similar, uniform, latest, sequential).
//! 2. A [`KeyChooser`] draws record numbers below a population that may grow while it draws.
//! 3. A [`KeyCodec`] turns a record number into key bytes and back.
//!
//! The zipfian chooser is *scrambled* as in YCSB: the drawn rank is hashed over the key space, so that hot records are
//! not neighbours. It spreads over the population at the end of the run (`capacity`), and draws again if a record does
//! not exist yet. So the hot records stay the same while the population grows. YCSB always draws ranks from ten billion
//! items. Here ranks come from the real capacity, so the skew is that of `theta`.
//!
//! Invariants: a chosen number is below the population; the same seed chooses the same numbers; each draw takes O(1).

mod zipfian;

pub use zipfian::Zipfian;

use std::fmt;
use std::str::FromStr;

use crate::random::{Random, mix64, unmix64};

/// YCSB's exponent.
pub const THETA_DEFAULT: f64 = 0.99;

/// Draws before a scrambled choice gives up on records that do not exist yet.
const REDRAWS_MAX: u32 = 64;

/// The fault of a distribution or of key bytes.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum KeysError {
    /// The exponent is outside of the method's range.
    #[error("theta is {theta}, but the zipfian generator needs 0 <= theta < 1; choose for example 0.99")]
    Theta {
        /// The given exponent.
        theta: f64,
    },
    /// The skew is outside of the method's range.
    #[error(
        "skew is {skew}, but the self-similar generator needs 0 < skew < 0.5; 0.2 sends 80 % of choices to 20 % of records"
    )]
    Skew {
        /// The given skew.
        skew: f64,
    },
    /// There is nothing to choose from.
    #[error("a distribution needs at least one record; load records first")]
    Empty,
    /// The name of a distribution is unknown.
    #[error(
        "unknown distribution '{name}'; use zipfian, zipfian:THETA, uniform, latest, latest:THETA, self-similar, \
         self-similar:SKEW or sequential"
    )]
    Name {
        /// The given name.
        name: String,
    },
    /// Keys must hold the 64-bit record number.
    #[error("keys of {key_bytes} bytes cannot hold a record number; use at least {KEY_BYTES_MIN}")]
    KeyBytes {
        /// The given length.
        key_bytes: usize,
    },
}

/// The shape of the choice of records.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Distribution {
    /// Some records are hot. They are scattered over the key space.
    Zipfian {
        /// Exponent, `0 <= theta < 1`.
        theta: f64,
    },
    /// A share `skew` of the records receives all choices except that share, and so on within it (Gray et al.). These
    /// records are scattered over the key space.
    SelfSimilar {
        /// Share of the hot records, `0 < skew < 0.5`.
        skew: f64,
    },
    /// Each record is as likely as any other.
    Uniform,
    /// Records that were inserted last are hot.
    Latest {
        /// Exponent, `0 <= theta < 1`.
        theta: f64,
    },
    /// One record after the other, starting again from the first after the last.
    Sequential,
}

impl Distribution {
    /// YCSB's zipfian distribution.
    pub const ZIPFIAN: Self = Self::Zipfian { theta: THETA_DEFAULT };
    /// YCSB's latest distribution.
    pub const LATEST: Self = Self::Latest { theta: THETA_DEFAULT };
    /// Four choices of five fall on a fifth of the records.
    pub const SELF_SIMILAR: Self = Self::SelfSimilar { skew: 0.2 };
}

impl fmt::Display for Distribution {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zipfian { theta } => write!(formatter, "zipfian:{theta}"),
            Self::Latest { theta } => write!(formatter, "latest:{theta}"),
            Self::SelfSimilar { skew } => write!(formatter, "self-similar:{skew}"),
            Self::Uniform => formatter.write_str("uniform"),
            Self::Sequential => formatter.write_str("sequential"),
        }
    }
}

impl FromStr for Distribution {
    type Err = KeysError;

    fn from_str(text: &str) -> Result<Self, KeysError> {
        let unknown = || KeysError::Name { name: text.into() };
        let (name, theta) = match text.split_once(':') {
            Some((name, theta)) => (name, Some(theta.parse::<f64>().map_err(|_| unknown())?)),
            None => (text, None),
        };
        if name == "self-similar" {
            let skew = theta.unwrap_or(0.2);
            return if skew > 0.0 && skew < 0.5 {
                Ok(Self::SelfSimilar { skew })
            } else {
                Err(KeysError::Skew { skew })
            };
        }
        let exponent = theta.unwrap_or(THETA_DEFAULT);
        let chosen = match name {
            "zipfian" => Self::Zipfian { theta: exponent },
            "latest" => Self::Latest { theta: exponent },
            "uniform" if theta.is_none() => Self::Uniform,
            "sequential" if theta.is_none() => Self::Sequential,
            _ => return Err(unknown()),
        };
        if (0.0..1.0).contains(&exponent) { Ok(chosen) } else { Err(KeysError::Theta { theta: exponent }) }
    }
}

/// Draws record numbers; one for each thread.
#[derive(Debug, Clone)]
pub struct KeyChooser {
    shape: Shape,
}

#[derive(Debug, Clone)]
enum Shape {
    Scrambled(Zipfian),
    SelfSimilar { power: f64 },
    Uniform,
    Latest(Zipfian),
    Sequential { next: u64 },
}

impl KeyChooser {
    /// A chooser over `population` records that will grow to at most `capacity`.
    ///
    /// # Errors
    /// [`KeysError::Theta`] and [`KeysError::Empty`].
    pub fn new(distribution: Distribution, population: u64, capacity: u64) -> Result<Self, KeysError> {
        if population == 0 {
            return Err(KeysError::Empty);
        }
        let shape = match distribution {
            Distribution::Zipfian { theta } => Shape::Scrambled(Zipfian::new(capacity.max(population), theta)?),
            Distribution::Latest { theta } => Shape::Latest(Zipfian::new(population, theta)?),
            Distribution::SelfSimilar { skew } if skew > 0.0 && skew < 0.5 => {
                Shape::SelfSimilar { power: skew.ln() / (1.0 - skew).ln() }
            }
            Distribution::SelfSimilar { skew } => return Err(KeysError::Skew { skew }),
            Distribution::Uniform => Shape::Uniform,
            Distribution::Sequential => Shape::Sequential { next: 0 },
        };
        Ok(Self { shape })
    }

    /// Starts a sequential chooser at `record`. Other shapes ignore it.
    pub fn start_at(&mut self, record: u64) {
        if let Shape::Sequential { next } = &mut self.shape {
            *next = record;
        }
    }

    /// Chooses a record below `population`, which never shrinks from call to call.
    #[inline]
    pub fn choose(&mut self, random: &mut Random, population: u64) -> u64 {
        match &mut self.shape {
            Shape::Scrambled(zipfian) => choose_scrambled(zipfian, random, population),
            Shape::SelfSimilar { power } => {
                // Choices fall below a share that is their fraction raised to a power. The power maps `1 - skew` to
                // `skew`.
                let rank = (population as f64 * random.next_fraction().powf(*power)) as u64;
                scramble(rank.min(population - 1), population)
            }
            Shape::Uniform => random.below(population),
            Shape::Latest(zipfian) => {
                zipfian.grow(population);
                population - 1 - zipfian.next_rank(random)
            }
            Shape::Sequential { next } => {
                let chosen = if *next < population { *next } else { 0 };
                *next = chosen + 1;
                chosen
            }
        }
    }
}

#[inline]
fn choose_scrambled(zipfian: &Zipfian, random: &mut Random, population: u64) -> u64 {
    for _ in 0..REDRAWS_MAX {
        let record = scramble(zipfian.next_rank(random), zipfian.items());
        if record < population {
            return record;
        }
    }
    random.below(population)
}

/// The record of a rank among `items` records. It is a hash, so a few ranks share a record as in YCSB.
#[inline]
#[must_use]
pub fn scramble(rank: u64, items: u64) -> u64 {
    ((u128::from(mix64(rank ^ SCRAMBLE_SALT)) * u128::from(items)) >> 64) as u64
}

/// Separates the scramble from the hash in [`KeyOrder::Hashed`], which would otherwise put hot records in key order.
const SCRAMBLE_SALT: u64 = 0x5A17_ED01_DE57_0E5A;

/// How key order relates to insertion order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum KeyOrder {
    /// Keys are spread over the key space by a bijection, as in YCSB's default.
    #[default]
    Hashed,
    /// The key of record 7 comes after that of record 6: every insert is an append.
    Ordered,
}

/// The smallest key: a record number.
pub const KEY_BYTES_MIN: usize = 8;

/// Turns record numbers into key bytes. A key is the number in eight bytes, then a filler that depends on it. The
/// number is big-endian, so that byte order is number order. No two records share a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyCodec {
    key_bytes: usize,
    order: KeyOrder,
}

impl KeyCodec {
    /// Keys of `key_bytes` bytes.
    ///
    /// # Errors
    /// [`KeysError::KeyBytes`] if they could not hold a record number.
    pub fn new(key_bytes: usize, order: KeyOrder) -> Result<Self, KeysError> {
        if key_bytes < KEY_BYTES_MIN {
            return Err(KeysError::KeyBytes { key_bytes });
        }
        Ok(Self { key_bytes, order })
    }

    /// Length of each key.
    #[must_use]
    pub fn key_bytes(&self) -> usize {
        self.key_bytes
    }

    /// Writes the key of `record` into `key`, whatever it held before.
    #[inline]
    pub fn encode_into(&self, record: u64, key: &mut Vec<u8>) {
        let head = match self.order {
            KeyOrder::Hashed => mix64(record),
            KeyOrder::Ordered => record,
        };
        key.clear();
        key.extend_from_slice(&head.to_be_bytes());
        while key.len() < self.key_bytes {
            let rest = self.key_bytes - key.len();
            let filler = mix64(head ^ key.len() as u64).to_be_bytes();
            key.extend_from_slice(&filler[..rest.min(filler.len())]);
        }
    }

    /// The key of `record`.
    #[must_use]
    pub fn encode(&self, record: u64) -> Vec<u8> {
        let mut key = Vec::with_capacity(self.key_bytes);
        self.encode_into(record, &mut key);
        key
    }

    /// The record whose key this is, or `None` if no record has that key.
    #[must_use]
    pub fn decode(&self, key: &[u8]) -> Option<u64> {
        let head = u64::from_be_bytes(*key.first_chunk::<KEY_BYTES_MIN>()?);
        let record = match self.order {
            KeyOrder::Hashed => unmix64(head),
            KeyOrder::Ordered => head,
        };
        (self.encode(record) == key).then_some(record)
    }
}

#[cfg(test)]
mod tests;
