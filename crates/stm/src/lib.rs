//! Durable software transactional memory: typed objects in a pool, changed by transactions that are atomic, isolated
//! and survive power loss.
//!
//! - [`Stm`] opens the memory in a pool and runs transactions: [`Stm::update`], [`Stm::read`], [`Stm::snapshot`].
//! - [`Tx`] reads objects by value, hands out working copies, allocates and frees.
//! - [`PmObject`] is derived for the types of objects; [`PmBytes`] is a byte string in a field.
//!
//! The design follows paper 1 (thread clocks, two versions side by side) with its holes closed. It goes beyond it in
//! one point: a transaction costs **one fence**, whatever it changes, allocations and frees included. The intent record
//! and the new versions verify themselves and are written without an order between them. See [`lodestone_txn::record`].
//!
//! Cost of a transaction in the one-fence mode: 0 fences when it changes nothing. Otherwise 1 fence and the lines of
//! the written slots. For two objects or more, the lines of the record are added; the first line holds five objects.
//!
//! | file | idea |
//! | --- | --- |
//! | `stm`, `context` | the loops that run transactions; what a thread keeps between them |
//! | `tx` | reads by version word, working copies, start clocks |
//! | `part` | fields that are read without the rest of their object |
//! | `commit` | lock, validate, write, fence, publish; the three modes |
//! | `versions` | which slot counts; first touch in a life |
//! | `slabs` | cells whose own slots say whether they are free |
//! | `recover` | the work of an open after a crash |
//! | `snapshot`, `side` | long readers, and the versions kept for them |
//! | `object`, `fields`, `roots` | types, layouts, fields, named roots |
//! | `survey` | live objects and roots without their links, for a salvage |
//! | `own_errors`, `ticket` | closures with another error type; transactions that are waited for later |
//! | `format`, `copies` | header, directory; what leads to the objects is there twice |
//! | `published` | the orders that the paper prints, for tests |

#![cfg_attr(not(test), deny(clippy::as_conversions))]

extern crate self as lodestone_stm;

mod bytes;
mod check;
mod commit;
mod context;
#[cfg(test)]
mod copies;
mod core;
mod error;
mod fields;
#[cfg(test)]
mod flips;
mod format;
mod kind;
mod object;
mod options;
mod own_errors;
mod part;
mod published;
mod recover;
mod roots;
mod side;
mod slabs;
mod snapshot;
mod stats;
mod stm;
mod survey;
mod ticket;
mod tx;
mod versions;
mod write_index;

pub use bytes::PmBytes;
pub use check::{ObjectFinding, ObjectsReport};
pub use error::{Abort, Conflict, Error, Result, TxResult};
pub use fields::PmOption;
pub use kind::{MEMORY, contents_of};
pub use lodestone_pmem::{PmAddr, PmPtr};
pub use lodestone_stm_derive::{PmEnum, PmObject, pm_object};
pub use lodestone_txn::ClockKind;
pub use object::{CheckedBy, Layout, PmField, PmObject, TypeInfo, TypeVisitor};
pub use options::{Mode, StmOptions};
pub use part::Part;
pub use recover::RecoveryReport;
pub use stats::StmStats;
pub use stm::{MEMORY_NAME, Stm};
pub use survey::{FoundRoot, FoundRoots, Survivor};
pub use ticket::Ticket;
pub use tx::Tx;
pub use zerocopy;
pub use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, TryFromBytes};
