//! Workloads that drive Lodestone and its peers alike, and the records of what came out.
//!
//! | module | what it owns |
//! | --- | --- |
//! | [`random`] | a random stream that is the same for ever |
//! | [`keys`] | distributions over records, key bytes |
//! | [`value`] | values that tell whether they are torn, swapped or stale |
//! | [`ycsb`] | workloads A to F as streams of operations |
//! | [`engine`] | the trait that ours and the peers implement |
//! | [`conformance`] | whether an engine keeps to that trait |
//! | [`memory`] | a map in DRAM as the simplest engine |
//! | [`runner`] | threads, histograms, time limit, progress |
//! | [`result`] | the line that a benchmark prints |
//! | [`syncprobe`] | what one fdatasync costs here |
//! | [`kv`] | judges a recovered map against what was acknowledged |
//!
//! ```
//! use lodestone_workload::memory::MemoryEngine;
//! use lodestone_workload::runner::Runner;
//! use lodestone_workload::ycsb::{Spec, Workload};
//!
//! let engine = MemoryEngine::new();
//! let spec = Spec { records: 1_000, operations: 2_000, threads: 2, ..Spec::new(Workload::A) };
//! Runner::new(&engine, &spec).load()?;
//! let outcome = Runner::new(&engine, &spec).verify_reads(true).run()?;
//! assert_eq!(outcome.result.operations, 2_000);
//! println!("{}", outcome.result.to_json_line());
//! # Ok::<(), lodestone_workload::runner::RunError>(())
//! ```

pub mod conformance;
pub mod engine;
pub mod keys;
pub mod kv;
pub mod memory;
pub mod random;
pub mod result;
pub mod runner;
pub mod syncprobe;
pub mod value;
pub mod ycsb;
