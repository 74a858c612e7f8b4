//! The catalog in DRAM: read at open, changed together with the medium.
//!
//! Every pair of copies is compared at open. Where one copy is damaged the other one counts, and in a pool that is open
//! for writing the damaged one is rewritten. Where both are damaged the name in it is unknown and counts as lost. A
//! lookup that does not find its name elsewhere then reports the damage instead of "no such object".

use std::collections::{BTreeMap, HashSet};

use lodestone_heap::Heap;
use lodestone_pmem::{PmAddr, checked};

use crate::error::{Error, Result};
use crate::layout::{Entry, Found, PAGE_BYTES, PageAt, ROOT_WORDS, ReadEntry, SLOTS_PER_PAGE, State, Twin};
use crate::object::Claim;

/// The content of one slot of a page.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    pub(crate) entry: Option<Entry>,
    pub(crate) state: Option<State>,
    /// First block of the list of a drop.
    pub(crate) list: PmAddr,
    pub(crate) claim: Claim,
    /// The slot or its entry does not verify: nothing may be put there.
    pub(crate) is_lost: bool,
}

/// Damage in the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Damage {
    pub(crate) at: PmAddr,
    pub(crate) finding: String,
    /// Whether the other copy is complete.
    pub(crate) is_healed: bool,
}

/// All names of a pool.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    pub(crate) pages: Vec<PageAt>,
    /// Slots of the pages, in order.
    pub(crate) slots: Vec<Slot>,
    /// Names of objects that are live.
    pub(crate) names: BTreeMap<String, usize>,
    pub(crate) damage: Vec<Damage>,
    /// Whether a repair is making an object, so that its name may be used.
    pub(crate) is_repairing: bool,
}

/// The root words of the heap that lead to the first page.
pub(crate) fn root(heap: &Heap) -> Twin {
    Twin(ROOT_WORDS.map(|word| heap.root_word(word)))
}

impl Catalog {
    /// Reads the catalog of `heap`. It is empty, without a page, when there is none yet.
    pub(crate) fn read(heap: &Heap) -> Result<Self> {
        let memory = heap.memory();
        let mut catalog = Self::default();
        let root = root(heap);
        // A fresh heap's root words are zero, which no checked word is.
        if root.0.into_iter().all(|at| memory.load(at) == 0) {
            return Ok(catalog);
        }
        let mut link = (root, "root words of the heap");
        let mut visited = HashSet::new();
        loop {
            let (twin, what) = link;
            let Some(payload) = catalog.twin(heap, twin, what) else {
                if catalog.pages.is_empty() {
                    return Err(damaged(heap, twin.0[0], "catalog", "both links to its first page are damaged"));
                }
                break;
            };
            let page = PageAt(checked::payload_addr(payload));
            if page.0.is_null() {
                break;
            }
            if !memory.contains(page.0, PAGE_BYTES) || !visited.insert(page) {
                catalog.lose(twin.0[0], "a link to a page leads nowhere, or in a circle");
                break;
            }
            catalog.read_page(heap, page);
            link = (page.link(), "link to a page");
        }
        Ok(catalog)
    }

    fn lose(&mut self, at: PmAddr, finding: impl Into<String>) {
        self.damage.push(Damage { at, finding: finding.into(), is_healed: false });
    }

    /// The payload of a twin word, with its damage noted and, if the pool can be written, healed.
    fn twin(&mut self, heap: &Heap, twin: Twin, what: &str) -> Option<u64> {
        match twin.read(heap.memory()) {
            Found::Payload(payload, None) => Some(payload),
            Found::Payload(payload, Some(copy)) => {
                if !heap.memory().is_read_only() {
                    twin.heal(heap.memory(), payload, copy);
                }
                let finding = format!("{what}: copy {copy} does not verify, the other one does");
                self.damage.push(Damage { at: twin.0[copy], finding, is_healed: true });
                Some(payload)
            }
            Found::Lost => {
                self.lose(twin.0[0], format!("{what}: neither copy verifies"));
                None
            }
        }
    }

    fn read_page(&mut self, heap: &Heap, page: PageAt) {
        self.pages.push(page);
        for slot in 0..SLOTS_PER_PAGE {
            let number = self.slots.len();
            self.slots.push(Slot::default());
            match self.twin(heap, page.slot(slot), "slot of the catalog").map(checked::payload_addr) {
                None => self.slots[number].is_lost = true,
                Some(at) if at.is_null() => {}
                Some(at) => match Entry::read(heap.memory(), at) {
                    Some(found) => self.enter(heap, number, found),
                    None => {
                        self.slots[number].is_lost = true;
                        self.lose(at, "entry of the catalog: neither copy verifies");
                    }
                },
            }
        }
    }

    fn enter(&mut self, heap: &Heap, number: usize, found: ReadEntry) {
        let ReadEntry { entry, state, list, damage, bad_copy } = found;
        if let Some(copy) = bad_copy
            && !heap.memory().is_read_only()
        {
            entry.heal(heap.memory(), copy, state, list);
        }
        let at = entry.at;
        self.damage.extend(damage.into_iter().map(|finding| Damage { at, finding, is_healed: true }));
        if state == State::Live && self.names.contains_key(&entry.name) {
            self.lose(at, format!("two objects are called `{}`", entry.name));
        } else if state == State::Live {
            self.names.insert(entry.name.clone(), number);
        }
        let slot = &mut self.slots[number];
        (slot.entry, slot.state, slot.list) = (Some(entry), Some(state), list);
    }

    /// The slot of the object `name`.
    ///
    /// # Errors
    /// [`Error::Damaged`] when the object may be one of the lost ones.
    pub(crate) fn find(&self, heap: &Heap, name: &str) -> Result<Option<usize>> {
        if let Some(&slot) = self.names.get(name) {
            return Ok(Some(slot));
        }
        match self.damage.iter().find(|damage| !damage.is_healed) {
            None => Ok(None),
            Some(lost) => {
                let finding = format!("{}, and it may be the object `{name}`", lost.finding);
                Err(damaged(heap, lost.at, "catalog", finding))
            }
        }
    }

    /// An unused slot.
    pub(crate) fn free_slot(&self) -> Option<usize> {
        self.slots.iter().position(|slot| slot.entry.is_none() && !slot.is_lost)
    }

    /// The place of slot `number`.
    pub(crate) fn place(&self, number: usize) -> Twin {
        self.pages[number / SLOTS_PER_PAGE].slot(number % SLOTS_PER_PAGE)
    }
}

pub(crate) fn damaged(heap: &Heap, at: PmAddr, what: &'static str, finding: impl Into<String>) -> Error {
    Error::Damaged { path: heap.pool().path().to_owned(), at, what, finding: finding.into() }
}
