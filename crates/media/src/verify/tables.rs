//! Tables 3 to 8 of paper 2, cell by cell.

use lodestone_pmem::Result;

use super::cell::{Cell, Expected};
use super::measure::{Access, Order, latency};
use crate::profile::MediaProfile;

/// A cell may be off by this fraction.
pub(super) const LATENCY_TOLERANCE: f64 = 0.15;

const SMALL: [u64; 8] = [8, 16, 32, 64, 128, 256, 512, 1024];
const LARGE: [u64; 8] = [1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20];

/// A column of a table.
struct Column {
    table: &'static str,
    medium: &'static str,
    access: Access,
    order: Order,
    sizes: [u64; 8],
    /// As printed, ns.
    cells: [f64; 8],
}

const READ: Access = Access::Read;
const WRITE: Access = Access::Write;
const RANDOM: Order = Order::Random;
const SEQUENTIAL: Order = Order::Sequential;

const READ_RANDOM_SMALL: [f64; 8] = [200.0, 196.0, 196.0, 201.0, 198.0, 241.0, 309.0, 611.0];
const WRITE_RANDOM_SMALL: [f64; 8] = [658.0, 669.0, 663.0, 190.0, 203.0, 218.0, 279.0, 538.0];

fn column(
    table: &'static str,
    medium: &'static str,
    access: Access,
    order: Order,
    sizes: [u64; 8],
    cells: [f64; 8],
) -> Column {
    Column { table, medium, access, order, sizes, cells }
}

fn optane_columns() -> [Column; 10] {
    let read_random = [611.0, 2361.0, 7368.0, 29086.0, 0.12e6, 1.09e6, 5.68e6, 22.81e6];
    let read_sequential = [589.0, 2326.0, 7273.0, 28850.0, 0.12e6, 1.09e6, 5.68e6, 22.82e6];
    let write_random = [538.0, 2006.0, 8000.0, 31597.0, 0.13e6, 0.51e6, 2.61e6, 10.37e6];
    let write_sequential = [503.0, 2004.0, 8089.0, 32115.0, 0.13e6, 0.51e6, 2.60e6, 10.50e6];
    let read_sequential_small = [30.0, 53.0, 70.0, 101.0, 124.0, 191.0, 304.0, 589.0];
    let write_sequential_small = [694.0, 717.0, 774.0, 187.0, 199.0, 217.0, 259.0, 503.0];
    [
        column("Table 3", "AEP", READ, RANDOM, SMALL, READ_RANDOM_SMALL),
        column("Table 3", "AEP", READ, SEQUENTIAL, SMALL, read_sequential_small),
        column("Table 4", "AEP", READ, RANDOM, LARGE, read_random),
        column("Table 4", "AEP", READ, SEQUENTIAL, LARGE, read_sequential),
        column("Table 5", "AEP", WRITE, RANDOM, SMALL, WRITE_RANDOM_SMALL),
        column("Table 5", "AEP", WRITE, SEQUENTIAL, SMALL, write_sequential_small),
        column("Table 6", "AEP", WRITE, RANDOM, LARGE, write_random),
        column("Table 6", "AEP", WRITE, SEQUENTIAL, LARGE, write_sequential),
        column("Table 7", "AEP", READ, RANDOM, SMALL, READ_RANDOM_SMALL),
        column("Table 8", "AEP", WRITE, RANDOM, SMALL, WRITE_RANDOM_SMALL),
    ]
}

fn dram_columns() -> [Column; 2] {
    let read = [46.0, 33.0, 33.0, 40.0, 43.0, 57.0, 93.0, 173.0];
    let write = [238.0, 238.0, 239.0, 174.0, 185.0, 200.0, 234.0, 361.0];
    [column("Table 7", "DRAM", READ, RANDOM, SMALL, read), column("Table 8", "DRAM", WRITE, RANDOM, SMALL, write)]
}

/// The columns that an Optane module was measured for.
pub(super) fn optane(profile: &MediaProfile) -> Result<Vec<Cell>> {
    columns(profile, &optane_columns())
}

/// The columns that DRAM was measured for.
pub(super) fn dram(profile: &MediaProfile) -> Result<Vec<Cell>> {
    columns(profile, &dram_columns())
}

fn columns(profile: &MediaProfile, columns: &[Column]) -> Result<Vec<Cell>> {
    let mut cells = Vec::new();
    for column in columns {
        for (bytes, paper) in column.sizes.into_iter().zip(column.cells) {
            cells.push(cell(profile, column, bytes, paper)?);
        }
    }
    Ok(cells)
}

fn cell(profile: &MediaProfile, column: &Column, bytes: u64, paper: f64) -> Result<Cell> {
    let reached = latency(profile, column.access, column.order, bytes)?;
    // The processor overlaps the program's own work with a miss. After a hit there is no waiting time to overlap with.
    let own_ns = profile.instrument.cached_read_ns.as_ref().map_or(0.0, |curve| curve.at(bytes));
    let order = if column.order == RANDOM { "random" } else { "sequential" };
    let access = if matches!(column.access, Access::Read) { "read" } else { "write" };
    Ok(Cell {
        group: format!("paper 2, {}", column.table),
        name: format!("{} {order} {access} {}", column.medium, size(bytes)),
        unit: "ns",
        expected: Expected::Value { value: paper, tolerance: LATENCY_TOLERANCE },
        model: reached.latency_ns,
        instrument: own_ns * reached.cached_fraction,
        judged: true,
    })
}

/// A size as the tables print it.
pub(super) fn size(bytes: u64) -> String {
    if bytes < 1 << 10 { format!("{bytes} B") } else { format!("{} KB", bytes >> 10) }
}
