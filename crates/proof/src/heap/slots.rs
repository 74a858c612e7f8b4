//! A table of slots over the heap: the structure that all targets of the heap explore.
//!
//! Layout in the root words: words 0 to 11 are slots (address of a block, or 0). Words 16, 17 and 24 are the *stamps*:
//! an action sets 16 and 24, a plain store sets 16, then 17 in the same line. So 16 is never older than 17 or 24,
//! unless the replay of an old record rolls it back.
//!
//! A block's content is its slot and size in the first word of every line. So a block with two owners or unwritten
//! content shows. One word per line keeps the number of crash states small. The heap does not depend on how many of its
//! own stores a line keeps.

use std::collections::{BTreeMap, BTreeSet};

use lodestone_crash::{Failure, Outcome, Redundant, SiteKey, Structure, tiny_pool};
use lodestone_heap::{Action, Heap, HeapOptions};
use lodestone_pmem::sync::{Mutex, RwLock, lock};
use lodestone_pmem::{PmAddr, Pool, PoolOptions};

use super::in_heap_layer;

/// Slots in use.
const SLOTS: u64 = 12;

/// The content of a heap area that had another use before.
const GARBAGE: u64 = 0xDEAD_BEEF_0BAD_F00D;

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Puts a new block of so many bytes into the slot. The old one is freed in the same action.
    Put(u64, u64),
    /// As `Put`, of a block that the heap zeroes. Only its first word is written.
    PutZeroed(u64, u64),
    /// Frees the slot's block.
    Del(u64),
    /// Puts blocks of so many bytes into the slots below the first number, in one action.
    PutMany(u64, u64),
    /// Frees the blocks of all slots in one action, highest slot first.
    DelAll,
    /// Reallocates the slot's block. The content that still fits stays.
    Resize(u64, u64),
    /// Allocates so many bytes, frees the slot's block, and drops the action.
    Abort(u64, u64),
    /// Allocates so many bytes and drops the action. Nothing is written.
    Reserve(u64),
    /// Grows the pool to so many bytes.
    Grow(u64),
    /// Sets two stamps in an action.
    Stamp(u64),
    /// Sets one stamp by a store that is flushed and not fenced, then the other one in an action of one word.
    Single(u64),
    /// Sets two stamps of one line by plain stores.
    Bare(u64),
    /// As `Put`, but the process dies after it stored so many words in place, and the heap is opened anew.
    Killed(u64, u64, usize),
    /// Runs the operation on another thread, which has ended before the next begins. Its fences order nothing of ours.
    Elsewhere(Box<Op>),
}

/// A reader's view: bytes of each slot's block, and the stamps 17 and 24.
pub type View = (BTreeMap<u64, u64>, u64, u64);

/// The structure: a script and the sizes it runs with.
pub struct Slots {
    /// Name of the target.
    pub name: &'static str,
    /// The operations.
    pub script: Vec<Op>,
    /// Operations that must work after recovery.
    pub more: Vec<Op>,
    /// Operations of each thread, when schedules are explored.
    pub threads: Vec<Vec<Op>>,
    /// Sizes of the heap.
    pub heap: HeapOptions,
    /// Bytes of the pool.
    pub pool_bytes: u64,
    /// Whether the heap is formatted before the run, so that formatting is not explored.
    pub formatted: bool,
    /// Files of the heap whose flushes and fences the target's mutation audit covers.
    pub audited: &'static [&'static str],
    /// Mutations that survive for a reason.
    pub redundant: Vec<Redundant>,
}

/// The opened structure.
pub struct Handle {
    pool: Pool,
    /// `None` while it is opened anew.
    heap: RwLock<Option<Heap>>,
    /// Held by an operation on one slot. Any user of the heap that shares words between threads does the same.
    locks: Vec<Mutex<()>>,
}

impl Handle {
    fn heap(&self) -> Outcome<Heap> {
        let heap = self.heap.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        heap.ok_or_else(|| Failure::new("the heap could not be opened anew"))
    }
}

fn stamp(slot: u64, bytes: u64) -> u64 {
    ((slot + 1) << 32) | bytes
}

/// Marks the stamp of a block that was zeroed.
const ZEROED: u64 = 1 << 63;

/// Address and bytes of the slot's block, its content verified.
fn block(heap: &Heap, slot: u64) -> Outcome<Option<(PmAddr, u64)>> {
    let at = PmAddr::from_raw(heap.memory().load(heap.root_word(slot)));
    if at.is_null() {
        return Ok(None);
    }
    let Some(usable) = heap.block_bytes(at) else {
        return Err(Failure::new(format!("slot {slot} points to {at}, where no allocated block starts")));
    };
    let first = heap.memory().load(at);
    let bytes = first & 0xFFFF_FFFF;
    Failure::unless(first & !ZEROED == stamp(slot, bytes) && bytes <= usable, || {
        format!("slot {slot} points to {at}, whose content {first:#x} is not its own")
    })?;
    let rest = if first & ZEROED == 0 { first } else { 0 };
    for offset in (0..bytes).step_by(64).skip(1) {
        let word = heap.memory().load(at.plus(offset));
        Failure::unless(word == rest, || format!("slot {slot}: byte {offset} of its block holds {word:#x}"))?;
    }
    Ok(Some((at, bytes)))
}

fn write(heap: &Heap, at: PmAddr, slot: u64, bytes: u64) {
    for offset in (0..bytes).step_by(64) {
        heap.memory().store(at.plus(offset), stamp(slot, bytes));
    }
    // The commit's first fence makes it persistent before the block is published.
    heap.memory().flush(at, bytes);
}

/// Adds the replacement of the slot's block to `action`.
fn put(heap: &Heap, action: &mut Action<'_>, slot: u64, bytes: u64) -> Outcome {
    let fresh = action.alloc(bytes)?;
    write(heap, fresh, slot, bytes);
    publish(heap, action, slot, fresh)
}

fn publish(heap: &Heap, action: &mut Action<'_>, slot: u64, fresh: PmAddr) -> Outcome {
    if let Some((old, _)) = block(heap, slot)? {
        action.free(old)?;
    }
    action.set(heap.root_word(slot), fresh.to_raw());
    Ok(())
}

fn apply(handle: &Handle, op: &Op, options: &HeapOptions) -> Outcome {
    if let Op::Elsewhere(op) = op {
        let other = std::thread::scope(|scope| scope.spawn(|| apply(handle, op, options)).join());
        return other.unwrap_or_else(|_| Err(Failure::new("the other thread panicked")));
    }
    let heap = handle.heap()?;
    let memory = heap.memory();
    let _guard = match *op {
        Op::Put(slot, _) | Op::PutZeroed(slot, _) | Op::Del(slot) | Op::Resize(slot, _) | Op::Abort(slot, _) => {
            Some(lock(&handle.locks[slot as usize]))
        }
        _ => None,
    };
    let mut action = heap.action();
    match *op {
        Op::Elsewhere(_) => return Err(Failure::new("handled above")),
        Op::Put(slot, bytes) => put(&heap, &mut action, slot, bytes)?,
        Op::PutZeroed(slot, bytes) => {
            let fresh = action.alloc_zeroed(bytes)?;
            memory.store(fresh, stamp(slot, bytes) | ZEROED);
            // As in `write`.
            memory.flush(fresh, 8);
            publish(&heap, &mut action, slot, fresh)?;
        }
        Op::Del(slot) => del(&heap, &mut action, slot)?,
        Op::PutMany(slots, bytes) => (0..slots).try_for_each(|slot| put(&heap, &mut action, slot, bytes))?,
        Op::DelAll => (0..SLOTS).rev().try_for_each(|slot| del(&heap, &mut action, slot))?,
        Op::Resize(slot, bytes) => {
            if let Some((old, old_bytes)) = block(&heap, slot)? {
                let fresh = action.realloc(old, bytes)?;
                if fresh != old {
                    if bytes < old_bytes {
                        write(&heap, fresh, slot, bytes);
                    }
                    action.set(heap.root_word(slot), fresh.to_raw());
                }
            }
        }
        Op::Abort(slot, bytes) => {
            let fresh = action.alloc(bytes)?;
            write(&heap, fresh, slot, bytes);
            if let Some((old, _)) = block(&heap, slot)? {
                action.free(old)?;
            }
            drop(action);
            return Ok(());
        }
        Op::Reserve(bytes) => {
            action.alloc(bytes)?;
            drop(action);
            return Ok(());
        }
        Op::Grow(bytes) => {
            if heap.memory().part_len(0) < bytes {
                handle.pool.grow(0, bytes)?;
            }
            return Ok(());
        }
        Op::Stamp(value) => {
            action.set(heap.root_word(16), value);
            action.set(heap.root_word(24), value);
        }
        Op::Single(value) => {
            memory.store(heap.root_word(16), value);
            // The commit's first fence makes it persistent before the other stamp.
            memory.flush(heap.root_word(16), 8);
            action.set(heap.root_word(24), value);
        }
        Op::Bare(value) => {
            memory.store(heap.root_word(16), value);
            memory.store(heap.root_word(17), value);
            // One line: word 17 never persists without word 16.
            memory.persist(heap.root_word(16), 16);
        }
        Op::Killed(slot, bytes, applied) => {
            put(&heap, &mut action, slot, bytes)?;
            action.commit_interrupted(applied)?;
            drop(heap);
            let mut place = handle.heap.write().unwrap_or_else(std::sync::PoisonError::into_inner);
            // A pool has one heap at a time. The process that died had this one.
            *place = None;
            *place = Some(Heap::open(&handle.pool, options)?);
            return Ok(());
        }
    }
    Ok(action.commit()?)
}

fn del(heap: &Heap, action: &mut Action<'_>, slot: u64) -> Outcome {
    if let Some((old, _)) = block(heap, slot)? {
        action.free(old)?;
        action.set(heap.root_word(slot), 0);
    }
    Ok(())
}

/// Applies `op` to the view.
fn follow(view: &mut View, op: &Op) {
    let (slots, bare, stamped) = view;
    match *op {
        Op::Elsewhere(ref op) => follow(view, op),
        Op::Put(slot, bytes) | Op::PutZeroed(slot, bytes) | Op::Killed(slot, bytes, _) => {
            slots.insert(slot, bytes);
        }
        Op::Del(slot) => {
            slots.remove(&slot);
        }
        Op::PutMany(count, bytes) => slots.extend((0..count).map(|slot| (slot, bytes))),
        Op::DelAll => slots.clear(),
        Op::Resize(slot, bytes) => {
            // A larger block keeps its content. The copy that the heap made must be whole.
            slots.entry(slot).and_modify(|old| *old = bytes.min(*old));
        }
        Op::Abort(..) | Op::Reserve(_) | Op::Grow(_) => {}
        Op::Stamp(value) | Op::Single(value) => *stamped = value,
        Op::Bare(value) => *bare = value,
    }
}

impl Structure for Slots {
    type Op = Op;
    type Handle = Handle;
    type View = View;

    fn name(&self) -> String {
        self.name.into()
    }

    fn options(&self) -> PoolOptions {
        PoolOptions { size_bytes: self.pool_bytes, ..tiny_pool() }
    }

    fn script(&self) -> Vec<Op> {
        self.script.clone()
    }

    fn threads(&self) -> Vec<Vec<Op>> {
        self.threads.clone()
    }

    fn setup(&self, pool: &Pool) -> Outcome {
        if self.formatted {
            Heap::open(pool, &self.heap)?;
            return Ok(());
        }
        // The old bytes of the area are not zero, except where pool creation zeroes: the heap's first line. One word
        // per line, and few lines of the header page, keep the number of states small.
        let (start, end) = pool.heap_area(0);
        for offset in (4096..end.offset() - start.offset()).step_by(64).chain([1024 + 24 * 8, 1024 + 64 * 8]) {
            pool.memory().store(start.plus(offset), GARBAGE ^ offset);
        }
        pool.memory().persist(start, end.offset() - start.offset());
        Ok(())
    }

    fn open(&self, pool: &Pool) -> Outcome<Handle> {
        let locks = (0..SLOTS).map(|_| Mutex::new(())).collect();
        Ok(Handle { pool: pool.clone(), heap: RwLock::new(Some(Heap::open(pool, &self.heap)?)), locks })
    }

    fn apply(&self, handle: &Handle, op: &Op) -> Outcome {
        apply(handle, op, &self.heap)
    }

    fn view(&self, handle: &Handle) -> Outcome<View> {
        let heap = handle.heap()?;
        let mut slots = BTreeMap::new();
        for slot in 0..SLOTS {
            if let Some((_, bytes)) = block(&heap, slot)? {
                slots.insert(slot, bytes);
            }
        }
        let [newest, bare, stamped] = [16, 17, 24].map(|index| heap.memory().load(heap.root_word(index)));
        Failure::unless(newest >= bare && newest >= stamped, || {
            format!("stamp {newest} was rolled back: it is older than {bare} in its line or {stamped} of its action")
        })?;
        Ok((slots, bare, stamped))
    }

    fn model(&self, ops: &[Op]) -> View {
        let mut view = View::default();
        ops.iter().for_each(|op| follow(&mut view, op));
        view
    }

    fn audit(&self, handle: &Handle) -> Outcome {
        let heap = handle.heap()?;
        let mut reached = Vec::new();
        for slot in 0..SLOTS {
            reached.extend(block(&heap, slot)?.map(|(at, _)| at));
        }
        Failure::unless(reached.iter().collect::<BTreeSet<_>>().len() == reached.len(), || {
            "a block has two owners".into()
        })?;
        let report = heap.check(Some(&mut reached.into_iter()));
        Failure::unless(report.is_clean(), || report.to_string())
    }

    fn more(&self) -> Vec<Op> {
        self.more.clone()
    }

    fn audits(&self, site: &SiteKey) -> bool {
        in_heap_layer(site) && self.audited.iter().any(|file| site.file.ends_with(file))
    }

    fn redundant(&self) -> Vec<Redundant> {
        self.redundant.clone()
    }
}
