//! The image follows the log: batches, and the thread that writes them.
//!
//! 1. Under the lock: everything that changed since the last batch is copied, with the number of the last operation.
//! 2. The pages of these operations are settled; their checksums go to the table.
//! 3. One transaction writes the changes to the trees, with `applied`. It waits until that is durable.
//! 4. The log is released up to `applied`. When readers that began before have left the pages that these operations
//!    freed, their quarantine ends, under the lock.
//!
//! Step 2 comes before step 3: an operation whose pages could be lost may not leave the log. Step 3 ends before step 4:
//! neither log nor pages may be overwritten while a crash could bring the image before the batch back.

use std::sync::{Arc, PoisonError, TryLockError, Weak};
use std::thread::JoinHandle;

use lodestone_fabric::Sequence;
use lodestone_pmem::planted;
use lodestone_pmem::sync::{MutexGuard, lock};

use crate::core::Inner;
use crate::error::{Error, Result};
use crate::image::Batch;

impl Inner {
    /// Brings the image up to the last operation. Durable on return.
    pub(crate) fn write_image(&self) -> Result<()> {
        self.write_image_and_hold().map(drop)
    }

    /// The same, unless another thread is at it. Whether it was done.
    pub(crate) fn write_image_if_free(&self) -> Result<bool> {
        let free = match self.imaging.try_lock() {
            Err(TryLockError::WouldBlock) => return Ok(false),
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            Ok(free) => free,
        };
        let outcome = self.write_next_batch();
        drop(free);
        outcome.map(|()| true)
    }

    /// The same as [`write_image`](Self::write_image). As long as the guard lives, no other batch changes the image.
    pub(crate) fn write_image_and_hold(&self) -> Result<MutexGuard<'_, ()>> {
        let imaging = lock(&self.imaging);
        self.write_next_batch()?;
        Ok(imaging)
    }

    /// Under the lock of the image.
    fn write_next_batch(&self) -> Result<()> {
        let (batch, image, point, before) = {
            let mut core = self.core();
            core.check_poison()?;
            core.release_gated();
            let (last, before) = (core.log.last(), core.state.head.applied);
            if !core.state.is_dirty() && last.0 == before {
                return Ok(());
            }
            core.counts.batches += 1;
            let unit_last = self.link.as_ref().map_or(Sequence(0), |link| link.unit_last());
            let before = Before { applied: before, log_used: core.log_used, unit_last };
            (core.state.begin_batch(last.0), core.state.image.clone(), core.point, before)
        };
        if let Err(error) = self.settle_batch(&batch, point) {
            let mut core = self.core();
            core.state.undo_batch(&batch, before.applied);
            return Err(if self.link.is_some() { error } else { core.poisoned(error) });
        }
        let outcome = self.write_batch(&batch, &image);
        {
            let mut core = self.core();
            outcome.map_err(|error| core.poisoned(error))?;
            let applied = Sequence(batch.head.applied);
            core.settled = core.settled.max(applied);
            core.log.release(applied);
            core.log_used = core.log_used.saturating_sub(before.log_used);
        }
        // A reader that begins from here on finds none of the freed pages in a file. The lock is free meanwhile: a
        // reader may wait for a node.
        self.readers.wait_for_those_inside();
        let mut core = self.core();
        core.state.end_batch(&batch);
        if self.link.is_none() {
            core.state.space.release(&batch.freed);
        } else if !batch.freed.is_empty() {
            core.gated.push_back((before.unit_last, batch.freed));
            core.release_gated();
        }
        let pins = std::mem::take(&mut core.pins);
        core.state.evict(self.options.files_in_memory, |ino| pins.contains_key(&ino));
        core.pins = pins;
        Ok(())
    }

    /// The image may not be ahead of the log: what it has would count although operations before it are lost.
    fn settle_batch(&self, batch: &Batch, point: lodestone_pmem::DurablePoint) -> Result<()> {
        if let Some(link) = &self.link {
            // A later metadata node cuts what is not acknowledged.
            return link.wait_acknowledged(Sequence(batch.head.applied));
        }
        self.data.settle()?;
        Ok(self.memory.wait_durable(point)?)
    }

    fn write_batch(&self, batch: &Batch, image: &crate::image::Image) -> Result<()> {
        if self.link.is_some() {
            self.data.make_room(&batch.checksums)?;
        }
        if !planted::active("fs-checksums-not-saved") {
            self.data.save(&batch.checksums);
        }
        let ticket = image.write(batch)?;
        ticket.durable()?;
        // The explorer takes this call for the acknowledgement.
        self.memory.durable()?;
        Ok(())
    }
}

/// The state before a batch.
struct Before {
    applied: u64,
    log_used: u64,
    /// The last record of the unit: everything that freed a page of the batch is below.
    unit_last: Sequence,
}

/// Starts the thread that writes the image. It ends when it is told, or when the volume is gone.
pub(crate) fn start(inner: &Arc<Inner>) -> std::io::Result<JoinHandle<()>> {
    let weak = Arc::downgrade(inner);
    std::thread::Builder::new().name("fs-image".into()).spawn(move || while step(&weak) {})
}

/// One wait and one batch. `false` at the end.
fn step(weak: &Weak<Inner>) -> bool {
    let Some(inner) = weak.upgrade() else { return false };
    let signal = inner.signal.lock().unwrap_or_else(PoisonError::into_inner);
    let interval = inner.options.batch_interval;
    let waited = inner.wake.wait_timeout_while(signal, interval, |signal| !signal.wanted && !signal.stop);
    let mut signal = waited.unwrap_or_else(PoisonError::into_inner).0;
    let stop = signal.stop;
    signal.wanted = false;
    drop(signal);
    if stop {
        return false;
    }
    let path = inner.store.pool().path().display();
    match inner.write_image().and_then(|()| inner.mend()) {
        Ok(()) => true,
        Err(error @ (Error::NoQuorum { .. } | Error::NoReplica { .. })) => {
            tracing::warn!("{path}: the image waits: {error}");
            true
        }
        Err(Error::Gone) => false,
        Err(error) => {
            tracing::error!("the image of {path} cannot be written: {error}");
            false
        }
    }
}
