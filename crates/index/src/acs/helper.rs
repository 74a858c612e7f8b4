//! The helper of parallel reads: a thread that searches the index while readers ask the cache.
//!
//! A reader posts its key in a mailbox and asks the cache. If it hits, it withdraws the search, or abandons one that
//! has begun. If it misses and the search has not begun, it withdraws it and searches itself. Otherwise it waits for
//! the answer, but not for long: the helper may have lost its processor, and then the reader searches as well. So a
//! read waits for the helper no longer than about a search takes.
//!
//! | state of a mailbox | who goes on |
//! | --- | --- |
//! | free | a reader takes it |
//! | writing | that reader, until it is posted |
//! | posted | the helper takes it (searching), or the reader withdraws it (free) |
//! | searching | the helper answers (answered), or the reader leaves (left) |
//! | answered | the reader takes the answer (free) |
//! | left | the helper, when its search ends (free) |
//!
//! The answer is right for the reader: the search began after its post and ended before the reader returns. The state
//! that the reader saw *before* it posted decides whether the answer may be filled into the cache: the search may have
//! overtaken every later look.

use std::borrow::Borrow;
use std::sync::Arc;

use crossbeam_utils::CachePadded;
use lodestone_pmem::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use lodestone_pmem::sync::{Condvar, Mutex, lock, spin, thread};
use lodestone_pmem::work;

use super::core::Core;
use super::key;
use crate::traits::PointIndex;

/// Readers that can have a search with the helper at once.
const MAILBOXES: usize = if cfg!(feature = "shuttle") { 2 } else { 16 };
/// Turns that the helper looks for work before it sleeps: about 100 microseconds.
const IDLE_TURNS: u32 = if cfg!(feature = "shuttle") { 0 } else { 2000 };
/// Turns that a reader waits for an answer: some microseconds.
const WAIT_TURNS: u32 = if cfg!(feature = "shuttle") { 3 } else { 500 };

const FREE: u64 = 0;
const WRITING: u64 = 1;
const POSTED: u64 = 2;
const SEARCHING: u64 = 3;
const ANSWERED: u64 = 4;
const LEFT: u64 = 5;

/// An answer: the key is absent, has a value, or the search failed.
const ABSENT: u64 = 0;
const FOUND: u64 = 1;
const FAILED: u64 = 2;

#[derive(Default)]
struct Mailbox {
    state: AtomicU64,
    words: [AtomicU64; key::WORDS_MAX],
    answer: AtomicU64,
    value: AtomicU64,
}

impl Mailbox {
    fn exchange(&self, from: u64, to: u64) -> bool {
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

#[derive(Default)]
struct Desk {
    mailboxes: [CachePadded<Mailbox>; MAILBOXES],
    is_asleep: AtomicBool,
    ends: AtomicBool,
    sleep: Mutex<()>,
    wake: Condvar,
}

/// The thread and its mailboxes. It ends when this is dropped.
pub(super) struct Helper {
    desk: Arc<Desk>,
    thread: Option<thread::JoinHandle<()>>,
}

/// A search that has been handed over.
pub(super) struct Posted<'h>(&'h Mailbox);

impl Helper {
    /// Starts a helper for the index of `core`; `None` where there is no second processor for it, or no thread to be
    /// had.
    pub(super) fn start<I: PointIndex + 'static>(core: &Arc<Core<I>>) -> Option<Self> {
        let processors = work::processors();
        if processors < 2 && cfg!(not(feature = "shuttle")) {
            return None;
        }
        let desk = Arc::<Desk>::default();
        let (core, its) = (Arc::clone(core), Arc::clone(&desk));
        let thread = thread::Builder::new().name("index-cache".into()).spawn(move || its.serve(&core)).ok()?;
        Some(Self { desk, thread: Some(thread) })
    }

    /// Hands over the search for the key with these words; `None` when the mailbox of `number` is in use.
    pub(super) fn post(&self, number: usize, words: &[u64]) -> Option<Posted<'_>> {
        let mailbox = &*self.desk.mailboxes[number % MAILBOXES];
        if !mailbox.exchange(FREE, WRITING) {
            return None;
        }
        for (to, word) in mailbox.words.iter().zip(words) {
            to.store(*word, Ordering::Relaxed);
        }
        // Sequentially consistent, as the helper's: one of the two sees the other.
        mailbox.state.store(POSTED, Ordering::SeqCst);
        if self.desk.is_asleep.load(Ordering::SeqCst) {
            let _sleep = lock(&self.desk.sleep);
            self.desk.wake.notify_one();
        }
        Some(Posted(mailbox))
    }
}

impl Posted<'_> {
    /// The search is not needed.
    pub(super) fn withdraw(self) {
        let mailbox = self.0;
        if !mailbox.exchange(POSTED, FREE) && !mailbox.exchange(SEARCHING, LEFT) {
            mailbox.state.store(FREE, Ordering::Release);
        }
    }

    /// The answer; `None` when the reader has to search.
    pub(super) fn answer(self) -> Option<Option<u64>> {
        let mailbox = self.0;
        if mailbox.exchange(POSTED, FREE) {
            return None;
        }
        let mut turn = 0;
        while mailbox.state.load(Ordering::Acquire) != ANSWERED {
            turn += 1;
            if turn >= WAIT_TURNS && mailbox.exchange(SEARCHING, LEFT) {
                return None;
            }
            spin(turn);
        }
        let (answer, value) = (mailbox.answer.load(Ordering::Relaxed), mailbox.value.load(Ordering::Relaxed));
        mailbox.state.store(FREE, Ordering::Release);
        match answer {
            ABSENT => Some(None),
            FOUND => Some(Some(value)),
            // The reader's own search brings the error.
            _ => None,
        }
    }
}

impl Desk {
    fn serve<I: PointIndex>(&self, core: &Core<I>) {
        let mut idle = 0;
        while !self.ends.load(Ordering::Acquire) {
            if self.look_through(core) {
                idle = 0;
                continue;
            }
            idle += 1;
            if idle > IDLE_TURNS {
                self.sleep();
                idle = 0;
            } else {
                spin(idle);
            }
        }
    }

    /// Sleeps until something is posted.
    fn sleep(&self) {
        let mut sleep = lock(&self.sleep);
        self.is_asleep.store(true, Ordering::SeqCst);
        let is_idle = || self.mailboxes.iter().all(|mailbox| mailbox.state.load(Ordering::SeqCst) != POSTED);
        while is_idle() && !self.ends.load(Ordering::SeqCst) {
            sleep = self.wake.wait(sleep).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        self.is_asleep.store(false, Ordering::SeqCst);
    }

    /// Does every search that is posted; whether there was one.
    fn look_through<I: PointIndex>(&self, core: &Core<I>) -> bool {
        let mut found = false;
        for mailbox in &self.mailboxes {
            if mailbox.state.load(Ordering::Relaxed) == POSTED && mailbox.exchange(POSTED, SEARCHING) {
                found = true;
                search(core, mailbox);
            }
        }
        found
    }
}

fn search<I: PointIndex>(core: &Core<I>, mailbox: &Mailbox) {
    let mut words = [0; key::WORDS_MAX];
    let words = &mut words[..core.key_words];
    for (word, from) in words.iter_mut().zip(&mailbox.words) {
        *word = from.load(Ordering::Relaxed);
    }
    let (answer, value) = match key::key_of::<I::Key>(words).map(|key| core.index.get(key.borrow())) {
        Some(Ok(Some(value))) => (FOUND, value),
        Some(Ok(None)) => (ABSENT, 0),
        Some(Err(_)) | None => (FAILED, 0),
    };
    mailbox.value.store(value, Ordering::Relaxed);
    mailbox.answer.store(answer, Ordering::Relaxed);
    if !mailbox.exchange(SEARCHING, ANSWERED) {
        // The reader has left.
        mailbox.state.store(FREE, Ordering::Release);
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.desk.ends.store(true, Ordering::SeqCst);
        {
            let _sleep = lock(&self.desk.sleep);
            self.desk.wake.notify_one();
        }
        if let Some(thread) = self.thread.take() {
            // A panic in the index has been told by the thread itself.
            let _ = thread.join();
        }
    }
}
