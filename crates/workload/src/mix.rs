//! Mixes: shares of the kinds of operations, as a name or as a list.
//!
//! YCSB and the index load draw from the same mixes. The order of the kinds is part of a seed's stream: a draw walks
//! the shares in this order.

use std::borrow::Cow;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::keys::Distribution;
use crate::random::Random;

/// Kinds of operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OperationKind {
    /// Point read of an existing record.
    Read,
    /// New record.
    Insert,
    /// New value of an existing record.
    Update,
    /// Removal of a loaded record.
    Remove,
    /// Ordered read.
    Scan,
    /// Point read and update of the same record, as one operation.
    ReadModifyWrite,
}

impl OperationKind {
    /// Every kind, in the order of the discriminants.
    pub const ALL: [Self; 6] =
        [Self::Read, Self::Insert, Self::Update, Self::Remove, Self::Scan, Self::ReadModifyWrite];

    /// Their names in results.
    pub const NAMES: [&'static str; 6] = ["read", "insert", "update", "remove", "scan", "read_modify_write"];

    /// Name in results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        Self::NAMES[self.index()]
    }

    /// Name in the text of a mix.
    const fn word(self) -> &'static str {
        match self {
            Self::ReadModifyWrite => "read-update",
            _ => self.name(),
        }
    }

    /// Place in [`OperationKind::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// Shares in per cent that add up to 100.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mix {
    name: Cow<'static, str>,
    shares: [u8; OperationKind::ALL.len()],
}

/// The mixes that have a name.
const PRESETS: [(&str, [u8; OperationKind::ALL.len()]); 13] = [
    ("search", [100, 0, 0, 0, 0, 0]),
    ("insert", [0, 100, 0, 0, 0, 0]),
    ("update", [0, 0, 100, 0, 0, 0]),
    ("remove", [0, 0, 0, 100, 0, 0]),
    ("scan", [0, 0, 0, 0, 100, 0]),
    ("mixed", [50, 25, 0, 25, 0, 0]),
    ("write", [0, 50, 0, 50, 0, 0]),
    ("a", [50, 0, 50, 0, 0, 0]),
    ("b", [95, 0, 5, 0, 0, 0]),
    ("c", [100, 0, 0, 0, 0, 0]),
    ("d", [95, 5, 0, 0, 0, 0]),
    ("e", [0, 5, 0, 0, 95, 0]),
    ("f", [50, 0, 0, 0, 0, 50]),
];

/// Why a mix cannot be run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MixError {
    /// No such preset and no list of shares.
    #[error(
        "'{word}' in the mix '{text}' is not understood; use a preset ({presets}) or shares such as read=50,insert=50"
    )]
    Word {
        /// The whole text.
        text: String,
        /// The faulty word in it.
        word: String,
        /// Names of the presets.
        presets: String,
    },
    /// The shares do not add up to 100.
    #[error("the shares of the mix '{text}' add up to {sum}, not to 100")]
    Sum {
        /// The whole text.
        text: String,
        /// Their sum.
        sum: u32,
    },
}

impl FromStr for Mix {
    type Err = MixError;

    fn from_str(text: &str) -> Result<Self, MixError> {
        if let Some(preset) = Self::preset(text) {
            return Ok(preset);
        }
        let mut shares = [0_u8; OperationKind::ALL.len()];
        for word in text.split(',') {
            let parsed = word.split_once('=').and_then(|(name, share)| {
                let kind = OperationKind::ALL.into_iter().find(|kind| kind.word() == name)?;
                Some((kind, share.parse::<u8>().ok().filter(|share| *share <= 100)?))
            });
            let Some((kind, share)) = parsed else {
                let presets = PRESETS.map(|(name, _)| name).join(", ");
                return Err(MixError::Word { text: text.into(), word: word.into(), presets });
            };
            shares[kind.index()] = share;
        }
        let sum = shares.iter().map(|&share| u32::from(share)).sum();
        if sum == 100 {
            Ok(Self { name: text.to_owned().into(), shares })
        } else {
            Err(MixError::Sum { text: text.into(), sum })
        }
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Mix {
    /// The mix that has this name.
    #[must_use]
    pub fn preset(name: &str) -> Option<Self> {
        let found = PRESETS.into_iter().find(|(preset, _)| preset.eq_ignore_ascii_case(name));
        found.map(|(name, shares)| Self { name: name.into(), shares })
    }

    /// Share of a kind, in per cent.
    #[must_use]
    pub fn share(&self, kind: OperationKind) -> u8 {
        self.shares[kind.index()]
    }

    /// Whether the set of keys stays the same.
    #[must_use]
    pub fn keeps_keys(&self) -> bool {
        self.share(OperationKind::Insert) == 0 && self.share(OperationKind::Remove) == 0
    }

    /// The default distribution for this mix.
    #[must_use]
    pub fn distribution(&self) -> Distribution {
        match self.name.as_ref() {
            "d" => Distribution::LATEST,
            "a" | "b" | "c" | "e" | "f" => Distribution::ZIPFIAN,
            _ => Distribution::Uniform,
        }
    }

    /// Draws a kind of operation.
    #[inline]
    pub fn choose(&self, random: &mut Random) -> OperationKind {
        let mut left = random.below(100);
        for kind in OperationKind::ALL {
            let share = u64::from(self.share(kind));
            if left < share {
                return kind;
            }
            left -= share;
        }
        OperationKind::Read
    }
}

/// Most keys of a scan.
const SCAN_KEYS_MAX: u64 = 1 << 20;

/// The number of keys that a scan reads: `MIN-MAX`, or `MAX` for 1 to `MAX`.
///
/// ```
/// use lodestone_workload::mix::ScanKeys;
///
/// assert_eq!("100".parse::<ScanKeys>()?.0, 1..=100);
/// assert_eq!("100-100".parse::<ScanKeys>()?.0, 100..=100);
/// assert!("0".parse::<ScanKeys>().is_err() && "9-5".parse::<ScanKeys>().is_err());
/// # Ok::<(), lodestone_workload::mix::ScanKeysError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScanKeys(pub RangeInclusive<u64>);

/// A text that is not a number of keys for a scan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no number of keys; use MAX or MIN-MAX, from 1 to {SCAN_KEYS_MAX}, such as 100 or 100-100")]
pub struct ScanKeysError(String);

impl FromStr for ScanKeys {
    type Err = ScanKeysError;

    fn from_str(text: &str) -> Result<Self, ScanKeysError> {
        let (least, most) = text.split_once('-').unwrap_or(("1", text));
        let range = least.parse().ok().zip(most.parse().ok()).map(|(least, most)| least..=most);
        let fits =
            |range: &RangeInclusive<u64>| *range.start() > 0 && !range.is_empty() && *range.end() <= SCAN_KEYS_MAX;
        range.filter(fits).map(Self).ok_or_else(|| ScanKeysError(text.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_and_shares_are_parsed() {
        let mix: Mix = "read=50,insert=20,remove=30".parse().unwrap();
        assert_eq!(
            (mix.share(OperationKind::Read), mix.share(OperationKind::Insert), mix.share(OperationKind::Remove)),
            (50, 20, 30)
        );
        assert!(!mix.keeps_keys());
        for (name, shares) in PRESETS {
            assert_eq!(shares.iter().map(|&share| u32::from(share)).sum::<u32>(), 100, "{name}");
            assert_eq!(name.parse::<Mix>().unwrap().to_string(), name);
        }
        assert!(matches!("read=50".parse::<Mix>(), Err(MixError::Sum { sum: 50, .. })));
        assert!(matches!("read=50,write=50".parse::<Mix>(), Err(MixError::Word { .. })));
        assert!(matches!("g".parse::<Mix>(), Err(MixError::Word { .. })));
    }
}
