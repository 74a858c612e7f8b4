//! The tests of the public interface, one module for each topic. One program, as each is compiled and linked anew.

#[path = "../common/mod.rs"]
mod common;

mod model;
mod random_reads;
mod room;
mod shares;
mod summaries;
mod tails;
