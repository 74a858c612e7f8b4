//! Names of `--index`: the persistent indexes, and those in DRAM.

use std::fmt;
use std::str::FromStr;

use lodestone_index_bench::kinds::Competitor;

/// An index of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexName {
    Persistent(Competitor),
    LockedTree,
    CrossbeamList,
}

impl IndexName {
    const DRAM: [(&'static str, Self); 2] =
        [("btreemap-lock", Self::LockedTree), ("crossbeam-skiplist", Self::CrossbeamList)];
}

impl FromStr for IndexName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some((_, found)) = Self::DRAM.into_iter().find(|(name, _)| *name == text) {
            return Ok(found);
        }
        let named = text.parse().map(Self::Persistent);
        named.map_err(|error: String| format!("{error}, {}", Self::DRAM.map(|(name, _)| name).join(", ")))
    }
}

impl fmt::Display for IndexName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Persistent(kind) => kind.fmt(f),
            Self::LockedTree => f.write_str("btreemap-lock"),
            Self::CrossbeamList => f.write_str("crossbeam-skiplist"),
        }
    }
}
