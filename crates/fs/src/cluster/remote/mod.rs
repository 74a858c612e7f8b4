//! A volume whose metadata node is in another process: its client, and the calls that carry its operations there.
//!
//! 1. *Find*: a thread for each machine asks it who leads; another one attaches there, and tells which files are open.
//!    When a machine has a newer description of the volume, they take it: machines come and go.
//! 2. *Call*: each operation is one request and one answer, on a connection of its own.
//! 3. *Go on*: when the metadata node is gone, another one is found, and the request is sent again. Requests have
//!    numbers, which the log of operations keeps: each is carried out once (`requests`).
//! 4. *Send again*: an operation that was answered is kept until it is stable (`unstable`). If all nodes that had it
//!    end before, the next metadata node carries it out again, unless others have used what it changes (`replays`).
//!
//! A caller sees a delay, and no error, as long as some machine takes over.

mod again;
mod ask;
pub(crate) mod calls;
mod client;
mod held;
mod keeping;
pub(crate) mod locks;
pub(crate) mod mounts;
pub(crate) mod replays;
#[cfg(test)]
mod replays_world;
mod unstable;
mod waits;

pub use ask::{ask_machine, newest_site};
pub(crate) use ask::{connect, description, refuses, standing};
pub use client::{RemoteOptions, RemoteVolume};
pub use locks::FileLock;
