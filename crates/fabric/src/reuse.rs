//! Pages that may be used again: the gate between the record that frees a page and the next one that writes it.
//!
//! A page is free again when **every** active member has applied the record that freed it durably. A quorum is not
//! enough: a record that is sent again late would land on the page of a member that lags, and be read as the old
//! file's bytes. The same holds for a member that joins.
//!
//! The record that uses a page again names the one that freed it. So a member checks the gate once more: it places no
//! page before it has that record durably.

use std::collections::VecDeque;

use lodestone_pmem::planted;

use crate::ids::Sequence;

/// Free pages of a unit, and freed ones that wait.
#[derive(Clone, Debug, Default)]
pub struct PageStock {
    free: Vec<(u64, Sequence)>,
    freed: VecDeque<(Sequence, u64)>,
}

impl PageStock {
    /// A stock of pages that no record ever wrote, or whose last use every member has forgotten.
    #[must_use]
    pub fn of(pages: impl IntoIterator<Item = u64>) -> Self {
        Self { free: pages.into_iter().map(|page| (page, Sequence(0))).collect(), freed: VecDeque::new() }
    }

    /// `page` was freed by the record `by`.
    pub fn free(&mut self, page: u64, by: Sequence) {
        self.freed.push_back((by, page));
    }

    /// A page that [`take`](Self::take) returned was not written after all.
    pub fn give_back(&mut self, page: u64, by: Sequence) {
        self.free.push((page, by));
    }

    /// A page that may be written, and the record that freed it; `None` while all freed ones wait for a member.
    pub fn take(&mut self, stable: Sequence) -> Option<(u64, Sequence)> {
        let found = self.take_gated(stable);
        // Without a gate there is nothing that members could check, either.
        let is_gated = !planted::active("fabric-no-gate") && !planted::active("fabric-gate-by-quorum");
        found.map(|(page, by)| (page, if is_gated { by } else { Sequence(0) }))
    }

    fn take_gated(&mut self, stable: Sequence) -> Option<(u64, Sequence)> {
        while let Some((by, page)) = self.freed.front().copied() {
            if by > stable && !planted::active("fabric-no-gate") {
                break;
            }
            self.freed.pop_front();
            self.free.insert(0, (page, by));
        }
        if planted::active("fabric-no-gate") {
            // The newest first, as an allocator without a gate would.
            return if self.free.is_empty() { None } else { Some(self.free.remove(0)) };
        }
        self.free.pop()
    }

    /// Pages that may be written now, and pages that wait.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        (self.free.len(), self.freed.len())
    }
}
