//! The tests of volumes.

mod again;
mod cluster;
mod leases;
mod locks;
mod machines;
mod model;
mod nodes;
mod once;
mod ports;
mod promises;
