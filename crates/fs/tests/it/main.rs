//! The tests of volumes.

mod cluster;
mod model;
mod promises;
