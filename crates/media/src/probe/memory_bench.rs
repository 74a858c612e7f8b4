//! Cells of mapped memory in real time: loads, stores with write-back, streams.
//!
//! Each thread has its own slice of the range and walks it in order or by permutation. Under a model that spins, each
//! access is first reported to the model, exactly as [`lodestone_pmem::Memory`] reports its accesses.

use std::hint::black_box;

use lodestone_pmem::measuring::{BareRange, STREAM_SOURCE_BYTES};
use lodestone_pmem::{Medium, Memory, PmAddr};

use super::address::Walk;
use super::emulated::report;
use super::error::Result;
use super::harness::{self, Group, Measured, Worker};
use super::plan::Job;
use super::{Access, Budget, CellKey, Operation, Pattern, ProbeError};

const PAGE_BYTES: usize = 4096;

/// Mapped memory that is measured.
#[derive(Debug)]
pub(super) struct MemoryBench<'m> {
    pub(super) memory: &'m Memory,
    /// Bytes from offset 0 of part 0 on.
    pub(super) range_bytes: u64,
    /// Processors of the near and of the far place.
    pub(super) cpus: [Vec<usize>; 2],
}

impl MemoryBench<'_> {
    /// Measures one job: a result for each of its groups.
    pub(super) fn run(&self, job: &Job, budget: &Budget) -> Result<Vec<Measured>> {
        let groups: Vec<Group> =
            job.groups.iter().map(|key| Group { threads: key.threads, access_bytes: key.access_bytes }).collect();
        let threads: u32 = groups.iter().map(|group| group.threads).sum();
        let first: Vec<u32> = groups
            .iter()
            .scan(0, |sum, group| {
                let before = *sum;
                *sum += group.threads;
                Some(before)
            })
            .collect();
        let place = job.groups.first().map_or(0, |key| usize::from(key.place == super::Place::Far));
        let make = |group: usize, index: u32| -> Result<Box<dyn Worker + '_>> {
            let worker = MemoryWorker::new(self, &job.groups[group], first[group] + index, threads)?;
            Ok(Box::new(worker))
        };
        harness::measure(&groups, budget, &self.cpus[place], &make)
    }

    /// Accesses every page once, on the near node, so that the kernel's work at the first touch is not part of any
    /// figure.
    pub(super) fn touch(&self, writable: bool) -> Result<()> {
        std::thread::scope(|scope| {
            let toucher = scope.spawn(|| {
                harness::pin_to(&self.cpus[0]);
                let range = whole_range(self)?;
                for offset in (0..self.range_bytes).step_by(PAGE_BYTES) {
                    black_box(range.read(offset, 8));
                    if writable {
                        range.store_and_flush(offset, 8, 0, offset | 1);
                    }
                }
                Ok(())
            });
            toucher.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Time of one step of the walk without an access, in nanoseconds.
    pub(super) fn harness_ns(&self, budget: &Budget) -> Result<f64> {
        let make = |_, _| Ok(Box::new(Idle { walk: walk(0, self.range_bytes, 64, 0)?, step: 0 }) as Box<dyn Worker>);
        let groups = [Group { threads: 1, access_bytes: 64 }];
        let measured = harness::measure(&groups, budget, &self.cpus[0], &make)?;
        Ok(measured.first().map_or(0.0, |one| one.latency_ns.median))
    }
}

fn walk(base: u64, slice_bytes: u64, block_bytes: u64, seed: u64) -> Result<Walk> {
    Walk::new(base, slice_bytes, block_bytes, seed).ok_or_else(|| ProbeError::Invalid {
        what: "size",
        finding: format!("{slice_bytes} bytes for a thread hold no access of {block_bytes}"),
        hint: "give more --size".into(),
    })
}

fn whole_range<'m>(bench: &'m MemoryBench<'_>) -> Result<BareRange<'m>> {
    BareRange::new(bench.memory, PmAddr::new(0, 0), bench.range_bytes).ok_or_else(|| {
        let finding = format!("{} bytes cannot be measured in this memory", bench.range_bytes);
        ProbeError::Invalid { what: "size", finding, hint: "ask for less (--size)".into() }
    })
}

/// The walk alone.
struct Idle {
    walk: Walk,
    step: u64,
}

impl Worker for Idle {
    fn work(&mut self, count: u64) -> Result<()> {
        for step in self.step..self.step + count {
            black_box(self.walk.random(step));
        }
        self.step += count;
        Ok(())
    }
}

struct MemoryWorker<'m> {
    range: BareRange<'m>,
    /// A model that spins.
    medium: Option<&'m dyn Medium>,
    walk: Walk,
    key: CellKey,
    step: u64,
    source: Box<[u8; STREAM_SOURCE_BYTES]>,
}

impl<'m> MemoryWorker<'m> {
    fn new(bench: &'m MemoryBench<'_>, key: &CellKey, thread: u32, threads: u32) -> Result<Self> {
        let range = whole_range(bench)?;
        let slice_bytes = key.working_set_bytes.min(bench.range_bytes) / u64::from(threads.max(1)) / 4096 * 4096;
        // Threads begin at different places of their slices, so that they do not march in step.
        let seed = u64::from(thread).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let walk = walk(slice_bytes * u64::from(thread), slice_bytes, key.access_bytes, seed)?;
        let medium = bench.memory.medium().map(AsRef::as_ref);
        Ok(Self { range, medium, walk, key: *key, step: 0, source: Box::new([0x5A; STREAM_SOURCE_BYTES]) })
    }

    fn read(&self, steps: std::ops::Range<u64>) {
        let bytes = self.key.access_bytes;
        let mut mixed = 0;
        match self.key.pattern {
            Pattern::Random => steps.for_each(|step| mixed ^= self.range.read(self.walk.random(step), bytes)),
            Pattern::Sequential => steps.for_each(|step| mixed ^= self.range.read(self.walk.sequential(step), bytes)),
            Pattern::Dependent => {
                // Zero, but the compiler does not know that: the address waits for the value read before.
                let zero = black_box(0);
                steps.for_each(|step| mixed = self.range.read(self.walk.random(step) + (mixed & zero), bytes));
            }
        }
        black_box(mixed);
    }

    /// As without a medium, access by access, but each is reported first.
    fn work_under(&mut self, medium: &dyn Medium, count: u64) -> Result<()> {
        for step in self.step..self.step + count {
            let sequential = self.key.pattern == Pattern::Sequential;
            let offset = if sequential { self.walk.sequential(step) } else { self.walk.random(step) };
            report(medium, &self.key, offset);
            match self.key.operation {
                Operation::Read => self.read(step..step + 1),
                Operation::Write => self.write(step..step + 1),
            }
        }
        self.step += count;
        Ok(())
    }

    fn write(&self, steps: std::ops::Range<u64>) {
        let (bytes, fence) = (self.key.access_bytes, self.key.fence_bytes);
        match (self.key.access, self.key.pattern) {
            (Access::StoreFlush, Pattern::Sequential) => {
                steps.for_each(|step| self.range.store_and_flush(self.walk.sequential(step), bytes, fence, step));
            }
            (Access::StoreFlush, _) => {
                steps.for_each(|step| self.range.store_and_flush(self.walk.random(step), bytes, fence, step));
            }
            (_, Pattern::Sequential) => {
                steps.for_each(|step| self.range.stream(self.walk.sequential(step), bytes, fence, &self.source));
            }
            (_, _) => steps.for_each(|step| self.range.stream(self.walk.random(step), bytes, fence, &self.source)),
        }
    }
}

impl Worker for MemoryWorker<'_> {
    fn work(&mut self, count: u64) -> Result<()> {
        if let Some(medium) = self.medium {
            return self.work_under(medium, count);
        }
        let steps = self.step..self.step + count;
        self.step += count;
        match self.key.operation {
            Operation::Read => self.read(steps),
            Operation::Write => self.write(steps),
        }
        Ok(())
    }
}
