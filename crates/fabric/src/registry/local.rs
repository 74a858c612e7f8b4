//! A registry in a pool of one process: terms and members survive, leases do not.
//!
//! ```text
//! range    two slots of 2,048 bytes, with the same state
//! slot     magic 3, version 1, crc 4, number 8, bytes 4, zero 4, then the state (`state.rs`)
//! ```
//!
//! A new state goes to one slot, and then to the other: a crash leaves the old state or the new one. Afterwards both
//! have it, so damage to one slot never brings an older state back: a term would be handed out twice. After a restart
//! no lease is known, so the first one waits for a whole lease: a holder of before may still read.

use lodestone_pmem::{Memory, PmAddr};
use lodestone_width::{exact_u32, to_usize};

use super::state::take;
use super::{LEASE_NS, Lease, Registry, Swap, VolumeState};
use crate::error::{Error, Result};
use crate::ids::{GroupId, Moment, NodeId, Term};
use crate::view::View;

const SLOT_BYTES: u64 = 2048;
const SLOT_HEAD_BYTES: usize = 24;
const MAGIC: [u8; 3] = *b"LFY";
const VERSION: u8 = 1;
const NAME: &str = "registry";

/// The registry.
#[derive(Debug)]
pub struct LocalRegistry {
    memory: Memory,
    at: PmAddr,
    number: u64,
    state: VolumeState,
    /// Until when the holder of the lease may read, by this clock. `None`: not known yet.
    lease: Option<(Term, Moment)>,
    lease_ns: u64,
}

impl LocalRegistry {
    /// Bytes of the range.
    pub const BYTES: u64 = 2 * SLOT_BYTES;

    /// Makes a registry with these members at `at`: durable on return.
    ///
    /// # Errors
    /// A state that is too large; a device that failed.
    pub fn create(memory: &Memory, at: PmAddr, groups: Vec<(GroupId, View)>) -> Result<Self> {
        let state = VolumeState { groups, ..VolumeState::default() };
        let none = VolumeState::default();
        let lease = Some((Term(0), Moment(0)));
        let mut registry = Self { memory: memory.clone(), at, number: 0, state: none, lease, lease_ns: LEASE_NS };
        registry.save(state, 0)?;
        Ok(registry)
    }

    /// Opens the registry at `at`.
    ///
    /// # Errors
    /// [`Error::NoLog`] if neither slot is whole; [`Error::Version`]; [`Error::Impossible`] if a slot has an intact
    /// checksum and no state: an older one does not stand in for it.
    pub fn open(memory: &Memory, at: PmAddr) -> Result<Self> {
        let places = [0, 1].map(|slot| at.plus(slot * SLOT_BYTES));
        let slots = [read_slot(memory, places[0])?, read_slot(memory, places[1])?];
        let numbers = slots.each_ref().map(|slot| slot.as_ref().map(|found| found.0));
        let newest = slots.into_iter().flatten().max_by_key(|found| found.0);
        let (number, state) = newest.ok_or(Error::NoLog { what: NAME, at })?;
        let (lease, lease_ns) = (None, LEASE_NS);
        let mut registry = Self { memory: memory.clone(), at, number, state: state.clone(), lease, lease_ns };
        if numbers[0] != numbers[1] && !memory.is_read_only() {
            // A crash came between the two, or one of them is damaged.
            registry.save(state, u64::from(numbers[0] == Some(number)))?;
        }
        Ok(registry)
    }

    /// With leases of another length, in nanoseconds. Every life of the registry must have the same.
    #[must_use]
    pub const fn with_lease(mut self, ns: u64) -> Self {
        self.lease_ns = ns;
        self
    }

    /// No node that had a lease before may read any more: all nodes are of this process, which has just begun. So the
    /// first lease is not waited for.
    pub const fn nobody_reads(&mut self) {
        self.lease = Some((Term(0), Moment(0)));
    }

    /// Makes a state durable: first in the slot `first`, which is not the only whole one.
    fn save(&mut self, state: VolumeState, first: u64) -> Result<()> {
        let body = state.to_bytes();
        if SLOT_HEAD_BYTES + body.len() > to_usize(SLOT_BYTES) {
            return Err(Error::Registry("the state is larger than a slot; use fewer groups".to_owned()));
        }
        let number = self.number + 1;
        let mut slot = Vec::new();
        slot.extend(number.to_le_bytes());
        slot.extend(exact_u32(body.len()).to_le_bytes());
        slot.extend([0; 4]);
        slot.extend(&body);
        let mut whole = MAGIC.to_vec();
        whole.push(VERSION);
        whole.extend(crc32c::crc32c(&slot).to_le_bytes());
        whole.extend(&slot);
        for slot in [first, 1 - first] {
            let place = self.at.plus(slot * SLOT_BYTES);
            self.memory.write(place, &whole);
            // The state is whole in this slot, before the other loses the former one, and before it is told.
            self.memory.persist(place, lodestone_width::to_u64(whole.len()));
        }
        self.memory.durable()?;
        (self.number, self.state) = (number, state);
        Ok(())
    }
}

/// Number and state of a slot; `None` if it is not whole.
fn read_slot(memory: &Memory, at: PmAddr) -> Result<Option<(u64, VolumeState)>> {
    let mut bytes = vec![0; to_usize(SLOT_BYTES)];
    memory.read(at, &mut bytes);
    let Some(slot) = Slot::of(&bytes) else { return Ok(None) };
    if slot.version != VERSION {
        return Err(Error::Version { what: NAME, at, found: slot.version, known: VERSION });
    }
    let impossible = || Error::Impossible { what: NAME, at, field: "its state" };
    let state = VolumeState::from_bytes(slot.state).ok_or_else(impossible)?;
    Ok(Some((slot.number, state)))
}

/// A slot whose checksum holds.
struct Slot<'b> {
    version: u8,
    number: u64,
    state: &'b [u8],
}

impl<'b> Slot<'b> {
    fn of(mut from: &'b [u8]) -> Option<Self> {
        let [magic @ .., version] = take::<4>(&mut from)?;
        (magic == MAGIC).then_some(())?;
        let crc = u32::from_le_bytes(take(&mut from)?);
        let covered = from;
        let number = u64::from_le_bytes(take(&mut from)?);
        let length = to_usize(u32::from_le_bytes(take(&mut from)?));
        take::<4>(&mut from)?;
        (crc32c::crc32c(covered.get(..16 + length)?) == crc && number < u64::MAX).then_some(())?;
        Some(Self { version, number, state: from.get(..length)? })
    }
}

impl Registry for LocalRegistry {
    fn state(&self) -> Result<VolumeState> {
        Ok(self.state.clone())
    }

    fn claim(&mut self, node: NodeId, seen: Term) -> Result<Swap> {
        let Some(next) = self.state.claimed(node, seen)? else { return Ok(Swap::Differs(self.state.clone())) };
        self.save(next, 0)?;
        Ok(Swap::Done(self.state.clone()))
    }

    fn change(&mut self, term: Term, change: u64, group: GroupId, view: &View) -> Result<Swap> {
        let Some(next) = self.state.changed(term, change, group, view)? else {
            return Ok(Swap::Differs(self.state.clone()));
        };
        self.save(next, 0)?;
        Ok(Swap::Done(self.state.clone()))
    }

    fn renew(&mut self, now: Moment, term: Term) -> Result<Lease> {
        if term != self.state.term {
            return Ok(Lease::Lost(self.state.term));
        }
        // Nothing is known of leases before a restart: the first one waits for a whole lease.
        let (holder, until) = *self.lease.get_or_insert((Term(0), now.plus(self.lease_ns)));
        if holder != term && now < until {
            return Ok(Lease::Wait(until.since(now)));
        }
        self.lease = Some((term, now.plus(self.lease_ns)));
        Ok(Lease::Held(self.lease_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::Role;

    #[test]
    fn terms_and_members_survive() -> Result<()> {
        let memory = Memory::anonymous(1 << 16)?;
        let at = PmAddr::new(0, 4096);
        let view = View::of(&[NodeId(1), NodeId(2)]);
        let mut registry = LocalRegistry::create(&memory, at, vec![(GroupId(1), view.clone())])?;
        assert!(matches!(registry.claim(NodeId(7), Term(0))?, Swap::Done(_)));
        assert!(matches!(registry.claim(NodeId(8), Term(0))?, Swap::Differs(_)), "a term is handed out once");
        let next = view.with(NodeId(3), Some(Role::Joining));
        assert!(matches!(registry.change(Term(1), 0, GroupId(1), &next)?, Swap::Done(_)));
        assert!(matches!(registry.change(Term(1), 0, GroupId(1), &view)?, Swap::Differs(_)));
        let state = registry.state()?;
        drop(registry);
        let mut registry = LocalRegistry::open(&memory, at)?;
        assert_eq!(registry.state()?, state);
        // Each slot alone is enough, and is made whole from the other.
        for slot in [0, 1, 0] {
            memory.store(at.plus(slot * SLOT_BYTES + 8), u64::MAX);
            assert_eq!(LocalRegistry::open(&memory, at)?.state()?, state);
        }
        // The lease of before is waited for.
        assert_eq!(registry.renew(Moment(5), Term(1))?, Lease::Wait(LEASE_NS));
        assert_eq!(registry.renew(Moment(5 + LEASE_NS), Term(1))?, Lease::Held(LEASE_NS));
        assert!(matches!(registry.claim(NodeId(8), Term(1))?, Swap::Done(_)));
        assert_eq!(registry.renew(Moment(6 + LEASE_NS), Term(1))?, Lease::Lost(Term(2)));
        assert!(matches!(registry.renew(Moment(6 + LEASE_NS), Term(2))?, Lease::Wait(_)));
        Ok(())
    }
}
