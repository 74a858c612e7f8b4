//! Verifying a map on its medium, and counting what it takes.
//!
//! 1. The header verifies.
//! 2. From the first leaf on: each leaf is an allocated block large enough, its frame verifies, its lower bound
//!    ascends.
//! 3. Each slot verifies; no two slots of the map name one record.
//! 4. Each record is an allocated block large enough, and its key and value verify. The key is within its leaf's bounds
//!    and occurs once.
//! 5. The number of records is the one that DRAM counts.
//!
//! The report lists every block that the map owns. A block that the heap holds and no owner lists has leaked.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use lodestone_heap::Heap;
use lodestone_pmem::PmAddr;
use lodestone_width::to_u64;

use crate::anchor::{self, ANCHOR_BYTES, AnchorAt};
use crate::error::{Error, Result};
use crate::layout::{LeafAt, MAP_ANCHOR, RecordHead};
use crate::map::OrderedMap;
use crate::medium::LeafFrame;

/// Something that does not verify.
///
/// ```
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # use lodestone_store::Store;
/// # let folder = tempfile::tempdir().unwrap();
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let store = Store::create(folder.path().join("a.pool"), &options)?;
/// use lodestone_index::OrderedMap;
///
/// let map = OrderedMap::open(&store, "map")?;
/// for finding in map.check().findings {
///     println!("{}: {}", finding.at, finding.text);
/// }
/// assert!(map.check().findings.is_empty());
/// # Ok::<(), lodestone_index::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct IndexFinding {
    /// The place of the damage.
    pub at: PmAddr,
    /// The part that does not verify, and the content found.
    pub text: String,
    /// Whether every block that the structure owns is known all the same. If so, the heap's metadata is damaged, not
    /// the structure.
    pub blocks_are_known: bool,
}

impl fmt::Display for IndexFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "part {} at offset {:#x}: {}", self.at.part(), self.at.offset(), self.text)
    }
}

/// The result of [`OrderedMap::check`].
///
/// ```
/// use lodestone_index::OrderedMap;
/// use lodestone_pmem::{DomainChoice, PoolOptions};
/// use lodestone_store::Store;
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.pool");
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// let store = Store::create(&path, &options)?;
/// let map = OrderedMap::open(&store, "map")?;
/// map.insert(b"key", b"value")?;
/// let report = map.check();
/// assert!(report.is_intact(), "{:?}", report.findings);
/// assert_eq!(report.records, 1);
/// # Ok::<(), lodestone_index::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct IndexReport {
    /// Records that verify.
    pub records: u64,
    /// Leaves that verify.
    pub leaves: u64,
    /// The damage found; empty when the map is intact.
    pub findings: Vec<IndexFinding>,
    /// Every block that the map owns, in no order: part of what the heap's check takes as reachable.
    pub blocks: Vec<PmAddr>,
    /// Bytes that the map keeps in each of [`blocks`](Self::blocks), in the same order.
    pub blocks_bytes: Vec<u64>,
}

impl IndexReport {
    /// Whether the check found no damage.
    #[must_use]
    pub fn is_intact(&self) -> bool {
        self.findings.is_empty()
    }

    /// Takes over the blocks that the structure owns, each with the bytes that it keeps there.
    pub(crate) fn set_blocks(&mut self, owned: impl IntoIterator<Item = (PmAddr, u64)>) {
        (self.blocks, self.blocks_bytes) = owned.into_iter().unzip();
    }

    /// Each block that the structure owns with the bytes that it keeps there.
    pub(crate) fn sized_blocks(&self) -> impl Iterator<Item = (PmAddr, u64)> {
        self.blocks.iter().copied().zip(self.blocks_bytes.iter().copied())
    }

    pub(crate) fn find(&mut self, at: PmAddr, text: impl Into<String>) {
        self.findings.push(IndexFinding { at, text: text.into(), blocks_are_known: false });
    }

    /// Notes a block of the structure that the heap does not hold.
    pub(crate) fn find_unallocated(&mut self, at: PmAddr, what: &str) {
        let text = format!("{what}: is not an allocated block");
        self.findings.push(IndexFinding { at, text, blocks_are_known: true });
    }

    pub(crate) fn find_error(&mut self, fallback: PmAddr, error: Error) {
        match error {
            Error::Damaged { at, what, finding, .. } => self.find(at, format!("{what}: {finding}")),
            other => self.find(fallback, other.to_string()),
        }
    }
}

/// The blocks that the structure under check owns.
pub(crate) struct Owned<'h> {
    heap: &'h Heap,
    blocks: HashMap<PmAddr, u64>,
}

impl<'h> Owned<'h> {
    /// None yet.
    pub(crate) fn new(heap: &'h Heap) -> Self {
        Self { heap, blocks: HashMap::new() }
    }

    /// Notes a block of at least `bytes` bytes; `false` when another part of the structure owns it already.
    pub(crate) fn own(&mut self, report: &mut IndexReport, at: PmAddr, bytes: u64, what: &'static str) -> bool {
        if self.blocks.insert(at, bytes).is_some() {
            report.find(at, format!("{what}: is reachable twice"));
            return false;
        }
        match self.heap.block_bytes(at) {
            Some(found) if found >= bytes => {}
            Some(found) => report.find(at, format!("{what}: {bytes} bytes in a block of {found}")),
            None => report.find_unallocated(at, what),
        }
        true
    }

    /// Notes a block that another check has looked at.
    pub(crate) fn adopt(&mut self, at: PmAddr, bytes: u64) {
        self.blocks.insert(at, bytes);
    }

    /// Whether the block is owned by now.
    pub(crate) fn has(&self, at: PmAddr) -> bool {
        self.blocks.contains_key(&at)
    }

    /// All of them, in no order.
    pub(crate) fn into_blocks(self) -> Vec<(PmAddr, u64)> {
        self.blocks.into_iter().collect()
    }
}

/// The space that a map takes.
///
/// ```
/// use lodestone_index::OrderedMap;
/// use lodestone_pmem::{DomainChoice, PoolOptions};
/// use lodestone_store::Store;
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.pool");
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// let store = Store::create(&path, &options)?;
/// let map = OrderedMap::open(&store, "map")?;
/// map.insert(b"key", b"value")?;
/// let stats = map.stats();
/// assert_eq!((stats.records, stats.leaves), (1, 1));
/// assert!(stats.pm_bytes > 0 && stats.dram_bytes > 0);
/// # Ok::<(), lodestone_index::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MapStats {
    /// Records.
    pub records: u64,
    /// Leaves.
    pub leaves: u64,
    /// Bytes of the heap's blocks that the map owns.
    pub pm_bytes: u64,
    /// Bytes of DRAM for directory, locks and tags.
    pub dram_bytes: u64,
}

/// A leaf's place, frame and upper bound while it is checked.
struct Checked {
    leaf: LeafAt,
    frame: LeafFrame,
    upper: Option<Box<[u8]>>,
}

impl OrderedMap {
    /// Verifies everything on the medium: structure, order, checksums, allocation. Call it while no thread changes the
    /// map: changes under way may be reported as findings.
    #[must_use]
    pub fn check(&self) -> IndexReport {
        let mut report = IndexReport::default();
        let mut owned = Owned::new(&self.heap);
        owned.own(&mut report, self.anchor.at, ANCHOR_BYTES, "anchor of a map");
        if let Err(error) = anchor::verify(self.medium(), &MAP_ANCHOR, self.anchor.at) {
            report.find_error(self.anchor.at, error);
        }
        let leaves = self.check_chain(&mut report, &mut owned);
        report.leaves = to_u64(leaves.len());
        for leaf in leaves {
            self.check_leaf(&mut report, &mut owned, &leaf);
        }
        let counted = self.records.load(Ordering::Relaxed);
        if report.is_intact() && counted != report.records {
            report.find(self.anchor.at, format!("{} records on the medium, {counted} counted", report.records));
        }
        report.set_blocks(owned.into_blocks());
        report
    }

    /// The leaves in order, as far as links and bounds verify.
    fn check_chain(&self, report: &mut IndexReport, owned: &mut Owned<'_>) -> Vec<Checked> {
        let medium = self.medium();
        let mut leaves: Vec<Checked> = Vec::new();
        let mut link = AnchorAt(self.anchor.at).head();
        loop {
            let next = match medium.link(link, "link to a leaf", LeafAt::bytes(1, 0)) {
                Ok(next) if next.is_null() => break,
                Ok(next) => LeafAt(next),
                Err(error) => {
                    report.find_error(link, error);
                    break;
                }
            };
            let frame = match medium.leaf_frame(next) {
                Ok(frame) => frame,
                Err(error) => {
                    report.find_error(next.0, error);
                    break;
                }
            };
            let fresh = owned.own(report, next.0, LeafAt::bytes(frame.slots, frame.low.len()), "leaf");
            let ascends = leaves.last().map_or(frame.low.is_empty(), |last| last.frame.low < frame.low);
            if !fresh || !ascends {
                report.find(next.0, "leaf: its lower bound does not ascend");
                break;
            }
            if let Some(last) = leaves.last_mut() {
                last.upper = Some(frame.low.clone());
            }
            link = next.next();
            leaves.push(Checked { leaf: next, frame, upper: None });
        }
        leaves
    }

    fn check_leaf(&self, report: &mut IndexReport, owned: &mut Owned<'_>, checked: &Checked) {
        let mut keys = HashSet::new();
        for slot in 0..checked.frame.slots {
            match self.medium().slot(checked.leaf, slot) {
                Ok(record) if record.is_null() => {}
                Ok(record) => match self.check_record(report, owned, record) {
                    Ok(key) => {
                        report.records += 1;
                        let inside = key[..] >= checked.frame.low[..]
                            && checked.upper.as_ref().is_none_or(|upper| key[..] < upper[..]);
                        if !inside {
                            report.find(record, "record: its key lies outside its leaf's bounds");
                        }
                        if !keys.insert(key) {
                            report.find(record, "record: its key stands in its leaf twice");
                        }
                    }
                    Err(error) => report.find_error(record, error),
                },
                Err(error) => report.find_error(checked.leaf.slot(slot), error),
            }
        }
    }

    /// The key of the record at `at`, when all of it verifies.
    fn check_record(&self, report: &mut IndexReport, owned: &mut Owned<'_>, at: PmAddr) -> Result<Vec<u8>> {
        let medium = self.medium();
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let head: Result<RecordHead> = medium.key(at, &mut key);
        let bytes = head.as_ref().map_or(RecordHead::BYTES, |head| head.record_bytes());
        owned.own(report, at, bytes, "record");
        medium.append_value(at, head?, &mut value)?;
        Ok(key)
    }

    /// The space that the map takes. It asks the heap for the size of every block, so it takes as long as a scan of the
    /// leaves.
    #[must_use]
    pub fn stats(&self) -> MapStats {
        let medium = self.medium();
        let block = |at| self.heap.block_bytes(at).unwrap_or(0);
        let directory = self.directory.read().unwrap_or_else(PoisonError::into_inner);
        let leaves: Vec<_> = directory.leaves().cloned().collect();
        let dram_bytes = directory.dram_bytes();
        drop(directory);
        let mut pm_bytes = block(self.anchor.at);
        for leaf in &leaves {
            pm_bytes += block(leaf.at.0);
            if let Ok(state) = leaf.read(medium) {
                pm_bytes += state.records().map(|(_, _, at)| block(at)).sum::<u64>();
            }
        }
        MapStats { records: self.records.load(Ordering::Relaxed), leaves: to_u64(leaves.len()), pm_bytes, dram_bytes }
    }
}
