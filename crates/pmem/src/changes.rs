//! The pages that were flushed since a moment: how a copy of a pool in use comes to its end without a long stop of its
//! writers.
//!
//! 1. [`Changes::begin`] forgets all marks, raises a flag, and makes every thread of the process execute a memory
//!    barrier.
//! 2. A thread that flushes lines looks at the flag after its stores. While it is raised, the thread marks the pages of
//!    the lines.
//! 3. The copy takes marks away and then reads the pages ([`Changes::take`]), again and again. At last it closes the
//!    gate (`gate.rs`) and takes what is left.
//!
//! **Why nothing that was fenced is missed.** Take a store that a thread flushed and fenced before the gate closed.
//!
//! - The thread looked at the flag before the barrier that it executed for `begin`. Then the store was visible when
//!   `begin` returned, and the first pass over all pages has it.
//! - Or it marked the page, with a read-modify-write. If the copy took this mark, it has seen the store: it reads after
//!   it takes. If it did not, the mark is there when the gate is closed, because the thread made it before it looked at
//!   the gate.
//!
//! So each line of the copy is as new as its last fence, and no newer than the line is when the last page is read. It
//! was read at one moment. That is a state that the persistence contract allows after a power cut. It does not matter
//! that lines were read at other moments: without a fence they may become persistent in any order.
//!
//! The look costs one relaxed load and a predictable branch per flushed line. Streamed lines are marked after the store
//! fence that ends a stream, since nothing else orders them.

use std::sync::atomic::{AtomicBool, Ordering, compiler_fence};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use lodestone_width::{to_u64, to_usize};

use crate::addr::PmAddr;
use crate::barrier;
use crate::pool::layout::PAGE_BYTES;
use crate::sync::atomic::AtomicU64;

const PAGES_OF_WORD: u64 = 64;
/// Words that are made at a time, for the pages of a gibibyte. A pool reserves much more address space than it uses.
const WORDS_OF_CHUNK: u64 = 4096;

type Chunk = OnceLock<Box<[AtomicU64]>>;

/// The marks of one memory.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    is_on: AtomicBool,
    /// A bit for each page of each part.
    marks: OnceLock<Vec<Box<[Chunk]>>>,
    /// Held by the copy.
    turn: Mutex<()>,
}

impl Changes {
    /// The look at the flag that every flush makes, after the stores that it is about.
    #[inline(always)]
    pub(crate) fn note(&self, at: PmAddr, len: u64) {
        compiler_fence(Ordering::SeqCst);
        if self.is_on.load(Ordering::Relaxed) {
            self.mark(at, len);
        }
    }

    /// Marks the pages of `len` bytes at `at`. Bytes outside the parts are left out.
    #[cold]
    #[inline(never)]
    pub(crate) fn mark(&self, at: PmAddr, len: u64) {
        let Some(marks) = self.marks.get().and_then(|marks| marks.get(usize::from(at.part()))) else { return };
        let pages = to_u64(marks.len()) * WORDS_OF_CHUNK * PAGES_OF_WORD;
        for page in at.offset() / PAGE_BYTES..at.offset().saturating_add(len).div_ceil(PAGE_BYTES).min(pages) {
            let (word, bit) = (page / PAGES_OF_WORD, 1 << (page % PAGES_OF_WORD));
            let words = marks[to_usize(word / WORDS_OF_CHUNK)]
                .get_or_init(|| std::iter::repeat_with(AtomicU64::default).take(to_usize(WORDS_OF_CHUNK)).collect());
            // Also where the mark is there: the copy that takes it next must see the store.
            words[to_usize(word % WORDS_OF_CHUNK)].fetch_or(bit, ordering());
        }
    }

    /// Begins to mark, until the guard is dropped. One copy at a time does that: others wait. `reserved` are the bytes
    /// that each part may come to have.
    ///
    /// # Errors
    /// The kernel has no barrier for all threads.
    pub(crate) fn begin(&self, reserved: impl Iterator<Item = u64>) -> rustix::io::Result<Marking<'_>> {
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let chunks = |bytes: u64| to_usize(bytes.div_ceil(PAGE_BYTES * PAGES_OF_WORD * WORDS_OF_CHUNK));
        let marks = self.marks.get_or_init(|| {
            reserved.map(|bytes| std::iter::repeat_with(Chunk::new).take(chunks(bytes)).collect()).collect()
        });
        words(marks).for_each(|word| word.store(0, Ordering::Relaxed));
        self.is_on.store(true, Ordering::SeqCst);
        let marking = Marking { changes: self, marks, _turn: turn };
        barrier::everywhere()?;
        Ok(marking)
    }
}

/// That of the marks.
fn ordering() -> Ordering {
    Ordering::SeqCst
}

/// All words that were made.
fn words(marks: &[Box<[Chunk]>]) -> impl Iterator<Item = &AtomicU64> {
    marks.iter().flatten().filter_map(OnceLock::get).flatten()
}

/// Flushed pages are marked while this lives.
#[derive(Debug)]
pub(crate) struct Marking<'c> {
    changes: &'c Changes,
    marks: &'c [Box<[Chunk]>],
    _turn: MutexGuard<'c, ()>,
}

impl Marking<'_> {
    /// Marks pages, as a flush does.
    pub(crate) fn mark(&self, at: PmAddr, len: u64) {
        self.changes.mark(at, len);
    }

    /// How many pages are marked.
    pub(crate) fn count(&self) -> u64 {
        words(self.marks).map(|word| u64::from(word.load(Ordering::Relaxed).count_ones())).sum()
    }

    /// Takes the marks of a part away, in order, and tells `each` the first page of a run and the bytes of the run.
    ///
    /// # Errors
    /// That of `each`. Some of the marks are gone then, and the copy is of no use.
    pub(crate) fn take<E>(&self, part: u16, each: impl FnMut(u64, u64) -> Result<(), E>) -> Result<(), E> {
        self.take_in_order(part, false, each)
    }

    /// As [`take`](Self::take). `is_late`: a bug on request, the marks go after the look at the pages.
    fn take_in_order<E>(
        &self,
        part: u16,
        is_late: bool,
        mut each: impl FnMut(u64, u64) -> Result<(), E>,
    ) -> Result<(), E> {
        let chunks = self.marks.get(usize::from(part)).into_iter().flatten().enumerate();
        let words = chunks.filter_map(|(number, chunk)| Some((to_u64(number) * WORDS_OF_CHUNK, chunk.get()?)));
        for (number, word) in words.flat_map(|(first, words)| (first..).zip(words)) {
            if word.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let bits = if is_late { word.load(ordering()) } else { word.swap(0, ordering()) };
            let mut page = 0;
            while let Some(rest) = bits.checked_shr(page).filter(|rest| *rest != 0) {
                page += rest.trailing_zeros();
                let run = (bits >> page).trailing_ones();
                each((number * PAGES_OF_WORD + u64::from(page)) * PAGE_BYTES, u64::from(run) * PAGE_BYTES)?;
                page += run;
            }
            if is_late {
                word.store(0, ordering());
            }
        }
        Ok(())
    }
}

impl Drop for Marking<'_> {
    fn drop(&mut self) {
        self.changes.is_on.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_marked_while_a_copy_is_made() {
        let changes = Changes::default();
        changes.note(PmAddr::new(0, 4096), 1);
        let runs = |marking: &Marking<'_>, part| {
            let mut runs = Vec::new();
            let Ok(()) = marking.take(part, |offset, bytes| {
                runs.push((offset / PAGE_BYTES, bytes / PAGE_BYTES));
                Ok::<(), std::convert::Infallible>(())
            });
            runs
        };
        {
            let marking = changes.begin([1 << 20, 4 << 20].into_iter()).expect("membarrier");
            assert_eq!(marking.count(), 0, "what came before is not marked");
            changes.note(PmAddr::new(0, 8191), 2);
            changes.note(PmAddr::new(1, 63 * PAGE_BYTES), 2 * PAGE_BYTES);
            changes.note(PmAddr::new(1, 0), 64);
            // Outside the parts.
            changes.note(PmAddr::new(0, 1 << 40), 1);
            changes.note(PmAddr::new(7, 0), 1);
            assert_eq!(marking.count(), 5);
            assert_eq!(runs(&marking, 0), [(1, 2)]);
            assert_eq!(runs(&marking, 1), [(0, 1), (63, 1), (64, 1)]);
            assert_eq!((runs(&marking, 0), runs(&marking, 9), marking.count()), (vec![], vec![], 0));
            changes.note(PmAddr::new(0, 0), u64::MAX);
            assert_eq!(runs(&marking, 0).iter().map(|(_, pages)| pages).sum::<u64>(), 1 << 18, "a gibibyte");
            changes.note(PmAddr::new(0, 0), 1);
        }
        changes.note(PmAddr::new(0, 4096), 1);
        let marking = changes.begin(std::iter::empty()).expect("membarrier");
        assert_eq!(marking.count(), 0, "another copy begins anew");
    }
}

/// A writer of two pages, the second one after the first, beside a copy. A lock does as the gate.
#[cfg(all(test, feature = "shuttle"))]
mod schedules {
    use std::sync::Arc;

    use super::*;
    use crate::sync::{Mutex, lock, thread};

    #[derive(Default)]
    struct Pages {
        changes: Changes,
        pages: [AtomicU64; 2],
        /// The number of each page that was fenced last. Its lock is the gate.
        fenced: Mutex<[u64; 2]>,
    }

    fn a_copy_beside_a_writer(is_late: bool) {
        let shared = Arc::new(Pages::default());
        let writer = {
            let shared = shared.clone();
            thread::spawn(move || {
                for number in 1..=3 {
                    for page in [0, 1] {
                        shared.pages[page].store(number, Ordering::Release);
                        shared.changes.note(PmAddr::new(0, to_u64(page) * PAGE_BYTES), 64);
                        lock(&shared.fenced)[page] = number;
                    }
                }
            })
        };
        let marking = shared.changes.begin([2 * PAGE_BYTES].into_iter()).expect("membarrier");
        let mut copy = [0, 1].map(|page| shared.pages[page].load(Ordering::Acquire));
        let mut take = || {
            let Ok(()) = marking.take_in_order(0, is_late, |offset, bytes| {
                for page in offset / PAGE_BYTES..(offset + bytes) / PAGE_BYTES {
                    copy[to_usize(page)] = shared.pages[to_usize(page)].load(Ordering::Acquire);
                }
                Ok::<(), std::convert::Infallible>(())
            });
        };
        take();
        let fenced = lock(&shared.fenced);
        take();
        assert!(copy[0] >= fenced[0] && copy[1] >= fenced[1], "{copy:?} is not as new as {fenced:?}");
        assert!(copy[0] >= copy[1], "the second page of {copy:?} overtook the first");
        drop(fenced);
        drop(marking);
        writer.join().expect("no panic");
    }

    #[test]
    fn a_copy_has_what_was_fenced_and_marks_that_are_taken_late_are_found() {
        shuttle::check_random(|| a_copy_beside_a_writer(false), 1_000);
        shuttle::check_pct(|| a_copy_beside_a_writer(false), 500, 3);
        let outcome = std::panic::catch_unwind(|| shuttle::check_random(|| a_copy_beside_a_writer(true), 5_000));
        outcome.expect_err("a store between the look at a page and the end of its mark is missed");
    }
}
