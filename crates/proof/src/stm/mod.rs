//! The transactional memory's targets for the crash explorer.
//!
//! All of them drive one structure ([`Registers`]): registers whose words all hold the same number, and nodes that come
//! and go. After every crash the oracle compares both with a plain model and counts the objects, so no leak escapes. It
//! compares the blocks that the memory owns with those that the heap holds, verifies every slot, and goes on working.
//!
//! | target | drives |
//! | --- | --- |
//! | `stm-pair`, `stm-pair-address-log` | two transactions: small enough to be exhausted, crashes in recovery included |
//! | `stm-create` | formatting, types, roots, the first slabs |
//! | `stm-commit` | transactions of one to three objects by two threads, on the same objects |
//! | `stm-ahead` | a thread that writes over a version of another one, whose clock is ahead |
//! | `stm-wide` | the same with versions of two lines |
//! | `stm-alloc` | allocation and frees, cells used again, cancelled transactions |
//! | `stm-chain` | records that do not fit their buffer |
//! | `stm-lives` | processes that die and are followed by others, clean closes between |
//! | `stm-renew` | a table of lives that runs full |
//! | `stm-renew-losers` | one that runs full when a life crashed whose losers are still in slots |
//! | `stm-mended` | copies that an open makes whole, after which the others are damaged |
//! | `stm-reserve` | ranges of timestamps that run out |
//! | `stm-address-log`, `stm-scan` | the published modes |
//!
//! [`threaded`] is for schedules of threads.

mod registers;
mod targets;

pub use registers::{Op, Registers, View};
pub use targets::{bugs, targets, threaded};
