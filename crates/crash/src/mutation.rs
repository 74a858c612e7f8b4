//! Mutations: one source position whose flush, fence or streaming store is removed or comes at the wrong time.
//!
//! A mutation works inside the recorder while the code runs. So recovery is mutated as well as the operations, and
//! every execution of the position is affected.

use std::fmt;

use crate::event::{CallKind, SiteKey};

/// The change to each execution of a mutation's site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Change {
    /// The call is removed. A streaming store becomes an ordinary store that is never flushed.
    Drop,
    /// A flush comes after the next fence of its thread. A fence comes after the thread's next store, and after an
    /// acknowledgement before that store.
    Late,
    /// A fence comes before the preceding flush or the last streamed word.
    Early,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Drop => "drop",
            Self::Late => "late",
            Self::Early => "early",
        })
    }
}

/// A change at a site.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mutation {
    /// The kind of call that is changed; another kind at the same position is left alone.
    pub call: CallKind,
    /// The position.
    pub site: SiteKey,
    /// The change.
    pub change: Change,
}

impl Mutation {
    /// The mutations that are possible for a call.
    #[must_use]
    pub fn all_of(call: CallKind, site: &SiteKey) -> Vec<Self> {
        let changes: &[Change] = match call {
            CallKind::Flush => &[Change::Drop, Change::Late],
            CallKind::Fence => &[Change::Drop, Change::Late, Change::Early],
            CallKind::Stream => &[Change::Drop],
        };
        changes.iter().map(|&change| Self { call, site: site.clone(), change }).collect()
    }
}

impl fmt::Display for Mutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} at {}", self.change, self.call, self.site)
    }
}
