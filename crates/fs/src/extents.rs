//! Where the pages of a file are: runs of file pages in runs of pages of the volume.
//!
//! Invariants: runs do not overlap, none is empty, and neighbours that go on in both places are one run (up to
//! [`RUN_PAGES_MAX`]). A change tells which runs begin anew or end, so that the image writes only those.

use std::collections::BTreeMap;

/// Most pages of a run: what 24 bits can say.
pub(crate) const RUN_PAGES_MAX: u64 = (1 << 24) - 1;

/// Neighbouring pages of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Run {
    /// The first page.
    pub(crate) page: u64,
    /// How many.
    pub(crate) count: u64,
}

/// The runs of a file, by their first file page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extents {
    runs: BTreeMap<u64, Run>,
}

impl Extents {
    /// From runs as the image has them. `None` when they overlap or are empty.
    pub(crate) fn from_runs(runs: impl Iterator<Item = (u64, Run)>) -> Option<Self> {
        let mut extents = Self::default();
        let mut end = 0;
        for (first, run) in runs {
            if first < end || run.count == 0 {
                return None;
            }
            end = first.checked_add(run.count)?;
            extents.runs.insert(first, run);
        }
        Some(extents)
    }

    /// The run that begins at file page `first`.
    pub(crate) fn starting_at(&self, first: u64) -> Option<Run> {
        self.runs.get(&first).copied()
    }

    /// All runs.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, Run)> + '_ {
        self.runs.iter().map(|(first, run)| (*first, *run))
    }

    /// The parts of runs in file pages `from..to`, in order.
    pub(crate) fn within(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, Run)> + '_ {
        let before = self.runs.range(..from).next_back();
        before.into_iter().chain(self.runs.range(from..to.max(from))).filter_map(move |(first, run)| {
            let (begin, end) = ((*first).max(from), (first + run.count).min(to));
            (begin < end).then(|| (begin, Run { page: run.page + (begin - first), count: end - begin }))
        })
    }

    /// The page of the volume that has file page `at`.
    pub(crate) fn page_of(&self, at: u64) -> Option<u64> {
        self.within(at, at + 1).next().map(|(_, run)| run.page)
    }

    /// The first file page at or after `from` that has a page.
    pub(crate) fn next_data(&self, from: u64) -> Option<u64> {
        self.within(from, u64::MAX).next().map(|(first, _)| first)
    }

    /// The first file page at or after `from` that has none.
    pub(crate) fn next_hole(&self, from: u64) -> u64 {
        let mut at = from;
        for (first, run) in self.within(from, u64::MAX) {
            if first > at {
                break;
            }
            at = first + run.count;
        }
        at
    }

    /// Makes file pages `from..to` a hole. Returns the pages that it frees. `changed` gets the first file page of each
    /// run that begins, ends or changes.
    pub(crate) fn cut(&mut self, from: u64, to: u64, mut changed: impl FnMut(u64)) -> Vec<Run> {
        let touched: Vec<(u64, Run)> = {
            let before = self.runs.range(..from).next_back().filter(|(first, run)| *first + run.count > from);
            before.into_iter().chain(self.runs.range(from..to.max(from))).map(|(first, run)| (*first, *run)).collect()
        };
        let mut freed = Vec::with_capacity(touched.len());
        for (first, run) in touched {
            let (begin, end) = (first.max(from), (first + run.count).min(to));
            self.runs.remove(&first);
            changed(first);
            if first < begin {
                self.runs.insert(first, Run { page: run.page, count: begin - first });
            }
            if end < first + run.count {
                self.runs.insert(end, Run { page: run.page + (end - first), count: first + run.count - end });
                changed(end);
            }
            freed.push(Run { page: run.page + (begin - first), count: end - begin });
        }
        freed
    }

    /// Puts `run` at file page `first`, where there is a hole.
    pub(crate) fn put(&mut self, first: u64, run: Run, mut changed: impl FnMut(u64)) {
        let (mut first, mut run) = (first, run);
        if let Some((&before, &left)) = self.runs.range(..first).next_back()
            && before + left.count == first
            && left.page + left.count == run.page
            && left.count + run.count <= RUN_PAGES_MAX
        {
            (first, run) = (before, Run { page: left.page, count: left.count + run.count });
        }
        let end = first + run.count;
        if let Some(&right) = self.runs.get(&end)
            && run.page + run.count == right.page
            && run.count + right.count <= RUN_PAGES_MAX
        {
            self.runs.remove(&end);
            changed(end);
            run.count += right.count;
        }
        self.runs.insert(first, run);
        changed(first);
    }

    /// Pages in all runs.
    pub(crate) fn pages(&self) -> u64 {
        self.runs.values().map(|run| run.count).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Random cuts and puts against a plain table of pages; the changed keys lead a copy to the same runs.
    #[test]
    fn runs_are_a_table_of_pages() {
        let mut random = 7_u64;
        let mut draw = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        let (mut extents, mut table, mut copy) = (Extents::default(), BTreeMap::new(), BTreeMap::new());
        for step in 0..3000_u64 {
            let (from, count) = (draw(60), draw(9) + 1);
            let mut changed = BTreeSet::new();
            let freed = extents.cut(from, from + count, |key| _ = changed.insert(key));
            let mut expected: Vec<u64> = (from..from + count).filter_map(|at| table.remove(&at)).collect();
            let mut found: Vec<u64> = freed.iter().flat_map(|run| run.page..run.page + run.count).collect();
            expected.sort_unstable();
            found.sort_unstable();
            assert_eq!(found, expected, "step {step}");
            if draw(3) > 0 {
                // Sometimes the page that goes on from the left neighbour.
                let page = if draw(2) == 0 {
                    table.get(&from.wrapping_sub(1)).map_or(1000, |p| p + 1)
                } else {
                    5000 + step * 16
                };
                extents.put(from, Run { page, count }, |key| _ = changed.insert(key));
                (0..count).for_each(|index| _ = table.insert(from + index, page + index));
            }
            for key in changed {
                match extents.starting_at(key) {
                    Some(run) => _ = copy.insert(key, run),
                    None => _ = copy.remove(&key),
                }
            }
            assert_eq!(Extents::from_runs(copy.clone().into_iter()).as_ref(), Some(&extents), "step {step}");
            for at in 0..80 {
                assert_eq!(extents.page_of(at), table.get(&at).copied(), "step {step}, file page {at}");
            }
            let at = draw(70);
            assert_eq!(extents.next_data(at), table.range(at..).next().map(|(first, _)| *first));
            assert_eq!(extents.next_hole(at), (at..).find(|page| !table.contains_key(page)).unwrap());
            assert_eq!(extents.pages(), table.len() as u64);
        }
    }
}
