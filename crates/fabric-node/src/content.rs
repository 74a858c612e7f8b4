//! The records that a sender writes: each a page, whose place and bytes follow from the record's term and sequence.
//!
//! Record `s` writes page `1 + s mod ROUND` and frees the page of record `s - LIVE`. So the page of a record counts for
//! `LIVE` records, and is written again after `ROUND` of them, when the record that freed it is stable. A new sender
//! needs nothing but the last sequence to go on.

use lodestone_fabric::{FLAG_SYNC, PagePair, Sequence, Submission, pages_body};
use lodestone_width::to_usize;

/// Bytes of a page.
pub const PAGE_BYTES: u32 = 4096;
/// Pages of a member, with page 0.
pub const PAGES: u64 = 2048;
/// The page of a record counts for so many further records.
pub const LIVE: u64 = 1000;
/// A page is written again after so many records.
const ROUND: u64 = 2000;

const _: () = assert!(ROUND < PAGES && LIVE < ROUND, "every record of a round has a page of its own");

/// The page that a record writes.
pub const fn page_of(sequence: u64) -> u64 {
    1 + sequence % ROUND
}

/// The record that must be stable before `sequence` may be written: it freed the page.
pub const fn gate(sequence: u64) -> Sequence {
    Sequence(if sequence > ROUND { sequence - LIVE } else { 0 })
}

/// The bytes of the page of a record.
pub fn page(term: u32, sequence: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(to_usize(PAGE_BYTES));
    bytes.extend(u64::from(term).to_le_bytes());
    bytes.extend(sequence.to_le_bytes());
    let mut state = (u64::from(term) << 40) ^ sequence ^ 0x9E37_79B9_7F4A_7C15;
    while bytes.len() < to_usize(PAGE_BYTES) {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.extend(state.to_le_bytes());
    }
    bytes
}

/// The record with that place.
pub fn record(term: u32, sequence: u64) -> (Submission, Vec<u8>) {
    let old = if sequence > LIVE { page_of(sequence - LIVE) } else { 0 };
    let pair = PagePair { new: page_of(sequence), old };
    let submission =
        Submission { flags: FLAG_SYNC, operation: sequence, count: 1, reuse: gate(sequence), ..Submission::default() };
    (submission, pages_body(&[(pair, &page(term, sequence))]))
}

/// Bytes of a record in a ring, at most.
pub const fn ring_bytes(records: u64) -> u64 {
    records * (4096 + 512)
}
