//! Maps from byte strings to byte strings over any ordered index of words: the index maps each key to the address of
//! its record.
//!
//! Each change of the index is a separate atomic operation, and actions of the heap allocate and free the record's
//! block. No single step does both, so an *intent* on the medium joins them. The keys fall into stripes. A stripe has a
//! lock in DRAM and one intent: two words, `new` and `old`.
//!
//! *Put.* Under the stripe's lock: 1. the record is written at a reserved place and flushed; `old` is what the index
//! names. 2. One action allocates the record and sets the intent to (`new`, `old`): from here the intent owns the
//! record. 3. The index is told: key to `new`. 4. One action frees `old` and clears the intent. Without an old record
//! step 4 is a store that need not last.
//!
//! *Remove.* The same with `new` null: the intent, the index's removal, the action that frees and clears.
//!
//! *Open.* For each intent that is set, the record it names (`new`, else `old`) identifies the key. The index then
//! shows whether step 3 happened: then `old` is freed, else `new` (a removal: nothing). The same action clears the
//! intent. The work is bounded by the number of intents, whatever the size of the map.
//!
//! Why nothing leaks and nothing is freed twice, in every crash state:
//! - before step 2 nothing is allocated; step 2 is atomic, so an allocated record is named by an intent;
//! - step 3 is atomic, and the index keeps the order of what is fenced: the index names `old` or `new`, never anything
//!   else, because the stripe's lock keeps other changes of the key away until the intent is cleared, persistently;
//! - so while an intent is set, exactly one of the two records is the index's and the other one the intent's. Step 4
//!   and the recovery free the intent's one and clear the intent in one action: after it no intent names the freed
//!   block, and no later recovery does it again. A crash inside recovery leaves some intents cleared and the others as
//!   they were;
//! - an intent that owns nothing (a new key's that the index has, a removal that did not happen) may outlive its end on
//!   the medium: recovery finds nothing to free in it, and the next change of its stripe sets both words before it can
//!   free the record that the intent names;
//! - the records that an intent names stay allocated while it is set, so the key can always be read from them.
//!
//! *Readers* take no lock: they pin, ask the index, and read the record. A freed record is not allocated again before
//! they left (`reclaim`). Key and value are verified, and the key must be the one asked for.
//!
//! *Durability* is the index's: with `Sync`, a change is reported, and a read returns, only data that would survive.
//! The later step 4 needs no waiting: recovery would do it again. So a stripe's lock is held while the index waits for
//! a device; stripes are many.
//!
//! *Cost* in addition to the index's own change: two actions for a put over an old record, one action and a store for a
//! new key. [`OrderedMap`](crate::OrderedMap) needs one action in all and remains the default. This map is for callers
//! that want an index's other properties.
//!
//! An intent that cannot be resolved, because a record or the index is damaged there, stays: changes of its stripe are
//! refused, reads and other stripes go on, and the check names it.
//!
//! Files: `table` (the intents), `change`, `read`, `check`, `kind` (which indexes, and opening by name).

mod change;
mod check;
mod kind;
mod read;
pub(crate) mod table;

use crossbeam_utils::CachePadded;
use lodestone_heap::Heap;

use lodestone_pmem::sync::{Mutex, lock};
use lodestone_pmem::{PmAddr, checked, planted};
use lodestone_store::{Object, Store};
use lodestone_width::to_usize;

pub use kind::{IndexKind, RecordIndex, open_records};
pub(crate) use kind::{index_of, open_records_object};

use self::table::{INTENTS_MAX, IntentAt, intent_bytes};
use crate::anchor::{self, ANCHOR_BYTES, Anchor, AnchorAt, AnchorKind, First};
use crate::error::{Error, Result};
use crate::kinds::INDEXED_RECORDS;
use crate::map::Durability;
use crate::medium::IndexMemory;
use crate::reclaim::Readers;

pub(crate) const KIND: AnchorKind =
    AnchorKind { magic: u64::from_le_bytes(*b"LDSTIRMP"), version: 3, kind: &INDEXED_RECORDS };

/// How to create a map over an index. An existing one keeps what it was created with.
///
/// ```
/// use lodestone_index::{Durability, FastFair, FastFairOptions, IndexedRecords, RecordMap, RecordsOptions};
/// use lodestone_pmem::{DomainChoice, PoolOptions};
/// use lodestone_store::Store;
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.pool");
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// let store = Store::create(&path, &options)?;
/// let mut chosen = RecordsOptions::new(FastFairOptions::default());
/// chosen.stripes = 8; // an open looks at eight intents only
/// let map = IndexedRecords::<FastFair<[u8]>>::open(&store, "map", &chosen, Durability::Sync)?;
/// assert!(!map.insert(b"key", b"value")?, "nothing was replaced");
/// # Ok::<(), lodestone_index::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RecordsOptions<O> {
    /// Stripes of keys, 1 to 1024: so many changes can be under way at once, and so many intents an open looks at.
    pub stripes: usize,
    /// How the index is made.
    pub index: O,
}

impl<O> RecordsOptions<O> {
    /// 64 stripes over an index made so.
    pub fn new(index: O) -> Self {
        Self { stripes: 64, index }
    }
}

impl<O: Default> Default for RecordsOptions<O> {
    fn default() -> Self {
        Self::new(O::default())
    }
}

/// A durable ordered map from byte strings to byte strings over the index `I`; see the module text for the protocol,
/// and
/// [`RecordMap`](crate::RecordMap) for the operations. Share it by reference or [`Arc`](std::sync::Arc).
///
/// ```
/// use lodestone_store::Store;
/// use lodestone_index::{Durability, FastFair, IndexedRecords, RecordMap, RecordsOptions};
/// use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
///
/// let folder = tempfile::tempdir()?;
/// let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// let pool = Pool::create(folder.path().join("example.pool"), &options)?;
/// let store = Store::over(&pool)?;
/// let map = IndexedRecords::<FastFair<[u8]>>::open(&store, "capitals", &RecordsOptions::default(), Durability::Sync)?;
/// map.insert(b"France", b"Paris")?;
/// assert_eq!(map.get(b"France")?.as_deref(), Some(&b"Paris"[..]));
/// assert!(map.remove(b"France")?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct IndexedRecords<I> {
    heap: Heap,
    anchor: Anchor,
    index: I,
    intents: PmAddr,
    /// Whether an intent could not be resolved, per stripe; held while a key of the stripe changes.
    stripes: Box<[CachePadded<Mutex<bool>>]>,
    readers: Readers,
}

impl<I> std::fmt::Debug for IndexedRecords<I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let stripes = self.stripes.len();
        f.debug_struct("IndexedRecords")
            .field("anchor", &self.anchor)
            .field("stripes", &stripes)
            .finish_non_exhaustive()
    }
}

/// Stripes and kind of index, from the options word of an anchor.
pub(crate) fn decode_options(medium: IndexMemory<'_>, at: PmAddr, options: u32) -> Result<(usize, IndexKind)> {
    let stripes = to_usize(options & 0xFFFF);
    match IndexKind::from_code(options >> 16) {
        Some(kind) if (1..=INTENTS_MAX).contains(&stripes) => Ok((stripes, kind)),
        _ => Err(medium.damaged(at, "anchor of a map over an index", format!("options {options:#x}"))),
    }
}

impl<I: RecordIndex> IndexedRecords<I> {
    /// Opens the map `name`, or creates it together with its index. Completes changes that a crash interrupted. Durable
    /// on return.
    ///
    /// # Errors
    /// As [`OpenIndex::open_index`](crate::OpenIndex::open_index); [`Error::WrongKind`] also when the map is over
    /// another index.
    ///
    /// # Panics
    /// When the options ask for no stripe or more than 1024.
    pub fn open(
        store: &Store,
        name: &str,
        options: &RecordsOptions<I::Options>,
        durability: Durability,
    ) -> Result<Self> {
        assert!((1..=INTENTS_MAX).contains(&options.stripes), "1 to 1024 stripes");
        let heap = store.heap();
        let code = u32::try_from(options.stripes).unwrap_or(u32::MAX) | I::KIND.code() << 16;
        let anchor = anchor::open(store, name, &KIND, code, |action, owner| {
            let table = action.alloc(intent_bytes(options.stripes))?;
            table::write_empty(heap.memory(), table, options.stripes);
            let index = I::make_below(heap, action, owner, &options.index)?;
            // A checked word holds an address as it holds a number.
            Ok(First { head: table, second: checked::addr_payload(index) })
        })?;
        let map = Self::attach(heap, anchor, name, &options.index, durability)?;
        heap.memory().durable()?;
        Ok(map)
    }

    /// Opens a map whose object is claimed already.
    pub(crate) fn open_object(object: Object, index: &I::Options, durability: Durability) -> Result<Self> {
        let (heap, at, name) = (object.heap().clone(), object.at(), object.name());
        let anchor = anchor::attach(&heap, &KIND, at, Some(object))?;
        Self::attach(&heap, anchor, &name, index, durability)
    }

    fn attach(heap: &Heap, anchor: Anchor, name: &str, index: &I::Options, durability: Durability) -> Result<Self> {
        let (pool, memory) = (heap.pool(), heap.memory());
        let medium = IndexMemory::of(heap, anchor.at);
        let (stripes, kind) = decode_options(medium, anchor.at, anchor.options)?;
        if kind != I::KIND {
            let (found, wanted) = [kind, I::KIND].map(|kind| format!("a map over the index {kind}")).into();
            return Err(Error::WrongKind { path: pool.path().to_owned(), name: name.to_owned(), found, wanted });
        }
        let words = AnchorAt(anchor.at);
        let intents = medium.link(words.head(), "link to the intents of a map", intent_bytes(stripes))?;
        if intents.is_null() {
            return Err(medium.damaged(words.head(), "link to the intents of a map", "leads nowhere"));
        }
        IntentAt::new(intents, 0, stripes).compare_stripes(medium)?;
        let below = medium.link(words.second(), "link to the index of a map", ANCHOR_BYTES)?;
        let index = I::open_below(heap, below, index, durability)?;
        let stripes = (0..stripes).map(|_| CachePadded::new(Mutex::new(false))).collect();
        let map = Self { heap: heap.clone(), anchor, index, intents, stripes, readers: Readers::new(heap) };
        if !memory.is_read_only() {
            map.recover();
        }
        Ok(map)
    }

    /// Resolves every intent that a crash left; one that cannot be resolved closes its stripe to changes.
    fn recover(&self) {
        if planted::active("records-no-recovery") {
            return;
        }
        for (number, stripe) in self.stripes.iter().enumerate() {
            *lock(stripe) = self.resolve(self.intent(number)).is_err();
        }
    }
}

impl<I> IndexedRecords<I> {
    /// The index below; changing it past the map would lose records.
    pub fn index(&self) -> &I {
        &self.index
    }

    fn medium(&self) -> IndexMemory<'_> {
        IndexMemory::of(&self.heap, self.anchor.at)
    }

    fn intent(&self, stripe: usize) -> IntentAt {
        IntentAt::new(self.intents, stripe, self.stripes.len())
    }
}
