//! The crash explorer: turns "we think the order is right" into an enumerated fact.
//!
//! **Fault model.** Power fails between any two events of a run. The possible contents of the medium then depend on the
//! profile:
//!
//! - `adr` (only written-back data is safe): each 64-byte line holds a prefix of its ordinary stores, in 8-byte words
//!   and program order. The prefix contains at least the stores before a flush that a fence of the flushing thread
//!   completed. Any subset of the streamed words is kept, until a fence of their thread makes them certain. Lines are
//!   independent of each other.
//! - `eadr` (caches survive): everything stored up to the crash, in order. The `eadr` domain never streams around the
//!   cache, so streamed words count as stored.
//! - `block` (ordinary files): the lines as they were when flushed, for some prefix of all flushes. The prefix reaches
//!   at least to the last wait for durability. A commit group may end at any flush.
//!
//! A part that was extended certainly has its new length, because growth syncs the length of the file first.
//!
//! Not modelled: media errors, torn 8-byte words, and more than one failure domain. Nor is the order in which other
//! threads see one thread's stores: loom and shuttle cover memory order.
//!
//! **How it works.** The `traced` domain of [`lodestone_pmem`] reports each store, flush, fence and wait to the
//! explorer. One run of a target's operations produces a trace. At the end of each segment between fences and marks,
//! the explorer lays out the possible contents of the medium and recovers. It then asks the target's oracles:
//!
//! 1. recovery succeeds, does not panic, and makes no more accesses than its bound;
//! 2. the recovered view is that of a sequence of operations that contains every acknowledged one, whole or not at all;
//! 3. the structure is sound inside (nothing leaked, nothing owned twice);
//! 4. it keeps working: further operations behave correctly;
//! 5. and recovery itself is crashed again, [`Config::nested_depth`] times.
//!
//! **Modes** ([`Mode`]): *exhaustive* enumerates every combination of every line's contents. *Reading* decides a line
//! only when recovery or an oracle touches it, and skips runs that would read the same as an earlier one. So it sees
//! everything that the exhaustive mode sees (a test compares them on random programs). *Representative* is a sample.
//!
//! **The extent of an exploration** is in each [`Report`]: profile, mode, bound, number of states, whether they were
//! exhausted, how deep recovery was crashed again, and the seed. A violation is shrunk (fewer crashes, fewer
//! operations, fewer lost lines). It comes with an account of the lost stores and one command that shows it again. For
//! your own target that is `LODESTONE_REPLAY='token' cargo test ...`: with this variable the test replays the token
//! instead of exploring.
//!
//! **Three lines for your own structure**: implement [`Structure`] (operations, handle, view, model), then
//!
//! ```text
//! #[test]
//! fn survives_power_loss() {
//!     lodestone_crash::explore(MyStructure).expect_exhausted();
//! }
//! ```
//!
//! or use closures: [`Explore`]. `examples/append_log.rs` and `examples/counter_pair.rs` show a wrong and a right
//! version of each. All persistent memory must be accessed through [`lodestone_pmem`], and recovery must depend on
//! nothing but the medium. Time, random numbers and the order of hash tables make runs that cannot be repeated, and the
//! report says so.
//!
//! **The mutation audit** ([`audit_target`]) asks the reverse question: is every flush and fence needed, and would the
//! oracles notice its absence? It removes or moves each one. A surviving mutant is a performance finding, a weak
//! oracle, or excused with a reason ([`Redundant`]).
//!
//! **Threads**: with the feature `shuttle`, `schedules::explore_schedules` runs the operations of several threads under
//! a deterministic scheduler. It judges the crash states of each interleaving by durable linearizability.
//!
//! | file | idea |
//! | --- | --- |
//! | `structure`, `builder`, `target` | what a user describes: a type, closures, anything else |
//! | `recorder`, `event` | every store, flush and fence of a run |
//! | `persist`, `options` | the fault model: the possible contents of the medium and of a line |
//! | `choose`, `memo` | which states are visited, and which would read the same as an earlier one |
//! | `engine`, `medium`, `history` | visiting, recovering and judging |
//! | `audit`, `mutation` | flushes and fences that are removed or moved |
//! | `schedules` | interleavings of threads together with crashes |
//! | `follow`, `token`, `reproduce`, `report` | one violation: shrunk, as a command, as a text |
//! | `planted`, `hostile` | bugs on request; damage whose checksum fits |
//! | `pool` | the targets of pools |

pub mod hostile;
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
mod mixer;
mod mutation;
mod online;
mod options;
mod persist;
mod pool;
mod quiet;
mod recorder;
mod report;
mod reproduce;
mod run;
#[cfg(feature = "shuttle")]
pub mod schedules;
mod structure;
mod target;
mod token;

pub use audit::{audit_target, calls_without_audit};
pub use builder::Explore;
pub use config::{Config, Mode, Profile};
pub use event::{CallKind, Content, Event, EventKind, SiteKey, ThreadId};
pub use history::{History, OpRecord};
pub use medium::CrashMedium;
pub use mutation::{Change, Mutation};
pub use online::OnlineMedium;
pub use pool::{PoolBoot, PoolCreate, PoolGrow, PoolRoots, pool_targets};
pub use report::{AuditReport, Mutant, MutantFate, ReplayReport, Report, Violation, calls_nobody_audits};
pub use reproduce::{REPLAY_VARIABLE, replay_with};
pub use run::{explore, replay, run_target};
pub use structure::Structure;
pub use target::{Failure, Outcome, Recovered, Redundant, Target, in_pool_layer, tiny_pool};
pub use token::{Crash, Kept, Token};
