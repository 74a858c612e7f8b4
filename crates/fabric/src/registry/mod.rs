//! The registry: who sends in a volume, and who is a member. Data never passes through it.
//!
//! It holds one small state and changes it by compare-and-swap on (term, change). Each term is handed out once. A slow
//! registry delays takeovers and changes of members, never writes.
//!
//! *Lease*: reads are served by the sender alone, and only while it holds the lease. The holder counts from before it
//! asked, and ends a tenth early; the registry waits until the lease of the former holder is over by its own clock.
//! So clocks may drift by a tenth.

mod local;
mod state;

pub use local::LocalRegistry;

use crate::error::Result;
use crate::ids::{GroupId, Moment, NodeId, Term};
use crate::view::View;

/// How long a lease is, in nanoseconds.
pub const LEASE_NS: u64 = 1_000_000_000;

/// The state of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeState {
    /// The newest term.
    pub term: Term,
    /// The node that it was given to.
    pub sender: NodeId,
    /// Rises with every change of members.
    pub change: u64,
    /// The members of each group.
    pub groups: Vec<(GroupId, View)>,
}

impl VolumeState {
    /// The members of `group`.
    #[must_use]
    pub fn view(&self, group: GroupId) -> Option<&View> {
        self.groups.iter().find(|found| found.0 == group).map(|found| &found.1)
    }
}

/// The answer to a compare-and-swap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swap {
    /// The new state is this one.
    Done(VolumeState),
    /// The state was another one, which is this.
    Differs(VolumeState),
}

/// The answer to a sender that asks for the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    /// It has the lease for so long from when it asked.
    Held(u64),
    /// The former holder may still read for so long.
    Wait(u64),
    /// Another term is newer.
    Lost(Term),
}

/// A registry. `now` is a moment on the registry's clock.
pub trait Registry {
    /// The present state.
    ///
    /// # Errors
    /// A registry that cannot be reached.
    fn state(&self) -> Result<VolumeState>;

    /// Gives the next term to `node`, if the newest one is `seen`: a takeover begins.
    ///
    /// # Errors
    /// A registry that cannot be reached. The claim may have happened all the same.
    fn claim(&mut self, node: NodeId, seen: Term) -> Result<Swap>;

    /// Changes the members of a group, if the newest term is `term` and no other change came between.
    ///
    /// # Errors
    /// A registry that cannot be reached. The change may have happened all the same.
    fn change(&mut self, term: Term, change: u64, group: GroupId, view: &View) -> Result<Swap>;

    /// Asks for the lease of `term`, or for more of it.
    ///
    /// # Errors
    /// A registry that cannot be reached.
    fn renew(&mut self, now: Moment, term: Term) -> Result<Lease>;
}
