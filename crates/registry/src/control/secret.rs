//! Secrets of groups: one for each group, term and view, told to those who are in it.
//!
//! ```text
//! request   kind 100, volume 8, group 4, term 4, view 4
//! answer    kind 50, secret 32; or an answer of the registry
//! secret    HKDF-SHA256(root; "lodestone group", volume, group, term, view)
//! ```
//!
//! Keepers have the root, and derive all others from it, so no secret stands in their logs. A node is told a secret if
//! the registry says that it is a member of the group now, or the sender of the newest term and a member of another
//! group. Views before the present one are told too: a member may know no later one. A node that was removed, or
//! follows an older term, is told nothing.

use lodestone_fabric::{GroupId, Secret, Term, ViewNumber, VolumeState};
use ring::hkdf::{HKDF_SHA256, KeyType, Salt};

use crate::net::Peer;
use crate::table::{Answer, VolumeId, has_place, is_member, is_same_machine};
use crate::wire::{Reader, Writer};

/// The kind of the request.
pub(crate) const SECRET_REQUEST: u8 = 100;
const SECRET_ANSWER: u8 = 50;

/// The secret that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SecretRequest {
    pub(crate) volume: VolumeId,
    pub(crate) group: GroupId,
    pub(crate) term: Term,
    pub(crate) view: ViewNumber,
}

impl SecretRequest {
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let mut out = Writer::default();
        out.u8(SECRET_REQUEST).u64(self.volume.0).u32(self.group.0).u32(self.term.0).u32(self.view.0);
        out.0
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut from = Reader(bytes);
        (from.u8()? == SECRET_REQUEST).then_some(())?;
        let (volume, group) = (VolumeId(from.u64()?), GroupId(from.u32()?));
        let (term, view) = (Term(from.u32()?), ViewNumber(from.u32()?));
        from.end()?;
        Some(Self { volume, group, term, view })
    }

    /// Why `peer` is not told; `None`: it is.
    pub(crate) fn denied(&self, state: &VolumeState, peer: Peer) -> Option<String> {
        let (group, term) = (self.group, self.term);
        let Peer::Node(node) = peer else { return Some(format!("{peer:?} is no node of the volume")) };
        if term != state.term {
            return Some(format!("{term} is not the newest one, which is {}", state.term));
        }
        let Some(view) = state.view(group) else { return Some(format!("{group} does not exist")) };
        if self.view > view.number {
            return Some(format!("{} of {group} is not decided; the present one is {}", self.view, view.number));
        }
        // A sender that was removed from all groups is told nothing either: it may not come back by a takeover.
        let is_sender = is_same_machine(node, state.sender) && is_member(state, node);
        if !is_sender && !has_place(view, node) {
            return Some(format!("{node} is no member of {group} in {}, and not the sender of {term}", view.number));
        }
        None
    }

    /// The secret.
    pub(crate) fn derive(&self, root: &[u8; 32]) -> Option<[u8; 32]> {
        struct Bytes;
        impl KeyType for Bytes {
            fn len(&self) -> usize {
                32
            }
        }
        let (volume, group) = (self.volume.0.to_le_bytes(), self.group.0.to_le_bytes());
        let (term, view) = (self.term.0.to_le_bytes(), self.view.0.to_le_bytes());
        let info: [&[u8]; 5] = [b"lodestone group", &volume, &group, &term, &view];
        let pseudorandom = Salt::new(HKDF_SHA256, &[]).extract(root);
        let mut secret = [0; 32];
        pseudorandom.expand(&info, Bytes).ok()?.fill(&mut secret).ok()?;
        Some(secret)
    }
}

/// The answer with a secret.
pub(crate) fn secret_reply(secret: &[u8; 32]) -> Vec<u8> {
    let mut out = Writer::default();
    out.u8(SECRET_ANSWER).raw(secret);
    out.0
}

impl crate::net::KeeperClient {
    /// The secret of a group for a term and a view of this client's volume.
    ///
    /// # Errors
    /// Keepers that do not answer, or say that this node is not in it.
    pub fn secret(&self, group: GroupId, term: Term, view: ViewNumber) -> lodestone_fabric::Result<Secret> {
        let request = SecretRequest { volume: self.volume(), group, term, view };
        let told = std::cell::Cell::new(None);
        let decode = |bytes: &[u8]| match bytes.split_first() {
            Some((&SECRET_ANSWER, secret)) => {
                told.set(<[u8; 32]>::try_from(secret).ok());
                Answer::Held(0)
            }
            _ => Answer::from_bytes(bytes).unwrap_or(Answer::Refused("an answer that is none".to_owned())),
        };
        let answer = self.ask_bytes(&request.to_bytes(), true, &decode)?;
        match (told.get(), answer) {
            (Some(secret), _) => Ok(Secret::of(secret)),
            (None, Answer::Refused(reason)) => Err(lodestone_fabric::Error::Registry(reason)),
            (None, other) => Err(lodestone_fabric::Error::Registry(format!("no secret, but {other:?}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use lodestone_fabric::{NodeId, View};

    use super::*;

    #[test]
    fn members_and_the_sender_are_told_and_nobody_else() {
        let view = View::of(&[NodeId(1), NodeId(2)]).with(NodeId(2), None);
        let groups = vec![(GroupId(0), View::of(&[NodeId(9)])), (GroupId(1), view)];
        let mut state = VolumeState { term: Term(5), sender: NodeId(9), change: 1, groups };
        let asked = |term, view| SecretRequest {
            volume: VolumeId(7),
            group: GroupId(1),
            term: Term(term),
            view: ViewNumber(view),
        };
        let denied = |state: &VolumeState, request: SecretRequest, node| {
            request.denied(state, Peer::Node(NodeId(node))).is_some()
        };
        assert!(!denied(&state, asked(5, 2), 1) && !denied(&state, asked(5, 2), 9), "a member, and the sender");
        assert!(!denied(&state, asked(5, 1), 1), "a member that is behind");
        assert!(denied(&state, asked(5, 2), 2), "a node that was removed");
        assert!(denied(&state, asked(5, 1), 2), "it is not even told the view that it was in");
        assert!(denied(&state, asked(4, 2), 1) && denied(&state, asked(6, 2), 1), "terms that are not the newest");
        assert!(denied(&state, asked(5, 3), 1), "a view that is not decided");
        state.groups[0].1 = state.groups[0].1.with(NodeId(9), None);
        assert!(denied(&state, asked(5, 2), 9), "a sender that was removed");
        let machines = |nodes: [u16; 2]| View::of(&nodes.map(NodeId));
        let groups = vec![(GroupId(0), machines([1, 2])), (GroupId(1), machines([102, 103]))];
        let of_machines = VolumeState { term: Term(5), sender: NodeId(0x4001), change: 1, groups };
        assert!(!denied(&of_machines, asked(5, 1), 3), "the machine of a replica");
        assert!(!denied(&of_machines, asked(5, 1), 1), "the machine of the sender");
        assert!(denied(&of_machines, asked(5, 1), 4), "another machine");
        for peer in [Peer::Anyone, Peer::Unknown, Peer::Operator, Peer::Keeper(crate::KeeperId(1))] {
            assert!(asked(5, 2).denied(&state, peer).is_some(), "{peer:?}");
        }
    }

    #[test]
    fn every_view_and_term_has_a_secret_of_its_own() {
        let request = SecretRequest { volume: VolumeId(7), group: GroupId(1), term: Term(5), view: ViewNumber(2) };
        let secret = |request: SecretRequest| request.derive(&[3; 32]).unwrap();
        let others = [
            SecretRequest { volume: VolumeId(8), ..request },
            SecretRequest { group: GroupId(2), ..request },
            SecretRequest { term: Term(6), ..request },
            SecretRequest { view: ViewNumber(3), ..request },
        ];
        assert_eq!(secret(request), secret(request));
        assert!(others.iter().all(|other| secret(*other) != secret(request)));
        assert_eq!(SecretRequest::from_bytes(&request.to_bytes()), Some(request));
    }
}
