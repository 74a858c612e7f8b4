//! The check of a memory: every object is visited and verified.

use lodestone_pmem::PmAddr;
use lodestone_txn::record::{self, Found};
use lodestone_txn::{Which, Writer};

use crate::format::SYSTEM_SHAPE;
use crate::stm::Stm;
use crate::versions::{judge, read_slot};
use lodestone_cells::CellKind;
use lodestone_cells::Version;

/// Damage in a memory, or something that a crash left.
///
/// ```
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # use lodestone_store::Store;
/// # let folder = tempfile::tempdir().unwrap();
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let store = Store::create(folder.path().join("a.pool"), &options)?;
/// # use lodestone_stm::Stm;
/// # let stm = Stm::open(&store)?;
/// // Empty in a memory without damage.
/// for finding in stm.check_all().findings {
///     println!("{}: {} (damage: {})", finding.at, finding.what, finding.is_damage);
/// }
/// assert!(stm.check_all().findings.iter().all(|finding| !finding.is_damage));
/// # Ok::<(), lodestone_stm::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectFinding {
    /// The place.
    pub at: PmAddr,
    /// The description.
    pub what: String,
    /// Whether data is lost or may be lost. Remains of a crash are no damage.
    pub is_damage: bool,
}

impl std::fmt::Display for ObjectFinding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.at, self.what)
    }
}

/// Result of a check.
///
/// ```
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # use lodestone_store::Store;
/// # let folder = tempfile::tempdir().unwrap();
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let store = Store::create(folder.path().join("a.pool"), &options)?;
/// # use lodestone_stm::Stm;
/// # let stm = Stm::open(&store)?;
/// stm.update(|tx| tx.alloc_bytes(b"one string"))?;
/// let report = stm.check_all();
/// assert!(report.findings.is_empty() && report.objects >= 1);
/// # Ok::<(), lodestone_stm::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ObjectsReport {
    /// Damage and remains of crashes.
    pub findings: Vec<ObjectFinding>,
    /// Objects, byte strings included.
    pub objects: u64,
    /// Their bytes, of one version each.
    pub object_bytes: u64,
    /// Cells without an object.
    pub free_cells: u64,
    /// Slabs.
    pub slabs: u64,
    /// Blocks of the heap that the memory owns.
    pub blocks: Vec<PmAddr>,
    /// Bytes that the memory keeps in each of [`blocks`](Self::blocks), in the same order.
    pub blocks_bytes: Vec<u64>,
}

impl ObjectsReport {
    /// Whether nothing is damaged.
    #[must_use]
    pub fn is_intact(&self) -> bool {
        !self.findings.iter().any(|finding| finding.is_damage)
    }

    fn own(&mut self, at: PmAddr, bytes: u64) {
        self.blocks.push(at);
        self.blocks_bytes.push(bytes);
    }
}

impl Stm {
    /// Verifies every slot of every object, the records and the clock. Call it while nothing is being committed.
    #[must_use]
    pub fn check_all(&self) -> ObjectsReport {
        let core = &*self.core;
        let mut report = ObjectsReport::default();
        for finding in core.timeline.lives().findings(&core.memory) {
            report.findings.push(ObjectFinding { at: finding.at, what: finding.finding, is_damage: false });
        }
        for at in core.places.damaged_lines(&core.memory).into_iter().chain(core.slabs.damaged_lines()) {
            let what = "a copy of the header or of the directory of slabs is damaged; the other copy is used".into();
            report.findings.push(ObjectFinding { at, what, is_damage: false });
        }
        core.places.areas().into_iter().for_each(|(at, bytes)| report.own(at, bytes));
        for at in core.slabs.directory_blocks() {
            report.own(at, core.places.directory_bytes());
        }
        self.check_records(&mut report);
        self.check_cell(core.places.system(), SYSTEM_SHAPE, &mut report);
        report.objects = 0;
        for slab in core.slabs.all() {
            report.slabs += 1;
            report.own(slab.at, slab.bytes);
            if slab.shape.kind != CellKind::Spill {
                slab.cells().for_each(|at| self.check_cell(at, slab.shape, &mut report));
            }
        }
        report
    }

    /// Objects in this memory, counted one by one.
    #[must_use]
    pub fn objects(&self) -> u64 {
        self.check_all().objects
    }

    fn check_cell(&self, at: PmAddr, shape: lodestone_cells::Shape, report: &mut ObjectsReport) {
        let core = &*self.core;
        let mut scratch = Vec::new();
        let judged = judge(&core.memory, core.timeline.lives(), shape, at, &mut scratch);
        for which in [Which::First, Which::Second] {
            let is_damage = judged.damaged == Some(which);
            let what = match read_slot(&core.memory, core.timeline.lives(), shape, at, which, &mut scratch) {
                Version::Broken(_) if is_damage => {
                    "a version of an object fails its checksum, and no crash explains that"
                }
                Version::Broken(_) => "a crash tore this version; the one before it counts",
                _ => continue,
            };
            report.findings.push(ObjectFinding { at: shape.slot_at(at, which), what: what.into(), is_damage });
        }
        match judged.newest {
            Some((_, header)) if !header.flags.deleted => {
                report.objects += 1;
                report.object_bytes += u64::from(header.words) * 8;
            }
            _ => report.free_cells += 1,
        }
    }

    fn check_records(&self, report: &mut ObjectsReport) {
        let core = &*self.core;
        for writer in (0..core.places.threads_max()).filter_map(Writer::new) {
            let buffers = core.places.buffers(writer);
            for index in 0..2 {
                if record::read(&core.memory, &buffers, index, core.places.slab_bytes()) == Found::Torn {
                    let what = format!("record {index} of thread id {} is not whole", writer.number());
                    report.findings.push(ObjectFinding { at: buffers.buffer(index), what, is_damage: false });
                }
            }
        }
    }
}
