//! Targets of an exploration: the object-safe [`Target`] that the engine drives.
//!
//! Most structures implement [`Structure`](crate::Structure) instead, which becomes a target by itself. Implement
//! `Target` directly for code below or beside pools (creation, for example).

use std::fmt;

use lodestone_pmem::PoolOptions;

use crate::event::SiteKey;
use crate::history::History;
use crate::medium::CrashMedium;

/// A fault in words. Every error converts into it by `?`.
///
/// ```
/// use lodestone_crash::Failure;
///
/// let torn = |first: u64, second: u64| Failure::unless(first == second, || format!("torn: {first} and {second}"));
/// assert!(torn(7, 7).is_ok());
/// assert_eq!(torn(7, 8).unwrap_err().to_string(), "torn: 7 and 8");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Failure(String);

impl Failure {
    /// A failure with this text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// `Ok` if `holds`, else a failure with the text that `text` makes.
    ///
    /// # Errors
    /// If `holds` is false.
    pub fn unless(holds: bool, text: impl FnOnce() -> String) -> Outcome {
        if holds { Ok(()) } else { Err(Self(text())) }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

/// Result of a target's function.
///
/// ```
/// use lodestone_crash::{Failure, Outcome};
///
/// fn judge(found: u64) -> Outcome {
///     Failure::unless(found == 3, || format!("{found} records instead of 3"))
/// }
/// assert!(judge(3).is_ok() && judge(2).is_err());
/// ```
pub type Outcome<T = ()> = Result<T, Failure>;

/// Mutations that a target expects to survive, with the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Redundant {
    /// Part of the mutations' texts, such as `"fence at crates/pmem/src/pool/state.rs"`. A line number may follow, but
    /// becomes stale when the file changes.
    pub mutation: &'static str,
    /// How many survivors it excuses. Each further one counts as survived.
    pub at_most: usize,
    /// Why the call is unnecessary but still there.
    pub reason: &'static str,
}

impl Redundant {
    /// Excuses at most `at_most` surviving mutations whose text contains `mutation`.
    #[must_use]
    pub const fn new(mutation: &'static str, at_most: usize, reason: &'static str) -> Self {
        Self { mutation, at_most, reason }
    }
}

/// Something that can be run, crashed, recovered and judged.
///
/// ```
/// use lodestone_crash::pool_targets;
///
/// for target in pool_targets() {
///     println!("{}: {} operations", target.name(), target.script_len());
/// }
/// ```
pub trait Target: Send + Sync {
    /// Name for the command line, of letters, digits and `-`.
    fn name(&self) -> String;

    /// Options of the pool: small, and without a journal.
    fn options(&self) -> PoolOptions {
        tiny_pool()
    }

    /// Number of operations in the script.
    fn script_len(&self) -> usize;

    /// Text for operation `op` of the script.
    fn op_text(&self, op: usize) -> String;

    /// Makes the content of the medium before the run. Not recorded; all of it is persistent.
    ///
    /// # Errors
    /// If it cannot be made.
    fn prepare(&self, medium: &CrashMedium) -> Outcome;

    /// Runs the operations `ops` of the script (indices), with [`CrashMedium::begin`] before and [`CrashMedium::ack`]
    /// after each.
    ///
    /// # Errors
    /// If an operation fails: that is itself a violation.
    fn run(&self, medium: &CrashMedium, ops: &[usize]) -> Outcome;

    /// Recovers after a crash. Recorded, because it is crashed again. It must change nothing except through the medium.
    ///
    /// # Errors
    /// If the structure cannot be recovered: a violation.
    fn recover(&self, medium: &CrashMedium) -> Outcome<Box<dyn Recovered + '_>>;

    /// Whether the mutation audit of this target covers the calls at `site`. The default is all calls except those in
    /// the pool layer, which the pool's own targets cover. A structure built on others leaves their calls to their
    /// targets.
    fn audits(&self, site: &SiteKey) -> bool {
        !in_pool_layer(site)
    }

    /// Mutations that survive for a reason.
    fn redundant(&self) -> Vec<Redundant> {
        Vec::new()
    }

    /// Most accesses to the medium that recovery may make.
    fn recovery_accesses_max(&self) -> u64 {
        100_000
    }

    /// Deepest crash in recovery that is explored, however deep the run goes. For targets whose recovery is that of a
    /// smaller target, so that the bound is spent on their own states.
    fn nested_depth_max(&self) -> u32 {
        u32::MAX
    }

    /// Most crash states that are explored, however large the bound of the run. For targets that are too large to
    /// exhaust.
    fn states_max(&self) -> u64 {
        u64::MAX
    }
}

/// A recovered structure, to be judged.
pub trait Recovered {
    /// Judges the structure against the outside's knowledge, and continues to work with it.
    ///
    /// The verdict must be monotone: a view that is right if an operation was acknowledged is right if it had only
    /// begun.
    ///
    /// # Errors
    /// The fault.
    fn judge(&mut self, history: &History) -> Outcome;
}

/// Whether `site` belongs to the pool layer of `lodestone-pmem`.
#[must_use]
pub fn in_pool_layer(site: &SiteKey) -> bool {
    site.file.contains("pmem/src/pool/")
}

/// Options of a pool for the explorer: 64 KiB without a journal.
#[must_use]
pub fn tiny_pool() -> PoolOptions {
    PoolOptions { size_bytes: 64 << 10, journal_bytes: 0, reserve_bytes: 4 << 20, ..PoolOptions::default() }
}
