//! Creation: a pool whose creation crashed is either refused as not a pool, or is a whole pool. Nothing in between.

use lodestone_pmem::{Error, PmAddr, Pool};

use crate::event::SiteKey;
use crate::history::History;
use crate::medium::CrashMedium;
use crate::target::{Failure, Outcome, Recovered, Redundant, Target, in_pool_layer};

/// Creates a pool on zeroed memory.
#[derive(Default)]
pub struct PoolCreate {
    /// Tests open also on the images that lack the magic. They are many, because every line of the header is then
    /// undecided. Without this flag, the explorer assumes that the first word makes open refuse them.
    pub opens_without_magic: bool,
}

impl Target for PoolCreate {
    fn name(&self) -> String {
        "pool-create".into()
    }

    fn audits(&self, site: &SiteKey) -> bool {
        in_pool_layer(site) && !["roots.rs", "mirror.rs"].iter().any(|file| site.file.ends_with(file))
    }

    fn redundant(&self) -> Vec<Redundant> {
        let reason =
            "opening persists the state before the caller receives the pool; the fence is at the end of the format";
        vec![Redundant::new("at crates/pmem/src/pool/create.rs", 4, reason)]
    }

    fn script_len(&self) -> usize {
        1
    }

    fn op_text(&self, _op: usize) -> String {
        "create".into()
    }

    fn prepare(&self, _medium: &CrashMedium) -> Outcome {
        Ok(())
    }

    fn run(&self, medium: &CrashMedium, ops: &[usize]) -> Outcome {
        for &op in ops {
            medium.begin(op);
            let pool = medium.create_pool()?;
            medium.ack(op)?;
            drop(pool);
        }
        Ok(())
    }

    fn recover(&self, medium: &CrashMedium) -> Outcome<Box<dyn Recovered + '_>> {
        if !self.opens_without_magic && medium.memory().load(PmAddr::NULL) == 0 {
            return Ok(Box::new(Created { pool: None }));
        }
        match medium.open_pool() {
            Ok(pool) => Ok(Box::new(Created { pool: Some(pool) })),
            // Half-made: whether that is right depends on the acknowledged operations, which the judge knows.
            Err(Error::Format { finding, .. }) if finding.contains("magic") => Ok(Box::new(Created { pool: None })),
            Err(error) => Err(Failure::new(format!("neither a pool nor recognised as unfinished: {error}"))),
        }
    }
}

struct Created {
    pool: Option<Pool>,
}

impl Recovered for Created {
    fn judge(&mut self, history: &History) -> Outcome {
        let Some(pool) = &self.pool else {
            return Failure::unless(history.acked().is_empty(), || "an acknowledged creation left no pool".into());
        };
        // Repair relies on the second copy, so it must be whole before the magic at the front makes this a pool.
        let page = |offset| {
            let mut bytes = [0; 4096];
            pool.memory().read(PmAddr::new(0, offset), &mut bytes);
            bytes
        };
        Failure::unless(page(0) == page(pool.memory().part_len(0) - 4096), || {
            "the second copy of the header differs from the first".into()
        })?;
        // It keeps working: a root can be set and found.
        let (start, end) = pool.heap_area(0);
        Failure::unless(start < end, || format!("the heap area {start}..{end} is empty"))?;
        pool.set_root("first", 1, start)?;
        Failure::unless(pool.root("first")? == Some((1, start)), || "a root that was set is not found".into())
    }
}
