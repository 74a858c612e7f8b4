//! The costs of software, flushes, fences and transfers of lines on this machine.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crossbeam_utils::CachePadded;
use lodestone_pmem::{Memory, PmAddr};

use super::machine::Machine;
use super::model::SoftwareCosts;
use super::trace::Trace;
use crate::runner::Outcome;

/// The costs of flushes and fences on this machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Persistence {
    /// Storing to a line and starting its write-back.
    pub flush_ns: f64,
    /// The fence after it.
    pub fence_ns: f64,
}

/// Lines of the scratch range that the probe writes.
const PROBE_LINES: u64 = 1 << 14;
/// Rounds that are timed together: some ten microseconds, far below a time slice.
const CHUNK_ROUNDS: u64 = 100;
const CHUNKS: u64 = 200;

/// Time of a round in the quickest of many short chunks, so that other work on the machine does not count.
fn least_of_chunks(mut chunk: impl FnMut(u64)) -> f64 {
    let mut least = f64::INFINITY;
    for number in 0..CHUNKS {
        let start = Instant::now();
        chunk(number);
        least = least.min(start.elapsed().as_nanos() as f64 / CHUNK_ROUNDS as f64);
    }
    least
}

impl Persistence {
    /// Measures on scratch lines at `at`, [`Persistence::BYTES`] of them, in the memory on which the engine runs.
    #[must_use]
    pub fn measure(memory: &Memory, at: PmAddr) -> Self {
        let write = |lines_per_fence: u64| {
            least_of_chunks(|chunk| {
                for round in chunk * CHUNK_ROUNDS..(chunk + 1) * CHUNK_ROUNDS {
                    for line in 0..lines_per_fence {
                        // Spread out, so that neighbours do not share a media block.
                        let number = (round * lines_per_fence + line).wrapping_mul(0x9E37) % PROBE_LINES;
                        let target = at.plus(number * 64);
                        memory.store(target, round);
                        memory.flush(target, 8);
                    }
                    // Nothing follows: only the fence is measured.
                    memory.fence();
                }
            })
        };
        write(1);
        let (one, eight) = (write(1), write(8));
        let flush_ns = ((eight - one) / 7.0).max(1.0);
        Self { flush_ns, fence_ns: (one - flush_ns).max(1.0) }
    }

    /// Bytes of the scratch range.
    pub const BYTES: u64 = PROBE_LINES * 64;
}

/// The cost of an atomic operation on this machine, on a line that is present and on one that the other thread has just
/// changed.
#[must_use]
pub fn measure_transfer() -> (f64, f64) {
    let line = CachePadded::new(AtomicU64::new(0));
    let atomic_ns = least_of_chunks(|_| {
        for _ in 0..CHUNK_ROUNDS {
            line.fetch_add(1, Ordering::AcqRel);
        }
    });
    line.store(0, Ordering::SeqCst);
    let turn = |round: u64, mine: u64| {
        let mut looks = 0_u32;
        while line.load(Ordering::Acquire) != 2 * round + mine {
            looks += 1;
            // Both threads may share one processor: yield it instead of spinning through a time slice.
            if looks.is_multiple_of(4096) {
                std::thread::yield_now();
            }
            std::hint::spin_loop();
        }
        line.store(2 * round + mine + 1, Ordering::Release);
    };
    let round_trip_ns = std::thread::scope(|scope| {
        scope.spawn(|| (0..CHUNKS * CHUNK_ROUNDS).for_each(|round| turn(round, 1)));
        least_of_chunks(|chunk| (chunk * CHUNK_ROUNDS..(chunk + 1) * CHUNK_ROUNDS).for_each(|round| turn(round, 0)))
    });
    // A round trip moves the line twice.
    let transfer_ns = round_trip_ns / 2.0;
    (atomic_ns, transfer_ns.max(atomic_ns))
}

/// The software's share of the time measured on one thread: without updates, and with many.
///
/// `reads_only` and `many_updates` are runs on one thread; `trace` is of the second kind of run.
#[must_use]
pub fn software(
    reads_only: &Outcome,
    many_updates: &Outcome,
    trace: &Trace,
    persistence: Persistence,
) -> SoftwareCosts {
    // Processor time: other work on the machine is not the software's cost.
    let per_operation = |outcome: &Outcome| 1e9 / outcome.run.ops_per_cpu_s().max(1.0);
    let operation_ns = per_operation(reads_only);
    let changes = many_updates.tally.changes as f64 / many_updates.run.operations.max(1) as f64;
    let whole = (per_operation(many_updates) - operation_ns).max(0.0) / changes.max(1e-9);
    let changed = trace.transactions.iter().filter(|transaction| !transaction.writes.is_empty());
    let (count, flushes, fences) = changed.fold((0_u64, 0.0, 0.0), |(count, flushes, fences), transaction| {
        (count + 1, flushes + f64::from(transaction.flushes), fences + f64::from(transaction.fences))
    });
    let count = count.max(1) as f64;
    let persisted = flushes / count * persistence.flush_ns + fences / count * persistence.fence_ns;
    SoftwareCosts { operation_ns, change_ns: (whole - persisted).max(0.0) }
}

/// This machine, as far as the model knows it.
#[must_use]
pub fn here(persistence: Persistence, atomic_ns: f64, transfer_ns: f64) -> Machine {
    let processors = std::thread::available_parallelism().map_or(2, usize::from);
    Machine {
        name: format!("this machine, {processors} processors"),
        nodes: 1,
        cores_per_node: processors,
        threads_per_core: 1,
        sibling_slowdown: 1.0,
        software_factor: 1.0,
        atomic_ns,
        transfer_local_ns: transfer_ns,
        transfer_remote_ns: transfer_ns,
        flush_ns: persistence.flush_ns,
        fence_ns: persistence.fence_ns,
        fence_remote_ns: 0.0,
        // The file is in DRAM: far from its bandwidth.
        line_write_ns: 1.0,
    }
}
