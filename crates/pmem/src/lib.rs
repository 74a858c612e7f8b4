//! Pools of persistent memory and the primitives that make stores durable: the only door to the medium.
//!
//! The persistence contract, in the words that every other crate relies on:
//!
//! - **store**: visible to other threads. It may become persistent at any moment, or never, until flushed and fenced.
//!   Within one 64-byte line ordinary stores persist in program order. Across lines, and for streaming stores, there is
//!   no order. Aligned 8-byte words never tear.
//! - **stream**: a store around the cache. The processor may make it visible after later ordinary stores. Every call
//!   here ends with a store fence that rules this out, so streamed data may be published like stored data.
//! - **flush**: starts the write-back of lines. **fence**: everything this thread flushed before is persistent before
//!   anything it stores after. **persist** = flush + fence.
//! - **durable**: waits until everything this thread fenced would survive power loss. Ordering never pays for
//!   durability.
//!
//! [`Memory`] says how safe code is kept from undefined behaviour, and [`Domain`] how each medium is made durable.
//!
//! | file | idea |
//! | --- | --- |
//! | `memory`, `memory/stream`, `memory/durable` | load, store, flush, fence; streams, appends; waits for durability |
//! | `view`, `memory/window`, `words` | hot readers: one bounds check for many words; the loops that copy words |
//! | `cpu`, `barrier` | instructions, chosen by CPUID; a barrier that one thread executes for all |
//! | `addr`, `checked` | addresses, typed pointers, words that verify themselves |
//! | `block/` | durability on ordinary files: groups, journal, checkpoint, replay |
//! | `pool/`, `mapping` | the files of a pool: create, open, grow, copy, check, repair |
//! | `pool/mirror` | a record in two places that survives a crash and one damaged line |
//! | `pool/lock`, `pool/claim` | one writer per pool, one heap per open pool |
//! | `changes`, `gate`, `watch` | a copy of a pool in use; a pool whose file has no name any more |
//! | `domain`, `pool/platform` | the domains, and which one a pool gets |
//! | `topology`, `pool/nodes` | NUMA nodes, placement of parts |
//! | `memory/hooks`, `tracer`, `medium`, `counters` | hooks of the explorer and of media models; counts |
//! | `storage`, `sync`, `htm` | seams: devices that fail, schedulers, hardware transactions |
//! | `measuring/` | instructions and scratch files for measuring alone, with a feature |
//! | `events` | what an operator is told |
//! | `folder` | names of files that survive power loss |
//! | `planted`, `work` | bugs on request; work on several threads |

#![cfg_attr(not(test), deny(clippy::as_conversions))]

pub mod checked;
pub mod htm;
#[cfg(any(feature = "measuring", test))]
pub mod measuring;
pub mod planted;
pub mod storage;
pub mod sync;
pub mod work;

mod addr;
mod barrier;
mod block;
mod changes;
mod counters;
mod cpu;
mod domain;
mod error;
mod events;
mod folder;
mod gate;
mod mapping;
mod medium;
mod memory;
mod pool;
mod topology;
mod tracer;
mod view;
mod watch;
mod words;

pub use addr::{LINE_BYTES, LineAddr, MEDIA_BLOCK_BYTES, PmAddr, PmPtr, WORD_BYTES, lines_of};
pub use barrier::AsymmetricBarrier;
pub use block::JournalRecovery;
pub use counters::{CounterScope, Counters, count_shared_rmws, process_counters, thread_counters};
pub use cpu::{FlushInstruction, StreamInstruction, prefetch_line, prefetch_value, prefetch_weak};
pub use domain::{Domain, DomainChoice};
pub use error::{Error, Result};
pub use folder::{folder_of, sync_folder_of};
pub use mapping::{advise_huge_pages, advise_small_pages};
pub use medium::Medium;
pub use memory::{DurablePoint, Memory, STREAM_BYTES_MIN, Window};
pub use pool::mirror;
pub use pool::{
    CopyOptions, CopyReport, HeapClaim, NodeOrigin, PartInfo, PartKind, PartNode, Pool, PoolFinding, PoolInfo,
    PoolOptions, PoolReport, RepairReport, RootInfo, Severity, Uuid,
};
pub use storage::FILE_BLOCK_BYTES;
pub use topology::{DISTANCE_LOCAL, Node, Topology};
pub use tracer::{SilentTracer, Site, TracedMemory, Tracer};
pub use view::{Block, Raw, VIEW_BLOCK_BYTES, View};
