//! The check of everything in a pool: catalog, objects, heap, and the owner of each block.
//!
//! 1. The catalog: every pair of copies.
//! 2. Every object, by its kind. An object of an unknown kind is a finding.
//! 3. The heap's metadata, and ownership: a block that nothing reaches has leaked.
//!
//! Invariant: ownership is only judged, and a repair only frees blocks, when everything that could own a block was read
//! completely. A damaged object must not turn the records beyond the damage into leaks.

use std::fmt;

use lodestone_heap::HeapReport;
use lodestone_pmem::sync::lock;
use lodestone_pmem::{PmAddr, Severity};
use serde::Serialize;

use crate::discard::{Examine, read_lists};
use crate::error::{Error, Result};
use crate::kind::KindCode;
use crate::layout::{Entry, List, PAGE_BYTES, State};
use crate::object::Claim;
use crate::salvage::REPAIR_NAME;
use crate::store::Store;

/// One thing that a check found.
///
/// ```
/// use lodestone_pmem::Severity;
/// use lodestone_store::Finding;
///
/// let finding = Finding::new("object", "stock", Severity::Lost, "a leaf does not verify", "restore a backup");
/// assert_eq!(finding.to_string(), "lost: object stock: a leaf does not verify; restore a backup");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// `pool`, `heap`, `catalog` or `object`.
    pub layer: &'static str,
    /// The object, or the pool's path.
    pub place: String,
    /// Part and offset, where there is one.
    pub at: Option<(u16, u64)>,
    /// The severity.
    #[serde(serialize_with = "severity_text")]
    pub severity: Severity,
    /// The finding.
    pub finding: String,
    /// The next step.
    pub next_step: String,
}

fn severity_text<S: serde::Serializer>(severity: &Severity, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_str(severity_name(*severity))
}

/// The word for a severity in reports.
#[must_use]
pub fn severity_name(severity: Severity) -> &'static str {
    match severity {
        Severity::Note => "note",
        Severity::Repairable => "repairable",
        _ => "lost",
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} {}", severity_name(self.severity), self.layer, self.place)?;
        if let Some((part, offset)) = self.at {
            write!(f, " part {part} at offset {offset:#x}")?;
        }
        write!(f, ": {}; {}", self.finding, self.next_step)
    }
}

impl Finding {
    /// A finding without a place in the pool.
    #[must_use]
    pub fn new(layer: &'static str, place: &str, severity: Severity, finding: &str, next_step: &str) -> Self {
        let (place, finding, next_step) = (place.to_owned(), finding.to_owned(), next_step.to_owned());
        Self { layer, place, at: None, severity, finding, next_step }
    }

    /// A finding about the whole pool at `path`, from below the store.
    #[must_use]
    pub fn of_pool(found: &lodestone_pmem::PoolFinding) -> Self {
        Self {
            layer: "pool",
            place: found.path.display().to_string(),
            at: Some((0, found.offset)),
            severity: found.severity,
            finding: found.finding.clone(),
            next_step: found.next_step.clone(),
        }
    }
}

/// The result for one object.
///
/// ```
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # use lodestone_store::Store;
/// # let folder = tempfile::tempdir().unwrap();
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let store = Store::create(folder.path().join("a.pool"), &options)?;
/// let report = store.check(&mut |_| ());
/// for object in &report.objects {
///     println!("{} ({}): {} records, {} bytes", object.name, object.kind, object.records, object.bytes);
/// }
/// assert!(report.is_clean() && report.objects.is_empty(), "an empty store");
/// # Ok::<(), lodestone_store::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Examined {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: String,
    /// Records in it that verify.
    pub records: u64,
    /// Blocks that it owns, as far as they are known.
    pub blocks: u64,
    /// Bytes of these blocks.
    pub bytes: u64,
    /// Whether nothing is damaged.
    pub is_intact: bool,
}

/// The result of [`Store::check`].
///
/// ```
/// use lodestone_pmem::{DomainChoice, PoolOptions};
/// use lodestone_store::Store;
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.pool");
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// let store = Store::create(&path, &options)?;
/// let report = store.check(&mut |name| println!("checking {name}"));
/// assert!(report.is_clean() && report.ownership_checked, "{:?}", report.findings);
/// assert!(report.objects.is_empty());
/// # Ok::<(), lodestone_store::Error>(())
/// ```
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct StoreReport {
    /// Every object.
    pub objects: Vec<Examined>,
    /// Words of heap metadata that were verified.
    pub heap_words: u64,
    /// Allocated blocks.
    pub heap_blocks: u64,
    /// Whether the owner of each block was checked.
    pub ownership_checked: bool,
    /// All findings.
    pub findings: Vec<Finding>,
    /// The heap's own report: [`Store::repair`] needs it.
    #[serde(skip)]
    heap: Option<HeapReport>,
}

impl StoreReport {
    /// Whether nothing is damaged (notes do not count).
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.findings.iter().all(|finding| finding.severity == Severity::Note)
    }

    fn push(
        &mut self,
        layer: &'static str,
        place: &str,
        at: Option<PmAddr>,
        severity: Severity,
        finding: &str,
        next_step: &str,
    ) {
        let at = at.map(|at| (at.part(), at.offset()));
        let (place, finding, next_step) = (place.to_owned(), finding.to_owned(), next_step.to_owned());
        self.findings.push(Finding { layer, place, at, severity, finding, next_step });
    }
}

/// The advice for damage without a second copy.
const RESTORE: &str = "restore a backup, or keep what is readable with `lodestone pool repair --accept-loss --yes`";
/// The advice where an object cannot be opened.
const OPEN: &str = "another format version: use the program that the finding names; damage: restore a backup, or keep \
                    what is readable with `lodestone pool repair --accept-loss --yes`";
/// The advice for damage with a second copy.
const REPAIR: &str = "run `lodestone pool repair`";

impl Store {
    /// Verifies everything in the pool, and the owner of each block. It changes nothing. No other thread may change
    /// anything meanwhile. `tell` receives the name of the object that is checked next.
    pub fn check(&self, tell: &mut dyn FnMut(&str)) -> StoreReport {
        let mut report = StoreReport::default();
        let mut blocks = Vec::new();
        let mut complete = self.check_catalog(&mut report, &mut blocks);
        if lock(&self.inner.catalog).names.contains_key(REPAIR_NAME) {
            let finding = "a crash cut short a repair that accepts loss";
            report.push("catalog", REPAIR_NAME, None, Severity::Repairable, finding, REPAIR);
        }
        for named in self.names() {
            // A half-made object of a repair is removed whole.
            if named.name == REPAIR_NAME {
                complete = false;
                continue;
            }
            tell(&named.name);
            complete &= self.check_object(&mut report, &named.name, named.kind, &mut blocks);
        }
        tell("the heap");
        // With the bytes that each owner keeps, chunk tables and bitmaps can be rebuilt from the owners.
        let heap = if complete { self.heap().check_owned(&mut blocks.into_iter()) } else { self.heap().check(None) };
        report.ownership_checked = complete;
        (report.heap_words, report.heap_blocks) = (heap.words, heap.blocks);
        let path = self.pool().path().display().to_string();
        for found in &heap.findings {
            let (severity, step) = match found.is_repairable() {
                true => (Severity::Repairable, REPAIR),
                false => (Severity::Lost, RESTORE),
            };
            report.push("heap", &path, Some(found.at), severity, &found.finding, step);
        }
        report.heap = Some(heap);
        report
    }

    /// Repairs the findings of `report` about the heap, as far as they can be repaired. Nothing may have changed since
    /// the check. Returns the repairs in words. Durable on return.
    ///
    /// # Errors
    /// When the pool is read-only or fails.
    pub fn repair(&self, report: &StoreReport) -> Result<Vec<String>> {
        let Some(heap) = &report.heap else { return Ok(Vec::new()) };
        let done = self.heap().repair(heap)?;
        Ok(done.repaired.iter().map(|finding| format!("heap at {}: {}", finding.at, finding.finding)).collect())
    }

    /// Adds the catalog's own blocks. Returns whether all of them are known.
    fn check_catalog(&self, report: &mut StoreReport, blocks: &mut Vec<(PmAddr, u64)>) -> bool {
        let catalog = lock(&self.inner.catalog);
        let path = self.pool().path().display().to_string();
        for damage in &catalog.damage {
            let (severity, step) = match damage.is_healed {
                true if self.memory().is_read_only() => {
                    (Severity::Repairable, "the next open for writing writes it anew")
                }
                true => (Severity::Note, "nothing: it was written anew"),
                false => (Severity::Lost, RESTORE),
            };
            report.push("catalog", &path, Some(damage.at), severity, &damage.finding, step);
        }
        blocks.extend(catalog.pages.iter().map(|page| (page.0, PAGE_BYTES)));
        let mut complete = catalog.damage.iter().all(|damage| damage.is_healed);
        for slot in &catalog.slots {
            let Some(entry) = &slot.entry else { continue };
            blocks.push((entry.at, Entry::bytes(entry.name.len())));
            let (lists, damage) = read_lists(self.heap(), slot.list);
            if let Some((at, why)) = damage {
                complete = false;
                let finding = format!("the list of the drop of `{}`: {why}", entry.name);
                report.push("catalog", &path, Some(at), Severity::Lost, &finding, RESTORE);
            }
            for (at, list) in lists {
                blocks.push((at, List::bytes(list.blocks.len())));
                if slot.state == Some(State::Dropped) {
                    blocks.extend(list.blocks.iter().map(|block| (*block, 0)));
                }
            }
            if slot.state == Some(State::Dropped) || !slot.list.is_null() {
                let finding = format!("a crash cut short the drop of `{}`", entry.name);
                report.push(
                    "catalog",
                    &path,
                    Some(entry.at),
                    Severity::Note,
                    &finding,
                    "nothing: the next open for writing finishes it",
                );
            }
        }
        complete
    }

    /// Adds the blocks of an object. Returns whether all of them are known.
    fn check_object(
        &self,
        report: &mut StoreReport,
        name: &str,
        kind: KindCode,
        blocks: &mut Vec<(PmAddr, u64)>,
    ) -> bool {
        let title = self.find_kind(kind).map_or_else(|| format!("unknown kind {kind}"), |kind| kind.title().to_owned());
        let mut examined =
            Examined { name: name.to_owned(), kind: title, records: 0, blocks: 0, bytes: 0, is_intact: false };
        let object = match self.open_object(name) {
            Ok(object) => object,
            Err(error) => {
                let (severity, step) = match &error {
                    Error::AlreadyOpen { .. } => (Severity::Note, "close it, then check again"),
                    _ => (Severity::Lost, OPEN),
                };
                report.push("object", name, None, severity, &format!("not looked at: {error}"), step);
                report.objects.push(examined);
                return false;
            }
        };
        let at = object.at();
        let contents = match self.examine_claimed(object) {
            Ok(contents) => contents,
            Err(Examine::Unknown(error)) => {
                let step = "check it with the program that made it";
                report.push("object", name, Some(at), Severity::Lost, &error.to_string(), step);
                report.objects.push(examined);
                return false;
            }
            Err(Examine::Failed(error)) => {
                report.push("object", name, Some(at), Severity::Lost, &error.to_string(), OPEN);
                report.objects.push(examined);
                return false;
            }
        };
        for flaw in &contents.flaws {
            let (severity, step) =
                if flaw.is_in_heap { (Severity::Repairable, REPAIR) } else { (Severity::Lost, RESTORE) };
            report.push("object", name, Some(flaw.at), severity, &flaw.text, step);
        }
        for note in &contents.notes {
            report.push("object", name, None, Severity::Note, note, "nothing: the next open for writing finishes it");
        }
        examined.records = contents.records;
        examined.blocks = lodestone_width::to_u64(contents.blocks.len());
        examined.bytes = contents.blocks.iter().filter_map(|(at, _)| self.heap().block_bytes(*at)).sum();
        examined.is_intact = contents.is_whole();
        report.objects.push(examined);
        let complete = contents.is_complete();
        blocks.extend(contents.blocks);
        complete
    }

    /// The blocks of the heap that the store itself owns: its catalog. All others belong to objects.
    #[must_use]
    pub fn own_blocks(&self) -> Vec<PmAddr> {
        let mut blocks = Vec::new();
        self.check_catalog(&mut StoreReport::default(), &mut blocks);
        blocks.into_iter().map(|(at, _)| at).collect()
    }

    /// Whether any object is open in this process.
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        lock(&self.inner.catalog).slots.iter().any(|slot| !matches!(slot.claim, Claim::Free))
    }
}
