//! Opening a store: the heap of a pool, and the names in it.

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use lodestone_heap::{Heap, HeapOptions};
use lodestone_pmem::sync::{Mutex, lock};
use lodestone_pmem::{Memory, PmAddr, Pool, PoolOptions};
use lodestone_width::to_u64;

use crate::catalog::Catalog;
use crate::discard;
use crate::error::Result;
use crate::kind::{Kind, KindCode, Kinds};

/// How to open a store.
///
/// ```
/// use lodestone_pmem::{DomainChoice, PoolOptions};
/// use lodestone_store::{Store, StoreOptions};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.pool");
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// use lodestone_heap::HeapOptions;
/// use lodestone_pmem::Pool;
///
/// // Small chunks: a test of a few objects reaches the limits of the heap.
/// let pool = Pool::create(&path, &options)?;
/// let store = Store::over_with(&pool, &StoreOptions::with_heap(HeapOptions::small()))?;
/// assert_eq!(store.heap().usage().chunk_bytes, 1024);
/// # Ok::<(), lodestone_store::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StoreOptions {
    /// How the heap is made and used.
    pub heap: HeapOptions,
    /// The kinds that the store knows from the start: the registered ones. Opening an object by its type adds its kind.
    pub kinds: Kinds,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self { heap: HeapOptions::default(), kinds: Kinds::registered() }
    }
}

impl StoreOptions {
    /// Options with this heap.
    #[must_use]
    pub fn with_heap(heap: HeapOptions) -> Self {
        Self { heap, ..Self::default() }
    }
}

/// The findings of an open, and the work it finished.
///
/// ```
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # use lodestone_store::Store;
/// # let folder = tempfile::tempdir().unwrap();
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let store = Store::create(folder.path().join("a.pool"), &options)?;
/// let recovery = store.recovery();
/// assert_eq!((recovery.drops_finished, recovery.copies_healed), (0, 0), "nothing was cut short or damaged");
/// # Ok::<(), lodestone_store::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreRecovery {
    /// Drops that a crash cut short, and that were finished.
    pub drops_finished: u64,
    /// Drops that a crash cut short before they had begun. Those objects keep their names.
    pub drops_undone: u64,
    /// Words and entries of the catalog that were rewritten from their other copy.
    pub copies_healed: u64,
}

/// The one owner of the content of a pool: its heap, and named objects. It is cheap to clone, and any number of threads
/// may use it.
///
/// Maps, indexes and transactional memories are opened in a store, by name. There is one store for a pool at a time, so
/// nothing in the pool has two owners.
///
/// ```
/// use lodestone_pmem::{DomainChoice, PoolOptions};
/// use lodestone_store::Store;
///
/// let folder = tempfile::tempdir()?;
/// let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// let store = Store::create(folder.path().join("a.pool"), &options)?;
/// assert!(store.names().is_empty());
/// // A second owner is refused.
/// assert!(Store::over(store.pool()).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Store {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) heap: Heap,
    pub(crate) catalog: Mutex<Catalog>,
    kinds: RwLock<Kinds>,
    recovery: StoreRecovery,
}

/// A named object of a store.
///
/// ```
/// use lodestone_pmem::{DomainChoice, PoolOptions};
/// use lodestone_store::{KindCode, Store};
/// # use lodestone_store::{Acknowledge, Contents, Kind, KindError, Object, Records};
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
/// let log = make("log")?;
/// let named = store.find("log")?.unwrap();
/// assert_eq!((named.kind, named.title, named.at), (KindCode(*b"MLOG"), Some("a log"), log.at()));
/// store.rename("log", "journal")?;
/// assert_eq!(store.names()[0].name, "journal");
/// # Ok::<(), lodestone_store::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Named {
    /// Its name.
    pub name: String,
    /// Code of its kind.
    pub kind: KindCode,
    /// The kind in words; `None` when the store does not know it.
    pub title: Option<&'static str>,
    /// Its place.
    pub at: PmAddr,
}

impl Store {
    /// Makes a pool at `path` and opens its store.
    ///
    /// # Errors
    /// As [`Pool::create`] and [`over`](Self::over).
    pub fn create(path: impl AsRef<Path>, options: &PoolOptions) -> Result<Self> {
        Self::over(&Pool::create(path, options)?)
    }

    /// Opens the pool at `path` and its store.
    ///
    /// # Errors
    /// As [`Pool::open`] and [`over`](Self::over).
    pub fn open(path: impl AsRef<Path>, options: &PoolOptions) -> Result<Self> {
        Self::over(&Pool::open(path, options)?)
    }

    /// Opens the pool at `path` and its store for reading. Changes nothing.
    ///
    /// # Errors
    /// As [`Pool::open_read_only`] and [`over`](Self::over).
    pub fn open_read_only(path: impl AsRef<Path>, options: &PoolOptions) -> Result<Self> {
        Self::over(&Pool::open_read_only(path, options)?)
    }

    /// As [`open`](Self::open), or [`create`](Self::create) where there is no file.
    ///
    /// # Errors
    /// As both.
    pub fn open_or_create(path: impl AsRef<Path>, options: &PoolOptions) -> Result<Self> {
        Self::over(&Pool::open_or_create(path, options)?)
    }

    /// Opens the store of an open pool. Formats it on first use.
    ///
    /// # Errors
    /// When the pool has a store or heap already ([`lodestone_heap::Error::AlreadyOpen`]), the heap cannot be opened,
    /// or both links to the first page of the catalog are damaged. Other damage is named by [`check`](Self::check).
    pub fn over(pool: &Pool) -> Result<Self> {
        Self::over_with(pool, &StoreOptions::default())
    }

    /// As [`over`](Self::over), with options. Finishes the drops that a crash cut short. The time is bounded by the
    /// size of the objects that were being dropped.
    ///
    /// # Errors
    /// As [`over`](Self::over).
    pub fn over_with(pool: &Pool, options: &StoreOptions) -> Result<Self> {
        let heap = Heap::open(pool, &options.heap)?;
        let mut catalog = Catalog::read(&heap)?;
        let healed = to_u64(catalog.damage.iter().filter(|damage| damage.is_healed).count());
        let mut recovery = StoreRecovery { copies_healed: healed, ..StoreRecovery::default() };
        if !heap.memory().is_read_only() {
            discard::recover(&heap, &mut catalog, &mut recovery)?;
        }
        let kinds = RwLock::new(options.kinds.clone());
        Ok(Self { inner: Arc::new(Inner { heap, catalog: Mutex::new(catalog), kinds, recovery }) })
    }

    /// The heap that the store uses.
    #[must_use]
    #[inline]
    pub fn heap(&self) -> &Heap {
        &self.inner.heap
    }

    /// The pool that the store uses.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        self.inner.heap.pool()
    }

    /// The pool's memory.
    #[must_use]
    #[inline]
    pub fn memory(&self) -> &Memory {
        self.inner.heap.memory()
    }

    /// The findings of the open, and the work it finished.
    #[must_use]
    pub fn recovery(&self) -> StoreRecovery {
        self.inner.recovery
    }

    /// Adds a kind that the program knows.
    ///
    /// # Panics
    /// When another kind has the same code.
    pub fn add_kind(&self, kind: &'static dyn Kind) {
        if self.find_kind(kind.code()).is_none() {
            self.inner.kinds.write().unwrap_or_else(PoisonError::into_inner).add(kind);
        }
    }

    /// Every kind that this store knows.
    pub(crate) fn kinds(&self) -> Vec<&'static dyn Kind> {
        self.inner.kinds.read().unwrap_or_else(PoisonError::into_inner).iter().collect()
    }

    /// The kind with this code, if the program knows it.
    #[must_use]
    pub fn find_kind(&self, code: KindCode) -> Option<&'static dyn Kind> {
        self.inner.kinds.read().unwrap_or_else(PoisonError::into_inner).find(code)
    }

    /// Every named object, by name.
    #[must_use]
    pub fn names(&self) -> Vec<Named> {
        let catalog = lock(&self.inner.catalog);
        let named = |slot: &usize| {
            let entry = catalog.slots[*slot].entry.as_ref()?;
            let kind = KindCode::from_raw(entry.kind);
            let title = self.find_kind(kind).map(Kind::title);
            Some(Named { name: entry.name.clone(), kind, title, at: entry.object })
        };
        catalog.names.values().filter_map(named).collect()
    }

    /// The object called `name`.
    ///
    /// # Errors
    /// [`Error::Damaged`](crate::Error::Damaged) when the catalog is damaged, and the object may be one of the lost
    /// ones.
    pub fn find(&self, name: &str) -> Result<Option<Named>> {
        let known = lock(&self.inner.catalog).find(self.heap(), name)?;
        Ok(known.and_then(|_| self.names().into_iter().find(|named| named.name == name)))
    }

    /// The kind of an opened object.
    ///
    /// # Errors
    /// [`Error::UnknownKind`](crate::Error::UnknownKind).
    pub fn kind_of(&self, object: &crate::Object) -> Result<&'static dyn Kind> {
        let code = lock(&self.inner.catalog).slots[object.slot].entry.as_ref().map_or(0, |entry| entry.kind);
        let code = KindCode::from_raw(code);
        self.find_kind(code).ok_or_else(|| crate::Error::UnknownKind {
            path: self.pool().path().to_owned(),
            name: object.name(),
            kind: code.to_string(),
        })
    }

    /// The present name of the object in `slot`.
    pub(crate) fn name_of(&self, slot: usize) -> String {
        let catalog = lock(&self.inner.catalog);
        catalog.slots[slot].entry.as_ref().map(|entry| entry.name.clone()).unwrap_or_default()
    }
}
