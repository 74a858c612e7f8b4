//! Sizes and ways of a log.

use crate::error::{Error, Result};
use crate::layout::SEGMENT_HEAD_BYTES;

/// The boundary at which records begin (paper 3, section 3.4: padding).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogAlign {
    /// No padding: records share lines.
    None,
    /// A cache line.
    #[default]
    Line,
    /// A block of the medium.
    Block,
}

impl LogAlign {
    /// The boundary in bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        match self {
            Self::None => 8,
            Self::Line => 64,
            Self::Block => 256,
        }
    }

    pub(crate) const fn from_bytes(bytes: u64) -> Option<Self> {
        match bytes {
            8 => Some(Self::None),
            64 => Some(Self::Line),
            256 => Some(Self::Block),
            _ => None,
        }
    }
}

/// How a record reaches the medium (paper 3, section 3.4: instructions).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogStore {
    /// Stores around the cache, where the record is long enough to gain by them.
    #[default]
    Stream,
    /// Stores into the cache, then a flush of each line.
    Flush,
}

/// Options of a log. The sizes and the alignment are part of the format, `store` is chosen at each open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// Bytes of all segments together, 256 MiB by default.
    pub log_bytes: u64,
    /// Bytes of a segment, 8 MiB by default, at most half of `log_bytes`.
    pub segment_bytes: u64,
    /// Where records begin.
    pub align: LogAlign,
    /// A number that seeds all checksums. `None`: the system's random numbers. Set it only where runs must repeat
    /// exactly: a user who knows it could store values that look like records.
    pub salt: Option<u64>,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self { log_bytes: 256 << 20, segment_bytes: 8 << 20, align: LogAlign::default(), salt: None }
    }
}

impl LogOptions {
    pub(crate) fn check(&self) -> Result<()> {
        let bad = |option, value, rule| Err(Error::BadOption { option, value, rule });
        if !self.segment_bytes.is_multiple_of(256) || self.segment_bytes < SEGMENT_HEAD_BYTES + 256 {
            return bad("segment_bytes", self.segment_bytes, "it is a multiple of 256, at least 768");
        }
        if self.segment_bytes > 1 << 30 {
            return bad("segment_bytes", self.segment_bytes, "it is at most 1 GiB");
        }
        if self.log_bytes / self.segment_bytes < 2 || self.log_bytes / self.segment_bytes > 1 << 16 {
            return bad("log_bytes", self.log_bytes, "the log has 2 to 65536 segments");
        }
        Ok(())
    }

    /// Number of segments.
    pub(crate) const fn segments(&self) -> u64 {
        self.log_bytes / self.segment_bytes
    }
}
