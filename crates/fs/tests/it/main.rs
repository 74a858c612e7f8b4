//! The tests of volumes.

mod cluster;
mod model;
mod nodes;
mod promises;
