//! The check of a pool through all its layers: medium and headers, then the store with everything in it.
//!
//! 1. The pool by itself ([`Pool::check`]): it needs no open and changes nothing.
//! 2. The store in a read-only view ([`Store::check`]), when the pool is fit to be opened.

use std::path::Path;

use anyhow::Result;
use lodestone_pmem::{Pool, PoolOptions, Severity};
use lodestone_store::{Error, Examined, Finding, Foreseen, LossReport, Store};
use serde::Serialize;

/// The scope and the findings of a check.
#[derive(Debug, Default, Serialize)]
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
    /// Whether the owner of each block was checked.
    pub ownership_checked: bool,
    /// Records that verify, in all objects.
    pub records: u64,
    /// Every object.
    pub objects: Vec<Examined>,
    /// All findings.
    pub findings: Vec<Finding>,
}

/// Checks the pool at `path` through all layers. Changes nothing. `tell` receives the name of each thing before its
/// check.
///
/// # Errors
/// When the pool cannot be read at all, or a writer has it open. Damage is a finding, not an error.
pub fn examine(path: &Path, options: &PoolOptions, tell: &mut dyn FnMut(&str)) -> Result<Examination> {
    let report = Pool::check(path, options)?;
    let mut found =
        Examination { path: path.display().to_string(), read_bytes: report.probed_bytes, ..Default::default() };
    found.findings.extend(report.findings.iter().map(Finding::of_pool));
    // A check can read past some damage that an open refuses. Then the layers above cannot be judged.
    match Pool::open_read_only(path, options) {
        Ok(pool) => look_inside(&pool, &mut found, tell),
        Err(_) if !report.is_clean() => {
            found.note("not looked at: the pool cannot be opened as it is", "repair it first");
        }
        Err(error) => return Err(error.into()),
    }
    found.clean = found.findings.iter().all(|finding| finding.severity == Severity::Note);
    Ok(found)
}

/// Repairs a pool that is open for writing, as far as the right content can be known. With `accept_loss` damaged
/// objects are rebuilt from their readable records.
///
/// # Errors
/// When the pool fails.
pub fn repair_inside(pool: &Pool, accept_loss: bool, tell: &mut dyn FnMut(&str)) -> Result<LossReport> {
    let mut done = LossReport::default();
    if !has_heap(pool) {
        return Ok(done);
    }
    // The check that follows describes a store that cannot be opened.
    let Ok(store) = Store::over(pool) else { return Ok(done) };
    if accept_loss {
        return Ok(store.repair_accepting_loss(tell)?);
    }
    store.forget_repair()?;
    let report = store.check(tell);
    done.repaired = store.repair(&report)?;
    Ok(done)
}

/// The losses that [`repair_inside`] would accept. Changes nothing.
pub fn foresee_loss(pool: &Pool, tell: &mut dyn FnMut(&str)) -> Vec<Foreseen> {
    let store = if has_heap(pool) { Store::over(pool).ok() } else { None };
    store.map_or_else(Vec::new, |store| store.foresee_loss(tell))
}

impl Examination {
    fn note(&mut self, finding: &str, next_step: &str) {
        self.findings.push(Finding::new("store", &self.path, Severity::Note, finding, next_step));
    }
}

/// Whether the heap area was ever used: its first word is written last when a heap is made.
fn has_heap(pool: &Pool) -> bool {
    pool.memory().load(pool.heap_area(0).0) != 0
}

fn look_inside(pool: &Pool, found: &mut Examination, tell: &mut dyn FnMut(&str)) {
    if !has_heap(pool) {
        return;
    }
    let store = match Store::over(pool) {
        Ok(store) => store,
        Err(Error::Heap(lodestone_heap::Error::Invalid { what: "heap", .. })) => {
            let step = "open the pool for writing once (`lodestone kv count` does), then check again";
            return found.note("not looked at: a crash left actions that the next open finishes", step);
        }
        Err(error) => {
            let step = "another format version: use the program that the finding names; damage: restore a backup";
            found.findings.push(Finding::new("store", &found.path, Severity::Lost, &error.to_string(), step));
            return;
        }
    };
    let report = store.check(tell);
    found.ownership_checked = report.ownership_checked;
    (found.heap_words, found.heap_blocks) = (report.heap_words, report.heap_blocks);
    found.records = report.objects.iter().map(|object| object.records).sum();
    found.objects = report.objects;
    found.findings.extend(report.findings);
}
