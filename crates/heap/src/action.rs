//! Failure-atomic actions: several words change together or not at all.
//!
//! 1. `alloc` reserves a block in DRAM, `free` claims one, `set` notes a word: nothing is stored on the medium yet. The
//!    caller writes the contents of new blocks and flushes them.
//! 2. `commit` of an action that allocates fences: **fence 1** makes the contents persistent before a record that
//!    publishes them counts. Without an allocation there is no fence 1: whoever publishes other contents fences them first.
//! 3. It takes a lane, writes the record of all words into it and flushes; **fence 2** decides: from here on the action
//!    survives. No word in place may overtake it.
//! 4. It stores the words in place and flushes them; **fence 3** makes them persistent before the record ends.
//! 5. It clears the record and flushes; **fence 4** makes that persistent before anyone may change one of the words again:
//!    replay of a record that is still there would roll such a change back.
//! 6. Freed blocks become available again: only now, so that no new owner writes a block that a crash gives back.
//!
//! So whatever anyone sees of an action in place is decided and survives. An action that changes one word needs no record:
//! the store itself is atomic. It keeps fence 1 (contents before the word) and one fence behind the word; others may see
//! the word before that fence.
//!
//! Why not fewer fences:
//! - Without fence 1 the record may be persistent while contents are not: replay then publishes garbage (the explorer
//!   finds it at once). A checksum over the contents in the record would not help: another thread may change the published
//!   block before the record ends, and a crash then takes the record for torn, half applied.
//! - Recording old and new values and letting one of the words in place decide would merge fences 1 and 2, but then
//!   readers see words that a crash takes back.
//! - Leaving the record in place until the lane's next use would need a commit order over all lanes (a shared counter on
//!   every action), and it would forbid to store to such a word outside an action for as long as the record may be
//!   replayed. Leaving fence 4 to the next action of the same thread lets another thread change the word in between, and a
//!   crash then rolls that change back.

use lodestone_pmem::{Memory, PmAddr, checked, planted};

use crate::arena::Reserved;
use crate::core::{Block, Core, Lane, lock, thread_index};
use crate::error::{Error, Result};
use crate::layout::ChunkWord;
use crate::record::{self, Entries, Entry, Kind};
use crate::table::State;
use lodestone_pmem::sync::MutexGuard;
use std::sync::atomic::Ordering;

/// Several changes that become persistent together. Dropped without [`commit`](Self::commit), nothing happened.
///
/// ```
/// use lodestone_heap::{Heap, HeapOptions};
/// use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.pool");
/// let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// let pool = Pool::create(&path, &options)?;
/// let heap = Heap::open(&pool, &HeapOptions::default())?;
///
/// // A block and the root word that points to it: together or not at all.
/// let mut action = heap.action();
/// let at = action.alloc(108)?;
/// heap.memory().write_back(at, b"written before the commit, no fence needed");
/// action.set(heap.root_word(0), at.to_raw());
/// action.commit()?;
/// heap.memory().durable()?;
/// assert_eq!(heap.block_bytes(at), Some(128));
/// # Ok::<(), lodestone_heap::Error>(())
/// ```
#[derive(Debug)]
pub struct Action<'h> {
    core: &'h Core,
    entries: Entries,
    bad_word: Option<PmAddr>,
}

/// Blocks that a committed action freed and that are not yet given out again.
///
/// Keep it until nobody can still be reading the blocks, then drop it. The free itself is persistent already: after a
/// crash the blocks are available at once.
#[derive(Debug)]
#[must_use = "dropping it makes the freed blocks available at once"]
pub struct Freed<'h> {
    core: &'h Core,
    entries: Entries,
}

impl<'h> Action<'h> {
    pub(crate) fn new(core: &'h Core) -> Self {
        Self { core, entries: Entries::default(), bad_word: None }
    }

    /// Reserves a block of at least `bytes` bytes in the part of this thread's node. Blocks of 64 bytes or more start a
    /// line, smaller ones are aligned to 16. The content is whatever stood there; write it with
    /// [`Memory::write_back`] before the commit, no fence is needed.
    ///
    /// # Errors
    /// [`Error::NoSpace`] when the part is full, [`Error::TooLarge`] when no block can have that size.
    pub fn alloc(&mut self, bytes: u64) -> Result<PmAddr> {
        self.alloc_in(0, bytes)
    }

    /// As [`alloc`](Self::alloc), in the given part of the pool.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc), and [`Error::Invalid`] when there is no such part.
    pub fn alloc_in(&mut self, part: u16, bytes: u64) -> Result<PmAddr> {
        self.core.writable()?;
        if usize::from(part) >= self.core.bases.len() {
            return Err(Error::Invalid {
                what: "part",
                finding: format!("the pool has no part {part}"),
                hint: "use a part below Memory::part_count",
            });
        }
        match self.core.classes.index_for(bytes) {
            Some(class_index) => {
                let Reserved { at, word_at, mask } = self.core.reserve_small(part, class_index)?;
                self.entries.push_bits(Kind::BitsSet, word_at, mask);
                Ok(at)
            }
            None => self.alloc_extent(part, bytes),
        }
    }

    fn alloc_extent(&mut self, part: u16, bytes: u64) -> Result<PmAddr> {
        let core = self.core;
        let limit_bytes = core.geometry.extent_bytes_max();
        if bytes > limit_bytes {
            return Err(Error::TooLarge { wanted_bytes: bytes, limit_bytes });
        }
        let chunks = bytes.div_ceil(core.geometry.chunk_bytes()) as u32;
        let take = || lock(&core.chunks).take_run(core, part, chunks);
        let found = take().or_else(|| if core.reclaim_empty(part) { take() } else { None });
        let Some(id) = found else {
            return Err(Error::NoSpace { path: core.path().to_owned(), part, wanted_bytes: bytes });
        };
        let at = core.chunk_addr(id);
        if let Some((_, chunk, _)) = core.locate(at) {
            chunk.set_state(State::Busy(chunks));
        }
        self.entries.push(Entry::new(Kind::Extent, core.chunk_word(id), u64::from(chunks)));
        Ok(at)
    }

    /// As [`alloc`](Self::alloc), and fills the whole block with zeroes (flushed, persistent with the commit).
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc).
    pub fn alloc_zeroed(&mut self, bytes: u64) -> Result<PmAddr> {
        const ZEROES: [u8; 4096] = [0; 4096];
        let at = self.alloc(bytes)?;
        let mut done = 0;
        while done < bytes {
            let step = (bytes - done).next_multiple_of(8).min(4096);
            self.core.memory.write_back(at.plus(done), &ZEROES[..step as usize]);
            done += step;
        }
        Ok(at)
    }

    /// Gives a block of at least `bytes` bytes with the contents of the block at `at` (as far as they fit): the same block
    /// when it is large enough and not much too large, else a new one, and `at` is freed. The new block's contents are
    /// flushed; whoever points to the block sets the pointer in this action.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc) and [`free`](Self::free).
    pub fn realloc(&mut self, at: PmAddr, bytes: u64) -> Result<PmAddr> {
        let old_bytes = match self.core.block(at) {
            Block::None(finding) => return Err(Error::NotAllocated { at, finding }),
            Block::Small { class_index, .. } => u64::from(self.core.classes.get(class_index).block_bytes),
            Block::Large { chunks, .. } => u64::from(chunks) << self.core.geometry.chunk_shift,
        };
        if bytes <= old_bytes && bytes >= old_bytes / 2 {
            return Ok(at);
        }
        let new = self.alloc_in(at.part(), bytes)?;
        let freed = self.free(at);
        if let Err(error) = freed {
            self.cancel(new);
            return Err(error);
        }
        let mut buffer = [0; 4096];
        let mut done = 0;
        let copied = bytes.min(old_bytes);
        while done < copied {
            let step = (copied - done).min(4096) as usize;
            self.core.memory.read(at.plus(done), &mut buffer[..step]);
            self.core.memory.write_back(new.plus(done), &buffer[..step]);
            done += step as u64;
        }
        Ok(new)
    }

    /// Frees the block at `at` with the commit. Until then (and when the action is dropped) it stays allocated. A block
    /// that this action allocated is given back at once.
    ///
    /// # Errors
    /// [`Error::NotAllocated`] when `at` is not the start of an allocated block, or another action frees it.
    pub fn free(&mut self, at: PmAddr) -> Result<()> {
        self.core.writable()?;
        match self.core.block(at) {
            Block::Small { id, class_index, word, mask } => {
                let live = &self.core.slab(id, class_index).bits[word as usize].live;
                if live.fetch_and(!mask, Ordering::AcqRel) & mask != 0 {
                    let word_at = self.core.bitmap_word(id, word);
                    self.entries.push_bits(Kind::BitsClear, word_at, mask);
                    return Ok(());
                }
            }
            Block::Large { id, chunk, chunks } => {
                if chunk.claim(State::Extent(chunks), State::Busy(chunks)) {
                    self.entries.push(Entry::new(Kind::Release, self.core.chunk_word(id), u64::from(chunks)));
                    return Ok(());
                }
            }
            Block::None(finding) if !self.cancel(at) => return Err(Error::NotAllocated { at, finding }),
            Block::None(_) => return Ok(()),
        }
        let finding = "it is free, or an open action frees it";
        if self.cancel(at) { Ok(()) } else { Err(Error::NotAllocated { at, finding }) }
    }

    /// Gives a block back that this action reserved.
    fn cancel(&mut self, at: PmAddr) -> bool {
        let core = self.core;
        if let Block::Small { id, class_index, word, mask } = core.block(at) {
            let reserved = self.entries.remove(Kind::BitsSet, core.bitmap_word(id, word), mask);
            if reserved {
                core.release_small(id, class_index, word, mask);
            }
            return reserved;
        }
        let Some((id, chunk, 0)) = core.locate(at) else { return false };
        let State::Busy(chunks) = chunk.state() else { return false };
        let reserved = self.entries.remove(Kind::Extent, core.chunk_word(id), u64::from(chunks));
        if reserved {
            chunk.set_state(State::None);
            lock(&core.chunks).give(core, id, chunks);
        }
        reserved
    }

    /// Notes that the word at `at` becomes `word` with the commit. Of two values for one word the later counts. No other
    /// action that is open at the same time, and no plain store, may change the word.
    ///
    /// An `at` that is not an aligned word of the pool makes the commit fail.
    #[inline]
    pub fn set(&mut self, at: PmAddr, word: u64) {
        if !at.offset().is_multiple_of(8) || !self.core.memory.contains(at, 8) {
            self.bad_word = Some(at);
            return;
        }
        self.entries.push(Entry::new(Kind::Set, at, word));
    }

    /// Makes everything persistent, in order before whatever this thread stores next. Call
    /// [`Memory::durable`] before telling anyone. Freed blocks are available again on return.
    ///
    /// # Errors
    /// [`Error::ActionTooLarge`], [`Error::BadWord`] and [`Error::ReadOnly`]: nothing happened. [`Error::Damaged`] when metadata that the action
    /// changes is damaged: the rest of the action is persistent, and the report of [`Heap::check`](crate::Heap::check)
    /// names the place.
    pub fn commit(mut self) -> Result<()> {
        let outcome = self.persist();
        if outcome.is_ok() {
            make_freed_available(self.core, self.entries.as_slice());
            self.entries.clear();
        }
        outcome
    }

    /// As [`commit`](Self::commit), but keeps freed blocks from being given out again until the returned value is dropped.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub fn commit_keeping(mut self) -> Result<Freed<'h>> {
        self.persist()?;
        Ok(Freed { core: self.core, entries: std::mem::take(&mut self.entries) })
    }

    /// The commit up to the point where the action is persistent and its allocations are live. On an error that leaves
    /// the action undone, the entries stay for the drop to roll back.
    fn persist(&mut self) -> Result<()> {
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
        let Some(at) = damage else { return Ok(()) };
        make_freed_available(core, self.entries.as_slice());
        self.entries.clear();
        Err(core.damaged(at, "a word of metadata that the action changed fails its checksum"))
    }

    /// Commits as a process does that is killed in the middle: the record is persistent, `applied` words are stored in
    /// place and none is flushed. The heap must be opened anew afterwards.
    #[cfg(feature = "explore")]
    pub(crate) fn commit_interrupted(mut self, applied: usize) -> Result<()> {
        let core = self.core;
        let entries = std::mem::take(&mut self.entries);
        let (number, _guard) = core.take_lane()?;
        let lane = core.geometry.lane(core.bases[0].0, number as u32);
        record::write(&core.memory, lane, core.pool.boot(), entries.as_slice(), true);
        // As fence 2 of a commit.
        core.memory.fence();
        core.memory.fence();
        for entry in entries.as_slice().iter().take(applied) {
            apply_one(&core.memory, entry);
        }
        Ok(())
    }

    fn commit_recorded(&self) -> Result<Option<PmAddr>> {
        let core = self.core;
        let memory = &core.memory;
        let entries = self.entries.as_slice();
        let allocates = entries.iter().any(|entry| matches!(entry.kind(), Some(Kind::BitsSet | Kind::Extent)));
        let (number, _guard) = core.take_lane()?;
        let lane = core.geometry.lane(core.bases[0].0, number as u32);
        if planted::active("heap-bitmap-before-record") {
            apply_early(core, entries, Kind::BitsSet);
        }
        if planted::active("heap-free-before-unlink") {
            apply_early(core, entries, Kind::BitsClear);
        }
        if planted::active("heap-lane-lock-persisted") {
            lock_on_medium(core, lane)?;
        }
        record::write(memory, lane, core.pool.boot(), entries, allocates);
        if !planted::active("heap-apply-before-fence") {
            // Fence 2: stores in place may not overtake the record that repeats them.
            memory.fence();
        }
        let damage = apply(core, entries);
        // Fence 3: the end of the record may not overtake the words it would repeat.
        memory.fence();
        record::clear(memory, lane);
        if !planted::active("heap-record-end-not-fenced") {
            // Fence 4: later changes of the same words may not overtake the end of the record, or replay rolls them back.
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
fn apply_early(core: &Core, entries: &[Entry], kind: Kind) {
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

/// Stores the words of all entries in place and flushes each line once; the caller fences. Gives the first damaged word.
pub(crate) fn apply(core: &Core, entries: &[Entry]) -> Option<PmAddr> {
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

/// Stores the word of one entry in place; gives `false` when the checked word there is damaged.
fn apply_one(memory: &Memory, entry: &Entry) -> bool {
    let at = entry.at();
    match entry.kind() {
        Some(Kind::Set) => memory.store(at, entry.value),
        Some(Kind::BitsSet) => return change_bits(memory, at, |bits| bits | entry.value),
        Some(Kind::BitsClear) => return change_bits(memory, at, |bits| bits & !entry.value),
        Some(Kind::Extent) => memory.store(at, ChunkWord::Extent(entry.value as u32).encode(at)),
        Some(Kind::Release) => memory.store(at, ChunkWord::Free.encode(at)),
        None => return false,
    }
    true
}

/// Changes a checked word that other actions change at the same time: their bits are others.
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

/// Calls `small` or `large` for what an entry about blocks is about.
fn for_entry(
    core: &Core,
    entry: &Entry,
    small: impl FnOnce(crate::layout::ChunkId, usize, u32),
    large: impl FnOnce(crate::layout::ChunkId, &crate::table::Chunk, u32),
) {
    match entry.kind() {
        Some(Kind::BitsSet | Kind::BitsClear) => {
            if let Some((id, chunk, offset)) = core.locate(entry.at())
                && let State::Slab(class_index) = chunk.state()
            {
                small(id, class_index, (offset / 8) as u32);
            }
        }
        Some(Kind::Extent | Kind::Release) => {
            if let Some((id, chunk)) = core.chunk_of_word(entry.at()) {
                large(id, chunk, entry.value as u32);
            }
        }
        Some(Kind::Set) | None => {}
    }
}

/// Marks the allocated blocks of a persistent action as live.
fn complete_allocs(core: &Core, entries: &[Entry]) {
    for entry in entries {
        if !matches!(entry.kind(), Some(Kind::BitsSet | Kind::Extent)) {
            continue;
        }
        let small = |id, class_index, word: u32| {
            core.slab(id, class_index).bits[word as usize].live.fetch_or(entry.value, Ordering::AcqRel);
        };
        for_entry(core, entry, small, |_, chunk, chunks| chunk.set_state(State::Extent(chunks)));
    }
}

/// Makes the chunks or blocks of `entry` available.
fn make_available(core: &Core, entry: &Entry) {
    let small = |id, class_index, word| core.release_small(id, class_index, word, entry.value);
    for_entry(core, entry, small, |id, chunk, chunks| {
        chunk.set_state(State::None);
        lock(&core.chunks).give(core, id, chunks);
    });
}

fn make_freed_available(core: &Core, entries: &[Entry]) {
    for entry in entries {
        if matches!(entry.kind(), Some(Kind::BitsClear | Kind::Release)) {
            make_available(core, entry);
        }
    }
}

impl Drop for Freed<'_> {
    fn drop(&mut self) {
        make_freed_available(self.core, self.entries.as_slice());
    }
}

impl Drop for Action<'_> {
    fn drop(&mut self) {
        let core = self.core;
        for entry in self.entries.as_slice() {
            match entry.kind() {
                Some(Kind::BitsSet | Kind::Extent) => make_available(core, entry),
                Some(Kind::BitsClear) => {
                    let small = |id, class_index, word: u32| {
                        core.slab(id, class_index).bits[word as usize].live.fetch_or(entry.value, Ordering::AcqRel);
                    };
                    for_entry(core, entry, small, |_, _, _| {});
                }
                Some(Kind::Release) => {
                    for_entry(core, entry, |_, _, _| {}, |_, chunk, chunks| chunk.set_state(State::Extent(chunks)));
                }
                Some(Kind::Set) | None => {}
            }
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
    fn take_lane(&self) -> Result<(usize, MutexGuard<'_, Lane>)> {
        let count = self.lanes.len();
        let first = if self.lane_rotation { self.lane_next.fetch_add(1, Ordering::Relaxed) } else { thread_index() };
        let mut busy = None;
        for number in (0..count).map(|step| (first + step) % count) {
            match self.lanes[number].try_lock() {
                Ok(lane) if !lane.dead => return Ok((number, lane)),
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
        if lane.dead { Err(none()) } else { Ok((number, lane)) }
    }
}
