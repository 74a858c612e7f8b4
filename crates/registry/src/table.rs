//! The state that keepers agree on: the volumes of a registry, and who holds the lease of each.
//!
//! [`Table::apply`] is deterministic and has no clock, so that all keepers reach the same state from the same commands.
//!
//! *Leases.* Each grant and each renewal is a command, and has a number. Every keeper notes when it applied a number, by
//! its own clock. A lease of another term is granted only if the keeper that proposes it says which number it saw end,
//! and that is still the newest. So no keeper decides by what another one's clock said, and a renewal that came between
//! prevents the grant.
//!
//! ```text
//! table     version 1, volumes 4, then for each: id 8, holder 4, number 8, state (bytes 4, then VolumeState)
//! command   kind 1, volume 8, then by kind:
//!   1 create   groups 2, {group 4, view}        2 state
//!   3 claim    node 2, seen 4                   4 change  term 4, change 8, group 4, view
//!   5 renew    term 4, number that is over 8
//! ```

use std::collections::BTreeMap;

use lodestone_fabric::{GroupId, LEASE_NS, NodeId, Term, View, VolumeState};
use lodestone_pmem::planted;
use lodestone_width::exact_u16;

use crate::wire::{Reader, Writer};

/// Most bytes of a command.
pub const COMMAND_BYTES_MAX: usize = 32 << 10;
/// Most bytes of a table. A change that would make it larger is refused, so a keeper's log always has room for it.
pub const TABLE_BYTES_MAX: usize = 256 << 10;
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
    /// Makes a volume with these members, if it does not exist.
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
        let bytes_used = self.bytes();
        let Some(entry) = self.volumes.get_mut(&volume) else {
            return Answer::Refused(format!("{volume} is not in this registry; make it first"));
        };
        let next = match &command.request {
            Request::Create(_) | Request::State => return Answer::State(entry.state.clone()),
            Request::Renew(term) => return entry.renew(*term, command.over),
            Request::Claim(node, seen) => entry.state.claimed(*node, *seen),
            Request::Change(term, change, group, view) => entry.state.changed(*term, *change, *group, view),
        };
        match next {
            Err(error) => Answer::Refused(error.to_string()),
            Ok(None) => Answer::Differs(entry.state.clone()),
            Ok(Some(next)) if bytes_used + next.to_bytes().len() > TABLE_BYTES_MAX => too_large(),
            Ok(Some(next)) => {
                entry.state = next;
                Answer::Done(entry.state.clone())
            }
        }
    }

    fn create(&mut self, volume: VolumeId, groups: &[(GroupId, View)]) -> Answer {
        if let Some(entry) = self.volumes.get(&volume) {
            return Answer::Differs(entry.state.clone());
        }
        let state = VolumeState { groups: groups.to_vec(), ..VolumeState::default() };
        if !state.is_possible() {
            return Answer::Refused("a group or a member is there twice, or there are too many of them".to_owned());
        }
        if self.bytes() + state.to_bytes().len() > TABLE_BYTES_MAX {
            return too_large();
        }
        self.volumes.insert(volume, Entry { state: state.clone(), ..Entry::default() });
        Answer::Done(state)
    }

    /// Bytes of the table, at most.
    fn bytes(&self) -> usize {
        self.volumes.values().map(|entry| 24 + entry.state.to_bytes().len()).sum()
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
        (from.u8()? == TABLE_VERSION).then_some(())?;
        let mut volumes = BTreeMap::new();
        for _ in 0..from.count(24)? {
            let id = VolumeId(from.u64()?);
            let (holder, number) = (Term(from.u32()?), from.u64()?);
            let state = VolumeState::from_bytes(from.bytes(TABLE_BYTES_MAX)?)?;
            volumes.insert(id, Entry { state, holder, number }).is_none().then_some(())?;
        }
        from.end()?;
        Some(Self { volumes })
    }
}

fn too_large() -> Answer {
    Answer::Refused(format!("the registry's table would be larger than {TABLE_BYTES_MAX} bytes; use a second registry"))
}

impl Entry {
    fn renew(&mut self, term: Term, over: u64) -> Answer {
        if term != self.state.term {
            return Answer::Lost(self.state.term);
        }
        if term == Term(0) {
            return Answer::Refused("no node has claimed a term yet; claim one first".to_owned());
        }
        let is_free = self.holder == Term(0) || self.holder == term || over == self.number;
        if !is_free && !planted::active("registry-grant-without-the-end") {
            return Answer::Wait(0);
        }
        self.holder = term;
        self.number += 1;
        Answer::Held(LEASE_NS)
    }
}

impl Command {
    pub(crate) fn new(volume: VolumeId, request: Request) -> Self {
        Self { volume, request, over: NONE_OVER }
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut out = Writer::default();
        self.request.write(self.volume, &mut out);
        if let Request::Renew(_) = self.request {
            out.u64(self.over);
        }
        out.0
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut from = Reader(bytes);
        let (volume, request) = Request::read(&mut from)?;
        let over = if let Request::Renew(_) = request { from.u64()? } else { NONE_OVER };
        from.end()?;
        Some(Self { volume, request, over })
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
