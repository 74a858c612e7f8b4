//! [`PmBTreeMap`]: an ordered map as a B+-tree of transactional objects.
//!
//! 1. *Leaves* hold entries in order; *inner nodes* hold separators and children, the first child without a separator.
//!    A lookup reads the header, one inner node per level, one leaf.
//! 2. *Insert* writes the leaf. A full leaf is split, which writes both halves and the parent. An append splits off the
//!    new entry alone, so ascending loads fill their leaves.
//! 3. *Remove* writes the leaf. A leaf that is left with a quarter of its entries is merged with a neighbour that has
//!    room. An empty one is freed. The same holds for inner nodes. A root with one child is replaced by the child.
//! 4. A separator is a separate key, the shortest that separates. It never shares a byte string with an entry.
//!
//! Invariants:
//! - keys of a subtree are not below its separator, and below the next one;
//! - a tree without entries has no nodes unless a full neighbour kept an empty leaf;
//! - the number of levels is in the header.
//!
//! There are no links between leaves, because a split would have to write a neighbour too. A scan remembers the path
//! from the root instead.

mod change;
mod salvage;
mod scan;

use std::cmp::Ordering;
use std::marker::PhantomData;

use lodestone_stm::{
    FromBytes, Immutable, IntoBytes, KnownLayout, PmAddr, PmBytes, PmObject, PmPtr, Result, Stm, Tx, TxResult,
};
use lodestone_width::{to_u64, to_usize};

use crate::damaged;
use crate::item::{PmKey, PmValue};
use crate::mark::{self, Forms, NodeKind};
use crate::node;
use crate::root;
use crate::steps::Steps;
use crate::words::Words;

pub use scan::Range;

/// Words of a leaf: a slot of eight lines.
pub(crate) const LEAF_WORDS: usize = 61;
/// Words of an inner node: a slot of sixteen lines. Inner nodes are seldom written, and wide ones make the tree flat.
pub(crate) const INNER_WORDS: usize = 125;
/// Most levels of inner nodes: with two children each they reach more leaves than a pool can hold.
const LEVELS_MAX: usize = 40;
/// Most words of one entry, so that a leaf holds at least two.
const ENTRY_WORDS_MAX: usize = (LEAF_WORDS - node::HEAD_WORDS) / 2;

type Leaf = Words<LEAF_WORDS>;
type Inner = Words<INNER_WORDS>;

/// The header object of a [`PmBTreeMap`]. Keep a pointer to it in one of your objects to have a map inside it.
///
/// ```
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # use lodestone_store::Store;
/// # let folder = tempfile::tempdir().unwrap();
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let store = Store::create(folder.path().join("a.pool"), &options)?;
/// # use lodestone_stm::Stm;
/// # let stm = Stm::open(&store)?;
/// use lodestone_collections::{PmBTreeMap, TreeHeader};
/// use lodestone_stm::PmPtr;
///
/// let header: PmPtr<TreeHeader> = stm.update(|tx| {
///     let map = PmBTreeMap::<u64, u64>::create(tx)?;
///     map.insert(tx, &7, &3)?;
///     Ok(map.header())
/// })?;
/// // Keep the pointer in an object of your own; it leads to the map again.
/// assert_eq!(stm.read(|tx| PmBTreeMap::<u64, u64>::at(tx, header)?.get(tx, &7))?, Some(3));
/// # Ok::<(), lodestone_stm::Error>(())
/// ```
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, PmObject)]
#[repr(C)]
#[pm(name = "lodestone.BTreeMap")]
pub struct TreeHeader {
    root: PmAddr,
    /// Levels of inner nodes.
    levels: u64,
    /// Most entries of a node. 0: as many as fit.
    entries_max: u64,
    signature: PmBytes,
}

/// An ordered map in a transactional memory.
///
/// Cost of an operation on `n` entries, in objects: a lookup reads the header, `log n` inner nodes and one leaf, and
/// the box of a byte string's value. The base of the logarithm is about 40 for integers, 20 for byte strings. An insert
/// or removal also writes the leaf (8 lines at most), and the box. An update of a byte string that fits its box writes
/// the box alone. A split or merge writes two nodes and their parent, seldom more. Fences: one per transaction.
///
/// ```
/// # use lodestone_collections::{Bytes, PmBTreeMap};
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # use lodestone_store::Store;
/// # use lodestone_stm::Stm;
/// # let folder = tempfile::tempdir().unwrap();
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let stm = Stm::open(&Store::create(folder.path().join("a.pool"), &options)?)?;
/// let map = PmBTreeMap::<Bytes, u64>::open(&stm, "stock")?;
/// stm.update(|tx| {
///     for (name, count) in [("lamp", 3), ("lampshade", 5), ("chair", 8)] {
///         map.insert(tx, name.as_bytes(), &count)?;
///     }
///     Ok(())
/// })?;
/// let lamps = stm.snapshot(|tx| map.prefix(tx, b"lamp")?.map(|entry| Ok(entry?.1)).sum::<Result<u64, _>>())?;
/// assert_eq!(lamps, 8);
/// # Ok::<(), lodestone_stm::Error>(())
/// ```
pub struct PmBTreeMap<K, V> {
    header: PmPtr<TreeHeader>,
    kind: PhantomData<fn() -> (K, V)>,
}

root::collection!(PmBTreeMap<K, V>, TreeHeader);
root::handle!(PmBTreeMap<K: PmKey, V: PmValue>, TreeHeader, "map");

/// The target of a lookup.
enum Seek<'k, K: PmKey> {
    Key(&'k K::View),
    First,
    Last,
}

/// The path from the root to a leaf: inner nodes, each with the child that was taken.
#[derive(Clone, Debug, Default)]
struct Path {
    inner: Vec<(PmPtr<Inner>, usize)>,
}

/// A leaf that was read, and the path to it.
struct Reached {
    path: Path,
    at: PmPtr<Leaf>,
    leaf: Leaf,
}

impl<K: PmKey, V: PmValue> PmBTreeMap<K, V> {
    const LEAF_ENTRY: usize = {
        assert!(
            K::WORDS + V::WORDS <= ENTRY_WORDS_MAX,
            "an entry is too large for a node; keep the value in an object"
        );
        K::WORDS + V::WORDS
    };
    const INNER_ENTRY: usize = K::WORDS + 1;

    fn empty_leaf(&self) -> Leaf {
        node::empty(mark::head(NodeKind::Leaf, Forms::of_pairs::<K, V>(), self.header.addr()))
    }

    fn empty_inner(&self) -> Inner {
        node::empty(mark::head(NodeKind::Inner, Forms::of_pairs::<K, V>(), self.header.addr()))
    }

    fn signature() -> String {
        format!("B-tree map of {} to {}", K::signature(), V::signature())
    }

    /// A new map that no object points to yet. Keep [`header`](Self::header) in an object.
    ///
    /// # Errors
    /// As [`Tx::alloc`].
    pub fn create(tx: &mut Tx<'_>) -> TxResult<Self> {
        Self::create_with(tx, 0)
    }

    /// As [`create`](Self::create), with nodes of at most `entries_max` entries (at least 2; 0: as many as fit). For
    /// tests that want early splits.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn create_with(tx: &mut Tx<'_>, entries_max: u64) -> TxResult<Self> {
        let entries_max = if entries_max == 0 { 0 } else { entries_max.max(2) };
        let header = TreeHeader { root: PmAddr::NULL, levels: 0, entries_max, signature: PmBytes::default() };
        Ok(Self::new(root::create(tx, header, &Self::signature())?))
    }

    /// The map with this header, which is not read. For a salvage.
    pub(crate) fn with_header(header: PmPtr<TreeHeader>) -> Self {
        Self::new(header)
    }

    /// From now on nodes take at most `entries_max` entries (0: as many as fit). For tests that want early splits.
    ///
    /// # Errors
    /// As [`Tx::write`].
    pub fn limit_entries(&self, tx: &mut Tx<'_>, entries_max: u64) -> TxResult<()> {
        tx.write(self.header)?.entries_max = entries_max;
        Ok(())
    }

    fn leaf_room(header: &TreeHeader) -> usize {
        limited(node::room(LEAF_WORDS, Self::LEAF_ENTRY), header)
    }

    fn inner_room(header: &TreeHeader) -> usize {
        limited(node::room(INNER_WORDS, Self::INNER_ENTRY), header)
    }

    fn child(inner: &Inner, index: usize) -> PmAddr {
        PmAddr::from_raw(node::entry(&inner.0, Self::INNER_ENTRY, index)[K::WORDS])
    }

    fn read_inner(tx: &mut Tx<'_>, at: PmPtr<Inner>) -> TxResult<Inner> {
        let inner = tx.read(at)?;
        if node::checked_count(&inner.0, Self::INNER_ENTRY, at.addr())? == 0 {
            return Err(damaged(at.addr(), "an inner node without a child"));
        }
        Ok(inner)
    }

    fn read_leaf(tx: &mut Tx<'_>, at: PmPtr<Leaf>) -> TxResult<Leaf> {
        let leaf = tx.read(at)?;
        node::checked_count(&leaf.0, Self::LEAF_ENTRY, at.addr())?;
        Ok(leaf)
    }

    /// Goes down to the leaf that `seek` belongs to. `None` in a tree without nodes.
    fn descend(&self, tx: &mut Tx<'_>, header: &TreeHeader, seek: &Seek<'_, K>) -> TxResult<Option<Reached>> {
        if self.is_without_nodes(header)? {
            return Ok(None);
        }
        let mut path = Path::default();
        let at = self.descend_from(tx, header, header.root, seek, &mut path)?;
        let leaf = Self::read_leaf(tx, at)?;
        Ok(Some(Reached { path, at, leaf }))
    }

    /// Whether the tree has no nodes. An error when the header is invalid.
    #[inline]
    fn is_without_nodes(&self, header: &TreeHeader) -> TxResult<bool> {
        let is_empty = header.root.is_null();
        if header.levels > to_u64(LEVELS_MAX) || is_empty && header.levels > 0 {
            return Err(damaged(self.header.addr(), "a tree of impossible height"));
        }
        Ok(is_empty)
    }

    /// Goes down from the node at `at`, which is `path.inner.len()` levels below the root.
    fn descend_from(
        &self,
        tx: &mut Tx<'_>,
        header: &TreeHeader,
        mut at: PmAddr,
        seek: &Seek<'_, K>,
        path: &mut Path,
    ) -> TxResult<PmPtr<Leaf>> {
        while path.inner.len() < to_usize(header.levels) {
            let ptr = PmPtr::<Inner>::new(at);
            if path.inner.iter().any(|(above, _)| *above == ptr) {
                return Err(damaged(at, "a node of a tree that is below itself"));
            }
            let inner = Self::read_inner(tx, ptr)?;
            let index = match seek {
                Seek::First => 0,
                Seek::Last => node::count(&inner.0) - 1,
                Seek::Key(key) => Self::child_of(tx, &inner, key)?,
            };
            path.inner.push((ptr, index));
            at = Self::child(&inner, index);
        }
        Ok(PmPtr::new(at))
    }

    /// The last child whose separator is not above `key`.
    fn child_of(tx: &mut Tx<'_>, inner: &Inner, key: &K::View) -> TxResult<usize> {
        let (mut low, mut high) = (1, node::count(&inner.0));
        while low < high {
            let middle = low.midpoint(high);
            let separator = &node::entry(&inner.0, Self::INNER_ENTRY, middle)[..K::WORDS];
            match K::compare(tx, separator, key)? {
                Ordering::Greater => high = middle,
                Ordering::Less | Ordering::Equal => low = middle + 1,
            }
        }
        Ok(low - 1)
    }

    /// The place of `key` in a leaf, or the place where it belongs.
    fn find(tx: &mut Tx<'_>, leaf: &Leaf, key: &K::View) -> TxResult<std::result::Result<usize, usize>> {
        let (mut low, mut high) = (0, node::count(&leaf.0));
        while low < high {
            let middle = low.midpoint(high);
            let stored = &node::entry(&leaf.0, Self::LEAF_ENTRY, middle)[..K::WORDS];
            match K::compare(tx, stored, key)? {
                Ordering::Greater => high = middle,
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return Ok(Ok(middle)),
            }
        }
        Ok(Err(low))
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// Return them with `?`, as those of [`Tx::read`].
    pub fn get(&self, tx: &mut Tx<'_>, key: &K::View) -> TxResult<Option<V::Owned>> {
        let Some(leaf) = self.leaf_of(tx, key)? else { return Ok(None) };
        match Self::find(tx, &leaf, key)? {
            Ok(index) => V::load(tx, &node::entry(&leaf.0, Self::LEAF_ENTRY, index)[K::WORDS..]).map(Some),
            Err(_) => Ok(None),
        }
    }

    /// Whether `key` is there.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn contains(&self, tx: &mut Tx<'_>, key: &K::View) -> TxResult<bool> {
        let Some(leaf) = self.leaf_of(tx, key)? else { return Ok(false) };
        Ok(Self::find(tx, &leaf, key)?.is_ok())
    }

    /// The leaf that `key` belongs to, without the path to it.
    fn leaf_of(&self, tx: &mut Tx<'_>, key: &K::View) -> TxResult<Option<Leaf>> {
        let header = tx.read(self.header)?;
        if self.is_without_nodes(&header)? {
            return Ok(None);
        }
        let mut at = header.root;
        for _ in 0..header.levels {
            let inner = Self::read_inner(tx, PmPtr::new(at))?;
            let index = Self::child_of(tx, &inner, key)?;
            at = Self::child(&inner, index);
        }
        Ok(Some(Self::read_leaf(tx, PmPtr::new(at))?))
    }

    /// Whether there is no entry.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn is_empty(&self, tx: &mut Tx<'_>) -> TxResult<bool> {
        Ok(self.first(tx)?.is_none())
    }

    /// Number of entries. Visits every leaf.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn len(&self, tx: &mut Tx<'_>) -> TxResult<u64> {
        let mut entries = 0;
        self.for_each_node(tx, &mut |_, _, node| {
            if let Node::Leaf(leaf) = node {
                entries += to_u64(node::count(&leaf.0));
            }
            Ok(())
        })?;
        Ok(entries)
    }

    /// Visits every node, children before their parent.
    fn for_each_node(&self, tx: &mut Tx<'_>, visit: &mut Visit<'_>) -> TxResult<()> {
        let header = tx.read(self.header)?;
        if self.is_without_nodes(&header)? {
            return Ok(());
        }
        let mut steps = Steps::new(tx, LEAF_WORDS);
        Self::visit(tx, header.root, header.levels, &mut steps, visit)
    }

    fn visit(tx: &mut Tx<'_>, at: PmAddr, levels: u64, steps: &mut Steps, visit: &mut Visit<'_>) -> TxResult<()> {
        steps.come_to(at)?;
        if levels == 0 {
            let leaf = Self::read_leaf(tx, PmPtr::new(at))?;
            return visit(tx, at, Node::Leaf(&leaf));
        }
        let inner = Self::read_inner(tx, PmPtr::new(at))?;
        for index in 0..node::count(&inner.0) {
            Self::visit(tx, Self::child(&inner, index), levels - 1, steps, visit)?;
        }
        visit(tx, at, Node::Inner(&inner))
    }
}

/// A node that is visited.
enum Node<'n> {
    Leaf(&'n Leaf),
    Inner(&'n Inner),
}

type Visit<'v> = dyn FnMut(&mut Tx<'_>, PmAddr, Node<'_>) -> TxResult<()> + 'v;

fn limited(room: usize, header: &TreeHeader) -> usize {
    if header.entries_max == 0 { room } else { room.min(to_usize(header.entries_max)).max(2) }
}
