//! Media: the cost of each kind of memory.
//!
//! - [`MediaProfile`]: the parameters of a medium in a TOML file; `dram`, `optane` and `cxl` are built in
//!   ([`profile`]).
//! - [`Model`]: a profile in use. It is a [`Medium`](lodestone_pmem::Medium). A pool opened with it pays the medium's
//!   time for every access, by spinning or on a virtual clock. The model also counts media blocks ([`model`]).
//! - [`Htm`]: a model of hardware transactions over such a model: which ones would a processor abort ([`htm`]).
//! - [`probe`]: measures a real medium (or a model) by the method of paper 2, into one record with a verdict.
//! - [`fit`]: makes a profile from a probe. [`verify`]: a profile beside the figures of the papers.
//!
//! ```
//! use lodestone_media::{MediaProfile, Model, TimeMode};
//! use lodestone_pmem::{Domain, Memory, PmAddr, Topology};
//! let profile = MediaProfile::builtin("optane").expect("it is built in");
//! let model = Model::new(profile, TimeMode::Virtual, &Topology::of_machine(), &[0]);
//! let memory = Memory::anonymous_with(&[1 << 20], Domain::DaxEmulated, Some(model.clone()))?;
//! let _ = memory.load(PmAddr::new(0, 4096));
//! assert_eq!(model.thread_ns(), 200, "a random read of 8 bytes");
//! let _ = memory.load(PmAddr::new(0, 4096));
//! assert_eq!(model.thread_ns(), 200, "the line is in the processor's cache now");
//! assert_eq!(model.counts().blocks_read, 1);
//! # Ok::<(), lodestone_pmem::Error>(())
//! ```

pub mod fit;
pub mod htm;
pub mod model;
pub mod probe;
pub mod profile;
pub mod verify;

pub use htm::{CacheShape, Htm, HtmCounts, HtmProfile};
pub use model::{MediaCounts, Model, SimulatedThread, TimeMode};
pub use profile::{MediaProfile, ProfileError};
