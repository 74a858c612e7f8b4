//! The heart of a volume: one lock around state and log, and the way of an operation through both.
//!
//! 1. *Plan*, under the lock: the operation is checked against the state. A refusal ends here, nothing has changed.
//! 2. *Log*: the operation is appended, one fence. From now on it survives (in the `block` domain: after the next
//!    [`Inner::sync`]).
//! 3. *Apply*: the state changes. All under the lock, so the order of the log is the order of the state.
//!
//! The image follows later ([`batch`](crate::batch)). After a failure of the medium nothing more is acknowledged.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, PoisonError};
use std::time::Duration;

use lodestone_fabric::{FLAG_INLINE, Outbox, RecordHead, Ring, Sequence, Term};
use lodestone_pmem::sync::{Mutex, MutexGuard, lock};
use lodestone_pmem::{DurablePoint, Memory};
use lodestone_store::{Object, Store};
use lodestone_width::{to_u64, to_usize};

use crate::apply::apply;
use crate::cluster::link::{Link, QUORUM_WAIT, Submitted};
use crate::data::Data;
use crate::error::{Error, Refusal, Result};
use crate::extents::Run;
use crate::image::Image;
use crate::inode::{Attributes, Inode, Stamp};
use crate::layout::Super;
use crate::op::Op;
use crate::patience::Wait;
use crate::readers::Readers;
use crate::requests::Tag;
use crate::state::State;
use crate::volume::{Clock, VolumeOptions};

/// Locks of files whose content changes: one for each, by its number.
const STRIPES: usize = 64;
/// Changes of content between two syncs of a program that syncs often.
const SYNCED_OFTEN: u64 = 16;
/// Looks for room in the log before an operation gives up: each waits for a batch of the image.
const ROOM_LOOKS: usize = 8;

/// The longest wait for room in the log at a time, with replicas.
const ROOM_WAIT: Duration = Duration::from_millis(20);

/// Where operations go.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one for each volume")]
pub(crate) enum Log {
    /// A ring in the volume's own pool.
    Own { ring: Ring, term: Term, salt: u64 },
    /// The group of operations, and units.
    Shared {
        link: Arc<Link>,
        /// The last operation.
        last: Sequence,
        /// Bytes that the ring of operations can hold.
        capacity: u64,
    },
}

impl Log {
    /// The last operation.
    pub(crate) fn last(&self) -> Sequence {
        match self {
            Self::Own { ring, .. } => ring.last(),
            Self::Shared { last, .. } => *last,
        }
    }

    /// Bytes that it can hold.
    const fn capacity(&self) -> u64 {
        match self {
            Self::Own { ring, .. } => ring.capacity(),
            Self::Shared { capacity, .. } => *capacity,
        }
    }

    /// The image has the operations up to `applied` durably.
    pub(crate) fn release(&mut self, applied: Sequence) {
        match self {
            Self::Own { ring, .. } => ring.release(applied),
            Self::Shared { link, .. } => link.applied.store(applied.0, Ordering::Release),
        }
    }
}

/// State and log.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) state: State,
    pub(crate) log: Log,
    /// Bytes of the log that operations took which the image lacks.
    pub(crate) log_used: u64,
    /// Freed pages that wait until every replica has a record.
    pub(crate) gated: VecDeque<(Sequence, Vec<Run>)>,
    /// Where the last operation is durable.
    pub(crate) point: DurablePoint,
    /// The last operation that is known to be durable, with its pages.
    pub(crate) settled: Sequence,
    /// New files get no number below it: a former metadata node has given those to files that a takeover lost.
    pub(crate) ino_floor: u64,
    /// The lowest number of a file that the takeover of this metadata node did not leave.
    pub(crate) adopted_ino: u64,
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
    pub(crate) _object: Arc<Object>,
    pub(crate) memory: Memory,
    pub(crate) layout: Super,
    pub(crate) data: Arc<Data>,
    /// The state at rest, for those who do not wait for operations.
    pub(crate) image: Image,
    /// The way to replicas, of a volume that has some.
    pub(crate) link: Option<Arc<Link>>,
    /// Pages that a replica has damaged, and another has right.
    pub(crate) to_mend: std::sync::Mutex<BTreeSet<u64>>,
    /// Operations of a former metadata node that were answered and are lost; told once, by a sync.
    lost: AtomicU64,
    pub(crate) options: VolumeOptions,
    pub(crate) core: Mutex<Core>,
    /// Readers of pages. Pages are released to be written again when no reader is in them.
    pub(crate) readers: Readers,
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
    pub(crate) fn new(state: State, log: Log) -> Self {
        Self {
            state,
            log,
            log_used: 0,
            gated: VecDeque::new(),
            point: DurablePoint::default(),
            settled: Sequence(0),
            ino_floor: 0,
            adopted_ino: 0,
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

    /// The number of the next file.
    pub(crate) fn next_ino(&self) -> u64 {
        self.state.head.next_ino.max(self.ino_floor)
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

    /// An operation failed after it was planned. Nothing is acknowledged any more, unless nothing happened.
    fn failed(&mut self, error: Error) -> Error {
        match error {
            Error::Refused(_) | Error::Gone | Error::NoQuorum { .. } | Error::CalledOff => error,
            error => self.poisoned(error),
        }
    }

    /// Nothing is acknowledged any more.
    pub(crate) fn poisoned(&mut self, error: Error) -> Error {
        self.poison.get_or_insert_with(|| error.to_string());
        error
    }

    /// Appends `op` to the log, orders it, and executes it. `false`: the log has no room, and nothing happened.
    pub(crate) fn log_and_apply(
        &mut self,
        memory: &Memory,
        op: &Op,
        pages: &[(Run, &[u8])],
        tag: Option<Tag>,
    ) -> Result<bool> {
        let (mut code, mut body) = op.encode();
        tag.iter().for_each(|tag| tag.mark(&mut code, &mut body));
        if !crate::op::fits(body.len()) {
            return Err(Refusal::Invalid.into());
        }
        let is_sync = self.is_synced_often();
        let settled = self.settled;
        let is_there = match &mut self.log {
            Log::Own { ring, term, salt } => {
                let is_there = ring.has_room(body.len());
                if is_there {
                    append(ring, (*term, *salt), settled, op, code, &body)?;
                    // The operation is persistent before it is answered, and before the image has it.
                    memory.fence();
                    self.point = memory.flushed_here();
                }
                is_there
            }
            Log::Shared { link, last, .. } => {
                let mends = op.action == crate::op::Action::Mend;
                let (ino, at, body) = (op.ino, op.at, body.as_slice());
                let number = link.submit(&Submitted { code, ino, at, body, pages, is_sync, mends })?;
                number.inspect(|number| *last = *number).is_some()
            }
        };
        if !is_there {
            return Ok(false);
        }
        self.counts.operations += 1;
        self.counts.log_bytes += to_u64(body.len()) + 96;
        self.log_used += to_u64(body.len()) + LOG_HEAD_BYTES;
        self.state.requests.note(tag, self.log.last());
        apply(&mut self.state, op)?;
        Ok(true)
    }

    /// Whether the image lacks so much that operations wait for it: with replicas, the log of this node has to hold
    /// everything that the image lacks.
    const fn is_image_far_behind(&self) -> bool {
        matches!(self.log, Log::Shared { .. }) && self.log_used > self.log.capacity() / 4 * 3
    }

    /// Lets pages be used again that every replica has seen freed.
    pub(crate) fn release_gated(&mut self) {
        let Log::Shared { link, .. } = &self.log else { return };
        if self.gated.is_empty() {
            return;
        }
        let stable = link.stable();
        while self.gated.front().is_some_and(|(sequence, _)| *sequence <= stable) {
            let Some((sequence, runs)) = self.gated.pop_front() else { return };
            link.may_reuse(sequence);
            self.state.space.release(&runs);
        }
    }
}

/// Bytes of an operation in the log beside its body, at most: heads, the list of payloads, rounding.
const LOG_HEAD_BYTES: u64 = 192;

fn append(
    ring: &mut Ring,
    (term, salt): (Term, u64),
    settled: Sequence,
    op: &Op,
    code: u16,
    body: &[u8],
) -> Result<()> {
    let sequence = ring.last().next();
    let mut head = RecordHead {
        reuse: settled,
        sequence,
        operation: sequence.0,
        term,
        opcode: code,
        flags: FLAG_INLINE,
        inode: op.ino,
        offset: op.at.cast_unsigned(),
        ..RecordHead::default()
    };
    head.seal(salt, body)?;
    Ok(ring.append(&head, body)?)
}

/// Nanoseconds since 1970.
pub(crate) fn system_time() -> Stamp {
    let now = std::time::SystemTime::now();
    let since = now.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Stamp::try_from(since.as_nanos()).unwrap_or(Stamp::MAX)
}

impl Inner {
    /// A volume over its parts.
    pub(crate) fn over(
        store: &Store,
        object: Arc<Object>,
        layout: Super,
        data: Arc<Data>,
        link: Option<Arc<Link>>,
        options: &VolumeOptions,
        core: Core,
    ) -> Self {
        Self {
            store: store.clone(),
            _object: object,
            memory: store.memory().clone(),
            layout,
            data,
            image: core.state.image.clone(),
            link,
            to_mend: std::sync::Mutex::default(),
            lost: AtomicU64::new(0),
            options: options.clone(),
            core: Mutex::new(core),
            readers: Readers::default(),
            imaging: Mutex::new(()),
            stripes: stripes(),
            signal: std::sync::Mutex::new(Signal::default()),
            wake: Condvar::new(),
        }
    }

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
    /// no room. It may find that there is nothing to do. `pages` go to the replicas.
    pub(crate) fn commit_or_not<T, R>(
        &self,
        pages: &[(Run, &[u8])],
        plan: impl FnMut(&mut Core, Stamp) -> Result<Option<(Op, T)>>,
        done: impl FnOnce(&mut Core, T) -> Result<R>,
        nothing: impl FnOnce() -> Result<R>,
    ) -> Result<R> {
        self.commit_for(None, pages, plan, done, nothing)
    }

    /// As [`commit_or_not`](Self::commit_or_not), for a request of a mount in another process. A request that was
    /// carried out is refused.
    pub(crate) fn commit_for<T, R>(
        &self,
        tag: Option<Tag>,
        pages: &[(Run, &[u8])],
        mut plan: impl FnMut(&mut Core, Stamp) -> Result<Option<(Op, T)>>,
        done: impl FnOnce(&mut Core, T) -> Result<R>,
        nothing: impl FnOnce() -> Result<R>,
    ) -> Result<R> {
        let mut waiting = None;
        let mut looks = 0;
        loop {
            let mut core = self.core();
            core.check_poison()?;
            if tag.is_some_and(|tag| core.state.requests.has(tag)) {
                return Err(Error::Repeated);
            }
            let now = core.time(self.options.clock);
            let Some((op, plan)) = plan(&mut core, now)? else { return nothing() };
            let is_far_behind = core.is_image_far_behind();
            let outcome = if is_far_behind { Ok(false) } else { core.log_and_apply(&self.memory, &op, pages, tag) };
            if outcome.map_err(|error| core.failed(error))? {
                let answer = done(&mut core, plan);
                let is_due = core.log.last().0 - core.state.head.applied >= self.options.batch_operations
                    || core.log_used > core.log.capacity() / 2;
                drop(core);
                if is_due && let Err(error) = self.image_is_due() {
                    // The operation counts nevertheless. A later one tries again, or finds that the medium has failed.
                    tracing::warn!("{}: the image is late: {error}", self.store.pool().path().display());
                }
                return answer;
            }
            drop(core);
            looks += 1;
            let wait = waiting.get_or_insert_with(|| Wait::begin(QUORUM_WAIT));
            self.wait_for_room(is_far_behind, looks, wait)?;
        }
    }

    /// The log has no room: waits for a batch of the image, or for replicas.
    fn wait_for_room(&self, is_image_behind: bool, looks: usize, wait: &mut Wait) -> Result<()> {
        match &self.link {
            None if looks >= ROOM_LOOKS => Err(Refusal::NoSpace.into()),
            None => self.write_image(),
            // Another thread that writes the image may wait for nodes: this one can be called off meanwhile.
            Some(_) if is_image_behind && self.write_image_if_free()? => Ok(()),
            // The error says who is late.
            Some(link) => link.wait_room(wait, ROOM_WAIT),
        }
    }

    /// This volume goes on from a metadata node of the same process, of whose operations those up to `kept` are left.
    /// Others that it had answered are lost, and the next sync says so.
    pub(crate) fn go_on_from(&self, former: &Self, kept: Sequence) {
        let (last, next_ino) = {
            let core = former.core();
            (core.log.last(), core.next_ino())
        };
        let lost = last.0.saturating_sub(kept.0);
        // Also those that no sync has told yet.
        self.lost.store(lost + former.lost.swap(0, Ordering::AcqRel), Ordering::Release);
        {
            // Requests of the former one that are not in the log were cut: they are not remembered here.
            self.core().ino_floor = next_ino;
        }
        let damaged = std::mem::take(&mut *former.to_mend.lock().unwrap_or_else(PoisonError::into_inner));
        self.to_mend.lock().unwrap_or_else(PoisonError::into_inner).extend(damaged);
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

    /// Everything that was acknowledged before the call survives power loss on return; with replicas, also the loss of
    /// a minority of each group of nodes.
    pub(crate) fn sync(&self) -> Result<()> {
        let (point, last, relies_on_pages) = {
            let mut core = self.core();
            core.check_poison()?;
            core.counts.syncs += 1;
            core.syncs_often = core.since_sync <= SYNCED_OFTEN;
            core.since_sync = 0;
            (core.point, core.log.last(), core.relies_on_pages)
        };
        if let Some(link) = &self.link {
            link.wait_acknowledged(last)?;
            return match self.lost.swap(0, Ordering::AcqRel) {
                0 => Ok(()),
                count => Err(Error::Lost { count }),
            };
        }
        let settled = if relies_on_pages { self.data.settle() } else { Ok(()) };
        let outcome = settled.and_then(|()| {
            self.memory.durable()?;
            Ok(self.memory.wait_durable(point)?)
        });
        let mut core = self.core();
        outcome.map_err(|error| core.poisoned(error))?;
        core.settled = core.settled.max(last);
        if core.log.last() == last {
            core.relies_on_pages = false;
        }
        Ok(())
    }
}
