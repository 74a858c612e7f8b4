//! Wrong ways to do things, for planted bugs: proof that the explorer and the tests would notice. Each is guarded by
//! [`planted::active`](lodestone_pmem::planted::active), which is the constant `false` in every build without the
//! feature `planted-bugs`.

use lodestone_heap::Action;
use lodestone_pmem::{PmAddr, checked};

use crate::error::Result;
use crate::leaf::Leaf;
use crate::map::OrderedMap;

impl OrderedMap {
    /// Publishes a record before anything made it persistent.
    pub(crate) fn publish_at_once(&self, word: PmAddr, record: PmAddr) {
        self.heap.memory().store(word, checked::encode_addr(word, record));
        // Planted: the flushed record and the slot reach the medium in any order.
        self.heap.memory().persist(word, 8);
    }

    /// Frees a block before the pointer to it is gone.
    pub(crate) fn free_at_once(&self, at: PmAddr) -> Result<()> {
        let mut action = self.heap.action();
        action.free(at)?;
        Ok(action.commit()?)
    }

    /// Clears a slot and writes back the line of the leaf's link instead of the slot's.
    pub(crate) fn clear_and_flush_another_line(&self, leaf: &Leaf, word: PmAddr) {
        self.heap.memory().store(word, checked::encode_addr(word, PmAddr::NULL));
        // Planted: right only while link and slot share a line.
        self.heap.memory().persist(leaf.at.next(), 8);
    }

    /// Tears one action into two.
    pub(crate) fn commit_and_begin_another<'m>(&'m self, action: Action<'m>) -> Result<Action<'m>> {
        action.commit()?;
        Ok(self.heap.action())
    }
}
