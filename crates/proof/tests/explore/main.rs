//! Every floor under the crash explorer.
//!
//! `make test` runs some states of every target and the quick floors. The tests marked "`make prove` runs it"
//! exhaust the targets and audit every flush and fence: `cargo test -p lodestone-proof --test explore -- --ignored`.

mod collections;
mod common;
mod engine;
mod fabric;
mod fs;
mod heap;
mod index;
mod pages;
mod registry;
mod some_states;
mod stm;
mod store_and_tl2;
mod wal;
