//! Volumes as mounted file systems, by FUSE and without libfuse.
//!
//! [`mount`] hands each request of the kernel to a [`Volume`], or to that of the present metadata node. The kernel
//! checks permissions, and keeps names and attributes as long as it likes: there is one mount of a volume, and all
//! changes pass the kernel. Of a volume with replicas it keeps them for a second: a takeover may lose what was not
//! synced, and answers only when all that has expired.
//!
//! | file | idea |
//! | --- | --- |
//! | `adapter` | requests to operations, and answers |
//! | `convert` | times, kinds and numbers of errors |
//! | `locks`, `killed` | programs that wait for locks, and whether a program is killed while it waits |
//! | `source` | the volume, also when its metadata node changes |
//! | `session` | mounting, unmounting, and the errors of both |
//!
//! While a volume with replicas cannot go on, programs wait: until it does, or they are killed, or for the time that
//! [`MountOptions::on_loss`] says.
//!
//! A file that is open stays after its last name is gone, until it is closed. In the domains where an operation is
//! durable when it returns, `fsync` is told to be needless, and the kernel does not send it again.
//!
//! [`Volume`]: lodestone_fs::Volume

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::as_conversions))]

mod adapter;
mod convert;
mod killed;
mod locks;
mod session;
mod source;

pub use session::{Consistency, Error, MountOptions, Mounted, OnLoss, mount};
pub use source::Source;
