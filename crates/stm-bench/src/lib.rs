//! One workload over many transactional memories: Lodestone's, plain DRAM, and those of other crates.
//!
//! | module | what it owns |
//! | --- | --- |
//! | [`tm`] | the interface of a transactional memory for the workload |
//! | [`structures`] | hash table, search tree, sorted list, B+-tree over it |
//! | [`driver`] | the map that the runner drives: a structure on a memory, or a peer |
//! | [`lodestone`] | Lodestone's own transactional memory as an engine |
//! | [`mix`] | the operations of a thread |
//! | [`records`] | records for YCSB in a B+-tree over transactions |
//! | [`runner`] | load and mix as a script of the runner, and the check after a run |
//! | [`dram`] | the floor: the same structures in DRAM, with a lock or alone |
//! | [`sim`] | a model of many processors, fed with recorded transactions |

pub mod dram;
pub mod driver;
pub mod lodestone;
pub mod mix;
pub mod records;
pub mod runner;
pub mod sim;
pub mod structures;
pub mod tm;
