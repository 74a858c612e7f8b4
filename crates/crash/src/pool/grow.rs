//! Growth: the part has its old length or its new one, new space is zeroes, and the second header copy is at the end.

use lodestone_pmem::{PmAddr, Pool};

use crate::event::SiteKey;
use crate::structure::Structure;
use crate::target::{Failure, Outcome};

/// Grows a pool, sets a root in the new space, grows it again.
pub struct PoolGrow;

const PAGE: u64 = 4096;

/// The change to the pool.
#[derive(Clone, Copy, Debug)]
pub enum GrowOp {
    /// Grows by this many pages.
    Grow(u64),
    /// Writes a word into the last page of the heap area and makes it the root.
    Mark,
}

impl Structure for PoolGrow {
    type Op = GrowOp;
    type Handle = Pool;
    /// Bytes of the heap area and of the place of the root (counted from the start of the area).
    type View = (u64, Option<u64>);

    fn name(&self) -> String {
        "pool-grow".into()
    }

    fn audits(&self, site: &SiteKey) -> bool {
        site.file.ends_with("pool/grow.rs") || site.file.ends_with("pool/open.rs")
    }

    fn options(&self) -> lodestone_pmem::PoolOptions {
        lodestone_pmem::PoolOptions { size_bytes: 8 * PAGE, ..crate::tiny_pool() }
    }

    fn script(&self) -> Vec<GrowOp> {
        vec![GrowOp::Grow(1), GrowOp::Mark, GrowOp::Grow(2)]
    }

    fn open(&self, pool: &Pool) -> Outcome<Pool> {
        Ok(pool.clone())
    }

    fn apply(&self, pool: &Pool, op: &GrowOp) -> Outcome {
        let (_, end) = pool.heap_area(0);
        match op {
            GrowOp::Grow(pages) => {
                // The area ends one page before the part does.
                pool.grow(0, end.offset() + PAGE + pages * PAGE)?;
            }
            GrowOp::Mark => {
                let at = PmAddr::new(0, end.offset() - PAGE);
                pool.memory().store(at, at.to_raw());
                // The root may not name the place before the word is there.
                pool.memory().persist(at, 8);
                pool.set_root("mark", 1, at)?;
            }
        }
        Ok(())
    }

    fn view(&self, pool: &Pool) -> Outcome<Self::View> {
        let (start, end) = pool.heap_area(0);
        let mark = pool.root("mark")?.map(|(_, at)| at);
        if let Some(at) = mark {
            let found = pool.memory().load(at);
            Failure::unless(found == at.to_raw(), || format!("the marked word at {at} is {found:#x}"))?;
        }
        Ok((end.offset() - start.offset(), mark.map(|at| at.offset() - start.offset())))
    }

    fn model(&self, ops: &[GrowOp]) -> Self::View {
        // Three pages of fixed areas at the front, one page of the header copy at the end.
        let mut view = (4 * PAGE, None);
        for op in ops {
            match op {
                GrowOp::Grow(pages) => view.0 += pages * PAGE,
                GrowOp::Mark => view.1 = Some(view.0 - PAGE),
            }
        }
        view
    }

    fn audit(&self, pool: &Pool) -> Outcome {
        let memory = pool.memory();
        let (start, end) = pool.heap_area(0);
        let page = |at: PmAddr| {
            let mut bytes = [0; PAGE as usize];
            memory.read(at, &mut bytes);
            bytes
        };
        for at in (start.offset()..end.offset()).step_by(PAGE as usize).map(|offset| PmAddr::new(0, offset)) {
            // The word is stored before the root names it, so the only possible other content is a mark without a name.
            let nameless = [at.to_raw().to_le_bytes().as_slice(), &[0; PAGE as usize - 8]].concat();
            let found = page(at);
            let right = found == [0; PAGE as usize] || found[..] == nameless[..];
            Failure::unless(right, || format!("the page at {at} in the heap area is neither zero nor marked"))?;
        }
        Failure::unless(page(PmAddr::NULL) == page(end), || {
            format!("the header copy at {end} differs from the header")
        })?;
        Ok(())
    }

    fn more(&self) -> Vec<GrowOp> {
        vec![GrowOp::Grow(1), GrowOp::Mark]
    }
}
