//! An opened object: its place, and the claim that keeps everybody else away from it.
//!
//! Two openings of one object in one process would each keep their own state in DRAM and destroy the object. So an
//! [`Object`] is a claim: a second open of the name is an error while it lives, and so is a drop. The claim is on the
//! object, not on the name: an object can be renamed while it is open.
//!
//! An object whose last user has gone may still be closing, on another thread. It says so by an [`InUse`]: while the
//! claim lives and no `InUse` does, an open waits for the end of the close instead of failing.

use std::sync::{Arc, Weak};

use lodestone_heap::Heap;
use lodestone_pmem::sync::lock;
use lodestone_pmem::{Memory, PmAddr};

use crate::store::Store;

/// Who has an object.
#[derive(Clone, Debug, Default)]
pub(crate) enum Claim {
    /// Nobody.
    #[default]
    Free,
    /// An [`Object`]; with the users of one that closes later than its last user goes.
    Open(Option<Weak<()>>),
    /// A drop that is under way.
    Dropping,
}

/// An opened object; the claim on it ends when this is dropped.
#[derive(Debug)]
pub struct Object {
    pub(crate) store: Store,
    pub(crate) slot: usize,
    pub(crate) at: PmAddr,
    /// Whether the claim is this one's; the objects that a drop examines are the drop's.
    pub(crate) is_owner: bool,
}

/// Somebody may use the object. See the module.
#[derive(Clone, Debug)]
pub struct InUse {
    _count: Arc<()>,
}

impl Object {
    /// Where the object is: what its creation returned.
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

    /// Says that the object is used by others than the holder of the claim; see the module.
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
