//! The tests of the public interface, one module for each topic. One program, as each is compiled and linked anew.

#[path = "../cached/mod.rs"]
mod cached;
#[path = "../conformance/mod.rs"]
mod conformance;

mod acs;
mod acs_policy;
mod conformance_hash;
mod conformance_ordered_map;
mod costs;
mod fastfair;
mod forged;
mod fptree;
mod hash_index;
mod hybrid;
mod hybrid_plus;
mod ordered_map;
mod records;
mod skiplist;
mod suite;
