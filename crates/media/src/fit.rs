//! Fitting: makes a profile from the figures of a probe.
//!
//! 1. Latencies by size are the probe's cells with one thread (`Evidence::curve`). Small sequential reads tell the
//!    cost of a read inside a block that is already buffered.
//! 2. The size of the internal block is the smallest random read that reaches full bandwidth, if small sequential reads
//!    reach it too. If they do not, no larger block can be seen.
//! 3. Ceilings are the highest bandwidths of whole blocks. The sweep over threads shows the loss of large accesses, the
//!    growth of latency, and the number of threads from which bandwidth falls.
//! 4. Mixed load, other nodes and fences come from the sections of that name.
//! 5. Some values are unknown, because their sections were left out or because they cannot be observed from outside,
//!    such as the sizes of buffers and caches. They are taken from a base profile, and a note says so.
//!
//! Invariant: the profile passes the checks of a profile from a file.

use thiserror::Error;

use crate::probe::{Access, Cell, CellKey, Operation, Pattern, Place, ProbeResult, Section, Subject};
use crate::profile::{Above, Curve, MediaProfile, ProfileError};

/// Why a profile cannot be made from a probe.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FitError {
    /// Cells are missing that no others can replace.
    #[error(
        "the probe of {target} has no cells for {missing}; run `lodestone media probe` without leaving out the section latency{hint}"
    )]
    Missing {
        /// The probed target.
        target: String,
        /// The missing cells.
        missing: &'static str,
        /// Further advice.
        hint: &'static str,
    },
    /// The figures do not make a valid profile.
    #[error("the probe's figures make no profile: {0}")]
    Nonsense(#[from] ProfileError),
}

/// A profile, and notes on the values that the probe did not measure.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Fitted {
    /// The profile.
    pub profile: MediaProfile,
    /// Values that were taken from the base profile, and why.
    pub notes: Vec<String>,
}

/// Makes a profile named `name` from `result`. Values that the probe did not measure come from `base`.
///
/// # Errors
/// If there are no latencies of reads or writes with one thread, or if the figures do not make a valid profile.
pub fn fit(result: &ProbeResult, base: &MediaProfile, name: &str) -> Result<Fitted, FitError> {
    let evidence = Evidence { result };
    let missing = |missing, hint| FitError::Missing { target: result.target.name.clone(), missing, hint };
    let read_random = evidence.curve(Operation::Read, Pattern::Random, 0);
    let read_random = read_random.ok_or_else(|| missing("random reads by one thread", ""))?;
    let write_hint = ", and with leave to write";
    let write_random = evidence.curve(Operation::Write, Pattern::Random, 0);
    let write_random = write_random.ok_or_else(|| missing("random streamed writes by one thread", write_hint))?;

    let mut fitted = Fitted { profile: base.clone(), notes: Vec::new() };
    fitted.describe(result, base, name);
    fitted.blocks(&evidence);
    let block_bytes = fitted.profile.device.block_bytes;
    fitted.profile.read.random_latency_ns = read_random;
    fitted.profile.write.sequential_latency_ns =
        evidence.curve(Operation::Write, Pattern::Sequential, 0).unwrap_or_else(|| write_random.clone());
    fitted.profile.write.random_latency_ns = write_random;
    fitted.sequential_reads(&evidence, block_bytes);
    fitted.ceilings(&evidence, block_bytes);
    fitted.large_accesses(&evidence);
    fitted.fences(&evidence);
    fitted.mixed(&evidence);
    fitted.nodes(&evidence);
    // The same checks as for a file: a probe of a broken clock must not become a profile.
    fitted.profile = MediaProfile::from_toml(&fitted.profile.to_toml(), "fitted profile")?;
    Ok(fitted)
}

/// Share of the highest bandwidth that counts as reaching it.
const REACHES: f64 = 0.9;
/// If doubling the threads gains less than this factor, the ceiling is reached.
const SATURATED_GAIN: f64 = 1.3;
/// Size at which threads, mixed load and nodes are compared.
const COMPARED_BYTES: u64 = 256;

/// The cells of a probe, by question.
struct Evidence<'r> {
    result: &'r ProbeResult,
}

impl<'r> Evidence<'r> {
    /// Cells of the target by loads or streams, near it, with one fence at the end.
    fn cells(&self, sections: &'static [Section], operation: Operation) -> impl Iterator<Item = &'r Cell> {
        let access = if operation == Operation::Read { Access::Load } else { Access::Stream };
        self.result.cells.iter().filter(move |cell| {
            let key = &cell.key;
            sections.contains(&cell.section)
                && (key.subject, key.operation, key.access) == (Subject::Target, operation, access)
        })
    }

    fn sweep(&self, operation: Operation, pattern: Pattern) -> impl Iterator<Item = &'r Cell> {
        self.cells(&[Section::Latency, Section::Threads], operation).filter(move |cell| {
            let key = &cell.key;
            key.pattern == pattern && key.place == Place::Near && key.fence_bytes == 0 && key.beside_threads == 0
        })
    }

    /// Latency by size with one thread, from `bytes_min` on; `None` without cells.
    fn curve(&self, operation: Operation, pattern: Pattern, bytes_min: u64) -> Option<Curve> {
        let mut points: Vec<(u64, f64)> = self
            .sweep(operation, pattern)
            .filter(|cell| cell.key.threads == 1 && cell.key.access_bytes >= bytes_min)
            .map(|cell| (cell.key.access_bytes, cell.latency_ns.median))
            .collect();
        points.sort_by_key(|(bytes, _)| *bytes);
        points.dedup_by_key(|(bytes, _)| *bytes);
        Curve::new(points, Above::Proportional)
    }

    /// Numbers of threads that were measured, ascending.
    fn thread_counts(&self, operation: Operation) -> Vec<u32> {
        let mut counts: Vec<u32> = self.sweep(operation, Pattern::Random).map(|cell| cell.key.threads).collect();
        counts.sort_unstable();
        counts.dedup();
        counts
    }

    /// Bandwidth of one size and number of threads.
    fn bandwidth(&self, operation: Operation, pattern: Pattern, bytes: u64, threads: u32) -> Option<f64> {
        self.sweep(operation, pattern)
            .find(|cell| cell.key.access_bytes == bytes && cell.key.threads == threads)
            .map(|cell| cell.bandwidth_bytes_per_s.median)
    }

    /// For each mixed cell: the number of threads of the other kind, and the fraction of the bandwidth that they leave.
    fn left(&self, operation: Operation) -> Vec<(f64, f64)> {
        let sections = &[Section::Mixed, Section::Threads, Section::Latency];
        let alone = |threads: u32| {
            let mut cells = self.cells(sections, operation).filter(|cell| {
                let key = &cell.key;
                (key.threads, key.beside_threads, key.access_bytes) == (threads, 0, COMPARED_BYTES)
                    && (key.pattern, key.place, key.fence_bytes) == (Pattern::Random, Place::Near, 0)
            });
            cells.next().map(|cell| cell.bandwidth_bytes_per_s.median)
        };
        self.cells(&[Section::Mixed], operation)
            .filter(|cell| cell.key.beside_threads > 0)
            .filter_map(|cell| {
                let left = cell.bandwidth_bytes_per_s.median / alone(cell.key.threads)?;
                left.is_finite().then(|| (f64::from(cell.key.beside_threads), left))
            })
            .collect()
    }

    /// Highest bandwidth of one size over all numbers of threads.
    fn best(&self, operation: Operation, pattern: Pattern, bytes: u64) -> Option<f64> {
        let cells = self.sweep(operation, pattern).filter(|cell| cell.key.access_bytes == bytes);
        cells.map(|cell| cell.bandwidth_bytes_per_s.median).reduce(f64::max)
    }
}

impl Fitted {
    fn base(&mut self, what: &str, why: &str) {
        self.notes.push(format!("{what}: from the base profile, because {why}"));
    }

    fn describe(&mut self, result: &ProbeResult, base: &MediaProfile, name: &str) {
        let plain = |text: &str| text.chars().filter(|letter| !letter.is_control()).take(400).collect::<String>();
        let profile = &mut self.profile;
        profile.name = plain(name);
        profile.description = format!("fitted to a probe of {}", plain(&result.target.name));
        let emulated =
            result.target.emulated.as_deref().map_or_else(String::new, |label| format!(", emulated: {label}"));
        profile.source = format!(
            "lodestone media probe on {}{}; base {}",
            plain(&result.machine.description),
            plain(&emulated),
            base.name
        );
        profile.instrument.cached_read_ns = None;
        profile.instrument.engine_write_ns = 0.0;
        self.base("cpu_cache", "no figure of a probe shows the cache alone");
    }

    /// The internal block.
    fn blocks(&mut self, evidence: &Evidence<'_>) {
        let sizes = [64, 128, 256, 512, 1024, 4096];
        let reaching = |operation, pattern| -> Option<u64> {
            let by_size: Vec<(u64, f64)> =
                sizes.iter().filter_map(|bytes| Some((*bytes, evidence.best(operation, pattern, *bytes)?))).collect();
            let peak = by_size.iter().map(|(_, bandwidth)| *bandwidth).reduce(f64::max)?;
            by_size.iter().find(|(_, bandwidth)| *bandwidth >= REACHES * peak).map(|(bytes, _)| *bytes)
        };
        // Too few threads may keep reads below the ceiling, so that they seem to need larger blocks. The smaller answer
        // therefore counts.
        let blocks = [Operation::Read, Operation::Write].into_iter().filter_map(|operation| {
            let random = reaching(operation, Pattern::Random)?;
            let sequential = reaching(operation, Pattern::Sequential)?;
            Some(if sequential < random { random } else { 64 }).filter(|bytes| bytes.is_power_of_two())
        });
        let blocks: Vec<u64> = blocks.collect();
        let larger = blocks.iter().copied().filter(|bytes| *bytes > 64).min();
        let saturated = evidence.thread_counts(Operation::Read).last().is_some_and(|threads| *threads >= 4);
        match blocks.first() {
            Some(_) if saturated => {
                let block_bytes = larger.unwrap_or(64);
                let device = &mut self.profile.device;
                let (had_buffers, base_block) = (device.read_buffer_bytes > 0, device.block_bytes);
                device.block_bytes = block_bytes;
                if block_bytes == 64 {
                    (device.read_buffer_bytes, device.write_buffer_bytes) = (0, 0);
                } else if !had_buffers || base_block != block_bytes {
                    // Sixty-four blocks, as the first Optane generation has.
                    (device.read_buffer_bytes, device.write_buffer_bytes) = (64 * block_bytes, 64 * block_bytes);
                }
                if block_bytes > 64 {
                    self.notes
                        .push("device.*_buffer_bytes: 64 blocks, because their sizes do not show from outside".into());
                }
            }
            _ => self.base("device", "the sweep over threads has fewer than four threads"),
        }
    }

    /// Sequential reads. From one block on they are as measured. Below, the cost of a read inside a buffered block is
    /// derived.
    fn sequential_reads(&mut self, evidence: &Evidence<'_>, block_bytes: u64) {
        let read = &mut self.profile.read;
        match evidence.curve(Operation::Read, Pattern::Sequential, block_bytes) {
            Some(curve) => read.sequential_latency_ns = curve,
            None => {
                read.sequential_latency_ns = read.random_latency_ns.clone();
                self.base("read.sequential_latency_ns", "there are no sequential reads; the random ones stand in");
            }
        }
        let read = &mut self.profile.read;
        let small = evidence.curve(Operation::Read, Pattern::Sequential, 64).map(|curve| curve.at(64));
        let lines = (block_bytes / 64) as f64;
        read.buffered_latency_ns = match small {
            // One read opens the block and the others find it: mean = (open + (lines - 1) x buffered) / lines.
            Some(mean) if lines > 1.0 => {
                ((mean * lines - read.sequential_latency_ns.at(block_bytes)) / (lines - 1.0)).max(0.0)
            }
            _ => read.random_latency_ns.at(64),
        };
    }

    /// Ceilings, and how they change with the number of threads.
    fn ceilings(&mut self, evidence: &Evidence<'_>, block_bytes: u64) {
        for operation in [Operation::Read, Operation::Write] {
            let of_size = |bytes: u64| evidence.best(operation, Pattern::Random, bytes);
            let sizes = [block_bytes, 256, 512, 1024, 4096];
            let peak = sizes.iter().filter_map(|bytes| of_size(*bytes)).reduce(f64::max);
            let counts = evidence.thread_counts(operation);
            let at = |threads: &u32| {
                let bandwidths =
                    sizes.iter().filter_map(|bytes| evidence.bandwidth(operation, Pattern::Random, *bytes, *threads));
                bandwidths.reduce(f64::max)
            };
            let by_threads: Vec<(u32, f64)> =
                counts.iter().filter_map(|threads| Some((*threads, at(threads)?))).collect();
            let growth = growth(evidence, operation, &counts, peak.unwrap_or(0.0));
            let (threads_best, loss) = decline(&by_threads);
            let (bandwidth, growth_key, best_key, loss_key) = match operation {
                Operation::Read => {
                    let read = &mut self.profile.read;
                    let (best, loss) = (&mut read.threads_best, &mut read.bandwidth_loss_per_thread);
                    (&mut read.bandwidth_bytes_per_second, &mut read.latency_growth_per_thread, best, loss)
                }
                Operation::Write => {
                    let write = &mut self.profile.write;
                    let (best, loss) = (&mut write.threads_best, &mut write.bandwidth_loss_per_thread);
                    (&mut write.bandwidth_bytes_per_second, &mut write.latency_growth_per_thread, best, loss)
                }
            };
            *bandwidth = peak.unwrap_or(*bandwidth);
            *growth_key = growth.unwrap_or(*growth_key);
            (*best_key, *loss_key) = (threads_best, loss);
            let name = if operation == Operation::Read { "read" } else { "write" };
            if growth.is_none() {
                self.base(
                    &format!("{name}.latency_growth_per_thread"),
                    "no two numbers of threads stay below the ceiling",
                );
            }
            let gain = match by_threads.as_slice() {
                [.., (_, fewer), (_, more)] => more / fewer,
                _ => f64::INFINITY,
            };
            if gain > SATURATED_GAIN {
                self.notes.push(format!(
                    "{name}.bandwidth_bytes_per_second: the most threads of the probe were still gaining; the ceiling may be higher"
                ));
            }
        }
    }

    /// The fraction of the ceiling that large reads reach, judged by the cells in which threads reached it.
    fn large_accesses(&mut self, evidence: &Evidence<'_>) {
        let counts = evidence.thread_counts(Operation::Read);
        let [.., fewer, more] = counts.as_slice() else {
            return self.base("read.bandwidth_fraction", "there is one number of threads");
        };
        let ceiling = self.profile.read.bandwidth_bytes_per_second;
        let mut points = vec![(4096, 1.0)];
        for bytes in [16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20] {
            let of = |threads: u32| evidence.bandwidth(Operation::Read, Pattern::Random, bytes, threads);
            let (Some(with_fewer), Some(with_more)) = (of(*fewer), of(*more)) else { continue };
            let last: f64 = points.last().map_or(1.0, |(_, fraction)| *fraction);
            if with_more < SATURATED_GAIN * with_fewer {
                points.push((bytes, (with_more / ceiling).clamp(0.01, last)));
            }
        }
        if let Some(curve) = Curve::new(points, Above::Flat) {
            self.profile.read.bandwidth_fraction = curve;
        }
    }

    /// The cost of a missing fence in long writes of several threads.
    fn fences(&mut self, evidence: &Evidence<'_>) {
        let cells = || evidence.cells(&[Section::Fence], Operation::Write).filter(|cell| cell.key.threads > 1);
        let pairs: Vec<(u64, f64)> = cells()
            .filter(|cell| cell.key.fence_bytes == 0)
            .filter_map(|cell| {
                let twin = |other: &&Cell| {
                    let key = CellKey { fence_bytes: other.key.fence_bytes, ..cell.key };
                    other.key == key && other.key.fence_bytes > 0
                };
                let fenced = cells().find(twin)?.bandwidth_bytes_per_s.median;
                Some((cell.key.access_bytes, cell.bandwidth_bytes_per_s.median / fenced))
            })
            .collect();
        let Some((worst_bytes, worst)) = pairs.iter().copied().min_by(|one, other| one.1.total_cmp(&other.1)) else {
            return self.base("write.torn_fraction", "the section fence was left out or had one thread");
        };
        let write = &mut self.profile.write;
        if worst >= REACHES {
            (write.torn_fraction, write.unfenced_bytes_max) = (0.0, worst_bytes);
            return;
        }
        // A torn block is written twice: bandwidth falls to 1 / (1 + fraction).
        write.torn_fraction = (1.0 / worst - 1.0).clamp(0.0, 1.0);
        let kept = pairs.iter().filter(|(_, ratio)| *ratio >= REACHES).map(|(bytes, _)| *bytes);
        write.unfenced_bytes_max = kept.filter(|bytes| *bytes < worst_bytes).max().unwrap_or(COMPARED_BYTES);
    }

    /// The speed left beside threads of the other kind.
    fn mixed(&mut self, evidence: &Evidence<'_>) {
        let (reads, writes) = (evidence.left(Operation::Read), evidence.left(Operation::Write));
        // The steepness that explains the cells best; the floors follow from each candidate.
        let halves = (-4..=8).map(|power| f64::from(power).exp2());
        let explained = halves.filter_map(|half| {
            let (read, write) = (floor(&reads, half), floor(&writes, half));
            let missed = missed(&reads, half, read) + missed(&writes, half, write);
            (!reads.is_empty() || !writes.is_empty()).then_some((missed, half, read, write))
        });
        let Some((_, half, read, write)) = explained.min_by(|one, other| one.0.total_cmp(&other.0)) else {
            return self.base("mixed", "the section mixed was left out or had one thread");
        };
        let mixed = &mut self.profile.mixed;
        mixed.threads_half = half;
        mixed.read_fraction_min = read.unwrap_or(mixed.read_fraction_min);
        mixed.write_fraction_min = write.unwrap_or(mixed.write_fraction_min);
        if read.is_none() || write.is_none() {
            self.base("mixed, one of the floors", "only reads or only writes were measured beside the other");
        }
    }

    /// The cost of access from another node.
    fn nodes(&mut self, evidence: &Evidence<'_>) {
        for operation in [Operation::Read, Operation::Write] {
            let cells =
                || evidence.cells(&[Section::Nodes], operation).filter(|cell| cell.key.access_bytes == COMPARED_BYTES);
            let far = cells().filter(|cell| cell.key.place == Place::Far).max_by_key(|cell| cell.key.threads);
            let factor = far.and_then(|far| {
                let near = cells().find(|cell| cell.key == CellKey { place: Place::Near, ..far.key })?;
                Some(near.bandwidth_bytes_per_s.median / far.bandwidth_bytes_per_s.median)
            });
            let (name, key) = match operation {
                Operation::Read => ("remote.read_factor", &mut self.profile.remote.read_factor),
                Operation::Write => ("remote.write_factor", &mut self.profile.remote.write_factor),
            };
            match factor.filter(|factor| factor.is_finite()) {
                Some(factor) => *key = factor.clamp(1.0, 1000.0),
                None => self.base(name, "the machine has one node, or the section nodes was left out"),
            }
        }
    }
}

/// The share of the speed above the floor that is left beside so many threads of the other kind.
fn share(beside: f64, half: f64) -> f64 {
    1.0 / (1.0 + beside / half)
}

/// The floor that explains `left` = floor + (1 - floor) x share; `None` without cells.
fn floor(left: &[(f64, f64)], half: f64) -> Option<f64> {
    let floors = left.iter().map(|(beside, left)| (left - share(*beside, half)) / (1.0 - share(*beside, half)));
    median(floors.collect()).map(|floor| floor.clamp(0.01, 1.0))
}

/// Sum of squares that a floor leaves unexplained.
fn missed(left: &[(f64, f64)], half: f64, floor: Option<f64>) -> f64 {
    let floor = floor.unwrap_or(1.0);
    let error = |(beside, left): &(f64, f64)| floor + (1.0 - floor) * share(*beside, half) - left;
    left.iter().map(|cell| error(cell).powi(2)).sum()
}

/// Growth of latency per thread, from numbers of threads that stay below the ceiling; `None` without two of them.
///
/// Reads are random, by blocks. Writes are sequential, by lines, which join to whole blocks and stay far from the
/// ceiling.
fn growth(evidence: &Evidence<'_>, operation: Operation, counts: &[u32], ceiling: f64) -> Option<f64> {
    let (pattern, bytes) = match operation {
        Operation::Read => (Pattern::Random, COMPARED_BYTES),
        Operation::Write => (Pattern::Sequential, 64),
    };
    let cell = |threads: u32| {
        let mut cells = evidence.sweep(operation, pattern);
        cells.find(|cell| (cell.key.access_bytes, cell.key.threads) == (bytes, threads))
    };
    let alone_ns = cell(1)?.latency_ns.median;
    let growths = counts.iter().filter(|threads| **threads > 1).filter_map(|threads| {
        let cell = cell(*threads)?;
        let below = cell.bandwidth_bytes_per_s.median < 0.8 * ceiling;
        below.then(|| (cell.latency_ns.median / alone_ns - 1.0) / f64::from(threads - 1))
    });
    median(growths.collect()).map(|growth| growth.clamp(0.0, 100.0))
}

/// Number of threads up to which bandwidth does not fall, and the fraction that each further thread costs.
fn decline(by_threads: &[(u32, f64)]) -> (u64, f64) {
    let peak = by_threads.iter().map(|(_, bandwidth)| *bandwidth).fold(0.0, f64::max);
    // The last count that is as good as the best one: a plateau is not a decline.
    let best = by_threads.iter().rev().find(|(_, bandwidth)| *bandwidth >= 0.98 * peak);
    match (best, by_threads.last()) {
        (Some((best, bandwidth)), Some((last, at_last))) if last > best => {
            let loss = (1.0 - at_last / bandwidth) / f64::from(last - best);
            (u64::from(*best), loss.clamp(0.0, 1.0))
        }
        // No decline was seen, and its later course is unknown.
        (Some((best, _)), _) => (u64::from(*best).max(1), 0.0),
        _ => (1, 0.0),
    }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}
