//! The probe: what a medium does, measured the way paper 2 (section 2) does it.
//!
//! 1. A [`Frame`] says what there is (bytes, threads, a file to compare with); a [`Plan`] lists the cells to measure,
//!    each with all of its conditions in a [`CellKey`].
//! 2. Real media run in real time (`harness`, `memory_bench`, `file_bench`): pinned threads, warm-up, several
//!    repetitions against the clock, median and spread. A model in virtual time is asked instead (`emulated`):
//!    deterministic.
//! 3. Everything goes into one [`ProbeResult`], a versioned record that the report draws and a model can be fitted to.
//! 4. [`Verdict`] reads it by rules: best sizes and thread counts, stream or flush, and what to avoid, with its
//!    figures.
//!
//! **What latency means here.** As in the paper's harness, the time of a thread by its accesses, issued back to back:
//! the processor may overlap them. `dependent` cells alone make each address depend on what was read before: the time
//! until data arrives. Blocks are visited by a random permutation, because prefetchers cannot be switched off from user
//! space.

mod address;
mod emulated;
mod error;
mod file_bench;
mod harness;
mod memory_bench;
mod plan;
mod result;
mod run;
mod settle;
mod spread;
mod units;
mod uring;
mod verdict;

pub use error::ProbeError;
pub use plan::{Budget, Estimate, FENCE_BYTES, FileAccess, Frame, Job, MIXED_BYTES, Plan, SIZES, thread_counts};
pub use result::{
    Access, Cell, CellKey, FORMAT, Machine, Method, Operation, Pattern, Place, ProbeResult, Section, Subject, Target,
    VERSION,
};
pub use run::{Probe, ProbeOptions, Progress, RANGE_BYTES_MIN, THREADS_MAX, TargetChoice};
pub use spread::Spread;
pub use units::{bytes_text, rate_text, time_text, times_text};
pub use verdict::{Advice, Finding, Topic, Verdict};
