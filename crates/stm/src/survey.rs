//! Objects without their links, for a salvage: every live object of the memory, and the roots that survive.
//!
//! A cell says by itself whether an object is in it: its newest version that counts is there and does not say
//! "deleted". A free of an object is such a version, in the transaction that removed the last link to it. So an object
//! that was freed does not come back here, whatever its bytes are. An object with a version that fails its checksum,
//! where no crash explains that, is not shown: the broken version may be the newer one.

use lodestone_pmem::{PmAddr, PmPtr};
use lodestone_width::to_u64;
use zerocopy::{FromBytes, IntoBytes};

use crate::bytes::PmBytes;
use crate::error::{Error, Result};
use crate::roots::{RootEntry, System, TypeEntry};
use crate::stm::Stm;
use crate::versions::{judge, read_slot};
use lodestone_cells::CellKind;
use lodestone_cells::Version;

/// A live object.
///
/// ```
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # use lodestone_store::Store;
/// # let folder = tempfile::tempdir().unwrap();
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let store = Store::create(folder.path().join("a.pool"), &options)?;
/// # use lodestone_stm::Stm;
/// # let stm = Stm::open(&store)?;
/// stm.update(|tx| tx.alloc_bytes(b"one string"))?;
/// let mut strings = 0;
/// stm.survey(&mut |object| strings += u32::from(object.is_bytes));
/// assert!(strings >= 1);
/// # Ok::<(), lodestone_stm::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Survivor<'s> {
    /// Its address.
    pub at: PmAddr,
    /// Bytes of its cell, in which both versions are.
    pub cell_bytes: u64,
    /// Whether it is a byte string.
    pub is_bytes: bool,
    /// Its content.
    pub words: &'s [u64],
}

/// A named root.
///
/// ```
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # use lodestone_store::Store;
/// # let folder = tempfile::tempdir().unwrap();
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let store = Store::create(folder.path().join("a.pool"), &options)?;
/// # use lodestone_stm::Stm;
/// # let stm = Stm::open(&store)?;
/// use lodestone_stm::pm_object;
///
/// #[pm_object]
/// struct Account {
///     cents: u64,
/// }
///
/// stm.root::<Account>()?;
/// let roots = stm.roots_found().roots;
/// assert_eq!((roots.len(), roots[0].kind.as_str()), (1, "Account"));
/// # Ok::<(), lodestone_stm::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundRoot {
    /// Its name.
    pub name: String,
    /// Name of its object's type.
    pub kind: String,
    /// Its object.
    pub object: PmAddr,
}

/// The roots that can be read.
///
/// ```
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # use lodestone_store::Store;
/// # let folder = tempfile::tempdir().unwrap();
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let store = Store::create(folder.path().join("a.pool"), &options)?;
/// # use lodestone_stm::Stm;
/// # let stm = Stm::open(&store)?;
/// let found = stm.roots_found();
/// assert!(found.roots.is_empty() && found.damage.is_none(), "a new memory");
/// # Ok::<(), lodestone_stm::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct FoundRoots {
    /// The roots.
    pub roots: Vec<FoundRoot>,
    /// The reason why there may be more.
    pub damage: Option<Error>,
    /// Whether the memory knows types of programs. Searched for only where the list is damaged.
    pub has_own_types: bool,
}

impl Stm {
    /// Calls `visit` with every live object, by address. Call it while nothing is being committed.
    pub fn survey(&self, visit: &mut dyn FnMut(Survivor<'_>)) {
        let core = &*self.core;
        let mut scratch = Vec::new();
        for slab in core.slabs.all().into_iter().filter(|slab| slab.shape.kind != CellKind::Spill) {
            for at in slab.cells() {
                let judged = judge(&core.memory, core.timeline.lives(), slab.shape, at, &mut scratch);
                let Some((which, header)) = judged.newest else { continue };
                if judged.damaged.is_some() || header.flags.deleted {
                    continue;
                }
                let newest = read_slot(&core.memory, core.timeline.lives(), slab.shape, at, which, &mut scratch);
                if let (Version::Counts(_), Some(words)) = (newest, scratch.get(lodestone_txn::SLOT_HEADER_WORDS..)) {
                    let cell_bytes = u64::from(slab.shape.cell_bytes);
                    visit(Survivor { at, cell_bytes, is_bytes: slab.shape.kind == CellKind::Single, words });
                }
            }
        }
    }

    /// The roots of the list. Where it is damaged, also those that no link leads to: every object that is like an entry
    /// of the list, and whose name and type can be read. Call it while nothing is being committed.
    #[must_use]
    pub fn roots_found(&self) -> FoundRoots {
        match self.listed_roots() {
            Ok(roots) => FoundRoots { roots, ..FoundRoots::default() },
            Err(error) => self.surviving_roots(error),
        }
    }

    fn listed_roots(&self) -> Result<Vec<FoundRoot>> {
        let entries = self.root_entries()?;
        entries.into_iter().map(|entry| self.root_of(entry)).collect()
    }

    fn root_of(&self, entry: RootEntry) -> Result<FoundRoot> {
        let [name, kind] = [entry.name, entry.kind].map(|text| self.text(text));
        Ok(FoundRoot { name: name?, kind: kind?, object: entry.object })
    }

    fn text(&self, text: PmBytes) -> Result<String> {
        let bytes = self.snapshot(|tx| tx.read_bytes(text))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn surviving_roots(&self, damage: Error) -> FoundRoots {
        // Entries of both lists have one size.
        const WORDS: usize = size_of::<RootEntry>() / 8;
        let mut entries = Vec::new();
        self.survey(&mut |object| {
            if !object.is_bytes && object.words.len() == WORDS {
                entries.push(object.words.to_vec());
            }
        });
        let mut found = FoundRoots { damage: Some(damage), ..FoundRoots::default() };
        for words in entries {
            let Ok(entry) = RootEntry::read_from_bytes(words.as_bytes()) else { continue };
            match self.root_of(entry) {
                Ok(root) if self.is_object(root.object) => found.roots.push(root),
                _ => found.has_own_types |= self.is_own_type(&words),
            }
        }
        found
    }

    fn is_object(&self, at: PmAddr) -> bool {
        self.core.shape_at(at).is_some_and(|shape| shape.kind == CellKind::Pair)
    }

    /// Whether these words are the entry of a type that no crate of Lodestone has.
    fn is_own_type(&self, words: &[u64]) -> bool {
        let Ok(entry) = TypeEntry::read_from_bytes(words.as_bytes()) else { return false };
        let is_version = u32::try_from(entry.version).is_ok();
        is_version && self.text(entry.name).is_ok_and(|name| !name.is_empty() && !name.starts_with("lodestone."))
    }

    fn root_entries(&self) -> Result<Vec<RootEntry>> {
        self.snapshot(|tx| {
            let mut entries = Vec::new();
            let mut next = tx.read(PmPtr::<System>::new(self.core.places.system()))?.roots;
            // A circle is longer than the pool has objects.
            while !next.is_null() {
                if to_u64(entries.len()) > tx.objects_max() {
                    return Err(Error::BadPointer { at: next.addr(), finding: "a list of roots in a circle" }.into());
                }
                let entry = tx.read(next)?;
                entries.push(entry);
                next = entry.next;
            }
            Ok(entries)
        })
    }
}
