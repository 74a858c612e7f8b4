//! A commit that dies in the middle.

use lodestone_width::exact_u32;

use crate::action::Action;
use crate::commit::apply_one;
use crate::error::Result;
use crate::record;

impl Action<'_> {
    /// Commits as a process does that is killed in the middle: the record is persistent, `applied` words are stored in
    /// place and none is flushed. The heap must be opened anew afterwards.
    #[doc(hidden)]
    pub fn commit_interrupted(mut self, applied: usize) -> Result<()> {
        let core = self.core;
        let entries = std::mem::take(&mut self.entries);
        let (number, _guard) = core.take_lane()?;
        let lane = core.geometry.lane(core.bases[0].0, exact_u32(number));
        record::write(&core.memory, lane, core.pool.boot(), entries.as_slice(), true);
        // As fence 2 of a commit.
        core.memory.fence();
        for entry in entries.as_slice().iter().take(applied) {
            apply_one(&core.memory, entry);
        }
        Ok(())
    }
}
