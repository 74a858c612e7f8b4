//! The rows of one tree of a load: in memory, in images of leaves, and in sorted runs.
//!
//! 1. Rows are added to the [buffer](RowBuffer). While each has a larger key than the one before it they are *in
//!    order*.
//! 2. When the buffers of a load are full, rows in order are written as images. The last ones stay: whether they fill a
//!    leaf depends on those that follow. Rows in no order are sorted and written to a file as a run.
//! 3. At the end the runs, the images from before the first row out of order, and the buffer are merged.
//!
//! Equal keys are neighbours after each sort and each merge, and are found there.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use lodestone_blocks::{Arena, Block};
use lodestone_pages::{Batch, Image, PageRow, Pages};
use lodestone_txn::{RowWord, Writer};

use crate::core::Core;
use crate::error::Result;
use crate::leaf::{Leaf, Page, Purged, Span};
use crate::load::rows::RowBuffer;
use crate::load::runs::{RunReader, Runs};
use crate::tree::{Bytes, Slot, Tree, room};

/// Bytes of merged rows in memory before they are written.
const MERGED_BYTES_MAX: usize = 8 << 20;

/// A leaf that is written.
#[derive(Debug)]
struct Written {
    low: Bytes,
    image: Image,
}

/// See the module.
#[derive(Debug)]
pub struct Content {
    pub tree: u32,
    pub buffer: RowBuffer,
    is_in_order: bool,
    /// Leaves before the buffer.
    leaves: Vec<Written>,
    /// How many of them count: their batch was published.
    counted: usize,
    /// Where the first leaf of the buffer begins.
    low: Bytes,
    runs: Option<Runs>,
    /// Images that were merged into others.
    ended: Vec<Image>,
}

/// A key that two rows have.
pub type Duplicate = Vec<u8>;

impl Content {
    pub fn new(tree: u32) -> Self {
        Self {
            tree,
            buffer: RowBuffer::default(),
            is_in_order: true,
            leaves: Vec::new(),
            counted: 0,
            low: Bytes::default(),
            runs: None,
            ended: Vec::new(),
        }
    }

    pub fn push(&mut self, key: &[u8], payload: &[u8]) {
        // Rows that are in order leave the buffer but for the last ones, so there is one to compare with.
        self.is_in_order &= self.buffer.last_key().is_none_or(|last| last < key);
        self.buffer.push(key, payload);
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty() && self.leaves.is_empty() && self.runs.is_none()
    }

    /// Whether some rows are not in memory.
    pub fn has_spilled(&self) -> bool {
        !self.leaves.is_empty() || self.runs.is_some()
    }

    /// Sorts the buffer, if that is all there is.
    ///
    /// # Errors
    /// A key that two rows have.
    pub fn sort(&mut self) -> Result<(), Duplicate> {
        if self.is_in_order {
            return Ok(());
        }
        self.buffer.sort();
        if let Some(key) = self.buffer.duplicate() {
            return Err(key.to_vec());
        }
        self.is_in_order = !self.has_spilled();
        Ok(())
    }

    /// The leaves of the buffer, which is in order: where each begins, and its rows. `is_all`: no row follows.
    fn cuts(&self, core: &Core, is_all: bool) -> Vec<(Bytes, std::ops::Range<usize>)> {
        let (mut cuts, mut from, mut low) = (Vec::new(), 0, self.low.clone());
        while from < self.buffer.len() {
            let count = core.ground.leaf_size.take_lengths(&low, self.buffer.lengths(from));
            if count == usize::MAX && !is_all {
                break;
            }
            let to = from.saturating_add(count).min(self.buffer.len());
            let next = if to < self.buffer.len() { self.buffer.key(to).into() } else { Bytes::default() };
            cuts.push((std::mem::replace(&mut low, next), from..to));
            from = to;
        }
        cuts
    }

    /// Pages that the leaves of the buffer take.
    pub fn pages(&self, core: &Core, pages: &Pages, is_all: bool) -> usize {
        let cuts = self.cuts(core, is_all).into_iter();
        cuts.map(|(low, rows)| pages.image_pages(&low, self.page_rows(core, rows))).sum()
    }

    fn page_rows<'r>(&'r self, core: &Core, rows: std::ops::Range<usize>) -> impl Iterator<Item = PageRow<'r>> {
        let tick = core.timeline.base();
        rows.map(move |number| {
            let (key, payload) = self.buffer.row(number);
            PageRow { key, tick, writer: Writer::default(), payload }
        })
    }

    /// Writes the leaves of the buffer, which is in order. `is_all`: no row follows.
    ///
    /// # Errors
    /// A full pool; a medium that failed.
    pub fn write(&mut self, core: &Core, batch: &mut Batch<'_>, is_all: bool) -> Result<()> {
        let (cuts, place) = (self.cuts(core, is_all), core.placements.place(self.tree));
        let mut end = 0;
        for (low, rows) in cuts {
            core.refuse_if_poisoned()?;
            end = rows.end;
            batch.place(place.at(&low));
            let image = batch.write(self.tree, &low, self.page_rows(core, rows))?;
            self.leaves.push(Written { low, image });
        }
        if end < self.buffer.len() {
            self.low = self.buffer.key(end).into();
            self.buffer.forget(end);
        }
        Ok(())
    }

    /// The batch of the leaves was published.
    pub fn note_published(&mut self) {
        self.counted = self.leaves.len();
    }

    /// Whether the rows in memory can be written as leaves.
    pub fn is_in_order(&self) -> bool {
        self.is_in_order && self.runs.is_none()
    }

    /// Writes the buffer, which is not in order, as a run.
    ///
    /// # Errors
    /// A key that two of these rows have; those of the file.
    pub fn spill(&mut self, core: &Core) -> Result<Result<(), Duplicate>> {
        self.is_in_order = false;
        self.buffer.sort();
        if let Some(key) = self.buffer.duplicate() {
            return Ok(Err(key.to_vec()));
        }
        if self.runs.is_none() {
            self.runs = Some(Runs::new(core.heap.pool().path())?);
        }
        if let Some(runs) = &mut self.runs {
            runs.add(&self.buffer)?;
        }
        self.buffer.clear();
        Ok(Ok(()))
    }

    /// Merges everything into leaves, if it is in several parts. `write` is called when rows are to be written.
    ///
    /// # Errors
    /// A key that two rows have; those of the file and of `write`; an image that cannot be read.
    pub fn merge(
        &mut self,
        core: &Core,
        mut write: impl FnMut(&mut Self) -> Result<()>,
    ) -> Result<Result<(), Duplicate>> {
        if self.is_in_order() || !self.has_spilled() {
            return Ok(Ok(()));
        }
        self.buffer.sort();
        let parts = Self { buffer: std::mem::take(&mut self.buffer), runs: self.runs.take(), ..Self::new(self.tree) };
        let before = std::mem::take(&mut self.leaves);
        self.counted = 0;
        (self.is_in_order, self.low) = (true, Bytes::default());
        let outcome = self.merge_parts(core, &parts, &before, &mut write);
        // They count, and nothing needs them any more.
        self.ended.extend(before.into_iter().map(|leaf| leaf.image));
        outcome
    }

    fn merge_parts(
        &mut self,
        core: &Core,
        parts: &Self,
        leaves: &[Written],
        write: &mut impl FnMut(&mut Self) -> Result<()>,
    ) -> Result<Result<(), Duplicate>> {
        let mut sources = vec![Source::Buffer(&parts.buffer, 0), Source::leaves(core, self.tree, leaves)];
        sources.extend(parts.runs.iter().flat_map(Runs::readers).map(Source::Run));
        let mut heap = BinaryHeap::new();
        for (number, source) in sources.iter_mut().enumerate() {
            heap.extend(source.next()?.map(|(key, payload)| Reverse((key, number, payload))));
        }
        while let Some(Reverse((key, number, payload))) = heap.pop() {
            if self.buffer.last_key() == Some(&key[..]) {
                return Ok(Err(key));
            }
            self.push(&key, &payload);
            heap.extend(sources[number].next()?.map(|(key, payload)| Reverse((key, number, payload))));
            if self.buffer.bytes() > MERGED_BYTES_MAX {
                core.refuse_if_poisoned()?;
                write(self)?;
            }
        }
        Ok(Ok(()))
    }

    /// Images that count and that no leaf has.
    pub fn take_ended(&mut self) -> Vec<Image> {
        std::mem::take(&mut self.ended)
    }

    /// The tree. Leaves that were written before the rest of the rows came are cold.
    pub fn tree(mut self, core: &Core) -> Arc<Tree> {
        let in_memory = if self.has_spilled_leaves() { Vec::new() } else { self.cuts(core, true) };
        let written = std::mem::take(&mut self.leaves);
        let leaves =
            if in_memory.is_empty() { cold_leaves(core, written) } else { self.loaded(core, in_memory, written) };
        if leaves.is_empty() {
            Tree::new(self.tree, &core.ground)
        } else {
            Tree::of_leaves(self.tree, &core.ground, leaves)
        }
    }

    /// Whether the buffer does not have the rows of all leaves.
    fn has_spilled_leaves(&self) -> bool {
        !self.low.is_empty()
    }

    /// Leaves whose rows are in memory, with their images if there are any.
    fn loaded(&self, core: &Core, cuts: Vec<(Bytes, std::ops::Range<usize>)>, written: Vec<Written>) -> Vec<Arc<Leaf>> {
        // A version that every thread knows to be committed, as those that an open finds.
        let word = RowWord::new(core.timeline.base(), Writer::default(), false);
        let mut images = written.into_iter();
        let mut lows = cuts.iter().map(|(low, _)| low.clone()).skip(1).collect::<Vec<_>>().into_iter();
        let leaf = |(low, rows): (Bytes, std::ops::Range<usize>)| {
            let slots = self.slots(rows, word, core.ground.source.arena());
            let (room, high) = (room(&core.ground.leaf_size, &slots), lows.next());
            let page = Page::new(images.next().map(|leaf| leaf.image), false);
            Leaf::new(room, Span { low, high }, slots, Purged::default(), page)
        };
        cuts.into_iter().map(leaf).collect()
    }

    /// The slots of a leaf, whose bytes are in one block of memory.
    fn slots(&self, rows: std::ops::Range<usize>, word: RowWord, arena: Option<&Arena>) -> Vec<Arc<Slot>> {
        let all = rows.map(|number| self.buffer.row(number));
        let bytes = all.clone().map(|(key, payload)| key.len() + payload.len()).sum();
        let block = Block::of_parts_in(arena, bytes, all.clone().flat_map(|(key, payload)| [key, payload]));
        let mut begin = 0;
        let slot = |(key, payload): (&[u8], &[u8])| {
            let key = begin..begin + key.len();
            let payload = key.end..key.end + payload.len();
            begin = payload.end;
            Slot::new(Bytes::part(&block, key), word, Bytes::part(&block, payload))
        };
        all.map(slot).collect()
    }

    /// The images that count, for a load that is given up.
    pub fn into_images(mut self) -> Vec<Image> {
        let written = std::mem::take(&mut self.leaves);
        written.into_iter().take(self.counted).map(|leaf| leaf.image).chain(self.take_ended()).collect()
    }
}

/// Leaves whose rows are read when they are used.
fn cold_leaves(core: &Core, written: Vec<Written>) -> Vec<Arc<Leaf>> {
    // Their rows have this tick.
    core.ground.source.note(core.timeline.base());
    let lows: Vec<Bytes> = written.iter().skip(1).map(|leaf| leaf.low.clone()).collect();
    let leaf = |(Written { low, image }, high)| {
        Leaf::cold(Span { low, high }, Purged::default(), Page::new(Some(image), false))
    };
    written.into_iter().zip(lows.into_iter().map(Some).chain([None])).map(leaf).collect()
}

/// Rows in order.
enum Source<'s> {
    /// Those of a buffer, from this number on.
    Buffer(&'s RowBuffer, usize),
    Run(RunReader<'s>),
    /// Leaves of a tree, and the rows that are left of the first one, the last one first.
    Leaves {
        core: &'s Core,
        tree: u32,
        leaves: std::slice::Iter<'s, Written>,
        rows: Vec<(Vec<u8>, Vec<u8>)>,
    },
}

impl<'s> Source<'s> {
    fn leaves(core: &'s Core, tree: u32, leaves: &'s [Written]) -> Self {
        core.ground.source.note(core.timeline.base());
        Self::Leaves { core, tree, leaves: leaves.iter(), rows: Vec::new() }
    }

    fn next(&mut self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        match self {
            Self::Buffer(rows, number) => {
                let found = (*number < rows.len()).then(|| rows.row(*number));
                *number += 1;
                Ok(found.map(|(key, payload)| (key.to_vec(), payload.to_vec())))
            }
            Self::Run(reader) => reader.next(),
            Self::Leaves { core, tree, leaves, rows } => {
                while rows.is_empty() {
                    let Some(leaf) = leaves.next() else { return Ok(None) };
                    let found = core.ground.source.read(&leaf.image, *tree, &leaf.low, None)?;
                    rows.extend(found.rows().map(|row| (row.key.to_vec(), row.payload.to_vec())));
                    rows.reverse();
                }
                Ok(rows.pop())
            }
        }
    }
}
