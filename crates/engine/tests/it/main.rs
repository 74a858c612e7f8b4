//! The tests of the public interface, one module for each topic. One program, as each is compiled and linked anew.

#[path = "../common/mod.rs"]
mod common;

mod backup;
mod budget;
mod by_table;
mod cache;
mod cold;
mod deltas;
mod dual;
mod durability;
mod events;
mod feed;
mod hostile;
mod indexes;
mod interleavings;
mod isolation;
mod kept;
mod large;
mod levels;
mod lines;
mod lives;
mod load;
mod log_areas;
mod model;
mod nodes;
mod online;
mod publish;
mod recovery;
mod regions;
mod restore;
mod scans;
mod snapshots;
mod threads;
mod typed;
mod warm;
