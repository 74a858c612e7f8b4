//! The catalog on the medium, byte for byte. `docs/format.md` draws the same map.
//!
//! ```text
//! heap root words 0 and 8 -> first page       (checked addresses, both the same)
//! page:   two lines, copies of each other:    0 next page, 8.. slots 0 to 6 -> entries   (checked addresses)
//! entry:  two copies of whole lines:          0 magic           8 kind | bytes of the name << 32
//!                                            16 object         24 CRC-32C of magic, kind, object, places, name
//!                                            32 state (checked) 40 list (checked address)   48 zero   64.. name
//! list:   0 next (checked address)            8 count           16 CRC-32C of count, addresses and place   24.. addresses
//! ```
//!
//! Everything that leads to an object exists twice, and each copy has its own lines. So one damaged line loses no name.
//! Both copies change in one action of the heap, so no crash leaves them different.

use std::collections::BTreeSet;

use lodestone_heap::Action;
use lodestone_pmem::{LINE_BYTES, Memory, PmAddr, WORD_BYTES, checked};
use lodestone_width::{const_usize, to_u64};

use crate::names::verify_name;

/// Longest name of an object.
pub const NAME_BYTES_MAX: usize = 255;
/// Root words of the heap that lead to the first page: in two lines.
pub(crate) const ROOT_WORDS: [u64; 2] = [0, 8];
/// Slots of a page.
pub(crate) const SLOTS_PER_PAGE: usize = 7;
const PAGE_COPY_BYTES: u64 = LINE_BYTES;
/// Bytes of a page: both copies.
pub(crate) const PAGE_BYTES: u64 = 2 * PAGE_COPY_BYTES;
const _: () = assert!(to_u64(1 + SLOTS_PER_PAGE) * WORD_BYTES == PAGE_COPY_BYTES, "link and slots fill a copy");

const ENTRY_MAGIC: u64 = u64::from_le_bytes(*b"LDSTNAME");
/// Bytes of an entry's copy before the name.
const ENTRY_HEAD_BYTES: u64 = LINE_BYTES;
const LIST_HEAD_BYTES: u64 = 24;

/// A word that exists twice: its two places.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Twin(pub(crate) [PmAddr; 2]);

/// The reading of the two copies of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The payload, and which copy is damaged.
    Payload(u64, Option<usize>),
    /// No payload counts: neither copy verifies, or both do and differ. Both change in one action, so no crash lets
    /// them differ.
    Lost(&'static str),
}

/// Both copies are damaged.
const NEITHER: &str = "neither copy verifies";
/// Nothing tells which copy is right.
const DIFFER: &str = "both copies verify, and they differ";

impl Twin {
    /// Sets both copies with the action.
    pub(crate) fn set(self, action: &mut Action<'_>, payload: u64) {
        for at in self.0 {
            action.set(at, checked::encode(at, payload));
        }
    }

    /// As [`set`](Self::set), to an address.
    pub(crate) fn point_to(self, action: &mut Action<'_>, target: PmAddr) {
        for at in self.0 {
            action.set(at, checked::encode_addr(at, target));
        }
    }

    /// The payload that verifies.
    pub(crate) fn read(self, memory: &Memory) -> Found {
        let [first, second] = self.0.map(|at| checked::decode(at, memory.load(at)));
        match (first, second) {
            (Some(first), Some(second)) if first == second => Found::Payload(first, None),
            (Some(_), Some(_)) => Found::Lost(DIFFER),
            (Some(first), None) => Found::Payload(first, Some(1)),
            (None, Some(second)) => Found::Payload(second, Some(0)),
            (None, None) => Found::Lost(NEITHER),
        }
    }

    /// Rewrites the damaged copy. Persistent on return.
    pub(crate) fn heal(self, memory: &Memory, payload: u64, copy: usize) {
        let at = self.0[copy];
        memory.store(at, checked::encode(at, payload));
        // A later action sets both copies. It must not meet a copy that a crash reverts.
        memory.persist(at, WORD_BYTES);
    }
}

/// A page of the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PageAt(pub(crate) PmAddr);

impl PageAt {
    fn word(self, index: u64) -> Twin {
        Twin([0, PAGE_COPY_BYTES].map(|copy| self.0.plus(copy + index * WORD_BYTES)))
    }

    /// The next page.
    pub(crate) fn link(self) -> Twin {
        self.word(0)
    }

    /// A slot.
    pub(crate) fn slot(self, slot: usize) -> Twin {
        self.word(1 + to_u64(slot))
    }

    /// Writes an empty page and flushes it without a fence. The action that links it fences.
    pub(crate) fn write_empty(self, memory: &Memory) {
        let places = (0..PAGE_BYTES / WORD_BYTES).map(|word| self.0.plus(word * WORD_BYTES));
        let bytes: Vec<u8> = places.flat_map(|at| checked::encode_addr(at, PmAddr::NULL).to_le_bytes()).collect();
        memory.write_back(self.0, &bytes);
    }
}

/// The state of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It has its name.
    Live,
    /// Its name is gone, and the blocks in the list are being freed.
    Dropped,
}

impl State {
    pub(crate) const fn payload(self) -> u64 {
        match self {
            Self::Live => 1,
            Self::Dropped => 2,
        }
    }

    fn from_payload(payload: u64) -> Option<Self> {
        [Self::Live, Self::Dropped].into_iter().find(|state| state.payload() == payload)
    }
}

/// An entry on the medium.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) at: PmAddr,
    pub(crate) name: String,
    pub(crate) kind: u32,
    pub(crate) object: PmAddr,
}

/// The result of reading an entry.
#[derive(Debug)]
pub(crate) struct ReadEntry {
    pub(crate) entry: Entry,
    pub(crate) state: State,
    pub(crate) list: PmAddr,
    /// Copies of lines or words that do not verify, in words.
    pub(crate) damage: Vec<String>,
    /// The copy that does not verify, if there is one.
    pub(crate) bad_copy: Option<usize>,
}

/// Bytes of one copy of the entry of a name of `name_bytes` bytes.
const fn copy_bytes(name_bytes: u64) -> u64 {
    (ENTRY_HEAD_BYTES + name_bytes).next_multiple_of(LINE_BYTES)
}

impl Entry {
    /// Bytes of the block: both copies.
    pub(crate) const fn bytes(name_bytes: usize) -> u64 {
        2 * copy_bytes(to_u64(name_bytes))
    }

    fn twin(&self, offset: u64) -> Twin {
        Twin([0, copy_bytes(to_u64(self.name.len()))].map(|copy| self.at.plus(copy + offset)))
    }

    /// The state.
    pub(crate) fn state(&self) -> Twin {
        self.twin(32)
    }

    /// The first block of the list of a drop.
    pub(crate) fn list(&self) -> Twin {
        self.twin(40)
    }

    fn shape(&self) -> u64 {
        u64::from(self.kind) | to_u64(self.name.len()) << 32
    }

    /// Of a copy at `base`. It covers the place of the entry as well: the copy of another entry is none of this one.
    fn checksum(&self, base: PmAddr) -> u64 {
        let words = [ENTRY_MAGIC, self.shape(), self.object.to_raw(), self.at.to_raw(), base.to_raw()];
        let head = words.iter().fold(0, |crc, word| crc32c::crc32c_append(crc, &word.to_le_bytes()));
        u64::from(crc32c::crc32c_append(head, self.name.as_bytes()))
    }

    /// The bytes of a copy at `base`.
    fn encode(&self, base: PmAddr, state: State, first: PmAddr) -> Vec<u8> {
        let (state_at, list_at) = (base.plus(32), base.plus(40));
        let words = [
            ENTRY_MAGIC,
            self.shape(),
            self.object.to_raw(),
            self.checksum(base),
            checked::encode(state_at, state.payload()),
            checked::encode_addr(list_at, first),
            0,
            0,
        ];
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend_from_slice(self.name.as_bytes());
        bytes.resize(bytes.len().next_multiple_of(const_usize(LINE_BYTES)), 0);
        bytes
    }

    /// Writes both copies and flushes them without a fence. The action that makes the entry reachable fences.
    pub(crate) fn write(&self, memory: &Memory) {
        let bytes = copy_bytes(to_u64(self.name.len()));
        for base in [self.at, self.at.plus(bytes)] {
            let content = self.encode(base, State::Live, PmAddr::NULL);
            if lodestone_pmem::planted::active("store-entry-not-flushed") {
                memory.write(base, &content);
            } else {
                memory.write_back(base, &content);
            }
        }
    }

    /// Rewrites copy `copy` from the content of the other one. Persistent on return.
    pub(crate) fn heal(&self, memory: &Memory, copy: usize, state: State, list: PmAddr) {
        let base = self.at.plus(to_u64(copy) * copy_bytes(to_u64(self.name.len())));
        // State and list as they are, at once: with others in between, a crash would leave a copy that verifies and
        // says something else than the other one.
        memory.write(base, &self.encode(base, state, list));
        // An action that sets both copies must not meet a copy that a crash takes back.
        memory.persist(base, copy_bytes(to_u64(self.name.len())));
    }

    /// Reads the copy whose first byte is at `base`, of the entry at `at`.
    fn read_copy(memory: &Memory, at: PmAddr, base: PmAddr) -> Option<Self> {
        if !memory.contains(base, ENTRY_HEAD_BYTES) || memory.load(base) != ENTRY_MAGIC {
            return None;
        }
        let shape = memory.load(base.plus(8));
        let name_bytes = usize::try_from(shape >> 32).ok().filter(|bytes| *bytes <= NAME_BYTES_MAX)?;
        let kind = u32::try_from(shape & u64::from(u32::MAX)).ok()?;
        if !memory.contains(base, copy_bytes(to_u64(name_bytes))) {
            return None;
        }
        let mut name = vec![0; name_bytes];
        memory.read(base.plus(ENTRY_HEAD_BYTES), &mut name);
        let object = PmAddr::from_raw(memory.load(base.plus(16)));
        let entry = Self { at, name: String::from_utf8(name).ok()?, kind, object };
        // A name that no object can be given was never written.
        (memory.load(base.plus(24)) == entry.checksum(base) && verify_name(&entry.name).is_ok()).then_some(entry)
    }

    /// Reads the entry at `at`: the copies that verify, which must be equal; else what is wrong.
    pub(crate) fn read(memory: &Memory, at: PmAddr) -> std::result::Result<ReadEntry, &'static str> {
        if !at.offset().is_multiple_of(LINE_BYTES) {
            return Err("is no place of an entry");
        }
        // The length of the name says where the second copy is. Where none is there, each other place is looked at: a
        // first copy that verifies with another length must not hide a second one that verifies.
        let first = Self::read_copy(memory, at, at);
        let size = |entry: &Self| copy_bytes(to_u64(entry.name.len()));
        let places = (1..=to_u64(NAME_BYTES_MAX)).map(copy_bytes).collect::<BTreeSet<_>>();
        let found_at = |bytes: u64| Self::read_copy(memory, at, at.plus(bytes)).map(|entry| (entry, bytes));
        let beside = first.as_ref().and_then(|entry| found_at(size(entry)));
        let second = beside.or_else(|| places.into_iter().find_map(found_at));
        let (entry, bad_copy) = match (first, second) {
            (_, Some((second, place))) if size(&second) != place => return Err(DIFFER),
            (Some(first), Some((second, _))) if first == second => (first, None),
            (Some(_), Some(_)) => return Err(DIFFER),
            (Some(first), None) => (first, Some(1)),
            (None, Some((second, _))) => (second, Some(0)),
            (None, None) => return Err(NEITHER),
        };
        let mut damage = Vec::new();
        if let Some(copy) = bad_copy {
            damage.push(format!("copy {copy} of the entry of `{}` does not verify", entry.name));
        }
        let mut bad_word = None;
        let mut word = |twin: Twin, what: &str| match twin.read(memory) {
            Found::Payload(payload, None) => Ok(payload),
            Found::Payload(payload, Some(copy)) => {
                bad_word = Some(copy);
                damage.push(format!("copy {copy} of the {what} of `{}` does not verify", entry.name));
                Ok(payload)
            }
            Found::Lost(why) => Err(why),
        };
        let state = State::from_payload(word(entry.state(), "state")?).ok_or("has a state that there is not")?;
        let list = checked::payload_addr(word(entry.list(), "list")?);
        Ok(ReadEntry { entry, state, list, damage, bad_copy: bad_copy.or(bad_word) })
    }
}

/// A block of the list of a drop: addresses of blocks that are freed together with it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct List {
    pub(crate) next: PmAddr,
    pub(crate) blocks: Vec<PmAddr>,
}

impl List {
    /// Bytes of a list of `count` addresses.
    pub(crate) const fn bytes(count: usize) -> u64 {
        LIST_HEAD_BYTES + to_u64(count) * WORD_BYTES
    }

    fn checksum(&self, at: PmAddr) -> u64 {
        let head = crc32c::crc32c(&at.to_raw().to_le_bytes());
        let append = |crc, word: u64| crc32c::crc32c_append(crc, &word.to_le_bytes());
        let blocks = self.blocks.iter().map(|block| block.to_raw());
        u64::from(blocks.fold(append(head, to_u64(self.blocks.len())), append))
    }

    /// Writes the list at `at` and flushes it without a fence. The action that links it fences.
    pub(crate) fn write(&self, memory: &Memory, at: PmAddr) {
        let head = [checked::encode_addr(at, self.next), to_u64(self.blocks.len()), self.checksum(at)];
        let words = head.into_iter().chain(self.blocks.iter().map(|block| block.to_raw()));
        let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        memory.write_back(at, &bytes);
    }

    /// Reads the list at `at`. `None` when it does not verify.
    pub(crate) fn read(memory: &Memory, at: PmAddr) -> Option<Self> {
        if !memory.contains(at, LIST_HEAD_BYTES) || !at.offset().is_multiple_of(WORD_BYTES) {
            return None;
        }
        let next = checked::decode_addr(at, memory.load(at))?;
        let count = memory.load(at.plus(8));
        let bytes = count.checked_mul(WORD_BYTES)?.checked_add(LIST_HEAD_BYTES)?;
        if !memory.contains(at, bytes) {
            return None;
        }
        let blocks = (0..count).map(|index| memory.load(at.plus(LIST_HEAD_BYTES + index * WORD_BYTES)));
        let list = Self { next, blocks: blocks.map(PmAddr::from_raw).collect() };
        (memory.load(at.plus(16)) == list.checksum(at)).then_some(list)
    }
}
