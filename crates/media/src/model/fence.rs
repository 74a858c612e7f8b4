//! Fences: the thread waits for everything that it sent.

use super::Model;
use super::thread::ThreadState;

impl Model {
    /// Waits until stores have their lines and everything sent since the last fence has passed.
    pub(super) fn wait_for_writes(&self, thread: &mut ThreadState) {
        thread.counts.fences += 1;
        let entry_ps = self.now_ps(thread);
        let mut until_ps = entry_ps.max(thread.stores_ready_ps);
        for unfenced in &mut thread.unfenced {
            until_ps = until_ps.max(unfenced.end_ps);
            unfenced.end_ps = 0;
            unfenced.since_fence_bytes = 0;
        }
        self.charge_until(thread, entry_ps, until_ps);
    }
}
