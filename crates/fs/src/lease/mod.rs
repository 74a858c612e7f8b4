//! Leases: what a mount may keep of files, until the metadata node takes it back.
//!
//! A lease is of one file or folder and one mount. It covers the attributes, and the names of a folder. Mounts write
//! through, so all leases are shared ones: many mounts may have one of the same file, and a change ends them all.
//!
//! 1. *Grant.* The metadata node notes the lease first and looks at the file then, so the answer is under the lease.
//! 2. *Recall.* An operation that changes the file waits until each mount with a lease has said that it forgot what it
//!    kept, or its session is over. Meanwhile no lease of the file is granted. Only then the operation is carried out:
//!    no caller sees it before all others have forgotten what was there.
//! 3. *Session.* A mount asks for news again and again. Each request, when it arrives, makes the session as long as the
//!    metadata node itself may answer reads ([`lodestone_fabric::Leader::lease_left`]). The mount counts from when it
//!    *sent* the request, and four fifths of the time, as both clocks may be wrong by a tenth. So at the mount each
//!    lease is over when another metadata node begins to answer: a takeover has nothing to wait for, and need not know
//!    who had leases.
//! 4. *Late answers.* A mount counts what it drops. An answer to a request that began before its file was last dropped
//!    is not kept.
//! 5. *Given back.* A mount that changes a file drops it first, and says so with the call. Leases have numbers: a call
//!    that is late gives none back that was granted after it was sent.
//!
//! | file | idea |
//! | --- | --- |
//! | `table` | the leases at the metadata node |
//! | `kept` | what a mount keeps |
//! | `keys` | the files that a call changes |
//! | `wire` | their bytes |
//!
//! The first two are machines without clock and network: time is an argument. `world` drives them by seeds.

pub(crate) mod kept;
pub(crate) mod keys;
pub(crate) mod table;
pub(crate) mod wire;
#[cfg(test)]
mod world;

use std::time::Duration;

/// The time since the machine was started, with that in which it slept: a lease does not stop while its mount sleeps.
pub(crate) fn now() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// The part of the granted time that a mount uses: its clock may be slow by a tenth, and the other one fast by a tenth.
pub(crate) fn at_the_mount(granted: Duration) -> Duration {
    granted * 4 / 5
}
