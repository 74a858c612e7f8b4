//! Creating a tree, and opening one.

use std::marker::PhantomData;

use lodestone_heap::{Action, Heap};
use lodestone_pmem::{PmAddr, work};
use lodestone_store::{Object, Store};

use crate::anchor::{self, Anchor, AnchorAt, First};
use crate::cells::{Image, KeyKind};
use crate::error::Result;
use crate::fptree::layout::{Frame, LINES_MAX, TreeLeafAt, decode_options, encode_options, lines_max, tree_anchor};
use crate::fptree::leaf::{Leaves, Sought};
use crate::fptree::rebuild::{Chain, LeavesFound};
use crate::fptree::tree::FpTree;
use crate::guide::Guide;
use crate::map::Durability;
use crate::medium::IndexMemory;
use crate::recovery::{Progress, Recovery};
use crate::traits::IndexKey;

/// How to create a tree. An existing one keeps what it was created with.
///
/// ```
/// use lodestone_index::{FpTree, PointIndex, TreeOptions};
/// use lodestone_pmem::{DomainChoice, PoolOptions};
/// use lodestone_store::Store;
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.pool");
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// let store = Store::create(&path, &options)?;
/// // Small leaves, and one thread to rebuild the directory.
/// let chosen = TreeOptions { lines_per_leaf: 1, rebuild_threads: 1 };
/// let tree = FpTree::<u64>::open_with(&store, "tree", &chosen)?;
/// for key in 0..30 {
///     tree.insert(&key, key)?;
/// }
/// assert!(tree.check().leaves >= 10);
/// # Ok::<(), lodestone_index::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct TreeOptions {
    /// Lines of a leaf, 1 to 64, each with room for three pairs. With the default of 20 a leaf fills a block of 1,536
    /// bytes. Fewer where the heap's lanes are so small that an action could not change them all.
    pub lines_per_leaf: u32,
    /// Threads that rebuild the directory at each opening, the caller's included. By default as many as processors, at
    /// most 8.
    pub rebuild_threads: usize,
}

impl Default for TreeOptions {
    fn default() -> Self {
        let rebuild_threads = work::processors().min(8);
        Self { lines_per_leaf: 20, rebuild_threads }
    }
}

impl TreeOptions {
    /// Lines of a leaf in `heap`.
    fn lines(&self, heap: &Heap) -> u32 {
        assert!((1..=LINES_MAX).contains(&self.lines_per_leaf), "a leaf has 1 to 64 lines");
        self.lines_per_leaf.min(lines_max(heap))
    }
}

impl<K: IndexKey + ?Sized> FpTree<K> {
    /// The cost of the rebuild at the opening: the tree answers when it is done, and is at full speed then.
    #[must_use]
    pub fn recovery(&self) -> Recovery {
        self.recovery
    }

    /// Opens the tree `name`, or creates it. Durable on return.
    ///
    /// # Errors
    /// As [`OpenIndex::open_index`](crate::OpenIndex::open_index).
    pub fn open(store: &Store, name: &str) -> Result<Self> {
        Self::open_with(store, name, &TreeOptions::default())
    }

    /// As [`open`](Self::open), with options for a tree that does not exist yet.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    ///
    /// # Panics
    /// When the options ask for no line or for more than 64.
    pub fn open_with(store: &Store, name: &str, options: &TreeOptions) -> Result<Self> {
        Self::open_reporting(store, name, options, &mut |_| {})
    }

    /// As [`open_with`](Self::open_with), and tells `tell` how far the rebuild of the directory is, at least once and
    /// at the end.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    ///
    /// # Panics
    /// As [`open_with`](Self::open_with).
    pub fn open_reporting(
        store: &Store,
        name: &str,
        options: &TreeOptions,
        tell: &mut dyn FnMut(&Recovery),
    ) -> Result<Self> {
        let (progress, heap) = (Progress::new(), store.heap());
        let (kind, lines) = (KeyKind::of::<K>(), options.lines(heap));
        let encoded = encode_options(kind, lines);
        let anchor =
            anchor::open(store, name, tree_anchor(kind), encoded, |action, owner| build(heap, action, owner, lines))?;
        Self::attach(heap, anchor, options, &progress, tell)
    }

    /// Opens a tree that is claimed already: with its object, or as part of another one.
    pub(crate) fn open_at(heap: &Heap, at: PmAddr, object: Option<Object>, options: &TreeOptions) -> Result<Self> {
        let anchor = anchor::attach(heap, tree_anchor(KeyKind::of::<K>()), at, object)?;
        Self::attach(heap, anchor, options, &Progress::new(), &mut |_| {})
    }

    /// Reserves and writes a tree without a name, as part of `action`.
    pub(crate) fn make(heap: &Heap, action: &mut Action<'_>, above: PmAddr, options: &TreeOptions) -> Result<PmAddr> {
        let (kind, lines) = (KeyKind::of::<K>(), options.lines(heap));
        anchor::make(heap, action, (tree_anchor(kind), above), encode_options(kind, lines), |action, owner| {
            build(heap, action, owner, lines)
        })
    }

    fn attach(
        heap: &Heap,
        anchor: Anchor,
        options: &TreeOptions,
        progress: &Progress,
        tell: &mut dyn FnMut(&Recovery),
    ) -> Result<Self> {
        let kind = KeyKind::of::<K>();
        let medium = IndexMemory::of(heap, anchor.at);
        let (found, lines) = decode_options(anchor.options).ok_or_else(|| {
            let finding = format!("{:#x} are no options of a tree", anchor.options);
            medium.damaged(anchor.at, "anchor of a tree", finding)
        })?;
        if found != kind {
            return Err(medium.damaged(anchor.at, "anchor of a tree", "its options are those of other keys"));
        }
        let chain = Chain { heap, medium, lines, progress };
        let found = chain.collect(AnchorAt(anchor.at).head(), options, tell)?;
        heap.memory().durable()?;
        let (leaves, guide, recovery) = (Leaves::new(), Guide::new(), progress.recovery());
        let (heap, durability) = (heap.clone(), Durability::Sync);
        let mut tree = Self { heap, anchor, kind, lines, leaves, guide, recovery, durability, _keys: PhantomData };
        tree.enter_all(found)?;
        progress.points_ready();
        progress.ranges_ready();
        progress.warm();
        tree.recovery = progress.recovery();
        tell(&tree.recovery);
        Ok(tree)
    }

    /// Makes the descriptors of all leaves, which come in order.
    fn enter_all(&self, found: LeavesFound) -> Result<()> {
        let (mut last, mut last_word) = (None, None);
        for (at, Frame { lines, low }) in found {
            // Bounds of words are told apart by their words alone, so these ascend, too.
            let word = K::IS_WORD.then(|| Sought::new(&low).word);
            if word.is_some() && (low.len() > size_of::<u64>() || word <= last_word) {
                return Err(self.medium().damaged(at.0, "tree leaf", "its lower bound is none between words"));
            }
            if lines != self.lines {
                let finding = format!("lines: {lines} here, {} in the anchor", self.lines);
                return Err(self.medium().damaged(at.0, "shape of a tree leaf", finding));
            }
            last_word = word;
            let number = self.leaves.add(at, lines, &low, None);
            if let Some(last) = last {
                self.leaves.leaf(last).set_next(Some((number, self.leaves.leaf(number))));
            }
            self.enter(number, &low);
            last = Some(number);
        }
        Ok(())
    }
}

/// Reserves and writes the first leaf.
fn build(heap: &Heap, action: &mut Action<'_>, owner: PmAddr, lines: u32) -> Result<First> {
    let leaf = TreeLeafAt(action.alloc(TreeLeafAt::bytes(lines, 0))?);
    let image = Image::empty(leaf.table(lines, 0));
    let (frame, table) = leaf.encode(owner, b"", PmAddr::NULL, &image);
    // The action that publishes the leaf may not overtake its content: its first fence comes between.
    heap.memory().write_back(leaf.0, &frame);
    heap.memory().write_back(image.at().first, &table);
    Ok(First { head: leaf.0, second: 0 })
}
