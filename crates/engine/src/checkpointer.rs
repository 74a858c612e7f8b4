//! The thread that makes rounds when the logs are half full, so that no commit waits for one while its log has room.
//!
//! There is none where runs must repeat exactly (traced memory, schedules), and none if the options say so. Then the
//! commit makes the round whose log took the segment. A commit without room in its log makes one in any case.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;

use lodestone_pmem::Domain;
use lodestone_pmem::sync::{Condvar, Mutex, lock};

use crate::core::Core;
use crate::{rounds, threads};

/// How rounds are asked for.
#[derive(Debug, Default)]
pub struct Bell {
    has_thread: AtomicBool,
    wish: (Mutex<Wish>, Condvar),
}

#[derive(Debug, Default)]
struct Wish {
    is_round: bool,
    is_end: bool,
}

impl Bell {
    /// Asks the thread for a round. Returns whether there is a thread.
    pub fn ring(&self) -> bool {
        let has_thread = self.has_thread.load(Ordering::SeqCst);
        if has_thread {
            lock(&self.wish.0).is_round = true;
            self.wish.1.notify_one();
        }
        has_thread
    }

    /// Waits for a wish. Returns whether it is one for a round.
    fn wait(&self) -> bool {
        let mut wish = lock(&self.wish.0);
        while !wish.is_round && !wish.is_end {
            wish = self.wish.1.wait(wish).unwrap_or_else(PoisonError::into_inner);
        }
        wish.is_round = false;
        !wish.is_end
    }

    fn end(&self) {
        lock(&self.wish.0).is_end = true;
        self.wish.1.notify_one();
    }
}

/// The thread. Dropping this waits for a round that is under way, and ends the thread.
#[derive(Debug)]
pub struct Checkpointer {
    core: Arc<Core>,
    thread: Option<JoinHandle<()>>,
}

impl Checkpointer {
    /// Begins the thread, if the database has need of one.
    pub fn begin(core: &Arc<Core>) -> Option<Self> {
        let is_exact = cfg!(feature = "shuttle") || core.memory.domain() == Domain::Traced;
        if is_exact || core.memory.is_read_only() || core.ways.durability.is_none() || !core.ways.checkpoint_thread {
            return None;
        }
        let shared = core.clone();
        core.rounds.bell.has_thread.store(true, Ordering::SeqCst);
        let thread = std::thread::Builder::new().name("lodestone-checkpointer".into()).spawn(move || run(&shared));
        if thread.is_err() {
            core.rounds.bell.has_thread.store(false, Ordering::SeqCst);
        }
        Some(Self { core: core.clone(), thread: thread.ok() })
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.core.rounds.bell.end();
        self.thread.take().into_iter().for_each(threads::join);
    }
}

/// Without the thread, commits make their rounds themselves.
struct Leaves<'c>(&'c Core);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.0.rounds.bell.has_thread.store(false, Ordering::SeqCst);
    }
}

fn run(core: &Core) {
    let _leaves = Leaves(core);
    while core.rounds.bell.wait() {
        // The second one, which is short, frees the records below the cut of the first.
        for _ in 0..rounds::ROUNDS_MAX {
            // A round that fails has not happened. A commit meets the same error when its log is full, or at once if
            // the medium has failed for good.
            let _ = rounds::round_if_due(core);
        }
    }
}
