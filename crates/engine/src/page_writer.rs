//! The writers of pages in a round: one for each node that has tables (paper 4, section 2.2.3).
//!
//! 1. The trees of a round are divided by the nodes of the parts that they are [placed](crate::placement) in. Those
//!    without a place, and those on the node of the thread that makes the round, are written by that thread. A tree
//!    with ranges of keys in several parts is divided into [stretches](Stretch) of leaves, each for its node.
//! 2. Each other node gets a thread, which is kept on it. So all pages are written by a thread near them, and the nodes
//!    work side by side. A thread ends with a fence of its own ([`lodestone_pages::Share`]).
//! 3. The thread of the round waits for all, then publishes the one batch. It is the thread that locks the pages first:
//!    paper 4 elects a master among the threads of its nodes.
//!
//! Where runs must repeat exactly, one thread does the work of all, node by node.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;

use lodestone_pages::{Batch, Image, PageRow, Patch, RowWrite, Share, Shares};
use lodestone_pmem::sync::atomic::Ordering;
use lodestone_pmem::sync::spin;
use lodestone_pmem::{planted, work};
use lodestone_txn::{RowState, RowWord, Tick, Writer};
use lodestone_width::to_u64;

use crate::core::Core;
use crate::dual::{self, is_dual};
use crate::error::Result;
use crate::leaf::{Changes, Page};
use crate::placement::Place;
use crate::rounds::CheckpointReport;
use crate::tree::{Bytes, Lookup, Slot, Tree};

/// Where images are written: the batch itself, or a share of it.
enum Pen<'b, 's, 'p> {
    Batch(&'b mut Batch<'p>),
    Share(&'b mut Share<'s, 'p>),
}

impl Pen<'_, '_, '_> {
    fn place(&mut self, part: Option<u16>) {
        match self {
            Self::Batch(batch) => batch.place(part),
            Self::Share(share) => share.place(part),
        }
    }

    fn write<'r>(&mut self, tree: u32, low: &[u8], rows: impl Iterator<Item = PageRow<'r>>) -> Result<Image> {
        Ok(match self {
            Self::Batch(batch) => batch.write(tree, low, rows)?,
            Self::Share(share) => share.write(tree, low, rows)?,
        })
    }

    fn end(&mut self, image: Image) {
        match self {
            Self::Batch(batch) => batch.end(image),
            Self::Share(share) => share.end(image),
        }
    }

    fn patch<'r>(
        &mut self,
        image: &Image,
        leaf: (u32, &[u8]),
        rows: impl Iterator<Item = (PageRow<'r>, RowWrite)>,
        floor: Tick,
    ) -> Result<Patch> {
        Ok(match self {
            Self::Batch(batch) => batch.patch(image, leaf, rows, floor)?,
            Self::Share(share) => share.patch(image, leaf, rows, floor)?,
        })
    }
}

/// Leaves of a tree that one thread writes.
///
/// Both ends are beginnings of leaves, which the thread of the round has found: no leaf goes until the round ends, and
/// the halves of a leaf that is split meanwhile are in its stretch. So each leaf is written by one thread, and none is
/// left out. With the border of two ranges as an end, the new half of a leaf over it would have a thread that may have
/// passed it.
struct Stretch {
    tree: Arc<Tree>,
    from: Bytes,
    /// `None`: the last leaf is one of them.
    to: Option<Bytes>,
}

/// Leaves that one thread writes.
struct Group {
    /// `None`: that of the thread that makes the round.
    node: Option<usize>,
    stretches: Vec<Stretch>,
}

/// Writes the dirty leaves of all trees. This thread publishes the batch afterwards.
///
/// # Errors
/// A full pool; a medium that failed; `Error::Poisoned`.
pub fn write_trees(core: &Core, batch: &mut Batch<'_>, trees: Vec<Arc<Tree>>, written: &mut Written) -> Result<()> {
    let (near, far) = by_node(core, trees);
    written.report.writers = to_u64(far.len()) + 1;
    if far.is_empty() {
        return write_all(core, &mut Pen::Batch(batch), &near.stretches, written);
    }
    let parts = batch.side_by_side(|shares| {
        if work::threads(&core.memory) > 1 && core.ground.source.far().is_none_or(|far| !far.run_on(0, &mut || ())) {
            return side_by_side(core, shares, &near, &far);
        }
        far.iter().chain([&near]).map(|group| in_turn(core, shares, group)).collect()
    });
    parts.into_iter().try_for_each(|part: Result<_>| part.map(|part| written.join(part)))
}

/// Writes all groups, each by a thread of its own.
fn side_by_side(core: &Core, shares: &Shares<'_>, near: &Group, far: &[Group]) -> Vec<Result<Written>> {
    thread::scope(|scope| {
        let write = |group: &Group| {
            if let Some(node) = group.node {
                // A thread that may not run there writes the same pages from afar.
                let _ = core.heap.pool().topology().pin_thread(node);
            }
            write_group(core, shares, group)
        };
        let threads: Vec<_> = far.iter().map(|group| scope.spawn(move || write(group))).collect();
        let own = write(near);
        let join = |thread: thread::ScopedJoinHandle<'_, _>| match thread.join() {
            Ok(outcome) => outcome,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        threads.into_iter().map(join).chain([own]).collect()
    })
}

/// Writes a group by this thread, in a simulation as one of its node.
fn in_turn(core: &Core, shares: &Shares<'_>, group: &Group) -> Result<Written> {
    let mut outcome = None;
    if let (Some(far), Some(node)) = (core.ground.source.far(), group.node) {
        far.run_on(node, &mut || outcome = Some(write_group(core, shares, group)));
    }
    outcome.unwrap_or_else(|| write_group(core, shares, group))
}

/// Writes a group as a share of the batch.
fn write_group(core: &Core, shares: &Shares<'_>, group: &Group) -> Result<Written> {
    let (mut written, mut share) = (Written::default(), shares.share(None));
    write_all(core, &mut Pen::Share(&mut share), &group.stretches, &mut written)?;
    match group.node {
        Some(_) => share.finish()?,
        None => share.finish_later(),
    }
    Ok(written)
}

fn write_all(core: &Core, pen: &mut Pen<'_, '_, '_>, stretches: &[Stretch], written: &mut Written) -> Result<()> {
    stretches.iter().try_for_each(|stretch| write_stretch(core, pen, stretch, written))
}

/// The leaves that this thread writes, and those of each other node.
fn by_node(core: &Core, trees: Vec<Arc<Tree>>) -> (Group, Vec<Group>) {
    let pool = core.heap.pool();
    let mut near = Group { node: None, stretches: Vec::new() };
    let (here, mut far) = (pool.topology().node_of_thread(), BTreeMap::<usize, Vec<_>>::new());
    let has_parts = pool.part_nodes().len() > 1;
    for tree in trees {
        let place = if has_parts { core.placements.place(tree.number) } else { Place::default() };
        for (part, stretch) in stretches(tree, &place) {
            let node = part.and_then(|part| pool.part_nodes().get(usize::from(part))?.index);
            match node.filter(|node| *node != here) {
                Some(node) => far.entry(node).or_default().push(stretch),
                None => near.stretches.push(stretch),
            }
        }
    }
    let group = |(node, stretches)| Group { node: Some(node), stretches };
    (near, far.into_iter().map(group).collect())
}

/// The leaves of a tree, divided by the parts that they are placed in.
fn stretches(tree: Arc<Tree>, place: &Place) -> Vec<(Option<u16>, Stretch)> {
    let mut stretches = Vec::new();
    let (mut part, mut from) = (place.part, Bytes::default());
    for (low, next) in place.ranges() {
        // A leaf over the border is in the part of its first key, and no leaf may begin in a range.
        let Some(low) = tree.low_from(low) else { break };
        if low > from {
            let from = std::mem::replace(&mut from, low.clone());
            stretches.push((part, Stretch { tree: tree.clone(), from, to: Some(low) }));
        }
        part = *next;
    }
    stretches.push((part, Stretch { tree, from, to: None }));
    stretches
}

/// The image of a leaf after a round.
#[derive(Debug)]
enum NewHome {
    /// It has another image with so many rows, or none because it has no rows.
    Written(Option<Image>, usize),
    /// Its image has the rows, or it is not written yet.
    Same,
}

/// Leaves that a round has written. Dropped before they are published, they are dirty again.
#[derive(Debug, Default)]
pub struct Written {
    pages: Vec<(Arc<Page>, NewHome)>,
    report: CheckpointReport,
    is_published: bool,
}

impl Written {
    /// Takes over those of another thread.
    fn join(&mut self, mut other: Self) {
        self.pages.append(&mut other.pages);
        self.report.rows_in_place += other.report.rows_in_place;
        self.report.lines += other.report.lines;
        self.report.writers += other.report.writers;
    }

    /// The batch counts.
    pub fn publish(mut self) -> CheckpointReport {
        self.is_published = true;
        for (page, home) in self.pages.drain(..) {
            if let NewHome::Written(image, rows) = home {
                self.report.images += u64::from(image.is_some());
                self.report.pages += image.as_ref().map_or(0, |image| to_u64(image.page_count()));
                page.set_home(image, rows);
            }
            page.leave_round();
        }
        self.report
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        if !self.is_published {
            self.pages.iter().for_each(|(page, _)| {
                page.soil();
                page.leave_round();
            });
        }
    }
}

/// Writes the dirty leaves of a stretch.
fn write_stretch(core: &Core, pen: &mut Pen<'_, '_, '_>, stretch: &Stretch, written: &mut Written) -> Result<()> {
    let Stretch { tree, from, to } = stretch;
    let place = core.placements.place(tree.number);
    // Pages of which few and most lines have changed.
    let (mut few, mut most) = (0, 0);
    let mut next = Some(from.clone());
    while let Some(low) = next.filter(|low| to.as_ref().is_none_or(|to| low < to)) {
        pen.place(place.at(&low));
        // So that a look at one of its rows later reads one page.
        tree.narrow(core, &low);
        // Before the look at the leaf: if it is split after that, its image stays as wide as it was.
        let before = tree.next_low(&low);
        let (page, dirt) = tree.take_dirt(&low);
        let Some(slots) = dirt else {
            next = before;
            continue;
        };
        written.pages.push((page, NewHome::Same));
        let mut rows = settled_rows(core, tree, &slots)?;
        // Looked at once: the image ends where the next one begins, also if the leaf is split from here on.
        next = tree.next_low(&low);
        if !planted::active("engine-image-too-wide") {
            rows.retain(|row| next.as_ref().is_none_or(|next| row.key < *next));
        }
        core.refuse_if_poisoned()?;
        let (page, new_home) = written.pages.last_mut().expect("just added");
        let home = page.home();
        let patchable = home.as_ref().filter(|_| page.may_patch(rows.len()));
        match patch(core, pen, patchable, (tree.number, &low), &rows, page.has_old_rows())? {
            Patch::Done(patched) => {
                written.report.rows_in_place += patched.rows;
                written.report.lines += patched.lines;
                page.changes.note(Changes::Few);
                page.note_image_rows(rows.len());
                few += 1;
                continue;
            }
            Patch::Refused => {
                page.changes.note(Changes::Few);
                few += 1;
            }
            Patch::MostLines => {
                page.changes.note(Changes::Most);
                most += 1;
            }
            // It says nothing about how much changes.
            _ => {}
        }
        let image = write(core, pen, tree, &low, &rows)?;
        if planted::active("pages-clear-after-copy") {
            page.forget_dirt();
        }
        home.into_iter().for_each(|home| pen.end(home));
        *new_home = NewHome::Written(image, rows.len());
    }
    if few != most {
        tree.changes.note(if few > most { Changes::Few } else { Changes::Most });
    }
    Ok(())
}

/// Writes an image of `rows`. None of them is no image.
fn write(
    core: &Core,
    pen: &mut Pen<'_, '_, '_>,
    tree: &Tree,
    low: &[u8],
    rows: &[SettledRow],
) -> Result<Option<Image>> {
    if rows.is_empty() {
        return Ok(None);
    }
    let base = core.timeline.base();
    Ok(Some(pen.write(tree.number, low, rows.iter().map(|row| row.page_row(base)))?))
}

/// Writes the rows that changed into the page of the leaf, if that can be done. `has_old`: the image has the rows that
/// did not change in this life.
fn patch(
    core: &Core,
    pen: &mut Pen<'_, '_, '_>,
    home: Option<&Image>,
    leaf: (u32, &[u8]),
    rows: &[SettledRow],
    has_old: bool,
) -> Result<Patch> {
    let (base, floor) = (core.timeline.base(), core.rounds.whole_floor.load(Ordering::SeqCst));
    // Of rows in cells all versions of a life have one tick.
    let has_old = has_old && !is_dual(leaf.0);
    let write = |row: &SettledRow| match row.word.version().tick(base) <= base {
        true if has_old => RowWrite::Needless,
        _ if row.whole > floor || planted::active("engine-lines-without-whole") => RowWrite::Allowed,
        _ => RowWrite::Refused,
    };
    match home {
        Some(home) if core.ways.in_place => {
            Ok(pen.patch(home, leaf, rows.iter().map(|row| (row.page_row(base), write(row))), base)?)
        }
        _ => Ok(Patch::OtherImage),
    }
}

/// A row that may be written to a page.
#[derive(Debug)]
pub struct SettledRow {
    key: Bytes,
    word: RowWord,
    payload: Bytes,
    /// See [`Slot::whole`].
    whole: u64,
}

impl SettledRow {
    /// The row in the life that began at `base`.
    fn page_row(&self, base: Tick) -> PageRow<'_> {
        let version = self.word.version();
        PageRow { key: &self.key, tick: version.tick(base), writer: version.writer(), payload: &self.payload }
    }
}

/// The rows of `slots`, in versions whose records are persistent.
pub fn settled_rows(core: &Core, tree: &Tree, slots: &[Arc<Slot>]) -> Result<Vec<SettledRow>> {
    let mut rows = Vec::new();
    for slot in slots {
        let key = slot.key();
        let mut turn = 0;
        let found = loop {
            let whole = slot.whole();
            match slot.read() {
                Some((word, payload)) => {
                    if word.state() == RowState::Pending && !planted::active("pages-copies-pending") {
                        core.wait_settled(slot, word)?;
                    }
                    let row = if is_dual(tree.number) {
                        // The address stays the same, and so does the row of the page. Why the tick may: `dual.rs`.
                        let word = RowWord::new(core.timeline.base(), Writer::default(), word.is_absent());
                        SettledRow { key: key.clone(), word, payload: dual::reference(&payload), whole }
                    } else {
                        SettledRow { key: key.clone(), word, payload, whole }
                    };
                    break (!word.is_absent()).then_some(row);
                }
                // It was purged, or its claim was given up. A commit that uses the key again is of this epoch or
                // later, and makes the leaf dirty.
                None if !is_slot_of(tree, key, slot)? => break None,
                None => core.refuse_if_poisoned()?,
            }
            spin(turn);
            turn += 1;
        };
        rows.extend(found);
    }
    Ok(rows)
}

fn is_slot_of(tree: &Tree, key: &[u8], slot: &Arc<Slot>) -> Result<bool> {
    Ok(matches!(tree.find(key)?, Lookup::Slot(found) if Arc::ptr_eq(&found, slot)))
}
