//! The state of a part: boot number, length, clean mark, in two mirrored lines (see `mirror`).

use std::path::Path;

use crate::addr::{PmAddr, PmPtr};
use crate::error::Result;
use crate::memory::Memory;
use crate::pool::header::HeaderFault;
use crate::pool::layout::{PAGE_BYTES, PartHeader, STATE_OFFSETS, StateSlot};
use crate::pool::mirror::{self, Mirror};

/// Largest boot number: more lives than any pool has. Boot numbers have company in words of the floors above, and the
/// largest words mean other things there.
const BOOT_MAX: u64 = 1 << 62;

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
    if state.boot > BOOT_MAX {
        return Some((8, format!("boot number {}", state.boot), format!("at most {BOOT_MAX}")));
    }
    None
}

/// The boot number of the life after `state`.
///
/// # Errors
/// When there is none: the pool can still be read.
pub(crate) fn next_boot(path: &Path, state: &StateSlot) -> Result<u64> {
    if state.boot < BOOT_MAX {
        return Ok(state.boot + 1);
    }
    let (finding, expected) = (format!("boot number {}", state.boot), format!("less than {BOOT_MAX}"));
    let hint = "open it read-only, and copy its data into a new pool";
    Err(HeaderFault::new(STATE_OFFSETS[0] + 8, finding, expected, hint).into_error(path))
}
