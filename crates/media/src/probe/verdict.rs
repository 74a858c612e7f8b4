//! The meaning of the figures, by rules.
//!
//! 1. *Best size*: the smallest access of at least one line that reaches 90 % of the highest bandwidth of any size.
//!    Each size counts with its best number of threads. Sizes below a line would measure the processor's cache, not the
//!    medium.
//! 2. *Best number of threads*: the smallest that reaches 90 % of the highest bandwidth, at the best random size.
//! 3. *Stream or flush*: the size from which on streaming is never slower than store and flush by more than 5 %.
//! 4. *Fences*: the effect of a fence every 256 bytes on large writes.
//! 5. *Avoid*: accesses that cost half of the bandwidth or more, or a tenth if the alternative costs nothing.
//!
//! Every sentence carries the figures that it rests on. A rule whose cells were not measured says nothing. Nor does a
//! rule that compares two cells if one of them scatters. In rows of cells, neighbours replace such cells (see
//! [`settle`](super::settle)).

use serde::Serialize;

use super::settle::{self, UNSURE, is_sure, settled};
use super::units::{bytes_text, rate_text, time_text, times_text};
use super::{
    Access, Cell, CellKey, FENCE_BYTES, MIXED_BYTES, Operation, Pattern, Place, ProbeResult, Section, Subject,
};

/// Share of the highest bandwidth that counts as reached.
const REACHED: f64 = 0.9;
/// Share of the best below which an access is to be avoided.
const HALF: f64 = 0.5;
/// Difference that is worth a sentence.
const NOTICED: f64 = 0.1;
/// Streaming may be this much slower and still count as no slower.
const LEVEL: f64 = 1.05;
/// Spread of repetitions that the paper accepts (section 2.1).
const VARIATION_MAX: f64 = 0.05;
const LINE_BYTES: u64 = 64;
/// Up to this size a best size may be the medium's block. Above it, latency is merely spread over more bytes.
const AMPLIFIED_MAX: u64 = 4096;

/// The advice of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Advice {
    /// Do it like this.
    Prefer,
    /// Do not do this.
    Avoid,
    /// Worth knowing.
    Know,
}

/// The topic of a finding, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Topic {
    /// Best size of random reads; the value is bytes.
    RandomReadBytes,
    /// Best size of sequential reads; the value is bytes.
    SequentialReadBytes,
    /// Best size of random writes; the value is bytes.
    RandomWriteBytes,
    /// Best size of sequential writes; the value is bytes.
    SequentialWriteBytes,
    /// Best number of readers.
    ReadThreads,
    /// Best number of writers.
    WriteThreads,
    /// Size from which on streaming is better; the value is bytes, absent if it never is.
    StreamFromBytes,
    /// Effect of fences inside large writes; the value is the ratio of bandwidths.
    Fence,
    /// Streams below a line.
    SmallStreams,
    /// Random reads below the best size.
    SmallRandomReads,
    /// Random writes below the best size.
    SmallRandomWrites,
    /// Accesses so large that bandwidth falls again.
    LargeAccesses,
    /// More threads than the best number.
    ManyThreads,
    /// Reading from another node; the value is the ratio of bandwidths.
    FarReads,
    /// Writing to another node; the value is the ratio of bandwidths.
    FarWrites,
    /// Reads beside writes.
    ReadsBesideWrites,
    /// Writes beside reads.
    WritesBesideReads,
    /// Latency of single accesses.
    Latency,
    /// Against DRAM.
    Dram,
    /// Against a file.
    File,
    /// Spread of the repetitions.
    Noise,
}

/// One sentence with the figures that it rests on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Observation {
    /// The advice.
    pub advice: Advice,
    /// The topic.
    pub topic: Topic,
    /// The figure that was found, in the unit of the topic.
    pub value: Option<f64>,
    /// In plain words.
    pub sentence: String,
    /// The measured figures that support it.
    pub evidence: String,
}

/// All findings, those to prefer first.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Verdict {
    /// The findings.
    pub findings: Vec<Observation>,
}

impl Verdict {
    /// The findings about `result`.
    #[must_use]
    pub fn of(result: &ProbeResult) -> Self {
        let figures = Figures { result };
        let mut findings = Vec::new();
        for operation in [Operation::Read, Operation::Write] {
            for pattern in [Pattern::Random, Pattern::Sequential] {
                findings.extend(figures.best_size(operation, pattern));
            }
        }
        for operation in [Operation::Read, Operation::Write] {
            findings.extend(figures.best_threads(operation));
        }
        findings.extend(figures.stream_or_flush());
        findings.extend(figures.fences());
        findings.extend(figures.small_streams());
        for operation in [Operation::Read, Operation::Write] {
            findings.extend(figures.small_random(operation));
            findings.extend(figures.far(operation));
            findings.extend(figures.beside(operation));
        }
        findings.extend(figures.large_accesses());
        findings.extend(figures.latency());
        findings.extend(figures.against_dram());
        findings.extend(figures.against_file());
        findings.extend(figures.noise());
        let order = |finding: &Observation| match finding.advice {
            Advice::Prefer => 0,
            Advice::Avoid => 1,
            Advice::Know => 2,
        };
        findings.sort_by_key(order);
        Self { findings }
    }

    /// The finding about `topic`.
    #[must_use]
    pub fn about(&self, topic: Topic) -> Option<&Observation> {
        self.findings.iter().find(|finding| finding.topic == topic)
    }
}

/// The best bandwidth of one access size.
#[derive(Clone, Copy, Debug)]
struct Point {
    access_bytes: u64,
    threads: u32,
    bytes_per_s: f64,
    sure: bool,
}

impl Point {
    fn of(cell: &Cell) -> Self {
        Self {
            access_bytes: cell.key.access_bytes,
            threads: cell.key.threads,
            bytes_per_s: cell.bandwidth_bytes_per_s.median,
            sure: is_sure(cell),
        }
    }

    /// The order in which points are preferred: sure figures before others.
    fn rank(&self) -> (bool, f64) {
        (self.sure, self.bytes_per_s)
    }
}

/// `points`, a row, with replacements for those that scatter.
fn settle_points(mut points: Vec<Point>) -> Vec<Point> {
    let row: Vec<settle::Figure> =
        points.iter().map(|point| settle::Figure { value: point.bytes_per_s, sure: point.sure }).collect();
    points.iter_mut().zip(settled(&row)).for_each(|(point, value)| point.bytes_per_s = value);
    points
}

struct Figures<'r> {
    result: &'r ProbeResult,
}

fn is_plain(cell: &Cell, operation: Operation, pattern: Pattern) -> bool {
    let key = &cell.key;
    matches!(cell.section, Section::Latency | Section::Threads)
        && (key.subject, key.operation, key.pattern) == (Subject::Target, operation, pattern)
}

fn verb(operation: Operation) -> &'static str {
    match operation {
        Operation::Read => "read",
        Operation::Write => "write",
    }
}

fn threads_text(threads: u32) -> String {
    if threads == 1 { "1 thread".into() } else { format!("{threads} threads") }
}

fn finding(
    advice: Advice,
    topic: Topic,
    value: Option<f64>,
    sentence: String,
    evidence: String,
) -> Option<Observation> {
    Some(Observation { advice, topic, value, sentence, evidence })
}

fn highest(points: &[Point]) -> Option<Point> {
    points.iter().copied().max_by(|one, other| one.bytes_per_s.total_cmp(&other.bytes_per_s))
}

impl Figures<'_> {
    /// The best bandwidth of every size from a line on, sizes ascending.
    fn points(&self, operation: Operation, pattern: Pattern) -> Vec<Point> {
        let mut points: Vec<Point> = Vec::new();
        for cell in self.result.cells.iter().filter(|cell| is_plain(cell, operation, pattern)) {
            let point = Point::of(cell);
            match points.iter_mut().find(|known| known.access_bytes == point.access_bytes) {
                Some(known) if known.rank() < point.rank() => *known = point,
                Some(_) => {}
                None => points.push(point),
            }
        }
        points.retain(|point| point.access_bytes >= LINE_BYTES);
        points.sort_by_key(|point| point.access_bytes);
        settle_points(points)
    }

    fn best_point(&self, operation: Operation, pattern: Pattern) -> Option<(Point, Point)> {
        let points = self.points(operation, pattern);
        let peak = highest(&points)?;
        let best = points.into_iter().find(|point| point.bytes_per_s >= peak.bytes_per_s * REACHED)?;
        Some((best, peak))
    }

    fn best_size(&self, operation: Operation, pattern: Pattern) -> Option<Observation> {
        let (best, peak) = self.best_point(operation, pattern)?;
        let (topic, order) = match (operation, pattern) {
            (Operation::Read, Pattern::Sequential) => (Topic::SequentialReadBytes, "in order"),
            (Operation::Read, _) => (Topic::RandomReadBytes, "at random places"),
            (Operation::Write, Pattern::Sequential) => (Topic::SequentialWriteBytes, "in order"),
            (Operation::Write, _) => (Topic::RandomWriteBytes, "at random places"),
        };
        let (size, verb) = (bytes_text(best.access_bytes), verb(operation));
        let evidence = format!(
            "{} at {size} with {}, {} % of the most: {} at {} with {}",
            rate_text(best.bytes_per_s),
            threads_text(best.threads),
            (best.bytes_per_s / peak.bytes_per_s * 100.0).round(),
            rate_text(peak.bytes_per_s),
            bytes_text(peak.access_bytes),
            threads_text(peak.threads)
        );
        let sentence =
            format!("To {verb} {order}, use pieces of {size} or more: smaller ones do not fill the bandwidth.");
        finding(Advice::Prefer, topic, Some(best.access_bytes as f64), sentence, evidence)
    }

    /// Bandwidth by number of threads at the best random size.
    fn by_threads(&self, operation: Operation) -> Option<(u64, Vec<Point>)> {
        let (best, _) = self.best_point(operation, Pattern::Random)?;
        let mut points: Vec<Point> = self
            .result
            .cells
            .iter()
            .filter(|cell| is_plain(cell, operation, Pattern::Random) && cell.key.access_bytes == best.access_bytes)
            .map(Point::of)
            .collect();
        points.sort_by_key(|point| point.threads);
        (points.len() > 1).then(|| (best.access_bytes, settle_points(points)))
    }

    fn best_threads(&self, operation: Operation) -> Option<Observation> {
        let (size, points) = self.by_threads(operation)?;
        let (peak, last) = (highest(&points)?, *points.last()?);
        let best = points.iter().find(|point| point.bytes_per_s >= peak.bytes_per_s * REACHED)?;
        let (topic, one) = match operation {
            Operation::Read => (Topic::ReadThreads, "reader"),
            Operation::Write => (Topic::WriteThreads, "writer"),
        };
        let who = if best.threads == 1 { one.to_owned() } else { format!("{one}s") };
        let steps: Vec<String> =
            points.iter().map(|point| format!("{}: {}", point.threads, rate_text(point.bytes_per_s))).collect();
        let evidence = format!("random {}, by threads: {}", bytes_text(size), steps.join(", "));
        let sentence = if best.threads == last.threads {
            format!("Use {} {who} or more: bandwidth still grew at the most that were measured.", best.threads)
        } else if last.bytes_per_s < peak.bytes_per_s * (1.0 - NOTICED) {
            format!(
                "Use {} {who}: more bring nothing, and {} lose {} % of the bandwidth.",
                best.threads,
                last.threads,
                ((1.0 - last.bytes_per_s / peak.bytes_per_s) * 100.0).round()
            )
        } else {
            format!("Use {} {who}: more bring less than a tenth, and each waits longer.", best.threads)
        };
        finding(Advice::Prefer, topic, Some(f64::from(best.threads)), sentence, evidence)
    }

    /// Latencies of both ways to write, by size, and whether both are sure.
    fn ways(&self) -> Vec<(u64, f64, f64, bool)> {
        let latency = |access, size| {
            let matches = |key: &CellKey| {
                (key.subject, key.operation, key.pattern, key.access, key.access_bytes, key.threads, key.fence_bytes)
                    == (Subject::Target, Operation::Write, Pattern::Random, access, size, 1, 0)
            };
            let cell = self.result.cells.iter().find(|cell| cell.section == Section::Instruction && matches(&cell.key));
            cell.map(|cell| (cell.latency_ns.median, is_sure(cell)))
        };
        let both = |size| {
            let (flush, stream) = (latency(Access::StoreFlush, size)?, latency(Access::Stream, size)?);
            Some((size, flush.0, stream.0, flush.1 && stream.1))
        };
        super::SIZES.into_iter().filter_map(both).collect()
    }

    fn stream_or_flush(&self) -> Option<Observation> {
        let ways = self.ways();
        let ratio = |&(_, flush, stream, sure): &(u64, f64, f64, bool)| settle::Figure { value: stream / flush, sure };
        let ratios = settled(&ways.iter().map(ratio).collect::<Vec<_>>());
        let slower = ratios.iter().rposition(|ratio| *ratio > LEVEL);
        let first = slower.map_or(0, |last| last + 1);
        let at = |(size, flush, stream, _): &(u64, f64, f64, bool)| {
            format!("{}: {} flushed, {} streamed", bytes_text(*size), time_text(*flush), time_text(*stream))
        };
        let examples: Vec<String> = [64, 256, 4096, 1 << 20]
            .iter()
            .filter_map(|size| ways.iter().find(|(known, ..)| known == size))
            .map(at)
            .collect();
        let (Some(border), evidence) = (ways.get(first), examples.join("; ")) else {
            let largest = ways.last()?;
            let sentence = "Store and flush at every size: streaming was slower up to the largest.".to_owned();
            return finding(Advice::Prefer, Topic::StreamFromBytes, None, sentence, at(largest));
        };
        let size = bytes_text(border.0);
        let sentence = if first == 0 {
            "Stream (store around the cache) at every size, unless the data is read again soon.".to_owned()
        } else {
            format!("Store and flush below {size}; stream (store around the cache) from {size} on.")
        };
        finding(Advice::Prefer, Topic::StreamFromBytes, Some(border.0 as f64), sentence, evidence)
    }

    /// Size, threads, bandwidth without and with a fence every 256 bytes, where both are sure.
    fn fence_pairs(&self) -> Vec<(CellKey, f64, f64)> {
        let of_section = |fence_bytes| {
            self.result
                .cells
                .iter()
                .filter(move |cell| cell.section == Section::Fence && cell.key.fence_bytes == fence_bytes)
        };
        of_section(FENCE_BYTES)
            .filter_map(|fenced| {
                let plain_key = CellKey { fence_bytes: 0, ..fenced.key };
                let plain = of_section(0).find(|cell| cell.key == plain_key)?;
                if !is_sure(plain) || !is_sure(fenced) {
                    return None;
                }
                let rate = |cell: &Cell| cell.bandwidth_bytes_per_s.median;
                Some((plain_key, rate(plain), rate(fenced)))
            })
            .collect()
    }

    fn fences(&self) -> Option<Observation> {
        let pairs = self.fence_pairs();
        let gain = |pair: &&(CellKey, f64, f64)| pair.2 / pair.1;
        let extreme = pairs.iter().max_by(|one, other| gain(one).ln().abs().total_cmp(&gain(other).ln().abs()))?;
        let best = pairs.iter().max_by(|one, other| gain(one).total_cmp(&gain(other)))?;
        let (key, plain, fenced) = if gain(&best) > 1.0 + NOTICED { best } else { extreme };
        let (ratio, size, threads) = (fenced / plain, bytes_text(key.access_bytes), threads_text(key.threads));
        let evidence = format!(
            "random writes of {size} with {threads}: {} with one fence at the end, {} with one every 256 B",
            rate_text(*plain),
            rate_text(*fenced)
        );
        if ratio > 1.0 + NOTICED {
            let from = pairs.iter().filter(|pair| gain(pair) > 1.0 + NOTICED).map(|pair| pair.0.access_bytes).min()?;
            let sentence = format!(
                "Avoid large unfenced writes: from {} on, a fence every 256 B has up to {} the bandwidth.",
                bytes_text(from),
                times_text(ratio)
            );
            return finding(Advice::Avoid, Topic::Fence, Some(ratio), sentence, evidence);
        }
        let sentence = if ratio < 1.0 - NOTICED {
            format!(
                "Fence large writes once, at their end: a fence every 256 B leaves {} % of the bandwidth at worst.",
                (ratio * 100.0).round()
            )
        } else {
            "A fence every 256 B inside of large writes makes no difference.".into()
        };
        finding(Advice::Know, Topic::Fence, Some(ratio), sentence, evidence)
    }

    fn single(&self, operation: Operation, pattern: Pattern, bytes: u64) -> Option<&Cell> {
        self.result
            .cells
            .iter()
            .find(|cell| is_plain(cell, operation, pattern) && cell.key.threads == 1 && cell.key.access_bytes == bytes)
    }

    fn small_streams(&self) -> Option<Observation> {
        let of = |bytes| {
            let cell = self.single(Operation::Write, Pattern::Random, bytes)?;
            is_sure(cell).then_some(cell.latency_ns.median)
        };
        let (word, line) = (of(8)?, of(LINE_BYTES)?);
        if word <= line * (1.0 + NOTICED) {
            return None;
        }
        let evidence = format!("random, 1 thread: {} for 8 B, {} for 64 B", time_text(word), time_text(line));
        let sentence = "Avoid streams of less than a line (64 B): they take longer than a whole one.".to_owned();
        finding(Advice::Avoid, Topic::SmallStreams, Some(word / line), sentence, evidence)
    }

    fn small_random(&self, operation: Operation) -> Option<Observation> {
        let (best, peak) = self.best_point(operation, Pattern::Random)?;
        let line = *self.points(operation, Pattern::Random).first()?;
        let share = line.bytes_per_s / peak.bytes_per_s;
        if line.access_bytes == best.access_bytes || share > HALF {
            return None;
        }
        let topic = match operation {
            Operation::Read => Topic::SmallRandomReads,
            Operation::Write => Topic::SmallRandomWrites,
        };
        let (size, best_size) = (bytes_text(line.access_bytes), bytes_text(best.access_bytes));
        let amplified = best.access_bytes <= AMPLIFIED_MAX;
        let evidence =
            format!("{} at {size} against {} at {best_size}", rate_text(line.bytes_per_s), rate_text(best.bytes_per_s));
        let percent = (share * 100.0).round();
        if amplified {
            let sentence = format!(
                "Avoid random {}s below {best_size}: at {size} they get {percent} % of the bandwidth.",
                verb(operation)
            );
            return finding(Advice::Avoid, topic, Some(share), sentence, evidence);
        }
        let sentence = format!(
            "Small random {}s are bound by latency, not by the medium's blocks: at {size} they get {percent} % of the bandwidth.",
            verb(operation)
        );
        finding(Advice::Know, topic, Some(share), sentence, evidence)
    }

    fn large_accesses(&self) -> Option<Observation> {
        let fallen = |operation| {
            let points = self.points(operation, Pattern::Random);
            let peak = highest(&points)?;
            let larger = || points.iter().filter(|point| point.access_bytes > peak.access_bytes);
            let from = larger().find(|point| point.bytes_per_s < peak.bytes_per_s * (1.0 - 2.0 * NOTICED))?;
            let worst = larger().min_by(|one, other| one.bytes_per_s.total_cmp(&other.bytes_per_s))?;
            Some((operation, peak, *from, *worst, worst.bytes_per_s / peak.bytes_per_s))
        };
        let all: Vec<_> = [Operation::Read, Operation::Write].into_iter().filter_map(fallen).collect();
        let from = all.iter().map(|(_, _, from, _, _)| from.access_bytes).min()?;
        let share = all.iter().map(|(_, _, _, _, share)| *share).fold(1.0, f64::min);
        let parts: Vec<String> = all
            .iter()
            .map(|(operation, peak, _, last, _)| {
                format!(
                    "random {}s: {} at {}, {} at {}",
                    verb(*operation),
                    rate_text(peak.bytes_per_s),
                    bytes_text(peak.access_bytes),
                    rate_text(last.bytes_per_s),
                    bytes_text(last.access_bytes)
                )
            })
            .collect();
        let sentence = format!("Avoid accesses of {} and more: bandwidth falls again.", bytes_text(from));
        finding(Advice::Avoid, Topic::LargeAccesses, Some(share), sentence, parts.join("; "))
    }

    fn far(&self, operation: Operation) -> Option<Observation> {
        let of_place = |place| {
            let cells = self.result.cells.iter().filter(move |cell| {
                cell.section == Section::Nodes
                    && (cell.key.operation, cell.key.place, cell.key.access_bytes) == (operation, place, MIXED_BYTES)
            });
            cells.max_by_key(|cell| cell.key.threads)
        };
        let (near, far) = (of_place(Place::Near)?, of_place(Place::Far)?);
        if !is_sure(near) || !is_sure(far) {
            return None;
        }
        let rates = [near, far].map(|cell| cell.bandwidth_bytes_per_s.median);
        let ratio = rates[0] / rates[1];
        let evidence = format!(
            "{}s of 256 B with {}: {} near, {} far",
            verb(operation),
            threads_text(near.key.threads),
            rate_text(rates[0]),
            rate_text(rates[1])
        );
        let topic = if operation == Operation::Read { Topic::FarReads } else { Topic::FarWrites };
        if ratio > 1.0 + NOTICED {
            let sentence = format!(
                "Avoid {}s from another node: near ones have {} the bandwidth.",
                verb(operation),
                times_text(ratio)
            );
            return finding(Advice::Avoid, topic, Some(ratio), sentence, evidence);
        }
        let sentence = format!("{}s from another node are about as fast as near ones.", capital(verb(operation)));
        finding(Advice::Know, topic, Some(ratio), sentence, evidence)
    }

    fn beside(&self, operation: Operation) -> Option<Observation> {
        let of = |threads, beside| {
            self.result.cells.iter().find(|cell| {
                cell.section == Section::Mixed
                    && (cell.key.operation, cell.key.threads, cell.key.beside_threads) == (operation, threads, beside)
            })
        };
        let counts = self.result.cells.iter().filter(|cell| cell.section == Section::Mixed);
        let most = counts.filter(|cell| of(cell.key.threads, 0).is_some() && of(cell.key.threads, 1).is_some());
        let threads = most.map(|cell| cell.key.threads).max()?;
        let (alone, one) = (of(threads, 0)?, of(threads, 1)?);
        if !is_sure(alone) || !is_sure(one) {
            return None;
        }
        let rates = [alone, one].map(|cell| cell.bandwidth_bytes_per_s.median);
        let loss = 1.0 - rates[1] / rates[0];
        let (topic, other) = match operation {
            Operation::Read => (Topic::ReadsBesideWrites, "writer"),
            Operation::Write => (Topic::WritesBesideReads, "reader"),
        };
        let evidence = format!(
            "{} of 256 B {}s: {} alone, {} beside one {other}",
            threads_text(threads),
            verb(operation),
            rate_text(rates[0]),
            rate_text(rates[1])
        );
        if loss < NOTICED {
            let sentence = format!("One {other} beside them hardly slows {}s down.", verb(operation));
            return finding(Advice::Know, topic, Some(loss), sentence, evidence);
        }
        let sentence = format!(
            "Avoid mixing: the first {other} takes {} % of the {} bandwidth.",
            (loss * 100.0).round(),
            verb(operation)
        );
        finding(Advice::Avoid, topic, Some(loss), sentence, evidence)
    }

    fn latency(&self) -> Option<Observation> {
        let of = |operation| Some(self.single(operation, Pattern::Random, LINE_BYTES)?.latency_ns.median);
        let read = of(Operation::Read)?;
        let range = self.result.target.range_bytes;
        let dependent = self
            .result
            .select(|key| (key.subject, key.pattern) == (Subject::Target, Pattern::Dependent))
            .find(|cell| cell.key.working_set_bytes == range);
        let mut sentence = format!("A random read of a line takes {} back to back", time_text(read));
        if let Some(cell) = dependent {
            let nanoseconds = cell.latency_ns.median;
            sentence += &format!(", {} when each waits for the one before", time_text(nanoseconds));
        }
        if let Some(write) = of(Operation::Write) {
            sentence += &format!("; a write that is fenced takes {}", time_text(write));
        }
        let evidence = format!("64 B, 1 thread, over {}", bytes_text(range));
        finding(Advice::Know, Topic::Latency, Some(read), sentence + ".", evidence)
    }

    fn against_dram(&self) -> Option<Observation> {
        let dram = |operation, bytes| {
            let matches = |key: &CellKey| {
                (key.subject, key.operation, key.pattern, key.access_bytes, key.threads)
                    == (Subject::Dram, operation, Pattern::Random, bytes, 1)
            };
            self.result.select(matches).next().map(|cell| cell.latency_ns.median)
        };
        let ratio = |operation| {
            let target = self.single(operation, Pattern::Random, MIXED_BYTES)?.latency_ns.median;
            Some((target, dram(operation, MIXED_BYTES)?))
        };
        let (target, read_dram) = ratio(Operation::Read)?;
        let mut sentence = format!("Reads take {} as long as those of DRAM", times_text(target / read_dram));
        let mut evidence = format!("random 256 B, 1 thread: reads {} and {}", time_text(target), time_text(read_dram));
        if let Some((write, write_dram)) = ratio(Operation::Write) {
            sentence += &format!(", writes {}", times_text(write / write_dram));
            evidence += &format!(", writes {} and {}", time_text(write), time_text(write_dram));
        }
        finding(Advice::Know, Topic::Dram, Some(target / read_dram), sentence + ".", evidence)
    }

    fn against_file(&self) -> Option<Observation> {
        let of = |operation, access, bytes| {
            let matches = |key: &CellKey| {
                (key.subject, key.operation, key.access, key.access_bytes) == (Subject::File, operation, access, bytes)
            };
            self.result.select(matches).next().map(|cell| cell.latency_ns.median)
        };
        let cached = of(Operation::Read, Access::Buffered, 4096)?;
        let mut sentence = format!("Through the kernel, 4 KiB take {} from the page cache", time_text(cached));
        if let Some(direct) = of(Operation::Read, Access::Direct, 4096) {
            sentence += &format!(", {} from the device", time_text(direct));
        }
        if let Some(synced) = of(Operation::Write, Access::BufferedSync, 4096) {
            sentence += &format!(", {} to be written and synced", time_text(synced));
        }
        let mapped = self.single(Operation::Read, Pattern::Random, 4096).map(|cell| cell.latency_ns.median);
        let evidence = match mapped {
            Some(mapped) => format!("random, 1 thread; the mapping itself reads 4 KiB in {}", time_text(mapped)),
            None => "random, 1 thread".into(),
        };
        finding(Advice::Know, Topic::File, Some(cached), sentence + ".", evidence)
    }

    fn noise(&self) -> Option<Observation> {
        if self.result.method.repetitions < 2 || self.result.cells.is_empty() {
            return None;
        }
        let all = self.result.cells.len();
        let noisy = self.result.cells.iter().filter(|cell| cell.latency_ns.variation > VARIATION_MAX).count();
        let share = noisy as f64 / all as f64;
        let sentence = if share > 0.25 {
            "The machine was not quiet: take differences of less than a third for nothing, and measure again."
                .to_owned()
        } else {
            "The repetitions agree well enough.".to_owned()
        };
        let unsure = self.result.cells.iter().filter(|cell| !is_sure(cell)).count();
        let evidence = format!(
            "{noisy} of {all} figures scatter by more than 5 % (coefficient of variation); {unsure} by more than {} %, which \
             decide nothing",
            UNSURE * 100.0
        );
        finding(Advice::Know, Topic::Noise, Some(share), sentence, evidence)
    }
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
mod tests;
