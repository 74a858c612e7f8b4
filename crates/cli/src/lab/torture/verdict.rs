//! Judges the map of a pool after a kill.

use std::ops::{Bound, ControlFlow};

use anyhow::{Result, bail};
use lodestone_index::OrderedMap;
use lodestone_pmem::Pool;
use lodestone_store::Store;
use lodestone_workload::kv::{History, Verdict, Violation};
use serde::Serialize;

use super::writer::MAP;

/// Violations by kind, summed up.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Tally {
    /// Acknowledged writes that are gone, or were replaced by an older state.
    pub lost: u64,
    /// Values that are torn, truncated or in the wrong place.
    pub torn: u64,
    /// Any other impossible value: never written, present twice, or out of order.
    pub other: u64,
}

impl Tally {
    /// Whether nothing was wrong.
    pub fn is_clean(&self) -> bool {
        self.lost + self.torn + self.other == 0
    }

    /// Adds the violations of one judgement.
    pub fn add(&mut self, violations: &[Violation]) {
        for violation in violations {
            match violation {
                Violation::Lost { .. } | Violation::Stale { .. } | Violation::Resurrected { .. } => self.lost += 1,
                Violation::Torn { .. } => self.torn += 1,
                _ => self.other += 1,
            }
        }
    }
}

/// Judges all records of the map, and checks its structure.
pub fn judge(pool: &Pool, history: &History) -> Result<Verdict> {
    let store = Store::over(pool)?;
    let map = OrderedMap::open(&store, MAP)?;
    let mut view = Vec::new();
    map.scan(Bound::Unbounded, Bound::Unbounded, &mut |key, value| {
        view.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    })?;
    if view.len() as u64 != map.len()? {
        bail!("{}: a scan finds {} records, the map counts {}", pool.path().display(), view.len(), map.len()?);
    }
    Ok(history.judge(view))
}
