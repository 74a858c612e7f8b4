//! Findings of `check` and actions of `repair`, as data and as text.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::pool::header::HeaderFault;
use crate::pool::info;

/// How bad a finding is.
///
/// ```
/// # use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.pool");
/// # let options = PoolOptions { domain: DomainChoice::Process, size_bytes: 16 << 20, ..PoolOptions::default() };
/// use lodestone_pmem::Severity;
///
/// drop(Pool::create(&path, &options)?);
/// let report = Pool::check(&path, &options)?;
/// assert!(report.findings.iter().all(|finding| finding.severity != Severity::Lost));
/// # Ok::<(), lodestone_pmem::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Severity {
    /// Not a fault: a state that a crash leaves and the next open finishes.
    Note,
    /// Damage that `repair` undoes without loss: the information is there a second time.
    Repairable,
    /// Damage that needs a backup.
    Lost,
}

/// One thing that `check` found.
///
/// ```
/// # use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.pool");
/// # let options = PoolOptions { domain: DomainChoice::Process, size_bytes: 16 << 20, ..PoolOptions::default() };
/// drop(Pool::create(&path, &options)?);
/// for finding in Pool::check(&path, &options)?.findings {
///     println!("{}: {}; {}", finding.path.display(), finding.finding, finding.next_step);
/// }
/// # Ok::<(), lodestone_pmem::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolFinding {
    /// File of the part.
    pub path: PathBuf,
    /// Where in it, bytes from the start.
    pub offset: u64,
    /// How bad it is.
    pub severity: Severity,
    /// The bytes found, and the bytes expected.
    pub finding: String,
    /// Next step for the user.
    pub next_step: String,
}

impl PoolFinding {
    pub(crate) fn note(path: &Path, offset: u64, finding: impl Into<String>) -> Self {
        let next_step = "nothing: the next open for writing puts it in order".into();
        Self { path: path.to_owned(), offset, severity: Severity::Note, finding: finding.into(), next_step }
    }

    pub(crate) fn repairable(path: &Path, offset: u64, finding: impl Into<String>) -> Self {
        let next_step = "run `lodestone pool check --repair`: the information is there a second time".into();
        Self { path: path.to_owned(), offset, severity: Severity::Repairable, finding: finding.into(), next_step }
    }

    pub(crate) fn lost(path: &Path, offset: u64, finding: impl Into<String>, next_step: impl Into<String>) -> Self {
        let (finding, next_step) = (finding.into(), next_step.into());
        Self { path: path.to_owned(), offset, severity: Severity::Lost, finding, next_step }
    }

    pub(crate) fn lost_as(path: &Path, found: HeaderFault) -> Self {
        let HeaderFault { offset, finding, expected, hint } = found;
        Self::lost(path, offset, format!("{finding}; expected {expected}"), hint)
    }

    /// An error of an open as a finding of a check.
    pub(crate) fn from_error(path: &Path, error: Error) -> Self {
        match error {
            Error::Format { path, offset, finding, expected, hint } => {
                Self::lost(&path, offset, format!("{finding}; expected {expected}"), hint)
            }
            other => Self::lost(path, 0, other.to_string(), "see the message"),
        }
    }
}

impl fmt::Display for PoolFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Note => "note",
            Severity::Repairable => "repairable",
            Severity::Lost => "DAMAGED",
        };
        write!(f, "{severity}: {} at {:#x}: {}; {}", self.path.display(), self.offset, self.finding, self.next_step)
    }
}

/// Everything that a check looked at and found.
///
/// ```
/// # use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.pool");
/// # let options = PoolOptions { domain: DomainChoice::Process, size_bytes: 16 << 20, ..PoolOptions::default() };
/// drop(Pool::create(&path, &options)?);
/// let report = Pool::check(&path, &options)?;
/// assert!(report.findings.is_empty());
/// # Ok::<(), lodestone_pmem::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolReport {
    /// The files that were looked at, by part number.
    pub paths: Vec<PathBuf>,
    /// Bytes read from the medium to probe it.
    pub probed_bytes: u64,
    /// Findings in the order of the examination.
    pub findings: Vec<PoolFinding>,
}

impl PoolReport {
    /// Whether nothing is damaged (notes do not count).
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.findings.iter().all(|finding| finding.severity == Severity::Note)
    }

    /// Whether `repair` can undo all damage.
    #[must_use]
    pub fn is_repairable(&self) -> bool {
        self.findings.iter().all(|finding| finding.severity != Severity::Lost)
    }
}

impl fmt::Display for PoolReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        let damaged = self.findings.iter().filter(|finding| finding.severity != Severity::Note).count();
        let paths: Vec<String> = self.paths.iter().map(|path| path.display().to_string()).collect();
        let verdict = match (damaged, self.is_repairable()) {
            (0, _) => "no damage".into(),
            (count, true) => format!("{count} damaged, all repairable"),
            (count, false) => format!("{count} damaged, not all repairable"),
        };
        write!(
            f,
            "{}: header, header copy, state, roots, journal and reserved space looked at, {} read: {verdict}",
            paths.join(", "),
            info::bytes(self.probed_bytes)
        )
    }
}

/// The actions of a repair, and the remaining findings.
///
/// ```
/// # use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.pool");
/// # let options = PoolOptions { domain: DomainChoice::Process, size_bytes: 16 << 20, ..PoolOptions::default() };
/// drop(Pool::create(&path, &options)?);
/// let report = Pool::repair(&path, &options, false)?;
/// assert!(report.done.is_empty(), "a sound pool is not written to");
/// # Ok::<(), lodestone_pmem::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepairReport {
    /// Findings before.
    pub before: PoolReport,
    /// The actions, one sentence each; empty when nothing was written.
    pub done: Vec<String>,
    /// Findings after.
    pub after: PoolReport,
}

impl fmt::Display for RepairReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for done in &self.done {
            writeln!(f, "repaired: {done}")?;
        }
        write!(f, "{}", self.after)
    }
}
