//! In which part of the pool the pages of a table are (paper 4, section 2.1.2: a table space on each node).
//!
//! The catalog has the part of a table. Its trees, those of rows, long values and indexes, are written there by rounds
//! and loads. A part is on one node, so a node is chosen by its part, and the table follows its part to another node.
//!
//! The part says where the *next* image of a leaf goes. Images that are there stay until they are written again as a
//! whole, or until the table is moved (`move_table.rs`). When a part is full, images go elsewhere: nothing but costs
//! depends on it.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use lodestone_pmem::sync::RwLock;

use crate::large::PIECES;

/// The parts of trees, as the catalog says.
#[derive(Debug, Default)]
pub struct Placements(RwLock<BTreeMap<u32, u16>>);

impl Placements {
    /// The part of a tree, if it has one.
    pub fn of(&self, tree: u32) -> Option<u16> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&(tree & !PIECES)).copied()
    }

    /// Sets the part of trees, or takes it away.
    pub fn set(&self, trees: &[u32], part: Option<u16>) {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        for tree in trees.iter().map(|tree| tree & !PIECES) {
            match part {
                Some(part) => all.insert(tree, part),
                None => all.remove(&tree),
            };
        }
    }
}

/// Where the pages of a table are: [`Database::placement`](crate::Database::placement).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TablePlacement {
    /// The part of the pool that new pages go to. `None`: where there is room.
    pub part: Option<u16>,
    /// The kernel's number of the node that this part is on, if it is known. Virtual nodes have numbers of their own.
    pub node: Option<u32>,
    /// Pages of the table, its indexes and its long values, by part, as the last checkpoint left them.
    pub pages: Vec<u64>,
}
