//! Compares a map that was recovered after a kill with the acknowledgements that its writer received.
//!
//! The writer reports two [events](Event) for each write: *started* before it passes the write to the engine, and
//! *acknowledged* after the engine called it durable. A [`History`] collects them. After the kill it judges the
//! recovered records.
//!
//! Versions of one key grow in the order in which its writes take effect. Either each key has one writer, or version
//! numbers are drawn under the key's lock. The rules for each key are:
//! 1. Let `a` be the newest acknowledged write. The recovered state is the state after `a`, or after any started write
//!    newer than `a`.
//! 2. Without an acknowledged write, the state before the first started write is allowed too. That is "absent", or the
//!    state that an earlier [adoption](History::adopt) found.
//! 3. A value is whole ([`crate::value::verify`]), belongs to its key, and its version was started.
//! 4. A key that was never written does not exist, no key exists twice, and keys come in ascending order.
//!
//! A removal is a write like any other: it has a version, and the state after it is "absent".
//!
//! After a verdict, [`History::adopt`] makes the recovered state the starting point of the next round. A write that the
//! kill discarded must not come back later.

mod event;
mod history;

pub use event::{EVENT_BYTES, Event, EventError, EventKind, EventReader, WriteKind};
pub use history::{History, Verdict, Violation};
