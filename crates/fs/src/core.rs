//! The heart of a volume: one lock around state and log, and the way of an operation through both.
//!
//! 1. *Plan*, under the lock: the operation is checked against the state. A refusal ends here, nothing has changed.
//! 2. *Log*: the operation is appended, one fence. From now on it survives (in the `block` domain: after the next
//!    [`Inner::sync`]).
//! 3. *Apply*: the state changes. All under the lock, so the order of the log is the order of the state.
//!
//! The image follows later ([`batch`](crate::batch)). After a failure of the medium nothing more is acknowledged.

use std::collections::HashMap;
use std::sync::{Condvar, PoisonError, RwLock};

use lodestone_fabric::{FLAG_INLINE, RecordHead, Ring, Sequence, Term};
use lodestone_pmem::sync::{Mutex, MutexGuard, lock};
use lodestone_pmem::{DurablePoint, Memory};
use lodestone_store::{Object, Store};
use lodestone_width::{to_u64, to_usize};

use crate::apply::apply;
use crate::data::Data;
use crate::error::{Error, Refusal, Result};
use crate::inode::{Attributes, Inode, Stamp};
use crate::layout::Super;
use crate::op::Op;
use crate::state::State;
use crate::volume::{Clock, VolumeOptions};

/// Locks of files whose content changes: one for each, by its number.
const STRIPES: usize = 64;
/// Changes of content between two syncs of a program that syncs often.
const SYNCED_OFTEN: u64 = 16;
/// Looks for room in the log before an operation gives up: each waits for a batch of the image.
const ROOM_LOOKS: usize = 8;

/// State and log.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) state: State,
    pub(crate) ring: Ring,
    pub(crate) term: Term,
    salt: u64,
    /// Where the last operation is durable.
    pub(crate) point: DurablePoint,
    /// The last operation that is known to be durable, with its pages.
    pub(crate) settled: Sequence,
    /// Users of files: open handles, and numbers that the kernel knows.
    pub(crate) pins: HashMap<u64, u64>,
    pub(crate) poison: Option<String>,
    pub(crate) counts: OpCounts,
    /// Changes of content since the last sync, and whether the sync before came after few of them.
    pub(crate) since_sync: u64,
    syncs_often: bool,
    /// Whether an operation since the last settling has its bytes in its pages alone.
    pub(crate) relies_on_pages: bool,
    /// The last time that an operation had.
    now: Stamp,
}

/// Counts of a volume since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpCounts {
    /// Operations.
    pub operations: u64,
    /// Bytes of their records.
    pub log_bytes: u64,
    /// Calls that made everything durable.
    pub syncs: u64,
    /// Batches of the image.
    pub batches: u64,
    /// Pages written.
    pub pages_written: u64,
}

/// A volume without its handle.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) store: Store,
    /// The claim on the volume.
    pub(crate) _object: Object,
    pub(crate) memory: Memory,
    pub(crate) layout: Super,
    pub(crate) data: Data,
    pub(crate) options: VolumeOptions,
    pub(crate) core: Mutex<Core>,
    /// Held by readers of pages. Pages are released to be written again when no reader is in them.
    pub(crate) gate: RwLock<()>,
    /// Held by the one thread that writes the image.
    pub(crate) imaging: Mutex<()>,
    pub(crate) stripes: Vec<Mutex<()>>,
    pub(crate) signal: std::sync::Mutex<Signal>,
    pub(crate) wake: Condvar,
}

/// Messages to the background thread.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Signal {
    pub(crate) wanted: bool,
    pub(crate) stop: bool,
}

/// One lock for each of the files.
pub(crate) fn stripes() -> Vec<Mutex<()>> {
    (0..STRIPES).map(|_| Mutex::new(())).collect()
}

impl Core {
    pub(crate) fn new(state: State, ring: Ring, term: Term, salt: u64) -> Self {
        Self {
            state,
            ring,
            term,
            salt,
            point: DurablePoint::default(),
            settled: Sequence(0),
            pins: HashMap::new(),
            poison: None,
            counts: OpCounts::default(),
            since_sync: 0,
            syncs_often: false,
            relies_on_pages: false,
            now: 0,
        }
    }

    /// The file `ino` for a caller; `ENOENT` when there is none.
    pub(crate) fn file(&mut self, ino: u64) -> Result<&mut Inode> {
        self.state.find(ino)?.ok_or_else(|| Refusal::NotFound.into())
    }

    /// The attributes of `ino`, as `stat` tells them.
    pub(crate) fn attributes(&mut self, ino: u64) -> Result<Attributes> {
        Ok(self.file(ino)?.attributes)
    }

    /// Whether changes of content are soon followed by a sync.
    pub(crate) const fn is_synced_often(&self) -> bool {
        self.syncs_often && self.since_sync < SYNCED_OFTEN
    }

    pub(crate) fn is_pinned(&self, ino: u64) -> bool {
        self.pins.contains_key(&ino)
    }

    /// The time of the next operation. It never goes back within a life.
    pub(crate) fn time(&mut self, clock: Clock) -> Stamp {
        self.now = match clock {
            Clock::System => system_time().max(self.now),
            Clock::Steps => self.now + 1_000_000_000,
        };
        self.now
    }

    pub(crate) fn check_poison(&self) -> Result<()> {
        self.poison.as_ref().map_or(Ok(()), |cause| Err(Error::Poisoned(cause.clone())))
    }

    /// Nothing is acknowledged any more.
    pub(crate) fn poisoned(&mut self, error: Error) -> Error {
        self.poison.get_or_insert_with(|| error.to_string());
        error
    }

    /// Appends `op` to the log, orders it, and executes it.
    pub(crate) fn log_and_apply(&mut self, memory: &Memory, op: &Op, code: u16, body: &[u8]) -> Result<()> {
        let sequence = self.ring.last().next();
        let mut head = RecordHead {
            reuse: self.settled,
            sequence,
            operation: sequence.0,
            term: self.term,
            opcode: code,
            flags: FLAG_INLINE,
            inode: op.ino,
            offset: op.at.cast_unsigned(),
            ..RecordHead::default()
        };
        head.seal(self.salt, body)?;
        self.ring.append(&head, body)?;
        // The operation is persistent before it is answered, and before the image has it.
        memory.fence();
        self.point = memory.flushed_here();
        self.counts.operations += 1;
        self.counts.log_bytes += to_u64(body.len()) + 96;
        apply(&mut self.state, op)
    }
}

/// Nanoseconds since 1970.
pub(crate) fn system_time() -> Stamp {
    let now = std::time::SystemTime::now();
    let since = now.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Stamp::try_from(since.as_nanos()).unwrap_or(Stamp::MAX)
}

impl Inner {
    pub(crate) fn core(&self) -> MutexGuard<'_, Core> {
        lock(&self.core)
    }

    /// Bytes of a page.
    pub(crate) const fn page_bytes(&self) -> u64 {
        self.layout.page_bytes
    }

    /// The lock of the content of `ino`.
    pub(crate) fn stripe(&self, ino: u64) -> MutexGuard<'_, ()> {
        lock(&self.stripes[to_usize(ino % to_u64(STRIPES))])
    }

    /// Plans an operation under the lock, does it, and lets `done` make the answer. `plan` runs again when the log had
    /// no room.
    pub(crate) fn commit<T, R>(
        &self,
        mut plan: impl FnMut(&mut Core, Stamp) -> Result<(Op, T)>,
        done: impl FnOnce(&mut Core, T) -> Result<R>,
    ) -> Result<R> {
        self.commit_or_not(|core, at| plan(core, at).map(Some), done, || Err(Refusal::Invalid.into()))
    }

    /// As [`commit`](Self::commit), where `plan` may find that there is nothing to do.
    pub(crate) fn commit_or_not<T, R>(
        &self,
        mut plan: impl FnMut(&mut Core, Stamp) -> Result<Option<(Op, T)>>,
        done: impl FnOnce(&mut Core, T) -> Result<R>,
        nothing: impl FnOnce() -> Result<R>,
    ) -> Result<R> {
        for _ in 0..ROOM_LOOKS {
            let mut core = self.core();
            core.check_poison()?;
            let now = core.time(self.options.clock);
            let Some((op, plan)) = plan(&mut core, now)? else { return nothing() };
            let (code, body) = op.encode();
            if !crate::op::fits(body.len()) {
                return Err(Refusal::Invalid.into());
            }
            if core.ring.has_room(body.len()) {
                let outcome = core.log_and_apply(&self.memory, &op, code, &body);
                outcome.map_err(|error| core.poisoned(error))?;
                let answer = done(&mut core, plan);
                let is_due = core.ring.last().0 - core.state.head.applied >= self.options.batch_operations
                    || core.ring.used() > core.ring.capacity() / 2;
                drop(core);
                if is_due {
                    self.image_is_due()?;
                }
                return answer;
            }
            drop(core);
            self.write_image()?;
        }
        Err(Refusal::NoSpace.into())
    }

    /// The image lacks many operations. Without a background thread this one writes it.
    fn image_is_due(&self) -> Result<()> {
        if !self.options.background {
            return self.write_image();
        }
        let mut signal = self.signal.lock().unwrap_or_else(PoisonError::into_inner);
        if !signal.wanted {
            signal.wanted = true;
            self.wake.notify_one();
        }
        Ok(())
    }

    /// Everything that was acknowledged before the call survives power loss on return.
    pub(crate) fn sync(&self) -> Result<()> {
        let (point, last, relies_on_pages) = {
            let mut core = self.core();
            core.check_poison()?;
            core.counts.syncs += 1;
            core.syncs_often = core.since_sync <= SYNCED_OFTEN;
            core.since_sync = 0;
            (core.point, core.ring.last(), core.relies_on_pages)
        };
        let settled = if relies_on_pages { self.data.settle() } else { Ok(()) };
        let outcome = settled.and_then(|()| {
            self.memory.durable()?;
            Ok(self.memory.wait_durable(point)?)
        });
        let mut core = self.core();
        outcome.map_err(|error| core.poisoned(error))?;
        core.settled = core.settled.max(last);
        if core.ring.last() == last {
            core.relies_on_pages = false;
        }
        Ok(())
    }
}
