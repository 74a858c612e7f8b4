//! The six workloads: shares of each kind of operation, and the distribution that belongs to them.

use std::fmt;
use std::str::FromStr;

use crate::keys::Distribution;
use crate::mix::Mix;

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
    pub fn mix(self) -> Mix {
        let name = if self == Self::Load { "insert" } else { self.name() };
        Mix::preset(name).unwrap_or_else(|| unreachable!("every workload is a preset"))
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
