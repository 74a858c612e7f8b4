//! Which cells a probe measures, in which order, and at what cost.
//!
//! 1. Sizes and thread counts follow the paper's tables: 8 B to 16 MiB, and threads that double up to the number asked
//!    for.
//! 2. Each [`Section`] lists its jobs: one or two groups of threads that run together. A job yields a cell per group.
//! 3. Cells that cannot be measured (a range too small for a size, one processor, no second node) are left out, and a
//!    note says so. Nothing is left out silently.

use std::time::Duration;

use super::{Access, CellKey, Operation, Pattern, Place, Section, Subject};

/// Access sizes of the paper's tables, in bytes.
pub const SIZES: [u64; 15] =
    [8, 16, 32, 64, 128, 256, 512, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20];
/// Access size of mixed loads (paper 2, section 2.2.6).
pub const MIXED_BYTES: u64 = 256;
/// Distance of the fences whose effect is measured (paper 2, section 2.2.2).
pub const FENCE_BYTES: u64 = 256;
/// Access sizes of the comparison of nodes.
const NODE_SIZES: [u64; 5] = [64, 256, 4 << 10, 64 << 10, 1 << 20];
/// Access sizes of direct file accesses: whole blocks of every device.
const DIRECT_SIZES: [u64; 7] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20];
/// Access sizes of file accesses through the page cache.
const BUFFERED_SIZES: [u64; 11] =
    [8, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20];
/// Smallest working set of dependent reads: inside the nearest cache.
const WORKING_SET_MIN: u64 = 16 << 10;

/// How long cells are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Time of one repetition.
    pub repetition: Duration,
    /// Repetitions of a cell.
    pub repetitions: u32,
    /// Accesses of a thread in virtual time, at most.
    pub virtual_operations: u64,
}

impl Budget {
    /// For final figures.
    pub const FULL: Self = Self { repetition: Duration::from_millis(20), repetitions: 11, virtual_operations: 4096 };
    /// For a first impression, below a minute.
    pub const QUICK: Self = Self { repetition: Duration::from_millis(4), repetitions: 5, virtual_operations: 1024 };
}

/// The setting that the plan must fit.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Bytes that accesses may range over.
    pub range_bytes: u64,
    /// Most threads.
    pub threads_max: u32,
    /// Sections wanted.
    pub sections: Vec<Section>,
    /// Whether writes are left out.
    pub read_only: bool,
    /// Whether the target is memory of the process: then there is nothing to compare it with.
    pub is_dram: bool,
    /// Whether the target is emulated in virtual time: no caches, no files.
    pub is_virtual: bool,
    /// Whether there is a file for comparison, and whether it may be written.
    pub file: Option<FileAccess>,
    /// Whether there is a node far from the target with processors.
    pub has_far_node: bool,
}

/// The accesses that are possible to the file used for comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileAccess {
    /// Whether writes are allowed.
    pub writable: bool,
    /// Whether opening with `O_DIRECT` worked.
    pub direct: bool,
    /// Whether the kernel allows an io_uring.
    pub uring: bool,
}

/// Threads that run together; each key yields a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The section that asks for it.
    pub section: Section,
    /// One key for each group of threads; two for mixed loads.
    pub groups: Vec<CellKey>,
}

/// The planned measurements.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The jobs, in order.
    pub jobs: Vec<Job>,
    /// The parts left out, and why.
    pub notes: Vec<String>,
    /// Thread counts of the sweeps.
    pub thread_counts: Vec<u32>,
    frame_is_virtual: bool,
}

/// The approximate cost of a plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Cells.
    pub cells: u64,
    /// Real time.
    pub duration: Duration,
    /// Bytes that will most likely be written to the target and to the file used for comparison.
    pub written_bytes: u64,
}

/// 1, 2, 4, ... and `threads_max` itself.
#[must_use]
pub fn thread_counts(threads_max: u32) -> Vec<u32> {
    let doubled = std::iter::successors(Some(1_u32), |count| count.checked_mul(2));
    let mut counts: Vec<u32> = doubled.take_while(|count| *count < threads_max.max(1)).collect();
    counts.push(threads_max.max(1));
    counts
}

impl Plan {
    /// The plan that fits `frame`.
    #[must_use]
    pub fn new(frame: &Frame) -> Self {
        let mut plan = Self {
            jobs: Vec::new(),
            notes: Vec::new(),
            thread_counts: thread_counts(frame.threads_max),
            frame_is_virtual: frame.is_virtual,
        };
        for section in Section::ALL.into_iter().filter(|section| frame.sections.contains(section)) {
            plan.add_section(section, frame);
        }
        if frame.read_only {
            plan.notes.push("only reads are measured: the target was opened read-only".into());
        }
        let before = plan.jobs.len();
        plan.jobs.retain(|job| job.groups.iter().all(|key| fits(key, frame.range_bytes)));
        if plan.jobs.len() < before {
            let (left_out, range) = (before - plan.jobs.len(), frame.range_bytes);
            plan.notes.push(format!(
                "{left_out} measurements are left out: {range} bytes are too few for their access size with so many \
                 threads; give more --size"
            ));
        }
        plan
    }

    fn add_section(&mut self, section: Section, frame: &Frame) {
        match section {
            Section::Latency => self.add_latency(frame),
            Section::Threads => self.add_threads(frame),
            Section::Fence => self.add_fence(frame),
            Section::Instruction => self.add_instruction(frame),
            Section::Mixed => self.add_mixed(frame),
            Section::Nodes => self.add_nodes(frame),
            Section::Compare => self.add_compare(frame),
        }
    }

    fn add(&mut self, section: Section, key: CellKey) {
        self.jobs.push(Job { section, groups: vec![key] });
    }

    /// Random and sequential reads and streams of every size.
    fn add_sizes(&mut self, section: Section, frame: &Frame, threads: u32) {
        for access_bytes in SIZES {
            for pattern in [Pattern::Random, Pattern::Sequential] {
                let read = CellKey { pattern, access_bytes, threads, ..read_key(frame) };
                self.add(section, read);
                if !frame.read_only {
                    self.add(section, CellKey { pattern, access_bytes, threads, ..write_key(frame) });
                }
            }
        }
    }

    fn add_latency(&mut self, frame: &Frame) {
        self.add_sizes(Section::Latency, frame, 1);
        let dependent = CellKey { pattern: Pattern::Dependent, access_bytes: 64, ..read_key(frame) };
        let sets = std::iter::successors(Some(WORKING_SET_MIN), |bytes| bytes.checked_mul(4));
        for working_set_bytes in sets.take_while(|bytes| *bytes < frame.range_bytes && !frame.is_virtual) {
            self.add(Section::Latency, CellKey { working_set_bytes, ..dependent });
        }
        self.add(Section::Latency, dependent);
    }

    fn add_threads(&mut self, frame: &Frame) {
        let several: Vec<u32> = self.thread_counts.iter().copied().filter(|count| *count > 1).collect();
        if several.is_empty() {
            self.notes.push(
                "one thread only: figures over the number of threads have a single point; more with --threads".into(),
            );
        }
        for threads in several {
            self.add_sizes(Section::Threads, frame, threads);
        }
    }

    fn add_fence(&mut self, frame: &Frame) {
        if frame.read_only {
            return;
        }
        for threads in self.thread_counts.clone() {
            for access_bytes in SIZES.into_iter().filter(|bytes| *bytes > FENCE_BYTES) {
                for fence_bytes in [0, FENCE_BYTES] {
                    self.add(Section::Fence, CellKey { access_bytes, threads, fence_bytes, ..write_key(frame) });
                }
            }
        }
    }

    fn add_instruction(&mut self, frame: &Frame) {
        if frame.read_only {
            return;
        }
        for access_bytes in SIZES {
            for pattern in [Pattern::Random, Pattern::Sequential] {
                for access in [Access::StoreFlush, Access::Stream] {
                    self.add(Section::Instruction, CellKey { access, pattern, access_bytes, ..write_key(frame) });
                }
            }
        }
    }

    fn add_mixed(&mut self, frame: &Frame) {
        let threads_max = frame.threads_max;
        if frame.read_only {
            return;
        }
        if threads_max < 2 {
            self.notes.push("mixed reads and writes need two threads: left out; ask for more with --threads".into());
            return;
        }
        let mut fixed: Vec<u32> = vec![1, threads_max / 4, threads_max / 2];
        fixed.retain(|count| *count > 0);
        fixed.dedup();
        let mut pairs = Vec::new();
        for count in fixed {
            for other in std::iter::once(0).chain(thread_counts(threads_max - count)) {
                pairs.extend([(count, other), (other, count)]);
            }
        }
        pairs.sort_unstable();
        pairs.dedup();
        for (readers, writers) in pairs {
            let read =
                CellKey { access_bytes: MIXED_BYTES, threads: readers, beside_threads: writers, ..read_key(frame) };
            let write =
                CellKey { access_bytes: MIXED_BYTES, threads: writers, beside_threads: readers, ..write_key(frame) };
            let groups = [read, write].into_iter().filter(|key| key.threads > 0).collect();
            self.jobs.push(Job { section: Section::Mixed, groups });
        }
    }

    fn add_nodes(&mut self, frame: &Frame) {
        if !frame.has_far_node {
            self.notes.push(
                "near and far node are not compared: there is one NUMA node with processors (a profile has virtual ones)"
                    .into(),
            );
            return;
        }
        let mut counts = vec![1, frame.threads_max];
        counts.dedup();
        for threads in counts {
            for access_bytes in NODE_SIZES {
                for place in [Place::Near, Place::Far] {
                    self.add(Section::Nodes, CellKey { access_bytes, threads, place, ..read_key(frame) });
                    if !frame.read_only {
                        self.add(Section::Nodes, CellKey { access_bytes, threads, place, ..write_key(frame) });
                    }
                }
            }
        }
    }

    fn add_compare(&mut self, frame: &Frame) {
        if frame.is_dram && frame.file.is_none() {
            self.notes.push("nothing is compared: the target is DRAM, and no folder for a file was given".into());
        }
        if !frame.is_dram {
            let mut counts = vec![1, frame.threads_max];
            counts.dedup();
            for threads in counts {
                for access_bytes in SIZES {
                    let of_dram = |key: CellKey| CellKey { subject: Subject::Dram, access_bytes, threads, ..key };
                    self.add(Section::Compare, of_dram(read_key(frame)));
                    self.add(Section::Compare, of_dram(write_key(frame)));
                }
            }
        }
        match frame.file {
            Some(file) => self.add_file(frame, file),
            None if frame.is_virtual => {
                self.notes.push("no file is compared: an emulated medium has no kernel in its way".into());
            }
            None => {}
        }
    }

    fn add_file(&mut self, frame: &Frame, file: FileAccess) {
        let key = |operation, access, access_bytes| CellKey {
            subject: Subject::File,
            operation,
            access,
            access_bytes,
            ..read_key(frame)
        };
        for access_bytes in BUFFERED_SIZES {
            self.add(Section::Compare, key(Operation::Read, Access::Buffered, access_bytes));
            if file.writable {
                self.add(Section::Compare, key(Operation::Write, Access::Buffered, access_bytes));
                self.add(Section::Compare, key(Operation::Write, Access::BufferedSync, access_bytes));
            }
        }
        for (access, granted) in [(Access::Direct, file.direct), (Access::Uring, file.direct && file.uring)] {
            for access_bytes in DIRECT_SIZES.into_iter().filter(|_| granted) {
                self.add(Section::Compare, key(Operation::Read, access, access_bytes));
                if file.writable {
                    self.add(Section::Compare, key(Operation::Write, access, access_bytes));
                }
            }
        }
    }

    /// The cost of the plan. In real time the clock limits repetitions, so the time is known better than the bytes. The
    /// estimate of bytes assumes that a thread writes 2 GB/s to memory. It assumes that a file takes 1 GB/s, or 20
    /// syncs of a millisecond each.
    #[must_use]
    pub fn estimate(&self, budget: &Budget) -> Estimate {
        const MEMORY_BYTES_PER_S: f64 = 2e9;
        const FILE_BYTES_PER_S: f64 = 1e9;
        const SYNCS_PER_S: f64 = 1e3;
        // Finding the pace of a cell takes about as long as two repetitions, and starting threads takes a fraction
        // of one.
        let job_s = budget.repetition.as_secs_f64() * (f64::from(budget.repetitions) + 2.0);
        let (mut seconds, mut written) = (0.0, 0.0);
        for key in self.jobs.iter().flat_map(|job| &job.groups) {
            if self.frame_is_virtual {
                seconds += 0.015;
                continue;
            }
            // A large synced write may take longer than a repetition.
            let large = key.subject == Subject::File && key.access_bytes >= 1 << 20;
            let key_s = if large { job_s.max(0.25) } else { job_s };
            seconds += key_s;
            if key.operation == Operation::Write && key.subject != Subject::Dram {
                written += match key.access {
                    Access::BufferedSync => (SYNCS_PER_S * key.access_bytes as f64).min(FILE_BYTES_PER_S) * key_s,
                    Access::Buffered | Access::Direct | Access::Uring => FILE_BYTES_PER_S * key_s,
                    _ => MEMORY_BYTES_PER_S * key_s * f64::from(key.threads),
                };
            }
        }
        let cells = self.jobs.iter().map(|job| job.groups.len() as u64).sum();
        Estimate { cells, duration: Duration::from_secs_f64(seconds), written_bytes: written as u64 }
    }
}

fn read_key(frame: &Frame) -> CellKey {
    CellKey {
        subject: Subject::Target,
        operation: Operation::Read,
        pattern: Pattern::Random,
        access: Access::Load,
        fence_bytes: 0,
        access_bytes: MIXED_BYTES,
        threads: 1,
        beside_threads: 0,
        place: Place::Near,
        working_set_bytes: frame.range_bytes,
    }
}

fn write_key(frame: &Frame) -> CellKey {
    CellKey { operation: Operation::Write, access: Access::Stream, ..read_key(frame) }
}

/// Whether every thread of the cell has at least two blocks, so that it does not write the same one over and over.
fn fits(key: &CellKey, range_bytes: u64) -> bool {
    let threads = u64::from(key.threads + key.beside_threads).max(1);
    key.working_set_bytes.min(range_bytes) / threads >= key.access_bytes.saturating_mul(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame() -> Frame {
        Frame {
            range_bytes: 1 << 30,
            threads_max: 4,
            sections: Section::ALL.to_vec(),
            read_only: false,
            is_dram: false,
            is_virtual: false,
            file: Some(FileAccess { writable: true, direct: true, uring: true }),
            has_far_node: true,
        }
    }

    #[test]
    fn thread_counts_double_and_end_with_the_most() {
        assert_eq!(thread_counts(1), [1]);
        assert_eq!(thread_counts(2), [1, 2]);
        assert_eq!(thread_counts(12), [1, 2, 4, 8, 12]);
        assert_eq!(thread_counts(16), [1, 2, 4, 8, 16]);
        assert_eq!(thread_counts(0), [1]);
    }

    #[test]
    fn no_section_measures_a_cell_twice() {
        let plan = Plan::new(&frame());
        assert!(plan.notes.is_empty(), "{:?}", plan.notes);
        for section in Section::ALL {
            let jobs: Vec<_> = plan.jobs.iter().filter(|job| job.section == section).collect();
            assert!(!jobs.is_empty(), "{section:?}");
            let mut groups: Vec<_> = jobs.iter().map(|job| &job.groups).collect();
            let count = groups.len();
            groups.sort();
            groups.dedup();
            assert_eq!(groups.len(), count, "{section:?}");
        }
    }

    #[test]
    fn every_table_and_figure_has_its_cells() {
        let plan = Plan::new(&frame());
        let has = |wanted: &dyn Fn(&CellKey) -> bool| plan.jobs.iter().flat_map(|job| &job.groups).any(wanted);
        for bytes in SIZES {
            for threads in [1, 2, 4] {
                for pattern in [Pattern::Random, Pattern::Sequential] {
                    for operation in [Operation::Read, Operation::Write] {
                        let cell = |key: &CellKey| {
                            (key.subject, key.access_bytes, key.threads, key.pattern, key.operation)
                                == (Subject::Target, bytes, threads, pattern, operation)
                        };
                        assert!(has(&cell), "{bytes} {threads} {pattern:?} {operation:?}");
                    }
                }
            }
            assert!(has(&|key| key.subject == Subject::Dram && key.access_bytes == bytes));
        }
        assert!(has(&|key| (key.threads, key.beside_threads, key.operation) == (2, 2, Operation::Read)));
        assert!(has(&|key| (key.threads, key.beside_threads, key.operation) == (1, 3, Operation::Write)));
        assert!(has(&|key| key.fence_bytes == FENCE_BYTES && key.threads == 4));
    }

    #[test]
    fn what_does_not_fit_is_left_out_with_a_note() {
        let one = Plan::new(&Frame { threads_max: 1, has_far_node: false, ..frame() });
        assert_eq!(one.notes.len(), 3, "{:?}", one.notes);
        assert!(one.jobs.iter().all(|job| job.section != Section::Mixed && job.section != Section::Nodes));
        let small = Plan::new(&Frame { range_bytes: 1 << 20, ..frame() });
        assert!(small.notes.iter().any(|note| note.contains("too few")), "{:?}", small.notes);
        assert!(small.jobs.iter().flat_map(|job| &job.groups).all(|key| key.access_bytes <= 1 << 19));
        let reading = Plan::new(&Frame { read_only: true, file: None, ..frame() });
        let target = |key: &&CellKey| key.subject == Subject::Target;
        assert!(
            reading.jobs.iter().flat_map(|job| &job.groups).filter(target).all(|key| key.operation == Operation::Read)
        );
    }

    #[test]
    fn an_estimate_grows_with_the_plan_and_counts_no_reads() {
        let (full, quick) = (Plan::new(&frame()).estimate(&Budget::FULL), Plan::new(&frame()).estimate(&Budget::QUICK));
        assert!(full.duration > quick.duration && full.written_bytes > quick.written_bytes && quick.cells > 300);
        let sections = vec![Section::Latency];
        let reading = Plan::new(&Frame { read_only: true, sections, ..frame() }).estimate(&Budget::FULL);
        assert_eq!(reading.written_bytes, 0);
        let emulated = Plan::new(&Frame { is_virtual: true, file: None, ..frame() }).estimate(&Budget::QUICK);
        assert_eq!(emulated.written_bytes, 0);
        assert!(emulated.duration < Duration::from_secs(60));
    }
}
