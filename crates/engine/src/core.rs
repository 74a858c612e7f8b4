//! The state that all handles and threads of a database share.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Arc, PoisonError};

use lodestone_heap::Heap;
use lodestone_pmem::sync::atomic::{AtomicUsize, Ordering};
use lodestone_pmem::sync::{Condvar, Mutex, RwLock, lock, spin};
use lodestone_pmem::{Domain, DurablePoint, Memory, planted};
use lodestone_store::{InUse, Object};
use lodestone_txn::{Lease, RowState, RowWord, Timeline};
use lodestone_wal::{LogWriter, Record, Wal};

use crate::error::{Error, Result};
use crate::format::Places;
use crate::options::DatabaseOptions;
use crate::payload::Limits;
use crate::recover::Recovered;
use crate::rounds::Rounds;
use crate::state::State;
use crate::tree::{Slot, Tree};

/// The right to append to a log.
#[derive(Debug)]
pub struct Committer {
    pub lease: Lease,
    pub log: LogWriter,
    pub record: Record,
}

/// The shared state.
#[derive(Debug)]
pub struct Core {
    pub timeline: Timeline,
    pub memory: Memory,
    pub heap: Heap,
    pub wal: Wal,
    pub places: Places,
    /// Whether an answer must wait until what it saw is durable.
    pub waits: bool,
    leaf_rows_max: usize,
    /// How much a row holds itself.
    pub limits: Limits,
    trees: RwLock<BTreeMap<u32, Arc<Tree>>>,
    pub rounds: Rounds,
    /// States between transactions.
    states: Mutex<Vec<State>>,
    /// Writers between commits, and how those that wait for one are woken.
    committers: (Mutex<Vec<Committer>>, Condvar),
    /// By writer: where its last version that others may see is durable.
    points: Box<[Mutex<DurablePoint>]>,
    /// Transactions that lost many times in a row.
    pub starving: AtomicUsize,
    /// The claim on the database. Released last.
    pub object: Object,
}

impl Core {
    pub fn new(heap: Heap, places: Places, options: &DatabaseOptions, found: Recovered, object: Object) -> Self {
        let memory = heap.memory().clone();
        let rounds = Rounds::new(found.pages, places.threads_max(), &found.wal);
        Self {
            rounds,
            timeline: found.timeline,
            waits: memory.domain() == Domain::Block,
            memory,
            heap,
            wal: found.wal,
            leaf_rows_max: options.leaf_rows_max,
            limits: options.limits(),
            trees: RwLock::new(found.trees),
            states: Mutex::default(),
            committers: (Mutex::default(), Condvar::new()),
            points: (0..places.threads_max()).map(|_| Mutex::default()).collect(),
            starving: AtomicUsize::new(0),
            places,
            object,
        }
    }

    /// The tree with this number, which may be empty.
    pub fn tree(&self, number: u32) -> Arc<Tree> {
        if let Some(tree) = self.trees.read().unwrap_or_else(PoisonError::into_inner).get(&number) {
            return tree.clone();
        }
        let make = || Arc::new(Tree::new(number, self.leaf_rows_max, self.timeline.base()));
        self.trees.write().unwrap_or_else(PoisonError::into_inner).entry(number).or_insert_with(make).clone()
    }

    /// The numbers of the trees that were used in this life or hold rows.
    pub fn tree_numbers(&self) -> Vec<u32> {
        self.trees.read().unwrap_or_else(PoisonError::into_inner).keys().copied().collect()
    }

    /// All trees.
    pub fn trees(&self) -> Vec<Arc<Tree>> {
        self.trees.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// A state for a transaction.
    pub fn take_state(&self) -> State {
        lock(&self.states).pop().unwrap_or_else(|| State::new(self.timeline.base()))
    }

    /// Keeps a state for the next transaction.
    pub fn give_state(&self, mut state: State) {
        state.reset();
        lock(&self.states).push(state);
    }

    /// A writer for one commit. Waits while all of them are in use.
    pub fn take_committer(&self) -> Result<Committer> {
        let (committers, returned) = &self.committers;
        let mut free = lock(committers);
        loop {
            if let Some(committer) = free.pop() {
                return Ok(committer);
            }
            match self.timeline.registry().lease() {
                Ok(lease) => {
                    let log = self.wal.writer(lease.writer())?;
                    return Ok(Committer { lease, log, record: Record::new() });
                }
                Err(lodestone_txn::Error::TooManyThreads { .. }) => {
                    free = returned.wait(free).unwrap_or_else(PoisonError::into_inner);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Keeps a writer for the next commit.
    pub fn give_committer(&self, committer: Committer) {
        let (committers, returned) = &self.committers;
        lock(committers).push(committer);
        returned.notify_one();
    }

    /// Notes that everything of `writer` is durable at `point`. Before its versions are live.
    pub fn note_point(&self, writer: usize, point: DurablePoint) {
        *lock(&self.points[writer]) = point;
    }

    /// Waits until everything that `state` read is durable.
    pub fn wait_durable(&self, state: &State) -> Result<()> {
        if !self.waits || planted::active("engine-reader-answers-early") {
            return Ok(());
        }
        let point = match state.writers() {
            Some(writers) => writers.into_iter().map(|writer| *lock(&self.points[writer])).max().unwrap_or_default(),
            None => self.memory.flushed_anywhere(),
        };
        Ok(self.memory.wait_durable(point)?)
    }

    /// Waits until the version `word` of `slot` is not pending. It may be overwritten then.
    pub fn wait_settled(&self, slot: &Slot, word: RowWord) -> Result<()> {
        for turn in 0.. {
            let now = slot.word();
            if !now.same_version(word) || now.state() != RowState::Pending {
                break;
            }
            self.refuse_if_poisoned()?;
            spin(turn);
        }
        Ok(())
    }

    /// An error of the log, with the size that an option set.
    pub fn log_error(&self, error: lodestone_wal::Error) -> Error {
        match error {
            lodestone_wal::Error::Full { path, .. } => Error::Full { path, bytes: self.places.log_bytes() },
            other => other.into(),
        }
    }

    /// # Errors
    /// [`Error::Poisoned`].
    pub fn refuse_if_poisoned(&self) -> Result<()> {
        let path = || self.heap.pool().path().to_owned();
        if self.timeline.is_poisoned() { Err(Error::Poisoned { path: path() }) } else { Ok(()) }
    }

    /// # Errors
    /// [`Error::ReadOnly`].
    pub fn refuse_if_read_only(&self) -> Result<()> {
        let path = || self.heap.pool().path().to_owned();
        if self.memory.is_read_only() { Err(Error::ReadOnly { path: path() }) } else { Ok(()) }
    }

    /// Waits a while between two attempts, the longer the more were lost. `is_starving`: lost many times.
    pub fn back_off(&self, attempts: u32, is_starving: bool) {
        let others_first = !is_starving && self.starving.load(Ordering::Relaxed) > 0;
        let turns = if is_starving { 1 } else { 1 << attempts.min(10) };
        (0..if others_first { turns * 16 } else { turns }).for_each(spin);
    }
}

/// A handle on the shared state. While there is one, the database counts as open.
#[derive(Clone, Debug)]
pub struct Handle {
    /// Dropped before `core`. After the last one the database is being closed, and an open waits for that.
    _in_use: InUse,
    core: Arc<Core>,
}

impl Handle {
    pub fn new(in_use: InUse, core: Core) -> Self {
        Self { _in_use: in_use, core: Arc::new(core) }
    }

    /// Whether both are on the same database.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.core, &other.core)
    }
}

impl Deref for Handle {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.core
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        if !self.memory.is_read_only() && !self.timeline.is_poisoned() {
            // A log with an owner gets no mark.
            lock(&self.committers.0).clear();
            // Without a mark the log is as after a crash. The next open marks it.
            let _ = self.wal.mark_ends(&mut |tick| self.timeline.reserve(tick).is_ok());
        }
        self.timeline.close();
    }
}
