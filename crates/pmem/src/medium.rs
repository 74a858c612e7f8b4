//! The seam of media models: what code does to a pool is reported to a [`Medium`], access by access.
//!
//! A memory that was made with a medium ([`PoolOptions::medium`](crate::PoolOptions::medium),
//! [`Memory::anonymous_with`](crate::Memory::anonymous_with)) tells it of each load, store, write-back, streaming store
//! and fence before it happens, on the thread that does it. The medium may take time (emulation) or only count it.
//!
//! What is reported depends on the domain, by one rule: **what the processor would do to the mapped memory**.
//!
//! | domain | loads and stores | flush | stream | fence |
//! | --- | --- | --- | --- | --- |
//! | `dax`, `dax-emulated` | reported | reported | reported, and the store fence at its end as a fence | reported |
//! | `eadr`, `process` | reported | nothing happens, so nothing is reported | reported as ordinary stores | reported |
//! | `block` | reported | a copy into the commit group, in ordinary memory: not reported | as ordinary stores | reported |
//! | `traced` | never: time means nothing to the explorer, and a medium that is given is ignored | | | |
//!
//! In the `block` domain the profile is thus the kind of memory that the pool's private mapping lies in; journal and
//! file are real I/O and take the time they take.
//!
//! Invariants:
//! - a memory without a medium pays one predictable branch per primitive, shared with tracing and read-only pools;
//! - a medium sees addresses, never bytes, and changes nothing in the pool;
//! - what `pmem` itself reads with read(2) (headers, journal replay) or copies for the block domain is not reported.

use std::fmt;

use crate::addr::{LineAddr, PmAddr};

/// Receives what is done to a memory. Called on the accessing thread, before the access; several threads call at once.
pub trait Medium: Send + Sync + fmt::Debug {
    /// What it is, for every output: `optane, virtual time`.
    fn label(&self) -> String;
    /// `len` bytes at `at` are about to be loaded.
    fn read(&self, at: PmAddr, len: u64);
    /// `len` bytes at `at` are about to be stored with ordinary stores, into the processor's cache.
    fn write(&self, at: PmAddr, len: u64);
    /// The write-back of `line` is about to be started.
    fn flush(&self, line: LineAddr);
    /// `len` bytes at `at` are about to be written around the cache.
    fn stream(&self, at: PmAddr, len: u64);
    /// The thread is about to wait until everything it flushed and streamed has left the cache.
    fn fence(&self);
}
