//! The room for measuring: bare instructions on a memory, and files as scratch memory without a pool in them.
//!
//! Nothing that stores data uses it, so it needs the feature `measuring`. The probe of media and the laboratory
//! turn that on. It is in this crate because it needs the inside of it: instructions chosen by CPUID, locks, domains
//! and mappings. A crate of its own would make all of these public.
//!
//! 1. [`BareLines`]: the cost of the primitives of [`Memory`](crate::Memory) beside the bare instructions.
//! 2. [`BareRange`]: the kernels that measure a medium.
//! 3. [`ScratchFile`]: a file or device that may be overwritten, as a memory.

mod kernels;
mod lines;
mod range;
mod scratch;

pub use lines::BareLines;
pub use range::{BareRange, STREAM_SOURCE_BYTES};
pub use scratch::{ScratchFile, ScratchMemory};
