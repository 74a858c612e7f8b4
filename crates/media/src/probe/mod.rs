//! The probe measures the speed of a medium by the method of paper 2 (section 2).
//!
//! 1. A [`Frame`] describes the setting (bytes, threads, a file to compare with). A [`Plan`] lists the cells to
//!    measure, each with all of its conditions in a [`CellKey`].
//! 2. Real media run in real time (`harness`, `memory_bench`, `file_bench`): pinned threads, warm-up, several
//!    repetitions against the clock, median and spread. A model is measured in virtual time instead (`emulated`), which
//!    is deterministic.
//! 3. Everything goes into one [`ProbeResult`]. This is a versioned record that the report draws and a model can be
//!    fitted to.
//! 4. [`Verdict`] reads it by rules: best sizes and thread counts, stream or flush, and what to avoid, each with its
//!    figures.
//!
//! **The meaning of latency here.** As in the paper's harness, latency is the time of a thread divided by its accesses.
//! They are issued back to back, and the processor may overlap them. Only in `dependent` cells does each address depend
//! on the value read before, so that the figure is the time until data arrives. Blocks are visited by a random
//! permutation, because prefetchers cannot be switched off from user space.

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
pub use verdict::{Advice, Observation, Topic, Verdict};
