//! Keepers and their clients on sockets: a thin driver around the core, and a client that is a
//! [`Registry`](crate::Registry).
//!
//! ```text
//! connection   hello, then frames: bytes 4, then so many bytes
//! hello        `LKP1`, kind 1 (1 keeper, 2 client, 3 join), number 8, zero 3
//! of a keeper  one message between keepers a frame
//! of a client  a request a frame, and an answer for each; one is under way at a time
//! ```
//!
//! 1. *Keeper to keeper*: each keeper makes a connection to each other one, and only sends on it. So messages of one
//!    direction are in order. A connection that breaks loses what is under way, and is made again after a pause.
//! 2. *Limits*: a connection has seconds for its hello (and its certificate), small frames until then, and there are
//!    only so many of them. A connection that does not keep these limits is closed.
//! 3. Time of the core is the time since its start, by a monotonic clock.

mod channel;
mod client;
pub(crate) mod line;
mod links;
mod server;

pub use channel::{Channel, ChannelEnd};
pub use client::{KeeperClient, KeeperClientOptions};
pub use line::{Peer, Security};
pub use server::{KeeperClock, KeeperServer, KeeperServerOptions, KeeperStatus, ServerCounts};

use std::time::Duration;

use crate::table::TABLE_BYTES_MAX;

/// Most bytes of a frame of a keeper.
const FRAME_BYTES_MAX: usize = 3 * TABLE_BYTES_MAX;
/// Most bytes of a frame of a client.
const REQUEST_BYTES_MAX: usize = 64 << 10;
/// Time for the hello, and for the certificates before it.
const HELLO_PATIENCE: Duration = Duration::from_secs(5);
/// Time for a connection to be made.
const CONNECT_PATIENCE: Duration = Duration::from_millis(500);
