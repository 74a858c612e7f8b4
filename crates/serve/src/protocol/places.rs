//! The room for clients. Only those that are known count: peers that say nothing take no room from others.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// See the module.
#[derive(Debug)]
pub struct Places {
    max: usize,
    taken: AtomicUsize,
}

impl Places {
    /// Room for `max` clients.
    #[must_use]
    pub fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, taken: AtomicUsize::new(0) })
    }

    /// A place, until it is dropped. `None`: all are taken.
    pub(super) fn take(self: &Arc<Self>) -> Option<Place> {
        let place = Place(self.clone());
        (self.taken.fetch_add(1, Ordering::Relaxed) < self.max).then_some(place)
    }
}

/// A place among the clients.
#[derive(Debug)]
pub struct Place(Arc<Places>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}
