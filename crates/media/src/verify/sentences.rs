//! The papers' statements in words and figures: ceilings, best sizes, threads, mixed load, other nodes.
//!
//! A sentence becomes a range. If a word leaves it open ("steeply", "about"), the range shows how the word was read.

use lodestone_pmem::Result;

use super::cell::{Cell, Expected};
use super::measure::{Access, Group, Order, Reached, run};
use super::tables::size;
use crate::profile::MediaProfile;

/// A bandwidth may be off by this fraction.
const BANDWIDTH_TOLERANCE: f64 = 0.10;
const FACTOR_TOLERANCE: f64 = 0.15;
/// Threads of the paper's sweep.
const THREADS: [usize; 5] = [1, 2, 4, 8, 16];
const SIZES: [u64; 5] = [64, 128, 256, 1024, 4096];
/// Share of the maximum that counts as "reaches the maximum".
const REACHES: f64 = 0.9;

fn cell(group: &str, name: String, unit: &'static str, expected: Expected, model: f64) -> Cell {
    Cell { group: group.to_owned(), name, unit, expected, model, instrument: 0.0, judged: true }
}

fn between(min: f64, max: f64) -> Expected {
    Expected::Between { min, max }
}

fn one(profile: &MediaProfile, group: Group) -> Result<Reached> {
    Ok(run(profile, &[group])?[0])
}

fn gigabytes(profile: &MediaProfile, group: Group) -> Result<f64> {
    Ok(one(profile, group)?.bytes_per_second / 1e9)
}

/// Best bandwidth over the sweep of threads.
fn best(profile: &MediaProfile, access: Access, order: Order, bytes: u64) -> Result<f64> {
    let mut best: f64 = 0.0;
    for threads in THREADS {
        best = best.max(gigabytes(profile, Group::new(threads, access, order, bytes))?);
    }
    Ok(best)
}

/// Ceilings, and the smallest size that reaches them (Figs 3, 4, 6, 7).
pub(super) fn bandwidth(profile: &MediaProfile) -> Result<Vec<Cell>> {
    let mut cells = Vec::new();
    let ways = [
        (Access::Read, Order::Random, "random read", "Fig. 3", 7.0, 256.0),
        (Access::Write, Order::Random, "random write", "Fig. 4", 2.0, 256.0),
        (Access::Read, Order::Sequential, "sequential read", "Fig. 6", 7.0, 64.0),
        (Access::Write, Order::Sequential, "sequential write", "Fig. 7", 2.0, 64.0),
    ];
    for (access, order, name, figure, ceiling, best_bytes) in ways {
        let group = format!("paper 2, section 2.2.2, {figure}");
        let by_size = SIZES.iter().map(|bytes| best(profile, access, order, *bytes)).collect::<Result<Vec<_>>>()?;
        let peak = by_size.iter().copied().fold(0.0, f64::max);
        let expected = Expected::Value { value: ceiling, tolerance: BANDWIDTH_TOLERANCE };
        cells.push(cell(&group, format!("{name}: highest bandwidth"), "GB/s", expected, peak));
        let reaching = SIZES.iter().zip(&by_size).find(|(_, reached)| **reached >= REACHES * peak);
        let bytes = reaching.map_or(f64::NAN, |(bytes, _)| *bytes as f64);
        let expected = Expected::Value { value: best_bytes, tolerance: 0.0 };
        cells.push(cell(&group, format!("{name}: smallest size with 90 % of it"), "B", expected, bytes));
        let large = gigabytes(profile, Group::new(16, access, order, 64 << 10))? / peak;
        let name = format!("{name}: 64 KB by 16 threads against the highest (degrades)");
        cells.push(cell(&group, name, "fraction", between(0.05, REACHES), large));
    }
    let fenced = |bytes| gigabytes(profile, Group::new(16, Access::WriteFenced, Order::Random, bytes));
    let name = "random write 64 KB with a fence each 256 B against 256 B (does not degrade)".to_owned();
    let ratio = fenced(64 << 10)? / fenced(256)?;
    cells.push(cell("paper 2, section 2.2.2, Fig. 5", name, "fraction", between(REACHES, 1.1), ratio));
    Ok(cells)
}

/// Growth of latency with threads (Figs 1, 2, 10; section 2.2.5).
pub(super) fn threads(profile: &MediaProfile) -> Result<Vec<Cell>> {
    let mut cells = Vec::new();
    let group = "paper 2, section 2.2.5, Fig. 10";
    let latency = |access, threads, bytes| {
        one(profile, Group::new(threads, access, Order::Random, bytes)).map(|reached| reached.latency_ns)
    };
    let growth = |access, bytes| Ok(latency(access, 16, bytes)? / latency(access, 1, bytes)?);
    for bytes in [8, 64, 128, 256] {
        let name = format!("random read {}: latency of 16 threads against 1 (rises about 2 times)", size(bytes));
        cells.push(cell(group, name, "times", between(1.7, 3.3), growth(Access::Read, bytes)?));
    }
    for bytes in [16 << 10, 64 << 10] {
        for (more, fewer) in [(8, 4), (16, 8)] {
            let ratio = latency(Access::Read, more, bytes)? / latency(Access::Read, fewer, bytes)?;
            let name = format!("random read {}: latency of {more} threads against {fewer} (linear)", size(bytes));
            cells.push(cell(group, name, "times", between(1.7, 2.3), ratio));
        }
    }
    let ratio = growth(Access::Write, 256)? / growth(Access::Read, 256)?;
    let name = "256 B: growth of write latency against growth of read latency (writes are more sensitive)".to_owned();
    cells.push(cell("paper 2, section 2.2.1, Fig. 2", name, "times", between(1.0, 100.0), ratio));
    Ok(cells)
}

/// Readers and writers at once, 256 bytes (Figs 11 to 14).
pub(super) fn mixed(profile: &MediaProfile) -> Result<Vec<Cell>> {
    let mut cells = Vec::new();
    let sides = [
        (Access::Read, Access::Write, "read", "writers", "Fig. 11", "Fig. 13"),
        (Access::Write, Access::Read, "write", "readers", "Fig. 12", "Fig. 14"),
    ];
    for (fixed, other, name, others, bandwidth_figure, latency_figure) in sides {
        let at = |count: usize| {
            let mine = Group::new(4, fixed, Order::Random, 256);
            let theirs = Group::new(count, other, Order::Random, 256);
            let groups = if count == 0 { vec![mine] } else { vec![mine, theirs] };
            run(profile, &groups).map(|reached| reached[0])
        };
        let (alone, first, fourth, eighth, many) = (at(0)?, at(1)?, at(4)?, at(8)?, at(16)?);
        let group = format!("paper 2, section 2.2.6, {bandwidth_figure}");
        let lost = |from: Reached, to: Reached| (from.bytes_per_second - to.bytes_per_second) / alone.bytes_per_second;
        let text = format!("{name} bandwidth of 4 threads lost to the first of the {others} (steep)");
        cells.push(cell(&group, text, "fraction", between(0.15, 0.8), lost(alone, first)));
        let text = format!("{name} bandwidth lost from 4 to 8 {others}, against the first (flat)");
        let later = lost(fourth, eighth) / lost(alone, first);
        cells.push(cell(&group, text, "times", between(-0.05, 0.35), later));
        let text = format!("{name} bandwidth that 16 {others} leave (a floor)");
        let floor = many.bytes_per_second / alone.bytes_per_second;
        cells.push(cell(&group, text, "fraction", between(0.3, 0.9), floor));
        let group = format!("paper 2, section 2.2.6, {latency_figure}");
        for (count, reached) in [(4, fourth), (8, eighth), (16, many)] {
            let text = format!("{name} latency of 4 threads beside {count} {others} (stays about 1 us)");
            cells.push(cell(&group, text, "ns", between(0.0, 1150.0), reached.latency_ns));
        }
    }
    Ok(cells)
}

/// Ten threads against one, and another node (paper 4, section 2.1).
pub(super) fn nodes(profile: &MediaProfile) -> Result<Vec<Cell>> {
    let mut cells = Vec::new();
    let group = "paper 4, section 2.1.1";
    let speed = |threads, access, own_ns| {
        gigabytes(profile, Group { own_ns, ..Group::new(threads, access, Order::Random, 256) })
    };
    let value = |value| Expected::Value { value, tolerance: FACTOR_TOLERANCE };
    let reads = speed(10, Access::Read, 0)? / speed(1, Access::Read, 0)?;
    cells.push(cell(group, "random read 256 B: 10 threads against 1".into(), "times", value(6.0), reads));
    // The instrument's part shows as the difference to the ratio without it.
    let own_ns = profile.instrument.engine_write_ns.round() as u64;
    let bare = speed(10, Access::Write, 0)? / speed(1, Access::Write, 0)?;
    let measured = speed(10, Access::Write, own_ns)? / speed(1, Access::Write, own_ns)?;
    let name = "random write 256 B: 10 threads against 1".to_owned();
    let writes = cell(group, name, "times", value(3.0), bare);
    cells.push(Cell { instrument: measured - bare, ..writes });
    cells.extend(remote(profile, "AEP", [10.0, 2.0])?);
    let name = "local write against local read, cost of 256 B by 10 threads".to_owned();
    let ratio = speed(10, Access::Read, 0)? / speed(10, Access::Write, 0)?;
    let costs = cell("paper 4, section 2.1.3", name, "times", value(10.0), ratio);
    // Ten times contradicts paper 2's 7 and 2 GB/s, which the profile follows.
    cells.push(Cell { judged: false, ..costs });
    Ok(cells)
}

/// Local against remote bandwidth at 256 bytes and 10 threads.
pub(super) fn remote(profile: &MediaProfile, medium: &str, factors: [f64; 2]) -> Result<Vec<Cell>> {
    let mut cells = Vec::new();
    for ((access, name), factor) in [(Access::Read, "read"), (Access::Write, "write")].into_iter().zip(factors) {
        let local = Group::new(10, access, Order::Random, 256);
        let ratio = gigabytes(profile, local)? / gigabytes(profile, Group { part: 1, ..local })?;
        let name = format!("{medium} random {name} 256 B: local against remote bandwidth");
        let expected = Expected::Value { value: factor, tolerance: FACTOR_TOLERANCE };
        cells.push(cell("paper 4, section 2.1.1, Fig. 2", name, "times", expected, ratio));
    }
    Ok(cells)
}

/// Paper 2's statements about DRAM's bandwidth against Optane's (sections 2.2.3 and 2.3).
pub(super) fn dram(profile: &MediaProfile) -> Result<Vec<Cell>> {
    let mut cells = Vec::new();
    let group = "paper 2, sections 2.2.3 and 2.3";
    for (access, name, gigabytes) in [(Access::Read, "read", 21.0), (Access::Write, "write", 12.0)] {
        let reached = best(profile, access, Order::Random, 1024)?;
        let text = format!("DRAM {name}: highest bandwidth (more than 10)");
        cells.push(cell(group, text, "GB/s", between(10.0, 1000.0), reached));
        let text = format!("DRAM {name}: highest bandwidth (Optane's is a third of it, or a sixth)");
        let expected = Expected::Value { value: gigabytes, tolerance: FACTOR_TOLERANCE };
        cells.push(cell(group, text, "GB/s", expected, reached));
    }
    cells.extend(remote(profile, "DRAM", [3.0, 3.0])?);
    Ok(cells)
}
