//! The state of a part: boot number, length, clean mark, in two mirrored lines (see `mirror`).

use crate::addr::{PmAddr, PmPtr};
use crate::memory::Memory;
use crate::pool::layout::{PAGE_BYTES, PartHeader, STATE_OFFSETS, StateSlot};
use crate::pool::mirror::{self, Mirror};

/// Addresses of the two lines of `part`.
pub(crate) fn places(part: u16) -> [PmPtr<StateSlot>; 2] {
    STATE_OFFSETS.map(|offset| PmPtr::new(PmAddr::new(part, offset)))
}

/// The newest intact state of `part`.
pub(crate) fn read(memory: &Memory, part: u16) -> Option<StateSlot> {
    Mirror::read(memory, places(part)).newest().map(|(state, _)| state)
}

/// Writes `state` with the next sequence number after the newest one and makes it persistent.
pub(crate) fn write(memory: &Memory, part: u16, state: StateSlot) -> StateSlot {
    mirror::write(memory, places(part), state)
}

/// Checks the numbers of an intact `state` of a part with `header` and `len` bytes. Returns a fault as offset inside
/// the line, finding and expectation. A checksum that fits does not exclude a writer with a bug.
pub(crate) fn nonsense(state: &StateSlot, header: &PartHeader, len: u64) -> Option<(u64, String, String)> {
    let pages = |bytes: u64| bytes.is_multiple_of(PAGE_BYTES);
    if state.part_bytes < header.part_bytes || state.part_bytes > len || !pages(state.part_bytes) {
        let expected = format!("whole pages, {} to {len} bytes", header.part_bytes);
        return Some((16, format!("a length of {} bytes", state.part_bytes), expected));
    }
    let grown_from = state.grown_from;
    if grown_from != 0 && (grown_from < header.part_bytes || grown_from >= state.part_bytes || !pages(grown_from)) {
        let expected = format!("0, or whole pages, {} to {} bytes", header.part_bytes, state.part_bytes);
        return Some((32, format!("a growth from {grown_from} bytes"), expected));
    }
    if state.boot == u64::MAX {
        return Some((8, "the last boot number there is".into(), "a smaller one".into()));
    }
    None
}
