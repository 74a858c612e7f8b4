//! Figure 4: aborts of hardware transactions, by a model of a processor (`lodestone sim htm`).

use lodestone_report::figure::{Figure, Unit};
use lodestone_report::html::Table;
use serde_json::Value;

use super::super::draw::{number, text};
use super::page::{Section, shown};

const MEDIA: [&str; 2] = ["dram", "optane"];
const ACCESSES: [&str; 2] = ["load", "store"];
/// The sizes between which the paper finds a difference between the media.
const DIFFERENT: std::ops::RangeInclusive<f64> = 16.0..=262_144.0;

/// The section of the page, from the lines of the command.
pub fn section(lines: &[Value]) -> Section {
    let assumed = lines.iter().find(|line| text(line, "kind") == "model").map_or("", |line| text(line, "hardware"));
    let figures = [("figure-4a", "a", "random"), ("figure-4b", "b", "sequential")]
        .map(|(name, part, order)| (name.to_owned(), by_size(lines, part, order)));
    let figures = figures.into_iter().chain([("figure-4c".into(), by_time(lines))]).collect();
    Section {
        heading: "Figure 4: aborts of hardware transactions",
        note: format!(
            "Predicted by a model, not measured: this needs a processor with Intel's transactional memory. Assumed: \
             {assumed}. The time of the accesses is that of the media profiles."
        ),
        table: Some(table(lines)),
        figures,
    }
}

fn table(lines: &[Value]) -> Table {
    let titles = ["item", "the paper", "the model"];
    let caption = "Paper: one Xeon Gold 5215M, read from the text of section 2.3. The model: `lodestone sim htm`.";
    let largest = |order: &str| {
        let of = |medium: &str, access: &str, bytes: f64| {
            let found = sizes(lines, medium, order, access).find(|(found, _)| (*found - bytes).abs() < 0.5);
            found.map_or(f64::NAN, |(_, rate)| rate)
        };
        let mut most = f64::NAN;
        for access in ACCESSES {
            let sizes = sizes(lines, "dram", order, access).filter(|(bytes, _)| DIFFERENT.contains(bytes));
            for (bytes, dram) in sizes {
                most = most.max(of("optane", access, bytes) - dram);
            }
        }
        shown(100.0 * most, 1, " points at most")
    };
    let instruction = |access: &str| {
        let rates: Vec<_> = times(lines, access).map(|(_, rate)| rate).collect();
        let ends = [rates.iter().copied().fold(f64::NAN, f64::min), rates.iter().copied().fold(f64::NAN, f64::max)];
        let [least, most] = ends.map(|rate| shown(100.0 * rate, 0, ""));
        if least == most { format!("{most} %") } else { format!("{least} to {most} %, by its time") }
    };
    let rows = [
        ["more aborts in NVM than in DRAM, random", "close to each other", &largest("random")],
        ["more aborts in NVM than in DRAM, in order, 16 B to 256 KiB", "3 to 20 %", &largest("sequential")],
        ["aborts with nt-store inside", "100 %", &instruction("stream")],
        ["aborts with clflush inside", "100 %", &instruction("flush")],
        ["aborts with a load inside", "no figure in the text", &instruction("load")],
    ];
    rows.into_iter().fold(Table::new(titles).caption(caption), |table, row| table.row(row))
}

/// Bytes and the abort rate.
fn sizes<'l>(
    lines: &'l [Value],
    medium: &'l str,
    order: &'l str,
    access: &'l str,
) -> impl Iterator<Item = (f64, f64)> + 'l {
    let fits = move |line: &&Value| {
        text(line, "kind") == "size"
            && [("medium", medium), ("order", order), ("access", access)].iter().all(|(key, is)| text(line, key) == *is)
    };
    lines.iter().filter(fits).map(|line| (number(line, "bytes"), number(line, "abort_rate")))
}

/// Time and the abort rate, on the slower medium.
fn times<'l>(lines: &'l [Value], access: &'l str) -> impl Iterator<Item = (f64, f64)> + 'l {
    let fits = move |line: &&Value| {
        text(line, "kind") == "time" && text(line, "medium") == "optane" && text(line, "access") == access
    };
    lines.iter().filter(fits).map(|line| (number(line, "compute_ns"), number(line, "abort_rate")))
}

fn by_size(lines: &[Value], part: &str, order: &str) -> Figure {
    let figure = Figure::line(format!("Figure 4 {part}: aborts by size, {order} lines"));
    let figure = figure.x_axis("bytes of a transaction", Unit::Bytes).log_x().y_axis("aborted", Unit::Fraction);
    let series = MEDIA.iter().flat_map(|medium| ACCESSES.map(|access| (*medium, access)));
    series.fold(figure, |figure, (medium, access)| {
        figure.series(format!("{medium}, {access}"), sizes(lines, medium, order, access))
    })
}

fn by_time(lines: &[Value]) -> Figure {
    let figure = Figure::line("Figure 4 c: aborts by time and instruction, optane");
    let figure = figure.x_axis("time of a transaction", Unit::Nanoseconds).log_x().y_axis("aborted", Unit::Fraction);
    let all = ["none", "load", "store", "stream", "flush"];
    all.iter().fold(figure, |figure, access| figure.series(*access, times(lines, access)))
}
