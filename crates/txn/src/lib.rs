//! The parts of a commit engine, defined once for everything that commits: timestamps, version words, slots, thread
//! clocks, intent records, lives and snapshot epochs.
//!
//! | part | file | stored in |
//! | --- | --- | --- |
//! | [`VersionWord`]: which slot is newest, who wrote it when, whether a commit is under way | `word` | the pool, but means nothing in the next life |
//! | [`RowWord`]: the same for a row of a table, with the state "pending" | `row` | DRAM |
//! | [`SlotHeader`]: one version of an object, verified by its own checksum | `slot` | the pool |
//! | [`Clock`], [`StartClocks`]: new timestamps, and which are known (paper 1, section 3, Algorithm 1) | `clock` | DRAM |
//! | [`Registry`]: thread ids that are handed on with their clocks (paper 1, section 3.1) | `registry` | DRAM |
//! | [`record`]: intent records, two buffers per thread id, chained when long | `record` | the pool |
//! | [`Lives`]: ranges of timestamps by life, and which transactions of a crashed life count | `lives` | the pool |
//! | [`Epochs`]: which versions a long reader may see | `epochs` | DRAM |
//! | [`SideChains`]: versions that were overwritten and that a long reader still sees | `side` | DRAM |
//! | [`Ticket`]: a commit that may not be durable yet | `ticket` | DRAM |
//! | [`copies`]: a header in two places, of which a damaged one is made whole | `copies` | the pool |
//! | [`Timeline`]: all of these of one opened object | `timeline` | DRAM |
//!
//! **Timestamps and their lifetimes.** A [`Tick`] is 64 bits wide. One clock runs through all lives of a pool. Each
//! open starts above every tick that an earlier life can have used. So a tick is never used twice, and "same life,
//! later" is one comparison. A clean close costs one tick. A crashed life costs the ticks that it had reserved beyond
//! its last commit, at most [`RESERVATION_TICKS`]. So 2^64 ticks are enough for 2^36 crashes, or for 58,000 years at
//! ten million commits a second.
//!
//! A version word holds the low 51 bits of a tick. This is unambiguous as long as no word is older than 2^50 ticks when
//! it is read. [`Lives::scrub_is_due`] says when all words must be renewed, which is after years of full load. A single
//! life ends its service after [`LIFE_TICKS_MAX`] ticks: three years of ten million commits a second without a pause.

#![cfg_attr(not(test), deny(clippy::as_conversions))]

pub mod copies;
pub mod record;

mod clock;
mod crc;
mod epochs;
mod error;
mod lives;
mod registry;
mod row;
mod side;
mod slot;
mod tick;
mod ticket;
mod timeline;
mod word;

pub use clock::{Clock, ClockKind, StartClocks};
pub use epochs::{Epochs, Horizon, SharedHorizon, SnapshotGuard};
pub use error::{Error, Result};
pub use lives::{Life, Lives, LivesFinding, LivesLayout, RESERVATION_TICKS};
pub use registry::{Lease, Registry};
pub use row::{RowState, RowWord};
pub use side::{SideChains, SideKey};
pub use slot::{
    NEVER_WRITTEN, SLOT_HEADER_BYTES, SLOT_HEADER_WORDS, SLOT_WORDS_MAX, SlotFlags, SlotHeader, is_erased, seal, verify,
};
pub use tick::{LIFE_TICKS_MAX, TICK_BITS, Tick, WRITER_BITS, WRITERS_MAX, Writer};
pub use ticket::{Acknowledgement, Ticket};
pub use timeline::Timeline;
pub use word::{State, VersionWord, Which};
