//! The findings of an exploration, an audit or a replay, for people (`Display`) and for machines (`to_json_line`).
//!
//! A report says how far the exploration went. It names profile, mode, bound, number of states, whether the space was
//! exhausted, how deep recoveries were crashed again, and the seed.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;

use crate::config::{Mode, Profile};
use crate::event::{CallKind, SiteKey};

/// A violation: the fault, the operations that lead to it, and how to see it again.
#[derive(Clone, Debug, Serialize)]
pub struct Violation {
    /// The oracle's message.
    pub message: String,
    /// The operations of the shrunk run, in words.
    pub ops: Vec<String>,
    /// The token for [`replay`](crate::replay()).
    pub token: String,
    /// The account: stored, kept and lost lines, one by one.
    pub account: String,
    /// The one command that shows this violation again.
    pub command: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "violation: {}", self.message)?;
        writeln!(f, "  operations: {}", if self.ops.is_empty() { "(none)".into() } else { self.ops.join(", ") })?;
        for line in self.account.lines() {
            writeln!(f, "  {line}")?;
        }
        write!(f, "  see it again: {}", self.command)
    }
}

/// Result of exploring one target.
///
/// ```
/// use lodestone_crash::{Config, pool_targets, run_target};
///
/// let config = Config { states_max: 100, nested_depth: 0, ..Config::default() };
/// let report = run_target(pool_targets()[0].as_ref(), &config, &mut |_states| {}).expect_clean();
/// assert!(report.states > 0 && report.found.is_empty());
/// println!("{report}");
/// ```
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Name of the target.
    pub target: String,
    /// Profile of the platform.
    pub profile: Profile,
    /// How states were chosen.
    pub mode: Mode,
    /// Most states to judge: the smaller of the bound of the run and that of the target.
    pub bound: u64,
    /// States judged, including those of crashed recoveries.
    pub states: u64,
    /// Those of crashed recoveries.
    pub states_nested: u64,
    /// States beyond these that needed no run: everything that would be read is the same as in a judged state.
    pub states_same: u64,
    /// Runs that read the same but then differed. Recovery then depends on something other than the medium (time,
    /// random numbers, the order of a hash table). The reading-driven mode is not complete in this case, and
    /// `exhausted` is false.
    pub runs_unsteady: u64,
    /// Visits: ends of segments at which states were chosen.
    pub points: u64,
    /// Events in the trace of the run.
    pub events: usize,
    /// Operations in the run.
    pub operations: usize,
    /// Whether every state of the mode was judged. Never in the representative mode, which is a sample.
    pub exhausted: bool,
    /// How often recovery itself was crashed again.
    pub nested_depth: u32,
    /// Most accesses to the medium that one recovery made.
    pub recovery_accesses_max: u64,
    /// Number of violations found (exploration stops at the configured number).
    pub violations: usize,
    /// Seed.
    pub seed: u64,
    /// Wall-clock time.
    pub seconds: f64,
    /// The violations.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub found: Vec<Violation>,
}

/// One JSON object without line breaks.
pub(crate) fn json_line(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|error| format!("{{\"error\":\"{error}\"}}"))
}

impl Report {
    /// Whether nothing was found.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.violations == 0
    }

    /// One JSON object without line breaks.
    #[must_use]
    pub fn to_json_line(&self) -> String {
        json_line(self)
    }

    /// States judged in a second.
    #[must_use]
    pub fn states_per_s(&self) -> f64 {
        self.states as f64 / self.seconds.max(1e-9)
    }

    /// Panics with the report unless nothing was found. Returns the report for further questions.
    ///
    /// # Panics
    /// If there is a violation.
    #[track_caller]
    pub fn expect_clean(self) -> Self {
        assert!(self.is_clean(), "{self}");
        self
    }

    /// Panics unless nothing was found and every state of the mode was judged.
    ///
    /// # Panics
    /// If there is a violation, or the bound was reached.
    #[track_caller]
    pub fn expect_exhausted(self) -> Self {
        assert!(self.is_clean() && self.exhausted, "{self}");
        self
    }

    /// Panics unless something was found. Returns the first violation.
    ///
    /// # Panics
    /// If nothing was found.
    #[track_caller]
    #[must_use]
    pub fn expect_violation(self) -> Violation {
        assert!(!self.is_clean(), "a violation was expected: {self}");
        self.found.into_iter().next().expect("a violation is listed")
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match (self.violations, self.exhausted) {
            (0, true) => "clean, exhausted".to_owned(),
            (0, false) if self.runs_unsteady > 0 => {
                format!("clean, NOT exhausted: {} runs were not determined by what they read", self.runs_unsteady)
            }
            (0, false) if self.mode == Mode::Representative => "clean, a sample".to_owned(),
            (0, false) => format!("clean, NOT exhausted (bound {})", self.bound),
            (count, _) => format!("{count} VIOLATION{}", if count == 1 { "" } else { "S" }),
        };
        write!(
            f,
            "{}: {verdict}; profile {}, mode {}, {} operations, {} events, {} states ({} in crashed recoveries, depth {}), \
             {} more read the same, {} accesses per recovery at most, seed {}, {:.2} s",
            self.target,
            self.profile,
            self.mode,
            self.operations,
            self.events,
            self.states,
            self.states_nested,
            self.nested_depth,
            self.states_same,
            self.recovery_accesses_max,
            self.seed,
            self.seconds
        )?;
        self.found.iter().try_for_each(|violation| write!(f, "\n{violation}"))
    }
}

/// The fate of one mutant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MutantFate {
    /// An oracle caught it.
    Killed {
        /// The oracle's message.
        message: String,
        /// Token of the reproducer.
        token: String,
    },
    /// It survived, and the target says why that is right.
    Redundant {
        /// The reason.
        reason: String,
    },
    /// It survived: the call is unnecessary, or an oracle is too weak.
    Survived {
        /// Whether its exploration was exhausted.
        exhausted: bool,
    },
    /// Not a mutant, but an excuse of the target that applies to no survivor: every mutant it names was killed or is
    /// gone.
    Stale {
        /// The reason that does not hold.
        reason: String,
    },
}

/// One mutant.
#[derive(Clone, Debug, Serialize)]
pub struct Mutant {
    /// The mutation in words: change, call, source position.
    pub mutation: String,
    /// Its fate.
    pub fate: MutantFate,
}

/// Result of a mutation audit.
#[derive(Clone, Debug, Serialize)]
pub struct AuditReport {
    /// Name of the target.
    pub target: String,
    /// Profile of the platform.
    pub profile: Profile,
    /// Number of mutants.
    pub mutants: usize,
    /// Mutants that were caught.
    pub killed: usize,
    /// Mutants that survived for a stated reason.
    pub redundant: usize,
    /// Mutants that survived without a reason.
    pub survived: usize,
    /// Excuses that apply to no survivor.
    pub stale: usize,
    /// Crash states judged for all of them.
    pub states: u64,
    /// Wall-clock time.
    pub seconds: f64,
    /// Each mutant.
    pub list: Vec<Mutant>,
    /// Calls that ran and were mutated.
    #[serde(skip)]
    pub calls_audited: BTreeSet<(CallKind, SiteKey)>,
    /// Calls that ran and that this target leaves to other targets (see [`Target::audits`](crate::Target::audits)).
    #[serde(skip)]
    pub calls_left: BTreeSet<(CallKind, SiteKey)>,
}

/// The calls that ran under some of these audits but that none of them mutated: holes in the audit as a whole. Code of
/// targets and tests (files of `lodestone-proof`, and in folders `tests` and `examples`) does not count.
#[must_use]
pub fn calls_nobody_audits(reports: &[AuditReport]) -> Vec<String> {
    let audited: BTreeSet<_> = reports.iter().flat_map(|report| &report.calls_audited).collect();
    let left: BTreeSet<_> = reports.iter().flat_map(|report| &report.calls_left).collect();
    unaudited(&audited, &left)
}

/// The calls of `left` that are not in `audited`, except code of targets and tests.
pub(crate) fn unaudited(
    audited: &BTreeSet<&(CallKind, SiteKey)>,
    left: &BTreeSet<&(CallKind, SiteKey)>,
) -> Vec<String> {
    let is_product = |site: &SiteKey| {
        !["/proof/src/", "/interrupted.rs", "/tests/", "/examples/"].iter().any(|part| site.file.contains(part))
    };
    let left = left.difference(audited).filter(|(_, site)| is_product(site));
    left.map(|(call, site)| format!("{call} at {site}")).collect()
}

impl AuditReport {
    /// Whether every mutant was killed or is redundant for a reason that holds.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.survived == 0 && self.stale == 0
    }

    /// One JSON object without line breaks.
    #[must_use]
    pub fn to_json_line(&self) -> String {
        json_line(self)
    }

    /// Panics with the report unless it is clean.
    ///
    /// # Panics
    /// If a mutant survived or an excuse is stale.
    #[track_caller]
    pub fn expect_clean(self) -> Self {
        assert!(self.is_clean(), "{self}");
        self
    }
}

impl fmt::Display for AuditReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} of {} mutants killed, {} redundant, {} survived, {} stale; profile {}, {} states, {:.2} s",
            self.target,
            self.killed,
            self.mutants,
            self.redundant,
            self.survived,
            self.stale,
            self.profile,
            self.states,
            self.seconds
        )?;
        for Mutant { mutation, fate } in &self.list {
            match fate {
                MutantFate::Killed { .. } => {}
                MutantFate::Redundant { reason } => write!(f, "\n  redundant: {mutation}: {reason}")?,
                MutantFate::Survived { exhausted } => {
                    let far = if *exhausted { "every state judged" } else { "bound reached" };
                    write!(f, "\n  SURVIVED: {mutation} ({far}): unnecessary, or the oracle is too weak")?;
                }
                MutantFate::Stale { reason } => {
                    write!(f, "\n  STALE: nothing that is called `{mutation}` survives, yet it is excused: {reason}")?;
                }
            }
        }
        Ok(())
    }
}

/// Result of a replay.
#[derive(Clone, Debug, Serialize)]
pub struct ReplayReport {
    /// The token.
    pub token: String,
    /// Name of the target.
    pub target: String,
    /// The operations of the run, in words.
    pub ops: Vec<String>,
    /// The oracle's message; `None` if nothing is wrong (any more).
    pub violation: Option<String>,
    /// The account: stored, kept and lost lines, one by one.
    pub account: String,
}

impl ReplayReport {
    /// One JSON object without line breaks.
    #[must_use]
    pub fn to_json_line(&self) -> String {
        json_line(self)
    }
}

impl fmt::Display for ReplayReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: {}",
            self.target,
            if self.ops.is_empty() { "(no operations)".into() } else { self.ops.join(", ") }
        )?;
        for line in self.account.lines() {
            writeln!(f, "  {line}")?;
        }
        match &self.violation {
            Some(message) => write!(f, "violation: {message}"),
            None => f.write_str("no violation: recovery and every check succeed in this state"),
        }
    }
}
