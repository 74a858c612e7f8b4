//! Readers of pages, by the time at which they began.
//!
//! A batch of the image waits for the readers that began before it: they may be in pages that it releases. It holds no
//! lock of the volume meanwhile, and no reader waits for it. So a read that waits for a node holds up no other thread.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use lodestone_pmem::sync::{Condvar, Mutex, lock};

/// The readers that are in pages now.
#[derive(Debug, Default)]
pub(crate) struct Readers {
    inside: Mutex<Inside>,
    left: Condvar,
}

#[derive(Debug, Default)]
struct Inside {
    /// The number of batches that have waited.
    epoch: u64,
    /// Readers by the epoch in which they began.
    readers: BTreeMap<u64, u64>,
}

/// A reader. It leaves when it is dropped.
#[derive(Debug)]
pub(crate) struct Reading<'r> {
    readers: &'r Readers,
    epoch: u64,
}

impl Readers {
    /// A reader begins. The caller holds the lock of the volume: it knows which pages it reads.
    pub(crate) fn enter(&self) -> Reading<'_> {
        let mut inside = lock(&self.inside);
        let epoch = inside.epoch;
        *inside.readers.entry(epoch).or_default() += 1;
        Reading { readers: self, epoch }
    }

    /// Waits until all readers have left that are inside now.
    pub(crate) fn wait_for_those_inside(&self) {
        let mut inside = lock(&self.inside);
        let epoch = inside.epoch;
        inside.epoch += 1;
        while inside.readers.first_key_value().is_some_and(|(oldest, _)| *oldest <= epoch) {
            inside = self.left.wait(inside).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let mut inside = lock(&self.readers.inside);
        if let Some(readers) = inside.readers.get_mut(&self.epoch) {
            *readers -= 1;
            if *readers == 0 {
                inside.readers.remove(&self.epoch);
                self.readers.left.notify_all();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_batch_waits_for_older_readers_and_holds_up_no_new_one() {
        let (readers, has_left) = (Readers::default(), AtomicBool::new(false));
        let older = readers.enter();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                readers.wait_for_those_inside();
                assert!(has_left.load(Ordering::Acquire), "the older reader was inside");
            });
            while lock(&readers.inside).epoch == 0 {
                std::thread::yield_now();
            }
            // It begins while the batch waits, and the batch does not wait for it.
            let newer = readers.enter();
            has_left.store(true, Ordering::Release);
            drop(older);
            std::mem::forget(newer);
        });
    }
}
