//! Work on several threads: numbered pieces, each done once. Opening a pool's contents reads and sorts so.

use std::sync::OnceLock;
use std::thread;

use crate::domain::Domain;
use crate::memory::Memory;
use crate::sync::atomic::{AtomicUsize, Ordering};

/// Most threads of an open.
const THREADS_MAX: usize = 16;
/// Pieces that a thread takes at a time are this share of an even part.
const TURNS: usize = 16;

/// Processors that this process may use, by the thread that asks first. The system is asked once: it reads files for
/// the answer, and every open of a pool needs it.
#[must_use]
pub fn processors() -> usize {
    static PROCESSORS: OnceLock<usize> = OnceLock::new();
    *PROCESSORS.get_or_init(|| thread::available_parallelism().map_or(1, usize::from))
}

/// The number of threads that work on `memory` is worth. Where runs must repeat exactly it is one.
#[must_use]
pub fn threads(memory: &Memory) -> usize {
    if cfg!(feature = "shuttle") || memory.domain() == Domain::Traced {
        return 1;
    }
    processors().min(THREADS_MAX)
}

/// Calls `piece` for each number below `count`, on `threads` threads. Returns the answers by number.
///
/// ```
/// use lodestone_pmem::work;
///
/// let squares = work::each(2, 4, |number| Ok::<_, ()>(number * number));
/// assert_eq!(squares, Ok(vec![0, 1, 4, 9]));
/// ```
///
/// # Errors
/// The one of the lowest number that was reached and failed. Other threads end after the pieces that they have taken.
///
/// # Panics
/// When `piece` does.
pub fn each<T: Send, E: Send>(
    threads: usize,
    count: usize,
    piece: impl Fn(usize) -> Result<T, E> + Sync,
) -> Result<Vec<T>, E> {
    let threads = threads.min(count);
    if threads <= 1 {
        return (0..count).map(piece).collect();
    }
    let (next, step) = (AtomicUsize::new(0), count.div_ceil(threads * TURNS));
    let work = || {
        let mut done = Vec::new();
        loop {
            let first = next.fetch_add(step, Ordering::Relaxed);
            if first >= count {
                return done;
            }
            let numbers = first..count.min(first + step);
            let mut taken = Vec::with_capacity(numbers.len());
            let outcome = numbers.map(&piece).try_for_each(|answer| answer.map(|answer| taken.push(answer)));
            if outcome.is_err() {
                next.store(count, Ordering::Relaxed);
            }
            done.push((first, outcome.map(|()| taken)));
        }
    };
    let mut done: Vec<(usize, Result<Vec<T>, E>)> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let join = |worker: thread::ScopedJoinHandle<'_, _>| match worker.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        workers.into_iter().flat_map(join).collect()
    });
    done.sort_unstable_by_key(|(first, _)| *first);
    let mut answers = Vec::with_capacity(count);
    for (_, taken) in done {
        answers.extend(taken?);
    }
    Ok(answers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_piece_is_done_once_and_answers_have_their_order() {
        for (threads, count) in [(1, 5), (2, 0), (2, 1), (3, 100), (4, 1_001)] {
            let answers = each(threads, count, |number| Ok::<_, ()>(number * 2));
            assert_eq!(answers, Ok((0..count).map(|number| number * 2).collect::<Vec<_>>()));
        }
    }

    #[test]
    fn an_error_ends_the_work() {
        let begun = AtomicUsize::new(0);
        let answers = each(2, 100_000, |number| {
            begun.fetch_add(1, Ordering::Relaxed);
            if number == 7 { Err(number) } else { Ok(()) }
        });
        assert_eq!(answers, Err(7));
        assert!(begun.into_inner() < 100_000, "the rest is left");
    }
}
