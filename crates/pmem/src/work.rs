//! Work on several threads: numbered pieces, each done once. Opening a pool's contents reads and sorts so.

use std::sync::OnceLock;
use std::thread;

use crate::domain::Domain;
use crate::memory::Memory;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::topology::Topology;

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

/// As [`each`], with threads on the nodes of `topology` in turn. `node_of` names the node that a piece is near to. A
/// thread takes pieces of its own node as long as there are some, then those without a node, then others: no thread
/// idles while there is work.
///
/// # Errors
/// That of the lowest piece that failed. Other threads end after the pieces that they have taken.
///
/// # Panics
/// When `piece` does.
pub fn each_near<T: Send, E: Send>(
    topology: &Topology,
    threads: usize,
    count: usize,
    node_of: &(dyn Fn(usize) -> Option<usize> + Sync),
    piece: impl Fn(usize) -> Result<T, E> + Sync,
) -> Result<Vec<T>, E> {
    let (nodes, threads) = (topology.nodes().len(), threads.min(count));
    if nodes == 1 || threads <= 1 {
        return each(threads, count, piece);
    }
    let queues = Queues::new(nodes, (0..count).map(|number| (number, node_of(number))));
    let work = |node: usize| {
        // A thread that may not run there does the same work from afar.
        let _ = topology.pin_thread(node);
        let mut done = Vec::new();
        while let Some(number) = queues.take(node) {
            let answer = piece(number);
            let is_end = answer.is_err();
            done.push((number, answer));
            if is_end {
                queues.end();
            }
        }
        done
    };
    let mut done: Vec<(usize, Result<T, E>)> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread % nodes))).collect();
        let join = |worker: thread::ScopedJoinHandle<'_, _>| match worker.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        workers.into_iter().flat_map(join).collect()
    });
    done.sort_unstable_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, answer)| answer).collect()
}

/// Pieces by node. The last queue has those without one.
struct Queues(Vec<(Vec<usize>, AtomicUsize)>);

impl Queues {
    fn new(nodes: usize, pieces: impl Iterator<Item = (usize, Option<usize>)>) -> Self {
        let mut queues: Vec<_> = (0..=nodes).map(|_| (Vec::new(), AtomicUsize::new(0))).collect();
        for (number, node) in pieces {
            queues[node.unwrap_or(nodes).min(nodes)].0.push(number);
        }
        Self(queues)
    }

    /// The next piece for a thread on `node`.
    fn take(&self, node: usize) -> Option<usize> {
        let last = self.0.len() - 1;
        let order = [node, last].into_iter().chain((0..last).filter(|other| *other != node));
        let mut queues = order.map(|queue| &self.0[queue]);
        queues.find_map(|(pieces, next)| {
            // The count rises by one for each look at an empty queue: it never comes near its end.
            pieces.get(next.fetch_add(1, Ordering::Relaxed)).copied()
        })
    }

    /// No further piece is taken.
    fn end(&self) {
        self.0.iter().for_each(|(pieces, next)| next.store(pieces.len(), Ordering::Relaxed));
    }
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
    fn a_thread_takes_the_pieces_of_its_node_first() {
        let queues = Queues::new(2, [Some(0), Some(1), None, Some(1), Some(9)].into_iter().enumerate());
        let taken: Vec<_> = std::iter::from_fn(|| queues.take(1)).collect();
        assert_eq!(taken, [1, 3, 2, 4, 0]);
        let queues = Queues::new(2, [(7, Some(0)), (8, Some(1))].into_iter());
        assert_eq!((queues.take(0), queues.take(1), queues.take(0)), (Some(7), Some(8), None));
        queues.end();
        assert_eq!(queues.take(1), None);
    }

    #[test]
    fn pieces_near_nodes_are_done_once_and_in_order() {
        let topology = Topology::of_machine().with_virtual_nodes(2).expect("two nodes");
        for (threads, count) in [(1, 5), (2, 0), (3, 100)] {
            let node_of = |number: usize| (number % 3 < 2).then_some(number % 3);
            let answers = each_near(&topology, threads, count, &node_of, |number| Ok::<_, ()>(number * 2));
            assert_eq!(answers, Ok((0..count).map(|number| number * 2).collect::<Vec<_>>()));
        }
        let failed =
            each_near(&topology, 2, 1000, &|_| Some(0), |number| if number == 7 { Err(number) } else { Ok(()) });
        assert_eq!(failed, Err(7));
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
