//! Planted bugs of every floor: each is found by the target written for it, with a reproducer that replays.
//!
//! A bug is switched on for the whole process, so the tests of this program take turns.

mod collections;
mod engine;
mod heap;
mod index;
mod stm;
mod store;
mod wal;
