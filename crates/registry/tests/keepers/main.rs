//! Registries: one suite for all of them, keepers under seeded faults, sockets, certificates.

mod histories;
mod keepers;
mod messages;
mod runs;
#[cfg(feature = "tls")]
mod sealed;
mod seeds;
mod sockets;
mod suite;
mod table;
