//! The events of the recorder: one per stored word, flushed line, fence, durable call or application mark.
//!
//! Invariant: events are in the order in which they happened. A store of several words is several events, because a
//! crash may fall between two words.

use std::fmt;

use lodestone_pmem::{LineAddr, PmAddr, Site};

/// The eight words of a line.
pub type Content = [u64; 8];

/// Number of a thread, counted from 0 in the order of first use.
pub type ThreadId = u32;

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// One word was stored.
    Store {
        /// Address of the word.
        at: PmAddr,
        /// The word.
        value: u64,
    },
    /// One word was written with a streaming store.
    Stream {
        /// Address of the word.
        at: PmAddr,
        /// The word.
        value: u64,
    },
    /// The write-back of a line was started.
    Flush {
        /// The line.
        line: LineAddr,
    },
    /// A fence.
    Fence,
    /// A wait for durability.
    Durable,
    /// A part was found longer than before. The file was extended, and that is durable (`grow` syncs the length first).
    Grow {
        /// The part.
        part: u16,
        /// Its bytes.
        bytes: u64,
    },
    /// The application began operation number `op` of the run.
    Begin {
        /// Index in the run.
        op: usize,
    },
    /// The application was told that operation number `op` of the run is done and durable.
    Ack {
        /// Index in the run.
        op: usize,
    },
}

/// One entry of a trace.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// The kind.
    pub kind: EventKind,
    /// The thread that caused it.
    pub thread: ThreadId,
    /// Its source position; `None` for marks.
    pub site: Option<Site>,
}

/// The calls that a mutation can remove or move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallKind {
    /// A flush.
    Flush,
    /// A fence.
    Fence,
    /// A streaming store.
    Stream,
}

impl fmt::Display for CallKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Flush => "flush",
            Self::Fence => "fence",
            Self::Stream => "stream",
        })
    }
}

/// A source position that can be compared, ordered, printed and kept.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SiteKey {
    /// File as the compiler names it.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
}

impl SiteKey {
    /// The key of `site`.
    #[must_use]
    pub fn of(site: Site) -> Self {
        Self { file: site.file().to_owned(), line: site.line(), column: site.column() }
    }

    /// Whether `site` is this position.
    #[must_use]
    pub fn is(&self, site: Site) -> bool {
        self.line == site.line() && self.column == site.column() && self.file == site.file()
    }
}

impl fmt::Display for SiteKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}
