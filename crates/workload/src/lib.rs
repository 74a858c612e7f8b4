//! Workloads that drive Lodestone and its peers alike, and the records of the results.
//!
//! | module | what it owns |
//! | --- | --- |
//! | [`random`] | a random stream that never changes |
//! | [`keys`] | distributions over records, key bytes |
//! | [`value`] | values that tell whether they are torn, swapped or stale |
//! | [`ycsb`] | workloads A to F as streams of operations, and as a script of the runner |
//! | [`engine`] | the trait that our engine and the peers implement |
//! | [`list_append`] | names the anomalies of a history of appends to lists |
//! | [`oltp`] | TPC-C, TPC-B and SmallBank over the tables of any engine, and their rules |
//! | [`conformance`] | checks whether an engine keeps the contract of that trait |
//! | [`memory`] | a map in DRAM as the simplest engine |
//! | [`mix`] | shares of the kinds of operations |
//! | [`race`] | the one runner: threads, phases, histograms, counters, progress |
//! | [`result`] | the line that a benchmark prints |
//! | [`serial_order`] | judges a history of transactions: strict serializability, opacity |
//! | [`syncprobe`] | the cost of one fdatasync on this machine |
//! | [`kv`] | judges a recovered map against the acknowledged writes |
//!
//! ```
//! use lodestone_workload::memory::MemoryEngine;
//! use lodestone_workload::ycsb::{Runner, Spec, Workload};
//!
//! let engine = MemoryEngine::new();
//! let spec = Spec { records: 1_000, operations: 2_000, threads: 2, ..Spec::new(Workload::A) };
//! Runner::new(&engine, &spec).load()?;
//! let outcome = Runner::new(&engine, &spec).verify_reads(true).run()?;
//! assert_eq!(outcome.result.operations, 2_000);
//! println!("{}", outcome.result.to_json_line());
//! # Ok::<(), lodestone_workload::engine::EngineError>(())
//! ```

pub mod conformance;
pub mod engine;
pub mod keys;
pub mod kv;
pub mod list_append;
pub mod memory;
pub mod mix;
pub mod oltp;
pub mod race;
pub mod random;
pub mod result;
pub mod serial_order;
pub mod syncprobe;
pub mod value;
pub mod ycsb;
