//! The fabric under the crash explorer: the ring of a sender, and members that apply, join, promise and follow.
//!
//! A structure is a core on its range of a pool. Its operations are what a network would bring: batches of packets. An
//! operation is acknowledged after the core's own fence, as a member reports only then.

mod member;
mod ring;

use lodestone_crash::Target;
use lodestone_crash::planted::Bug;

/// All targets of the fabric.
#[must_use]
pub fn targets() -> Vec<Box<dyn Target>> {
    ring::targets().into_iter().chain(member::targets()).collect()
}

/// Bugs that a target of this module must find.
#[must_use]
pub fn bugs() -> Vec<Bug> {
    vec![
        Bug::new("fabric-cut-forgotten", "records that were cut come back after a crash", || named("fs-ring-cut")),
        Bug::new("fabric-tail-is-received", "a member forgets what it reported", || named("fs-applylog")),
        Bug::new("fabric-scan-trusts-pages", "a torn page counts as applied", || named("fs-applylog")),
        Bug::new("fabric-mark-forgotten", "a member forgets what it reported", || named("fs-applylog-reuse")),
        Bug::new("fabric-promise-not-kept", "a member follows the former sender again", || named("fs-takeover")),
    ]
}

fn named(name: &str) -> Box<dyn Target> {
    targets().into_iter().find(|target| target.name() == name).expect("a target of that name")
}
