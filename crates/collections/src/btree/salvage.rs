//! The salvage of a tree: what links lead to, then the leaves that no link leads to.

use std::collections::HashSet;

use lodestone_stm::{PmAddr, PmPtr, Stm};

use super::PmBTreeMap;
use crate::item::{PmKey, PmValue};
use crate::mark::{self, NodeKind};
use crate::node;
use crate::salvage::{Loot, Range};

/// A walk in progress.
struct Walk {
    visited: HashSet<PmAddr>,
    /// Whether every link led to something.
    is_whole: bool,
}

impl<K: PmKey, V: PmValue> PmBTreeMap<K, V> {
    /// Passes every entry that verifies to `loot`, and names the others. Each object is read on its own. Leaves that no
    /// link leads to are found by their marks.
    pub(crate) fn salvage(&self, stm: &Stm, loot: &mut Loot<'_, K, V>) {
        let header = stm.snapshot(|tx| {
            let header = tx.read(self.header)?;
            self.is_without_nodes(&header).map(|is_empty| (header, is_empty))
        });
        let mut walk = Walk { visited: HashSet::new(), is_whole: true };
        match header {
            Ok((_, true)) => return,
            Ok((header, false)) => Self::salvage_below(stm, header.root, header.levels, (None, None), &mut walk, loot),
            Err(error) => {
                loot.lose_way((None, None), &error);
                walk.is_whole = false;
            }
        }
        if walk.is_whole || !loot.wants_orphans() {
            return;
        }
        for at in mark::nodes_of(stm, self.header.addr(), NodeKind::Leaf) {
            if walk.visited.insert(at) && !loot.is_over() {
                Self::salvage_leaf(stm, at, (None, None), loot);
            }
        }
    }

    fn salvage_below(stm: &Stm, at: PmAddr, levels: u64, range: Range, walk: &mut Walk, loot: &mut Loot<'_, K, V>) {
        if loot.is_over() || !walk.visited.insert(at) {
            return;
        }
        if levels == 0 {
            return Self::salvage_leaf(stm, at, range, loot);
        }
        let inner = match stm.snapshot(|tx| Self::read_inner(tx, PmPtr::new(at))) {
            Ok(inner) => inner,
            Err(error) => {
                walk.is_whole = false;
                return loot.lose_way(range, &error);
            }
        };
        let count = node::count(&inner.0);
        // In place of a separator that does not verify, the next outer one counts. The range is then larger.
        let separator = |index: usize| {
            let stored = &node::entry(&inner.0, Self::INNER_ENTRY, index)[..K::WORDS];
            stm.snapshot(|tx| K::load(tx, stored)).ok().map(|key| loot.shown(&key))
        };
        let bounds: Vec<_> = (1..count).map(separator).collect();
        for index in 0..count {
            let low = bounds[..index].iter().rev().find_map(Clone::clone).or_else(|| range.0.clone());
            let high = bounds[index..].iter().find_map(Clone::clone).or_else(|| range.1.clone());
            Self::salvage_below(stm, Self::child(&inner, index), levels - 1, (low, high), walk, loot);
        }
    }

    fn salvage_leaf(stm: &Stm, at: PmAddr, range: Range, loot: &mut Loot<'_, K, V>) {
        match stm.snapshot(|tx| Self::read_leaf(tx, PmPtr::new(at))) {
            Ok(leaf) => {
                for index in 0..node::count(&leaf.0) {
                    loot.add(stm, node::entry(&leaf.0, Self::LEAF_ENTRY, index), range.clone());
                }
            }
            Err(error) => loot.lose(range, &error),
        }
    }
}
