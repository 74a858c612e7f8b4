//! The check of a pool through all its layers: medium and headers, heap, maps, and who owns which block.
//!
//! 1. The pool by itself ([`Pool::check`]): it needs no open and changes nothing.
//! 2. The heap and the maps in a read-only view, when the pool is fit to be opened: every map's structure and records, every
//!    word of the heap's metadata.
//! 3. Ownership, when every root is known and no map has lost blocks: what no map reaches has leaked.
//!
//! Invariant: ownership is only judged, and blocks are only freed by a repair, when everything that could own a block was
//! read completely. A damaged map must not turn the records behind the damage into leaks.

use std::path::Path;

use anyhow::Result;
use lodestone_heap::{Heap, HeapOptions};
use lodestone_index::{
    Durability, Error as IndexError, KIND_LIVE, KIND_PENDING, KIND_RECORDS, KIND_RECORDS_PENDING, OrderedMap,
    RecordMap, index_of_map, index_root_of, open_records,
};
use lodestone_pmem::{PmAddr, Pool, PoolOptions, Severity};
use lodestone_stm::{Stm, StmOptions};
use serde::Serialize;

/// How the map's check words the one finding behind which nothing is missing: the heap's metadata is damaged, not the map.
const UNALLOCATED: &str = "is not an allocated block";

/// One thing that was found.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// `pool`, `heap`, `memory` or `map`.
    pub layer: &'static str,
    /// File, or map.
    pub place: String,
    /// `note`, `repairable` or `lost`.
    pub severity: &'static str,
    /// What stands there.
    pub finding: String,
    /// What to do next.
    pub next_step: String,
}

impl Finding {
    /// The finding as a line for a person.
    pub fn text(&self) -> String {
        format!("{}: {} {}: {}; {}", self.severity, self.layer, self.place, self.finding, self.next_step)
    }
}

/// What was looked at and what was found.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Examination {
    /// The pool.
    pub path: String,
    /// Whether nothing is damaged.
    pub clean: bool,
    /// Bytes read from the medium.
    pub read_bytes: u64,
    /// Words of heap metadata that were verified.
    pub heap_words: u64,
    /// Allocated blocks.
    pub heap_blocks: u64,
    /// Whether it was checked who owns each block.
    pub ownership_checked: bool,
    /// Maps whose every record was looked at.
    pub maps: u64,
    /// Records in them that verify.
    pub records: u64,
    /// What was found.
    pub findings: Vec<Finding>,
}

/// Checks the pool at `path` through all layers; changes nothing.
///
/// # Errors
/// When the pool cannot be read at all, or a writer has it open. Damage is a finding, not an error.
pub fn examine(path: &Path, options: &PoolOptions) -> Result<Examination> {
    let report = Pool::check(path, options)?;
    let mut found =
        Examination { path: path.display().to_string(), read_bytes: report.probed_bytes, ..Default::default() };
    found.findings.extend(report.findings.iter().map(|finding| Finding {
        layer: "pool",
        place: format!("{} at {:#x}", finding.path.display(), finding.offset),
        severity: match finding.severity {
            Severity::Note => "note",
            Severity::Repairable => "repairable",
            _ => "lost",
        },
        finding: finding.finding.clone(),
        next_step: finding.next_step.clone(),
    }));
    // An open refuses some of what a check can see past; then the layers above cannot be judged.
    match Pool::open_read_only(path, options) {
        Ok(pool) => look_inside(&pool, &mut found),
        Err(_) if !report.is_clean() => {
            found.note(
                "heap",
                &found.path.clone(),
                "not looked at: the pool cannot be opened as it is",
                "repair it first",
            );
        }
        Err(error) => return Err(error.into()),
    }
    found.clean = found.findings.iter().all(|finding| finding.severity == "note");
    Ok(found)
}

/// What a repair of the heap did.
#[derive(Clone, Debug, Default)]
pub struct HeapRepair {
    /// What was repaired.
    pub done: Vec<String>,
}

/// Repairs the heap of a pool that is open for writing, as far as it can be known what is right.
///
/// # Errors
/// When the pool fails.
pub fn repair_heap(pool: &Pool) -> Result<HeapRepair> {
    let mut repair = HeapRepair::default();
    if !has_heap(pool) {
        return Ok(repair);
    }
    let Ok(heap) = Heap::open(pool, &HeapOptions::default()) else { return Ok(repair) };
    let reachable = look_at_maps(&heap, &mut Examination::default());
    let report = match reachable {
        Some(blocks) => heap.check(Some(&mut blocks.into_iter())),
        None => heap.check(None),
    };
    let done = heap.repair(&report)?;
    repair.done = done.repaired.iter().map(|finding| format!("heap at {}: {}", finding.at, finding.finding)).collect();
    Ok(repair)
}

impl Examination {
    fn push(&mut self, layer: &'static str, place: &str, severity: &'static str, finding: &str, next_step: &str) {
        let (place, finding, next_step) = (place.to_owned(), finding.to_owned(), next_step.to_owned());
        self.findings.push(Finding { layer, place, severity, finding, next_step });
    }

    fn note(&mut self, layer: &'static str, place: &str, finding: &str, next_step: &str) {
        self.push(layer, place, "note", finding, next_step);
    }

    fn being_created(&mut self, map: &str) {
        self.note("map", map, "was being created when the pool died", "nothing: its next open goes on");
    }

    fn lost(&mut self, layer: &'static str, place: &str, finding: &str) {
        self.push(layer, place, "lost", finding, "restore a backup, or export what is readable into a new pool");
    }
}

/// Whether the heap area was ever used: its first word is written last when a heap is made.
fn has_heap(pool: &Pool) -> bool {
    pool.memory().load(pool.heap_area(0).0) != 0
}

fn look_inside(pool: &Pool, found: &mut Examination) {
    let path = found.path.clone();
    if !has_heap(pool) {
        if !pool.info().roots.is_empty() {
            found.lost("heap", &path, "the pool has roots but no heap: the heap's first word is zero");
        }
        return;
    }
    let heap = match Heap::open(pool, &HeapOptions::default()) {
        Ok(heap) => heap,
        Err(lodestone_heap::Error::Invalid { what: "heap", .. }) => {
            let step = "open the pool for writing once (`lodestone kv check` does), then check again";
            return found.note("heap", &path, "not looked at: a crash left actions that the next open finishes", step);
        }
        Err(error) => return found.lost("heap", &path, &error.to_string()),
    };
    let reachable = look_at_maps(&heap, found);
    found.ownership_checked = reachable.is_some();
    let report = match reachable {
        Some(blocks) => heap.check(Some(&mut blocks.into_iter())),
        None => heap.check(None),
    };
    found.heap_words = report.words;
    found.heap_blocks = report.blocks;
    for finding in &report.findings {
        let severity = if finding.is_repairable() { "repairable" } else { "lost" };
        let step = if finding.is_repairable() {
            "run `lodestone pool repair`"
        } else {
            "restore a backup, or export what is readable into a new pool"
        };
        found.push("heap", &format!("{path} at {}", finding.at), severity, &finding.finding, step);
    }
}

/// Checks the transactional memory, if the heap's root word leads to one: its blocks, `None` when they are not known.
fn look_at_memory(heap: &Heap, found: &mut Examination) -> Option<Vec<PmAddr>> {
    if heap.memory().load(heap.root_word(0)) == 0 {
        return Some(Vec::new());
    }
    match Stm::open_in(heap, &StmOptions::default()) {
        Ok(stm) => {
            let report = stm.check_all();
            for finding in report.findings.iter().filter(|finding| finding.is_damage) {
                found.lost("memory", &found.path.clone(), &finding.to_string());
            }
            Some(report.blocks)
        }
        Err(error) => {
            found.lost("memory", &found.path.clone(), &error.to_string());
            None
        }
    }
}

/// Opens the map under a root of this kind, whatever it is made of.
fn open_map(heap: &Heap, name: &str, kind: u32) -> lodestone_index::Result<Box<dyn RecordMap>> {
    match if kind == KIND_RECORDS { index_of_map(heap.pool(), name)? } else { None } {
        Some(index) => open_records(heap, name, index, Durability::Sync),
        None => Ok(Box::new(OrderedMap::open(heap, name)?)),
    }
}

/// Checks every map and the transactional memory; every block that they own, when that is known completely.
fn look_at_maps(heap: &Heap, found: &mut Examination) -> Option<Vec<PmAddr>> {
    let memory = look_at_memory(heap, found);
    let mut complete = memory.is_some();
    let mut blocks = memory.unwrap_or_default();
    let roots = heap.pool().info().roots;
    // The index below a map is looked at with its map.
    let is_map = |kind| matches!(kind, KIND_RECORDS | KIND_RECORDS_PENDING);
    let below: Vec<_> = roots.iter().filter(|root| is_map(root.kind)).map(|root| index_root_of(&root.name)).collect();
    for root in roots.iter().filter(|root| !below.contains(&root.name)) {
        match root.kind {
            KIND_LIVE | KIND_RECORDS => {}
            // Nothing is allocated, or the next open of the map says so.
            KIND_PENDING | KIND_RECORDS_PENDING => {
                complete = false;
                found.being_created(&root.name);
                continue;
            }
            _ => {
                complete = false;
                found.note("map", &root.name, &format!("a root of kind {}, which is no map", root.kind), "nothing");
                continue;
            }
        }
        match open_map(heap, &root.name, root.kind) {
            Ok(map) => {
                let report = map.check();
                found.maps += 1;
                found.records += report.records;
                for finding in &report.findings {
                    found.lost("map", &root.name, &finding.to_string());
                }
                complete &= report.findings.iter().all(|finding| finding.text.contains(UNALLOCATED));
                blocks.extend(report.blocks);
            }
            // Of a map over an index not everything is there yet.
            Err(IndexError::ReadOnly { .. }) => {
                complete = false;
                found.being_created(&root.name);
            }
            Err(error) => {
                complete = false;
                found.lost("map", &root.name, &error.to_string());
            }
        }
    }
    complete.then_some(blocks)
}
