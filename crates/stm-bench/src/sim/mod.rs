//! A model of many processors: it predicts the throughput of a real engine's recorded transactions on 1 to 64 threads.
//!
//! 1. [`trace`] records real transactions on one thread: which objects each read and changed, how many lines it flushed
//!    and how often it fenced.
//! 2. [`calibrate`] measures costs on this machine: of the transactions' software part, of a flush, of a fence, and of
//!    the transfer of a line between processors.
//! 3. [`model`] plays the transactions on simulated threads with the costs of a [`machine`]. It simulates conflicts,
//!    waits for a shared clock's line, and write-backs that queue at the medium. Time is virtual and the outcome
//!    deterministic.
//! 4. With the costs of this machine the model must agree with measured runs on 1 and 2 threads. The error is printed
//!    beside all its predictions.
//!
//! The model covers ownership of the lines of objects and of the clock, locks, aborts and retries, the write bandwidth
//! of the medium, hyperthreads, and two nodes. It does not cover the capacity of caches, prefetching, page faults, the
//! scheduler, and an allocator's shared state. Reads from the medium are not modelled either, because the structures
//! fit into the last-level cache.

pub mod calibrate;
pub mod machine;
pub mod model;
pub mod trace;

#[cfg(test)]
mod tests;
