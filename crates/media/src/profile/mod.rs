//! Profiles: the parameters of a medium.
//!
//! A profile is a TOML file with units in its key names. `dram`, `optane` and `cxl` are compiled in from `profiles/`;
//! the comments there say where each figure comes from. `lodestone media show NAME` prints one to start from.
//!
//! 1. The text is parsed. Every key is taken by name and checked for kind and range (`reader.rs`).
//! 2. A key that is left over is an error too: a misspelt key must not leave a default in force. There are no defaults.
//! 3. [`MediaProfile::to_toml`] writes every key, so that its output can be read (`writer.rs`).
//!
//! Invariants: a `MediaProfile` from [`from_toml`](MediaProfile::from_toml) has passed all checks. The same checks hold
//! for a fitted one.

mod curve;
mod reader;
mod writer;

use std::path::Path;

pub use curve::{Above, Curve};
pub use reader::ProfileError;

/// The profiles that are compiled in: name and text.
const BUILTIN: [(&str, &str); 3] = [
    ("dram", include_str!("../../profiles/dram.toml")),
    ("optane", include_str!("../../profiles/optane.toml")),
    ("cxl", include_str!("../../profiles/cxl.toml")),
];

/// Largest profile file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Parameters of a medium. Every field is a key of the TOML file, under the section of its struct.
#[derive(Clone, Debug, PartialEq)]
pub struct MediaProfile {
    /// Name, as outputs print it.
    pub name: String,
    /// The medium, in words.
    pub description: String,
    /// Where the figures come from.
    pub source: String,
    /// The processor's cache in front of the medium.
    pub cpu_cache: CpuCacheProfile,
    /// Blocks and buffers inside the medium.
    pub device: DeviceProfile,
    /// Reads.
    pub read: ReadProfile,
    /// Writes.
    pub write: WriteProfile,
    /// Readers beside writers.
    pub mixed: MixedProfile,
    /// Access from another NUMA node.
    pub remote: RemoteProfile,
    /// The cost of the papers' measuring programs themselves. Never charged to real code.
    pub instrument: InstrumentProfile,
}

/// `[cpu_cache]`: the private cache of one processor.
#[derive(Clone, Debug, PartialEq)]
pub struct CpuCacheProfile {
    /// Bytes; lines are 64 bytes.
    pub bytes: u64,
    /// Lines of one set.
    pub ways: u64,
    /// Whether a flushed line stays in the cache (`clwb`) or is evicted (`clflushopt`).
    pub flush_keeps_line: bool,
}

/// `[device]`: the inside of the medium.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceProfile {
    /// Bytes of an internal block: 256 for Optane, 64 where the medium works in lines.
    pub block_bytes: u64,
    /// Bytes of buffered blocks that were read last; 0 without such a buffer.
    pub read_buffer_bytes: u64,
    /// Bytes of blocks in which written lines wait for their neighbours; 0 without such a buffer.
    pub write_buffer_bytes: u64,
}

/// `[read]`.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadProfile {
    /// Latency of a random access, ns by bytes, one thread.
    pub random_latency_ns: Curve,
    /// Latency of an access that continues where the thread's last one ended and needs a new block, ns by bytes.
    pub sequential_latency_ns: Curve,
    /// Latency of an access inside a block of the read buffer, ns.
    pub buffered_latency_ns: f64,
    /// Ceiling, bytes of blocks per second, all threads.
    pub bandwidth_bytes_per_second: f64,
    /// The fraction of the ceiling that large accesses reach, by bytes; not rising.
    pub bandwidth_fraction: Curve,
    /// Latency grows by this fraction with each further thread that reads.
    pub latency_growth_per_thread: f64,
    /// Threads up to which the ceiling holds.
    pub threads_best: u64,
    /// Fraction of the ceiling that each further thread costs.
    pub bandwidth_loss_per_thread: f64,
}

/// `[write]`: streams and write-backs; ordinary stores go to the processor's cache.
#[derive(Clone, Debug, PartialEq)]
pub struct WriteProfile {
    /// Latency from the first line to the end of the fence, random places, ns by bytes, one thread. Sizes below 64 are
    /// single streaming stores of that size.
    pub random_latency_ns: Curve,
    /// The same for writes that continue where the thread's last one ended.
    pub sequential_latency_ns: Curve,
    /// Ceiling, bytes of blocks per second, all threads.
    pub bandwidth_bytes_per_second: f64,
    /// Latency grows by this fraction with each further thread that writes.
    pub latency_growth_per_thread: f64,
    /// Threads up to which the ceiling holds.
    pub threads_best: u64,
    /// Fraction of the ceiling that each further thread costs.
    pub bandwidth_loss_per_thread: f64,
    /// Bytes without a fence from which on lines of one block are sent out of order, if several threads write.
    pub unfenced_bytes_max: u64,
    /// Fraction of the blocks after that point that are written twice.
    pub torn_fraction: f64,
}

/// `[mixed]`: with `k` other threads of the other kind, bandwidth and 1 / latency fall to
/// `min + (1 - min) / (1 + k / threads_half)`: steeply at first, never below `min`.
#[derive(Clone, Debug, PartialEq)]
pub struct MixedProfile {
    /// Fraction of a reader's speed that any number of writers leaves.
    pub read_fraction_min: f64,
    /// Fraction of a writer's speed that any number of readers leaves.
    pub write_fraction_min: f64,
    /// Number of threads of the other kind at which half of the possible loss is reached.
    pub threads_half: f64,
}

/// `[remote]`: factors on latency and on the time for which a block occupies the medium.
#[derive(Clone, Debug, PartialEq)]
pub struct RemoteProfile {
    /// For reads from another node.
    pub read_factor: f64,
    /// For writes from another node.
    pub write_factor: f64,
}

/// `[instrument]`: the cost of the measuring programs, which the papers' tables contain. `lodestone media verify` adds
/// it in a separate column. Emulation never adds it.
#[derive(Clone, Debug, PartialEq)]
pub struct InstrumentProfile {
    /// A read served by the processor's cache, as the measuring program executes it, ns by bytes.
    pub cached_read_ns: Option<Curve>,
    /// Time that the second measuring program itself spends on each write, ns.
    pub engine_write_ns: f64,
}

impl MediaProfile {
    /// The built-in profile `name`.
    #[must_use]
    pub fn builtin(name: &str) -> Option<Self> {
        let text = Self::builtin_text(name)?;
        // A test reads each of them.
        Self::from_toml(text, &format!("built-in profile {name}")).ok()
    }

    /// The text of the built-in profile `name`, with its comments.
    #[must_use]
    pub fn builtin_text(name: &str) -> Option<&'static str> {
        BUILTIN.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
    }

    /// Names of the built-in profiles.
    #[must_use]
    pub fn names() -> Vec<&'static str> {
        BUILTIN.iter().map(|(name, _)| *name).collect()
    }

    /// Reads a profile; `origin` names it in errors.
    ///
    /// # Errors
    /// Names the missing, unknown or wrong key, with file, expectation and finding.
    pub fn from_toml(text: &str, origin: &str) -> Result<Self, ProfileError> {
        reader::read(text, origin)
    }

    /// Every key, in a form that can be read again.
    #[must_use]
    pub fn to_toml(&self) -> String {
        writer::write(self)
    }

    /// The built-in profile of that name, or else the profile in that file.
    ///
    /// # Errors
    /// An unknown name (the error lists the known ones), an unreadable file, or a fault that
    /// [`from_toml`](Self::from_toml) reports.
    pub fn resolve(name_or_path: &str) -> Result<Self, ProfileError> {
        if let Some(profile) = Self::builtin(name_or_path) {
            return Ok(profile);
        }
        let path = Path::new(name_or_path);
        let looks_like_path = name_or_path.contains('/') || path.extension().is_some();
        if !path.exists() && !looks_like_path {
            return Err(ProfileError::Unknown { name: name_or_path.to_owned(), names: Self::names().join(", ") });
        }
        let failed = |source| ProfileError::Io { path: path.to_owned(), source };
        let bytes = path.metadata().map_err(failed)?.len();
        if bytes > FILE_BYTES_MAX {
            return Err(ProfileError::TooLarge { path: path.to_owned(), bytes, bytes_max: FILE_BYTES_MAX });
        }
        let text = std::fs::read_to_string(path).map_err(failed)?;
        Self::from_toml(&text, name_or_path)
    }
}

#[cfg(test)]
mod tests;
