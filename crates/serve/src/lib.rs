//! Serves a database on the `PostgreSQL` wire: to `psql`, `pgbench` and drivers, unchanged.
//!
//! | module | idea |
//! | --- | --- |
//! | `protocol` | the conversation with one client: bytes in, bytes out, no socket |
//! | `client` | a socket and its conversation |
//! | `tls` | encryption of a socket |
//! | `worker` | threads for messages that take long |
//! | `panics` | a panic ends one client, or the server |
//! | `turn` | one loop for each processor: all ready clients, then all answers |
//! | `listen` | sockets, and who the client is |
//! | `server` | start and stop |
//!
//! A reply leaves when what it tells is durable, and other clients are served meanwhile. [`Server`] has an example.
//!
//! By the unix socket a client is the operating system's user who runs the server. By TCP it proves that it knows the
//! password of a role, encrypted by TLS if it asks for it and the server has a certificate.
//!
//! The feature `tls` compiles encryption, with rustls and ring.

#![cfg_attr(not(test), deny(clippy::as_conversions))]

mod client;
mod listen;
mod panics;
pub mod protocol;
mod server;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "no_tls.rs"]
mod tls;
mod turn;
mod worker;

pub use listen::{socket_path, user_name};
pub use server::{ServeOptions, Server};
pub use tls::TlsFiles;
