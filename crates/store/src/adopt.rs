//! Objects whose names are lost. A repair that accepts loss names them again.
//!
//! Both copies of an entry are in one block, so a lost page can take a name. It does not take the object: the first
//! block of an object says what it is. A block is allocated in the action that names the object, and freed in its drop.
//!
//! 1. Only a catalog with damage that no copy heals is looked at. All else in it was compared when it was read.
//! 2. Each kind looks for its objects among the allocated blocks. Those that an entry leads to are left out.
//! 3. One action for each other object makes an entry, `lost-` and its address, and sets a lost slot to it. Where no
//!    slot is lost or free, a new page goes in front of the others, because the link at their end may be lost.
//! 4. Then the other lost slots and the link become empty, one action each. Not so where more entries are lost than
//!    objects were found: a kind that does not recognise its object must not lose its blocks.
//!
//! Invariant: while an object has no name, the damage that took it is still there. So a crash in between leaves enough
//! for the next repair to go on. Only then is a block without an owner free.
//!
//! A drop that a crash cut short, and whose entry is lost too, comes back as what was not yet freed of it.

use std::collections::BTreeSet;

use lodestone_pmem::sync::{MutexGuard, lock};
use lodestone_pmem::{PmAddr, planted};
use serde::Serialize;

use crate::catalog::{Catalog, Slot, root};
use crate::error::{Result, committed};
use crate::kind::Kind;
use crate::layout::{Entry, Found, PAGE_BYTES, PageAt, State};
use crate::store::Store;

/// An object whose name was lost.
///
/// ```
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # use lodestone_store::Store;
/// # let folder = tempfile::tempdir().unwrap();
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let store = Store::create(folder.path().join("a.pool"), &options)?;
/// // A repair that accepts loss tells them. This pool has lost no name.
/// let report = store.repair_accepting_loss(&mut |step| println!("{step}"))?;
/// assert!(report.adopted.is_empty());
/// # Ok::<(), lodestone_store::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Adopted {
    /// Its name from now on.
    pub name: String,
    /// Its kind.
    pub kind: String,
}

/// A name for the object at `at`, whose own name is lost.
fn free_name(catalog: &Catalog, at: PmAddr) -> String {
    let name = format!("lost-{:x}", at.to_raw());
    let is_free = |name: &String| catalog.slots.iter().all(|slot| slot.entry.as_ref().is_none_or(|e| e.name != *name));
    let names = std::iter::once(name.clone()).chain((2_u64..).map(|number| format!("{name}-{number}")));
    names.into_iter().find(is_free).unwrap_or(name)
}

/// The result of [`Store::adopt`].
pub(crate) enum Adoption {
    /// Nothing was lost, or everything has a name again.
    Whole(Vec<Adopted>),
    /// Some objects have a name again. The reason why there must be others, which keep their blocks.
    Partial(Vec<Adopted>, String),
}

impl Store {
    /// Names every object whose name is lost, then removes what is lost from the catalog. No object may be open.
    pub(crate) fn adopt(&self) -> Result<Adoption> {
        let mut catalog = lock(&self.inner.catalog);
        if catalog.damage.iter().all(|damage| damage.is_healed) {
            return Ok(Adoption::Whole(Vec::new()));
        }
        let (lost, nameless) = (self.lost_entries(&catalog), self.nameless(&catalog));
        let is_whole = nameless.len() >= lost;
        if is_whole && planted::active("store-forgets-damage-first") {
            // Planted: nothing tells the next repair that objects have no name.
            self.clear_lost(&mut catalog)?;
        }
        let mut adopted = Vec::new();
        for &(at, kind) in &nameless {
            let name = free_name(&catalog, at);
            self.enter(&mut catalog, &name, kind, at)?;
            adopted.push(Adopted { name, kind: kind.title().to_owned() });
        }
        if is_whole {
            self.clear_lost(&mut catalog)?;
        }
        *catalog = Catalog::read(self.heap())?;
        drop(catalog);
        self.memory().durable()?;
        if is_whole {
            return Ok(Adoption::Whole(adopted));
        }
        let found = nameless.len();
        Ok(Adoption::Partial(
            adopted,
            format!("{lost} names are lost, and only {found} objects without one were found"),
        ))
    }

    /// Entries that certainly led to an object, and do not verify.
    fn lost_entries(&self, catalog: &Catalog) -> usize {
        (0..catalog.slots.len()).filter(|slot| self.led_to_an_object(catalog, *slot)).count()
    }

    fn led_to_an_object(&self, catalog: &Catalog, slot: usize) -> bool {
        let found = &catalog.slots[slot];
        found.is_lost && found.entry.is_none() && !matches!(catalog.place(slot).read(self.memory()), Found::Lost(_))
    }

    /// Slots that are lost: first those that certainly led to an object.
    fn lost_slots(&self, catalog: &Catalog) -> Vec<usize> {
        let mut slots: Vec<usize> = (0..catalog.slots.len()).filter(|slot| catalog.slots[*slot].is_lost).collect();
        slots.sort_by_key(|slot| !self.led_to_an_object(catalog, *slot));
        slots
    }

    /// Objects that no entry leads to.
    fn nameless(&self, catalog: &Catalog) -> Vec<(PmAddr, &'static dyn Kind)> {
        let sound = catalog.slots.iter().filter(|slot| !slot.is_lost).filter_map(|slot| slot.entry.as_ref());
        let named: BTreeSet<PmAddr> = sound.map(|entry| entry.object).collect();
        let kinds = self.kinds();
        let mut found = Vec::new();
        self.heap().for_each_block(|at, _| {
            if !named.contains(&at)
                && let Some(kind) = kinds.iter().find(|kind| kind.begins_at(self.heap(), at))
            {
                found.push((at, *kind));
            }
        });
        found
    }

    /// Names the object at `at`.
    fn enter(
        &self,
        catalog: &mut MutexGuard<'_, Catalog>,
        name: &str,
        kind: &'static dyn Kind,
        at: PmAddr,
    ) -> Result<()> {
        let slot = match self.lost_slots(catalog).first() {
            // Together, so that after a crash as many entries are lost as objects have no name.
            Some(slot) => *slot,
            None => {
                if catalog.free_slot().is_none() {
                    self.add_page_in_front(catalog)?;
                }
                catalog.free_slot().ok_or_else(|| self.not_found(name))?
            }
        };
        let mut action = self.heap().action();
        let entry = Entry {
            at: action.alloc(Entry::bytes(name.len()))?,
            name: name.to_owned(),
            kind: kind.code().to_raw(),
            object: at,
        };
        entry.write(self.memory());
        catalog.place(slot).point_to(&mut action, entry.at);
        let (took_effect, outcome) = committed(action.commit());
        if took_effect {
            catalog.slots[slot] = Slot { entry: Some(entry), state: Some(State::Live), ..Slot::default() };
        }
        outcome
    }

    fn add_page_in_front(&self, catalog: &mut MutexGuard<'_, Catalog>) -> Result<()> {
        let Some(first) = catalog.pages.first().copied() else { return Ok(()) };
        let mut action = self.heap().action();
        let page = PageAt(action.alloc(PAGE_BYTES)?);
        page.write_empty(self.memory());
        page.link().point_to(&mut action, first.0);
        root(self.heap()).point_to(&mut action, page.0);
        let (_, outcome) = committed(action.commit());
        outcome?;
        // With the new page first, as on the medium.
        **catalog = Catalog::read(self.heap())?;
        Ok(())
    }

    /// Empties every slot, and the link, that is lost.
    fn clear_lost(&self, catalog: &mut MutexGuard<'_, Catalog>) -> Result<()> {
        let lost = self.lost_slots(catalog);
        let slots = lost.iter().map(|slot| catalog.place(*slot));
        let end = catalog.pages.last().map(|page| page.link());
        let end = end.filter(|link| !matches!(link.read(self.memory()), Found::Payload(0, _)));
        for place in slots.chain(end) {
            let mut action = self.heap().action();
            place.point_to(&mut action, PmAddr::NULL);
            let (_, outcome) = committed(action.commit());
            outcome?;
        }
        lost.iter().for_each(|slot| catalog.slots[*slot] = Slot::default());
        Ok(())
    }
}
