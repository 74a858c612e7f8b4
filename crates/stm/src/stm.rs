//! The transactional memory: opening, and the loops that run transactions until they commit.

use std::sync::Arc;

use lodestone_heap::Heap;
use lodestone_pmem::sync::atomic::Ordering;
use lodestone_pmem::sync::{lock, thread};
use lodestone_pmem::{DurablePoint, PmAddr, Pool, planted};
use lodestone_store::{InUse, Object, Store};
use lodestone_txn::Lives;

use crate::commit::commit;
use crate::context::{Change, Context, Running};
use crate::core::Core;
use crate::error::{Abort, Conflict, Error, Result, TxResult, Why};
use crate::format;
use crate::kind::MEMORY;
use crate::options::StmOptions;
use crate::published;
use crate::recover::{RecoveryReport, recover};
use crate::slabs::Slabs;
use crate::snapshot::Active;
use crate::stats::StmStats;
use crate::ticket::Ticket;
use crate::tx::{Access, Tx};

/// Name of the memory that [`Stm::open`] opens.
pub const MEMORY_NAME: &str = "objects";

/// A durable software transactional memory in a store. It is cheap to clone, and any number of threads may use it.
///
/// ```
/// use lodestone_pmem::{DomainChoice, PoolOptions};
/// use lodestone_store::Store;
/// use lodestone_stm::{FromBytes, Immutable, IntoBytes, KnownLayout, PmObject, Stm};
///
/// #[derive(FromBytes, IntoBytes, Immutable, KnownLayout, PmObject)]
/// #[repr(C)]
/// struct Account {
///     cents: u64,
/// }
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("bank.pool");
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// let stm = Stm::open(&Store::create(&path, &options)?)?;
/// let account = stm.root::<Account>()?;
/// stm.update(|tx| {
///     tx.write(account)?.cents += 100;
///     Ok(())
/// })?; // acknowledged: it survives power loss
/// drop(stm);
///
/// let stm = Stm::open(&Store::open(&path, &options)?)?;
/// let account = stm.root::<Account>()?;
/// assert_eq!(stm.read(|tx| Ok(tx.read(account)?.cents))?, 100);
/// # Ok::<(), lodestone_stm::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Stm {
    /// Dropped before `core`. From then on the memory is being closed.
    _in_use: InUse,
    pub(crate) core: Arc<Core>,
    report: Arc<RecoveryReport>,
}

impl Stm {
    /// Ends this memory as a killed process leaves it. Nothing is closed when the last handle is dropped, and nothing
    /// is committed any more. For tests of the next open.
    #[doc(hidden)]
    pub fn abandon(self) {
        self.core.timeline.poison();
    }

    /// The places of each copy of what leads to the objects: header line, entry of the table of crashed lives, block of
    /// the directory of slabs. For proofs that damage one of the copies.
    #[doc(hidden)]
    #[must_use]
    pub fn copies(&self) -> [[PmAddr; 3]; 2] {
        let places = &self.core.places;
        let [header, table, directory] = [places.halves(), places.lives().table, places.directory()];
        [0, 1].map(|copy| [header[copy], table[copy], directory[copy]])
    }

    /// Opens the memory of a store, called [`MEMORY_NAME`], with default options. Makes it on first use.
    ///
    /// When the pool has no room, or holds something damaged or newer. [`Error::AlreadyOpen`] when this process has it
    /// open. While it is being closed, this waits.
    pub fn open(store: &Store) -> Result<Self> {
        Self::open_with(store, &StmOptions::default())
    }

    /// As [`open`](Self::open), with options.
    ///
    /// # Errors
    /// As [`open`](Self::open), and when the options make no sense.
    pub fn open_with(store: &Store, options: &StmOptions) -> Result<Self> {
        Self::open_named(store, MEMORY_NAME, options)
    }

    /// As [`open_with`](Self::open_with), for the memory called `name`. A store can have several. A transaction uses
    /// the objects of one memory.
    ///
    /// # Errors
    /// As [`open_with`](Self::open_with), and when an object of another kind has that name.
    pub fn open_named(store: &Store, name: &str, options: &StmOptions) -> Result<Self> {
        let object = store.open_or_make(name, &MEMORY, |action| format::make(store.heap(), action, options))?;
        Self::open_object(object, options)
    }

    /// Opens a memory from an object that [`Store::open_object`] claimed whatever its kind. For tools.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_object(object: Object, options: &StmOptions) -> Result<Self> {
        let (heap, in_use) = (object.heap().clone(), object.in_use());
        let (memory, places) = (heap.memory(), format::read(&heap, object.at())?);
        let mut lives = Lives::open(memory, places.lives())?;
        if options.reservation_ticks > 0 {
            lives.set_reservation(options.reservation_ticks);
        }
        let mut slabs = Slabs::open(&heap, &places)?;
        let report = recover(&heap, &places, &mut slabs, &mut lives)?;
        let core = Core::new(heap.clone(), places, options, lives, slabs, object);
        Ok(Self { _in_use: in_use, core, report: Arc::new(report) })
    }

    /// The persistent options that the memory was made with. The others are the defaults.
    #[must_use]
    pub fn made_with(&self) -> StmOptions {
        self.core.places.options()
    }

    /// The recovery report of this memory's open.
    #[must_use]
    pub fn recovery(&self) -> &RecoveryReport {
        &self.report
    }

    /// The store that the memory is in.
    #[must_use]
    pub fn store(&self) -> &Store {
        self.core.object.store()
    }

    /// The heap that the memory uses.
    #[must_use]
    pub fn heap(&self) -> &Heap {
        &self.core.heap
    }

    /// The pool that the memory uses.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        self.core.heap.pool()
    }

    /// Counts of transactions since the memory was opened.
    #[must_use]
    pub fn stats(&self) -> StmStats {
        let mut stats = self.core.stats.sum();
        (stats.side_versions, stats.side_bytes) = self.core.side.size();
        stats
    }

    /// Runs `body` as a transaction until it commits. On success all its changes are durable, on error none happened.
    /// `body` may run several times. It always sees a state that was committed as a whole. It must not keep values that
    /// a failed attempt read.
    ///
    /// # Errors
    /// [`Error::Cancelled`] and any other error that `body` returned. [`Error::Nested`] inside another transaction of
    /// this memory. [`Error::Pool`] when the medium failed: the outcome is then unknown.
    ///
    /// # Panics
    /// When `body` panics. Then the transaction has not happened.
    pub fn update<R>(&self, body: impl FnMut(&mut Tx<'_>) -> TxResult<R>) -> Result<R> {
        let mut running = Running::start(&self.core)?;
        let (value, point) = self.run_update(&mut running, body)?;
        // Do not answer with values that could still be lost.
        self.core.memory.durable()?;
        if self.core.waits {
            self.core.memory.wait_durable(point)?;
        }
        Ok(value)
    }

    /// As [`update`](Self::update), but returns when the transaction is committed and ordered. Others see it, and no
    /// transaction that depends on it survives without it. The ticket waits until it is durable: a thread by
    /// [`durable`](lodestone_txn::Ticket::durable), a task by `.await`.
    ///
    /// # When it waits nevertheless
    /// In the `block` domain this call itself can wait for the medium, as long as a sync takes, in two cases:
    /// - the open commit group has no room for another line;
    /// - the lines of the transaction came to more than one group. Either they are more than a group holds (some
    ///   megabytes), or groups were closed again and again while it flushed.
    ///
    /// This happens inside the commit, with the changed objects locked. A thread that reads or changes one of them
    /// waits too. A task that must never hold up its executor should call it on a thread that may wait. In the other
    /// domains nothing waits.
    ///
    /// # Errors
    /// As [`update`](Self::update).
    pub fn update_async<R>(&self, body: impl FnMut(&mut Tx<'_>) -> TxResult<R>) -> Result<Ticket<R>> {
        let mut running = Running::start(&self.core)?;
        let (value, point) = self.run_update(&mut running, body)?;
        Ok(Ticket::new(self.core.memory.clone(), point, value))
    }

    /// Runs attempts until one commits. Returns its result and the point that makes it durable.
    #[inline(always)]
    fn run_update<R>(
        &self,
        running: &mut Running<'_>,
        mut body: impl FnMut(&mut Tx<'_>) -> TxResult<R>,
    ) -> Result<(R, DurablePoint)> {
        Self::attempts(&self.core, running.context(), Access::Update, &mut body)
    }

    /// Runs an internal transaction of the memory in a separate context, beside a transaction that runs on this thread.
    pub(crate) fn run<R>(
        core: &Arc<Core>,
        context: &mut Context,
        read_only: bool,
        mut body: impl FnMut(&mut Tx<'_>) -> TxResult<R>,
    ) -> Result<R> {
        let access = if read_only { Access::Read { noted: true } } else { Access::Update };
        let (value, point) = Self::attempts(core, context, access, &mut body)?;
        if core.waits {
            core.memory.wait_durable(point)?;
        }
        Ok(value)
    }

    #[inline(always)]
    fn attempts<R>(
        core: &Core,
        context: &mut Context,
        access: Access,
        body: &mut impl FnMut(&mut Tx<'_>) -> TxResult<R>,
    ) -> Result<(R, DurablePoint)> {
        let mut attempts = 0;
        loop {
            let outcome = body(&mut Tx::new(core, context, access));
            let abort = match context.doom.get() {
                Some(doom) => doom.end(outcome.err()),
                // Taken apart here, as in `read` and `snapshot`: a copy of the whole outcome would wait for its parts.
                None => match outcome {
                    Ok(value) => match commit(core, context) {
                        Ok(()) => {
                            let point = if core.waits { durable_point(core, context) } else { DurablePoint::default() };
                            let stats = core.stats.of(context.writer.index());
                            if context.writes.is_empty() {
                                stats.reads()
                            } else {
                                stats.commits()
                            }
                            context.reads.clear();
                            context.clear_writes();
                            return Ok((value, point));
                        }
                        Err(abort) => abort,
                    },
                    Err(abort) => abort,
                },
            };
            after_abort(core, context, abort, &mut attempts, seen_point)?;
        }
    }

    /// Runs `body` as a transaction that only reads. It sees one committed state, as new as the call.
    ///
    /// # Errors
    /// As [`update`](Self::update). [`Error::ReadOnly`] when `body` changes something.
    ///
    /// # Panics
    /// When `body` panics.
    pub fn read<R>(&self, mut body: impl FnMut(&mut Tx<'_>) -> TxResult<R>) -> Result<R> {
        let mut running = Running::start(&self.core)?;
        let core = &*self.core;
        let mut attempts = 0;
        let mut noted = core.waits || published::notes();
        loop {
            let context = running.context();
            let outcome = body(&mut Tx::new(core, context, Access::Read { noted }));
            let abort = match context.doom.get() {
                Some(doom) => doom.end(outcome.err()),
                None => match outcome {
                    Ok(value) => {
                        core.stats.of(context.writer.index()).reads();
                        if core.waits {
                            core.memory.wait_durable(durable_point(core, context))?;
                        }
                        context.reads.clear();
                        return Ok(value);
                    }
                    Err(abort) => abort,
                },
            };
            noted = true;
            after_abort(core, context, abort, &mut attempts, seen_point)?;
        }
    }

    /// Runs `body` on a snapshot: the state at one moment after the call, however long `body` takes and whatever other
    /// threads commit meanwhile. For long scans. Short reads are cheaper with [`read`](Self::read).
    ///
    /// No commit makes it restart. Versions that it still sees are copied to memory before they are overwritten, at
    /// most one for each active snapshot and object. They are dropped when the snapshot ends.
    /// [`StmOptions::side_bytes_max`] bounds them.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    ///
    /// # Panics
    /// When `body` panics.
    pub fn snapshot<R>(&self, mut body: impl FnMut(&mut Tx<'_>) -> TxResult<R>) -> Result<R> {
        let mut running = Running::start(&self.core)?;
        let core = &*self.core;
        let mut attempts = 0;
        loop {
            let active = Active::begin(core);
            let context = running.context();
            let outcome = body(&mut Tx::new(core, context, Access::Snapshot { epoch: active.epoch() }));
            let abort = match context.doom.get() {
                Some(doom) => doom.end(outcome.err()),
                None => match outcome {
                    Ok(value) => {
                        core.stats.of(context.writer.index()).reads();
                        if core.waits {
                            core.memory.wait_durable(anywhere(core, context))?;
                        }
                        return Ok(value);
                    }
                    Err(abort) => abort,
                },
            };
            after_abort(core, context, abort, &mut attempts, anywhere)?;
        }
    }
}

/// The point at which everything that the transaction changed and saw is durable.
#[inline(never)]
fn durable_point(core: &Core, context: &Context) -> DurablePoint {
    if context.writes.iter().any(|entry| entry.change != Change::Nothing) {
        // Everything it saw was flushed before, by the thread that published it: in this group or in an earlier one.
        return core.memory.flushed_here();
    }
    seen_point(core, context)
}

/// The point at which everything that the transaction saw is durable, whatever becomes of its changes.
fn seen_point(core: &Core, context: &Context) -> DurablePoint {
    let point = |at: PmAddr| {
        // A slot is in the last group of the thread that committed it (`commit`, step 6).
        let bytes = core.shape_at(at).map_or(64, |shape| u64::from(shape.cell_bytes));
        core.memory.flushed_at(at, bytes)
    };
    let opened = context.writes.iter().map(|entry| entry.at);
    context.reads.iter().map(|entry| entry.at).chain(opened).map(point).max().unwrap_or_default()
}

/// The point for a snapshot, which may have seen the commit of any thread.
fn anywhere(core: &Core, _: &Context) -> DurablePoint {
    core.memory.flushed_anywhere()
}

/// Runs between two attempts. Returns the error that ends the transaction. `seen` returns the point at which everything
/// the attempt saw is durable.
#[cold]
fn after_abort(
    core: &Core,
    context: &mut Context,
    abort: Abort,
    attempts: &mut u32,
    seen: impl Fn(&Core, &Context) -> DurablePoint,
) -> Result<()> {
    let stats = core.stats.of(context.writer.index());
    match abort.0 {
        Why::Failed(error) => {
            stats.cancelled();
            let point = if core.waits { seen(core, context) } else { DurablePoint::default() };
            context.reset(core);
            if core.waits && !matches!(*error, Error::Pool(_)) {
                // An error is an answer: it may tell values that were seen.
                core.memory.wait_durable(point)?;
            }
            return Err(*error);
        }
        Why::Conflict(conflict) => {
            stats.conflict(conflict);
            context.reset(core);
            if conflict != Conflict::Unrecorded {
                *attempts += 1;
                back_off(context, *attempts);
            }
        }
        Why::Retry => {
            stats.waits();
            wait_for_change(core, context);
            context.reset(core);
        }
    }
    Ok(())
}

/// Waits until something that was read has changed. A commit wakes it at once. A missed wake costs a millisecond.
fn wait_for_change(core: &Core, context: &Context) {
    core.waiting.fetch_add(1, Ordering::AcqRel);
    let unchanged = || {
        let same = |at, word: lodestone_txn::VersionWord| core.memory.load(at) == word.to_raw();
        context.reads.iter().all(|entry| same(entry.at, entry.word))
            && context.writes.iter().all(|entry| same(entry.at, entry.seen))
    };
    // Snapshots, and readers in their first attempt, note nothing. They look again after the next commit, or a while
    // later.
    let notes = !context.reads.is_empty() || !context.writes.is_empty();
    let mut waited = false;
    let mut guard = lock(&core.changed.0);
    while unchanged() && (notes || !waited) {
        waited = true;
        #[cfg(feature = "shuttle")]
        {
            drop(guard);
            thread::yield_now();
            guard = lock(&core.changed.0);
        }
        #[cfg(not(feature = "shuttle"))]
        {
            let timeout = std::time::Duration::from_millis(1);
            let woken = core.changed.1.wait_timeout(guard, timeout);
            guard = woken.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
    }
    drop(guard);
    core.waiting.fetch_sub(1, Ordering::AcqRel);
}

/// Waits a random time that doubles with every attempt, so that conflicting transactions separate.
fn back_off(context: &mut Context, attempts: u32) {
    if cfg!(feature = "shuttle") || planted::active("stm-stepping") {
        return thread::yield_now();
    }
    context.random ^= context.random << 13;
    context.random ^= context.random >> 7;
    context.random ^= context.random << 17;
    let pauses = context.random & ((1 << (attempts + 3).min(12)) - 1);
    for _ in 0..pauses {
        std::hint::spin_loop();
    }
    if attempts > 4 {
        thread::yield_now();
    }
}
