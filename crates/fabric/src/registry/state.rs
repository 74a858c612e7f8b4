//! The state of a volume: its bytes, and how it changes. All registries share both.
//!
//! ```text
//! state    term 4, sender 2, groups 2, change 8, then for each group: id 4, view 4, members 4, {node 2, role 1, zero
//! 1, since 4}
//! ```

use std::collections::BTreeSet;

use lodestone_width::{exact_u16, exact_u32, to_usize};

use super::VolumeState;
use crate::error::{Error, Result};
use crate::ids::{GroupId, NodeId, Term, ViewNumber};
use crate::view::{MEMBERS_MAX, Member, Role, View};

/// Most groups of a volume: their number has two bytes.
const GROUPS_MAX: usize = 0xFFFF;

impl VolumeState {
    /// The bytes of the state.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend(self.term.0.to_le_bytes());
        out.extend(self.sender.0.to_le_bytes());
        out.extend(exact_u16(self.groups.len()).to_le_bytes());
        out.extend(self.change.to_le_bytes());
        for (group, view) in &self.groups {
            out.extend(group.0.to_le_bytes());
            out.extend(view.to_bytes());
        }
        out
    }

    /// The state with these bytes; `None` if no registry ever had it.
    #[must_use]
    pub fn from_bytes(mut bytes: &[u8]) -> Option<Self> {
        let from = &mut bytes;
        let term = Term(u32::from_le_bytes(take(from)?));
        let sender = NodeId(u16::from_le_bytes(take(from)?));
        let count = u16::from_le_bytes(take(from)?);
        let change = u64::from_le_bytes(take(from)?);
        let group = |from: &mut &[u8]| Some((GroupId(u32::from_le_bytes(take(from)?)), View::read(from)?));
        let groups = (0..count).map(|_| group(from)).collect::<Option<_>>()?;
        let state = Self { term, sender, change, groups };
        (from.is_empty() && state.is_possible()).then_some(state)
    }

    /// Whether no group and no member is there twice, and not too many of them.
    #[must_use]
    pub fn is_possible(&self) -> bool {
        let ids: BTreeSet<GroupId> = self.groups.iter().map(|group| group.0).collect();
        let is_each_once = ids.len() == self.groups.len() && ids.len() <= GROUPS_MAX;
        is_each_once && self.groups.iter().all(|(_, view)| view.is_possible())
    }

    /// The state after `node` claimed the next term; `None` if the newest one is not `seen`.
    ///
    /// # Errors
    /// [`Error::Registry`] if all terms are used.
    pub fn claimed(&self, node: NodeId, seen: Term) -> Result<Option<Self>> {
        if self.term != seen {
            return Ok(None);
        }
        let next =
            seen.0.checked_add(1).ok_or_else(|| Error::Registry("all terms of the volume are used".to_owned()))?;
        Ok(Some(Self { term: Term(next), sender: node, ..self.clone() }))
    }

    /// The state with other members of a group; `None` if the newest term or the last change is another one.
    ///
    /// # Errors
    /// [`Error::Registry`] if the group does not exist, the view has a member twice or too many, or all numbers of
    /// changes are used.
    pub fn changed(&self, term: Term, change: u64, group: GroupId, view: &View) -> Result<Option<Self>> {
        if (self.term, self.change) != (term, change) {
            return Ok(None);
        }
        if !view.is_possible() {
            return Err(Error::Registry(format!("{group} cannot have these members: one is there twice, or too many")));
        }
        let mut next = self.clone();
        next.change =
            change.checked_add(1).ok_or_else(|| Error::Registry("all changes of the volume are used".to_owned()))?;
        let Some(found) = next.groups.iter_mut().find(|found| found.0 == group) else {
            return Err(Error::Registry(format!("{group} does not exist")));
        };
        found.1 = view.clone();
        Ok(Some(next))
    }
}

impl View {
    /// The bytes of the view.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend(self.number.0.to_le_bytes());
        out.extend(exact_u32(self.members.len()).to_le_bytes());
        for member in &self.members {
            out.extend(member.node.0.to_le_bytes());
            out.extend([member.role.code(), 0]);
            out.extend(member.since.0.to_le_bytes());
        }
        out
    }

    /// Takes a view off the front of `from`; `None` if none is there.
    #[must_use]
    pub fn read(from: &mut &[u8]) -> Option<Self> {
        let number = ViewNumber(u32::from_le_bytes(take(from)?));
        let count = to_usize(u32::from_le_bytes(take(from)?));
        (count <= MEMBERS_MAX).then_some(())?;
        let member = |from: &mut &[u8]| {
            let node = NodeId(u16::from_le_bytes(take(from)?));
            let [role, _] = take(from)?;
            let since = ViewNumber(u32::from_le_bytes(take(from)?));
            Some(Member { node, role: Role::from_code(role)?, since })
        };
        let members = (0..count).map(|_| member(from)).collect::<Option<_>>()?;
        Some(Self { number, members })
    }

    /// Whether no member is there twice, and not too many.
    fn is_possible(&self) -> bool {
        let nodes: BTreeSet<NodeId> = self.members.iter().map(|member| member.node).collect();
        nodes.len() == self.members.len() && nodes.len() <= MEMBERS_MAX
    }
}

/// Takes so many bytes off the front.
pub(super) fn take<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
    let (head, rest) = from.split_first_chunk::<N>()?;
    *from = rest;
    Some(*head)
}
