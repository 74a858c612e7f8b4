//! The crash explorer: turns "we think the order is right" into an enumerated fact.
//!
//! **Fault model.** Power fails between any two events of a run. What the medium then holds depends on the profile:
//!
//! - `adr` (only what was written back is safe): each 64-byte line holds a prefix of its ordinary stores, in 8-byte words
//!   and program order, at least everything stored to it before a flush that a fence of the flushing thread completed;
//!   streamed words are kept in any subset until a fence of their thread. Lines are independent of each other.
//! - `eadr` (caches survive): everything stored up to the crash, in order.
//! - `block` (ordinary files): the lines as they were when flushed, for some prefix of all flushes, at least up to the
//!   last wait for durability. A commit group may end at any flush.
//!
//! Not modelled: media errors, torn 8-byte words, reordering of one thread's stores as other threads see them (memory
//! order is for loom and shuttle), more than one failure domain.
//!
//! **What is explored** is always in the report: profile, mode, bound, number of states, whether they were exhausted, how
//! deep recovery was crashed again, seed. See [`Structure`] for the three lines that test a structure of your own.

pub mod planted;

mod audit;
mod builder;
mod choose;
mod config;
mod engine;
mod event;
mod follow;
mod history;
mod medium;
mod memo;
mod mutation;
mod persist;
mod pool;
mod quiet;
mod recorder;
mod report;
mod run;
#[cfg(feature = "shuttle")]
pub mod schedules;
mod structure;
mod target;
mod token;

pub use audit::audit_target;
pub use builder::Explore;
pub use config::{Config, Mode, Profile};
pub use event::{CallKind, Content, Event, EventKind, SiteKey, ThreadId};
pub use history::{History, OpRecord};
pub use medium::Medium;
pub use mutation::{Change, Mutation};
pub use pool::{PoolBoot, PoolCreate, PoolGrow, PoolRoots, pool_targets};
pub use report::{AuditReport, Mutant, MutantFate, ReplayReport, Report, Violation};
pub use run::{explore, replay, run_target};
pub use structure::Structure;
pub use target::{Failure, Outcome, Recovered, Redundant, Target, in_pool_layer, tiny_pool};
pub use token::{Crash, Kept, Token};
