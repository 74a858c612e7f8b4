//! The commit of a transaction with changes.
//!
//! 1. *Lock*: replace each object's word, as it was when the transaction first used the object, by the same word in the
//!    state "committing". A word that has changed is a conflict. Nothing was stored to the pool before, so an attempt
//!    that fails here undoes only its locks. No thread waits for another, so there is no deadlock. All locks are
//!    visible before step 2 ([`Locks::take_all`]).
//! 2. Read the snapshot epoch. Every object is marked, so a snapshot that begins later sees a later epoch.
//! 3. *Validate*: each word that was read must be unchanged, or changed only by our own lock. A word that another
//!    transaction is committing is a conflict.
//! 4. Take the tick. It is above everything that was read or overwritten.
//! 5. Write the slots that are not the newest, and (two objects or more) the intent record, and flush them, in any
//!    order.
//! 6. **The fence.** After it the transaction survives. In the block domain record and slots are in one commit group,
//!    or the slots join the last group again, so that no object is durable before its transaction.
//! 7. *Publish*: store each object's new word, which also unlocks it.
//!
//! The paper locks at the first write; we lock at commit, for these reasons:
//! - The locked word is compared with the word that was read. So an upgrade from reading to writing cannot miss a
//!   change, as it can in paper 1's algorithm.
//! - One locked instruction per object is enough, because every lock is taken before anything is validated.
//! - Readers never wait for a closure.
//!
//! The cost: two transactions that write the same object notice it later.
//!
//! The modes `AddressLog` and `Scan` (paper 1, section 4.3) write a record first, **fence**, then the slots, **fence**,
//! then the end of the record, **fence**. Only then is the transaction published.

use std::sync::atomic::{Ordering, fence};

use lodestone_pmem::{DurablePoint, PmAddr, planted};
use lodestone_txn::record::{self, Head, Member, RecordKind, Spill};
use lodestone_txn::{SLOT_HEADER_WORDS, SlotFlags, SlotHeader, State, Tick, VersionWord, seal};
use lodestone_width::{to_u64, to_usize};

use crate::context::{Change, Context, FreeCell};
use crate::core::Core;
use crate::error::{Conflict, Error, Result, TxResult};
use crate::options::Mode;
use crate::published;
use crate::side;
use lodestone_cells::{CellKind, Shape};

/// Words of a record before its members.
const RECORD_HEADER_WORDS: usize = 3;
/// How often the slots of a transaction join the open commit group again.
const JOINS_MAX: u32 = 3;
/// Members that share the record's first line with these words.
const MEMBERS_FIRST_LINE: usize = 5;

/// The shape of spill blocks.
pub fn spill_shape(core: &Core) -> Shape {
    Shape { kind: CellKind::Spill, cell_bytes: u32::try_from(core.places.slab_bytes()).unwrap_or(u32::MAX) }
}

/// Locks of a commit. The locks that are held are released when the commit fails or panics.
struct Locks<'c> {
    core: &'c Core,
    context: &'c mut Context,
    /// Whether the new objects are locked.
    new_held: bool,
    /// Entries of the write set whose locks are held, counted from the first. New objects are not counted.
    held: usize,
    /// Whether record and slots are being written. A failure now leaves bytes that may count after a crash.
    writes: bool,
}

impl<'c> Locks<'c> {
    /// None yet.
    fn new(core: &'c Core, context: &'c mut Context) -> Self {
        let count = &core.commits[context.writer.index()];
        // Relaxed: the locks are released after it, and a thread that sees one of them released sees it.
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        Self { core, context, new_held: false, held: 0, writes: false }
    }

    /// Locks every object. On return every lock is visible to all threads before this one loads anything further: the
    /// epoch, or a word that it validates.
    ///
    /// New objects come first, by plain stores. On x86-64 the first exchange after them empties the store buffer that
    /// may still hold them. Without an exchange a fence does it. On processors whose locked instructions order less,
    /// there is always a fence.
    fn take_all(&mut self) -> Result<(), Conflict> {
        self.new_held = true;
        for entry in self.context.writes.iter().filter(|entry| entry.change == Change::Alloc) {
            // The cell is in no list but ours, so no other thread changes its word.
            self.core.memory.store(entry.at, entry.seen.locked().to_raw());
        }
        let mut exchanged = false;
        for entry in &self.context.writes {
            if matches!(entry.change, Change::Update | Change::Free) {
                let locked = entry.seen.locked().to_raw();
                if self.core.memory.compare_exchange(entry.at, entry.seen.to_raw(), locked).is_err() {
                    if published::on("stm-s11") {
                        // The paper's `OpenWithWrite` aborts before the object is in the write set.
                        (self.held, self.new_held) = (0, false);
                    }
                    return Err(Conflict::WriteChanged);
                }
                exchanged = true;
            }
            self.held += 1;
        }
        if !exchanged || cfg!(not(target_arch = "x86_64")) {
            // A new object can concern other threads: a reader that finds, by an old pointer, that its cell is free,
            // and a snapshot that begins. They lock or advance the epoch, and then load this word. This thread has
            // stored the word, and then loads theirs. Without an order between the store and the loads both could miss
            // each other: see the models in `txn/tests/weak_memory.rs`.
            fence(Ordering::SeqCst);
        }
        Ok(())
    }

    /// Whether everything that was read is unchanged. Returns a tick that is at least as late as all versions read or
    /// overwritten.
    #[inline]
    fn validate(&self) -> Result<Tick, Conflict> {
        let (core, context) = (self.core, &*self.context);
        let view = core.memory.view();
        for entry in &context.reads {
            let now = match view.block(entry.at) {
                Some(block) => block.load(0),
                None => core.memory.load(entry.at),
            };
            if now != entry.word.to_raw() {
                let now = VersionWord::from_raw(now);
                let own = context.find_write(entry.at).is_some();
                let same = now.same_version(entry.word) && (own || published::accepts_foreign_locks());
                if !(same || own && published::on("stm-s9")) {
                    return Err(Conflict::ReadChanged);
                }
            }
        }
        // The clocks of everything that was read are already known.
        let mut latest = context.tick.max(context.known.latest());
        for entry in &context.writes {
            latest = latest.max(entry.seen.tick(core.timeline.base()));
        }
        Ok(if published::on("stm-s12") { context.tick } else { latest })
    }
}

impl Drop for Locks<'_> {
    fn drop(&mut self) {
        if self.writes {
            // A panic. Later commits could build on the old versions, and after a crash recovery could count this
            // transaction.
            self.core.timeline.poison();
        }
        for (number, entry) in self.context.writes.iter().enumerate() {
            let is_held = match entry.change {
                Change::Nothing => false,
                Change::Alloc => self.new_held,
                Change::Update | Change::Free => number < self.held,
            };
            if is_held {
                self.core.memory.store(entry.at, entry.seen.to_raw());
            }
        }
        // Release: a thread that sees the end sees that no lock is left.
        let count = &self.core.commits[self.context.writer.index()];
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Release);
    }
}

/// Commits the changes in `context`. On an error nothing has changed, and the caller resets the context.
pub fn commit(core: &Core, context: &mut Context) -> TxResult<()> {
    refuse_if_poisoned(core)?;
    if context.writes.is_empty() {
        return Ok(());
    }
    let changes = context.writes.iter().map(|entry| usize::from(entry.change != Change::Nothing)).sum();
    if changes == 0 {
        give_back(core, context, None);
        return Ok(());
    }
    // A lock may be in the pool only after this life has begun. Then the next life knows that it means nothing.
    core.timeline.reserve(context.tick.next())?;
    if changes > context.buffers.members_inline() {
        prepare_spill(core, context, changes)?;
    }
    let mut locks = Locks::new(core, context);
    let early = if planted::active("stm-epoch-early") { Some(core.timeline.epochs().present()) } else { None };
    locks.take_all()?;
    let epoch = early.unwrap_or_else(|| core.timeline.epochs().present());
    // A thread that overwrites an object validated here reads the epoch after it takes the lock. It may not find an
    // older epoch than this thread did. This rule is about two words that third threads write, and loads in order are
    // not enough for it on every processor.
    #[cfg(not(target_arch = "x86_64"))]
    fence(Ordering::SeqCst);
    let latest = locks.validate()?;
    // Look again: a commit that failed set the flag before it released its locks, and this one may have locked or
    // validated some of those words.
    refuse_if_poisoned(core)?;
    let tick = core.timeline.clock().next(latest);
    core.timeline.reserve(tick)?;
    core.timeline.epochs().note(locks.context.writer, epoch, tick);
    if core.timeline.epochs().any_active() && !planted::active("stm-side-late") {
        // Before the first store to a slot: copy aside what a snapshot still sees there.
        side::keep(core, locks.context);
    }
    locks.writes = true;
    let group = if core.waits { core.memory.flushing_now() } else { DurablePoint::default() };
    match core.mode {
        Mode::OneFence => write_one_fence(core, locks.context, tick, changes),
        Mode::AddressLog => write_logged(core, locks.context, tick, RecordKind::AddressLog),
        Mode::Scan => write_logged(core, locks.context, tick, RecordKind::Scan),
    }
    if planted::active("stm-side-late") {
        side::keep(core, locks.context);
    }
    if core.waits {
        join_groups(core, locks.context, group);
    }
    // From here on nothing fails: the locks become the new versions.
    (locks.held, locks.new_held, locks.writes) = (0, false, false);
    publish(core, locks.context, tick);
    Ok(())
}

#[inline]
fn refuse_if_poisoned(core: &Core) -> Result<()> {
    if core.timeline.is_poisoned() {
        let finding = "a commit failed in the middle; open the pool anew";
        return Err(core.damaged("transactional memory", core.places.header, finding));
    }
    Ok(())
}

/// Takes the blocks that a record longer than a buffer needs.
#[cold]
#[inline(never)]
fn prepare_spill(core: &Core, context: &mut Context, changes: usize) -> Result<()> {
    if core.mode == Mode::Scan {
        return Ok(());
    }
    let shape = spill_shape(core);
    let needed = changes.div_ceil(record::members_in_spill(u64::from(shape.cell_bytes)));
    let blocks = &mut context.kept.spill[to_usize(context.kept.next & 1)];
    while blocks.len() < needed {
        blocks.extend(core.slabs.take(&core.heap, shape, needed - blocks.len(), |_| true)?);
    }
    Ok(())
}

/// Writes the slots of all members and flushes them. The caller fences.
fn write_slots(core: &Core, context: &mut Context, tick: Tick, certifies_itself: bool) {
    let writer = context.writer;
    for entry in &context.writes {
        let (flags, words) = match entry.change {
            Change::Nothing => continue,
            Change::Free => (SlotFlags { certifies_itself, deleted: true }, 0),
            Change::Update | Change::Alloc => (SlotFlags { certifies_itself, deleted: false }, entry.words),
        };
        let at = entry.shape.slot_at(entry.at, entry.seen.slot().other());
        let slot = &mut context.arena[entry.arena..entry.arena + SLOT_HEADER_WORDS + to_usize(words)];
        seal(at, &SlotHeader { tick, writer, flags, words }, slot);
        // Before the fence of the commit. Not around the cache, whatever its size: it is read soon. The tick last: with
        // the writer of the version before it would look like a version that counts and is damaged.
        if planted::active("stm-tick-stored-first") {
            core.memory.write_and_flush(at, slot);
        } else {
            core.memory.write_first_last_and_flush(at, slot);
        }
    }
}

/// Writes the record of all members and flushes it. The caller fences.
fn write_record(core: &Core, context: &mut Context, tick: Tick, kind: RecordKind) {
    let buffers = context.buffers;
    let index = context.kept.next;
    let head = Head { kind, tick, previous: context.kept.previous };
    if context.writes.len() <= MEMBERS_FIRST_LINE && kind != RecordKind::Scan {
        let mut words = [0; RECORD_HEADER_WORDS + MEMBERS_FIRST_LINE];
        let mut len = RECORD_HEADER_WORDS;
        for entry in context.writes.iter().filter(|entry| entry.change != Change::Nothing) {
            words[len] = Member::new(entry.at, entry.seen.slot().other()).to_raw();
            len += 1;
        }
        return record::write(&core.memory, &buffers, index, &head, &mut words[..len], Spill::NONE);
    }
    context.record.clear();
    context.record.extend([0; RECORD_HEADER_WORDS]);
    if kind != RecordKind::Scan {
        let members = context.writes.iter().filter(|entry| entry.change != Change::Nothing);
        context.record.extend(members.map(|entry| Member::new(entry.at, entry.seen.slot().other()).to_raw()));
    }
    let blocks = &context.kept.spill[to_usize(index & 1)];
    let spill = Spill { blocks, bytes: core.places.slab_bytes() };
    record::write(&core.memory, &buffers, index, &head, &mut context.record, spill);
}

fn write_one_fence(core: &Core, context: &mut Context, tick: Tick, changes: usize) {
    let alone = changes == 1;
    if !alone {
        write_record(core, context, tick, RecordKind::OneFence);
        context.kept.next += 1;
    }
    write_slots(core, context, tick, alone);
    // The one fence. No thread may see a version that a crash could take back, nor overwrite the version before it. So
    // no store of `publish`, and none of a thread that locks next, may overtake the slots and the record.
    core.memory.fence();
}

fn write_logged(core: &Core, context: &mut Context, tick: Tick, kind: RecordKind) {
    let memory = &core.memory;
    let buffers = context.buffers;
    write_record(core, context, tick, kind);
    // Fence 1: no slot may overtake the record that tells recovery to make it invalid.
    memory.fence();
    write_slots(core, context, tick, true);
    // Fence 2: the end of the record makes the slots count, so it may not overtake them.
    memory.fence();
    record::clear(memory, &buffers, context.kept.next);
    // Fence 3: as the one fence above. While the record may still be found, the transaction may be taken back.
    memory.fence();
}

/// Block domain: a reader of one object of the transaction waits only for the group of that object's lines. Groups may
/// have been closed while record and slots were flushed; the first of those flushes saw `group` open. Then all slots
/// join the open group again, until all of them are in one group. So no object is durable before the whole transaction
/// is.
#[cold]
fn join_groups(core: &Core, context: &Context, group: DurablePoint) {
    let mut first = group;
    for _ in 0..JOINS_MAX {
        let last = core.memory.flushing_now();
        if last == first {
            return;
        }
        first = last;
        for entry in context.writes.iter().filter(|entry| entry.change != Change::Nothing) {
            let at = entry.shape.slot_at(entry.at, entry.seen.slot().other());
            // Ordered after everything else of the transaction, which joined this group or an earlier one.
            core.memory.flush(at, (to_u64(SLOT_HEADER_WORDS) + u64::from(entry.words)) * 8);
        }
    }
    // More than a group holds. When all of it is durable before any thread sees it, groups do not matter. The next
    // waiter gets the error of a medium that failed.
    let _ = core.memory.wait_durable(core.memory.flushed_here());
}

/// Makes the new versions visible, one store each, and releases freed cells.
fn publish(core: &Core, context: &mut Context, tick: Tick) {
    let writer = context.writer;
    let mut gives = false;
    for entry in &context.writes {
        let state = match entry.change {
            Change::Nothing => {
                gives = true;
                continue;
            }
            Change::Free => {
                gives = true;
                State::Free
            }
            Change::Update | Change::Alloc => State::Live,
        };
        let word = VersionWord::new(tick, writer, entry.seen.slot().other(), state);
        // Release: a thread that sees the word sees the slot. Not flushed: the word means nothing in the next life.
        core.memory.store(entry.at, word.to_raw());
    }
    // The flushed lines may have left the cache. The next record goes into the other buffer.
    core.memory.prefetch(context.buffers.buffer(context.kept.next), 64);
    context.kept.previous = tick;
    context.set_tick(core, tick);
    if gives {
        give_back(core, context, Some(tick));
    }
    core.wake();
}

/// Releases the cells of objects that the transaction of `tick` freed, and of those that it both allocated and freed.
#[cold]
fn give_back(core: &Core, context: &mut Context, tick: Option<Tick>) {
    let writer = context.writer;
    for number in 0..context.writes.len() {
        let entry = context.writes[number];
        if matches!(entry.change, Change::Free | Change::Nothing) {
            let word = |tick| VersionWord::new(tick, writer, entry.seen.slot().other(), State::Free);
            let word = tick.filter(|_| entry.change == Change::Free).map(word);
            context.give_cell(core, entry.shape, FreeCell { at: entry.at, word });
        }
    }
}

/// The error for the use of a freed object.
pub fn not_allocated(at: PmAddr) -> Error {
    Error::BadPointer { at, finding: "the object there was freed, or never committed" }
}

/// The error for a pointer whose type is not the object's type.
#[cold]
pub fn another_size(at: PmAddr) -> Error {
    Error::BadPointer { at, finding: "the object there is of another size" }
}
