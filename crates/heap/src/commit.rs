//! The commit of an action: the protocol, and its effects on words, blocks and lanes.
//!
//! 1. If the action allocates, `commit` fences. **Fence 1** makes the contents of new blocks persistent before the
//!    record that publishes them counts. Without an allocation there is no fence 1: a caller that publishes other
//!    contents fences them itself.
//! 2. It takes a lane, writes the record of all words into it and flushes. **Fence 2** decides: from here on the action
//!    survives. No word in place may overtake it.
//! 3. It stores the words in place and flushes them. **Fence 3** makes them persistent before the record ends.
//! 4. It clears the record and flushes. **Fence 4** makes that persistent before another action may change one of the
//!    words. Replay of a record that is still there would roll such a change back.
//!
//! So every word of an action that another thread sees in place is decided and survives. An action that changes one
//! word needs no record, because the store itself is atomic. It keeps fence 1 (contents before the word) and one fence
//! after the word. Other threads may see the word before that fence.
//!
//! Why not fewer fences:
//! - Without fence 1 the record may be persistent while the contents are not. Replay then publishes garbage, and the
//!   explorer finds it at once. A checksum over the contents in the record would not help. Another thread may change
//!   the published block before the record ends. After a crash the record then looks torn, with half of it applied.
//! - The record could hold old and new values, and one of the words in place could decide. That would merge fences 1
//!   and 2, but readers would see words that a crash takes back.
//! - The record could stay in place until the lane's next use. That needs a commit order over all lanes, which is a
//!   shared counter on every action. It also forbids plain stores to such a word as long as the record may be replayed.
//! - Fence 4 could be left to the next action of the same thread. Then another thread may change the word in between,
//!   and a crash rolls that change back.

use std::sync::atomic::Ordering;

use lodestone_pmem::sync::MutexGuard;
use lodestone_pmem::{Memory, PmAddr, checked, planted};
use lodestone_width::{exact_u32, to_usize};

use crate::action::Action;
use crate::core::{Core, Lane, lock, thread_index};
use crate::error::{Error, Result};
use crate::layout::{ChunkId, ChunkWord};
use crate::record::{self, Entry, EntryKind};
use crate::table::{Chunk, State};

impl Action<'_> {
    /// Commits up to the point where the action is persistent and its allocations are live. Returns the address of a
    /// damaged word of metadata, if there is one: the rest is persistent all the same. On an error nothing is stored,
    /// and the entries stay for the drop to roll back.
    pub(crate) fn persist(&mut self) -> Result<Option<PmAddr>> {
        let core = self.core;
        if let Some(at) = self.bad_word {
            return Err(Error::BadWord { at });
        }
        let limit = core.geometry.lane_entries();
        let count = self.entries.as_slice().len();
        if count > 0 {
            core.writable()?;
        }
        if count > limit {
            return Err(Error::ActionTooLarge { entries: count, limit });
        }
        let damage = match count {
            0 => None,
            1 => {
                // The word may make contents reachable: it may not overtake them.
                core.memory.fence();
                let damage = apply(core, self.entries.as_slice());
                // The caller goes on as if the word were persistent: nothing it stores later may overtake it.
                core.memory.fence();
                damage
            }
            _ => self.commit_recorded()?,
        };
        complete_allocs(core, self.entries.as_slice());
        Ok(damage)
    }

    fn commit_recorded(&self) -> Result<Option<PmAddr>> {
        let core = self.core;
        let memory = &core.memory;
        let entries = self.entries.as_slice();
        let allocates =
            entries.iter().any(|entry| matches!(entry.kind(), Some(EntryKind::BitsSet | EntryKind::Extent)));
        let (number, _guard) = core.take_lane()?;
        let lane = core.geometry.lane(core.bases[0].0, exact_u32(number));
        if planted::active("heap-bitmap-before-record") {
            apply_early(core, entries, EntryKind::BitsSet);
        }
        if planted::active("heap-free-before-unlink") {
            apply_early(core, entries, EntryKind::BitsClear);
        }
        if planted::active("heap-lane-lock-persisted") {
            lock_on_medium(core, lane)?;
        }
        record::write(memory, lane, core.pool.boot(), entries, allocates);
        // Fence 2: stores in place may not overtake the record that repeats them.
        memory.fence();
        let damage = apply(core, entries);
        // Fence 3: the end of the record may not overtake the words it would repeat.
        memory.fence();
        record::clear(memory, lane);
        if !planted::active("heap-record-end-not-fenced") {
            // Fence 4: later changes of the same words may not overtake the end of the record, or replay rolls them
            // back.
            memory.fence();
        }
        if planted::active("heap-lane-lock-persisted") {
            memory.store(lane.plus(u64::from(core.geometry.lane_bytes) - 8), 0);
            memory.persist(lane, u64::from(core.geometry.lane_bytes));
        }
        Ok(damage)
    }
}

/// A planted bug: bits that are persistent before the record that publishes the rest.
fn apply_early(core: &Core, entries: &[Entry], kind: EntryKind) {
    for entry in entries.iter().filter(|entry| entry.kind() == Some(kind)) {
        apply(core, std::slice::from_ref(entry));
        core.memory.fence();
    }
}

/// A planted bug: the lane's lock on the medium, where it outlives its holder.
fn lock_on_medium(core: &Core, lane: PmAddr) -> Result<()> {
    let at = lane.plus(u64::from(core.geometry.lane_bytes) - 8);
    if core.memory.load(at) == 1 {
        return Err(core.damaged(at, "the lane is locked"));
    }
    core.memory.store(at, 1);
    core.memory.persist(at, 8);
    Ok(())
}

/// Stores the words of all entries in place and flushes each line once; the caller fences. Returns the first damaged
/// word.
pub fn apply(core: &Core, entries: &[Entry]) -> Option<PmAddr> {
    let memory = &core.memory;
    let mut damage = None;
    for entry in entries {
        if !apply_one(memory, entry) {
            damage = damage.or(Some(entry.at()));
        }
    }
    for (index, entry) in entries.iter().enumerate() {
        let line = entry.at().line();
        if !entries[index.saturating_sub(64)..index].iter().any(|earlier| earlier.at().line() == line) {
            // Before the fence that the end of the record may not overtake.
            memory.flush(entry.at(), 8);
        }
    }
    damage
}

/// Stores the word of one entry in place; returns `false` when the checked word there is damaged.
pub(crate) fn apply_one(memory: &Memory, entry: &Entry) -> bool {
    let at = entry.at();
    match entry.kind() {
        Some(EntryKind::Set) => memory.store(at, entry.value),
        Some(EntryKind::BitsSet) => return change_bits(memory, at, |bits| bits | entry.value),
        Some(EntryKind::BitsClear) => return change_bits(memory, at, |bits| bits & !entry.value),
        Some(EntryKind::Extent) => memory.store(at, ChunkWord::Extent(exact_u32(entry.value)).encode(at)),
        Some(EntryKind::Release) => memory.store(at, ChunkWord::Free.encode(at)),
        None => return false,
    }
    true
}

/// Changes a checked word that other actions may change at the same time. They change other bits of it.
fn change_bits(memory: &Memory, at: PmAddr, change: impl Fn(u64) -> u64) -> bool {
    let mut found = memory.load(at);
    loop {
        let Some(bits) = checked::decode(at, found) else { return false };
        match memory.compare_exchange(at, found, checked::encode(at, change(bits))) {
            Ok(_) => return true,
            Err(other) => found = other,
        }
    }
}

/// Calls `small` or `large` for the block of an entry.
pub fn for_entry(
    core: &Core,
    entry: &Entry,
    small: impl FnOnce(ChunkId, usize, u32),
    large: impl FnOnce(ChunkId, &Chunk, u32),
) {
    match entry.kind() {
        Some(EntryKind::BitsSet | EntryKind::BitsClear) => {
            if let Some((id, chunk, offset)) = core.locate(entry.at())
                && let State::Slab(class_index) = chunk.state()
            {
                small(id, class_index, exact_u32(offset / 8));
            }
        }
        Some(EntryKind::Extent | EntryKind::Release) => {
            if let Some((id, chunk)) = core.chunk_of_word(entry.at()) {
                large(id, chunk, exact_u32(entry.value));
            }
        }
        Some(EntryKind::Set) | None => {}
    }
}

/// Marks the allocated blocks of a persistent action as live.
fn complete_allocs(core: &Core, entries: &[Entry]) {
    for entry in entries {
        if !matches!(entry.kind(), Some(EntryKind::BitsSet | EntryKind::Extent)) {
            continue;
        }
        let small = |id, class_index, word: u32| {
            core.slab(id, class_index).bits[to_usize(word)].live.fetch_or(entry.value, Ordering::AcqRel);
        };
        for_entry(core, entry, small, |_, chunk, chunks| chunk.set_state(State::Extent(chunks)));
    }
}

/// Makes the chunks or blocks of `entry` available.
pub fn make_available(core: &Core, entry: &Entry) {
    let small = |id, class_index, word| core.release_small(id, class_index, word, entry.value);
    for_entry(core, entry, small, |id, chunk, chunks| {
        chunk.set_state(State::None);
        lock(&core.chunks).give(core, id, chunks);
    });
}

/// Makes everything available that the entries freed.
pub fn make_freed_available(core: &Core, entries: &[Entry]) {
    for entry in entries {
        if matches!(entry.kind(), Some(EntryKind::BitsClear | EntryKind::Release)) {
            make_available(core, entry);
        }
    }
}
impl Core {
    /// Whether anything may be changed.
    #[inline]
    pub(crate) fn writable(&self) -> Result<()> {
        if self.memory.is_read_only() { Err(Error::ReadOnly { path: self.path().to_owned() }) } else { Ok(()) }
    }

    /// Locks an idle lane: the thread's own, else the next free one, else waits for its own.
    pub(crate) fn take_lane(&self) -> Result<(usize, MutexGuard<'_, Lane>)> {
        let count = self.lanes.len();
        let first = if self.lane_rotation { self.lane_next.fetch_add(1, Ordering::Relaxed) } else { thread_index() };
        let mut busy = None;
        for number in (0..count).map(|step| (first + step) % count) {
            match self.lanes[number].try_lock() {
                Ok(lane) if lane.dead.is_none() => return Ok((number, lane)),
                Ok(_) => {}
                Err(_) => busy = busy.or(Some(number)),
            }
        }
        let none = || Error::Invalid {
            what: "lanes",
            finding: "every lane of the heap is damaged".into(),
            hint: "run `lodestone pool check --repair`",
        };
        let number = busy.ok_or_else(none)?;
        let lane = lock(&self.lanes[number]);
        if lane.dead.is_some() { Err(none()) } else { Ok((number, lane)) }
    }
}
