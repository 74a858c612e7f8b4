//! The possible contents of a line at a crash: one content, or several to choose from.

use std::collections::BTreeMap;
use std::sync::Arc;

use lodestone_pmem::LineAddr;

use crate::event::Content;

/// Possible contents of a line. Cheap to clone: states are made by the million.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Options {
    /// Decided.
    One(Content),
    /// Undecided: at least two different contents. The first has lost everything, the last nothing.
    Many(Arc<[Content]>),
}

/// Possible contents of all lines that differ from the baseline, or may differ.
pub type Contents = BTreeMap<LineAddr, Options>;

impl Options {
    /// From a list of different contents.
    #[must_use]
    pub fn from_list(list: &[Content]) -> Self {
        match list {
            [only] => Self::One(*only),
            _ => Self::Many(list.into()),
        }
    }

    /// Number of contents.
    #[must_use]
    pub fn count(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Many(list) => list.len(),
        }
    }

    /// Whether there is a choice.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self, Self::Many(_))
    }

    /// The content with this index; the last one if there are fewer.
    #[must_use]
    pub fn at(&self, index: usize) -> Content {
        match self {
            Self::One(only) => *only,
            Self::Many(list) => list[index.min(list.len() - 1)],
        }
    }
}
