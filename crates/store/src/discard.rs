//! Dropping an object: its name goes at once, its blocks follow, and no crash leaks one.
//!
//! An object can own more blocks than one action of the heap can free. So:
//! 1. The object is examined: its kind names the blocks that it owns.
//! 2. Their addresses are written into list blocks. An action for each block links it in front of the others. The
//!    object still lives: a crash here leaves its name, and the next open frees the list blocks only.
//! 3. One action sets the entry's state to *dropped*: the name is gone.
//! 4. One action for each list block frees the blocks in it and the list block itself, and moves the entry's list on.
//! 5. The last action frees the entry and clears its slot.
//!
//! The next open for writing finishes steps 4 and 5. A list block and its addresses are freed in one action, so nothing
//! is freed twice and nothing stays. The blocks of steps 1 to 3 cannot change meanwhile, because the drop has the claim
//! on the object.
//!
//! Where the pool has no room for the list, the drop reports that it is full and changes nothing.

use std::collections::HashSet;

use lodestone_heap::{Error as HeapError, Heap};
use lodestone_pmem::sync::lock;
use lodestone_pmem::{PmAddr, planted};

use crate::catalog::{Catalog, Slot, damaged};
use crate::error::{Error, Result, committed};
use crate::kind::{Contents, KindError};
use crate::layout::{Entry, List, State};
use crate::object::{Claim, Object};
use crate::store::{Store, StoreRecovery};

/// Addresses of a list block, at most: it fills eight lines.
const LIST_BLOCKS_MAX: usize = 61;

/// Whether a drop may leak blocks.
///
/// ```
/// use lodestone_pmem::{DomainChoice, PoolOptions};
/// use lodestone_store::{Force, Store};
/// # use lodestone_store::{Acknowledge, Contents, Kind, KindCode, KindError, Object, Records};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.pool");
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # #[derive(Debug)]
/// # struct Log;
/// # impl Kind for Log {
/// #     fn code(&self) -> KindCode { KindCode(*b"MLOG") }
/// #     fn title(&self) -> &'static str { "a log" }
/// #     fn examine(&self, log: Object) -> Result<Contents, KindError> {
/// #         Ok(Contents { records: 1, blocks: vec![(log.at(), 100)], ..Contents::default() })
/// #     }
/// #     fn records(&self, _: Object, _: Option<&str>, _: Acknowledge) -> Result<Box<dyn Records>, KindError> {
/// #         Err("none".into())
/// #     }
/// # }
/// # static LOG: Log = Log;
/// let store = Store::create(&path, &options)?;
/// let make = |name: &str| store.open_or_make::<lodestone_store::Error>(name, &LOG, |action| Ok(action.alloc(100)?));
/// make("log")?;
/// store.drop_object("log", Force::No)?; // `Yes` would drop it although it is damaged
/// assert!(store.find("log")?.is_none());
/// # Ok::<(), lodestone_store::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Force {
    /// A damaged object is not dropped.
    No,
    /// A damaged object is dropped too. Its blocks beyond the damage stay allocated until a repair frees them.
    Yes,
}

impl Store {
    /// Drops the object `name` and frees all its blocks. Durable on return. The time grows with the size of the object.
    ///
    /// [`Error::NotFound`]. [`Error::AlreadyOpen`] while the object is open. [`Error::UnknownKind`].
    /// [`Error::NotWhole`] when the object is damaged and `force` is `No`. [`Error::Heap`] when there is no room for
    /// the list of its blocks. [`Error::ReadOnly`].
    pub fn drop_object(&self, name: &str, force: Force) -> Result<()> {
        if self.memory().is_read_only() {
            return Err(self.read_only("a drop"));
        }
        let object = self.open_object(name)?;
        let slot = object.slot;
        lock(&self.inner.catalog).slots[slot].claim = Claim::Dropping;
        // From here the claim belongs to the drop, which ends it below in every case.
        let outcome = self.drop_claimed(name, object, force);
        let mut catalog = lock(&self.inner.catalog);
        if matches!(catalog.slots[slot].claim, Claim::Dropping) {
            catalog.slots[slot].claim = Claim::Free;
        }
        drop(catalog);
        outcome?;
        Ok(self.memory().durable()?)
    }

    fn drop_claimed(&self, name: &str, mut object: Object, force: Force) -> Result<()> {
        object.is_owner = false;
        let (slot, at) = (object.slot, object.at);
        let mut blocks = match (self.examine_claimed(object), force) {
            (Ok(contents), Force::No) if !contents.is_complete() => {
                let finding = contents.flaws.first().map_or_else(String::new, |flaw| flaw.text.clone());
                return Err(self.not_whole(name, finding));
            }
            (Ok(contents), _) => contents.blocks.into_iter().map(|(at, _)| at).collect(),
            (Err(Examine::Unknown(error)), _) => return Err(error),
            (Err(Examine::Failed(error)), Force::No) => return Err(self.not_whole(name, error.to_string())),
            (Err(Examine::Failed(_)), Force::Yes) => vec![at],
        };
        blocks.sort_unstable();
        blocks.dedup();
        // A block that is not allocated is a flaw that `force` accepted.
        blocks.retain(|at| self.heap().block_bytes(*at).is_some());
        let Some(entry) = lock(&self.inner.catalog).slots[slot].entry.clone() else { return Ok(()) };
        if planted::active("store-drop-frees-first") {
            let mut action = self.heap().action();
            blocks.drain(..).try_for_each(|at| action.free(at))?;
            action.commit()?;
        }
        let first = match write_lists(self.heap(), &entry, &blocks) {
            Ok(first) => first,
            Err((first, error)) => {
                free_lists(self.heap(), &entry, first, false)?;
                return Err(error);
            }
        };
        let mut action = self.heap().action();
        entry.state().set(&mut action, State::Dropped.payload());
        let (took_effect, outcome) = committed(action.commit());
        let mut catalog = lock(&self.inner.catalog);
        if took_effect {
            catalog.names.remove(&entry.name);
            catalog.slots[slot].state = Some(State::Dropped);
            catalog.slots[slot].list = first;
        }
        drop(catalog);
        outcome?;
        free_lists(self.heap(), &entry, first, true)?;
        let mut catalog = lock(&self.inner.catalog);
        clear(self.heap(), &mut catalog, slot, &entry)
    }

    fn not_whole(&self, name: &str, finding: String) -> Error {
        Error::NotWhole { path: self.pool().path().to_owned(), name: name.to_owned(), finding }
    }

    /// Examines an object that is claimed already.
    pub(crate) fn examine_claimed(&self, object: Object) -> std::result::Result<Contents, Examine> {
        self.kind_of(&object).map_err(Examine::Unknown)?.examine(object).map_err(Examine::Failed)
    }
}

/// Why an object was not examined.
#[derive(Debug)]
pub(crate) enum Examine {
    /// The program does not know its kind.
    Unknown(Error),
    /// It cannot be opened.
    Failed(KindError),
}

/// Writes the lists of `blocks`, each linked in front of the others. Returns the address of the first. On failure the
/// error comes with the lists written so far.
fn write_lists(heap: &Heap, entry: &Entry, blocks: &[PmAddr]) -> std::result::Result<PmAddr, (PmAddr, Error)> {
    // Freeing changes a word for each block, one for the list block and two for the link to the next.
    let count = LIST_BLOCKS_MAX.min(heap.action_words_max().saturating_sub(3)).max(1);
    let mut first = PmAddr::NULL;
    for blocks in blocks.chunks(count) {
        let list = List { next: first, blocks: blocks.to_vec() };
        first = write_list(heap, entry, &list).map_err(|error| (first, error))?;
    }
    Ok(first)
}

fn write_list(heap: &Heap, entry: &Entry, list: &List) -> Result<PmAddr> {
    let mut action = heap.action();
    let at = action.alloc(List::bytes(list.blocks.len()))?;
    list.write(heap.memory(), at);
    entry.list().point_to(&mut action, at);
    let (took_effect, outcome) = committed(action.commit());
    if took_effect { Ok(at) } else { outcome.map(|()| at) }
}

/// Lists with their places.
type Lists = Vec<(PmAddr, List)>;

/// The lists from the one at `next` on: those before the damage, and where and what that is. No circle makes this run
/// for ever.
pub(crate) fn read_lists(heap: &Heap, mut next: PmAddr) -> (Lists, Option<(PmAddr, &'static str)>) {
    let (mut lists, mut visited) = (Vec::new(), HashSet::new());
    while !next.is_null() {
        if !visited.insert(next) {
            return (lists, Some((next, "leads back to itself")));
        }
        let Some(list) = List::read(heap.memory(), next) else {
            return (lists, Some((next, "its checksum does not fit")));
        };
        let at = std::mem::replace(&mut next, list.next);
        lists.push((at, list));
    }
    (lists, None)
}

/// Frees the list that begins at `first`, with the blocks in it if `with_blocks`. All of it is read before anything is
/// freed.
fn free_lists(heap: &Heap, entry: &Entry, first: PmAddr, with_blocks: bool) -> Result<()> {
    let (lists, damage) = read_lists(heap, first);
    if let Some((at, finding)) = damage {
        return Err(damaged(heap, at, "list of a drop", finding));
    }
    for (at, list) in lists {
        let mut action = heap.action();
        if with_blocks {
            for &block in &list.blocks {
                // A repair has freed a block that is not allocated.
                if heap.block_bytes(block).is_some() {
                    action.free(block)?;
                }
            }
        }
        if planted::active("store-list-moves-on-first") {
            let mut early = heap.action();
            entry.list().point_to(&mut early, list.next);
            early.commit()?;
        }
        action.free(at)?;
        entry.list().point_to(&mut action, list.next);
        let (took_effect, outcome) = committed(action.commit());
        if !took_effect {
            outcome?;
        }
    }
    Ok(())
}

/// Frees the entry and clears its slot.
fn clear(heap: &Heap, catalog: &mut Catalog, slot: usize, entry: &Entry) -> Result<()> {
    let mut action = heap.action();
    catalog.place(slot).point_to(&mut action, PmAddr::NULL);
    action.free(entry.at)?;
    let (took_effect, outcome) = committed(action.commit());
    if took_effect {
        catalog.slots[slot] = Slot::default();
    }
    outcome
}

/// Finishes the drops that a crash cut short, and takes back those that had only begun. A drop that cannot be finished
/// as its lists say stays, and the check names it.
pub(crate) fn recover(heap: &Heap, catalog: &mut Catalog, report: &mut StoreRecovery) -> Result<()> {
    for slot in 0..catalog.slots.len() {
        let Slot { entry: Some(entry), state: Some(state), list, is_lost: false, .. } = &catalog.slots[slot] else {
            continue;
        };
        let (entry, state, list) = (entry.clone(), *state, *list);
        let is_dropped = state == State::Dropped;
        if !is_dropped && list.is_null() {
            continue;
        }
        if planted::active("store-no-recovery") {
            continue;
        }
        let finished = free_own_lists(heap, catalog, &entry, list, is_dropped).and_then(|()| {
            catalog.slots[slot].list = PmAddr::NULL;
            if is_dropped { clear(heap, catalog, slot, &entry) } else { Ok(()) }
        });
        match finished {
            Ok(()) if is_dropped => report.drops_finished += 1,
            Ok(()) => report.drops_undone += 1,
            Err(Error::Damaged { at, what, finding, .. }) => catalog.lose(at, format!("{what}: {finding}")),
            Err(Error::Heap(HeapError::NotAllocated { at, finding })) => {
                catalog.lose(at, format!("a block of the drop of `{}`: {finding}", entry.name));
            }
            Err(Error::Heap(HeapError::ActionTooLarge { entries, .. })) => {
                catalog.lose(list, format!("a list of the drop of `{}` frees {entries} words at once", entry.name));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// As [`free_lists`], unless the lists name what a drop never frees: a page or an entry of the catalog, or a list.
fn free_own_lists(heap: &Heap, catalog: &Catalog, entry: &Entry, first: PmAddr, with_blocks: bool) -> Result<()> {
    let (lists, _) = read_lists(heap, first);
    let entries = catalog.slots.iter().filter_map(|slot| slot.entry.as_ref());
    let mut kept: HashSet<PmAddr> = catalog.pages.iter().map(|page| page.0).collect();
    kept.extend(entries.map(|entry| entry.at));
    for (at, list) in &lists {
        if let Some(block) = list.blocks.iter().chain([at]).find(|block| kept.contains(block)) {
            return Err(damaged(heap, *at, "list of a drop", format!("names {block}, a block of the catalog")));
        }
    }
    free_lists(heap, entry, first, with_blocks)
}
