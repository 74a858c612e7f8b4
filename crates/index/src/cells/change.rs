//! Changing a table. The caller holds the lock of the key's bucket, and the stash's lock while it uses the stash.
//!
//! *Insert.* 1. A free slot is looked for, home line first. 2. If it is not in the home line and the home's level does
//! not lead there yet, the level is raised and fenced: a search that starts after a crash must find what was
//! acknowledged.
//! 3. Key and value are written into free cells, then the header that names them, one line, one flush, one fence.
//!
//! *Update.* The free value cell is written, then the header. *Remove.* The header alone.
//!
//! A byte-string key has a block: its insert and its removal are one action of the heap that changes the bitmap of the
//! heap and the headers together. Its update needs no action.

use lodestone_heap::{Action, Heap};
use lodestone_pmem::{Memory, PmAddr, WORD_BYTES, checked, planted};

use super::key::{KeyKind, KeyRef, record_at, record_word};
use super::line::{LineAt, Meta};
use super::probe::{self, Found};
use super::table::TableAt;
use super::wish::Wish;
use crate::error::{Result, committed};
use crate::layout::{encode_record, record_bytes};
use crate::medium::IndexMemory;

/// A place for a new pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    line: LineAt,
    meta: Meta,
    slot: usize,
    /// The home line and its header with the level that leads to `line`, when it does not lead there yet.
    raise: Option<(LineAt, Meta)>,
}

/// Stores `meta` into its line, and makes it persistent before anything that is stored later.
#[inline]
fn publish(memory: &Memory, line: LineAt, meta: Meta) {
    memory.store(line.header(), line.encode(meta));
    // The header and the cells it names are in one line, the header was stored last: one write-back takes both.
    memory.flush(line.header(), WORD_BYTES);
    // A report of the change, or the next change of the line, may not overtake it.
    memory.fence();
}

impl Change {
    /// A place for a pair whose key is absent, up to `level`; `None` when there is none.
    ///
    /// # Errors
    /// When a line is damaged.
    #[inline]
    pub(crate) fn plan(table: TableAt, medium: IndexMemory<'_>, hash: u64, level: u8) -> Result<Option<Self>> {
        let home = table.shape.home(hash);
        for (number, needed) in table.shape.candidates(home, level) {
            let line = table.line(number);
            let meta = probe::header(medium, line)?;
            let Some(slot) = meta.free_slot() else { continue };
            let home = table.line(home.line);
            let home_meta = probe::header(medium, home)?;
            let raise = (needed > home_meta.level()).then(|| (home, home_meta.with_level(needed)));
            return Ok(Some(Self { line, meta, slot, raise }));
        }
        Ok(None)
    }

    /// The header that names the new pair.
    #[inline]
    fn header(&self, key: u64, value: u64) -> (usize, Meta) {
        let cell = self.meta.free_cell();
        (cell, self.meta.with(self.slot, cell, self.line.pair_check(key, value)))
    }

    #[inline]
    fn store_pair(&self, memory: &Memory, key: u64, cell: usize, value: u64) {
        memory.store(self.line.key(self.slot), key);
        memory.store(self.line.value(cell), value);
    }

    /// Adds the pair; persistent on return. One flushed line and one fence; one more of each when a level is raised.
    #[inline]
    pub(crate) fn insert(&self, memory: &Memory, key: u64, value: u64) {
        let late = planted::active("cells-level-behind-pair");
        if let (Some((home, meta)), false) = (self.raise, late) {
            // The pair may not overtake the level that leads to it: its own line could persist first.
            publish(memory, home, meta);
        }
        let (cell, meta) = self.header(key, value);
        if planted::active("cells-header-before-pair") {
            memory.store(self.line.header(), self.line.encode(meta));
        }
        self.store_pair(memory, key, cell, value);
        publish(memory, self.line, meta);
        if let (Some((home, meta)), true) = (self.raise, late) {
            publish(memory, home, meta);
        }
    }

    /// Notes the pair in `action`, whose commit publishes it; the action must allocate, so that its commit fences
    /// first.
    pub(crate) fn insert_in(&self, action: &mut Action<'_>, memory: &Memory, key: u64, value: u64) {
        let (cell, meta) = self.header(key, value);
        self.store_pair(memory, key, cell, value);
        // The header, which the action stores, may not overtake the cells: its first fence comes between.
        memory.flush(self.line.key(0), WORD_BYTES);
        if let Some((home, meta)) = self.raise {
            action.set(home.header(), home.encode(meta));
        }
        action.set(self.line.header(), self.line.encode(meta));
    }
}

impl Found {
    /// Replaces the value; persistent on return. One flushed line and one fence.
    #[inline]
    pub(crate) fn update(&self, memory: &Memory, value: u64) {
        let meta = self.meta;
        if planted::active("cells-update-in-place") {
            memory.store(self.line.value(meta.cell(self.slot)), value);
            let check = self.line.pair_check(self.key, value);
            return publish(memory, self.line, meta.with(self.slot, meta.cell(self.slot), check));
        }
        let cell = meta.free_cell();
        memory.store(self.line.value(cell), value);
        publish(memory, self.line, meta.with(self.slot, cell, self.line.pair_check(self.key, value)));
    }

    /// Removes the pair; persistent on return. One flushed line and one fence.
    #[inline]
    pub(crate) fn remove(&self, memory: &Memory) {
        publish(memory, self.line, self.meta.without(self.slot));
    }

    /// Notes the removal in `action`.
    pub(crate) fn remove_in(&self, action: &mut Action<'_>) {
        action.set(self.line.header(), self.line.encode(self.meta.without(self.slot)));
    }
}

/// How one attempt at a change ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// The value before, and whether a removal left the pair's line empty.
    Done { before: Option<u64>, emptied: bool },
    /// There is no room for a new pair.
    Full,
}

/// Where a change takes place.
#[derive(Clone, Copy)]
pub(crate) struct Site<'h> {
    pub(crate) heap: &'h Heap,
    pub(crate) medium: IndexMemory<'h>,
    pub(crate) kind: KeyKind,
    pub(crate) table: TableAt,
}

/// The effect of `wish` on a pair that is there; persistent on return.
#[inline]
pub(crate) fn change_pair(site: Site<'_>, found: &Found, wish: Wish) -> Result<Attempt> {
    let before = Some(found.value);
    let mut emptied = false;
    match (wish.applies_to(found.value), wish.value, site.kind) {
        (false, ..) => {}
        (true, Some(value), _) => found.update(site.medium.memory, value),
        (true, None, kind) => {
            emptied = found.meta.count() == 1;
            match kind {
                KeyKind::Number => found.remove(site.medium.memory),
                KeyKind::Bytes => {
                    let mut action = site.heap.action();
                    found.remove_in(&mut action);
                    action.free(record_at(site.medium, found.key)?)?;
                    committed(action.commit()).1?;
                }
            }
        }
    }
    Ok(Attempt::Done { before, emptied })
}

/// Adds a pair whose key is absent, no further from home than `level`; persistent on return. `false`: there is no room.
#[inline]
pub(crate) fn insert_pair(site: Site<'_>, key: KeyRef<'_>, hash: u64, value: u64, level: u8) -> Result<bool> {
    let Some(change) = Change::plan(site.table, site.medium, hash, level)? else { return Ok(false) };
    let memory = site.medium.memory;
    match key {
        KeyRef::Number(number) => change.insert(memory, number, value),
        KeyRef::Bytes(_) => {
            let mut action = site.heap.action();
            let word = key_word(&mut action, site.medium, key, hash)?;
            change.insert_in(&mut action, memory, word, value);
            committed(action.commit()).1?;
        }
    }
    Ok(true)
}

/// The key word of `key`; of a string, a record is reserved in `action` and written, whose commit fences before it
/// publishes it.
pub(crate) fn key_word(action: &mut Action<'_>, medium: IndexMemory<'_>, key: KeyRef<'_>, hash: u64) -> Result<u64> {
    let bytes = match key {
        KeyRef::Number(number) => return Ok(number),
        KeyRef::Bytes(bytes) => bytes,
    };
    let record = action.alloc(record_bytes(bytes.len(), 0))?;
    let mut content = Vec::new();
    encode_record(medium.owner, record, bytes, b"", &mut content);
    if planted::active("cells-record-not-flushed") {
        medium.memory.write(record, &content);
    } else {
        // The header that names this record may not overtake it: the action's first fence comes between.
        medium.memory.write_back(record, &content);
    }
    Ok(record_word(record, hash))
}

/// A planted bug: a lock on the medium, where it outlives its holder.
pub(crate) fn lock_on_medium(medium: IndexMemory<'_>, at: PmAddr, locks: bool) -> Result<()> {
    if locks && medium.memory.load(at) == checked::encode(at, 1) {
        return Err(medium.damaged(at, "lock on the medium", "its holder died"));
    }
    medium.memory.store(at, checked::encode(at, u64::from(locks)));
    medium.memory.persist(at, WORD_BYTES);
    Ok(())
}
