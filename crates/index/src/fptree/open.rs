//! Creating a tree, and opening one.

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
use crate::fptree::rebuild::{Chain, Leaves};
use crate::fptree::tree::{FpTree, TreeLeaf};
use crate::map::Durability;
use crate::medium::Medium;
use crate::recovery::{Progress, Recovery};
use crate::traits::IndexKey;

/// How to create a tree. An existing one keeps what it was created with.
#[derive(Clone, Debug)]
pub struct TreeOptions {
    /// Lines of a leaf, 1 to 64, each with room for three pairs. With the default of 20 a leaf fills a block of 1,536
    /// bytes.
    pub lines_per_leaf: u32,
    /// Threads that rebuild the directory at each opening, the caller's included. By default as many as processors, at most 8.
    pub rebuild_threads: usize,
}

impl Default for TreeOptions {
    fn default() -> Self {
        let rebuild_threads = std::thread::available_parallelism().map_or(1, |count| count.get().min(8));
        Self { lines_per_leaf: 20, rebuild_threads }
    }
}

impl<K: IndexKey + ?Sized> FpTree<K> {
    /// What the rebuild at the opening took: the tree answers when it is done, and is at full speed then.
    #[must_use]
    pub fn recovery(&self) -> Recovery {
        self.recovery
    }

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

    /// As [`open_with`](Self::open_with), and tells `tell` how far the rebuild of the directory is, at least once and at the end.
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
        tell: &mut dyn FnMut(&Recovery),
    ) -> Result<Self> {
        let progress = Progress::new();
        assert!((1..=LINES_MAX).contains(&options.lines_per_leaf), "a leaf has 1 to 64 lines");
        let kind = KeyKind::of::<K>();
        let build = |action: &mut Action<'_>| Ok((build(heap, action, options.lines_per_leaf)?, 0));
        let encoded = encode_options(kind, options.lines_per_leaf);
        let anchor = anchor::open(heap, name, &TREE_ANCHOR, encoded, build)?;
        let medium = Medium { memory: heap.memory(), path: heap.pool().path() };
        let decoded = decode_options(anchor.options).filter(|(found, _)| *found == kind);
        let (kind, lines) = decoded.ok_or_else(|| {
            let finding = format!("{:#x} are no options of a tree with these keys", anchor.options);
            medium.damaged(anchor.at, "anchor of a tree", finding)
        })?;
        let chain = Chain { heap, medium, lines, progress: &progress };
        let directory = RwLock::new(directory_of(chain.collect(AnchorAt(anchor.at).head(), options, tell)?));
        heap.memory().durable()?;
        progress.points_ready();
        progress.ranges_ready();
        progress.warm();
        let recovery = progress.recovery();
        tell(&recovery);
        let (heap, durability) = (heap.clone(), Durability::Sync);
        Ok(Self { heap, anchor, kind, lines, directory, recovery, durability, _keys: PhantomData })
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

fn directory_of(leaves: Leaves) -> Directory<TreeLeaf> {
    let (mut made, mut upper) = (Vec::with_capacity(leaves.len()), None);
    for (at, Frame { lines, low }) in leaves.into_iter().rev() {
        let bound = Some(low.clone());
        made.push(Arc::new(TreeLeaf::new(at, lines, low, upper)));
        upper = bound;
    }
    made.reverse();
    Directory::new(made)
}
