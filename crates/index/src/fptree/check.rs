//! Verifying a tree on its medium, and counting the space that it takes.
//!
//! 1. The anchor verifies.
//! 2. From the first leaf on: each leaf is an allocated block, its frame verifies, its lower bound ascends.
//! 3. Every line and pair verifies. Each key is within its leaf's bounds, occurs once, and is where its home line's
//!    level leads.
//! 4. Each byte-string key has its own allocated record.

use std::collections::HashSet;

use lodestone_width::to_u64;

use crate::anchor::{self, ANCHOR_BYTES, AnchorAt};
use crate::cells::check_table;
use crate::check::{IndexReport, MapStats, Owned};
use crate::fptree::layout::{HOME_SEED, TreeLeafAt, tree_anchor};
use crate::fptree::rebuild::walk;
use crate::fptree::tree::FpTree;
use crate::traits::IndexKey;

impl<K: IndexKey + ?Sized> FpTree<K> {
    /// Verifies everything on the medium: structure, order, checks, allocation. Call it while no thread changes the
    /// tree: changes under way may be reported as findings.
    #[must_use]
    pub fn check(&self) -> IndexReport {
        let (mut report, medium) = (IndexReport::default(), self.medium());
        let mut owned = Owned::new(&self.heap);
        owned.own(&mut report, self.anchor.at, ANCHOR_BYTES, "anchor of a tree");
        if let Err(error) = anchor::verify(medium, tree_anchor(self.kind), self.anchor.at) {
            report.find_error(self.anchor.at, error);
        }
        let head = AnchorAt(self.anchor.at).head();
        let mut leaves: Vec<(TreeLeafAt, u32, Box<[u8]>)> = Vec::new();
        let walked = walk(medium, head, |leaf, frame| {
            leaves.push((leaf, frame.lines, frame.low));
            Ok(())
        });
        if let Err(error) = walked {
            report.find_error(head, error);
        }
        report.leaves = to_u64(leaves.len());
        for (number, (leaf, lines, low)) in leaves.iter().enumerate() {
            if *lines != self.lines {
                report.find(leaf.0, "tree leaf: has other lines than the tree's leaves");
            }
            owned.own(&mut report, leaf.0, TreeLeafAt::bytes(*lines, low.len()), "tree leaf");
            let upper = leaves.get(number + 1).map(|(_, _, low)| low);
            let mut keys = HashSet::new();
            let table = leaf.table(*lines, low.len());
            check_table(&mut report, &mut owned, table, medium, (self.kind, HOME_SEED), |_, key| {
                if key[..] < low[..] || upper.is_some_and(|upper| key[..] >= upper[..]) {
                    Some("its key lies outside its leaf's bounds")
                } else if !keys.insert(key) {
                    Some("its key stands twice")
                } else {
                    None
                }
            });
        }
        report.set_blocks(owned.into_blocks());
        report
    }

    /// The space that the tree takes. It takes as long as a [`check`](Self::check).
    #[must_use]
    pub fn stats(&self) -> MapStats {
        let report = self.check();
        MapStats {
            records: report.records,
            leaves: report.leaves,
            pm_bytes: report.blocks.iter().filter_map(|&at| self.heap.block_bytes(at)).sum(),
            dram_bytes: self.leaves.dram_bytes() + self.guide.dram_bytes(),
        }
    }
}
