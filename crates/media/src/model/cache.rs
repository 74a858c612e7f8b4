//! The processor's cache in front of the medium: which lines a thread has cached, and which of them are dirty.
//!
//! A set-associative array of line tags with true LRU order inside a set: the most recent tag is first. Each thread has
//! one, like the private cache of one processor. A shared last-level cache and coherence between threads are not
//! modelled.
//!
//! Invariants: a line is in one set only, and once; a tag of 0 is empty, since line 0 of part 0 is tagged 1 in the low
//! bits.

use lodestone_pmem::{LINE_BYTES, LineAddr};

use crate::profile::CpuCacheProfile;

/// The state of a line before it was touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Absent,
    Clean,
    Dirty,
}

#[derive(Debug)]
pub(super) struct CpuCache {
    ways: usize,
    sets: u64,
    tags: Vec<u64>,
}

const PRESENT: u64 = 1;
const DIRTY: u64 = 2;

impl CpuCache {
    pub(super) fn new(profile: &CpuCacheProfile) -> Self {
        let lines = profile.bytes / LINE_BYTES;
        let ways = usize::try_from(profile.ways).unwrap_or(1);
        Self { ways, sets: lines / profile.ways, tags: vec![0; usize::try_from(lines).unwrap_or(0)] }
    }

    fn set(&mut self, line: LineAddr) -> &mut [u64] {
        if self.sets == 0 {
            return &mut [];
        }
        let raw = line.start().to_raw();
        // Parts start at the same offsets, so the part number is mixed in, as physical addresses would do.
        let index = (raw / LINE_BYTES + (raw >> 48).wrapping_mul(0x9E37_79B1)) % self.sets;
        let start = usize::try_from(index).unwrap_or(0) * self.ways;
        &mut self.tags[start..start + self.ways]
    }

    /// Looks `line` up and makes it the most recent one of its set; marks it dirty when `dirty`.
    #[inline]
    pub(super) fn touch(&mut self, line: LineAddr, dirty: bool) -> Found {
        let wanted = line.start().to_raw() | PRESENT;
        let set = self.set(line);
        let Some(at) = set.iter().position(|tag| tag & !DIRTY == wanted) else { return Found::Absent };
        let found = if set[at] & DIRTY == 0 { Found::Clean } else { Found::Dirty };
        let tag = set[at] | if dirty { DIRTY } else { 0 };
        set.copy_within(..at, 1);
        set[0] = tag;
        found
    }

    /// Inserts a line that is absent. Returns the dirty line that was evicted for it.
    pub(super) fn insert(&mut self, line: LineAddr, dirty: bool) -> Option<LineAddr> {
        let tag = line.start().to_raw() | PRESENT | if dirty { DIRTY } else { 0 };
        let set = self.set(line);
        let Some(last) = set.len().checked_sub(1) else { return dirty.then_some(line) };
        let gone = set[last];
        set.copy_within(..last, 1);
        set[0] = tag;
        (gone & DIRTY != 0).then(|| line_of(gone))
    }

    /// The state of `line`, without touching it.
    pub(super) fn look(&mut self, line: LineAddr) -> Found {
        let wanted = line.start().to_raw() | PRESENT;
        match self.set(line).iter().find(|tag| **tag & !DIRTY == wanted) {
            None => Found::Absent,
            Some(tag) if tag & DIRTY == 0 => Found::Clean,
            Some(_) => Found::Dirty,
        }
    }

    /// Marks `line` clean; evicts it unless `keep`.
    pub(super) fn clean(&mut self, line: LineAddr, keep: bool) {
        let wanted = line.start().to_raw() | PRESENT;
        let set = self.set(line);
        let Some(at) = set.iter().position(|tag| tag & !DIRTY == wanted) else { return };
        if keep {
            set[at] = wanted;
        } else {
            set.copy_within(at + 1.., at);
            set[set.len() - 1] = 0;
        }
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.tags.fill(0);
    }
}

fn line_of(tag: u64) -> LineAddr {
    lodestone_pmem::PmAddr::from_raw(tag & !(PRESENT | DIRTY)).line()
}

#[cfg(test)]
mod tests {
    use lodestone_pmem::PmAddr;
    use proptest::prelude::*;

    use super::*;

    fn line(number: u64) -> LineAddr {
        PmAddr::new(0, number * LINE_BYTES).line()
    }

    fn tiny() -> CpuCache {
        CpuCache::new(&CpuCacheProfile { bytes: 2 * 2 * 64, ways: 2, flush_keeps_line: true })
    }

    #[test]
    fn the_oldest_line_of_a_set_goes_first_and_tells_when_it_was_dirty() {
        let mut cache = tiny();
        assert_eq!(cache.insert(line(0), true), None);
        assert_eq!(cache.insert(line(2), false), None);
        assert_eq!(cache.touch(line(0), false), Found::Dirty);
        assert_eq!(cache.insert(line(4), false), None, "line 2 was clean");
        assert_eq!(cache.look(line(2)), Found::Absent);
        assert_eq!(cache.insert(line(6), false), Some(line(0)));
        cache.touch(line(6), true);
        cache.clean(line(6), true);
        assert_eq!(cache.look(line(6)), Found::Clean);
        cache.clean(line(6), false);
        assert_eq!((cache.look(line(6)), cache.look(line(4))), (Found::Absent, Found::Clean));
    }

    proptest! {
        /// Compared with a list per set, most recent first.
        #[test]
        fn it_behaves_as_lists_do(steps in prop::collection::vec((0_u64..12, 0_u8..4), 0..200)) {
            let mut cache = tiny();
            let mut lists: [Vec<(u64, bool)>; 2] = Default::default();
            for (number, kind) in steps {
                let list = &mut lists[usize::from(number % 2 == 1)];
                let at = list.iter().position(|(known, _)| *known == number);
                match (kind, at) {
                    (0 | 1, Some(at)) => {
                        let (_, was) = list.remove(at);
                        list.insert(0, (number, was || kind == 1));
                        let found = cache.touch(line(number), kind == 1);
                        prop_assert_eq!(found, if was { Found::Dirty } else { Found::Clean });
                    }
                    (0 | 1, None) => {
                        prop_assert_eq!(cache.touch(line(number), kind == 1), Found::Absent);
                        list.insert(0, (number, kind == 1));
                        let gone = if list.len() > 2 { list.pop() } else { None };
                        let expected = gone.filter(|(_, dirty)| *dirty).map(|(gone, _)| line(gone));
                        prop_assert_eq!(cache.insert(line(number), kind == 1), expected);
                    }
                    (_, at) => {
                        cache.clean(line(number), kind == 2);
                        if let Some(at) = at {
                            if kind == 2 { list[at].1 = false } else { list.remove(at); }
                        }
                    }
                }
            }
        }
    }
}
