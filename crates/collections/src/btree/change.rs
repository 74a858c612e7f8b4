//! Changes of the tree: insert with splits, remove with merges, clear.

use std::borrow::Borrow;

use lodestone_pmem::planted;
use lodestone_stm::{PmAddr, PmPtr, Tx, TxResult};
use lodestone_width::to_usize;

use super::{ENTRY_WORDS_MAX, Inner, LEVELS_MAX, Leaf, Node, Path, PmBTreeMap, Reached, Seek, TreeHeader};
use crate::damaged;
use crate::item::{PmKey, PmValue};
use crate::mark::Mark;
use crate::node;

/// Most words of an entry of an inner node: a key and a child.
const INNER_ENTRY_WORDS_MAX: usize = ENTRY_WORDS_MAX + 1;

impl<K: PmKey, V: PmValue> PmBTreeMap<K, V> {
    /// Sets `key` to `value`. Returns whether it was there.
    ///
    /// # Errors
    /// As [`Tx::write`] and [`Tx::alloc`], a full pool included.
    pub fn insert(&self, tx: &mut Tx<'_>, key: &K::View, value: &V::View) -> TxResult<bool> {
        // The change happens whole or not at all, even if the caller swallows its error. So do all changes of
        // collections.
        tx.nested(|tx| self.set(tx, key, value))
    }

    fn set(&self, tx: &mut Tx<'_>, key: &K::View, value: &V::View) -> TxResult<bool> {
        let header = tx.read(self.header)?;
        let Some(reached) = self.descend(tx, &header, &Seek::Key(key))? else {
            let mut leaf = self.empty_leaf();
            let mut entry = [0; ENTRY_WORDS_MAX];
            node::insert(&mut leaf.0, 0, Self::entry(tx, key, value, &mut entry)?)?;
            tx.write(self.header)?.root = tx.alloc(leaf)?.addr();
            return Ok(false);
        };
        match Self::find(tx, &reached.leaf, key)? {
            Ok(index) => {
                let mut stored = [0; ENTRY_WORDS_MAX];
                let stored = &mut stored[..V::WORDS];
                stored.copy_from_slice(&node::entry(&reached.leaf.0, Self::LEAF_ENTRY, index)[K::WORDS..]);
                if V::replace(tx, value, stored)? {
                    let leaf = tx.write(reached.at)?;
                    node::entry_mut(&mut leaf.0, Self::LEAF_ENTRY, index)[K::WORDS..].copy_from_slice(stored);
                }
                Ok(true)
            }
            Err(index) => {
                let mut entry = [0; ENTRY_WORDS_MAX];
                let entry = Self::entry(tx, key, value, &mut entry)?;
                if node::count(&reached.leaf.0) < Self::leaf_room(&header) {
                    node::insert(&mut tx.write(reached.at)?.0, index, entry)?;
                } else {
                    self.split_leaf(tx, &header, reached, index, entry)?;
                }
                Ok(false)
            }
        }
    }

    /// Stores key and value as an entry.
    fn entry<'e>(
        tx: &mut Tx<'_>,
        key: &K::View,
        value: &V::View,
        entry: &'e mut [u64; ENTRY_WORDS_MAX],
    ) -> TxResult<&'e [u64]> {
        K::store(tx, key, &mut entry[..K::WORDS])?;
        V::store(tx, value, &mut entry[K::WORDS..Self::LEAF_ENTRY])?;
        Ok(&entry[..Self::LEAF_ENTRY])
    }

    fn split_leaf(
        &self,
        tx: &mut Tx<'_>,
        header: &TreeHeader,
        reached: Reached,
        index: usize,
        entry: &[u64],
    ) -> TxResult<()> {
        let Reached { path, at, leaf: mut left } = reached;
        let mut right = self.empty_leaf();
        split_node(&mut left.0, &mut right.0, index, entry)?;
        let words = Self::LEAF_ENTRY;
        let Some(last) = node::count(&left.0).checked_sub(1) else {
            return Err(damaged(at.addr(), "a full leaf without an entry"));
        };
        let mut separator = [0; INNER_ENTRY_WORDS_MAX];
        let (below, above) = (node::entry(&left.0, words, last), node::entry(&right.0, words, 0));
        K::separator(tx, &below[..K::WORDS], &above[..K::WORDS], &mut separator[..K::WORDS])?;
        *tx.write(at)? = left;
        let right = tx.alloc(right)?;
        if planted::active("collections-split-loses-half") {
            K::free(tx, &separator[..K::WORDS])?;
            return tx.free(right);
        }
        separator[K::WORDS] = right.addr().to_raw();
        self.insert_child(tx, header, path, separator)
    }

    /// Inserts a separator and the child to its right after the child that `path` took.
    fn insert_child(
        &self,
        tx: &mut Tx<'_>,
        header: &TreeHeader,
        mut path: Path,
        mut entry: [u64; INNER_ENTRY_WORDS_MAX],
    ) -> TxResult<()> {
        let words = Self::INNER_ENTRY;
        while let Some((at, taken)) = path.inner.pop() {
            let mut left = Self::read_inner(tx, at)?;
            if node::count(&left.0) < Self::inner_room(header) {
                return node::insert(&mut tx.write(at)?.0, taken + 1, &entry[..words]);
            }
            let mut right = self.empty_inner();
            split_node(&mut left.0, &mut right.0, taken + 1, &entry[..words])?;
            // The separator of the right half's first child moves up.
            let mut up = [0; INNER_ENTRY_WORDS_MAX];
            let first = &mut node::entry_mut(&mut right.0, words, 0)[..K::WORDS];
            up[..K::WORDS].copy_from_slice(first);
            first.fill(0);
            *tx.write(at)? = left;
            up[K::WORDS] = tx.alloc(right)?.addr().to_raw();
            entry = up;
        }
        if to_usize(header.levels) >= LEVELS_MAX {
            return Err(damaged(self.header.addr(), "a tree of impossible height"));
        }
        let mut root = self.empty_inner();
        let mut first = [0; INNER_ENTRY_WORDS_MAX];
        first[K::WORDS] = tx.read(self.header)?.root.to_raw();
        node::insert(&mut root.0, 0, &first[..words])?;
        node::insert(&mut root.0, 1, &entry[..words])?;
        let root = tx.alloc(root)?.addr();
        let header = tx.write(self.header)?;
        (header.root, header.levels) = (root, header.levels + 1);
        Ok(())
    }

    /// Removes `key`. Returns whether it was there.
    ///
    /// # Errors
    /// As [`Tx::write`] and [`Tx::free`].
    pub fn remove(&self, tx: &mut Tx<'_>, key: &K::View) -> TxResult<bool> {
        tx.nested(|tx| {
            let mut stored = [0; ENTRY_WORDS_MAX];
            let found = self.unlink(tx, key, &mut stored)?;
            if found {
                V::free(tx, &stored[..V::WORDS])?;
            }
            Ok(found)
        })
    }

    /// Removes `key` and returns its value.
    ///
    /// # Errors
    /// As [`remove`](Self::remove).
    pub fn take(&self, tx: &mut Tx<'_>, key: &K::View) -> TxResult<Option<V::Owned>> {
        tx.nested(|tx| {
            let mut stored = [0; ENTRY_WORDS_MAX];
            if !self.unlink(tx, key, &mut stored)? {
                return Ok(None);
            }
            let value = V::load(tx, &stored[..V::WORDS])?;
            V::free(tx, &stored[..V::WORDS])?;
            Ok(Some(value))
        })
    }

    /// Removes the first entry and returns it.
    ///
    /// # Errors
    /// As [`remove`](Self::remove).
    pub fn pop_first(&self, tx: &mut Tx<'_>) -> TxResult<Option<(K::Owned, V::Owned)>>
    where
        K::Owned: Borrow<K::View>,
    {
        let Some((key, value)) = self.first(tx)? else { return Ok(None) };
        self.remove(tx, key.borrow())?;
        Ok(Some((key, value)))
    }

    /// Takes the entry of `key` out of the tree, frees the key, and leaves the value's words in `value`.
    fn unlink(&self, tx: &mut Tx<'_>, key: &K::View, value: &mut [u64; ENTRY_WORDS_MAX]) -> TxResult<bool> {
        let header = tx.read(self.header)?;
        let Some(mut reached) = self.descend(tx, &header, &Seek::Key(key))? else { return Ok(false) };
        let Ok(index) = Self::find(tx, &reached.leaf, key)? else { return Ok(false) };
        let entry = node::entry(&reached.leaf.0, Self::LEAF_ENTRY, index);
        value[..V::WORDS].copy_from_slice(&entry[K::WORDS..]);
        K::free(tx, &entry[..K::WORDS])?;
        node::remove(&mut reached.leaf.0, Self::LEAF_ENTRY, index)?;
        let left = node::count(&reached.leaf.0);
        if left == 0 {
            tx.free(reached.at)?;
            self.remove_child(tx, &header, reached.path)?;
            return Ok(true);
        }
        *tx.write(reached.at)? = reached.leaf;
        if left <= Self::leaf_room(&header) / 4 {
            self.merge_leaf(tx, &header, reached.path)?;
        }
        Ok(true)
    }

    /// Merges the leaf that `path` leads to with a neighbour under the same parent, if one leaf has room for both.
    fn merge_leaf(&self, tx: &mut Tx<'_>, header: &TreeHeader, path: Path) -> TxResult<()> {
        let Some(&(parent_at, taken)) = path.inner.last() else { return Ok(()) };
        let parent = Self::read_inner(tx, parent_at)?;
        let Some(right_index) = neighbour(&parent, taken) else { return Ok(()) };
        let left_at = PmPtr::<Leaf>::new(Self::child(&parent, right_index - 1));
        let right_at = PmPtr::<Leaf>::new(Self::child(&parent, right_index));
        let (mut left, right) = (Self::read_leaf(tx, left_at)?, Self::read_leaf(tx, right_at)?);
        if node::count(&left.0) + node::count(&right.0) > Self::leaf_room(header) {
            return Ok(());
        }
        node::append(&mut left.0, Self::LEAF_ENTRY, &right.0)?;
        *tx.write(left_at)? = left;
        tx.free(right_at)?;
        let separator = &node::entry(&parent.0, Self::INNER_ENTRY, right_index)[..K::WORDS];
        K::free(tx, separator)?;
        self.shrink(tx, header, path, right_index)
    }

    /// Removes the child that `path` took and that is gone.
    fn remove_child(&self, tx: &mut Tx<'_>, header: &TreeHeader, mut path: Path) -> TxResult<()> {
        let words = Self::INNER_ENTRY;
        loop {
            let Some(&(at, taken)) = path.inner.last() else {
                let header = tx.write(self.header)?;
                (header.root, header.levels) = (PmAddr::NULL, 0);
                return Ok(());
            };
            let inner = Self::read_inner(tx, at)?;
            if node::count(&inner.0) == 1 {
                tx.free(at)?;
                path.inner.pop();
                continue;
            }
            // The first child has no separator. The separator of the second is removed with it, and the place stays.
            let freed = taken.max(1);
            K::free(tx, &node::entry(&inner.0, words, freed)[..K::WORDS])?;
            if taken == 0 {
                let inner = tx.write(at)?;
                node::entry_mut(&mut inner.0, words, 1)[..K::WORDS].fill(0);
            }
            return self.shrink(tx, header, path, taken);
        }
    }

    /// Removes entry `index`, whose separator is freed or moved, from the last node of `path`, and merges upwards.
    fn shrink(&self, tx: &mut Tx<'_>, header: &TreeHeader, mut path: Path, mut index: usize) -> TxResult<()> {
        let words = Self::INNER_ENTRY;
        while let Some((at, _)) = path.inner.pop() {
            let inner = tx.write(at)?;
            node::remove(&mut inner.0, words, index)?;
            let (left, own) = (node::count(&inner.0), *inner);
            let Some(&(parent_at, taken)) = path.inner.last() else {
                return if left == 1 { self.lower(tx) } else { Ok(()) };
            };
            if left > Self::inner_room(header) / 4 {
                return Ok(());
            }
            let parent = Self::read_inner(tx, parent_at)?;
            let Some(right_index) = neighbour(&parent, taken) else { return Ok(()) };
            let other_index = if right_index == taken { taken - 1 } else { right_index };
            let other_at = PmPtr::<Inner>::new(Self::child(&parent, other_index));
            let other = Self::read_inner(tx, other_at)?;
            if left + node::count(&other.0) > Self::inner_room(header) {
                return Ok(());
            }
            let mine = (at, own);
            let other = (other_at, other);
            let (left, right) = if right_index == taken { (other, mine) } else { (mine, other) };
            Self::merge_inner(tx, left, right, node::entry(&parent.0, words, right_index))?;
            index = right_index;
        }
        Ok(())
    }

    /// Moves everything of `right` to `left`. The separator between them comes down from the parent's entry.
    fn merge_inner(
        tx: &mut Tx<'_>,
        left: (PmPtr<Inner>, Inner),
        right: (PmPtr<Inner>, Inner),
        parent_entry: &[u64],
    ) -> TxResult<()> {
        let ((left_at, mut left), (right_at, mut right)) = (left, right);
        let separator = &parent_entry[..K::WORDS];
        node::entry_mut(&mut right.0, Self::INNER_ENTRY, 0)[..K::WORDS].copy_from_slice(separator);
        node::append(&mut left.0, Self::INNER_ENTRY, &right.0)?;
        *tx.write(left_at)? = left;
        tx.free(right_at)
    }

    /// While the root is an inner node with one child, replaces it by the child.
    fn lower(&self, tx: &mut Tx<'_>) -> TxResult<()> {
        loop {
            let header = tx.read(self.header)?;
            if header.levels == 0 {
                return Ok(());
            }
            let root = PmPtr::<Inner>::new(header.root);
            let inner = Self::read_inner(tx, root)?;
            if node::count(&inner.0) > 1 {
                return Ok(());
            }
            tx.free(root)?;
            let header = tx.write(self.header)?;
            (header.root, header.levels) = (Self::child(&inner, 0), header.levels - 1);
        }
    }

    /// Removes all entries in one transaction. Its record needs room, so in a full pool remove entries one by one
    /// first.
    ///
    /// # Errors
    /// As [`Tx::free`].
    pub fn clear(&self, tx: &mut Tx<'_>) -> TxResult<()> {
        tx.nested(|tx| self.free_all(tx))
    }

    fn free_all(&self, tx: &mut Tx<'_>) -> TxResult<()> {
        self.for_each_node(tx, &mut |tx, at, visited| match visited {
            Node::Leaf(leaf) => {
                for index in 0..node::count(&leaf.0) {
                    let entry = node::entry(&leaf.0, Self::LEAF_ENTRY, index);
                    K::free(tx, &entry[..K::WORDS])?;
                    V::free(tx, &entry[K::WORDS..])?;
                }
                tx.free(PmPtr::<Leaf>::new(at))
            }
            Node::Inner(inner) => {
                for index in 1..node::count(&inner.0) {
                    K::free(tx, &node::entry(&inner.0, Self::INNER_ENTRY, index)[..K::WORDS])?;
                }
                tx.free(PmPtr::<Inner>::new(at))
            }
        })?;
        let header = tx.write(self.header)?;
        (header.root, header.levels) = (PmAddr::NULL, 0);
        Ok(())
    }

    /// Checks that a node says that it is one of this tree.
    fn check_mark(&self, at: PmAddr, mark: Option<Mark>, own: Option<Mark>) -> TxResult<()> {
        if mark == own { Ok(()) } else { Err(damaged(at, "a node that names another collection")) }
    }

    /// Checks that keys ascend, that separators lead to them and that nodes are sound. Returns the number of objects
    /// that the map owns, header and signature included. Visits everything.
    ///
    /// # Errors
    /// The fault, as [`Error::BadPointer`](lodestone_stm::Error::BadPointer).
    pub fn check(&self, tx: &mut Tx<'_>) -> TxResult<u64>
    where
        K::Owned: Ord + Borrow<K::View>,
    {
        let mut keys: Vec<K::Owned> = Vec::new();
        let mut objects = 2;
        self.for_each_node(tx, &mut |tx, at, visited| {
            objects += 1;
            match visited {
                Node::Leaf(leaf) => {
                    self.check_mark(at, Mark::of(&leaf.0), Mark::of(&self.empty_leaf().0))?;
                    for index in 0..node::count(&leaf.0) {
                        let (key, value) = node::entry(&leaf.0, Self::LEAF_ENTRY, index).split_at(K::WORDS);
                        objects += K::objects(tx, key)? + V::objects(tx, value)?;
                        keys.push(K::load(tx, key)?);
                    }
                }
                Node::Inner(inner) => {
                    self.check_mark(at, Mark::of(&inner.0), Mark::of(&self.empty_inner().0))?;
                    for index in 1..node::count(&inner.0) {
                        let separator = node::entry(&inner.0, Self::INNER_ENTRY, index);
                        objects += K::objects(tx, &separator[..K::WORDS])?;
                    }
                }
            }
            Ok(())
        })?;
        let wrong = |finding| damaged(self.header.addr(), finding);
        if !keys.is_sorted_by(|left, right| left < right) {
            return Err(wrong("keys of a tree do not ascend"));
        }
        for key in &keys {
            if !self.contains(tx, key.borrow())? {
                return Err(wrong("separators do not lead to a key that is in a leaf"));
            }
        }
        Ok(objects)
    }
}

/// The right node of the pair `taken` and a neighbour. `None` for an only child.
fn neighbour(parent: &Inner, taken: usize) -> Option<usize> {
    let count = node::count(&parent.0);
    if taken + 1 < count { Some(taken + 1) } else { (taken > 0).then_some(taken) }
}

/// Inserts `entry` as entry `index` of a full node. `right` takes the upper half; an appended entry goes there alone.
fn split_node(left: &mut [u64], right: &mut [u64], index: usize, entry: &[u64]) -> TxResult<()> {
    let count = node::count(left);
    if index == count {
        return node::insert(right, 0, entry);
    }
    let middle = count / 2;
    node::split_off(left, entry.len(), middle, right)?;
    if index <= middle { node::insert(left, index, entry) } else { node::insert(right, index - middle, entry) }
}
