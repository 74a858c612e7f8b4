//! The catalog in DRAM: read at open, changed together with the medium.
//!
//! Every pair of copies is compared at open. Where one copy is damaged the other one counts, and in a pool that is open
//! for writing the damaged one is written anew. Where both are damaged, or both verify and differ, the name in it is
//! unknown: it is remembered as lost, and a lookup that finds its name nowhere else says so instead of "no such
//! object".
//!
//! A checksum that fits does not make a catalog: two live entries with one name or one object, or one entry in two
//! slots, are lost as well, all of them. Nothing tells which of them is right.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hash;

use lodestone_heap::Heap;
use lodestone_pmem::{LINE_BYTES, PmAddr, checked};

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
    /// The slot or its entry does not verify, or another one contradicts it: nothing may be put there.
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
            if page.0.is_null() && !catalog.pages.is_empty() {
                break;
            }
            let is_place = page.0.offset().is_multiple_of(LINE_BYTES) && memory.contains(page.0, PAGE_BYTES);
            if page.0.is_null() || !is_place || !visited.insert(page) {
                if catalog.pages.is_empty() {
                    return Err(damaged(heap, twin.0[0], "catalog", "the link to its first page leads nowhere"));
                }
                catalog.lose(twin.0[0], "a link to a page leads nowhere, or in a circle");
                break;
            }
            catalog.read_page(heap, page);
            link = (page.link(), "link to a page");
        }
        catalog.lose_contradictions();
        Ok(catalog)
    }

    /// Loses every entry that another one contradicts, and enters the names of the others that are live.
    fn lose_contradictions(&mut self) {
        self.lose_equal("one entry of the catalog is in two slots", |entry, _| Some(entry.at));
        self.lose_equal("two objects have one name", |entry, is_live| is_live.then(|| entry.name.clone()));
        self.lose_equal("two names have one object", |entry, is_live| is_live.then_some(entry.object));
        for (number, slot) in self.slots.iter().enumerate().filter(|(_, slot)| !slot.is_lost) {
            if let (Some(entry), Some(State::Live)) = (&slot.entry, slot.state) {
                self.names.insert(entry.name.clone(), number);
            }
        }
    }

    /// Loses every entry for which `key` is the same as for another one; it gets the entry and whether it is live.
    fn lose_equal<K: Eq + Hash>(&mut self, what: &str, key: impl Fn(&Entry, bool) -> Option<K>) {
        let mut groups = HashMap::<K, Vec<usize>>::new();
        for (number, slot) in self.slots.iter().enumerate() {
            let found = slot.entry.as_ref().and_then(|entry| key(entry, slot.state == Some(State::Live)));
            found.into_iter().for_each(|key| groups.entry(key).or_default().push(number));
        }
        let mut lost: Vec<usize> = groups.into_values().filter(|group| group.len() > 1).flatten().collect();
        lost.sort_unstable();
        for number in lost {
            self.slots[number].is_lost = true;
            if let Some(entry) = self.slots[number].entry.clone() {
                self.lose(entry.at, format!("{what}: `{}` at {}", entry.name, entry.object));
            }
        }
    }

    pub(crate) fn lose(&mut self, at: PmAddr, finding: impl Into<String>) {
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
            Found::Lost(why) => {
                self.lose(twin.0[0], format!("{what}: {why}"));
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
                    Ok(found) => self.enter(heap, number, found),
                    Err(why) => {
                        self.slots[number].is_lost = true;
                        self.lose(at, format!("entry of the catalog: {why}"));
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
