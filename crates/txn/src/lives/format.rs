//! A clock before its first life.

use lodestone_pmem::mirror::Line;
use lodestone_pmem::{LINE_BYTES, Memory};
use zerocopy::FromZeros;

use super::{Lives, LivesLayout, StateLine};

impl Lives {
    /// Writes the state of an unused clock at `layout` and flushes it. The caller fences before the clock counts.
    pub fn format(memory: &Memory, layout: &LivesLayout) {
        let mut state = StateLine::new_zeroed();
        (state.base, state.limit) = (1, 1);
        state.seal(1);
        for line in layout.lines() {
            memory.put(line, &state);
            // Flushed before the caller's fence, after which the clock becomes reachable.
            memory.flush(line.addr(), LINE_BYTES);
        }
    }
}
