//! Creating a tree, and opening one: the directory in DRAM is rebuilt from the chain of leaves.
//!
//! Open walks the leaves from the first and reads of each its frame, no line and no key; it stores nothing. Bound: one visit
//! per leaf, enforced by the ascending lower bounds, so a damaged link cannot make it run for ever.

use std::marker::PhantomData;
use std::sync::Arc;

use lodestone_heap::{Action, Heap};
use lodestone_pmem::PmAddr;
use lodestone_pmem::sync::RwLock;

use crate::anchor::{self, AnchorAt};
use crate::cells::{Image, KeyKind};
use crate::directory::Directory;
use crate::error::Result;
use crate::fptree::layout::{Frame, LINES_MAX, TREE_ANCHOR, TreeLeafAt, decode_options, encode_options};
use crate::fptree::tree::{FpTree, TreeLeaf};
use crate::map::Durability;
use crate::medium::Medium;
use crate::traits::IndexKey;

/// How to create a tree. An existing one keeps what it was created with.
#[derive(Clone, Debug)]
pub struct TreeOptions {
    /// Lines of a leaf, 1 to 64, each with room for three pairs. With the default of 20 a leaf fills a block of 1,536
    /// bytes.
    pub lines_per_leaf: u32,
}

impl Default for TreeOptions {
    fn default() -> Self {
        Self { lines_per_leaf: 20 }
    }
}

impl<K: IndexKey + ?Sized> FpTree<K> {
    /// Opens the tree under the root `name`, or creates it there. Durable on return.
    ///
    /// # Errors
    /// As [`OpenIndex::open_index`](crate::OpenIndex::open_index).
    pub fn open(heap: &Heap, name: &str) -> Result<Self> {
        Self::open_with(heap, name, &TreeOptions::default())
    }

    /// As [`open`](Self::open), with options for a tree that does not exist yet.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    ///
    /// # Panics
    /// When the options ask for no line or for more than 64.
    pub fn open_with(heap: &Heap, name: &str, options: &TreeOptions) -> Result<Self> {
        Self::open_reporting(heap, name, options, &mut |_| {})
    }

    /// As [`open_with`](Self::open_with), and calls `progress` with the number of leaves that were visited, each time it has
    /// grown by a thousand and at the end.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    ///
    /// # Panics
    /// As [`open_with`](Self::open_with).
    pub fn open_reporting(
        heap: &Heap,
        name: &str,
        options: &TreeOptions,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Self> {
        assert!((1..=LINES_MAX).contains(&options.lines_per_leaf), "a leaf has 1 to 64 lines");
        let kind = KeyKind::of::<K>();
        let build = |action: &mut Action<'_>| Ok((build(heap, action, options.lines_per_leaf)?, 0));
        let options = encode_options(kind, options.lines_per_leaf);
        let anchor = anchor::open(heap, name, &TREE_ANCHOR, options, build)?;
        let medium = Medium { memory: heap.memory(), path: heap.pool().path() };
        let decoded = decode_options(anchor.options).filter(|(found, _)| *found == kind);
        let (kind, lines) = decoded.ok_or_else(|| {
            let finding = format!("{:#x} are no options of a tree with these keys", anchor.options);
            medium.damaged(anchor.at, "anchor of a tree", finding)
        })?;
        let directory = RwLock::new(rebuild(medium, AnchorAt(anchor.at).head(), progress)?);
        heap.memory().durable()?;
        let (heap, durability) = (heap.clone(), Durability::Sync);
        Ok(Self { heap, anchor, kind, lines, directory, durability, _keys: PhantomData })
    }
}

/// Reserves and writes the first leaf.
fn build(heap: &Heap, action: &mut Action<'_>, lines: u32) -> Result<PmAddr> {
    let leaf = TreeLeafAt(action.alloc(TreeLeafAt::bytes(lines, 0))?);
    let image = Image::empty(leaf.table(lines, 0));
    let (frame, table) = leaf.encode(b"", PmAddr::NULL, &image);
    // The action that publishes the leaf may not overtake its content: its first fence comes between.
    heap.memory().write_back(leaf.0, &frame);
    heap.memory().write_back(image.at().first, &table);
    Ok(leaf.0)
}

/// Walks the chain of leaves from the link at `link`.
pub(crate) fn walk(
    medium: Medium<'_>,
    mut link: PmAddr,
    mut visit: impl FnMut(TreeLeafAt, Frame) -> Result<()>,
) -> Result<()> {
    let mut last: Option<Box<[u8]>> = None;
    loop {
        let next = medium.link(link, "link to a tree leaf", 64)?;
        if next.is_null() && last.is_some() {
            return Ok(());
        }
        if next.is_null() {
            return Err(medium.damaged(link, "link to a tree leaf", "is null"));
        }
        let leaf = TreeLeafAt(next);
        let frame = leaf.frame(medium)?;
        if !last.map_or(frame.low.is_empty(), |low| low[..] < frame.low[..]) {
            return Err(medium.damaged(leaf.0, "tree leaf", "its lower bound does not ascend"));
        }
        last = Some(frame.low.clone());
        link = leaf.next();
        visit(leaf, frame)?;
    }
}

fn rebuild(medium: Medium<'_>, head: PmAddr, progress: &mut dyn FnMut(u64)) -> Result<Directory<TreeLeaf>> {
    let mut frames = Vec::new();
    walk(medium, head, |leaf, frame| {
        frames.push((leaf, frame));
        if frames.len().is_multiple_of(1000) {
            progress(frames.len() as u64);
        }
        Ok(())
    })?;
    progress(frames.len() as u64);
    let mut leaves = Vec::with_capacity(frames.len());
    let mut upper = None;
    for (at, Frame { lines, low }) in frames.into_iter().rev() {
        let bound = Some(low.clone());
        leaves.push(Arc::new(TreeLeaf::new(at, lines, low, upper)));
        upper = bound;
    }
    leaves.reverse();
    Ok(Directory::new(leaves))
}
