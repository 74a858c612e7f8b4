//! Creating, opening and renaming objects. Each change is one action of the heap.
//!
//! *Create.* One action allocates the entry and everything that the kind makes for a new object, and sets both copies
//! of the slot to the entry. So an object and its name exist whole or not at all, and nothing of it leaks.
//!
//! *Rename.* An entry never changes its name. One action allocates a new entry, sets both copies of the slot to it and
//! frees the old one. A crash leaves one of the two names.
//!
//! When no page has room, a separate action links a new one. An empty page does no harm.

use lodestone_heap::Action;
use lodestone_pmem::sync::{MutexGuard, lock, thread};
use lodestone_pmem::{PmAddr, WORD_BYTES, planted};

use crate::catalog::{Catalog, Slot, root};
use crate::error::{Error, Result, committed};
use crate::kind::{Kind, KindCode};
use crate::layout::{Entry, NAME_BYTES_MAX, PAGE_BYTES, PageAt, SLOTS_PER_PAGE, State};
use crate::object::{Claim, Object};
use crate::salvage::{REPAIR_NAME, reserved};
use crate::store::Store;

/// Looks before an open stops waiting for a close that does not end: half a minute.
const LOOKS: u32 = if cfg!(feature = "shuttle") { 64 } else { 60_000 };

impl Store {
    /// Opens the object `name` of kind `kind`, or creates it. `make` reserves and writes its first blocks in the action
    /// that it receives, and returns the object's place. Durable on return.
    ///
    /// # Errors
    /// [`Error::InvalidName`]. [`Error::WrongKind`]. [`Error::AlreadyOpen`]. [`Error::ReadOnly`] when there is no such
    /// object and the pool is read-only. [`Error::Damaged`]. [`Error::Heap`] when there is no room. Any error of
    /// `make`.
    pub fn open_or_make<E: From<Error>>(
        &self,
        name: &str,
        kind: &'static dyn Kind,
        make: impl FnOnce(&mut Action<'_>) -> std::result::Result<PmAddr, E>,
    ) -> std::result::Result<Object, E> {
        verify_name(name)?;
        self.add_kind(kind);
        let mut catalog = lock(&self.inner.catalog);
        if name == REPAIR_NAME && !catalog.is_repairing {
            return Err(reserved(name).into());
        }
        if let Some(slot) = catalog.find(self.heap(), name)? {
            return Ok(self.claim(catalog, slot, name, Some(kind))?);
        }
        if self.memory().is_read_only() {
            return Err(self.read_only("the creation of an object").into());
        }
        let slot = self.take_slot(&mut catalog)?;
        let mut action = self.heap().action();
        let at = action.alloc(Entry::bytes(name.len())).map_err(Error::from)?;
        let object = make(&mut action)?;
        if planted::active("store-create-in-two-steps") {
            action.commit().map_err(Error::from)?;
            action = self.heap().action();
        }
        let entry = Entry { at, name: name.to_owned(), kind: kind.code().to_raw(), object };
        entry.write(self.memory());
        catalog.place(slot).point_to(&mut action, at);
        let (took_effect, outcome) = committed(action.commit());
        if took_effect {
            catalog.names.insert(name.to_owned(), slot);
            catalog.slots[slot] = Slot { entry: Some(entry), state: Some(State::Live), ..Slot::default() };
        }
        outcome?;
        let object = self.claim(catalog, slot, name, Some(kind))?;
        self.memory().durable().map_err(Error::from)?;
        Ok(object)
    }

    /// Opens the object `name`, whatever its kind. [`Store::find`] tells its kind.
    ///
    /// # Errors
    /// [`Error::NotFound`]. Otherwise as [`open_or_make`](Self::open_or_make).
    pub fn open_object(&self, name: &str) -> Result<Object> {
        let catalog = lock(&self.inner.catalog);
        match catalog.find(self.heap(), name)? {
            Some(slot) => self.claim(catalog, slot, name, None),
            None => Err(self.not_found(name)),
        }
    }

    /// Renames the object `name` to `new_name`, also while it is open. Durable on return.
    ///
    /// # Errors
    /// [`Error::NotFound`]. [`Error::Exists`] when an object has the new name. Otherwise as
    /// [`open_or_make`](Self::open_or_make).
    pub fn rename(&self, name: &str, new_name: &str) -> Result<()> {
        verify_name(new_name)?;
        if new_name == REPAIR_NAME {
            return Err(reserved(new_name));
        }
        let mut catalog = lock(&self.inner.catalog);
        let slot = catalog.find(self.heap(), name)?.ok_or_else(|| self.not_found(name))?;
        if catalog.find(self.heap(), new_name)?.is_some() {
            return Err(Error::Exists { path: self.pool().path().to_owned(), name: new_name.to_owned() });
        }
        if self.memory().is_read_only() {
            return Err(self.read_only("a rename"));
        }
        let Some(old) = catalog.slots[slot].entry.clone() else { return Err(self.not_found(name)) };
        if matches!(catalog.slots[slot].claim, Claim::Dropping) {
            return Err(self.not_found(name));
        }
        let mut action = self.heap().action();
        let entry = Entry { at: action.alloc(Entry::bytes(new_name.len()))?, name: new_name.to_owned(), ..old.clone() };
        entry.write(self.memory());
        if planted::active("store-rename-in-two-steps") {
            catalog.place(slot).point_to(&mut action, PmAddr::NULL);
            action.free(old.at)?;
            action.commit()?;
            action = self.heap().action();
            action.set(self.heap().root_word(63), 0);
            let at = action.alloc(Entry::bytes(new_name.len()))?;
            let entry = Entry { at, ..entry.clone() };
            entry.write(self.memory());
            catalog.place(slot).point_to(&mut action, at);
            action.commit()?;
            catalog.names.remove(name);
            catalog.names.insert(new_name.to_owned(), slot);
            catalog.slots[slot].entry = Some(entry);
            return Ok(());
        }
        catalog.place(slot).point_to(&mut action, entry.at);
        action.free(old.at)?;
        let (took_effect, outcome) = committed(action.commit());
        if took_effect {
            catalog.names.remove(name);
            catalog.names.insert(new_name.to_owned(), slot);
            catalog.slots[slot].entry = Some(entry);
        }
        outcome?;
        drop(catalog);
        Ok(self.memory().durable()?)
    }

    /// Claims the live object in `slot`. Waits for the end of a close that is under way.
    fn claim<'s>(
        &'s self,
        mut catalog: MutexGuard<'s, Catalog>,
        slot: usize,
        name: &str,
        kind: Option<&'static dyn Kind>,
    ) -> Result<Object> {
        for _ in 0..LOOKS {
            // While the lock was free the object may have been renamed or dropped.
            let entry = catalog.slots[slot].entry.as_ref().filter(|entry| entry.name == name);
            let Some(entry) = entry else { return Err(self.not_found(name)) };
            if let Some(kind) = kind.filter(|kind| kind.code().to_raw() != entry.kind) {
                return Err(self.wrong_kind(name, KindCode::from_raw(entry.kind), kind.title()));
            }
            let at = entry.object;
            if !self.memory().contains(at, WORD_BYTES) || !at.offset().is_multiple_of(WORD_BYTES) {
                let finding = format!("`{name}` is at {at}, where no object of the pool can be");
                return Err(crate::catalog::damaged(self.heap(), entry.at, "entry of the catalog", finding));
            }
            match &catalog.slots[slot].claim {
                Claim::Free => {
                    catalog.slots[slot].claim = Claim::Open(None);
                    return Ok(Object { store: self.clone(), slot, at, is_owner: true });
                }
                Claim::Open(_) if planted::active("store-open-twice") => {
                    return Ok(Object { store: self.clone(), slot, at, is_owner: false });
                }
                Claim::Open(Some(users)) if users.strong_count() == 0 => {}
                Claim::Dropping => return Err(self.not_found(name)),
                Claim::Open(_) => break,
            }
            drop(catalog);
            #[cfg(not(feature = "shuttle"))]
            std::thread::sleep(std::time::Duration::from_micros(500));
            thread::yield_now();
            catalog = lock(&self.inner.catalog);
        }
        drop(catalog);
        Err(Error::AlreadyOpen { path: self.pool().path().to_owned(), name: name.to_owned() })
    }

    /// Returns an unused slot. Adds a page when all are taken.
    fn take_slot(&self, catalog: &mut Catalog) -> Result<usize> {
        if let Some(slot) = catalog.free_slot() {
            return Ok(slot);
        }
        let mut action = self.heap().action();
        let page = PageAt(action.alloc(PAGE_BYTES)?);
        page.write_empty(self.memory());
        let link = catalog.pages.last().map_or_else(|| root(self.heap()), |last| last.link());
        link.point_to(&mut action, page.0);
        let (took_effect, outcome) = committed(action.commit());
        let slot = catalog.slots.len();
        if took_effect {
            catalog.pages.push(page);
            catalog.slots.resize_with(slot + SLOTS_PER_PAGE, Slot::default);
        }
        outcome.map(|()| slot)
    }

    pub(crate) fn not_found(&self, name: &str) -> Error {
        Error::NotFound { path: self.pool().path().to_owned(), name: name.to_owned() }
    }

    pub(crate) fn read_only(&self, what: &'static str) -> Error {
        Error::ReadOnly { path: self.pool().path().to_owned(), what }
    }

    /// The error for an object that was opened as another kind.
    #[must_use]
    pub fn wrong_kind(&self, name: &str, found: KindCode, wanted: &str) -> Error {
        let found =
            self.find_kind(found).map_or_else(|| format!("of the unknown kind {found}"), |kind| kind.title().into());
        Error::WrongKind {
            path: self.pool().path().to_owned(),
            name: name.to_owned(),
            found,
            wanted: wanted.to_owned(),
        }
    }
}

/// Whether an object may have this name.
pub(crate) fn verify_name(name: &str) -> Result<()> {
    let finding = match name {
        "" => "it is empty",
        _ if name.len() > NAME_BYTES_MAX => "it is too long",
        _ if name.contains('/') => "`/` separates an object from what is inside of it",
        _ if name.chars().any(char::is_control) => "it has a control character",
        _ => return Ok(()),
    };
    Err(Error::InvalidName { name: name.to_owned(), finding })
}
