//! The members of a group, and the quorums among them.

use lodestone_pmem::planted;

use crate::ids::{NodeId, ViewNumber};

/// Most members of a group: as many as a packet has bits for destinations.
pub const MEMBERS_MAX: usize = 32;

/// The part that a member plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// It counts for quorums.
    Active,
    /// It catches up, and does not count yet.
    Joining,
}

impl Role {
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Active => 1,
            Self::Joining => 2,
        }
    }

    pub(crate) const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Active),
            2 => Some(Self::Joining),
            _ => None,
        }
    }
}

/// A member of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The node.
    pub node: NodeId,
    /// Its part.
    pub role: Role,
    /// The view in which it became a member.
    pub since: ViewNumber,
}

/// The members of a group, as the registry has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Rises with every change.
    pub number: ViewNumber,
    /// The members, by node.
    pub members: Vec<Member>,
}

impl View {
    /// A first view of active members.
    #[must_use]
    pub fn of(nodes: &[NodeId]) -> Self {
        let members =
            nodes.iter().map(|node| Member { node: *node, role: Role::Active, since: ViewNumber(1) }).collect();
        Self { number: ViewNumber(1), members }
    }

    /// The members that count.
    pub fn active(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.members.iter().filter(|member| member.role == Role::Active).map(|member| member.node)
    }

    /// The part of `node`, if it is a member.
    #[must_use]
    pub fn role(&self, node: NodeId) -> Option<Role> {
        self.members.iter().find(|member| member.node == node).map(|member| member.role)
    }

    /// The next view, with `node` in the part `role`, or without it.
    #[must_use]
    pub fn with(&self, node: NodeId, role: Option<Role>) -> Self {
        let number = ViewNumber(self.number.0 + 1);
        let since = self.members.iter().find(|member| member.node == node).map_or(number, |member| member.since);
        let mut members: Vec<Member> = self.members.iter().copied().filter(|member| member.node != node).collect();
        members.extend(role.map(|role| Member { node, role, since }));
        members.sort_by_key(|member| member.node);
        Self { number, members }
    }

    /// Members of a quorum: the majority of the active ones.
    #[must_use]
    pub fn quorum(&self) -> usize {
        self.active().count() / 2 + 1
    }

    /// Logs that a takeover needs: with so many, one of every quorum is among them.
    #[must_use]
    pub fn promises(&self) -> usize {
        if planted::active("fabric-takeover-asks-too-few") {
            return 1;
        }
        self.active().count() + 1 - self.quorum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_quorum_meets_the_promises() {
        for count in 1..=7_u16 {
            let view = View::of(&(1..=count).map(NodeId).collect::<Vec<_>>());
            assert!(view.quorum() + view.promises() > usize::from(count));
            let next = view.with(NodeId(1), None);
            assert_eq!((next.number, next.active().count()), (ViewNumber(2), usize::from(count) - 1));
        }
    }
}
