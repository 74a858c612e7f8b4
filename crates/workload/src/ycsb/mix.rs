//! The six workloads: shares of each kind of operation, and the distribution that belongs to them.

use std::fmt;
use std::str::FromStr;

use crate::keys::Distribution;
use crate::random::Random;
use crate::ycsb::OperationKind;

/// Shares in per cent; they add up to 100.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mix {
    /// Point reads.
    pub read: u8,
    /// Replacements of an existing value.
    pub update: u8,
    /// New records.
    pub insert: u8,
    /// Range reads.
    pub scan: u8,
    /// A read followed by an update of the same record, as one operation.
    pub read_modify_write: u8,
}

impl Mix {
    const NONE: Self = Self { read: 0, update: 0, insert: 0, scan: 0, read_modify_write: 0 };

    /// Draws a kind of operation.
    #[inline]
    pub(crate) fn choose(&self, random: &mut Random) -> OperationKind {
        let mut left = random.below(100);
        for (kind, share) in [
            (OperationKind::Read, self.read),
            (OperationKind::Update, self.update),
            (OperationKind::Insert, self.insert),
            (OperationKind::Scan, self.scan),
        ] {
            if left < u64::from(share) {
                return kind;
            }
            left -= u64::from(share);
        }
        OperationKind::ReadModifyWrite
    }
}

/// A workload of the benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Workload {
    /// Update heavy: 50 % reads, 50 % updates.
    A,
    /// Read mostly: 95 % reads, 5 % updates.
    B,
    /// Read only.
    C,
    /// Read latest: 95 % reads of recent records, 5 % inserts.
    D,
    /// Short ranges: 95 % scans, 5 % inserts.
    E,
    /// 50 % reads, 50 % read-modify-writes.
    F,
    /// Inserts only: not one of the six, but their load phase.
    Load,
}

impl Workload {
    /// The six workloads of the benchmark.
    pub const ALL: [Self; 6] = [Self::A, Self::B, Self::C, Self::D, Self::E, Self::F];

    /// Shares of the kinds of operations.
    #[must_use]
    pub const fn mix(self) -> Mix {
        let none = Mix::NONE;
        match self {
            Self::A => Mix { read: 50, update: 50, ..none },
            Self::B => Mix { read: 95, update: 5, ..none },
            Self::C => Mix { read: 100, ..none },
            Self::D => Mix { read: 95, insert: 5, ..none },
            Self::E => Mix { scan: 95, insert: 5, ..none },
            Self::F => Mix { read: 50, read_modify_write: 50, ..none },
            Self::Load => Mix { insert: 100, ..none },
        }
    }

    /// The distribution that the benchmark defines for it.
    #[must_use]
    pub const fn distribution(self) -> Distribution {
        match self {
            Self::D => Distribution::LATEST,
            _ => Distribution::ZIPFIAN,
        }
    }

    /// Name in results: `a` to `f`, `load`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::A => "a",
            Self::B => "b",
            Self::C => "c",
            Self::D => "d",
            Self::E => "e",
            Self::F => "f",
            Self::Load => "load",
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// There is no workload of that name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown workload '{name}'; use a, b, c, d, e, f or load")]
pub struct UnknownWorkload {
    name: String,
}

impl FromStr for Workload {
    type Err = UnknownWorkload;

    fn from_str(text: &str) -> Result<Self, UnknownWorkload> {
        let wanted = text.to_ascii_lowercase();
        Self::ALL
            .into_iter()
            .chain([Self::Load])
            .find(|workload| workload.name() == wanted)
            .ok_or_else(|| UnknownWorkload { name: text.into() })
    }
}
