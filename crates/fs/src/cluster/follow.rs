//! A node with metadata that follows: it executes the operations of its log, and keeps an image.
//!
//! 1. It takes only operations that every member has: nothing that it takes is ever cut.
//! 2. Its image follows in batches. The log of the node keeps everything that the image lacks.
//! 3. When the node takes over, the state goes to the volume, which executes the rest of the log.
//!
//! So a standby and a restart are the same thing: the image of a node, and the operations after it.

use std::sync::{Arc, TryLockError};
use std::time::{Duration, Instant};

use lodestone_fabric::{FLAG_BEGIN, RecordHead, Sequence};
use lodestone_pmem::planted;
use lodestone_pmem::sync::Mutex;
use lodestone_store::{Object, Store};

use super::plan::Plan;
use crate::data::Data;
use crate::error::{Error, Result, damaged};
use crate::image::Image;
use crate::layout::{self, Super, VOLUME, VOLUME_NAME};
use crate::state::State;
use crate::volume::{VolumeOptions, tagged_operation};

/// The parts of a node's volume that stay, whether it follows or leads.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    pub(crate) store: Store,
    pub(crate) object: Arc<Object>,
    pub(crate) layout: Super,
    pub(crate) data: Arc<Data>,
    pub(crate) image: Image,
    /// Who has it reads the image while the node follows: no batch changes it meanwhile.
    pub(crate) hold: Arc<Mutex<()>>,
}

impl Parts {
    /// Opens the volume of a node.
    pub(crate) fn open(store: &Store, options: &VolumeOptions) -> Result<Self> {
        let path = store.pool().path().to_owned();
        let not_found = || Error::NotAVolume { path: path.clone() };
        store.find(VOLUME_NAME)?.ok_or_else(not_found)?;
        let object = store.open_or_make::<Error>(VOLUME_NAME, &VOLUME, |_| Err(not_found()))?;
        let layout = layout::read(store.memory(), object.at(), &path)?;
        let image = Image::open(store, &options.image)?;
        let no_mark = || damaged("image", format!("{}: the mark of a volume with replicas is missing", path.display()));
        Plan::of_mark(image.mark()?, &path)?.ok_or_else(no_mark)?;
        let data = Arc::new(Data::open(store.heap(), object.at(), layout)?);
        Ok(Self { store: store.clone(), object: Arc::new(object), layout, data, image, hold: Arc::default() })
    }
}

/// The state of a node that follows.
#[derive(Debug)]
pub(crate) struct Follower {
    parts: Parts,
    state: State,
    taken: Sequence,
    options: VolumeOptions,
    batch_at: Option<Instant>,
}

impl Follower {
    /// From the image of the node.
    pub(crate) fn open(parts: &Parts, options: &VolumeOptions) -> Result<Self> {
        let state = State::load(parts.image.clone(), parts.layout.pages)?;
        let taken = Sequence(state.head.applied);
        Ok(Self { parts: parts.clone(), state, taken, options: options.clone(), batch_at: None })
    }

    /// The last operation that it has executed.
    pub(crate) const fn taken(&self) -> Sequence {
        self.taken
    }

    /// The last operation that its image has durably.
    pub(crate) const fn applied(&self) -> Sequence {
        Sequence(self.state.head.applied)
    }

    /// Executes the next operation. `body` has no list of payloads.
    pub(crate) fn take(&mut self, head: &RecordHead, body: &[u8]) -> Result<()> {
        if head.sequence != self.taken.next() {
            let (found, expected) = (head.sequence.0, self.taken.next().0);
            return Err(damaged("log of operations", format!("operation {found} follows, not {expected}")));
        }
        if !head.has(FLAG_BEGIN) && !planted::active("fs-standby-skips-operations") {
            self.state.execute(&tagged_operation(head, body)?, head.sequence)?;
        }
        self.taken = head.sequence;
        self.batch_at.get_or_insert_with(|| Instant::now() + self.options.batch_interval);
        Ok(())
    }

    /// Writes the image if it lacks much, or for long; later, if a check reads it. The node answers its sender
    /// meanwhile.
    pub(crate) fn write_if_due(&mut self, is_log_full: bool) -> Result<()> {
        let lacks = self.taken.0 - self.state.head.applied;
        let is_late = self.batch_at.is_some_and(|at| Instant::now() >= at);
        if lacks == 0 || !(is_late || is_log_full || lacks >= self.options.batch_operations) {
            return Ok(());
        }
        let hold = Arc::clone(&self.parts.hold);
        let free = match hold.try_lock() {
            Err(TryLockError::WouldBlock) => return Ok(()),
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            Ok(free) => free,
        };
        let outcome = self.write_image();
        drop(free);
        outcome
    }

    /// Brings the image up to the last executed operation. Durable on return.
    pub(crate) fn write_image(&mut self) -> Result<()> {
        self.batch_at = None;
        let memory = self.parts.store.memory().clone();
        let batch = self.state.begin_batch(self.taken.0);
        self.parts.data.make_room(&batch.checksums)?;
        self.parts.data.save(&batch.checksums);
        self.parts.image.write(&batch)?.durable()?;
        memory.durable()?;
        self.state.end_batch(&batch);
        // Pages are not written here, so there is no quarantine.
        self.state.space.release(&batch.freed);
        self.state.evict(self.options.files_in_memory, |_| false);
        Ok(())
    }

    /// The state, to go on from.
    pub(crate) fn into_state(self) -> State {
        self.state
    }
}

/// How often a node looks whether its image is due.
pub(crate) const STEP: Duration = Duration::from_millis(2);
