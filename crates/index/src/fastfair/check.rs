//! Verifying a tree on its medium.
//!
//! 1. Anchor and root verify. 2. Level by level from the left: each node is an allocated block, its header verifies,
//!    its low bound is the high bound of its left neighbour, its lines verify, and its keys ascend within its bounds.
//! 3. The nodes that a level names as children are, in order, the nodes of the level below.
//! 4. Each string's block verifies and is owned once.
//!
//! The report lists every block that the tree owns. A block that the heap holds and no owner lists has leaked.

use std::borrow::Borrow;
use std::collections::HashMap;

use lodestone_pmem::{PmAddr, WORD_BYTES};
use lodestone_width::to_u64;

use crate::anchor::{self, ANCHOR_BYTES};
use crate::check::IndexReport;
use crate::error::Result;
use crate::fastfair::keys;
use crate::fastfair::node::{DEAD, EntryList, Header, NodeAt};
use crate::fastfair::{FastFair, KIND_STRINGS, KIND_WORDS};
use crate::traits::IndexKey;

/// A check under way.
struct Checking<'t, K: IndexKey + ?Sized> {
    tree: &'t FastFair<K>,
    report: IndexReport,
    owned: HashMap<PmAddr, u64>,
}

impl<K: IndexKey + ?Sized> FastFair<K> {
    pub(super) fn check_all(&self) -> IndexReport {
        self.readers.collect();
        let mut checking = Checking { tree: self, report: IndexReport::default(), owned: HashMap::new() };
        checking.own(self.anchor.at, ANCHOR_BYTES, "anchor of a tree");
        let kind = if K::IS_WORD { &KIND_WORDS } else { &KIND_STRINGS };
        if let Err(error) = anchor::verify(self.medium(), kind, self.anchor.at) {
            checking.report.find_error(self.anchor.at, error);
        }
        if let Err(error) = checking.levels() {
            checking.report.find_error(self.anchor.at, error);
        }
        checking.report.set_blocks(std::mem::take(&mut checking.owned));
        checking.report
    }

    /// Number of keys: a visit of every leaf.
    pub(super) fn count(&self) -> Result<u64> {
        let mut count = 0;
        self.scan_range(
            std::ops::Bound::Unbounded,
            std::ops::Bound::Unbounded,
            crate::Direction::Ascending,
            |_, _| {
                count += 1;
                std::ops::ControlFlow::Continue(())
            },
        )?;
        Ok(count)
    }
}

impl<K: IndexKey + ?Sized> Checking<'_, K> {
    fn own(&mut self, at: PmAddr, bytes: u64, what: &'static str) -> bool {
        if self.owned.insert(at, bytes).is_some() {
            self.report.find(at, format!("{what}: is reachable twice"));
            return false;
        }
        match self.tree.heap.block_bytes(at) {
            Some(found) if found >= bytes => {}
            Some(found) => self.report.find(at, format!("{what}: {bytes} bytes in a block of {found}")),
            None => self.report.find_unallocated(at, what),
        }
        true
    }

    fn levels(&mut self) -> Result<()> {
        let medium = self.tree.medium();
        let mut expected = vec![self.tree.root()];
        let mut level = Header::load(medium, self.tree.root())?.level;
        loop {
            let nodes = self.level(expected[0], level)?;
            if nodes != expected {
                self.report.find(expected[0], format!("level {level}: parents name {expected:?}, links {nodes:?}"));
            }
            if level == 0 {
                self.report.leaves = to_u64(nodes.len());
                return Ok(());
            }
            expected = Vec::new();
            for node in nodes {
                let header = Header::load(medium, node)?;
                for entry in self.tree.entries(&header)?.iter() {
                    let child = PmAddr::from_raw(entry.1);
                    let low = Header::load(medium, child)?.low;
                    let word = if low == 0 { 0 } else { self.order_word_of(low)? };
                    if word != entry.0 {
                        self.report.find(node, format!("the child {child} does not begin where its parent says"));
                    }
                    expected.push(child);
                }
            }
            if expected.is_empty() {
                self.report.find(self.tree.root(), format!("level {level}: has no children"));
                return Ok(());
            }
            level -= 1;
        }
    }

    fn order_word_of(&self, bound: u64) -> Result<u64> {
        let key = keys::bound_key::<K>(self.tree.medium(), bound)?;
        Ok(Borrow::<K>::borrow(&key).order_word())
    }

    /// The nodes of a level as their links name them, each verified.
    fn level(&mut self, first: PmAddr, level: u8) -> Result<Vec<PmAddr>> {
        let medium = self.tree.medium();
        let (mut nodes, mut at, mut low) = (Vec::new(), first, 0);
        loop {
            let header = Header::load(medium, at)?;
            if !self.own(at, NodeAt::bytes(header.lines), "node of a tree") {
                return Ok(nodes);
            }
            nodes.push(at);
            if let Err(error) = header.compare_lines(medium, self.tree.lines) {
                self.report.find_error(at, error);
            }
            if header.stamp == DEAD {
                self.report.find(at, "node of a tree: says that it was merged away, and searches come to it");
            }
            if header.level != level || header.low != low {
                self.report.find(at, "does not begin where its left neighbour ends");
            }
            if level == 0 {
                self.leaf(&header)?;
            }
            if header.next.is_null() {
                return Ok(nodes);
            }
            (at, low) = (header.next, header.high);
        }
    }

    fn leaf(&mut self, header: &Header) -> Result<()> {
        let medium = self.tree.medium();
        if !K::IS_WORD && header.low != 0 {
            let low = PmAddr::from_raw(header.low);
            let bytes = self.block_len(low)?;
            self.own(low, bytes, "lower bound of a leaf");
        }
        let mut last: Option<K::Owned> = None;
        let mut live = EntryList::new();
        self.tree.live_entries(header, &mut live)?;
        for &entry in live.iter() {
            let key = keys::key_of::<K>(medium, entry)?;
            keys::value_of::<K>(medium, entry)?;
            let below = keys::compare_bound::<K>(medium, key.borrow(), header.low)?.is_lt();
            let above = !header.next.is_null() && keys::compare_bound::<K>(medium, key.borrow(), header.high)?.is_ge();
            if below || above {
                self.report.find(header.at.0, format!("{key:?} lies outside the bounds of its leaf"));
            }
            if last.as_ref().is_some_and(|last| *last >= key) {
                self.report.find(header.at.0, format!("{key:?} does not ascend"));
                continue;
            }
            if !K::IS_WORD {
                let block = PmAddr::from_raw(entry.1);
                let bytes = self.block_len(block)?;
                self.own(block, bytes, "block of a key");
            }
            self.report.records += 1;
            last = Some(key);
        }
        Ok(())
    }

    fn block_len(&self, at: PmAddr) -> Result<u64> {
        let mut key = Vec::new();
        keys::block_key(self.tree.medium(), at, &mut key)?;
        Ok(keys::block_bytes(key.len()).next_multiple_of(WORD_BYTES))
    }
}
