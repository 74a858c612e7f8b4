//! Judges a map that came back after a kill against what its writer was told.
//!
//! The writer reports two [events](Event) for each write: *started* before it hands the write to the engine, and
//! *acknowledged* when the engine called it durable. A [`History`] collects them; after the kill it judges the
//! recovered records.
//!
//! Rules, for each key (versions of one key grow in the order in which its writes take effect: one writer for each key,
//! or version numbers drawn under the key's lock):
//! 1. Let `a` be the newest acknowledged write. The recovered state is the state after `a`, or after any started
//!    write newer than `a`.
//! 2. Without an acknowledged write, the state before the first started write (absent, or what an earlier
//!    [adoption](History::adopt) found) is allowed too.
//! 3. A value is whole ([`crate::value::verify`]), belongs to its key, and its version was started.
//! 4. A key that was never written is not there; no key is there twice; keys come in ascending order.
//!
//! A removal is a write like any other: it has a version, and the state after it is "absent".
//!
//! After a verdict, [`History::adopt`] makes the recovered state the starting point of the next round: a write that the
//! kill discarded must not come back later.

mod event;
mod history;

pub use event::{EVENT_BYTES, Event, EventError, EventKind, EventReader, WriteKind};
pub use history::{History, Verdict, Violation};
