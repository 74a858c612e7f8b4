//! The state of a part: boot number, length, clean mark, in two mirrored lines (see `mirror`).

use crate::addr::{PmAddr, PmPtr};
use crate::memory::Memory;
use crate::pool::layout::{STATE_OFFSETS, StateSlot};
use crate::pool::mirror::{self, Mirror};

/// Addresses of the two lines of `part`.
pub(crate) fn places(part: u16) -> [PmPtr<StateSlot>; 2] {
    STATE_OFFSETS.map(|offset| PmPtr::new(PmAddr::new(part, offset)))
}

/// The newest intact state of `part`.
pub(crate) fn read(memory: &Memory, part: u16) -> Option<StateSlot> {
    Mirror::read(memory, places(part)).newest().map(|(state, _)| state)
}

/// Writes `state` with the next sequence number behind the newest one and makes it persistent.
pub(crate) fn write(memory: &Memory, part: u16, state: StateSlot) -> StateSlot {
    mirror::write(memory, places(part), state)
}
