//! Named roots: set, replaced, next to each other. Each change is atomic, and acknowledged when it returns.

use std::collections::BTreeMap;

use lodestone_pmem::{PmAddr, Pool};

use crate::event::SiteKey;
use crate::structure::Structure;
use crate::target::{Outcome, Redundant};

/// Sets and replaces roots.
pub struct PoolRoots;

/// Names that the script uses.
const NAMES: [&str; 3] = ["accounts", "index", "log"];

impl Structure for PoolRoots {
    /// Name (index), kind and offset of the object.
    type Op = (usize, u32, u64);
    type Handle = Pool;
    type View = BTreeMap<String, (u32, u64)>;

    fn name(&self) -> String {
        "pool-roots".into()
    }

    fn audits(&self, site: &SiteKey) -> bool {
        site.file.ends_with("pool/roots.rs") || site.file.ends_with("pool/mirror.rs")
    }

    fn redundant(&self) -> Vec<Redundant> {
        let reason = "healing zeroes a torn first write, and the next first write goes to the same line, in program order \
                      after the zeroes; the persist keeps that from being a trap";
        vec![Redundant::new("at crates/pmem/src/pool/roots.rs", 5, reason)]
    }

    fn script(&self) -> Vec<Self::Op> {
        vec![(0, 1, 0x4000), (1, 2, 0x4040), (0, 1, 0x4080), (0, 3, 0x40C0), (2, 1, 0x4100), (1, 2, 0x4140)]
    }

    fn open(&self, pool: &Pool) -> Outcome<Pool> {
        Ok(pool.clone())
    }

    fn apply(&self, pool: &Pool, (name, kind, offset): &Self::Op) -> Outcome {
        Ok(pool.set_root(NAMES[*name], *kind, PmAddr::new(0, *offset))?)
    }

    fn view(&self, pool: &Pool) -> Outcome<Self::View> {
        let mut view = BTreeMap::new();
        for name in NAMES {
            if let Some((kind, addr)) = pool.root(name)? {
                view.insert(name.to_owned(), (kind, addr.offset()));
            }
        }
        Ok(view)
    }

    fn model(&self, ops: &[Self::Op]) -> Self::View {
        ops.iter().map(|(name, kind, offset)| (NAMES[*name].to_owned(), (*kind, *offset))).collect()
    }
}
