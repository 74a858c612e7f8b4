//! [`PmList`]: a sequence as a doubly linked list.
//!
//! A node holds the addresses of its neighbours and the item's words. Insertions and removals write the two neighbours
//! and the header, which counts the items: transactions that change one list wait for each other. For a hand-over
//! between threads use [`PmQueue`](crate::PmQueue).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::marker::PhantomData;

use lodestone_stm::{
    FromBytes, Immutable, IntoBytes, KnownLayout, PmAddr, PmBytes, PmObject, PmPtr, Result, Stm, Tx, TxResult,
};

use crate::damaged;
use crate::item::PmValue;
use crate::mark::{self, Forms, NodeKind};
use crate::root;
use crate::salvage::ItemLoot;
use crate::salvage::order::{Frame, arrange, gaps};
use crate::words::{self, WORDS_MAX};

const MARK: usize = 0;
const PREVIOUS: usize = 1;
const NEXT: usize = 2;
const ITEM: usize = 3;

/// The header object of a [`PmList`].
///
/// ```
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # use lodestone_store::Store;
/// # let folder = tempfile::tempdir().unwrap();
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let store = Store::create(folder.path().join("a.pool"), &options)?;
/// # use lodestone_stm::Stm;
/// # let stm = Stm::open(&store)?;
/// use lodestone_collections::{ListHeader, PmList};
/// use lodestone_stm::PmPtr;
///
/// let header: PmPtr<ListHeader> = stm.update(|tx| {
///     let list = PmList::<u64>::create(tx)?;
///     list.push_back(tx, &7)?;
///     Ok(list.header())
/// })?;
/// // Keep the pointer in an object of your own; it leads to the list again.
/// assert_eq!(stm.read(|tx| PmList::<u64>::at(tx, header)?.to_vec(tx))?, [7]);
/// # Ok::<(), lodestone_stm::Error>(())
/// ```
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, PmObject)]
#[repr(C)]
#[pm(name = "lodestone.List")]
pub struct ListHeader {
    first: PmAddr,
    last: PmAddr,
    len: u64,
    signature: PmBytes,
}

/// A sequence in a transactional memory.
///
/// Cost in objects: an insertion reads and writes the header, the new node, its neighbours (2 at most), and the objects
/// of the item. A removal does the same. Reading in order reads a node per item. Fences: one per transaction.
///
/// ```
/// # use lodestone_collections::PmList;
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # use lodestone_store::Store;
/// # use lodestone_stm::Stm;
/// # let folder = tempfile::tempdir().unwrap();
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let stm = Stm::open(&Store::create(folder.path().join("a.pool"), &options)?)?;
/// let list = PmList::<u64>::open(&stm, "steps")?;
/// stm.update(|tx| {
///     let two = list.push_back(tx, &2)?;
///     list.push_front(tx, &1)?;
///     list.insert_after(tx, two, &3)
/// })?;
/// assert_eq!(stm.read(|tx| list.to_vec(tx))?, [1, 2, 3]);
/// # Ok::<(), lodestone_stm::Error>(())
/// ```
pub struct PmList<T> {
    header: PmPtr<ListHeader>,
    kind: PhantomData<fn() -> T>,
}

root::collection!(PmList<T>, ListHeader);
root::handle!(PmList<T: PmValue>, ListHeader, "list");

/// The place of an item, valid until the item is removed. Using it for another list, or later, is an error or finds
/// another item.
///
/// ```
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # use lodestone_store::Store;
/// # let folder = tempfile::tempdir().unwrap();
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let store = Store::create(folder.path().join("a.pool"), &options)?;
/// # use lodestone_stm::Stm;
/// # let stm = Stm::open(&store)?;
/// use lodestone_collections::{ListPosition, PmList};
///
/// let list = PmList::<u64>::open(&stm, "steps")?;
/// let one: ListPosition = stm.update(|tx| list.push_back(tx, &1))?;
/// stm.update(|tx| list.insert_after(tx, one, &2))?;
/// assert_eq!(stm.update(|tx| list.remove(tx, one))?, 1);
/// assert_eq!(stm.read(|tx| list.to_vec(tx))?, [2]);
/// # Ok::<(), lodestone_stm::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListPosition(PmAddr);

impl<T: PmValue> PmList<T> {
    const NODE: usize = {
        assert!(ITEM + T::WORDS <= WORDS_MAX, "an item is too large for a node; keep it in an object");
        ITEM + T::WORDS
    };

    fn mark(&self) -> u64 {
        mark::link(NodeKind::OfList, Forms::of_items::<T>(), self.header.addr())
    }

    fn signature() -> String {
        format!("list of {}", T::signature())
    }

    /// A new list that no object points to yet. Keep [`header`](Self::header) in an object.
    ///
    /// # Errors
    /// As [`Tx::alloc`].
    pub fn create(tx: &mut Tx<'_>) -> TxResult<Self> {
        let (first, last) = (PmAddr::NULL, PmAddr::NULL);
        let header = ListHeader { first, last, len: 0, signature: PmBytes::default() };
        Ok(Self::new(root::create(tx, header, &Self::signature())?))
    }

    /// The list with this header, which is not read. For a salvage.
    pub(crate) fn with_header(_: &Stm, header: PmPtr<ListHeader>) -> Self {
        Self::new(header)
    }

    /// Number of items.
    ///
    /// # Errors
    /// As [`Tx::read`].
    pub fn len(&self, tx: &mut Tx<'_>) -> TxResult<u64> {
        Ok(tx.read(self.header)?.len)
    }

    /// Whether there is no item.
    ///
    /// # Errors
    /// As [`Tx::read`].
    pub fn is_empty(&self, tx: &mut Tx<'_>) -> TxResult<bool> {
        Ok(self.len(tx)? == 0)
    }

    /// Inserts between two neighbours, either of which may be null.
    fn link(&self, tx: &mut Tx<'_>, previous: PmAddr, next: PmAddr, item: &T::View) -> TxResult<ListPosition> {
        // The change happens whole or not at all, even if the caller swallows its error. So do all changes of
        // collections.
        tx.nested(|tx| self.link_whole(tx, previous, next, item))
    }

    fn link_whole(&self, tx: &mut Tx<'_>, previous: PmAddr, next: PmAddr, item: &T::View) -> TxResult<ListPosition> {
        let mut node = [0; WORDS_MAX];
        let node = &mut node[..Self::NODE];
        (node[MARK], node[PREVIOUS], node[NEXT]) = (self.mark(), previous.to_raw(), next.to_raw());
        T::store(tx, item, &mut node[ITEM..])?;
        let at = words::alloc(tx, node)?;
        self.join(tx, previous, at)?;
        self.join(tx, at, next)?;
        let header = tx.write(self.header)?;
        header.len = header.len.saturating_add(1);
        Ok(ListPosition(at))
    }

    /// Makes two nodes neighbours. Null means the header.
    fn join(&self, tx: &mut Tx<'_>, previous: PmAddr, next: PmAddr) -> TxResult<()> {
        if previous.is_null() {
            tx.write(self.header)?.first = next;
        } else {
            words::write(tx, previous, Self::NODE)?[NEXT] = next.to_raw();
        }
        if next.is_null() {
            tx.write(self.header)?.last = previous;
        } else {
            words::write(tx, next, Self::NODE)?[PREVIOUS] = previous.to_raw();
        }
        Ok(())
    }

    /// Passes every item that verifies to `loot`, in order as far as that is known, and names the others. Nodes that no
    /// link leads to are found by their marks.
    pub(crate) fn salvage(&self, stm: &Stm, loot: &mut ItemLoot<'_, T>) {
        let header = match stm.snapshot(|tx| tx.read(self.header)) {
            Ok(header) => header,
            Err(error) => {
                let frame = Frame { reached: 0, open: PmAddr::NULL, len: None, last: PmAddr::NULL };
                return self.salvage_orphans(stm, frame, &HashSet::new(), &error, loot);
            }
        };
        let (mut at, mut previous, mut number) = (header.first, PmAddr::NULL, 0);
        let mut visited = HashSet::new();
        let broken: lodestone_stm::Error = loop {
            if number == header.len || at.is_null() {
                if number == header.len && at.is_null() {
                    return;
                }
                break damaged(self.header.addr(), "a list whose length or end is wrong").into();
            }
            match stm.snapshot(|tx| Self::read_node(tx, at)) {
                Ok(node) if node[PREVIOUS] != previous.to_raw() || !visited.insert(at) => {
                    break damaged(at, "a node of a list that does not lead back").into();
                }
                Ok(node) => {
                    loot.add(stm, number, &node[ITEM..Self::NODE]);
                    (number, previous, at) = (number + 1, at, PmAddr::from_raw(node[NEXT]));
                }
                Err(error) => break error,
            }
        };
        let frame = Frame { reached: number, open: at, len: Some(header.len), last: header.last };
        self.salvage_orphans(stm, frame, &visited, &broken, loot);
    }

    /// Passes the items of nodes that the walk did not reach, which `error` ended.
    fn salvage_orphans(
        &self,
        stm: &Stm,
        frame: Frame,
        visited: &HashSet<PmAddr>,
        error: &lodestone_stm::Error,
        loot: &mut ItemLoot<'_, T>,
    ) {
        if !loot.wants_orphans() {
            return loot.lose((frame.reached, frame.len), error);
        }
        let (mut links, mut nodes) = (BTreeMap::new(), HashMap::new());
        for at in mark::nodes_of(stm, self.header.addr(), NodeKind::OfList) {
            if !visited.contains(&at)
                && let Ok(node) = stm.snapshot(|tx| Self::read_node(tx, at))
            {
                links.insert(at, (PmAddr::from_raw(node[PREVIOUS]), PmAddr::from_raw(node[NEXT])));
                nodes.insert(at, node);
            }
        }
        let arranged = arrange(&links, frame);
        let positions: Vec<u64> = arranged.placed.iter().map(|(position, _)| *position).collect();
        for (from, to) in gaps(frame.reached, &positions, frame.len) {
            loot.lose((from, Some(to)), error);
        }
        if frame.len.is_none() {
            let end = positions.last().map_or(frame.reached, |last| last.saturating_add(1));
            let why = if arranged.has_end { "no item is missing at the end" } else { "the end is missing" };
            loot.doubt((end, None), error, why);
        }
        if let Some(range) = arranged.guessed {
            loot.doubt(range, error, "the order and the positions of the items there are guesses");
        }
        for (position, at) in &arranged.placed {
            loot.add(stm, *position, &nodes[at][ITEM..Self::NODE]);
        }
    }

    fn read_node(tx: &mut Tx<'_>, at: PmAddr) -> TxResult<[u64; WORDS_MAX]> {
        let mut node = [0; WORDS_MAX];
        words::read(tx, at, &mut node[..Self::NODE])?;
        Ok(node)
    }

    /// Appends an item.
    ///
    /// # Errors
    /// As [`Tx::write`] and [`Tx::alloc`].
    pub fn push_back(&self, tx: &mut Tx<'_>, item: &T::View) -> TxResult<ListPosition> {
        let last = tx.read(self.header)?.last;
        self.link(tx, last, PmAddr::NULL, item)
    }

    /// Inserts an item at the beginning.
    ///
    /// # Errors
    /// As [`push_back`](Self::push_back).
    pub fn push_front(&self, tx: &mut Tx<'_>, item: &T::View) -> TxResult<ListPosition> {
        let first = tx.read(self.header)?.first;
        self.link(tx, PmAddr::NULL, first, item)
    }

    /// Inserts an item after the one at `position`.
    ///
    /// # Errors
    /// As [`push_back`](Self::push_back).
    pub fn insert_after(&self, tx: &mut Tx<'_>, position: ListPosition, item: &T::View) -> TxResult<ListPosition> {
        let next = PmAddr::from_raw(Self::read_node(tx, position.0)?[NEXT]);
        self.link(tx, position.0, next, item)
    }

    /// Removes the item at `position` and returns it.
    ///
    /// # Errors
    /// As [`Tx::write`] and [`Tx::free`].
    pub fn remove(&self, tx: &mut Tx<'_>, position: ListPosition) -> TxResult<T::Owned> {
        // Nothing has happened when there is no such item.
        let node = Self::read_node(tx, position.0)?;
        tx.nested(|tx| {
            let stored = &node[ITEM..Self::NODE];
            let item = T::load(tx, stored)?;
            T::free(tx, stored)?;
            self.join(tx, PmAddr::from_raw(node[PREVIOUS]), PmAddr::from_raw(node[NEXT]))?;
            words::free(tx, position.0, Self::NODE)?;
            let header = tx.write(self.header)?;
            header.len = header.len.saturating_sub(1);
            Ok(item)
        })
    }

    /// Removes the first item and returns it.
    ///
    /// # Errors
    /// As [`remove`](Self::remove).
    pub fn pop_front(&self, tx: &mut Tx<'_>) -> TxResult<Option<T::Owned>> {
        let first = tx.read(self.header)?.first;
        if first.is_null() { Ok(None) } else { self.remove(tx, ListPosition(first)).map(Some) }
    }

    /// Removes the last item and returns it.
    ///
    /// # Errors
    /// As [`remove`](Self::remove).
    pub fn pop_back(&self, tx: &mut Tx<'_>) -> TxResult<Option<T::Owned>> {
        let last = tx.read(self.header)?.last;
        if last.is_null() { Ok(None) } else { self.remove(tx, ListPosition(last)).map(Some) }
    }

    /// The item at `position`.
    ///
    /// # Errors
    /// As [`Tx::read`].
    pub fn get(&self, tx: &mut Tx<'_>, position: ListPosition) -> TxResult<T::Owned> {
        let node = Self::read_node(tx, position.0)?;
        T::load(tx, &node[ITEM..Self::NODE])
    }

    /// Position of the first item.
    ///
    /// # Errors
    /// As [`Tx::read`].
    pub fn first(&self, tx: &mut Tx<'_>) -> TxResult<Option<ListPosition>> {
        Ok(position(tx.read(self.header)?.first))
    }

    /// Position of the last item.
    ///
    /// # Errors
    /// As [`Tx::read`].
    pub fn last(&self, tx: &mut Tx<'_>) -> TxResult<Option<ListPosition>> {
        Ok(position(tx.read(self.header)?.last))
    }

    /// Position of the item after the one at `at`.
    ///
    /// # Errors
    /// As [`Tx::read`].
    pub fn next(&self, tx: &mut Tx<'_>, at: ListPosition) -> TxResult<Option<ListPosition>> {
        Ok(position(PmAddr::from_raw(Self::read_node(tx, at.0)?[NEXT])))
    }

    /// Position of the item before the one at `at`.
    ///
    /// # Errors
    /// As [`Tx::read`].
    pub fn previous(&self, tx: &mut Tx<'_>, at: ListPosition) -> TxResult<Option<ListPosition>> {
        Ok(position(PmAddr::from_raw(Self::read_node(tx, at.0)?[PREVIOUS])))
    }

    /// All items in order.
    ///
    /// # Errors
    /// As [`Tx::read`].
    pub fn to_vec(&self, tx: &mut Tx<'_>) -> TxResult<Vec<T::Owned>> {
        let mut items = Vec::new();
        self.walk(tx, |tx, _, stored| {
            items.push(T::load(tx, stored)?);
            Ok(())
        })?;
        Ok(items)
    }

    /// Calls `visit` with each node's address and item, in order.
    fn walk(
        &self,
        tx: &mut Tx<'_>,
        mut visit: impl FnMut(&mut Tx<'_>, PmAddr, &[u64]) -> TxResult<()>,
    ) -> TxResult<()> {
        let header = tx.read(self.header)?;
        let (mut at, mut previous) = (header.first, PmAddr::NULL);
        for _ in 0..header.len {
            if at.is_null() {
                return Err(damaged(self.header.addr(), "a list whose length or end is wrong"));
            }
            // A circle would have a node that leads back to two others.
            let node = Self::read_node(tx, at)?;
            if node[PREVIOUS] != previous.to_raw() {
                return Err(damaged(at, "a node of a list that does not lead back"));
            }
            if node[MARK] != self.mark() {
                return Err(damaged(at, "a node that names another collection"));
            }
            visit(tx, at, &node[ITEM..Self::NODE])?;
            (previous, at) = (at, PmAddr::from_raw(node[NEXT]));
        }
        if !at.is_null() || previous != header.last {
            return Err(damaged(self.header.addr(), "a list whose length or end is wrong"));
        }
        Ok(())
    }

    /// Removes all items in one transaction. Its record needs room, so in a full pool remove items one by one first.
    ///
    /// # Errors
    /// As [`Tx::free`].
    pub fn clear(&self, tx: &mut Tx<'_>) -> TxResult<()> {
        tx.nested(|tx| {
            self.walk(tx, |tx, at, stored| {
                T::free(tx, stored)?;
                words::free(tx, at, Self::NODE)
            })?;
            let header = tx.write(self.header)?;
            (header.first, header.last, header.len) = (PmAddr::NULL, PmAddr::NULL, 0);
            Ok(())
        })
    }

    /// Checks links both ways and the length. Returns the number of objects that the list owns, header and signature
    /// included.
    ///
    /// # Errors
    /// The fault, as [`Error::BadPointer`](lodestone_stm::Error::BadPointer).
    pub fn check(&self, tx: &mut Tx<'_>) -> TxResult<u64> {
        let mut objects = 2;
        self.walk(tx, |tx, _, stored| {
            objects += 1 + T::objects(tx, stored)?;
            Ok(())
        })?;
        Ok(objects)
    }
}

fn position(at: PmAddr) -> Option<ListPosition> {
    (!at.is_null()).then_some(ListPosition(at))
}
