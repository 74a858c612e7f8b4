//! One workload over many indexes, in the manner of PIBench: the same keys, the same operations, the same figures.
//!
//! | module | what it owns |
//! | --- | --- |
//! | [`target`] | the interface of an index for the workload |
//! | [`kinds`] | the persistent indexes by name: the one list that commands read |
//! | [`lodestone`] | a persistent index as a target |
//! | [`dram`] | indexes in DRAM, the floor |
//! | [`engines`] | any key-value engine of `lodestone-workload` as a target |
//! | [`key`] | keys and values of a record |
//! | [`tape`] | the operations of a thread, drawn before the clock runs |
//! | [`runner`] | load and mix as scripts of the runner, and the check after a run |
//! | [`session`] | one thread of a run |
//! | [`result`] | the record that is printed |

pub mod dram;
pub mod engines;
pub mod key;
pub mod kinds;
pub mod lodestone;
pub mod result;
pub mod runner;
pub mod session;
pub mod tape;
pub mod target;
