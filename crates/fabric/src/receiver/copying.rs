//! The copy of pages of a member that joins: which pages it has, and which it asks for next.
//!
//! Records go on meanwhile. The member applies them in order and reports them, so its sender need not keep them. A page
//! that a record wrote whole is there, and a copy of it that comes later is not taken. A record that needs the old
//! bytes of a page waits until that page is there, which is asked for before all others.

use std::collections::BTreeMap;

use lodestone_pmem::planted;
use lodestone_width::{to_u64, to_usize};

use crate::ids::{Moment, NodeId, Sequence};

/// Pages that are asked for at a time.
pub(super) const COPIES_AT_A_TIME: usize = 16;
const COPY_AGAIN_NS: u64 = 2_000_000;
/// Another member is asked after so many requests in a row that brought nothing.
const IN_VAIN_MAX: u32 = 8;

/// The copy.
#[derive(Debug)]
pub(super) struct Copying {
    /// The members that count, of which the first one is asked; none after a restart, until a view names them.
    sources: Vec<NodeId>,
    /// Requests in a row that brought nothing.
    in_vain: u32,
    /// A copy counts if its source had everything up to here.
    base: Sequence,
    /// Pages that are there, in order.
    done: Vec<bool>,
    /// How many are not.
    left: u64,
    /// The first page that was not asked for yet.
    next: usize,
    /// Pages that were asked for, and are not there.
    batch: Vec<u64>,
    asked: Option<Moment>,
    /// Pages for which records wait, and when they were asked for.
    urgent: BTreeMap<u64, Option<Moment>>,
    /// Pages that were looked at to find those to ask for.
    looked: u64,
}

impl Copying {
    /// Waits for a view.
    pub(super) const fn waiting() -> Self {
        Self {
            sources: Vec::new(),
            in_vain: 0,
            base: Sequence(0),
            done: Vec::new(),
            left: 0,
            next: 0,
            batch: Vec::new(),
            asked: None,
            urgent: BTreeMap::new(),
            looked: 0,
        }
    }

    /// Copies so many pages, each of a moment after `base`.
    pub(super) fn from(sources: Vec<NodeId>, base: Sequence, pages: u64) -> Self {
        let mut done = vec![false; usize::try_from(pages).unwrap_or(usize::MAX)];
        // There is no page 0.
        done.iter_mut().take(1).for_each(|page| *page = true);
        Self { sources, base, done, left: pages.saturating_sub(1), ..Self::waiting() }
    }

    /// Asks these members from now on: the former one may be gone. Pages that are there stay.
    pub(super) fn change_sources(&mut self, sources: Vec<NodeId>) {
        let is_same = sources.len() == self.sources.len() && sources.iter().all(|node| self.sources.contains(node));
        if !is_same && !self.is_waiting() {
            self.sources = sources;
            self.ask_anew();
        }
    }

    fn ask_anew(&mut self) {
        (self.in_vain, self.asked) = (0, None);
        self.urgent.values_mut().for_each(|asked| *asked = None);
    }

    pub(super) const fn is_waiting(&self) -> bool {
        self.sources.is_empty()
    }

    /// Whether all pages are there.
    pub(super) const fn is_whole(&self) -> bool {
        !self.is_waiting() && self.left == 0
    }

    /// Pages that are there, of how many.
    pub(super) fn progress(&self) -> (u64, u64) {
        let all = to_u64(self.done.len()).saturating_sub(1);
        (all - self.left, all)
    }

    /// Whether a copy of `source`, when it had everything up to `tail`, may be taken. It need not be the member that is
    /// asked now: any that counts and has so much has the right bytes.
    pub(super) fn takes(&self, source: NodeId, tail: Sequence) -> bool {
        self.sources.contains(&source) && tail >= self.base
    }

    /// An answer came.
    pub(super) const fn answered(&mut self) {
        self.in_vain = 0;
    }

    /// Whether a page is not there.
    pub(super) fn lacks(&self, page: u64) -> bool {
        self.done.get(to_usize(page)).is_some_and(|done| !done)
    }

    /// A page is there from now on. Whether it was not before, and whether a record waited for it.
    pub(super) fn note(&mut self, page: u64) -> (bool, bool) {
        let Some(done) = self.done.get_mut(to_usize(page)) else { return (false, false) };
        if std::mem::replace(done, true) {
            return (false, false);
        }
        self.left -= 1;
        if !self.batch.is_empty() {
            self.batch.retain(|other| *other != page);
            if self.batch.is_empty() {
                self.asked = None;
            }
        }
        (true, self.urgent.remove(&page).is_some())
    }

    /// A record waits for a page.
    pub(super) fn urge(&mut self, page: u64) {
        if self.lacks(page) {
            self.urgent.entry(page).or_insert(None);
        }
    }

    pub(super) fn wake_at(&self) -> Option<Moment> {
        self.sources.first()?;
        let due = |asked: Option<Moment>| asked.map_or(Moment(0), |asked| asked.plus(COPY_AGAIN_NS));
        self.urgent.values().copied().chain([self.asked]).map(due).min()
    }

    /// The source, and the pages that it is to be asked for now.
    pub(super) fn ask(&mut self, now: Moment) -> Option<(NodeId, Vec<u64>)> {
        let is_due = |asked: &Option<Moment>| asked.is_none_or(|asked| now.since(asked) >= COPY_AGAIN_NS);
        if self.asked.is_some() && is_due(&self.asked) {
            self.in_vain += 1;
            if self.in_vain > IN_VAIN_MAX && !planted::active("fabric-copy-from-one-member-alone") {
                // It may be gone, or the network between: the sender need not know.
                self.sources.rotate_left(1);
                self.ask_anew();
            }
        }
        let source = *self.sources.first()?;
        let mut pages = Vec::new();
        for (page, asked) in self.urgent.iter_mut().filter(|(_, asked)| is_due(asked)).take(COPIES_AT_A_TIME) {
            *asked = Some(now);
            pages.push(*page);
        }
        if is_due(&self.asked) {
            self.asked = Some(now);
            while self.batch.len() < COPIES_AT_A_TIME
                && let Some(done) = self.done.get(self.next)
            {
                if !done {
                    self.batch.push(to_u64(self.next));
                }
                self.next += 1;
                self.looked += 1;
            }
            let urgent = &self.urgent;
            pages.extend(self.batch.iter().copied().filter(|page| !urgent.contains_key(page)));
        }
        Some((source, pages))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: NodeId = NodeId(7);

    /// Records write every second page before it is copied, and some answers are lost.
    #[test]
    fn each_page_is_looked_at_once_however_many_gaps_there_are() {
        let pages = 100_000;
        let mut copying = Copying::from(vec![SOURCE], Sequence(1), pages);
        for page in (1..pages).step_by(2) {
            assert_eq!(copying.note(page), (true, false));
        }
        let (mut now, mut asked, mut calls) = (Moment(0), 0_u64, 0_u64);
        while !copying.is_whole() {
            now = now.plus(COPY_AGAIN_NS);
            let (_, wanted) = copying.ask(now).expect("it has a source");
            assert!(!wanted.is_empty() && wanted.len() <= COPIES_AT_A_TIME);
            asked += to_u64(wanted.len());
            calls += 1;
            // Every third call loses the answers to all but one page.
            let arrive = if calls.is_multiple_of(3) { 1 } else { wanted.len() };
            wanted.iter().take(arrive).for_each(|page| _ = copying.note(*page));
            let (done, all) = copying.progress();
            assert!(done <= all && all == pages - 1);
        }
        assert_eq!(copying.looked, pages, "one look for each page");
        assert!(asked < 2 * pages, "{asked} pages asked for");
        assert_eq!(copying.progress(), (pages - 1, pages - 1));
    }

    #[test]
    fn what_a_record_waits_for_is_asked_for_first_and_once_in_its_time() {
        let mut copying = Copying::from(vec![SOURCE], Sequence(5), 1000);
        let (_, first) = copying.ask(Moment(1)).expect("it has a source");
        assert_eq!(first, (1..=16).collect::<Vec<_>>());
        copying.urge(900);
        copying.urge(3);
        assert_eq!(copying.wake_at(), Some(Moment(0)), "at once");
        assert_eq!(copying.ask(Moment(2)), Some((SOURCE, vec![3, 900])));
        assert_eq!(copying.ask(Moment(3)), Some((SOURCE, vec![])));
        assert!(!copying.takes(SOURCE, Sequence(4)) && copying.takes(SOURCE, Sequence(5)));
        assert!(!copying.takes(NodeId(8), Sequence(5)));
        assert_eq!(copying.note(900), (true, true));
        assert_eq!(copying.note(900), (false, false));
        copying.urge(900);
        copying.change_sources(vec![NodeId(8)]);
        let (source, again) = copying.ask(Moment(4)).expect("it has a source");
        assert_eq!((source, again.len(), again.first()), (NodeId(8), 16, Some(&3)), "all that is not there, anew");
    }
}
