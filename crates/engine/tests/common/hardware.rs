//! A model of hardware transactions that a test controls.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use lodestone_engine::Region;
use lodestone_pmem::htm::{Abort, HardwareTransactions, HtmModel};

type Action = Box<dyn FnOnce() + Send>;

/// See the module. Its counts are of one transaction at a time.
#[derive(Default)]
pub struct Hardware {
    /// Words that were read and written by the last transaction.
    pub words: [AtomicUsize; 2],
    pub begun: AtomicUsize,
    /// At its end, a transaction that wrote more words than this is aborted; 0: none is.
    pub writes_max: AtomicUsize,
    /// So many transactions, from the next one on, are aborted at their end as by a conflict.
    pub conflicts: AtomicUsize,
    /// One of so many transactions is aborted at its end as by a conflict; 0: none is.
    pub one_of: AtomicUsize,
    /// Work of another thread, after the next transaction has begun.
    between: Mutex<Option<Action>>,
}

impl std::fmt::Debug for Hardware {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("hardware")
    }
}

impl Hardware {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// The region that uses it.
    pub fn region(self: &Arc<Self>) -> Region {
        Region::Emulated(HtmModel(self.clone()))
    }

    /// `action` happens when the next transaction has begun.
    pub fn then(&self, action: impl FnOnce() + Send + 'static) {
        *self.between.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(action));
    }

    pub fn words(&self) -> [usize; 2] {
        self.words.each_ref().map(|words| words.load(Ordering::SeqCst))
    }
}

impl HardwareTransactions for Hardware {
    fn label(&self) -> String {
        "hardware of a test".into()
    }

    fn begin(&self) -> Result<(), Abort> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        self.words.iter().for_each(|words| words.store(0, Ordering::SeqCst));
        let action = self.between.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(action) = action {
            std::thread::spawn(action).join().expect("no panic");
        }
        Ok(())
    }

    fn reads(&self, _: usize) {
        self.words[0].fetch_add(1, Ordering::SeqCst);
    }

    fn writes(&self, _: usize) {
        self.words[1].fetch_add(1, Ordering::SeqCst);
    }

    fn abort(&self, _: Abort) {}

    fn end(&self) -> Result<(), Abort> {
        let (written, most) = (self.words()[1], self.writes_max.load(Ordering::SeqCst));
        if most > 0 && written > most {
            return Err(Abort::Capacity);
        }
        let one_of = self.one_of.load(Ordering::SeqCst);
        if one_of > 0 && self.begun.load(Ordering::SeqCst).is_multiple_of(one_of) {
            return Err(Abort::Conflict);
        }
        let less = |left: usize| left.checked_sub(1);
        match self.conflicts.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less) {
            Ok(_) => Err(Abort::Conflict),
            Err(_) => Ok(()),
        }
    }
}
