//! A clock before its first life.

use lodestone_pmem::{LINE_BYTES, Memory};
use zerocopy::FromZeros;

use super::{Lives, LivesLayout, StateLine};

impl Lives {
    /// Writes the state of an unused clock at `layout` and flushes it; the caller fences before it counts.
    pub fn format(memory: &Memory, layout: &LivesLayout) {
        for sequence in 0..2 {
            let mut state = StateLine::new_zeroed();
            (state.sequence, state.base, state.limit) = (sequence, 1, 1);
            state.crc = state.checksum();
            memory.put(layout.line(sequence), &state);
            // Before the fence of whoever makes the clock reachable.
            memory.flush(layout.line(sequence).addr(), LINE_BYTES);
        }
    }
}
