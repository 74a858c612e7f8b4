//! [`PmQueue`]: first in, first out, between threads and between runs of a program.
//!
//! 1. The items are a linked list with an empty node at its end. Head and tail are separate objects.
//! 2. *Push* fills the empty node, links a new empty one after it and moves the tail. *Pop* reads the node at the head,
//!    moves the head and frees the node. So a producer writes the tail and a consumer the head. They meet only in the
//!    node of an empty queue.
//! 3. *Waiting*: [`pop_wait`](PmQueue::pop_wait) on an empty queue ends the attempt until something that it read
//!    changes. That is the empty node, which a push fills.
//!
//! Invariant: from head to tail there are `pushed - popped` filled nodes, and the tail leads to the empty one.

use std::collections::{BTreeMap, HashSet};
use std::marker::PhantomData;

use lodestone_pmem::planted;
use lodestone_stm::{
    FromBytes, Immutable, IntoBytes, KnownLayout, PmAddr, PmBytes, PmObject, PmPtr, Result, Stm, Tx, TxResult,
};

use crate::damaged;
use crate::item::PmValue;
use crate::mark::{self, Forms, NodeKind};
use crate::root;
use crate::salvage::ItemLoot;
use crate::salvage::order::gaps;
use crate::steps::Steps;
use crate::words::{self, WORDS_MAX};

const MARK: usize = 0;
const NEXT: usize = 1;
/// Items that passed the tail before this one.
const NUMBER: usize = 2;
const ITEM: usize = 3;

/// One end of a [`PmQueue`].
///
/// ```
/// use lodestone_collections::QueueEnd;
/// use lodestone_stm::PmObject;
///
/// // A [`QueueHeader`] points to two of them. Programs meet the type only in the list of types of a memory.
/// assert_eq!(QueueEnd::NAME, "lodestone.QueueEnd");
/// ```
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, PmObject)]
#[repr(C)]
#[pm(name = "lodestone.QueueEnd")]
pub struct QueueEnd {
    node: PmAddr,
    /// Items that ever passed this end.
    passed: u64,
}

/// The header object of a [`PmQueue`]. It never changes once it is made.
///
/// ```
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # use lodestone_store::Store;
/// # let folder = tempfile::tempdir().unwrap();
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let store = Store::create(folder.path().join("a.pool"), &options)?;
/// # use lodestone_stm::Stm;
/// # let stm = Stm::open(&store)?;
/// use lodestone_collections::{PmQueue, QueueHeader};
/// use lodestone_stm::PmPtr;
///
/// let header: PmPtr<QueueHeader> = stm.update(|tx| {
///     let queue = PmQueue::<u64>::create(tx)?;
///     queue.push(tx, &7)?;
///     Ok(queue.header())
/// })?;
/// // Keep the pointer in an object of your own; it leads to the queue again.
/// assert_eq!(stm.update(|tx| PmQueue::<u64>::at(tx, header)?.pop(tx))?, Some(7));
/// # Ok::<(), lodestone_stm::Error>(())
/// ```
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, PmObject)]
#[repr(C)]
#[pm(name = "lodestone.Queue")]
pub struct QueueHeader {
    head: PmPtr<QueueEnd>,
    tail: PmPtr<QueueEnd>,
    signature: PmBytes,
}

/// A queue in a transactional memory.
///
/// Cost in objects: a push writes the tail, the node at the end and a new one. A pop reads and frees a node and writes
/// the head. Both add the objects of the item. Fences: one per transaction.
///
/// ```
/// # use lodestone_collections::{Bytes, PmQueue};
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # use lodestone_store::Store;
/// # use lodestone_stm::Stm;
/// # let folder = tempfile::tempdir().unwrap();
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let stm = Stm::open(&Store::create(folder.path().join("a.pool"), &options)?)?;
/// let jobs = PmQueue::<Bytes>::open(&stm, "jobs")?;
/// std::thread::scope(|scope| {
///     let consumer = scope.spawn(|| stm.update(|tx| jobs.pop_wait(tx)));
///     stm.update(|tx| jobs.push(tx, b"print"))?;
///     assert_eq!(consumer.join().expect("no panic")?, b"print");
///     Ok(())
/// })
/// # .map_err(|error: lodestone_stm::Error| error)?;
/// # Ok::<(), lodestone_stm::Error>(())
/// ```
pub struct PmQueue<T> {
    header: PmPtr<QueueHeader>,
    head: PmPtr<QueueEnd>,
    tail: PmPtr<QueueEnd>,
    kind: PhantomData<fn() -> T>,
}

root::collection!(PmQueue<T>, QueueHeader);

impl<T: PmValue> PmQueue<T> {
    const NODE: usize = {
        assert!(ITEM + T::WORDS <= WORDS_MAX, "an item is too large for a node; keep it in an object");
        ITEM + T::WORDS
    };

    fn mark(header: PmPtr<QueueHeader>) -> u64 {
        mark::link(NodeKind::OfQueue, Forms::of_items::<T>(), header.addr())
    }

    /// A node without an item.
    fn empty_node(tx: &mut Tx<'_>, header: PmPtr<QueueHeader>) -> TxResult<PmAddr> {
        let mut node = [0; WORDS_MAX];
        node[MARK] = Self::mark(header);
        words::alloc(tx, &node[..Self::NODE])
    }

    fn signature() -> String {
        format!("queue of {}", T::signature())
    }

    /// The queue with the root `name`. It is made when there is none.
    ///
    /// # Errors
    /// As [`Stm::update`]. [`Error::RootType`](lodestone_stm::Error::RootType) when the root is something else, or a
    /// queue of other items.
    pub fn open(stm: &Stm, name: &str) -> Result<Self> {
        let header: PmPtr<QueueHeader> = root::open(stm, name, &Self::signature())?;
        if stm.read(|tx| tx.read(header))?.head.is_null() {
            stm.update(|tx| Self::furnish(tx, header))?;
        }
        let found = stm.read(|tx| tx.read(header))?;
        Ok(Self::new(header, &found))
    }

    /// The queue with this header, as far as it can be read. For a salvage.
    pub(crate) fn with_header(stm: &Stm, header: PmPtr<QueueHeader>) -> Self {
        let (head, tail) = (PmPtr::NULL, PmPtr::NULL);
        let unknown = QueueHeader { head, tail, signature: PmBytes::default() };
        Self::new(header, &stm.snapshot(|tx| tx.read(header)).unwrap_or(unknown))
    }

    /// Makes the two ends and the empty node, unless they exist.
    fn furnish(tx: &mut Tx<'_>, header: PmPtr<QueueHeader>) -> TxResult<()> {
        if !tx.read(header)?.head.is_null() {
            return Ok(());
        }
        let node = Self::empty_node(tx, header)?;
        let head = tx.alloc(QueueEnd { node, passed: 0 })?;
        let tail = tx.alloc(QueueEnd { node, passed: 0 })?;
        let header = tx.write(header)?;
        (header.head, header.tail) = (head, tail);
        Ok(())
    }

    /// A new queue that no object points to yet. Keep [`header`](Self::header) in an object.
    ///
    /// # Errors
    /// As [`Tx::alloc`].
    pub fn create(tx: &mut Tx<'_>) -> TxResult<Self> {
        let header = QueueHeader { head: PmPtr::NULL, tail: PmPtr::NULL, signature: PmBytes::default() };
        tx.nested(|tx| {
            let header = root::create(tx, header, &Self::signature())?;
            Self::furnish(tx, header)?;
            let found = tx.read(header)?;
            Ok(Self::new(header, &found))
        })
    }

    /// The queue with this header.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn at(tx: &mut Tx<'_>, header: PmPtr<QueueHeader>) -> TxResult<Self> {
        root::check(tx, header, &Self::signature())?;
        let found = tx.read(header)?;
        Ok(Self::new(header, &found))
    }

    fn new(header: PmPtr<QueueHeader>, found: &QueueHeader) -> Self {
        Self { header, head: found.head, tail: found.tail, kind: PhantomData }
    }

    /// Appends an item.
    ///
    /// # Errors
    /// As [`Tx::write`] and [`Tx::alloc`].
    pub fn push(&self, tx: &mut Tx<'_>, item: &T::View) -> TxResult<()> {
        // The change happens whole or not at all, even if the caller swallows its error. So do all changes of
        // collections.
        tx.nested(|tx| self.append(tx, item))
    }

    fn append(&self, tx: &mut Tx<'_>, item: &T::View) -> TxResult<()> {
        let empty = Self::empty_node(tx, self.header)?;
        let QueueEnd { node: filled, passed } = tx.read(self.tail)?;
        let mut stored = [0; WORDS_MAX];
        let stored = &mut stored[..T::WORDS];
        T::store(tx, item, stored)?;
        let node = words::write(tx, filled, Self::NODE)?;
        (node[NEXT], node[NUMBER]) = (empty.to_raw(), passed);
        node[ITEM..].copy_from_slice(stored);
        let tail = tx.write(self.tail)?;
        (tail.node, tail.passed) = (empty, tail.passed.wrapping_add(1));
        Ok(())
    }

    /// The node at the head, when it is filled.
    fn front(&self, tx: &mut Tx<'_>) -> TxResult<Option<(PmAddr, [u64; WORDS_MAX])>> {
        let at = tx.read(self.head)?.node;
        let mut node = [0; WORDS_MAX];
        words::read(tx, at, &mut node[..Self::NODE])?;
        Ok((node[NEXT] != 0).then_some((at, node)))
    }

    /// Removes the oldest item and returns it.
    ///
    /// # Errors
    /// As [`Tx::write`] and [`Tx::free`].
    pub fn pop(&self, tx: &mut Tx<'_>) -> TxResult<Option<T::Owned>> {
        tx.nested(|tx| self.unlink(tx))
    }

    fn unlink(&self, tx: &mut Tx<'_>) -> TxResult<Option<T::Owned>> {
        let Some((at, node)) = self.front(tx)? else { return Ok(None) };
        let stored = &node[ITEM..Self::NODE];
        let item = T::load(tx, stored)?;
        T::free(tx, stored)?;
        if !planted::active("collections-pop-leaks") {
            words::free(tx, at, Self::NODE)?;
        }
        let head = tx.write(self.head)?;
        (head.node, head.passed) = (PmAddr::from_raw(node[NEXT]), head.passed.wrapping_add(1));
        Ok(Some(item))
    }

    /// As [`pop`](Self::pop). On an empty queue the transaction waits until there is an item.
    ///
    /// # Errors
    /// As [`pop`](Self::pop).
    pub fn pop_wait(&self, tx: &mut Tx<'_>) -> TxResult<T::Owned> {
        let item = self.pop(tx)?;
        tx.retry_when(item.is_none())?;
        item.ok_or_else(|| damaged(self.header.addr(), "an empty queue"))
    }

    /// The oldest item.
    ///
    /// # Errors
    /// As [`Tx::read`].
    pub fn peek(&self, tx: &mut Tx<'_>) -> TxResult<Option<T::Owned>> {
        match self.front(tx)? {
            Some((_, node)) => T::load(tx, &node[ITEM..Self::NODE]).map(Some),
            None => Ok(None),
        }
    }

    /// Whether there is no item. Reads the head alone.
    ///
    /// # Errors
    /// As [`Tx::read`].
    pub fn is_empty(&self, tx: &mut Tx<'_>) -> TxResult<bool> {
        Ok(self.front(tx)?.is_none())
    }

    /// Number of items. It reads both ends, so producers and consumers conflict with such a transaction.
    ///
    /// # Errors
    /// As [`Tx::read`].
    pub fn len(&self, tx: &mut Tx<'_>) -> TxResult<u64> {
        Ok(tx.read(self.tail)?.passed.wrapping_sub(tx.read(self.head)?.passed))
    }

    /// Calls `visit` with each filled node's address and item, from the oldest on.
    fn walk(
        &self,
        tx: &mut Tx<'_>,
        mut visit: impl FnMut(&mut Tx<'_>, PmAddr, &[u64]) -> TxResult<()>,
    ) -> TxResult<()> {
        let (items, end) = (self.len(tx)?, tx.read(self.tail)?.node);
        let QueueEnd { node: mut at, passed } = tx.read(self.head)?;
        let mut steps = Steps::new(tx, Self::NODE);
        for item in 0..items {
            steps.come_to(at)?;
            let mut node = [0; WORDS_MAX];
            words::read(tx, at, &mut node[..Self::NODE])?;
            if node[MARK] != Self::mark(self.header) || node[NUMBER] != passed.wrapping_add(item) {
                return Err(damaged(at, "a node that names another collection, or another item"));
            }
            visit(tx, at, &node[ITEM..Self::NODE])?;
            at = PmAddr::from_raw(node[NEXT]);
        }
        if at == end { Ok(()) } else { Err(damaged(self.header.addr(), "a queue whose length or end is wrong")) }
    }

    /// Passes every item that verifies to `loot`, in order, and names the others. Nodes that no link leads to are found
    /// by their marks. They are numbered.
    pub(crate) fn salvage(&self, stm: &Stm, loot: &mut ItemLoot<'_, T>) {
        let is_empty = stm.snapshot(|tx| tx.read(self.header)).is_ok_and(|header| header.head.is_null());
        if is_empty && self.head.is_null() {
            // A crash came after the header was made and before its ends were.
            return;
        }
        let end_of = |end: PmPtr<QueueEnd>| stm.snapshot(|tx| tx.read(end));
        let (head, tail) = match (end_of(self.head), end_of(self.tail)) {
            (Ok(head), Ok(tail)) => (head, tail),
            (head, Err(error)) => {
                let base = head.ok().map(|head| head.passed);
                return self.salvage_orphans(stm, (base, None), (0, &HashSet::new()), &error, loot);
            }
            (Err(error), Ok(_)) => {
                return self.salvage_orphans(stm, (None, None), (0, &HashSet::new()), &error, loot);
            }
        };
        let (items, mut at) = (tail.passed.wrapping_sub(head.passed), head.node);
        let mut visited = HashSet::new();
        for number in 0..items {
            let error = match stm.snapshot(|tx| Self::read_node(tx, at)) {
                // Only the empty node at the end leads nowhere: this is one that went back to what it was.
                Ok(node) if node[NEXT] == 0 => damaged(at, "a node of a queue that is empty before its end").into(),
                Ok(_) if !visited.insert(at) => damaged(at, "nodes of a queue in a circle").into(),
                Ok(node) => {
                    loot.add(stm, number, &node[ITEM..Self::NODE]);
                    at = PmAddr::from_raw(node[NEXT]);
                    continue;
                }
                Err(error) => error,
            };
            return self.salvage_orphans(stm, (Some(head.passed), Some(items)), (number, &visited), &error, loot);
        }
    }

    fn read_node(tx: &mut Tx<'_>, at: PmAddr) -> TxResult<[u64; WORDS_MAX]> {
        let mut node = [0; WORDS_MAX];
        words::read(tx, at, &mut node[..Self::NODE])?;
        Ok(node)
    }

    /// Passes the items of nodes that the walk did not reach, which `error` ended after so many items. `base` is the
    /// number of the first item.
    fn salvage_orphans(
        &self,
        stm: &Stm,
        (base, items): (Option<u64>, Option<u64>),
        (reached, visited): (u64, &HashSet<PmAddr>),
        error: &lodestone_stm::Error,
        loot: &mut ItemLoot<'_, T>,
    ) {
        if !loot.wants_orphans() {
            return loot.lose((reached, items), error);
        }
        let mut nodes = BTreeMap::new();
        for at in mark::nodes_of(stm, self.header.addr(), NodeKind::OfQueue) {
            if !visited.contains(&at)
                && let Ok(node) = stm.snapshot(|tx| Self::read_node(tx, at))
                && node[NEXT] != 0
            {
                nodes.insert(node[NUMBER].wrapping_sub(base.unwrap_or(0)), node);
            }
        }
        let first = if base.is_some() { 0 } else { nodes.keys().next().copied().unwrap_or(0) };
        let placed: Vec<(u64, &[u64; WORDS_MAX])> = nodes.iter().map(|(number, node)| (number - first, node)).collect();
        let positions: Vec<u64> = placed.iter().map(|(position, _)| *position).collect();
        for (from, to) in gaps(reached, &positions, items) {
            loot.lose((from, Some(to)), error);
        }
        if base.is_none() {
            loot.doubt((0, None), error, "positions count from the first item that was found");
        } else if items.is_none() {
            let end = positions.last().map_or(reached, |last| last.saturating_add(1));
            loot.doubt((end, None), error, "the number of items is unknown");
        }
        for (position, node) in placed {
            loot.add(stm, position, &node[ITEM..Self::NODE]);
        }
    }

    /// All items, from the oldest on.
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
            let tail = tx.read(self.tail)?;
            *tx.write(self.head)? = tail;
            Ok(())
        })
    }

    /// Frees all items, both ends and the header. Not for a queue that was opened by name.
    ///
    /// # Errors
    /// As [`Tx::free`].
    pub fn destroy(self, tx: &mut Tx<'_>) -> TxResult<()> {
        tx.nested(|tx| {
            self.clear(tx)?;
            let empty = tx.read(self.tail)?.node;
            words::free(tx, empty, Self::NODE)?;
            tx.free(self.head)?;
            tx.free(self.tail)?;
            root::destroy(tx, self.header)
        })
    }

    /// Checks links and lengths. Returns the number of objects that the queue owns, header and signature included.
    ///
    /// # Errors
    /// The fault, as [`Error::BadPointer`](lodestone_stm::Error::BadPointer).
    pub fn check(&self, tx: &mut Tx<'_>) -> TxResult<u64> {
        // Header, signature, two ends, the empty node.
        let mut objects = 5;
        self.walk(tx, |tx, _, stored| {
            objects += 1 + T::objects(tx, stored)?;
            Ok(())
        })?;
        Ok(objects)
    }
}
