//! A model of many processors: what the recorded transactions of a real engine would reach on 1 to 64 threads.
//!
//! 1. [`trace`] records real transactions on one thread: which objects each read and changed, how many lines it flushed
//!    and how often it fenced.
//! 2. [`calibrate`] measures what their software part costs here, and what a flush, a fence and the transfer of a line
//!    between processors cost here.
//! 3. [`model`] plays the transactions on simulated threads with the costs of a [`machine`]: conflicts, waits for a
//!    shared clock's line, write-backs that queue at the medium. Time is virtual and the outcome deterministic.
//! 4. With the costs of this machine the model must agree with measured runs on 1 and 2 threads: the error is printed
//!    beside everything it says.
//!
//! What is modelled: ownership of the lines of objects and of the clock, locks, aborts and retries, the write bandwidth
//! of the medium, hyperthreads, two nodes. What is not: capacity of caches, prefetching, page faults, the scheduler, an
//! allocator's shared state, reads from the medium (the structures fit into the last-level cache).

pub mod calibrate;
pub mod machine;
pub mod model;
pub mod trace;

#[cfg(test)]
mod tests;
