//! Walks from node to node that end, whatever the links are.
//!
//! A link whose object is intact may still lead back. Either the damage has a checksum that fits, or a program wrote a
//! wrong link. A sound walk visits each node once, so:
//!
//! 1. it ends when it comes back to a node that it remembers. It remembers a later one whenever its length has doubled
//!    (Brent's way). That ends a circle after at most three times its length;
//! 2. it ends when it has seen more nodes than the pool can hold. That bounds a walk over nodes that have more than one
//!    parent by the pool's size.

use lodestone_stm::{PmAddr, Tx, TxResult};
use lodestone_width::to_u64;

use crate::damaged;

/// The finding in both cases.
const CIRCLE: &str = "links of a collection lead in a circle, or to one node from two";

/// A walk in progress.
#[derive(Debug)]
pub struct Steps {
    passed: PmAddr,
    done: u64,
    limit: u64,
}

impl Steps {
    /// A walk over nodes of `node_words` words.
    pub fn new(tx: &Tx<'_>, node_words: usize) -> Self {
        // A cell holds two versions, and `objects_max` counts cells of eight words.
        let cells = tx.objects_max() / (2 * to_u64(node_words) / 8).max(1);
        Self { passed: PmAddr::NULL, done: 0, limit: cells + 1 }
    }

    /// Visits the node at `at`.
    pub fn come_to(&mut self, at: PmAddr) -> TxResult<()> {
        self.done += 1;
        if at == self.passed || self.done > self.limit {
            return Err(damaged(at, CIRCLE));
        }
        if self.done.is_power_of_two() {
            self.passed = at;
        }
        Ok(())
    }
}
