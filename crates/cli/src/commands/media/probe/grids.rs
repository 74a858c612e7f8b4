//! The tables of a probe, for the terminal and for the page alike.

use lodestone_media::probe::{
    Access, Cell, CellKey, FENCE_BYTES, Operation, Pattern, Place, ProbeResult, SIZES, Section, Subject, bytes_text,
    rate_text, time_text,
};
use lodestone_report::html::Table;

use crate::output::table;

/// The smallest size in the paper's second table of a kind.
const LARGE_FROM: u64 = 1024;

/// A table with its caption.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Its section.
    pub section: Section,
    /// Its caption.
    pub caption: String,
    titles: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Grid {
    fn new(section: Section, caption: &str, titles: &[&str]) -> Self {
        let titles = titles.iter().map(|title| (*title).to_owned()).collect();
        Self { section, caption: caption.into(), titles, rows: Vec::new() }
    }

    /// Adds a row unless all but its first cell are empty.
    fn push(&mut self, row: Vec<String>) {
        if row.iter().skip(1).any(|cell| cell != "-") {
            self.rows.push(row);
        }
    }

    /// For the terminal.
    pub fn to_text(&self) -> String {
        let titles: Vec<&str> = self.titles.iter().map(String::as_str).collect();
        let mut rows = table(&titles);
        for row in &self.rows {
            rows.add_row(row);
        }
        format!("{}\n{rows}", self.caption)
    }

    /// For the page.
    pub fn to_html(&self) -> Table {
        let table = Table::new(self.titles.clone()).caption(self.caption.clone());
        self.rows.iter().fold(table, |table, row| table.row(row.clone()))
    }
}

/// All tables that have rows.
pub fn all(result: &ProbeResult) -> Vec<Grid> {
    let mut grids = Vec::new();
    for operation in [Operation::Read, Operation::Write] {
        grids.extend(latencies(result, operation));
    }
    grids.push(working_sets(result));
    for operation in [Operation::Read, Operation::Write] {
        for pattern in [Pattern::Random, Pattern::Sequential] {
            grids.push(bandwidths(result, operation, pattern));
        }
    }
    grids.push(fences(result));
    grids.push(instructions(result));
    grids.push(mixed(result));
    grids.push(nodes(result));
    for operation in [Operation::Read, Operation::Write] {
        grids.push(against_dram(result, operation));
    }
    grids.push(files(result));
    grids.retain(|grid| !grid.rows.is_empty());
    grids
}

/// The cell of `section` whose key satisfies `wanted`.
pub fn cell(result: &ProbeResult, section: Section, wanted: impl Fn(&CellKey) -> bool) -> Option<&Cell> {
    result.cells.iter().find(|cell| cell.section == section && wanted(&cell.key))
}

fn latency(cell: Option<&Cell>) -> String {
    cell.map_or_else(|| "-".into(), |cell| time_text(cell.latency_ns.median))
}

fn bandwidth(cell: Option<&Cell>) -> String {
    cell.map_or_else(|| "-".into(), |cell| rate_text(cell.bandwidth_bytes_per_s.median))
}

fn ratio(one: Option<&Cell>, other: Option<&Cell>, of: impl Fn(&Cell) -> f64) -> String {
    match (one, other) {
        (Some(one), Some(other)) if of(other) > 0.0 => format!("{:.2}", of(one) / of(other)),
        _ => "-".into(),
    }
}

fn variation(cells: &[Option<&Cell>]) -> String {
    let most = cells.iter().flatten().map(|cell| cell.latency_ns.variation).fold(f64::NAN, f64::max);
    if most.is_finite() { format!("{:.1} %", most * 100.0) } else { "-".into() }
}

fn noun(operation: Operation) -> &'static str {
    match operation {
        Operation::Read => "reads",
        Operation::Write => "writes (streamed)",
    }
}

/// Tables 3 to 6.
fn latencies(result: &ProbeResult, operation: Operation) -> [Grid; 2] {
    let numbers = if operation == Operation::Read { ["3", "4"] } else { ["5", "6"] };
    let grid = |index: usize, range: &str| {
        let caption =
            format!("Latency of {} of {range}, 1 thread (paper 2, Table {})", noun(operation), numbers[index]);
        let mut grid = Grid::new(Section::Latency, &caption, &["size", "random", "sequential", "ratio", "variation"]);
        for size in SIZES.into_iter().filter(|size| if index == 0 { *size <= LARGE_FROM } else { *size >= LARGE_FROM })
        {
            let of = |pattern| {
                cell(result, Section::Latency, |key| {
                    (key.operation, key.pattern, key.access_bytes) == (operation, pattern, size)
                })
            };
            let (random, sequential) = (of(Pattern::Random), of(Pattern::Sequential));
            grid.push(vec![
                bytes_text(size),
                latency(random),
                latency(sequential),
                ratio(random, sequential, |cell| cell.latency_ns.median),
                variation(&[random, sequential]),
            ]);
        }
        grid
    };
    [grid(0, "8 B to 1 KiB"), grid(1, "1 KiB to 16 MiB")]
}

fn working_sets(result: &ProbeResult) -> Grid {
    let caption = "Latency of reads of 64 bytes that wait for each other, by bytes ranged over";
    let mut grid = Grid::new(Section::Latency, caption, &["range", "latency", "variation"]);
    let cells = result.cells.iter().filter(|cell| cell.key.pattern == Pattern::Dependent);
    for cell in cells {
        grid.push(vec![bytes_text(cell.key.working_set_bytes), latency(Some(cell)), variation(&[Some(cell)])]);
    }
    grid
}

/// Bandwidth by size and threads: the figures of Figures 3, 4, 6 and 7.
fn bandwidths(result: &ProbeResult, operation: Operation, pattern: Pattern) -> Grid {
    let (order, number) = match (pattern, operation) {
        (Pattern::Sequential, Operation::Read) => ("sequential", 6),
        (Pattern::Sequential, Operation::Write) => ("sequential", 7),
        (_, Operation::Read) => ("random", 3),
        (_, Operation::Write) => ("random", 4),
    };
    let caption = format!("Bandwidth of {order} {} by threads (paper 2, Figure {number})", noun(operation));
    let counts = &result.method.thread_counts;
    let titles: Vec<String> = counts.iter().map(|count| format!("{count} thr.")).collect();
    let titles: Vec<&str> = std::iter::once("size").chain(titles.iter().map(String::as_str)).collect();
    let mut grid = Grid::new(Section::Threads, &caption, &titles);
    if counts.len() < 2 {
        return grid;
    }
    for size in SIZES {
        let row = counts.iter().map(|threads| {
            let section = if *threads == 1 { Section::Latency } else { Section::Threads };
            bandwidth(cell(result, section, |key| {
                (key.operation, key.pattern, key.access_bytes, key.threads) == (operation, pattern, size, *threads)
            }))
        });
        grid.push(std::iter::once(bytes_text(size)).chain(row).collect());
    }
    grid
}

fn fences(result: &ProbeResult) -> Grid {
    let caption = "Random writes (streamed) with one fence at the end and with one every 256 B (paper 2, Figure 5)";
    let titles = ["size", "threads", "one fence", "every 256 B", "ratio"];
    let mut grid = Grid::new(Section::Fence, caption, &titles);
    for threads in &result.method.thread_counts {
        for size in SIZES {
            let of = |fence_bytes| {
                cell(result, Section::Fence, |key| {
                    (key.threads, key.access_bytes, key.fence_bytes) == (*threads, size, fence_bytes)
                })
            };
            let (plain, fenced) = (of(0), of(FENCE_BYTES));
            if plain.is_some() {
                grid.push(vec![
                    bytes_text(size),
                    threads.to_string(),
                    bandwidth(plain),
                    bandwidth(fenced),
                    ratio(fenced, plain, |cell| cell.bandwidth_bytes_per_s.median),
                ]);
            }
        }
    }
    grid
}

fn instructions(result: &ProbeResult) -> Grid {
    let caption = "Latency of store and flush against streaming stores, fenced, 1 thread";
    let titles = ["size", "flush random", "stream random", "ratio", "flush sequential", "stream sequential", "ratio"];
    let mut grid = Grid::new(Section::Instruction, caption, &titles);
    for size in SIZES {
        let of = |access, pattern| {
            cell(result, Section::Instruction, |key| {
                (key.access, key.pattern, key.access_bytes) == (access, pattern, size)
            })
        };
        let mut row = vec![bytes_text(size)];
        for pattern in [Pattern::Random, Pattern::Sequential] {
            let (flushed, streamed) = (of(Access::StoreFlush, pattern), of(Access::Stream, pattern));
            row.extend([latency(flushed), latency(streamed), ratio(flushed, streamed, |cell| cell.latency_ns.median)]);
        }
        grid.push(row);
    }
    grid
}

fn mixed(result: &ProbeResult) -> Grid {
    let caption = "Readers beside writers, 256 B at random (paper 2, Figures 11 to 14)";
    let titles = ["readers", "writers", "read", "written", "read latency", "write latency"];
    let mut grid = Grid::new(Section::Mixed, caption, &titles);
    let mut pairs: Vec<(u32, u32)> = result
        .cells
        .iter()
        .filter(|cell| cell.section == Section::Mixed)
        .map(|cell| match cell.key.operation {
            Operation::Read => (cell.key.threads, cell.key.beside_threads),
            Operation::Write => (cell.key.beside_threads, cell.key.threads),
        })
        .collect();
    pairs.sort_unstable();
    pairs.dedup();
    for (readers, writers) in pairs {
        let of = |operation, threads, beside| {
            cell(result, Section::Mixed, |key| {
                (key.operation, key.threads, key.beside_threads) == (operation, threads, beside)
            })
        };
        let (read, write) = (of(Operation::Read, readers, writers), of(Operation::Write, writers, readers));
        grid.rows.push(vec![
            readers.to_string(),
            writers.to_string(),
            bandwidth(read),
            bandwidth(write),
            latency(read),
            latency(write),
        ]);
    }
    grid
}

fn nodes(result: &ProbeResult) -> Grid {
    let caption = "Random accesses from the near and from the far node (paper 4, Figure 2)";
    let titles = ["size", "threads", "read near", "read far", "near/far", "write near", "write far", "near/far"];
    let mut grid = Grid::new(Section::Nodes, caption, &titles);
    for threads in &result.method.thread_counts {
        for size in SIZES {
            let of = |operation, place| {
                cell(result, Section::Nodes, |key| {
                    (key.operation, key.place, key.access_bytes, key.threads) == (operation, place, size, *threads)
                })
            };
            let mut row = vec![bytes_text(size), threads.to_string()];
            for operation in [Operation::Read, Operation::Write] {
                let (near, far) = (of(operation, Place::Near), of(operation, Place::Far));
                let rates = ratio(near, far, |cell| cell.bandwidth_bytes_per_s.median);
                row.extend([bandwidth(near), bandwidth(far), rates]);
            }
            if row.iter().skip(2).any(|cell| cell != "-") {
                grid.rows.push(row);
            }
        }
    }
    grid
}

/// Tables 7 and 8, for all sizes.
fn against_dram(result: &ProbeResult, operation: Operation) -> Grid {
    let number = if operation == Operation::Read { 7 } else { 8 };
    let caption = format!("Latency of random {}, 1 thread, beside DRAM (paper 2, Table {number})", noun(operation));
    let mut grid = Grid::new(Section::Compare, &caption, &["size", "target", "DRAM", "ratio"]);
    for size in SIZES {
        let of = |section, subject| {
            cell(result, section, |key| {
                (key.subject, key.operation, key.pattern, key.access_bytes, key.threads)
                    == (subject, operation, Pattern::Random, size, 1)
            })
        };
        let (target, dram) = (of(Section::Latency, Subject::Target), of(Section::Compare, Subject::Dram));
        if dram.is_some() {
            let ratio = ratio(target, dram, |cell| cell.latency_ns.median);
            grid.push(vec![bytes_text(size), latency(target), latency(dram), ratio]);
        }
    }
    grid
}

fn files(result: &ProbeResult) -> Grid {
    let caption = "Time of an access to a file through the kernel, at random, 1 thread (io_uring: up to 32 in flight)";
    let ways = [
        ("pread", Operation::Read, Access::Buffered),
        ("pwrite", Operation::Write, Access::Buffered),
        ("pwrite, fdatasync", Operation::Write, Access::BufferedSync),
        ("direct pread", Operation::Read, Access::Direct),
        ("direct pwrite", Operation::Write, Access::Direct),
        ("io_uring read", Operation::Read, Access::Uring),
        ("io_uring write", Operation::Write, Access::Uring),
    ];
    let titles: Vec<&str> = std::iter::once("size").chain(ways.iter().map(|(name, _, _)| *name)).collect();
    let mut grid = Grid::new(Section::Compare, caption, &titles);
    for size in SIZES {
        let row = ways.iter().map(|(_, operation, access)| {
            latency(cell(result, Section::Compare, |key| {
                (key.subject, key.operation, key.access, key.access_bytes) == (Subject::File, *operation, *access, size)
            }))
        });
        grid.push(std::iter::once(bytes_text(size)).chain(row).collect());
    }
    grid
}
