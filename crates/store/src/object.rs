//! An opened object: its place, and the claim that excludes every other user.
//!
//! Two openings of one object in one process would each keep their own state in DRAM and destroy the object. So an
//! [`Object`] is a claim: while it lives, a second open of the name is an error, and so is a drop. The claim is on the
//! object, not on the name. An object can be renamed while it is open.
//!
//! An object may still be closing on another thread after its last user has gone. It shows this by an [`InUse`]: while
//! the claim lives and no `InUse` does, an open waits for the end of the close instead of failing.

use std::sync::{Arc, Weak};

use lodestone_heap::Heap;
use lodestone_pmem::sync::lock;
use lodestone_pmem::{Memory, PmAddr};

use crate::store::Store;

/// The owner of an object.
#[derive(Clone, Debug, Default)]
pub(crate) enum Claim {
    /// No owner.
    #[default]
    Free,
    /// An [`Object`], with its users if it closes later than the last of them goes.
    Open(Option<Weak<()>>),
    /// A drop that is under way.
    Dropping,
}

/// An opened object. The claim on it ends when this is dropped.
///
/// ```
/// use lodestone_pmem::{DomainChoice, PoolOptions};
/// use lodestone_store::{Object, Store};
/// # use lodestone_store::{Acknowledge, Contents, Kind, KindCode, KindError, Records};
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
/// let log: Object = make("log")?;
/// assert!(make("log").is_err(), "it is open");
/// log.memory().store(log.at(), 7);
/// log.memory().persist(log.at(), 8);
/// drop(log);
/// assert_eq!(store.memory().load(make("log")?.at()), 7);
/// # Ok::<(), lodestone_store::Error>(())
/// ```
#[derive(Debug)]
pub struct Object {
    pub(crate) store: Store,
    pub(crate) slot: usize,
    pub(crate) at: PmAddr,
    /// Whether the claim belongs to this object. The objects that a drop examines belong to the drop.
    pub(crate) is_owner: bool,
}

/// A user of the object. See the module.
///
/// ```
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # use lodestone_store::Store;
/// # let folder = tempfile::tempdir().unwrap();
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let store = Store::create(folder.path().join("a.pool"), &options)?;
/// # use lodestone_store::{Acknowledge, Contents, Kind, KindCode, KindError, Object, Records};
/// #
/// # #[derive(Debug)]
/// # struct Counter;
/// #
/// # impl Kind for Counter {
/// #     fn code(&self) -> KindCode {
/// #         KindCode(*b"MCNT")
/// #     }
/// #
/// #     fn title(&self) -> &'static str {
/// #         "a counter"
/// #     }
/// #
/// #     fn examine(&self, counter: Object) -> Result<Contents, KindError> {
/// #         Ok(Contents { records: 1, blocks: vec![(counter.at(), 8)], ..Contents::default() })
/// #     }
/// #
/// #     fn records(&self, _: Object, _: Option<&str>, _: Acknowledge) -> Result<Box<dyn Records>, KindError> {
/// #         Err("a counter has no records".into())
/// #     }
/// # }
/// # static COUNTER: Counter = Counter;
/// let open = || store.open_or_make::<lodestone_store::Error>("hits", &COUNTER, |action| Ok(action.alloc_zeroed(8)?));
/// let hits = open()?;
/// let in_use = hits.in_use();
/// drop((in_use, hits)); // the last user first
/// assert!(open().is_ok());
/// # Ok::<(), lodestone_store::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct InUse {
    _count: Arc<()>,
}

impl Object {
    /// The place of the object, as its creation returned it.
    #[must_use]
    #[inline]
    pub fn at(&self) -> PmAddr {
        self.at
    }

    /// The store that it is in.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The heap that it is in.
    #[must_use]
    #[inline]
    pub fn heap(&self) -> &Heap {
        self.store.heap()
    }

    /// The pool's memory.
    #[must_use]
    #[inline]
    pub fn memory(&self) -> &Memory {
        self.store.heap().memory()
    }

    /// The name that the object has at present.
    #[must_use]
    pub fn name(&self) -> String {
        self.store.name_of(self.slot)
    }

    /// Marks the object as used by others than the holder of the claim. See the module.
    #[must_use]
    pub fn in_use(&self) -> InUse {
        let count = Arc::new(());
        if self.is_owner {
            lock(&self.store.inner.catalog).slots[self.slot].claim = Claim::Open(Some(Arc::downgrade(&count)));
        }
        InUse { _count: count }
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        if self.is_owner {
            lock(&self.store.inner.catalog).slots[self.slot].claim = Claim::Free;
        }
    }
}
