//! The operations of a thread.
//!
//! 1. A [`Mix`] has shares of reads, inserts, updates, removes and scans. Presets name the usual mixes.
//! 2. A [`Script`] is drawn before the clock runs. It has kind and record in one word each, up to a million of them,
//!    and then starts again from the front. So a measured operation pays for reading one word in sequence, not for a
//!    zipfian draw.
//! 3. Inserts are of new records: thread `t` of `n` inserts `records + t`, `records + t + n`, and so on. Removes are of
//!    loaded records: thread `t` removes `t`, `t + n`, and so on, each once. Records are scattered over the keys.
//!
//! Reads and updates may therefore meet a record that was removed. The result says how many did.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use lodestone_workload::keys::{Distribution, KeyChooser, KeysError};
use lodestone_workload::random::Random;

/// Operations of a script before it starts again.
const SCRIPT_MAX: u64 = 1 << 20;
/// Bits of a script's word below the kind.
const RECORD_BITS: u32 = 60;

/// Kinds of operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
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
    /// Point read and update of the same record.
    ReadUpdate,
}

impl Kind {
    /// Every kind, in the order of the discriminants.
    pub const ALL: [Self; 6] = [Self::Read, Self::Insert, Self::Update, Self::Remove, Self::Scan, Self::ReadUpdate];

    /// Name in mixes and results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Insert => "insert",
            Self::Update => "update",
            Self::Remove => "remove",
            Self::Scan => "scan",
            Self::ReadUpdate => "read-update",
        }
    }

    /// Place in [`Kind::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// Shares in per cent that add up to 100.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mix {
    name: String,
    shares: [u8; Kind::ALL.len()],
}

/// The mixes that have a name.
const PRESETS: [(&str, [u8; Kind::ALL.len()]); 13] = [
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
        if let Some((name, shares)) = PRESETS.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(text)) {
            return Ok(Self { name: name.into(), shares });
        }
        let mut shares = [0_u8; Kind::ALL.len()];
        for word in text.split(',') {
            let parsed = word.split_once('=').and_then(|(name, share)| {
                let kind = Kind::ALL.into_iter().find(|kind| kind.name() == name)?;
                Some((kind, share.parse::<u8>().ok().filter(|share| *share <= 100)?))
            });
            let Some((kind, share)) = parsed else {
                let presets = PRESETS.map(|(name, _)| name).join(", ");
                return Err(MixError::Word { text: text.into(), word: word.into(), presets });
            };
            shares[kind.index()] = share;
        }
        let sum = shares.iter().map(|&share| u32::from(share)).sum();
        if sum == 100 { Ok(Self { name: text.into(), shares }) } else { Err(MixError::Sum { text: text.into(), sum }) }
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Mix {
    /// Share of a kind, in per cent.
    #[must_use]
    pub fn share(&self, kind: Kind) -> u8 {
        self.shares[kind.index()]
    }

    /// Whether the set of keys stays the same.
    #[must_use]
    pub fn keeps_keys(&self) -> bool {
        self.share(Kind::Insert) == 0 && self.share(Kind::Remove) == 0
    }

    /// The default distribution for this mix.
    #[must_use]
    pub fn distribution(&self) -> Distribution {
        match self.name.as_str() {
            "d" => Distribution::LATEST,
            "a" | "b" | "c" | "e" | "f" => Distribution::ZIPFIAN,
            _ => Distribution::Uniform,
        }
    }

    fn choose(&self, random: &mut Random) -> Kind {
        let mut left = random.below(100);
        for kind in Kind::ALL {
            let share = u64::from(self.share(kind));
            if left < share {
                return kind;
            }
            left -= share;
        }
        Kind::Read
    }
}

/// The operations of one thread, drawn in advance.
#[derive(Debug)]
pub struct Script {
    words: Vec<u64>,
    next: usize,
    /// Whether records count back from the newest.
    is_latest: bool,
}

impl Script {
    /// Draws the script of thread `thread` from `seed`: `length` operations, but at most a million, which then repeat.
    ///
    /// # Errors
    /// Those of the distribution.
    pub fn draw(
        mix: &Mix,
        distribution: Distribution,
        records: u64,
        seed: u64,
        thread: u64,
        length: u64,
    ) -> Result<Self, KeysError> {
        let mut random = Random::for_stream(seed, thread);
        let mut chooser = KeyChooser::new(distribution, records, records)?;
        let is_latest = matches!(distribution, Distribution::Latest { .. });
        let draw = |_| {
            let kind = mix.choose(&mut random);
            let record = chooser.choose(&mut random, records);
            let place = if is_latest { records - 1 - record } else { record };
            (kind.index() as u64) << RECORD_BITS | place
        };
        let words = (0..length.clamp(1, SCRIPT_MAX)).map(draw).collect();
        Ok(Self { words, next: 0, is_latest })
    }

    /// The next kind and record, with `population` existing records.
    #[inline]
    pub fn next_operation(&mut self, population: u64) -> (Kind, u64) {
        let word = self.words[self.next];
        self.next += 1;
        if self.next == self.words.len() {
            self.next = 0;
        }
        let place = word & ((1 << RECORD_BITS) - 1);
        let record = if self.is_latest { population - 1 - place } else { place };
        (Kind::ALL[(word >> RECORD_BITS) as usize], record)
    }
}

/// Most keys of a scan.
const SCAN_KEYS_MAX: u64 = 1 << 20;

/// The number of keys that a scan reads: `MIN-MAX`, or `MAX` for 1 to `MAX`.
///
/// ```
/// use lodestone_index_bench::mix::ScanKeys;
///
/// assert_eq!("100".parse::<ScanKeys>()?.0, 1..=100);
/// assert_eq!("100-100".parse::<ScanKeys>()?.0, 100..=100);
/// assert!("0".parse::<ScanKeys>().is_err() && "9-5".parse::<ScanKeys>().is_err());
/// # Ok::<(), lodestone_index_bench::mix::ScanKeysError>(())
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
        assert_eq!((mix.share(Kind::Read), mix.share(Kind::Insert), mix.share(Kind::Remove)), (50, 20, 30));
        assert!(!mix.keeps_keys());
        for (name, shares) in PRESETS {
            assert_eq!(shares.iter().map(|&share| u32::from(share)).sum::<u32>(), 100, "{name}");
            assert_eq!(name.parse::<Mix>().unwrap().to_string(), name);
        }
        assert!(matches!("read=50".parse::<Mix>(), Err(MixError::Sum { sum: 50, .. })));
        assert!(matches!("read=50,write=50".parse::<Mix>(), Err(MixError::Word { .. })));
        assert!(matches!("g".parse::<Mix>(), Err(MixError::Word { .. })));
    }

    #[test]
    fn scripts_keep_to_the_shares_and_repeat_for_a_seed() {
        let mix: Mix = "read=60,update=40".parse().unwrap();
        let draw = || Script::draw(&mix, Distribution::Uniform, 100, 3, 1, 10_000).unwrap();
        let (mut one, mut two) = (draw(), draw());
        let mut reads = 0;
        for _ in 0..20_000 {
            let (kind, record) = one.next_operation(100);
            assert_eq!((kind, record), two.next_operation(100));
            assert!(record < 100);
            reads += u64::from(kind == Kind::Read);
        }
        assert!((11_500..12_500).contains(&reads), "{reads}");
    }

    #[test]
    fn the_latest_are_counted_from_the_newest() {
        let mix: Mix = "d".parse().unwrap();
        let mut script = Script::draw(&mix, mix.distribution(), 1000, 1, 0, 5000).unwrap();
        let near = (0..5000).filter(|_| script.next_operation(2000).1 >= 1900).count();
        assert!(near > 2500, "{near}");
    }
}
