//! The state that a thread keeps between transactions: its id, clocks, free cells, and the buffers of read and write
//! set.
//!
//! The buffers are cleared, not freed, so a transaction allocates nothing once they have grown.
//!
//! Invariant: at most one transaction uses a context. A thread takes it out of its place while one runs.

use std::cell::{Cell, RefCell};
use std::sync::{Arc, Weak};

use lodestone_pmem::PmAddr;
use lodestone_pmem::sync::{lock, thread_local};
use lodestone_txn::record::Buffers;
use lodestone_txn::{Horizon, Lease, SLOT_HEADER_WORDS, StartClocks, Tick, VersionWord};
use lodestone_width::to_usize;

use crate::core::Core;
use crate::error::{Abort, Conflict, Error, Result, Why};
use crate::write_index::WriteIndex;
use lodestone_cells::Shape;

/// Free cells of a shape that a thread takes at a time.
const BATCH: usize = 32;
/// A thread that holds more free cells of a shape than this returns half of them.
const HOARD_MAX: usize = 4 * BATCH;

/// An object that was read. Validation compares it.
#[derive(Clone, Copy, Debug)]
pub struct ReadEntry {
    pub at: PmAddr,
    pub word: VersionWord,
}

/// The action on an object of the write set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A new version.
    Update,
    /// The first version of a new object.
    Alloc,
    /// The object ends.
    Free,
    /// The object was allocated and freed in the same transaction: nothing is written.
    Nothing,
}

/// An object of the write set.
#[derive(Clone, Copy, Debug)]
pub struct WriteEntry {
    pub at: PmAddr,
    /// The word when the object was first used. The commit succeeds only if it is still the same.
    pub seen: VersionWord,
    pub shape: Shape,
    pub change: Change,
    /// Payload words.
    pub words: u32,
    /// Place of slot header and payload in the arena.
    pub arena: usize,
}

/// Why an attempt may not commit although its closure may run to the end. Until then every operation returns the error
/// again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doom {
    /// It met a conflict and went on. The values it saw may no longer be valid.
    Conflict(Conflict),
    /// A nested transaction failed, and its changes are in the write set.
    Nested,
    /// It waits for a change.
    Retry,
}

impl Doom {
    /// The abort of a closure that ran to its end with this doom. `failed` is the error that it returned.
    #[cold]
    #[inline(never)]
    pub fn end(self, failed: Option<Abort>) -> Abort {
        match self {
            // Also in place of an error, which may result from an invalid state.
            Self::Conflict(_) | Self::Retry => self.into(),
            Self::Nested => failed.unwrap_or_else(nested_failed),
        }
    }
}

impl From<Doom> for Abort {
    #[cold]
    fn from(doom: Doom) -> Self {
        match doom {
            Doom::Conflict(conflict) => conflict.into(),
            Doom::Nested => nested_failed(),
            Doom::Retry => Self(Why::Retry),
        }
    }
}

#[cold]
fn nested_failed() -> Abort {
    Error::Cancelled {
        reason: "a nested transaction, or a change of a collection, failed before; hand its error on with `?`".into(),
    }
    .into()
}

/// A free cell that a thread keeps. No other thread changes it.
#[derive(Clone, Copy, Debug)]
pub struct FreeCell {
    pub at: PmAddr,
    /// Its version word, as this thread wrote it last. Then it need not be read.
    pub word: Option<VersionWord>,
}

/// State that is handed on with a thread id besides its clock. Its two newest records must stay whole.
#[derive(Debug, Default)]
pub struct Kept {
    /// Which of the two buffers comes next.
    pub next: u64,
    /// Spill blocks of the record in each buffer. They may not be overwritten while the record is there.
    pub spill: [Vec<PmAddr>; 2],
    /// Tick of the thread's last transaction with changes.
    pub previous: Tick,
}

/// See the module. Aligned to its own cache lines: contexts of two threads share none.
#[derive(Debug)]
#[repr(align(128))]
pub struct Context {
    core: Weak<Core>,
    core_id: u64,
    lease: Option<Lease>,
    pub writer: lodestone_txn::Writer,
    /// The buffers for its records.
    pub buffers: Buffers,
    /// The thread's clock.
    pub tick: Tick,
    pub known: StartClocks,
    /// The versions that the snapshot sees, or the oldest active snapshot while there is one.
    pub horizon: Horizon,
    pub reads: Vec<ReadEntry>,
    pub writes: Vec<WriteEntry>,
    pub index: WriteIndex,
    /// Working copies: each a slot header and a payload.
    pub arena: Vec<u64>,
    /// The intent record under construction.
    pub record: Vec<u64>,
    /// The state that goes on with the id.
    pub kept: Kept,
    free: Vec<(Shape, Vec<FreeCell>)>,
    /// Set by an error that the closure received and may have swallowed.
    pub doom: Cell<Option<Doom>>,
    /// State of the generator for back-off.
    pub random: u64,
}

impl Context {
    pub fn new(core: &Arc<Core>) -> Result<Self> {
        let lease = core.timeline.registry().lease()?;
        let kept = std::mem::take(&mut *lock(&core.kept[lease.writer().index()]));
        Ok(Self::with(core, lease, kept))
    }

    fn with(core: &Arc<Core>, lease: Lease, kept: Kept) -> Self {
        let tick = core.timeline.registry().clock(&lease);
        let mut known = StartClocks::new(core.timeline.clock().kind(), core.timeline.base());
        known.know(lease.writer().index(), tick);
        Self {
            core: Arc::downgrade(core),
            core_id: core.id,
            writer: lease.writer(),
            buffers: core.places.buffers(lease.writer()),
            random: 0x9E37_79B9_7F4A_7C15 ^ u64::from(lease.writer().number()),
            lease: Some(lease),
            tick,
            known,
            horizon: Horizon::default(),
            reads: Vec::new(),
            writes: Vec::new(),
            index: WriteIndex::default(),
            arena: Vec::new(),
            record: Vec::new(),
            kept,
            free: Vec::new(),
            doom: Cell::new(None),
        }
    }

    /// A context with this one's thread id, for an internal transaction of the memory before this context's transaction
    /// goes on.
    pub fn lend(&mut self, core: &Arc<Core>) -> Lent<'_> {
        let lease = self.lease.take().expect("a context has its thread id until it is dropped");
        let lent = Self::with(core, lease, std::mem::take(&mut self.kept));
        Lent { owner: self, lent }
    }

    /// Sets the thread's clock, here and where it is handed on.
    #[inline]
    pub fn set_tick(&mut self, core: &Core, tick: Tick) {
        self.tick = tick;
        self.known.know(self.writer.index(), tick);
        if let Some(lease) = &self.lease {
            core.timeline.registry().set_clock(lease, tick);
        }
    }

    /// Adds an entry to the write set with room for `words` payload words. Returns its number.
    #[inline(always)]
    pub fn add_write(&mut self, at: PmAddr, seen: VersionWord, shape: Shape, change: Change, words: u32) -> usize {
        let arena = self.arena.len();
        self.arena.resize(arena + SLOT_HEADER_WORDS + to_usize(words), 0);
        self.add_entry(WriteEntry { at, seen, shape, change, words, arena })
    }

    /// Adds an entry whose place in the arena already exists. Returns its number.
    #[inline]
    pub fn add_entry(&mut self, entry: WriteEntry) -> usize {
        let number = self.writes.len();
        self.writes.push(entry);
        self.index.insert(entry.at, number, &self.writes);
        number
    }

    /// Number of the write entry for `at`.
    #[inline]
    pub fn find_write(&self, at: PmAddr) -> Option<usize> {
        self.index.find(at, &self.writes)
    }

    /// Payload of write entry `number`.
    #[inline]
    pub fn payload(&mut self, number: usize) -> &mut [u64] {
        let entry = &self.writes[number];
        let start = entry.arena + SLOT_HEADER_WORDS;
        &mut self.arena[start..start + to_usize(entry.words)]
    }

    /// The free cells of `shape` that this thread keeps.
    #[inline]
    fn cells(&mut self, shape: Shape) -> &mut Vec<FreeCell> {
        let position = match self.free.iter().position(|(found, _)| *found == shape) {
            Some(position) => position,
            None => {
                self.free.push((shape, Vec::new()));
                self.free.len() - 1
            }
        };
        &mut self.free[position].1
    }

    /// A free cell of `shape`.
    #[inline]
    pub fn take_cell(&mut self, core: &Core, shape: Shape) -> Result<FreeCell> {
        let cells = self.cells(shape);
        let Some(cell) = cells.pop() else { return self.take_cells(core, shape) };
        if let Some(next) = cells.last() {
            // The freed cell was flushed, which may have taken it out of the cache.
            core.memory.prefetch(next.at, 64);
        }
        Ok(cell)
    }

    /// Takes free cells from the slabs and returns one of them.
    #[cold]
    #[inline(never)]
    fn take_cells(&mut self, core: &Core, shape: Shape) -> Result<FreeCell> {
        let batch = if shape.cell_bytes <= 4096 { BATCH } else { 1 };
        let cells = self.cells(shape);
        let taken = core.slabs.take(&core.heap, shape, batch, |at| core.is_free(at, shape))?;
        cells.extend(taken.into_iter().map(|at| FreeCell { at, word: None }));
        cells.pop().ok_or(Error::BadPointer { at: PmAddr::NULL, finding: "no free cell" })
    }

    /// Keeps a free cell for later.
    #[inline]
    pub fn give_cell(&mut self, core: &Core, shape: Shape, cell: FreeCell) {
        let cells = self.cells(shape);
        cells.push(cell);
        if cells.len() > HOARD_MAX {
            core.slabs.give(shape, cells.drain(..HOARD_MAX / 2).map(|cell| cell.at));
        }
    }

    /// Forgets the transaction. The cells that it took are free again.
    #[inline(always)]
    pub fn reset(&mut self, core: &Core) {
        self.doom.set(None);
        self.reads.clear();
        if !self.writes.is_empty() {
            self.forget_writes(core);
        }
    }

    #[cold]
    #[inline(never)]
    fn forget_writes(&mut self, core: &Core) {
        for number in 0..self.writes.len() {
            let entry = self.writes[number];
            if matches!(entry.change, Change::Alloc | Change::Nothing) {
                self.give_cell(core, entry.shape, FreeCell { at: entry.at, word: None });
            }
        }
        self.clear_writes();
    }

    /// Empties the write set.
    #[inline]
    pub fn clear_writes(&mut self) {
        self.writes.clear();
        self.index.clear();
        self.arena.clear();
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let Some(core) = self.core.upgrade() else { return };
        self.reset(&core);
        for (shape, cells) in self.free.drain(..) {
            core.slabs.give(shape, cells.into_iter().map(|cell| cell.at));
        }
        if let Some(lease) = self.lease.take() {
            *lock(&core.kept[lease.writer().index()]) = std::mem::take(&mut self.kept);
            core.timeline.registry().release(lease);
        }
    }
}

/// See [`Context::lend`]. Returns the id when dropped.
pub struct Lent<'c> {
    owner: &'c mut Context,
    lent: Context,
}

impl Lent<'_> {
    /// The context.
    pub fn context(&mut self) -> &mut Context {
        &mut self.lent
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.owner.lease = self.lent.lease.take();
        self.owner.kept = std::mem::take(&mut self.lent.kept);
        // The clock is copied, so no tick is used twice. The known clocks are not: the owner's reads were not
        // validated.
        self.owner.tick = self.lent.tick;
    }
}

thread_local! {
    /// The context that this thread used last.
    static LAST: Cell<Option<Box<Context>>> = const { Cell::new(None) };
    /// Contexts of other memories.
    static OTHERS: RefCell<Vec<Context>> = const { RefCell::new(Vec::new()) };
    /// The memories that this thread has a context of. A context that is in neither place is in use by a transaction.
    static OWNED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// A context in use. It puts everything back when dropped, also by a panic of the closure.
pub struct Running<'c> {
    core: &'c Core,
    context: Option<Box<Context>>,
}

impl<'c> Running<'c> {
    /// Takes the thread's context for `core`, or makes one.
    #[inline]
    pub fn start(core: &'c Arc<Core>) -> Result<Self> {
        let context = match LAST.with(Cell::take) {
            Some(context) if context.core_id == core.id => context,
            other => Self::find_or_make(core, other)?,
        };
        Ok(Self { core, context: Some(context) })
    }

    #[cold]
    #[inline(never)]
    fn find_or_make(core: &Arc<Core>, last: Option<Box<Context>>) -> Result<Box<Context>> {
        let found = OTHERS.with(|others| {
            let mut others = others.borrow_mut();
            others.extend(last.map(|context| *context));
            // Contexts of memories that were closed.
            let closed = |context: &mut Context| context.core.strong_count() == 0;
            for context in others.extract_if(.., closed) {
                OWNED.with(|owned| owned.borrow_mut().retain(|&id| id != context.core_id));
            }
            let position = others.iter().position(|context| context.core_id == core.id);
            position.map(|position| Box::new(others.swap_remove(position)))
        });
        if let Some(context) = found {
            return Ok(context);
        }
        if OWNED.with(|owned| owned.borrow().contains(&core.id)) {
            return Err(Error::Nested);
        }
        let made = Box::new(Context::new(core)?);
        OWNED.with(|owned| owned.borrow_mut().push(core.id));
        Ok(made)
    }

    /// The context.
    #[inline]
    pub fn context(&mut self) -> &mut Context {
        self.context.as_mut().expect("a running transaction has its context until it is dropped")
    }
}

impl Drop for Running<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(mut context) = self.context.take() {
            context.reset(self.core);
            if let Some(other) = LAST.with(|last| last.replace(Some(context))) {
                OTHERS.with(|others| others.borrow_mut().push(*other));
            }
        }
    }
}
