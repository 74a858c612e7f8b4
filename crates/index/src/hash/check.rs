//! Verifying a hash index on its medium, and counting what it takes.
//!
//! 1. The anchor verifies.
//! 2. Each directory node is an allocated block, each of its entries verifies, each segment has exactly the entries
//!    that its prefix says.
//! 3. Each segment is an allocated block, its header and every line verify.
//! 4. Each pair belongs to its segment and is where its home line's level leads. No key occurs twice.
//! 5. Each byte-string key has its own allocated record.
//!
//! The report lists every block that the index owns. A block that the heap holds and no owner lists has leaked.

use std::collections::HashSet;

use lodestone_pmem::{PmAddr, WORD_BYTES};
use lodestone_width::to_u64;

use crate::anchor::{self, ANCHOR_BYTES};
use crate::cells::check_table;
use crate::check::{IndexReport, Owned};
use crate::hash::layout::{Cover, Entry, hash_anchor, read_cover};
use crate::hash::map::HashIndex;
use crate::traits::IndexKey;

/// The space that a hash index takes.
///
/// ```
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # use lodestone_store::Store;
/// # let folder = tempfile::tempdir().unwrap();
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let store = Store::create(folder.path().join("a.pool"), &options)?;
/// use lodestone_index::{Durability, HashIndex, OpenIndex, PointIndex};
///
/// let index = HashIndex::<u64>::open_index(&store, "orders", &Default::default(), Durability::Sync)?;
/// index.insert(&7, 700)?;
/// let stats = index.stats();
/// assert!(stats.pairs == 1 && stats.slots > 1);
/// # Ok::<(), lodestone_index::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HashStats {
    /// Pairs.
    pub pairs: u64,
    /// Segments.
    pub segments: u64,
    /// Pairs that all segments have room for.
    pub slots: u64,
    /// Bytes of the heap's blocks that the index owns.
    pub pm_bytes: u64,
    /// Bytes of DRAM for the directory and the locks.
    pub dram_bytes: u64,
}

impl<K: IndexKey + ?Sized> HashIndex<K> {
    /// Verifies everything on the medium: structure, checks, allocation. Call it while no thread changes the index:
    /// changes under way may be reported as findings.
    #[must_use]
    pub fn check(&self) -> IndexReport {
        let mut report = IndexReport::default();
        let mut owned = Owned::new(&self.heap);
        owned.own(&mut report, self.anchor.at, ANCHOR_BYTES, "anchor of a hash index");
        if let Err(error) = anchor::verify(self.medium(), hash_anchor(self.shape.kind), self.anchor.at) {
            report.find_error(self.anchor.at, error);
        }
        self.check_node(&mut report, &mut owned, self.root, Cover::of(0, 0));
        report.set_blocks(owned.into_blocks());
        report
    }

    fn check_node(&self, report: &mut IndexReport, owned: &mut Owned<'_>, node: PmAddr, cover: Cover) {
        if !owned.own(report, node, self.shape.node_bytes(), "node of a hash directory") {
            return;
        }
        let bits = self.shape.node_bits;
        let count = 1_u64 << bits;
        let mut number = 0;
        while number < count {
            let word = node.plus(number * WORD_BYTES);
            let prefix = cover.prefix | number << (64 - bits - cover.depth);
            number += match Entry::read(self.medium(), word, self.shape) {
                // Only a damaged directory leads so deep: no bits of a hash are left to choose by.
                Ok(Entry::Node(_)) if cover.depth + 2 * bits > u64::BITS => {
                    report.find(word, "entry of a hash directory: names a node deeper than any can be");
                    1
                }
                Ok(Entry::Node(child)) => {
                    self.check_node(report, owned, child, Cover::of(prefix, cover.depth + bits));
                    1
                }
                Ok(Entry::Segment(segment)) => {
                    let found = self.check_segment(report, owned, segment, prefix);
                    let entries = found.filter(|found| (cover.depth..=cover.depth + bits).contains(&found.depth));
                    let entries = entries.map_or(1, |found| 1 << (cover.depth + bits - found.depth));
                    for other in number..(number + entries).min(count) {
                        let word = node.plus(other * WORD_BYTES);
                        if !matches!(Entry::read(self.medium(), word, self.shape), Ok(Entry::Segment(at)) if at == segment)
                        {
                            report.find(word, "entry of a hash directory: names another segment than its neighbour");
                        }
                    }
                    entries
                }
                Err(error) => {
                    report.find_error(word, error);
                    1
                }
            };
        }
    }

    /// Checks the segment at `at`, whose first hash must be `prefix`. Returns the hashes that it covers, when its
    /// header verifies.
    fn check_segment(&self, report: &mut IndexReport, owned: &mut Owned<'_>, at: PmAddr, prefix: u64) -> Option<Cover> {
        owned.own(report, at, self.shape.segment_bytes(), "hash segment");
        report.leaves += 1;
        let cover = match read_cover(self.medium(), at, self.shape, self.seed) {
            Ok(cover) => cover,
            Err(error) => {
                report.find_error(at, error);
                return None;
            }
        };
        if cover.prefix != prefix {
            report.find(at, "hash segment: is named by entries of other hashes");
        }
        let mut keys = HashSet::new();
        let seed = self.seed;
        check_table(report, owned, self.shape.table_at(at), self.medium(), (self.shape.kind, seed), |hash, key| {
            if !cover.covers(hash) {
                Some("its key belongs to another segment")
            } else if !keys.insert(key) {
                Some("its key stands twice")
            } else {
                None
            }
        });
        Some(cover)
    }

    /// The space that the index takes. It takes as long as a [`check`](Self::check).
    #[must_use]
    pub fn stats(&self) -> HashStats {
        let report = self.check();
        HashStats {
            pairs: report.records,
            segments: report.leaves,
            slots: report.leaves * to_u64(self.shape.table.pairs_max()),
            pm_bytes: report.blocks.iter().filter_map(|&at| self.heap.block_bytes(at)).sum(),
            dram_bytes: self.directory.dram_bytes(),
        }
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
    use lodestone_store::Store;

    use super::*;
    use crate::hash::HashOptions;

    #[test]
    fn a_directory_deeper_than_a_hash_is_a_finding() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
        let store = Store::over(&Pool::create(folder.path().join("a.pool"), &options)?)?;
        let index = HashIndex::<u64>::open_with(&store, "hash", &HashOptions::small())?;
        let mut node = index.root;
        for _ in 0..=u64::BITS / index.shape.node_bits {
            let mut action = store.heap().action();
            let child = action.alloc(index.shape.node_block_bytes())?;
            action.set(node, Entry::Node(child).encode(node));
            action.commit()?;
            node = child;
        }
        let report = index.check();
        assert!(report.findings.iter().any(|finding| finding.text.contains("deeper than any can be")), "{report:?}");
        Ok(())
    }
}
