//! How an access is reported to a medium, and cells of a model in virtual time.
//!
//! 1. Each job has a fresh model, so that cells do not depend on their order.
//! 2. Every thread of the job does one access. This fills buffers and measures how long an access takes.
//! 3. [`Model::simulate`] runs the threads for that time, as often as the budget allows, and until each has done a
//!    whole access. The thread with the smallest clock steps. A large write takes many steps, so that no thread runs
//!    far ahead.
//!
//! The result is exact: the same profile and job produce the same figures on every machine.

use lodestone_pmem::{LINE_BYTES, LineAddr, Medium, PmAddr, Topology, lines_of};

use super::address::Walk;
use super::error::Result;
use super::harness::Measured;
use super::plan::Job;
use super::{Access, Budget, CellKey, Operation, Pattern, Place, ProbeError, Spread, Subject};
use crate::{MediaProfile, Model, TimeMode};

/// Lines that the model handles for one cell. Accesses beyond this are done only once.
const LINES_PER_OPERATION_BUDGET: u64 = 48;

/// If there are more accesses than this, half of their time runs first without being counted.
const WARM_ACCESSES: u64 = 3;
/// Bytes that a simulated thread writes before the others take their turn: the model expects short steps.
const STEP_BYTES_MAX: u64 = 4096;
/// Cost of an access that the modelled processor's cache serves, ns.
const CACHED_NS: u64 = 1;

/// Reports one access with the conditions of `key` at `offset` of part 0, as [`lodestone_pmem::Memory`] would.
pub(super) fn report(medium: &dyn Medium, key: &CellKey, offset: u64) {
    let mut done = 0;
    while done < key.access_bytes {
        done = report_from(medium, key, offset, done);
    }
}

/// Reports the part of an access that begins at its byte `done`. This is a whole read, or some stores up to a fence or
/// to the distance that a thread may be ahead of the others. Returns where the next part begins.
fn report_from(medium: &dyn Medium, key: &CellKey, offset: u64, done: u64) -> u64 {
    let bytes = key.access_bytes;
    if key.operation == Operation::Read {
        medium.read(PmAddr::new(0, offset), bytes);
        return bytes;
    }
    let until_fence = done.checked_div(key.fence_bytes).map_or(bytes, |chunks| (chunks + 1) * key.fence_bytes);
    let end = until_fence.min(bytes).min(done + STEP_BYTES_MAX);
    let (at, step) = (PmAddr::new(0, offset + done), end - done);
    if key.access == Access::StoreFlush {
        medium.write(at, step);
        lines_of(at, step).for_each(|line: LineAddr| medium.flush(line));
    } else {
        medium.stream(at, step);
    }
    if end == bytes || end == until_fence {
        // The next stretch's stores may not overtake this one's: the price of that order is the figure asked for.
        medium.fence();
    }
    end
}

/// A model to be measured in virtual time.
#[derive(Debug)]
pub(super) struct VirtualBench {
    pub(super) profile: MediaProfile,
    pub(super) dram: MediaProfile,
    /// At least two nodes; the medium is on node 0.
    pub(super) topology: Topology,
    pub(super) range_bytes: u64,
}

impl VirtualBench {
    /// Measures one job.
    pub(super) fn run(&self, job: &Job, budget: &Budget) -> Result<Vec<Measured>> {
        let profile = match job.groups.first().map(|key| key.subject) {
            Some(Subject::Dram) => &self.dram,
            _ => &self.profile,
        };
        let model = Model::new(profile.clone(), TimeMode::Virtual, &self.topology, &[0]);
        let total: u32 = job.groups.iter().map(|key| key.threads).sum();
        let (mut workers, mut nodes) = (Vec::new(), Vec::new());
        for (group, key) in job.groups.iter().enumerate() {
            for _ in 0..key.threads {
                let walk = self.walk(key, workers.len() as u64, total)?;
                workers.push(SimulatedWorker { group, walk, step: 0, done: 0 });
                nodes.push(self.node(key.place));
            }
        }
        // Every thread does one access first. This fills buffers and measures how long one takes.
        let first = simulate(&model, &nodes, &mut workers, job, 0, 1);
        let access_ns = first.iter().map(|done| done.elapsed_ns / done.accesses.max(1)).max().unwrap_or(1).max(1);
        let bytes = job.groups.iter().map(|key| key.access_bytes).max().unwrap_or(LINE_BYTES);
        let lines = bytes.div_ceil(LINE_BYTES) * u64::from(total.max(1));
        let accesses =
            (budget.virtual_operations * LINES_PER_OPERATION_BUDGET / lines).clamp(1, budget.virtual_operations);
        // Short accesses begin with some that do not count, until the medium's buffers are as full as they will be.
        let warm_ns = if accesses > WARM_ACCESSES { access_ns * accesses / 2 } else { 0 };
        let done = simulate(&model, &nodes, &mut workers, job, warm_ns, access_ns * accesses);
        Ok(job
            .groups
            .iter()
            .enumerate()
            .map(|(group, key)| summary(key.access_bytes, &done_by(group, &workers, &done)))
            .collect())
    }

    fn node(&self, place: Place) -> usize {
        match place {
            Place::Near => 0,
            Place::Far => self.topology.nearest_first(0).last().copied().unwrap_or(0),
        }
    }

    fn walk(&self, key: &CellKey, thread: u64, threads: u32) -> Result<Walk> {
        let slice = key.working_set_bytes.min(self.range_bytes) / u64::from(threads.max(1)) / 4096 * 4096;
        Walk::new(slice * thread, slice, key.access_bytes, 0).ok_or_else(|| ProbeError::Invalid {
            what: "size",
            finding: format!("{slice} bytes for a thread hold no access of {}", key.access_bytes),
            hint: "give more --size".into(),
        })
    }
}

/// A simulated thread of a job.
#[derive(Debug)]
struct SimulatedWorker {
    /// The key of the job that it follows.
    group: usize,
    walk: Walk,
    /// Accesses begun.
    step: u64,
    /// Bytes of the present access that were already reported.
    done: u64,
}

/// The work of a simulated thread.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Done {
    /// Whole accesses.
    accesses: u64,
    /// Time until the last of them ended.
    elapsed_ns: u64,
}

/// Runs the workers for `warm_ns`, which does not count, then for `duration_ns`, and on until each has done a whole
/// access.
fn simulate(
    model: &Model,
    nodes: &[usize],
    workers: &mut [SimulatedWorker],
    job: &Job,
    warm_ns: u64,
    duration_ns: u64,
) -> Vec<Done> {
    let mut done = vec![Done::default(); workers.len()];
    let mut began_ns: Vec<Option<u64>> = vec![None; workers.len()];
    let mut warm_until_ns: Option<u64> = None;
    // An access that the last run left unfinished is dropped: each run begins with a whole one.
    workers.iter_mut().for_each(|worker| worker.done = 0);
    while done.iter().any(|one| one.accesses == 0) {
        model.simulate(nodes, warm_ns + duration_ns, |index| {
            let worker = &mut workers[index];
            let now_ns = model.thread_ns();
            let warm_until_ns = *warm_until_ns.get_or_insert(now_ns + warm_ns);
            let began_ns = began_ns[index].get_or_insert(now_ns);
            if !step(model, &job.groups[worker.group], worker) {
                return;
            }
            let end_ns = model.thread_ns();
            if end_ns < warm_until_ns {
                *began_ns = end_ns;
            } else {
                done[index] = Done { accesses: done[index].accesses + 1, elapsed_ns: end_ns - *began_ns };
            }
        });
    }
    done
}

/// One step of a worker: a part of an access. Returns whether the access is now whole.
fn step(model: &Model, key: &CellKey, worker: &mut SimulatedWorker) -> bool {
    let sequential = key.pattern == Pattern::Sequential;
    let offset = if sequential { worker.walk.sequential(worker.step) } else { worker.walk.random(worker.step) };
    let before_ns = model.thread_ns();
    worker.done = report_from(model, key, offset, worker.done);
    if worker.done < key.access_bytes {
        return false;
    }
    if model.thread_ns() == before_ns {
        // The modelled cache served it without a charge, but time must still advance.
        model.charge_ns(CACHED_NS);
    }
    worker.step += 1;
    worker.done = 0;
    true
}

fn done_by(group: usize, workers: &[SimulatedWorker], done: &[Done]) -> Vec<Done> {
    let of_group = workers.iter().zip(done).filter(|(worker, _)| worker.group == group);
    of_group.map(|(_, done)| *done).collect()
}

fn summary(access_bytes: u64, threads: &[Done]) -> Measured {
    let operations: u64 = threads.iter().map(|done| done.accesses).sum();
    let elapsed_ns: u64 = threads.iter().map(|done| done.elapsed_ns).sum();
    let rate = |done: &Done| (done.accesses * access_bytes) as f64 * 1e9 / done.elapsed_ns.max(1) as f64;
    Measured {
        operations,
        latency_ns: Spread::of([elapsed_ns as f64 / operations.max(1) as f64]).unwrap_or_default(),
        bandwidth_bytes_per_s: Spread::of([threads.iter().map(rate).sum::<f64>()]).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[derive(Debug, Default)]
    struct Log(Mutex<Vec<String>>);

    impl Log {
        fn add(&self, text: String) {
            self.0.lock().expect("log").push(text);
        }
    }

    impl Medium for Log {
        fn label(&self) -> String {
            "log".into()
        }
        fn read(&self, at: PmAddr, len: u64) {
            self.add(format!("read {} {len}", at.offset()));
        }
        fn write(&self, at: PmAddr, len: u64) {
            self.add(format!("write {} {len}", at.offset()));
        }
        fn flush(&self, line: LineAddr) {
            self.add(format!("flush {}", line.start().offset()));
        }
        fn stream(&self, at: PmAddr, len: u64) {
            self.add(format!("stream {} {len}", at.offset()));
        }
        fn fence(&self) {
            self.add("fence".into());
        }
    }

    fn key(operation: Operation, access: Access, access_bytes: u64, fence_bytes: u64) -> CellKey {
        CellKey {
            subject: Subject::Target,
            operation,
            pattern: Pattern::Random,
            access,
            fence_bytes,
            access_bytes,
            threads: 1,
            beside_threads: 0,
            place: Place::Near,
            working_set_bytes: 1 << 20,
        }
    }

    #[test]
    fn accesses_are_reported_as_memory_does_them() {
        let reported = |key: CellKey| {
            let log = Log::default();
            report(&log, &key, 4096);
            log.0.into_inner().expect("log").join(", ")
        };
        assert_eq!(reported(key(Operation::Read, Access::Load, 256, 0)), "read 4096 256");
        assert_eq!(reported(key(Operation::Write, Access::Stream, 512, 0)), "stream 4096 512, fence");
        assert_eq!(
            reported(key(Operation::Write, Access::Stream, 512, 256)),
            "stream 4096 256, fence, stream 4352 256, fence"
        );
        assert_eq!(
            reported(key(Operation::Write, Access::StoreFlush, 128, 0)),
            "write 4096 128, flush 4096, flush 4160, fence"
        );
        assert_eq!(reported(key(Operation::Write, Access::Stream, 8, 256)), "stream 4096 8, fence");
    }

    #[test]
    fn virtual_time_is_the_same_every_time() {
        let bench = VirtualBench {
            profile: MediaProfile::builtin("optane").expect("built in"),
            dram: MediaProfile::builtin("dram").expect("built in"),
            topology: Topology::of_machine().with_virtual_nodes(2).expect("two nodes"),
            range_bytes: 64 << 20,
        };
        let run = |subject| {
            let read = CellKey { subject, threads: 3, ..key(Operation::Read, Access::Load, 256, 0) };
            let write = CellKey { subject, threads: 2, ..key(Operation::Write, Access::Stream, 256, 0) };
            let job = Job { section: super::super::Section::Mixed, groups: vec![read, write] };
            bench.run(&job, &Budget::QUICK).expect("measured")
        };
        assert_eq!(run(Subject::Target), run(Subject::Target));
        let (target, dram) = (run(Subject::Target)[0], run(Subject::Dram)[0]);
        assert!(target.latency_ns.median > dram.latency_ns.median, "{target:?} {dram:?}");
        assert!(target.operations > 100);
    }
}
