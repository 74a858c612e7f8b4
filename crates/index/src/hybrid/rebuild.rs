//! Building the tree from the hash.
//!
//! 1. The hashes are cut into parts. Each thread takes parts, collects their pairs and sorts what it has.
//! 2. The last thread merges the sorted runs, builds the tree, and installs it.
//! 3. The updates that came meanwhile are put over it, queue by queue. Then ranges go.

use lodestone_pmem::sync::atomic::Ordering;
use lodestone_pmem::sync::lock;
use lodestone_width::to_u64;

use crate::error::Result;
use crate::hybrid::index::Shared;
use crate::hybrid::tree::Tree;
use crate::traits::IndexKey;

/// Parts of the hashes, as a power of two: enough that threads end together and progress is told finely.
const PART_BITS: u32 = if cfg!(feature = "shuttle") { 1 } else { 7 };
pub(super) const PARTS: u64 = 1 << PART_BITS;

type Run<K> = Vec<(<K as IndexKey>::Owned, u64)>;

impl<K: IndexKey + ?Sized> Shared<K> {
    /// The loop of a thread that rebuilds.
    pub(super) fn rebuild_some(&self) {
        let _running = self.progress.run();
        let outcome = self.collect_parts();
        let mut runs = lock(&self.runs);
        match outcome {
            Ok(Some(run)) => runs.done.push(run),
            // Stopped, because the index goes.
            Ok(None) => return,
            Err(_) => {
                runs.has_failed = true;
                return self.progress.fail();
            }
        }
        runs.threads -= 1;
        if runs.threads == 0 && !runs.has_failed {
            self.install(std::mem::take(&mut runs.done).concat());
        }
    }

    fn collect_parts(&self) -> Result<Option<Run<K>>> {
        let mut run = Vec::new();
        loop {
            let part = self.next_part.fetch_add(1, Ordering::Relaxed);
            if part >= PARTS {
                run.sort_unstable();
                return Ok(Some(run));
            }
            if self.stops.load(Ordering::Acquire) {
                return Ok(None);
            }
            self.collect(part, &mut run)?;
        }
    }

    fn collect(&self, part: u64, run: &mut Run<K>) -> Result<()> {
        let first = part << (u64::BITS - PART_BITS);
        let last = first | u64::MAX >> PART_BITS;
        let before = run.len();
        self.hash.for_each_between(first..=last, |key, value| run.push((key.to_key(), value)))?;
        self.progress.add_keys(to_u64(run.len() - before));
        self.progress.part_done();
        Ok(())
    }

    /// Builds and installs the tree on this thread, if no other thread did.
    pub(super) fn rebuild_here(&self) -> Result<()> {
        // Holding up others who want to.
        let runs = lock(&self.runs);
        if self.tree.get().is_none() {
            let mut run = Vec::new();
            self.progress.restart(PARTS);
            for part in 0..PARTS {
                self.collect(part, &mut run)?;
            }
            self.install(run);
        }
        drop(runs);
        Ok(())
    }

    /// The tree, once it is built: waits for the threads that rebuild it, or rebuilds it.
    pub(super) fn tree(&self) -> Result<&Tree<K>> {
        loop {
            if let Some(tree) = self.tree.get()
                && self.progress.is_warm()
            {
                return Ok(tree);
            }
            if !self.progress.wait() {
                self.rebuild_here()?;
            }
        }
    }

    fn install(&self, mut run: Run<K>) {
        // Runs that are sorted already are merged.
        run.sort();
        let tree = self.tree.get_or_init(|| Tree::new(run, self.leaf_pairs));
        for queue in &self.queues {
            queue.with_consumer(|kept| self.release(tree, kept));
        }
        self.progress.ranges_ready();
        self.progress.warm();
    }
}
