//! The report of recovery: the state of the lanes at open.

use std::fmt;

use lodestone_pmem::PmAddr;
use serde::Serialize;

/// A lane that an open set aside: no action uses it until [`Heap::repair`](crate::Heap::repair) clears it.
///
/// ```
/// # use lodestone_heap::{Heap, HeapOptions};
/// # use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
/// # let folder = tempfile::tempdir().unwrap();
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let pool = Pool::create(folder.path().join("a.pool"), &options)?;
/// # let heap = Heap::open(&pool, &HeapOptions::default())?;
/// // None after an open that found a sound pool. `pool check` and `Heap::check` name them, too.
/// for lane in &heap.recovery().lanes_damaged {
///     println!("lane {} at {}: {}", lane.number, lane.at, lane.finding);
/// }
/// assert!(heap.recovery().lanes_damaged.is_empty());
/// # Ok::<(), lodestone_heap::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DamagedLane {
    /// Number of the lane.
    pub number: u32,
    /// Where it is.
    #[serde(serialize_with = "crate::check::as_text")]
    pub at: PmAddr,
    /// The finding.
    pub finding: &'static str,
}

impl fmt::Display for DamagedLane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (number, at, finding) = (self.number, self.at, self.finding);
        write!(
            f,
            "lane {number} at {at} is set aside: {finding}; an action that a crash cut short there may be half done"
        )
    }
}

/// Report of an open: finished actions, actions taken back, and places set aside.
///
/// ```
/// use lodestone_heap::{Heap, HeapOptions};
/// use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.pool");
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// let pool = Pool::create(&path, &options)?;
/// let heap = Heap::open(&pool, &HeapOptions::default())?;
/// let report = heap.recovery();
/// assert!(report.is_sound() && report.actions_finished == 0, "{report}");
/// # Ok::<(), lodestone_heap::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// Lanes that were looked at.
    pub lanes: u32,
    /// Actions that a crash cut short after their decision: their words are in place now.
    pub actions_finished: u32,
    /// Actions that a crash cut short before their decision: nothing of them remains.
    pub actions_rolled_back: u32,
    /// Lanes that are damaged. Whether an action was under way there is not known.
    pub lanes_damaged: Vec<DamagedLane>,
}

impl RecoveryReport {
    /// Whether no lane was damaged.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.lanes_damaged.is_empty()
    }
}

impl fmt::Display for RecoveryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for lane in &self.lanes_damaged {
            writeln!(f, "{lane}")?;
        }
        let damaged = self.lanes_damaged.len();
        let (lanes, finished, back) = (self.lanes, self.actions_finished, self.actions_rolled_back);
        write!(f, "{lanes} lanes: {finished} actions finished, {back} rolled back, {damaged} lanes damaged")
    }
}
