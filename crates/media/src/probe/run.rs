//! A probe from its target to its result.
//!
//! 1. [`Probe::open`] opens and checks the target, and makes the plan. Nothing is written. A target that holds data is
//!    refused unless it may be overwritten or is only read.
//! 2. [`Probe::run`] fills the target if it is to be written, maps it, and measures job by job.
//! 3. A file that was empty is emptied again at the end. A temporary file has no name and vanishes with its last
//!    handle.

use std::path::{Path, PathBuf};
use std::time::Instant;

use lodestone_pmem::measuring::{ScratchFile, ScratchMemory};
use lodestone_pmem::{Memory, Topology};

use super::emulated::VirtualBench;
use super::error::Result;
use super::file_bench::FileBench;
use super::harness::{self, Measured};
use super::memory_bench::MemoryBench;
use super::plan::{Budget, Estimate, Frame, Job, Plan};
use super::{Cell, Machine, Method, ProbeError, ProbeResult, Section, Subject, Target};
use crate::{MediaProfile, Model, TimeMode};

/// Fewer bytes than this cannot be measured.
pub const RANGE_BYTES_MIN: u64 = 64 << 10;
/// Most threads: more of them show nothing further about a medium.
pub const THREADS_MAX: u32 = 256;
/// Default range of the accesses in bytes: far more than caches hold.
const RANGE_BYTES_DEFAULT: u64 = 512 << 20;
const RANGE_BYTES_QUICK: u64 = 256 << 20;
/// Virtual time needs no memory, and even sixteen threads should have many of the largest blocks.
const RANGE_BYTES_VIRTUAL: u64 = 4 << 30;
/// Default number of threads on an emulated medium: the maximum of the paper's sweep.
const THREADS_VIRTUAL: u32 = 16;
const PAGE_BYTES: u64 = 4096;

/// The target to measure.
#[derive(Clone, Debug)]
pub enum TargetChoice {
    /// A file, a device, or a folder for a temporary file.
    Path(PathBuf),
    /// Memory of this process.
    Dram,
    /// A model of a medium.
    Profile(Box<MediaProfile>, TimeMode),
}

/// Options of a measurement.
#[derive(Clone, Debug)]
pub struct ProbeOptions {
    /// Bytes that accesses range over; by default as much as suits the target.
    pub range_bytes: Option<u64>,
    /// Most threads; as many as processors by default.
    pub threads_max: Option<u32>,
    /// Sections; all by default.
    pub sections: Vec<Section>,
    /// Only read: the target keeps its content.
    pub read_only: bool,
    /// The target's content may be overwritten.
    pub overwrite_data: bool,
    /// Shorter range by default.
    pub quick: bool,
    /// How long each cell is measured.
    pub budget: Budget,
    /// Split the processors into so many virtual nodes, with the model's memory on the first. Only for profiles. 0
    /// means none when spinning, and two in virtual time.
    pub virtual_nodes: usize,
    /// Folder of a file for comparison if the target itself is not a file.
    pub file_folder: Option<PathBuf>,
    /// The present time in seconds since 1970, by the caller's clock.
    pub began_unix_s: Option<u64>,
    /// Processor and memory in words, and the kernel.
    pub machine: [String; 2],
}

impl Default for ProbeOptions {
    fn default() -> Self {
        Self {
            range_bytes: None,
            threads_max: None,
            sections: Section::ALL.to_vec(),
            read_only: false,
            overwrite_data: false,
            quick: false,
            budget: Budget::FULL,
            virtual_nodes: 0,
            file_folder: None,
            began_unix_s: None,
            machine: [String::new(), String::new()],
        }
    }
}

/// The progress of a probe.
#[derive(Clone, Copy, Debug)]
pub enum Progress<'p> {
    /// Bytes filled, and bytes to fill in all.
    Filling(u64, u64),
    /// Number of the next job, number of all jobs, and the next job.
    Measuring(usize, usize, &'p Job),
}

/// An opened target with its plan.
#[derive(Debug)]
pub struct Probe {
    opened: Opened,
    options: ProbeOptions,
    range_bytes: u64,
    topology: Topology,
    plan: Plan,
    target: Target,
    notes: Vec<String>,
    /// The file for comparison if the target is not a file.
    other_file: Option<ScratchFile>,
    cpus: [Vec<usize>; 2],
}

#[derive(Debug)]
enum Opened {
    /// `beside`: a file without a name, in the folder of the empty one that was named.
    File {
        file: ScratchFile,
        was_empty: bool,
        beside: bool,
    },
    Dram,
    Profile(Box<MediaProfile>, TimeMode),
}

impl Probe {
    /// Opens `choice` and makes the plan. Nothing is written yet.
    ///
    /// # Errors
    /// If the target is missing, not permitted, too small, in use or holds data, or if options contradict each other.
    pub fn open(choice: TargetChoice, options: ProbeOptions) -> Result<Self> {
        verify_options(&choice, &options)?;
        let mut target = describe(&choice);
        let opened = open_target(choice, &options)?;
        let mut notes = Vec::new();
        let topology = topology_for(&opened, options.virtual_nodes)?;
        let (near, cpus) = places(&opened, &topology);
        let range_bytes = range(&opened, &options)?;
        if let Opened::File { file, .. } = &opened {
            target.kind = if file.is_temporary() { "temporary file".into() } else { file.kind().into() };
            target.medium = file.file_system();
        }
        notes.extend(note_of_empty(&opened));
        target.range_bytes = range_bytes;
        target.read_only = options.read_only;
        verify_room(&opened, &options, range_bytes)?;
        let threads_max = options.threads_max.unwrap_or_else(|| threads_by_default(&opened, &cpus[0]));
        let is_real = !matches!(opened, Opened::Profile(_, TimeMode::Virtual));
        if is_real && threads_max as usize > cpus[0].len().max(1) {
            let processors = cpus[0].len();
            notes.push(format!("{threads_max} threads share {processors} processors: figures beyond say little"));
        }
        let other_file = match (&opened, &options.file_folder) {
            (Opened::File { file, .. }, _) if file.kind() != "devdax device" => None,
            (_, Some(folder)) => Some(ScratchFile::temporary(folder)?),
            _ => None,
        };
        let mut probe =
            Self { opened, range_bytes, plan: Plan::default(), target, notes, other_file, cpus, topology, options };
        let bench = probe.file_bench(is_real && probe.options.sections.contains(&Section::Compare))?;
        if let Some(bench) = &bench {
            probe.notes.extend(bench.refusals.iter().cloned());
        }
        let has_far_node = match probe.opened {
            Opened::Profile(_, TimeMode::Virtual) => true,
            _ => !probe.cpus[1].is_empty() && probe.topology.nearest_first(near).len() > 1,
        };
        probe.plan = Plan::new(&Frame {
            range_bytes,
            threads_max,
            sections: probe.options.sections.clone(),
            read_only: probe.options.read_only,
            is_dram: matches!(probe.opened, Opened::Dram),
            is_virtual: !is_real,
            file: bench.map(|bench| bench.access()),
            has_far_node,
        });
        Ok(probe)
    }

    /// The planned measurements.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The target, as far as it is known before it is mapped.
    #[must_use]
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Notes of the target and of the plan.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        self.notes.iter().chain(&self.plan.notes).cloned().collect()
    }

    /// The cost of the plan. The first filling counts as written.
    #[must_use]
    pub fn estimate(&self) -> Estimate {
        let mut estimate = self.plan.estimate(&self.options.budget);
        let fills = matches!(self.opened, Opened::File { .. }) && !self.options.read_only;
        estimate.written_bytes += if fills { self.range_bytes } else { 0 };
        estimate
    }

    /// Measures everything.
    ///
    /// # Errors
    /// If the target cannot be filled or mapped, or an access fails.
    pub fn run(mut self, progress: &mut dyn FnMut(Progress<'_>)) -> Result<ProbeResult> {
        let began = Instant::now();
        let outcome = self.measure(progress);
        if let Opened::File { file, was_empty: true, .. } = &mut self.opened {
            // Also after a failure: a file that was empty must not stay filled.
            let emptied = if self.options.read_only { Ok(()) } else { file.empty() };
            if outcome.is_ok() {
                emptied?;
            }
        }
        let mut result = outcome?;
        result.duration_s = began.elapsed().as_secs_f64();
        Ok(result)
    }

    fn measure(&mut self, progress: &mut dyn FnMut(Progress<'_>)) -> Result<ProbeResult> {
        self.fill(progress)?;
        let mut result = self.result();
        let jobs: Vec<Job> = self.plan.jobs.clone();
        if let Opened::Profile(profile, TimeMode::Virtual) = &self.opened {
            let bench = self.virtual_bench(profile)?;
            result.target.domain = "dax-emulated".into();
            result.target.domain_reason = "modelled: lines are flushed or streamed, and fenced".into();
            return self.measure_jobs(result, &jobs, progress, &mut |job, budget| bench.run(job, budget));
        }
        let mapped = self.map()?;
        result.target.domain.clone_from(&mapped.domain_label);
        result.target.domain_reason.clone_from(&mapped.reason);
        let memory_bench = |memory| MemoryBench { memory, range_bytes: self.range_bytes, cpus: self.cpus.clone() };
        let target = memory_bench(&mapped.memory);
        target.touch(!self.options.read_only)?;
        result.method.harness_ns = target.harness_ns(&self.options.budget)?;
        let needs_dram = jobs.iter().flat_map(|job| &job.groups).any(|key| key.subject == Subject::Dram);
        let dram_memory = if needs_dram { Some(Memory::anonymous(self.range_bytes)?) } else { None };
        let dram = dram_memory.as_ref().map(memory_bench);
        dram.as_ref().map_or(Ok(()), |dram| dram.touch(true))?;
        let file = self.file_bench(jobs.iter().flat_map(|job| &job.groups).any(|key| key.subject == Subject::File))?;
        let (flush, stream) = mapped.memory.instructions();
        result.machine.flush_instruction = format!("{flush:?}").to_lowercase();
        result.machine.stream_instruction = format!("{stream:?}").to_lowercase();
        let mut synced = false;
        self.measure_jobs(result, &jobs, progress, &mut |job, budget| {
            let absent = || ProbeError::Invalid {
                what: "plan",
                finding: "a job without its medium".into(),
                hint: "report this".into(),
            };
            match job.groups.first().map(|key| key.subject) {
                Some(Subject::Dram) => dram.as_ref().ok_or_else(absent)?.run(job, budget),
                Some(Subject::File) => {
                    let bench = file.as_ref().ok_or_else(absent)?;
                    if !synced {
                        // Data that the mapping left dirty must not be written back while the file is measured.
                        bench.settle()?;
                        synced = true;
                    }
                    bench.run(job, budget)
                }
                _ => target.run(job, budget),
            }
        })
    }

    fn measure_jobs(
        &self,
        mut result: ProbeResult,
        jobs: &[Job],
        progress: &mut dyn FnMut(Progress<'_>),
        run: &mut dyn FnMut(&Job, &Budget) -> Result<Vec<Measured>>,
    ) -> Result<ProbeResult> {
        for (number, job) in jobs.iter().enumerate() {
            progress(Progress::Measuring(number, jobs.len(), job));
            let measured = run(job, &self.options.budget)?;
            let repetitions = if result.method.repetition_ns == 0 { 1 } else { self.options.budget.repetitions };
            result.cells.extend(job.groups.iter().zip(measured).map(|(key, one)| Cell {
                section: job.section,
                key: *key,
                operations: one.operations,
                repetitions,
                latency_ns: one.latency_ns,
                bandwidth_bytes_per_s: one.bandwidth_bytes_per_s,
            }));
        }
        Ok(result)
    }

    /// Fills the files that will be written or used for comparison.
    fn fill(&mut self, progress: &mut dyn FnMut(Progress<'_>)) -> Result<()> {
        let bytes = self.range_bytes;
        let mut report = |done: u64| progress(Progress::Filling(done, bytes));
        if let Opened::File { file, .. } = &mut self.opened
            && !self.options.read_only
        {
            file.fill(bytes, &mut report)?;
        }
        if let Some(file) = &mut self.other_file {
            file.fill(bytes, &mut report)?;
        }
        Ok(())
    }

    fn map(&self) -> Result<ScratchMemory> {
        match &self.opened {
            Opened::File { file, .. } => Ok(file.map(self.range_bytes)?),
            Opened::Dram => Ok(ScratchMemory {
                memory: Memory::anonymous(self.range_bytes)?,
                domain_label: "dax-emulated".into(),
                reason: "memory of this process: NOT durable, for comparison".into(),
            }),
            Opened::Profile(profile, mode) => {
                let model = Model::new(profile.as_ref().clone(), *mode, &self.topology, &[0]);
                let parts = [self.range_bytes];
                Ok(ScratchMemory {
                    memory: Memory::anonymous_with(&parts, lodestone_pmem::Domain::DaxEmulated, Some(model))?,
                    domain_label: "dax-emulated".into(),
                    reason: "memory of this process under a model: NOT durable".into(),
                })
            }
        }
    }

    fn virtual_bench(&self, profile: &MediaProfile) -> Result<VirtualBench> {
        let dram = MediaProfile::builtin("dram").ok_or_else(|| ProbeError::Invalid {
            what: "profile",
            finding: "the built-in profile `dram` is missing".into(),
            hint: "report this".into(),
        })?;
        Ok(VirtualBench {
            profile: profile.clone(),
            dram,
            topology: self.topology.clone(),
            range_bytes: self.range_bytes,
        })
    }

    fn file_bench(&self, wanted: bool) -> Result<Option<FileBench>> {
        let file = match (&self.opened, &self.other_file) {
            (_, Some(other)) => Some(other),
            (Opened::File { file, .. }, None) if file.kind() != "devdax device" => Some(file),
            _ => None,
        };
        let Some(file) = file.filter(|_| wanted) else { return Ok(None) };
        let writable = !self.options.read_only || self.other_file.is_some();
        FileBench::new(file.file(), writable, self.range_bytes, self.cpus[0].clone()).map(Some)
    }

    fn result(&self) -> ProbeResult {
        let is_virtual = matches!(self.opened, Opened::Profile(_, TimeMode::Virtual));
        let mut result = ProbeResult::new();
        result.began_unix_s = self.options.began_unix_s;
        result.target = self.target.clone();
        result.notes = self.notes();
        let [description, kernel] = self.options.machine.clone();
        result.machine = Machine {
            description,
            kernel,
            processors: u32::try_from(harness::allowed_processors().len()).unwrap_or(u32::MAX),
            nodes: u32::try_from(self.topology.nodes().len()).unwrap_or(u32::MAX),
            nodes_virtual: self.topology.is_virtual(),
            flush_instruction: "modelled".into(),
            stream_instruction: "modelled".into(),
        };
        let budget = &self.options.budget;
        result.method = Method {
            clock: if is_virtual {
                "virtual time of the model: exact and repeatable, nothing waits".into()
            } else {
                "monotonic clock of the system, looked at about a hundred times in a repetition".into()
            },
            quick: self.options.quick,
            repetition_ns: if is_virtual { 0 } else { u64::try_from(budget.repetition.as_nanos()).unwrap_or(u64::MAX) },
            repetitions: if is_virtual { 1 } else { budget.repetitions },
            thread_counts: self.plan.thread_counts.clone(),
            sections: self.options.sections.clone(),
            harness_ns: 0.0,
            pinned: !is_virtual && !self.cpus[0].is_empty(),
        };
        result
    }
}

fn verify_options(choice: &TargetChoice, options: &ProbeOptions) -> Result<()> {
    let invalid = |what, finding: String, hint: &str| Err(ProbeError::Invalid { what, finding, hint: hint.into() });
    if options.sections.is_empty() {
        return invalid("sections", "none is asked for".into(), "name some, or leave --sections out for all");
    }
    if let Some(threads) = options.threads_max.filter(|threads| *threads == 0 || *threads > THREADS_MAX) {
        return invalid("threads", format!("{threads} threads"), "use 1 to 256");
    }
    if let Some(bytes) = options.range_bytes.filter(|bytes| *bytes < RANGE_BYTES_MIN) {
        return invalid("size", format!("{bytes} bytes"), "use at least 64KiB");
    }
    if options.read_only && options.overwrite_data {
        return invalid("options", "--read-only and --overwrite-data exclude each other".into(), "give one of them");
    }
    if options.virtual_nodes > 0 && !matches!(choice, TargetChoice::Profile(..)) {
        return invalid("options", "virtual nodes are for a model".into(), "give one with --profile");
    }
    if options.read_only && !matches!(choice, TargetChoice::Path(_)) {
        return invalid("options", "--read-only is for a target with data in it".into(), "leave it out here");
    }
    if options.overwrite_data && !matches!(choice, TargetChoice::Path(_)) {
        return invalid("options", "--overwrite-data is for a file or a device".into(), "leave it out here");
    }
    Ok(())
}

fn note_of_empty(opened: &Opened) -> Option<String> {
    match opened {
        Opened::File { beside: true, .. } => {
            Some("the file is empty and stays so: a file without a name in the same folder is measured".into())
        }
        Opened::File { was_empty: true, .. } => {
            Some("the file is filled and emptied again; killed meanwhile, it stays filled".into())
        }
        _ => None,
    }
}

fn describe(choice: &TargetChoice) -> Target {
    let target = |name: String, kind: &str, medium: &str| Target {
        name,
        kind: kind.into(),
        medium: medium.into(),
        ..Target::default()
    };
    match choice {
        TargetChoice::Path(path) => target(path.display().to_string(), "file", ""),
        TargetChoice::Dram => target("memory of this process".into(), "memory", "DRAM"),
        TargetChoice::Profile(profile, mode) => Target {
            emulated: Some(format!("profile {}, {mode}", profile.name)),
            ..target(format!("profile {}", profile.name), "profile", &profile.name)
        },
    }
}

fn open_target(choice: TargetChoice, options: &ProbeOptions) -> Result<Opened> {
    let path = match choice {
        TargetChoice::Dram => return Ok(Opened::Dram),
        TargetChoice::Profile(profile, mode) => return Ok(Opened::Profile(profile, mode)),
        TargetChoice::Path(path) => path,
    };
    if path.is_dir() {
        return match options.read_only {
            true => Err(ProbeError::Invalid {
                what: "options",
                finding: format!("{} is a folder: there is nothing to read", path.display()),
                hint: "name a file or a device with --read-only, or leave it out".into(),
            }),
            false => Ok(Opened::File { file: ScratchFile::temporary(&path)?, was_empty: false, beside: false }),
        };
    }
    let file = ScratchFile::open(&path, !options.read_only)?;
    let content = file.content()?;
    let was_empty = file.bytes() == 0;
    match content {
        Some(finding) if !options.read_only && !options.overwrite_data => Err(ProbeError::HoldsData { path, finding }),
        None if options.read_only && was_empty => too_small(&path, 0),
        _ if was_empty && file.kind() == "file" => Ok(beside_empty(file, &path)),
        _ => Ok(Opened::File { file, was_empty, beside: false }),
    }
}

/// The stand-in for an empty file: a file without a name in the same folder, which vanishes however this process ends.
/// If none can be made, the file itself is used.
fn beside_empty(file: ScratchFile, path: &Path) -> Opened {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match ScratchFile::temporary(folder) {
        Ok(beside) => Opened::File { file: beside, was_empty: false, beside: true },
        Err(_) => Opened::File { file, was_empty: true, beside: false },
    }
}

fn too_small<T>(path: &Path, bytes: u64) -> Result<T> {
    Err(ProbeError::TooSmall { path: path.to_owned(), bytes, wanted: RANGE_BYTES_MIN })
}

/// Bytes to measure: the requested size, or else as much as suits, but never more than exists.
fn range(opened: &Opened, options: &ProbeOptions) -> Result<u64> {
    let suits = match opened {
        Opened::Profile(_, TimeMode::Virtual) => RANGE_BYTES_VIRTUAL,
        _ if options.quick => RANGE_BYTES_QUICK,
        _ => RANGE_BYTES_DEFAULT,
    };
    let wanted = options.range_bytes.unwrap_or(suits) / PAGE_BYTES * PAGE_BYTES;
    let Opened::File { file, was_empty, .. } = opened else { return Ok(wanted) };
    if file.is_temporary() || *was_empty {
        return Ok(wanted);
    }
    // A file with data keeps its length, and a device has a fixed one.
    let there = file.bytes() / PAGE_BYTES * PAGE_BYTES;
    if there < RANGE_BYTES_MIN {
        return Err(ProbeError::TooSmall { path: file.path().to_owned(), bytes: there, wanted: RANGE_BYTES_MIN });
    }
    match options.range_bytes {
        Some(asked) if asked > there => Err(ProbeError::Invalid {
            what: "size",
            finding: format!("{asked} bytes are asked for, {} has {there}", file.path().display()),
            hint: "ask for less (--size), or leave it out".into(),
        }),
        _ => Ok(wanted.min(there)),
    }
}

/// Refuses sizes that would fill a file system or all memory.
fn verify_room(opened: &Opened, options: &ProbeOptions, range_bytes: u64) -> Result<()> {
    if let Opened::File { file, .. } = opened
        && !options.read_only
    {
        file.verify_room(range_bytes)?;
    }
    let in_memory = match opened {
        Opened::Profile(_, TimeMode::Virtual) => false,
        Opened::File { .. } => options.sections.contains(&Section::Compare),
        _ => true,
    };
    let available = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| available_bytes(&text));
    match available.filter(|bytes| in_memory && range_bytes > bytes / 4 * 3) {
        Some(bytes) => Err(ProbeError::Invalid {
            what: "size",
            finding: format!("{range_bytes} bytes of DRAM are needed, {bytes} are available"),
            hint: "ask for less (--size), or leave out the section `compare`".into(),
        }),
        None => Ok(()),
    }
}

/// `MemAvailable` of /proc/meminfo, in bytes.
fn available_bytes(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("MemAvailable:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok()?.checked_mul(1024)
}

/// The nodes of the run. They decide where threads are pinned, and which memory is near or far for a model.
fn topology_for(opened: &Opened, virtual_nodes: usize) -> Result<Topology> {
    let machine = Topology::of_machine();
    Ok(match (opened, virtual_nodes) {
        // The papers compare two nodes.
        (Opened::Profile(_, TimeMode::Virtual), 0) => machine.with_virtual_nodes(2).unwrap_or(machine),
        (_, 0) => machine,
        (_, count) => machine.with_virtual_nodes(count)?,
    })
}

/// The node near to the target, and the processors that this process may use there and on the farthest node.
fn places(opened: &Opened, topology: &Topology) -> (usize, [Vec<usize>; 2]) {
    let allowed = harness::allowed_processors();
    let of_node = |index: usize| -> Vec<usize> {
        let cpus = topology.nodes().get(index).map_or(&[][..], |node| &node.cpus);
        cpus.iter().copied().filter(|cpu| allowed.contains(cpu)).collect()
    };
    let device_node = match opened {
        Opened::File { file, .. } => file.numa_node().and_then(|id| topology.index_of(id)),
        _ => None,
    };
    let near = device_node
        .unwrap_or_else(|| (0..topology.nodes().len()).find(|index| !of_node(*index).is_empty()).unwrap_or(0));
    let far =
        topology.nearest_first(near).into_iter().rev().find(|index| *index != near && !of_node(*index).is_empty());
    let near_cpus = if of_node(near).is_empty() { allowed.clone() } else { of_node(near) };
    (near, [near_cpus, far.map_or_else(Vec::new, of_node)])
}

fn threads_by_default(opened: &Opened, near: &[usize]) -> u32 {
    match opened {
        Opened::Profile(_, TimeMode::Virtual) => THREADS_VIRTUAL,
        _ => u32::try_from(near.len()).unwrap_or(THREADS_MAX).clamp(1, THREADS_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_read() {
        assert_eq!(available_bytes("MemTotal:  9 kB\nMemAvailable:    2048 kB\n"), Some(2 << 20));
        assert_eq!(available_bytes("MemTotal:  9 kB\n"), None);
    }

    #[test]
    fn a_size_beyond_all_memory_is_refused_and_virtual_time_needs_none() {
        let options = ProbeOptions { range_bytes: Some(1 << 60), ..ProbeOptions::default() };
        let refused = Probe::open(TargetChoice::Dram, options.clone()).expect_err("no such memory").to_string();
        assert!(refused.contains("--size"), "{refused}");
        let profile = MediaProfile::builtin("dram").expect("built in");
        let choice = TargetChoice::Profile(Box::new(profile), TimeMode::Virtual);
        assert!(Probe::open(choice, options).is_ok());
    }

    #[test]
    fn one_processor_plans_single_threads() {
        let options = ProbeOptions { threads_max: Some(1), range_bytes: Some(1 << 20), ..ProbeOptions::default() };
        let probe = Probe::open(TargetChoice::Dram, options).expect("planned");
        assert!(probe.plan().jobs.iter().flat_map(|job| &job.groups).all(|key| key.threads == 1));
        assert!(probe.notes().iter().any(|note| note.contains("one thread only")), "{:?}", probe.notes());
    }
}
