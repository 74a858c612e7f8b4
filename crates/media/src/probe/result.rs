//! The result of a probe: the record that `--json` prints, the report draws and a model is fitted to.
//!
//! Invariants:
//! - `format` and `version` come first. A reader refuses values that it does not know ([`ProbeResult::from_json`]).
//! - A cell says everything about its own conditions in its [`CellKey`]. Two cells of one section never have the same
//!   key.
//! - Times are nanoseconds, sizes bytes, rates bytes per second. Emulated results say so in `target.emulated`.

use serde::{Deserialize, Serialize};

use super::Spread;

/// Value of [`ProbeResult::format`].
pub const FORMAT: &str = "lodestone-probe";
/// Value of [`ProbeResult::version`] that this code writes.
pub const VERSION: u32 = 1;

/// The thing that a cell was measured on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// The target itself, through loads and stores.
    Target,
    /// Memory of the process (under a profile: the profile `dram`), for comparison.
    Dram,
    /// A file through system calls, for comparison.
    File,
}

/// Reading or writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Reads.
    Read,
    /// Writes.
    Write,
}

/// The order in which blocks are accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// One after the other.
    Sequential,
    /// By a random permutation, back to back. The processor may overlap accesses, as in the paper's harness.
    Random,
    /// As `random`, but each address depends on the value read before, so nothing overlaps.
    Dependent,
}

/// The instruction or system call of the access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// Loads.
    Load,
    /// Stores, with each line flushed after its stores.
    StoreFlush,
    /// Non-temporal stores around the cache.
    Stream,
    /// pread and pwrite through the page cache.
    Buffered,
    /// pwrite and fdatasync.
    BufferedSync,
    /// pread and pwrite around the page cache (`O_DIRECT`).
    Direct,
    /// As `direct`, with many requests in flight through io_uring.
    Uring,
}

/// The node whose threads access the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// Threads on the node of the medium.
    Near,
    /// Threads on the node farthest from it.
    Far,
}

/// A part of the probe that can be asked for by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Section {
    /// One thread, every access size (Tables 3 to 6, Figures 8 and 9), and dependent reads by working set.
    Latency,
    /// Several threads, every access size (Figures 1 to 4, 6, 7 and 10).
    Threads,
    /// A fence every 256 bytes (Figure 5).
    Fence,
    /// Store and flush against streaming stores.
    Instruction,
    /// Readers beside writers at 256 bytes (Figures 11 to 14).
    Mixed,
    /// Threads on the near and on the far node (paper 4, Figure 2).
    Nodes,
    /// The same on DRAM (Tables 7 and 8) and on a file through the kernel.
    Compare,
}

impl Section {
    /// All sections in the order in which they run.
    pub const ALL: [Self; 7] =
        [Self::Latency, Self::Threads, Self::Fence, Self::Instruction, Self::Mixed, Self::Nodes, Self::Compare];

    /// The name of the section in options.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Threads => "threads",
            Self::Fence => "fence",
            Self::Instruction => "instruction",
            Self::Mixed => "mixed",
            Self::Nodes => "nodes",
            Self::Compare => "compare",
        }
    }
}

/// The conditions of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CellKey {
    /// The thing measured.
    pub subject: Subject,
    /// Reading or writing.
    pub operation: Operation,
    /// Order of the blocks.
    pub pattern: Pattern,
    /// Instruction or system call.
    pub access: Access,
    /// Bytes between two fences inside one access; 0: one fence at its end. Always 0 for reads and files.
    pub fence_bytes: u64,
    /// Bytes of one access.
    pub access_bytes: u64,
    /// Threads that do this operation.
    pub threads: u32,
    /// Threads that do the opposite operation at the same time.
    pub beside_threads: u32,
    /// Where the threads run.
    pub place: Place,
    /// Bytes that the accesses of all threads together range over.
    pub working_set_bytes: u64,
}

/// One measured figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The section that measured it.
    pub section: Section,
    /// The conditions.
    #[serde(flatten)]
    pub key: CellKey,
    /// Accesses in all repetitions of all threads.
    pub operations: u64,
    /// Repetitions that the statistics are over.
    pub repetitions: u32,
    /// Time of a thread divided by its accesses, back to back (dependent: one after the other), in nanoseconds.
    pub latency_ns: Spread,
    /// Bytes asked for by all threads of this operation together, per second.
    pub bandwidth_bytes_per_s: Spread,
}

/// The measured target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// Its name, as the user wrote it.
    pub name: String,
    /// `file`, `temporary file`, `block device`, `devdax device`, `memory` or `profile`.
    pub kind: String,
    /// File system or other medium.
    pub medium: String,
    /// Persistence domain of the mapping.
    pub domain: String,
    /// The reason for this domain.
    pub domain_reason: String,
    /// Label of the emulation; absent on a real medium.
    pub emulated: Option<String>,
    /// Whether only reads were measured.
    pub read_only: bool,
    /// Bytes that accesses ranged over.
    pub range_bytes: u64,
}

/// The machine that measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Processor, memory.
    pub description: String,
    /// Kernel.
    pub kernel: String,
    /// Processors that this process may use.
    pub processors: u32,
    /// NUMA nodes.
    pub nodes: u32,
    /// Whether the nodes are virtual.
    pub nodes_virtual: bool,
    /// How lines are flushed: `clwb`, `clflushopt`, `clflush` or `none`.
    pub flush_instruction: String,
    /// How streams are stored: `avx512`, `movdir64b`, `sse2` or `plain`.
    pub stream_instruction: String,
}

/// The method of measuring.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Method {
    /// The clock, in words.
    pub clock: String,
    /// Shortened run.
    pub quick: bool,
    /// Time of one repetition, nanoseconds (0 in virtual time).
    pub repetition_ns: u64,
    /// Repetitions of a cell.
    pub repetitions: u32,
    /// Thread counts of the sweeps.
    pub thread_counts: Vec<u32>,
    /// Sections that ran.
    pub sections: Vec<Section>,
    /// Time of one step of the harness without an access, in nanoseconds; part of every figure in real time.
    pub harness_ns: f64,
    /// Whether threads were pinned to processors.
    pub pinned: bool,
}

/// The full result of a probe.
///
/// ```
/// use lodestone_media::probe::ProbeResult;
/// let result = ProbeResult::new();
/// let back = ProbeResult::from_json(&result.to_json())?;
/// assert_eq!(back, result);
/// assert!(ProbeResult::from_json("{\"format\":\"lodestone-probe\",\"version\":999}").is_err());
/// # Ok::<(), lodestone_media::probe::ProbeError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProbeResult {
    /// Always [`FORMAT`].
    pub format: String,
    /// Version of this schema, see [`VERSION`].
    pub version: u32,
    /// When it began, in seconds since 1970 by the caller's clock; absent if the caller has no clock.
    pub began_unix_s: Option<u64>,
    /// How long it took, seconds of real time.
    pub duration_s: f64,
    /// The measured target.
    pub target: Target,
    /// The machine.
    pub machine: Machine,
    /// The method.
    pub method: Method,
    /// Facts that a reader must know: parts left out and why, refusals of the kernel.
    pub notes: Vec<String>,
    /// The figures.
    pub cells: Vec<Cell>,
}

impl Default for ProbeResult {
    fn default() -> Self {
        Self::new()
    }
}

impl ProbeResult {
    /// A result without figures.
    #[must_use]
    pub fn new() -> Self {
        Self {
            format: FORMAT.into(),
            version: VERSION,
            began_unix_s: None,
            duration_s: 0.0,
            target: Target::default(),
            machine: Machine::default(),
            method: Method::default(),
            notes: Vec::new(),
            cells: Vec::new(),
        }
    }

    /// One line of JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Numbers, strings and lists always have a JSON form.
        serde_json::to_string(self).unwrap_or_else(|error| unreachable!("a result is plain data: {error}"))
    }

    /// Reads the text that [`to_json`](Self::to_json) wrote.
    ///
    /// # Errors
    /// If `text` is not a probe's result, or is one of another version.
    pub fn from_json(text: &str) -> Result<Self, super::ProbeError> {
        let unreadable = |finding: String| super::ProbeError::Unreadable {
            finding,
            hint: "pass the output of `lodestone media probe --json`",
        };
        let value: serde_json::Value = serde_json::from_str(text).map_err(|error| unreadable(error.to_string()))?;
        let (format, version) = (value["format"].as_str().unwrap_or(""), value["version"].as_u64().unwrap_or(0));
        if format != FORMAT {
            return Err(unreadable(format!("its `format` is `{format}`, not `{FORMAT}`")));
        }
        if version != u64::from(VERSION) {
            return Err(unreadable(format!("its version is {version}, this program reads version {VERSION}")));
        }
        serde_json::from_value(value).map_err(|error| unreadable(error.to_string()))
    }

    /// The cells whose key satisfies `matches`.
    pub fn select(&self, matches: impl Fn(&CellKey) -> bool) -> impl Iterator<Item = &Cell> {
        self.cells.iter().filter(move |cell| matches(&cell.key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell() -> Cell {
        Cell {
            section: Section::Threads,
            key: CellKey {
                subject: Subject::Target,
                operation: Operation::Write,
                pattern: Pattern::Random,
                access: Access::Stream,
                fence_bytes: 256,
                access_bytes: 4096,
                threads: 2,
                beside_threads: 0,
                place: Place::Near,
                working_set_bytes: 1 << 28,
            },
            operations: 10,
            repetitions: 5,
            latency_ns: Spread::of([100.0, 101.5]).expect("samples"),
            bandwidth_bytes_per_s: Spread::of([1e9 / 3.0]).expect("a sample"),
        }
    }

    #[test]
    fn a_result_reads_back_bit_for_bit() {
        let mut result = ProbeResult::new();
        result.cells.push(cell());
        result.notes.push("a \"note\"".into());
        result.began_unix_s = Some(1_800_000_000);
        let text = result.to_json();
        assert!(!text.contains('\n') && text.starts_with("{\"format\":\"lodestone-probe\",\"version\":1,"), "{text}");
        assert!(text.contains("\"section\":\"threads\",\"subject\":\"target\",\"operation\":\"write\""), "{text}");
        assert_eq!(ProbeResult::from_json(&text).expect("reads back"), result);
        assert_eq!(result.select(|key| key.threads == 2).count(), 1);
    }

    #[test]
    fn what_is_no_result_is_refused_by_name() {
        let message = |text: &str| ProbeResult::from_json(text).expect_err(text).to_string();
        assert!(message("no json").contains("media probe --json"));
        assert!(message("{\"bench\":\"ycsb\"}").contains("`format`"));
        assert!(message("{\"format\":\"lodestone-probe\",\"version\":2}").contains("version is 2"));
        assert!(message("{\"format\":\"lodestone-probe\",\"version\":1}").contains("missing field"));
    }

    #[test]
    fn sections_are_called_as_they_are_written() {
        for section in Section::ALL {
            assert_eq!(serde_json::to_string(&section).expect("json"), format!("\"{}\"", section.name()));
        }
    }
}
