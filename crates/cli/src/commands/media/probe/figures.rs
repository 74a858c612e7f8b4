//! The figures of a probe: the paper's Figures 1 to 14 for this machine, and more figures for the probe's own
//! questions.
//!
//! Invariants: a figure is drawn only when it has points, and the notes of the result explain the missing ones. A y
//! axis begins at zero, or its label says that it is logarithmic.

use lodestone_media::probe::{
    Access, Cell, CellKey, FENCE_BYTES, Operation, Pattern, Place, ProbeResult, Section, Subject, bytes_text,
};
use lodestone_report::figure::{Figure, Unit};
use lodestone_width::nearest_f64;

/// Sizes of Figure 10's lines.
const BY_THREADS_SIZES: [u64; 6] = [64, 256, 1 << 10, 4 << 10, 64 << 10, 1 << 20];
/// The largest size of the small sizes in Figures 8 and 9.
const SMALL_MAX: u64 = 512;

/// The quantity of a cell that a line shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Measure {
    Latency,
    Bandwidth,
}

impl Measure {
    fn of(self, cell: &Cell) -> f64 {
        match self {
            Self::Latency => cell.latency_ns.median,
            Self::Bandwidth => cell.bandwidth_bytes_per_s.median,
        }
    }

    fn axis(self, figure: Figure) -> Figure {
        match self {
            Self::Latency => figure.y_axis("latency", Unit::Nanoseconds).zero_y(),
            Self::Bandwidth => figure.y_axis("bandwidth", Unit::BytesPerSecond).zero_y(),
        }
    }

    fn logarithmic_axis(self, figure: Figure) -> Figure {
        match self {
            Self::Latency => figure.y_axis("latency (logarithmic)", Unit::Nanoseconds).log_y(),
            Self::Bandwidth => figure.y_axis("bandwidth (logarithmic)", Unit::BytesPerSecond).log_y(),
        }
    }
}

/// Points of the cells that are wanted, along `x`, ascending.
fn points(
    result: &ProbeResult,
    wanted: impl Fn(&Cell) -> bool,
    x: impl Fn(&CellKey) -> f64,
    measure: Measure,
) -> Vec<(f64, f64)> {
    let cells = result.cells.iter().filter(|cell| wanted(cell));
    let mut points: Vec<(f64, f64)> = cells.map(|cell| (x(&cell.key), measure.of(cell))).collect();
    points.sort_by(|one, other| one.0.total_cmp(&other.0));
    points
}

fn by_size(key: &CellKey) -> f64 {
    nearest_f64(key.access_bytes)
}

fn threads_text(threads: u32) -> String {
    if threads == 1 { "1 thread".into() } else { format!("{threads} threads") }
}

fn is_swept(cell: &Cell, operation: Operation, pattern: Pattern) -> bool {
    matches!(cell.section, Section::Latency | Section::Threads)
        && (cell.key.subject, cell.key.operation, cell.key.pattern) == (Subject::Target, operation, pattern)
}

/// A figure with its lines, unless none of them has points.
struct Drawing {
    figure: Figure,
    points: usize,
}

impl Drawing {
    fn new(figure: Figure) -> Self {
        Self { figure, points: 0 }
    }

    fn line(mut self, name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        if !points.is_empty() {
            self.points += points.len();
            self.figure = self.figure.series(name, points);
        }
        self
    }

    fn finish(self) -> Option<Figure> {
        (self.points > 0).then_some(self.figure)
    }
}

/// All figures of `section`, in the paper's order.
pub fn of_section(result: &ProbeResult, section: Section) -> Vec<Figure> {
    let drawn = match section {
        Section::Latency => vec![small_or_large(result, true), small_or_large(result, false), working_sets(result)],
        Section::Threads => threads(result),
        Section::Fence => vec![fence(result)],
        Section::Instruction => vec![instruction(result, Pattern::Random), instruction(result, Pattern::Sequential)],
        Section::Mixed => mixed(result),
        Section::Nodes => vec![nodes(result, Operation::Read), nodes(result, Operation::Write)],
        Section::Compare => {
            vec![against_dram(result, Operation::Read), against_dram(result, Operation::Write), files(result)]
        }
    };
    drawn.into_iter().flatten().collect()
}

/// Figures 8 and 9, reads and writes.
fn small_or_large(result: &ProbeResult, small: bool) -> Option<Figure> {
    let (title, number) = if small { ("small", 8) } else { ("large", 9) };
    let figure = Figure::line(format!("Latency of {title} accesses, one thread (as paper 2, Figure {number})"))
        .x_axis("access size", Unit::Bytes)
        .log_x();
    let latency = Measure::Latency;
    let mut drawing = Drawing::new(if small { latency.axis(figure) } else { latency.logarithmic_axis(figure) });
    for (operation, pattern, name) in [
        (Operation::Read, Pattern::Random, "random read"),
        (Operation::Read, Pattern::Sequential, "sequential read"),
        (Operation::Write, Pattern::Random, "random write (streamed)"),
        (Operation::Write, Pattern::Sequential, "sequential write (streamed)"),
    ] {
        let wanted = |cell: &Cell| {
            let in_range = if small { cell.key.access_bytes <= SMALL_MAX } else { cell.key.access_bytes >= SMALL_MAX };
            cell.section == Section::Latency && is_swept(cell, operation, pattern) && in_range
        };
        drawing = drawing.line(name, points(result, wanted, by_size, Measure::Latency));
    }
    drawing.finish()
}

fn working_sets(result: &ProbeResult) -> Option<Figure> {
    let figure = Figure::line("Reads that wait for each other, by bytes ranged over")
        .x_axis("range", Unit::Bytes)
        .log_x()
        .y_axis("latency", Unit::Nanoseconds)
        .zero_y()
        .note(
            "64 bytes each; the address of a read depends on what the read before it found. Steps are the processor's \
             caches; the right end is the medium (with the misses of address translation).",
        );
    let wanted = |cell: &Cell| cell.key.pattern == Pattern::Dependent;
    let along = |key: &CellKey| nearest_f64(key.working_set_bytes);
    let points = points(result, wanted, along, Measure::Latency);
    if points.len() < 2 { None } else { Drawing::new(figure).line("dependent read", points).finish() }
}

/// Figures 1 to 4, 6, 7 and 10.
fn threads(result: &ProbeResult) -> Vec<Option<Figure>> {
    if result.method.thread_counts.len() < 2 || !result.method.sections.contains(&Section::Threads) {
        return Vec::new();
    }
    let (read, write) = (Operation::Read, Operation::Write);
    let (random, sequential) = (Pattern::Random, Pattern::Sequential);
    vec![
        swept(result, 1, "Latency of random reads", (read, random), Measure::Latency),
        swept(result, 2, "Latency of random writes (streamed)", (write, random), Measure::Latency),
        swept(result, 3, "Bandwidth of random reads", (read, random), Measure::Bandwidth),
        swept(result, 4, "Bandwidth of random writes (streamed)", (write, random), Measure::Bandwidth),
        swept(result, 6, "Bandwidth of sequential reads", (read, sequential), Measure::Bandwidth),
        swept(result, 7, "Bandwidth of sequential writes (streamed)", (write, sequential), Measure::Bandwidth),
        by_threads(result, read),
        by_threads(result, write),
    ]
}

fn swept(
    result: &ProbeResult,
    number: u32,
    title: &str,
    (operation, pattern): (Operation, Pattern),
    measure: Measure,
) -> Option<Figure> {
    let figure = Figure::line(format!("{title} by size and threads (as paper 2, Figure {number})"))
        .x_axis("access size", Unit::Bytes)
        .log_x();
    let is_latency = measure == Measure::Latency;
    let mut drawing = Drawing::new(if is_latency { measure.logarithmic_axis(figure) } else { measure.axis(figure) });
    for threads in &result.method.thread_counts {
        let wanted = |cell: &Cell| is_swept(cell, operation, pattern) && cell.key.threads == *threads;
        drawing = drawing.line(threads_text(*threads), points(result, wanted, by_size, measure));
    }
    drawing.finish()
}

fn by_threads(result: &ProbeResult, operation: Operation) -> Option<Figure> {
    let name = if operation == Operation::Read { "reads" } else { "writes (streamed)" };
    let figure = Figure::line(format!("Latency of random {name} by threads (as paper 2, Figure 10)"))
        .x_axis("threads", Unit::Count)
        .y_axis("latency (logarithmic)", Unit::Nanoseconds)
        .log_y();
    let mut drawing = Drawing::new(figure);
    for size in BY_THREADS_SIZES {
        let wanted = |cell: &Cell| is_swept(cell, operation, Pattern::Random) && cell.key.access_bytes == size;
        let along = |key: &CellKey| f64::from(key.threads);
        drawing = drawing.line(bytes_text(size), points(result, wanted, along, Measure::Latency));
    }
    drawing.finish()
}

/// Figure 5.
fn fence(result: &ProbeResult) -> Option<Figure> {
    let figure = Figure::line("Bandwidth of random writes with a fence every 256 B (as paper 2, Figure 5)")
        .x_axis("access size", Unit::Bytes)
        .log_x()
        .y_axis("bandwidth", Unit::BytesPerSecond)
        .zero_y();
    let mut drawing = Drawing::new(figure);
    let counts = &result.method.thread_counts;
    let mut shown: Vec<u32> = counts.first().into_iter().chain(counts.get(counts.len() / 2)).copied().collect();
    shown.extend(counts.last());
    shown.dedup();
    for threads in shown {
        for (fence_bytes, name) in [(0, "one fence"), (FENCE_BYTES, "a fence every 256 B")] {
            let wanted = |cell: &Cell| {
                (cell.section, cell.key.threads, cell.key.fence_bytes) == (Section::Fence, threads, fence_bytes)
            };
            let points = points(result, wanted, by_size, Measure::Bandwidth);
            drawing = drawing.line(format!("{name}, {}", threads_text(threads)), points);
        }
    }
    drawing.finish()
}

fn instruction(result: &ProbeResult, pattern: Pattern) -> Option<Figure> {
    let order = if pattern == Pattern::Sequential { "sequential" } else { "random" };
    let figure = Figure::line(format!("Store and flush against streaming stores, {order}, one thread"))
        .x_axis("access size", Unit::Bytes)
        .log_x()
        .y_axis("latency (logarithmic)", Unit::Nanoseconds)
        .log_y();
    let mut drawing = Drawing::new(figure);
    for (access, name) in [(Access::StoreFlush, "store and flush"), (Access::Stream, "stream")] {
        let wanted =
            |cell: &Cell| (cell.section, cell.key.access, cell.key.pattern) == (Section::Instruction, access, pattern);
        drawing = drawing.line(name, points(result, wanted, by_size, Measure::Latency));
    }
    drawing.finish()
}

/// Figures 11 to 14.
fn mixed(result: &ProbeResult) -> Vec<Option<Figure>> {
    let (read, write) = (Operation::Read, Operation::Write);
    vec![
        beside(result, 11, read, Measure::Bandwidth),
        beside(result, 12, write, Measure::Bandwidth),
        beside(result, 13, read, Measure::Latency),
        beside(result, 14, write, Measure::Latency),
    ]
}

fn beside(result: &ProbeResult, number: u32, operation: Operation, measure: Measure) -> Option<Figure> {
    let what = if measure == Measure::Latency { "Latency" } else { "Bandwidth" };
    let (own, own_one, other) = match operation {
        Operation::Read => ("reads", "reader", "writers"),
        Operation::Write => ("writes", "writer", "readers"),
    };
    let figure = Figure::line(format!("{what} of {own} beside {other}, 256 B at random (as paper 2, Figure {number})"))
        .x_axis(format!("{other} beside them"), Unit::Count);
    let mut drawing = Drawing::new(measure.axis(figure));
    let is_mixed = |cell: &Cell| cell.section == Section::Mixed && cell.key.operation == operation;
    let mut fixed: Vec<u32> = result.cells.iter().filter(|cell| is_mixed(cell)).map(|cell| cell.key.threads).collect();
    fixed.sort_unstable();
    fixed.dedup();
    for threads in fixed {
        let wanted = |cell: &Cell| is_mixed(cell) && cell.key.threads == threads;
        let along = |key: &CellKey| f64::from(key.beside_threads);
        let points = points(result, wanted, along, measure);
        // These counts ran only beside fixed ones of the other kind and were never measured alone, so they get no
        // separate line.
        if points.len() > 1 && points.first().is_some_and(|(beside, _)| *beside == 0.0) {
            let plural = if threads == 1 { "" } else { "s" };
            drawing = drawing.line(format!("{threads} {own_one}{plural}"), points);
        }
    }
    drawing.finish()
}

fn nodes(result: &ProbeResult, operation: Operation) -> Option<Figure> {
    let name = if operation == Operation::Read { "reads" } else { "writes (streamed)" };
    let figure = Figure::line(format!("Random {name} from the near and from the far node (as paper 4, Figure 2)"))
        .x_axis("access size", Unit::Bytes)
        .log_x()
        .y_axis("bandwidth", Unit::BytesPerSecond)
        .zero_y();
    let mut drawing = Drawing::new(figure);
    for threads in &result.method.thread_counts {
        for (place, word) in [(Place::Near, "near"), (Place::Far, "far")] {
            let wanted = |cell: &Cell| {
                (cell.section, cell.key.operation, cell.key.place, cell.key.threads)
                    == (Section::Nodes, operation, place, *threads)
            };
            let points = points(result, wanted, by_size, Measure::Bandwidth);
            drawing = drawing.line(format!("{word}, {}", threads_text(*threads)), points);
        }
    }
    drawing.finish()
}

fn against_dram(result: &ProbeResult, operation: Operation) -> Option<Figure> {
    let (name, number) = if operation == Operation::Read { ("reads", 7) } else { ("writes (streamed)", 8) };
    let figure = Figure::line(format!("Latency of random {name} beside DRAM, one thread (paper 2, Table {number})"))
        .x_axis("access size", Unit::Bytes)
        .log_x()
        .y_axis("latency (logarithmic)", Unit::Nanoseconds)
        .log_y();
    let of_dram =
        |cell: &Cell| (cell.key.subject, cell.key.operation, cell.key.threads) == (Subject::Dram, operation, 1);
    let of_target = |cell: &Cell| cell.section == Section::Latency && is_swept(cell, operation, Pattern::Random);
    let dram = points(result, of_dram, by_size, Measure::Latency);
    if dram.is_empty() {
        return None;
    }
    Drawing::new(figure)
        .line("target", points(result, of_target, by_size, Measure::Latency))
        .line("DRAM", dram)
        .finish()
}

fn files(result: &ProbeResult) -> Option<Figure> {
    let figure = Figure::line("Bandwidth of a file through the kernel, at random, one thread")
        .x_axis("access size", Unit::Bytes)
        .log_x()
        .y_axis("bandwidth (logarithmic)", Unit::BytesPerSecond)
        .log_y()
        .note("io_uring has up to 32 accesses in flight, everything else one.");
    let mut drawing = Drawing::new(figure);
    for (operation, access, name) in [
        (Operation::Read, Access::Buffered, "pread, page cache"),
        (Operation::Write, Access::Buffered, "pwrite, page cache"),
        (Operation::Write, Access::BufferedSync, "pwrite and fdatasync"),
        (Operation::Read, Access::Direct, "direct pread"),
        (Operation::Write, Access::Direct, "direct pwrite"),
        (Operation::Read, Access::Uring, "io_uring read"),
        (Operation::Write, Access::Uring, "io_uring write"),
    ] {
        let wanted =
            |cell: &Cell| (cell.key.subject, cell.key.operation, cell.key.access) == (Subject::File, operation, access);
        drawing = drawing.line(name, points(result, wanted, by_size, Measure::Bandwidth));
    }
    drawing.finish()
}
