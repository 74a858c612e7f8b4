//! The state that keepers agree on: the volumes of a registry, and who holds the lease of each.
//!
//! [`Table::apply`] is deterministic and has no clock, so that all keepers reach the same state from the same commands.
//!
//! *Leases.* Each grant and each renewal is a command, and has a number. Every keeper notes when it applied a number,
//! by its own clock. A lease of another term is granted only if the keeper that proposes it says which number it saw
//! end, and that is still the newest. So no keeper decides by what another one's clock said, and a renewal that came
//! between prevents the grant.
//!
//! *Room.* Terms and leases of a volume need no more bytes than it was made with, so a full table never refuses them.
//! New volumes leave an eighth of the table for new members of those that exist.
//!
//! *Rights.* A command of a node has its number. It takes effect only if the node is a member of the volume by the
//! state that it finds, or another node of its machine is ([`is_same_machine`]). To change members or hold the lease it
//! must be the sender too. So a node that was removed cannot come back by a takeover. An operator, and a network
//! without certificates, name no node.
//!
//! ```text
//! table     version 1, volumes 4, then for each: id 8, holder 4, number 8, state (bytes 4, then VolumeState)
//! command   kind 1, volume 8, then by kind:
//!   1 create   groups 2, {group 4, view}        2 state
//!   3 claim    node 2, seen 4                   4 change  term 4, change 8, group 4, view
//!   5 renew    term 4, number that is over 8
//!   then, of a node: its number 2
//! ```

use std::collections::BTreeMap;

use lodestone_fabric::{GroupId, LEASE_NS, NodeId, Term, View, VolumeState};
use lodestone_pmem::planted;
use lodestone_width::exact_u16;

use crate::wire::{Reader, Writer};

/// Most bytes of a command.
pub const COMMAND_BYTES_MAX: usize = 32 << 10;
/// Most bytes of a table. Growth beyond that is refused, so a keeper's log always has room for it.
pub const TABLE_BYTES_MAX: usize = 256 << 10;
/// Most bytes of a table after a volume was made: the rest is for new members.
const VOLUMES_BYTES_MAX: usize = TABLE_BYTES_MAX - TABLE_BYTES_MAX / 8;
/// Bytes of a table without volumes, and of a volume without its state.
const HEAD_BYTES: usize = 5;
const VOLUME_BYTES: usize = 24;
/// No lease has a number from here on: more than any number of renewals.
const NUMBER_MAX: u64 = 1 << 62;
const TABLE_VERSION: u8 = 1;
/// No lease is known to be over.
const NONE_OVER: u64 = u64::MAX;

/// The name of a volume in a registry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeId(pub u64);

impl std::fmt::Display for VolumeId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "volume {:016x}", self.0)
    }
}

/// A call of a registry, as it is sent to keepers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Makes a volume with these members, if it does not exist. Done as well if it exists with them, and with no change
    /// since.
    Create(Vec<(GroupId, View)>),
    /// The present state.
    State,
    /// The next term for a node, if the newest one is this.
    Claim(NodeId, Term),
    /// Other members of a group, if the newest term and the last change are these.
    Change(Term, u64, GroupId, View),
    /// The lease of a term, or more of it.
    Renew(Term),
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The present state.
    State(VolumeState),
    /// The swap was done, and the state is this one.
    Done(VolumeState),
    /// The state was another one, which is this.
    Differs(VolumeState),
    /// The lease, for so many nanoseconds from when it was asked for.
    Held(u64),
    /// The former holder may still read for so long.
    Wait(u64),
    /// Another term is newer.
    Lost(Term),
    /// The request cannot be granted. Nothing changed.
    Refused(String),
    /// This keeper does not lead. Nothing changed. The keeper that does, if one is known; 0: none.
    NotLeader(u16),
    /// The keeper stopped leading before the request was decided: it may have happened.
    Unknown,
}

/// A request in the log of the keepers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Command {
    pub(crate) volume: VolumeId,
    pub(crate) request: Request,
    /// The number of the lease that the proposing keeper saw end.
    pub(crate) over: u64,
    /// The node whose rights count. `None`: of an operator, or without certificates.
    pub(crate) node: Option<NodeId>,
}

/// A volume in the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Entry {
    state: VolumeState,
    /// The term that holds the lease; 0: none ever did.
    holder: Term,
    /// Grants and renewals so far.
    number: u64,
}

/// The table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    volumes: BTreeMap<VolumeId, Entry>,
}

impl Table {
    /// The volumes, each with its state and the holder of its lease.
    pub fn volumes(&self) -> impl Iterator<Item = (VolumeId, &VolumeState, Term)> + '_ {
        self.volumes.iter().map(|(id, entry)| (*id, &entry.state, entry.holder))
    }

    /// The state of a volume.
    #[must_use]
    pub fn state(&self, volume: VolumeId) -> Option<&VolumeState> {
        self.volumes.get(&volume).map(|entry| &entry.state)
    }

    /// Volumes whose lease some term has or had, with the number of the last grant or renewal.
    pub(crate) fn leases(&self) -> impl Iterator<Item = (VolumeId, u64)> + '_ {
        self.volumes.iter().filter(|(_, entry)| entry.holder > Term(0)).map(|(id, entry)| (*id, entry.number))
    }

    /// The number of the last grant or renewal, if a term other than `term` has it.
    pub(crate) fn foreign_lease(&self, volume: VolumeId, term: Term) -> Option<u64> {
        let entry = self.volumes.get(&volume)?;
        (entry.holder > Term(0) && entry.holder != term).then_some(entry.number)
    }

    /// Executes a command. The answer [`Answer::Wait`] has no time in it: that is the proposing keeper's.
    pub(crate) fn apply(&mut self, command: &Command) -> Answer {
        let volume = command.volume;
        if let Request::Create(groups) = &command.request {
            return self.create(volume, groups);
        }
        let bytes = self.bytes();
        let Some(entry) = self.volumes.get_mut(&volume) else {
            return Answer::Refused(format!("{volume} is not in this registry; make it first"));
        };
        let next = match &command.request {
            Request::Create(_) | Request::State => return Answer::State(entry.state.clone()),
            Request::Renew(term) => return entry.renew(*term, command),
            Request::Claim(node, seen) => entry.state.claimed(*node, *seen),
            Request::Change(term, change, group, view) => entry.state.changed(*term, *change, *group, view),
        };
        match next {
            Err(error) => Answer::Refused(error.to_string()),
            Ok(None) => Answer::Differs(entry.state.clone()),
            Ok(Some(next)) => entry.swap(next, command, bytes),
        }
    }

    fn create(&mut self, volume: VolumeId, groups: &[(GroupId, View)]) -> Answer {
        if let Some(entry) = self.volumes.get(&volume) {
            // Who made it and lost the answer asks again.
            let is_the_same = entry.state.change == 0 && entry.state.groups == groups;
            let state = entry.state.clone();
            return if is_the_same { Answer::Done(state) } else { Answer::Differs(state) };
        }
        let state = VolumeState { groups: groups.to_vec(), ..VolumeState::default() };
        if !state.is_possible() {
            return Answer::Refused("a group or a member is there twice, or there are too many of them".to_owned());
        }
        if self.bytes() + VOLUME_BYTES + state.to_bytes().len() > VOLUMES_BYTES_MAX {
            let text = format!("the registry's table has no room for another volume ({VOLUMES_BYTES_MAX} bytes)");
            return Answer::Refused(format!("{text}; use a second registry"));
        }
        self.volumes.insert(volume, Entry { state: state.clone(), ..Entry::default() });
        Answer::Done(state)
    }

    /// Bytes of the table.
    fn bytes(&self) -> usize {
        let volumes = self.volumes.values().map(|entry| VOLUME_BYTES + entry.state.to_bytes().len());
        HEAD_BYTES + volumes.sum::<usize>()
    }

    /// The bytes of the table.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.u8(TABLE_VERSION).u32(lodestone_width::exact_u32(self.volumes.len()));
        for (id, entry) in &self.volumes {
            out.u64(id.0).u32(entry.holder.0).u64(entry.number).bytes(&entry.state.to_bytes());
        }
        out.0
    }

    /// The table with these bytes; `None` if they are none.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut from = Reader(bytes);
        (from.u8()? == TABLE_VERSION && bytes.len() <= TABLE_BYTES_MAX).then_some(())?;
        let mut volumes = BTreeMap::new();
        for _ in 0..from.count(VOLUME_BYTES)? {
            let id = VolumeId(from.u64()?);
            let (holder, number) = (Term(from.u32()?), from.u64()?);
            let state = VolumeState::from_bytes(from.bytes(TABLE_BYTES_MAX)?)?;
            (holder <= state.term && number < NUMBER_MAX).then_some(())?;
            volumes.insert(id, Entry { state, holder, number }).is_none().then_some(())?;
        }
        from.end()?;
        Some(Self { volumes })
    }
}

impl Entry {
    /// Takes the next state, if who asks may do that and `bytes` of the table leave room for it.
    fn swap(&mut self, next: VolumeState, command: &Command, bytes: usize) -> Answer {
        let changes_members = matches!(command.request, Request::Change(..));
        if let Some(refusal) = self.refusal(command, changes_members) {
            return refusal;
        }
        let (before, after) = (self.state.to_bytes().len(), next.to_bytes().len());
        // A state that does not grow always has room: takeovers, and members that leave.
        if after > before && bytes - before + after > TABLE_BYTES_MAX {
            let text = format!("the registry's table has no room for more members ({TABLE_BYTES_MAX} bytes)");
            return Answer::Refused(format!("{text}; remove a member first"));
        }
        self.state = next;
        Answer::Done(self.state.clone())
    }

    /// Why a node may not do this; `None`: it may.
    fn refusal(&self, command: &Command, only_the_sender: bool) -> Option<Answer> {
        let node = command.node?;
        let state = &self.state;
        if !is_member(state, node) {
            return Some(Answer::Refused(format!("{node} is no member of {}", command.volume)));
        }
        let is_other = only_the_sender && !is_same_machine(node, state.sender);
        is_other.then(|| Answer::Refused(format!("{node} is not the sender of {}", state.term)))
    }

    fn renew(&mut self, term: Term, command: &Command) -> Answer {
        if term != self.state.term {
            return Answer::Lost(self.state.term);
        }
        if term == Term(0) {
            return Answer::Refused("no node has claimed a term yet; claim one first".to_owned());
        }
        if let Some(refusal) = self.refusal(command, true) {
            return refusal;
        }
        let is_free = self.holder == Term(0) || self.holder == term || command.over == self.number;
        if !is_free && !planted::active("registry-grant-without-the-end") {
            return Answer::Wait(0);
        }
        self.holder = term;
        self.number += 1;
        Answer::Held(LEASE_NS)
    }
}

/// Machines with numbers up to this have several nodes in a volume.
pub const MACHINES_MAX: u16 = 99;
/// The replica of machine 7 is node 107.
pub const REPLICA_OF_MACHINE: u16 = 100;
/// As a sender, machine 7 is node `0x4007`: it is a member, too, and has another address for that.
pub const SENDER_OF_MACHINE: u16 = 0x4000;

/// Whether a certificate of the node `own` counts for `node`: for itself, and if it is one of a machine, for the other
/// nodes of that machine.
///
/// ```
/// use lodestone_fabric::NodeId;
/// use lodestone_registry::is_same_machine;
///
/// assert!(is_same_machine(NodeId(7), NodeId(7)) && is_same_machine(NodeId(7), NodeId(107)));
/// assert!(is_same_machine(NodeId(7), NodeId(0x4007)));
/// assert!(!is_same_machine(NodeId(7), NodeId(8)) && !is_same_machine(NodeId(107), NodeId(7)));
/// assert!(!is_same_machine(NodeId(150), NodeId(250)), "no number of a machine");
/// ```
#[must_use]
pub const fn is_same_machine(own: NodeId, node: NodeId) -> bool {
    let is_machine = own.0 >= 1 && own.0 <= MACHINES_MAX;
    own.0 == node.0 || (is_machine && (node.0 == own.0 + REPLICA_OF_MACHINE || node.0 == own.0 | SENDER_OF_MACHINE))
}

/// Whether a node, or another one of its machine, has a place in the view.
pub(crate) fn has_place(view: &View, node: NodeId) -> bool {
    view.members.iter().any(|member| is_same_machine(node, member.node))
}

/// Whether a node is a member of some group of the volume now.
pub(crate) fn is_member(state: &VolumeState, node: NodeId) -> bool {
    state.groups.iter().any(|(_, view)| has_place(view, node))
}

impl Command {
    pub(crate) const fn new(volume: VolumeId, request: Request, node: Option<NodeId>) -> Self {
        Self { volume, request, over: NONE_OVER, node }
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut out = Writer::default();
        self.request.write(self.volume, &mut out);
        if let Request::Renew(_) = self.request {
            out.u64(self.over);
        }
        if let Some(node) = self.node {
            out.u16(node.0);
        }
        out.0
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut from = Reader(bytes);
        let (volume, request) = Request::read(&mut from)?;
        let over = if let Request::Renew(_) = request { from.u64()? } else { NONE_OVER };
        let node = if from.0.is_empty() { None } else { Some(NodeId(from.u16()?)) };
        from.end()?;
        Some(Self { volume, request, over, node })
    }
}

impl Request {
    pub(crate) fn write(&self, volume: VolumeId, out: &mut Writer) {
        match self {
            Self::Create(groups) => {
                out.u8(1).u64(volume.0).u16(exact_u16(groups.len().min(0xFFFF)));
                for (group, view) in groups.iter().take(0xFFFF) {
                    out.u32(group.0).raw(&view.to_bytes());
                }
            }
            Self::State => {
                out.u8(2).u64(volume.0);
            }
            Self::Claim(node, seen) => {
                out.u8(3).u64(volume.0).u16(node.0).u32(seen.0);
            }
            Self::Change(term, change, group, view) => {
                out.u8(4).u64(volume.0).u32(term.0).u64(*change).u32(group.0).raw(&view.to_bytes());
            }
            Self::Renew(term) => {
                out.u8(5).u64(volume.0).u32(term.0);
            }
        }
    }

    pub(crate) fn read(from: &mut Reader<'_>) -> Option<(VolumeId, Self)> {
        let (kind, volume) = (from.u8()?, VolumeId(from.u64()?));
        let request = match kind {
            1 => {
                let count = from.u16()?;
                let group = |from: &mut Reader<'_>| Some((GroupId(from.u32()?), View::read(&mut from.0)?));
                Self::Create((0..count).map(|_| group(from)).collect::<Option<_>>()?)
            }
            2 => Self::State,
            3 => Self::Claim(NodeId(from.u16()?), Term(from.u32()?)),
            4 => {
                let (term, change, group) = (Term(from.u32()?), from.u64()?, GroupId(from.u32()?));
                Self::Change(term, change, group, View::read(&mut from.0)?)
            }
            5 => Self::Renew(Term(from.u32()?)),
            _ => return None,
        };
        Some((volume, request))
    }
}

impl Answer {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut out = Writer::default();
        match self {
            Self::State(state) => out.u8(1).bytes(&state.to_bytes()),
            Self::Done(state) => out.u8(2).bytes(&state.to_bytes()),
            Self::Differs(state) => out.u8(3).bytes(&state.to_bytes()),
            Self::Held(ns) => out.u8(4).u64(*ns),
            Self::Wait(ns) => out.u8(5).u64(*ns),
            Self::Lost(term) => out.u8(6).u32(term.0),
            Self::Refused(reason) => out.u8(7).bytes(reason.as_bytes()),
            Self::NotLeader(keeper) => out.u8(8).u16(*keeper),
            Self::Unknown => out.u8(9),
        };
        out.0
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut from = Reader(bytes);
        let state = |from: &mut Reader<'_>| VolumeState::from_bytes(from.bytes(TABLE_BYTES_MAX)?);
        let answer = match from.u8()? {
            1 => Self::State(state(&mut from)?),
            2 => Self::Done(state(&mut from)?),
            3 => Self::Differs(state(&mut from)?),
            4 => Self::Held(from.u64()?),
            5 => Self::Wait(from.u64()?),
            6 => Self::Lost(Term(from.u32()?)),
            7 => Self::Refused(String::from_utf8_lossy(from.bytes(4096)?).into_owned()),
            8 => Self::NotLeader(from.u16()?),
            9 => Self::Unknown,
            _ => return None,
        };
        from.end()?;
        Some(answer)
    }
}
