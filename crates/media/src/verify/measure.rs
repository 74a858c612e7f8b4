//! The measuring program of the verification: the paper's loops in virtual time, through the calls that real code
//! makes.
//!
//! Each measurement has its own model and memory, so none depends on another. *Random* visits the slots of an arena in
//! an order that never repeats one and never takes neighbours in sequence. Slots are at least a media block apart, so
//! that no access finds data that another one buffered. *Sequential* takes them in order, each thread in its own range.
//!
//! `Memory` never streams less than a line. The cells for streaming stores of 8 to 32 bytes are therefore reported to
//! the model directly. Everything else goes through `Memory`.

use std::sync::Arc;

use lodestone_pmem::{Domain, Medium, Memory, PmAddr, Result, Topology};

use crate::model::{Model, SimulatedRun, TimeMode};
use crate::profile::MediaProfile;

/// Bytes of the arena in each part.
const ARENA_BYTES: u64 = 64 << 20;
/// Shortest virtual time of a measurement with several threads.
const DURATION_NS: u64 = 200_000;
/// Steps of one thread that are left out while buffers fill up.
const WARM_STEPS: u64 = 100;

/// Order of the accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Random,
    Sequential,
}

/// The kind of access.
#[derive(Clone, Copy, Debug)]
pub(super) enum Access {
    Read,
    /// Stream and fence.
    Write,
    /// Stream with a fence each 256 bytes.
    WriteFenced,
}

/// Threads of one kind, on node 0, that access part `part`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    pub(super) threads: usize,
    pub(super) access: Access,
    pub(super) order: Order,
    pub(super) bytes: u64,
    pub(super) part: u16,
    /// Time of the measuring program between two accesses.
    pub(super) own_ns: u64,
}

impl Group {
    pub(super) fn new(threads: usize, access: Access, order: Order, bytes: u64) -> Self {
        Self { threads, access, order, bytes, part: 0, own_ns: 0 }
    }
}

/// The figures of a group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Reached {
    /// Mean time of an access, without the program's own time.
    pub(super) latency_ns: f64,
    /// Sum over its threads.
    pub(super) bytes_per_second: f64,
    /// Fraction of the accesses that the processor's cache served.
    pub(super) cached_fraction: f64,
}

struct Bench {
    model: Arc<Model>,
    memory: Memory,
}

impl Bench {
    fn new(profile: &MediaProfile) -> Result<Self> {
        // Two nodes with a part on each; threads run on node 0.
        let model = Model::new(profile.clone(), TimeMode::Virtual, &Topology::of_machine(), &[0, 1]);
        let medium: Arc<dyn Medium> = model.clone();
        let memory = Memory::anonymous_with(&[ARENA_BYTES; 2], Domain::DaxEmulated, Some(medium))?;
        Ok(Self { model, memory })
    }

    fn step(&self, group: &Group, at: PmAddr, buffer: &mut [u8]) {
        match group.access {
            Access::Read => self.memory.read(at, buffer),
            Access::Write => {
                if group.bytes < lodestone_pmem::LINE_BYTES {
                    self.model.stream(at, group.bytes);
                } else {
                    self.memory.stream(at, buffer);
                }
                // No later store could overtake: the measured latency ends with the fence.
                self.memory.fence();
            }
            Access::WriteFenced => {
                let mut done = 0;
                for chunk in buffer.chunks(256) {
                    self.memory.stream(at.plus(done), chunk);
                    // The next block's lines may not overtake this block's: that is the remedy to be measured.
                    self.memory.fence();
                    done += chunk.len() as u64;
                }
            }
        }
        if group.own_ns > 0 {
            self.model.charge_ns(group.own_ns);
        }
    }
}

/// Address of step `step` of thread `thread` out of `threads`.
fn place(group: &Group, thread: u64, threads: u64, step: u64) -> PmAddr {
    let offset = match group.order {
        Order::Random => {
            let stride = group.bytes.next_power_of_two().max(256);
            let slots = ARENA_BYTES / stride;
            // An odd factor visits every slot of a power of two once; one near the golden ratio keeps them apart.
            let factor = (slots as f64 * 0.618) as u64 | 1;
            (step * threads + thread).wrapping_mul(factor) % slots * stride
        }
        Order::Sequential => {
            let range = ARENA_BYTES / threads.next_power_of_two();
            range * thread + step * group.bytes % range
        }
    };
    PmAddr::new(group.part, offset)
}

/// Mean latency of one thread.
pub(super) fn latency(profile: &MediaProfile, access: Access, order: Order, bytes: u64) -> Result<Reached> {
    let bench = Bench::new(profile)?;
    let group = Group::new(1, access, order, bytes);
    let mut buffer = vec![0; usize::try_from(bytes).unwrap_or(0)];
    // Small sizes: whole lines and blocks, more of them than a buffer holds. The arena has only a few large ones.
    let steps = (ARENA_BYTES / bytes.max(256)).min(4000);
    let warm = WARM_STEPS.min(steps / 4).next_multiple_of(32).min(steps - 1);
    let warm = if steps < 128 { steps / 4 } else { warm };
    for step in 0..warm {
        bench.step(&group, place(&group, 0, 1, step), &mut buffer);
    }
    let (start_ns, before) = (bench.model.thread_ns(), bench.model.thread_counts());
    for step in warm..steps {
        bench.step(&group, place(&group, 0, 1, step), &mut buffer);
    }
    let count = (steps - warm) as f64;
    let latency_ns = (bench.model.thread_ns() - start_ns) as f64 / count;
    let cached = bench.model.thread_counts() - before;
    let lines = bytes.div_ceil(64) as f64;
    Ok(Reached {
        latency_ns,
        bytes_per_second: bytes as f64 / latency_ns * 1e9,
        cached_fraction: cached.cached_lines as f64 / lines / count,
    })
}

/// Runs groups of threads at once. Returns the figures of each.
pub(super) fn run(profile: &MediaProfile, groups: &[Group]) -> Result<Vec<Reached>> {
    let bench = Bench::new(profile)?;
    let owner: Vec<usize> =
        groups.iter().enumerate().flat_map(|(index, group)| std::iter::repeat_n(index, group.threads)).collect();
    let threads = owner.len() as u64;
    let bytes_max = groups.iter().map(|group| group.bytes).max().unwrap_or(0);
    let mut buffers: Vec<Vec<u8>> =
        groups.iter().map(|group| vec![0; usize::try_from(group.bytes).unwrap_or(0)]).collect();
    let mut steps = vec![0_u64; owner.len()];
    let mut go = |duration_ns: u64| {
        bench.model.simulate(&vec![0; owner.len()], duration_ns, |thread| {
            let group = &groups[owner[thread]];
            let at = place(group, thread as u64, threads, steps[thread]);
            steps[thread] += 1;
            bench.step(group, at, &mut buffers[owner[thread]]);
        })
    };
    // Long enough for some tens of the largest accesses of all threads, at a gigabyte per second.
    let duration_ns = DURATION_NS.max(bytes_max * threads * 10);
    go(duration_ns / 4);
    let runs = go(duration_ns);
    Ok(groups.iter().enumerate().map(|(index, group)| reached(group, index, &owner, &runs)).collect())
}

fn reached(group: &Group, index: usize, owner: &[usize], runs: &[SimulatedRun]) -> Reached {
    let mine = || runs.iter().zip(owner).filter(|(_, owner)| **owner == index).map(|(run, _)| run);
    let bytes_per_ns: f64 = mine().map(|run| (run.steps * group.bytes) as f64 / run.elapsed_ns as f64).sum();
    let elapsed_ns: u64 = mine().map(|run| run.elapsed_ns).sum();
    let steps: u64 = mine().map(|run| run.steps).sum();
    Reached {
        latency_ns: elapsed_ns as f64 / steps.max(1) as f64 - group.own_ns as f64,
        bytes_per_second: bytes_per_ns * 1e9,
        cached_fraction: 0.0,
    }
}
