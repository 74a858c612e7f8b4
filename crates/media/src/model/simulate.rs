//! Many threads on one: the one with the smallest clock takes the next step.

use super::{Model, TimeMode};

/// Number of a simulated thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SimulatedThread(pub u32);

/// The work of one simulated thread in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SimulatedRun {
    /// Steps it took.
    pub steps: u64,
    /// From the start of the run to the end of its last step, ns.
    pub elapsed_ns: u64,
}

impl Model {
    /// Runs simulated threads 0, 1, ... on the given nodes for `duration_ns` of virtual time. `step(index)` is called
    /// for the thread with the smallest clock (of equal ones the lowest number) until every clock has passed the end.
    /// All start at the latest time that any of them has reached.
    ///
    /// The run is exact and repeatable if `step` is. A step should be short (one operation), because it is not
    /// interrupted.
    ///
    /// # Panics
    /// In spinning mode, or if steps do not advance their thread's clock a million times in a row, since the run would
    /// never end.
    pub fn simulate(&self, nodes: &[usize], duration_ns: u64, mut step: impl FnMut(usize)) -> Vec<SimulatedRun> {
        assert_eq!(self.mode(), TimeMode::Virtual, "simulation needs virtual time");
        let thread = |index: usize| SimulatedThread(u32::try_from(index).unwrap_or(u32::MAX));
        let clock = |index: usize| self.as_thread(thread(index), nodes[index], || self.thread_ns());
        let start_ns = (0..nodes.len()).map(clock).max().unwrap_or(0);
        let mut runs = vec![SimulatedRun::default(); nodes.len()];
        let mut clocks = vec![start_ns; nodes.len()];
        for (index, node) in nodes.iter().enumerate() {
            self.as_thread(thread(index), *node, || self.wait_until_ns(start_ns));
        }
        let mut idle = 0;
        while let Some((index, now_ns)) = clocks.iter().copied().enumerate().min_by_key(|(index, ns)| (*ns, *index)) {
            if now_ns >= start_ns + duration_ns {
                break;
            }
            clocks[index] = self.as_thread(thread(index), nodes[index], || {
                step(index);
                self.thread_ns()
            });
            idle = if clocks[index] == now_ns { idle + 1 } else { 0 };
            assert!(idle < 1_000_000, "a step of simulated thread {index} charges nothing");
            runs[index] = SimulatedRun { steps: runs[index].steps + 1, elapsed_ns: clocks[index] - start_ns };
        }
        runs
    }
}
