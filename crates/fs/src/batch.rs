//! The image follows the log: batches, and the thread that writes them.
//!
//! 1. Under the lock: everything that changed since the last batch is copied, with the number of the last operation.
//! 2. The pages of these operations are settled; their checksums go to the table.
//! 3. One transaction writes the changes to the trees, with `applied`. It waits until that is durable.
//! 4. Under the lock: the log is released up to `applied`, and the quarantine of pages that these operations freed
//!    ends.
//!
//! Step 2 comes before step 3: an operation whose pages could be lost may not leave the log. Step 3 ends before step 4:
//! neither log nor pages may be overwritten while a crash could bring the image before the batch back.

use std::sync::PoisonError;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use lodestone_fabric::{Outbox, Sequence};
use lodestone_pmem::planted;
use lodestone_pmem::sync::lock;

use crate::core::Inner;
use crate::error::Result;
use crate::image::Batch;

impl Inner {
    /// Brings the image up to the last operation. Durable on return.
    pub(crate) fn write_image(&self) -> Result<()> {
        let _imaging = lock(&self.imaging);
        let (batch, image, point) = {
            let mut core = self.core();
            core.check_poison()?;
            let last = core.ring.last();
            if !core.state.is_dirty() && last.0 == core.state.head.applied {
                return Ok(());
            }
            core.counts.batches += 1;
            (core.state.begin_batch(last.0), core.state.image.clone(), core.point)
        };
        let outcome = self.write_batch(&batch, &image, point);
        let mut core = self.core();
        outcome.map_err(|error| core.poisoned(error))?;
        let applied = Sequence(batch.head.applied);
        core.settled = core.settled.max(applied);
        core.ring.release(applied);
        {
            // Readers that are in pages of the quarantine leave them first.
            let _gate = self.gate.write().unwrap_or_else(PoisonError::into_inner);
            core.state.end_batch(&batch);
        }
        let pins = std::mem::take(&mut core.pins);
        core.state.evict(self.options.files_in_memory, |ino| pins.contains_key(&ino));
        core.pins = pins;
        Ok(())
    }

    fn write_batch(
        &self,
        batch: &Batch,
        image: &crate::image::Image,
        point: lodestone_pmem::DurablePoint,
    ) -> Result<()> {
        self.data.settle()?;
        // The image may not be ahead of the log: what it has would count although operations before it are lost.
        self.memory.wait_durable(point)?;
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
    if !stop && let Err(error) = inner.write_image() {
        tracing::error!("the image of {} cannot be written: {error}", inner.store.pool().path().display());
        return false;
    }
    !stop
}
