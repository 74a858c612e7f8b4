//! The state of a part: boot number, length, clean mark, in two slots written in turn.
//!
//! 1. The new state goes to the older slot: one line, checksummed, flushed and fenced.
//! 2. A crash leaves the slot old, new or torn; torn fails its CRC and the other slot still counts.
//!
//! Invariant: the newer intact slot is never the one being written.

use crate::addr::{PmAddr, PmPtr};
use crate::memory::Memory;
use crate::pool::layout::{STATE_OFFSETS, StateSlot, crc_of};

/// Address of slot `index` of part `part`.
fn slot(part: u16, index: usize) -> PmPtr<StateSlot> {
    PmPtr::new(PmAddr::new(part, STATE_OFFSETS[index]))
}

/// The newest intact state of `part` and the slot it stands in.
pub(crate) fn read(memory: &Memory, part: u16) -> Option<(StateSlot, usize)> {
    (0..2)
        .map(|index| (memory.get(slot(part, index)), index))
        .filter(|(state, _)| state.sequence > 0 && state.crc == crc_of(state))
        .max_by_key(|(state, _)| state.sequence)
}

/// Writes `state` with the next sequence number behind the newest one and makes it persistent.
pub(crate) fn write(memory: &Memory, part: u16, mut state: StateSlot) -> StateSlot {
    let (sequence, newest) = read(memory, part).map_or((0, 1), |(old, index)| (old.sequence, index));
    state.sequence = sequence + 1;
    state.crc = crc_of(&state);
    let target = slot(part, 1 - newest);
    memory.put(target, &state);
    // The caller's next stores rely on this state (a boot number in use, a length mapped): they must not overtake it.
    memory.persist(target.addr(), 64);
    state
}
