//! The page with the figures of papers 3 and 4: for each one a table of the paper's values beside ours, and drawings of
//! ours.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use lodestone_report::figure::{Figure, Unit};
use lodestone_report::html::{HtmlReport, Table};
use lodestone_report::provenance::Provenance;
use serde_json::Value;

use super::super::draw::{number, text};
use super::{All, INTERVALS_MS, Lines, Options, STEPS, WAYS, aborts, against, epoch, median, nodes};

/// A figure or table of the paper.
pub struct Section {
    pub heading: &'static str,
    /// The measurement, or why there is none.
    pub note: String,
    pub table: Option<Table>,
    /// With the names of their files.
    pub figures: Vec<(String, Figure)>,
}

/// A row of a table: the item, the paper's value, and how ours is found in the lines of a medium.
type Row<'r> = (String, &'static str, Box<dyn Fn(&Lines) -> String + 'r>);

fn row<'r>(item: impl Into<String>, paper: &'static str, ours: impl Fn(&Lines) -> String + 'r) -> Row<'r> {
    (item.into(), paper, Box::new(ours))
}

/// Draws everything. Returns the path of the page.
pub fn draw(out: &Path, all: &All, options: &Options) -> Result<PathBuf> {
    let mut report = HtmlReport::new("Transactions in persistent memory: the figures of papers 3 and 4")
        .lead(
            "Measured on this machine. `raw` is DRAM that is flushed, `optane` the emulated profile, whose time is \
             spun. Each comparison is between ways of one run, which were measured in turns.",
        )
        .provenance(provenance(all, options));
    let most = options.most_threads();
    let sections = [
        intervals(all, most),
        aborts::section(&all.aborts),
        execution(all, options),
        media(all),
        tpcc(all, options),
        smallbank(all, options),
        systems(),
        steps(all, most),
        growth(all, options),
    ];
    for section in sections.into_iter().chain(nodes::sections(&all.nodes)) {
        report = report.heading(section.heading).paragraph(section.note);
        if let Some(table) = section.table {
            report = report.table(table);
        }
        for (name, figure) in section.figures {
            let path = out.join(format!("{name}.svg"));
            std::fs::write(&path, figure.to_svg()).with_context(|| format!("{} cannot be written", path.display()))?;
            report = report.figure(figure);
        }
    }
    let page = out.join("index.html");
    report.write_to(&page).with_context(|| format!("{} cannot be written", page.display()))?;
    Ok(page)
}

fn provenance(all: &All, options: &Options) -> Provenance {
    let media = all.memories.iter().map(|lines| lines.tpcc.first()).chain([all.disk.first()]).flatten();
    let media = media.map(|line| format!("{} on {}", text(line, "domain"), text(line, "media"))).collect::<Vec<_>>();
    Provenance::of_this_machine()
        .with("domains and media", media.join("; "))
        .with("rows", format!("{} items, {} customers of a district", options.items, options.customers))
        .with("runs", format!("{} s, {} turns of each way, medians", options.seconds, options.turns))
}

/// A table with a column for each medium.
fn table(all: &All, caption: &str, rows: Vec<Row<'_>>) -> Table {
    let media = all.memories.iter().map(|lines| lines.medium.to_owned());
    let mut table = Table::new(["item", "the paper"].map(String::from).into_iter().chain(media)).caption(caption);
    for (item, paper, ours) in rows {
        let cells = all.memories.iter().map(ours);
        table = table.row([item, paper.into()].into_iter().chain(cells));
    }
    table
}

const UNKNOWN: &str = "-";

/// A figure, or a sign that it is unknown.
pub fn shown(figure: f64, digits: usize, unit: &str) -> String {
    if figure.is_finite() { format!("{figure:.digits$}{unit}") } else { UNKNOWN.into() }
}

/// Mean latency in microseconds.
fn latency_us(line: Option<&Value>) -> String {
    line.map_or(UNKNOWN.into(), |line| shown(number(line, "latency_ns_mean") / 1e3, 2, " us"))
}

fn latency_ms(line: Option<&Value>) -> String {
    line.map_or(UNKNOWN.into(), |line| shown(number(line, "latency_ns_mean") / 1e6, 2, " ms"))
}

/// Thousands of transactions in a second.
fn thousands(line: Option<&Value>) -> String {
    line.map_or(UNKNOWN.into(), |line| shown(number(line, "ops_per_s") / 1e3, 1, " k/s"))
}

fn field(line: Option<&Value>, key: &str) -> f64 {
    line.map_or(f64::NAN, |line| number(line, key))
}

fn ratio(above: Option<&Value>, below: Option<&Value>, key: &str) -> f64 {
    field(above, key) / field(below, key)
}

/// By how much the first one is below the other one.
fn below(first: Option<&Value>, other: Option<&Value>, key: &str) -> String {
    shown(100.0 * (1.0 - ratio(first, other, key)), 0, " % less")
}

/// Figure 3.
fn intervals(all: &All, threads: u64) -> Section {
    let latency = |ms: f64| move |lines: &Lines| latency_ms(median(&lines.intervals, &epoch(ms), threads));
    let throughput = |ms: f64| {
        move |lines: &Lines| {
            let of = |ms| median(&lines.intervals, &epoch(ms), threads);
            below(of(ms), of(40.0), "ops_per_s")
        }
    };
    let rows = vec![
        row("mean latency at 80 ms", "145 ms", latency(80.0)),
        row("mean latency at 1 ms", "2.92 ms", latency(1.0)),
        row("mean latency at 0.01 ms", "0.62 ms", latency(0.01)),
        row("throughput at 0.1 ms against that at 40 ms", "23 % less", throughput(0.1)),
        row("throughput at 0.01 ms against that at 40 ms", "down to 44 %", throughput(0.01)),
        row("latency in memory against that on a disk, at 40 ms", "at most 32 % less", move |lines: &Lines| {
            let of = |lines| median(lines, &epoch(40.0), threads);
            below(of(&lines.intervals), of(&all.disk), "latency_ns_mean")
        }),
    ];
    let curve = |lines: &[Value], key: &str| -> Vec<(f64, f64)> {
        let point = |ms: f64| Some((ms * 1e6, number(median(lines, &epoch(ms), threads)?, key)));
        INTERVALS_MS.into_iter().filter_map(point).collect()
    };
    let draw = |key: &str, figure: Figure| {
        let figure = figure.x_axis("interval of group commit", Unit::Nanoseconds).log_x();
        let figure =
            all.memories.iter().fold(figure, |figure, lines| figure.series(lines.medium, curve(&lines.intervals, key)));
        figure.series("disk", curve(&all.disk, key))
    };
    let latency = Figure::line("Figure 3 a: TPC-C, mean latency by interval").y_axis("mean latency", Unit::Nanoseconds);
    let throughput =
        Figure::line("Figure 3 b: TPC-C, throughput by interval").y_axis("transactions per second", Unit::Count);
    Section {
        heading: "Figure 3: the interval of group commit",
        note: format!(
            "TPC-C with {threads} threads. Workers go on while their transactions wait for the end of the epoch. A latency \
             ends when the worker finds its transaction durable. Figure 2 of the paper is a drawing of this protocol."
        ),
        table: Some(table(all, "Paper: 10 threads, Optane and a hard disk.", rows)),
        figures: vec![
            ("figure-3a".into(), draw("latency_ns_mean", latency.log_y())),
            ("figure-3b".into(), draw("ops_per_s", throughput.zero_y())),
        ],
    }
}

/// Table 1.
fn execution(all: &All, options: &Options) -> Section {
    let threads = options.threads.first().copied().unwrap_or(1);
    let rows = vec![
        row("TPC-C", "9.3 us", move |lines: &Lines| latency_us(median(&lines.tpcc, "none", threads))),
        row("SmallBank", "0.26 us", move |lines: &Lines| latency_us(median(&lines.smallbank, "none", threads))),
        row("TPC-E", "310 us", |_: &Lines| "not measured".into()),
    ];
    Section {
        heading: "Table 1: the latency of an execution",
        note: format!(
            "Mean latency without durability, {threads} threads. TPC-E is not measured: it is not among the workloads of \
             this repository."
        ),
        table: Some(table(all, "Paper: one processor of 10 cores with transactional memory.", rows)),
        figures: Vec::new(),
    }
}

/// Table 2.
fn media(all: &All) -> Section {
    let titles = ["64 bytes", "the paper, Optane", "model optane", "the paper, DRAM", "model dram"];
    let caption = "Nanoseconds. The models have their figures from other publications, not from this table.";
    let mut table = Table::new(titles).caption(caption);
    let cell = |model: &str, operation: &str, pattern: &str| {
        let lines = all.probes.iter().filter(|(name, _)| *name == model).flat_map(|(_, lines)| lines);
        let fits = |cell: &&Value| {
            text(cell, "operation") == operation
                && text(cell, "pattern") == pattern
                && cell["access_bytes"] == 64
                && cell["threads"] == 1
        };
        let found = lines.filter_map(|line| line["cells"].as_array()).flatten().find(fits);
        found.map_or(UNKNOWN.into(), |cell| shown(number(&cell["latency_ns"], "median"), 0, ""))
    };
    for (item, operation, pattern, optane, dram) in [
        ("write in sequence", "write", "sequential", "171", "153"),
        ("write at random", "write", "random", "510", "234"),
        ("read in sequence", "read", "sequential", "248.06", "82.0"),
        ("read at random", "read", "random", "276.6", "82.2"),
    ] {
        let ours = |model| cell(model, operation, pattern);
        table = table.row([item.to_owned(), optane.into(), ours("optane"), dram.into(), ours("dram")]);
    }
    Section {
        heading: "Table 2: the latency of a medium",
        note: "Of the models that the figures of this page run on. The paper reads with Intel's latency checker and \
               writes with LATTester; ours are those of `lodestone media probe`, independent accesses of one thread, so \
               reads overlap."
            .into(),
        table: Some(table),
        figures: Vec::new(),
    }
}

/// A curve over threads for each way.
fn by_threads(title: String, lines: &[Value], key: &str, label: &str, unit: Unit) -> Figure {
    let figure = Figure::line(title).x_axis("threads", Unit::Count).y_axis(label, unit);
    WAYS.iter().fold(figure, |figure, (paper, way)| {
        let fits = |line: &&Value| text(line, "kind") == "median" && text(line, "way") == *way;
        let points = lines.iter().filter(fits).map(|line| (number(line, "threads"), number(line, key)));
        figure.series(format!("{way} ({paper})"), points)
    })
}

/// Figure 9.
fn tpcc(all: &All, options: &Options) -> Section {
    let (least, most) = (options.threads.first().copied().unwrap_or(1), options.most_threads());
    let of = |way: &'static str| move |lines: &Lines| thousands(median(&lines.tpcc, way, most));
    let compared = |way: &'static str, key: &'static str, threads: u64| {
        move |lines: &Lines| shown(field(against(&lines.tpcc, way, threads), key), 2, "")
    };
    let below = |way: &'static str| {
        move |lines: &Lines| shown(field(against(&lines.tpcc, way, most), "latency_mean_percent_below"), 1, " % less")
    };
    let rows = vec![
        row(format!("throughput of sync, {most} threads"), "432 k/s (10 threads)", of("sync")),
        row(format!("throughput of none, {most} threads"), "505 k/s (10 threads)", of("none")),
        row("throughput, sync / none", "0.86", compared("none", "throughput_ratio", most)),
        row("throughput, sync / group commit of 40 ms", "2.1", compared("epoch:40ms", "throughput_ratio", most)),
        row("throughput, sync / naive", "1.9", compared("naive", "throughput_ratio", most)),
        row("throughput, sync / late", "no such figure", compared("late", "throughput_ratio", most)),
        row(format!("mean latency of sync, {least} threads"), "13 us (1 thread)", move |lines: &Lines| {
            latency_us(median(&lines.tpcc, "sync", least))
        }),
        row(format!("mean latency of sync, {most} threads"), "22 us (10 threads)", move |lines: &Lines| {
            latency_us(median(&lines.tpcc, "sync", most))
        }),
        row(format!("latency, sync / none, {least} threads"), "1.1", compared("none", "latency_mean_ratio", least)),
        row(format!("latency, sync / none, {most} threads"), "1.15", compared("none", "latency_mean_ratio", most)),
        row("latency of sync against group commit", "99 % less", below("epoch:40ms")),
        row("latency, group commit / sync", "2720", move |lines: &Lines| {
            shown(1.0 / field(against(&lines.tpcc, "epoch:40ms", most), "latency_mean_ratio"), 0, "")
        }),
        row("latency of sync against naive", "53 to 83 % less", below("naive")),
    ];
    let mut figures = Vec::new();
    for lines in &all.memories {
        let title = |part: &str| format!("Figure 9 {part}, {}", lines.medium);
        let throughput = by_threads(
            title("a: throughput of TPC-C"),
            &lines.tpcc,
            "ops_per_s",
            "transactions per second",
            Unit::Count,
        );
        let latency =
            by_threads(title("b: latency of TPC-C"), &lines.tpcc, "latency_ns_mean", "mean latency", Unit::Nanoseconds);
        figures.push((format!("figure-9a-{}", lines.medium), throughput.zero_y()));
        figures.push((format!("figure-9b-{}", lines.medium), latency.log_y()));
    }
    Section {
        heading: "Figure 9: TPC-C",
        note: format!(
            "{} warehouses. {} Both sides of the comparison with naive here are locks in software; the paper's DBXN has \
             hardware transactions, which its naive variant cannot use.",
            options.warehouses,
            processors(most)
        ),
        table: Some(table(all, "Paper: 10 warehouses, 1 to 10 threads.", rows)),
        figures,
    }
}

/// Why there are no more threads.
fn processors(most: u64) -> String {
    let there_are = std::thread::available_parallelism().map_or(1, usize::from);
    format!(
        "Up to {most} threads, not the paper's 10: this machine has {there_are} processors, and more threads would share \
         them."
    )
}

/// Figure 10 a.
fn smallbank(all: &All, options: &Options) -> Section {
    let compared = |way: &'static str, is_inverse: bool, digits: usize| {
        move |lines: &Lines| {
            let of = |threads: &u64| field(against(&lines.smallbank, way, *threads), "latency_mean_ratio");
            let ratios = options.threads.iter().map(of).map(|ratio| if is_inverse { 1.0 / ratio } else { ratio });
            ratios.map(|ratio| shown(ratio, digits, "")).collect::<Vec<_>>().join(", ")
        }
    };
    let rows = vec![
        row("latency, sync / none", "1.7 to 2.4 more", compared("none", false, 2)),
        row("latency, naive / sync", "1.2 to 3 more", compared("naive", true, 2)),
        row("latency, late / sync", "no such figure", compared("late", true, 2)),
        row("latency, group commit / sync", "40000 to 50000", compared("epoch:40ms", true, 0)),
    ];
    let draw = |lines: &Lines| {
        let title = format!("Figure 10 a: latency of SmallBank, {}", lines.medium);
        let figure = by_threads(title, &lines.smallbank, "latency_ns_mean", "mean latency", Unit::Nanoseconds);
        (format!("figure-10a-{}", lines.medium), figure.log_y())
    };
    let threads = options.threads.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    Section {
        heading: "Figure 10 a: SmallBank",
        note: format!("{} customers, {threads} threads: one ratio for each number of threads.", options.bank_customers),
        table: Some(table(all, "Paper: 250,000 accounts.", rows)),
        figures: all.memories.iter().map(draw).collect(),
    }
}

/// Figure 10 b.
fn systems() -> Section {
    Section {
        heading: "Figure 10 b: DBXN-NVM and Pisces",
        note: "Not measured. DBXN-NVM has its rows and indexes in persistent memory (9 to 16 % slower than DBXN); the rows \
               of this engine are in DRAM, and there is no variant that has them elsewhere. Pisces (1.65 to 3.41 times \
               slower) is not among the systems that peers/ builds."
            .into(),
        table: None,
        figures: Vec::new(),
    }
}

/// Figure 11.
fn steps(all: &All, threads: u64) -> Section {
    let of = |lines: &Lines, way: &str, key: &str| field(median(&lines.steps, way, threads), key);
    let (naive, parity) = (STEPS[2].1, STEPS[3].1);
    let mut rows = vec![
        row("latency without durability", "19.7 us", move |lines: &Lines| {
            latency_us(median(&lines.steps, "none", threads))
        }),
        row("latency with group commit", "more than 60 ms", move |lines: &Lines| {
            latency_ms(median(&lines.steps, "epoch:40ms", threads))
        }),
        row("latency, synchronous log on a disk", "796.8 ms", move |_: &Lines| {
            latency_ms(median(&all.disk, "sync", threads))
        }),
        row("throughput, synchronous log on a disk", "94 % less", move |_: &Lines| {
            below(median(&all.disk, "sync", threads), median(&all.disk, "none", threads), "ops_per_s")
        }),
        row("throughput, synchronous log in memory", "256 k/s", move |lines: &Lines| {
            thousands(median(&lines.steps, naive, threads))
        }),
    ];
    for (step, base, throughput, latency) in [
        (3, naive, "1.35", "26 % less"),
        (4, parity, "1.1", "9 % less"),
        (5, parity, "1.18", "15 % less"),
        (6, parity, "1.24", "20 % less"),
        (7, parity, "no such figure", "no such figure"),
    ] {
        let ((name, way), before) = (STEPS[step], if base == naive { "synchronous log" } else { "parity version" });
        rows.push(row(format!("throughput, {name} / {before}"), throughput, move |lines: &Lines| {
            shown(of(lines, way, "ops_per_s") / of(lines, base, "ops_per_s"), 2, "")
        }));
        rows.push(row(format!("latency, {name} against {before}"), latency, move |lines: &Lines| {
            let ratio = of(lines, way, "latency_ns_mean") / of(lines, base, "latency_ns_mean");
            shown(100.0 * (1.0 - ratio), 0, " % less")
        }));
    }
    let names = STEPS.map(|(name, _)| name);
    let figure = Figure::bars("Figure 11: throughput of TPC-C by step", names);
    let figure = figure.y_axis("transactions per second", Unit::Count).zero_y();
    let figure = all.memories.iter().fold(figure, |figure, lines| {
        figure.bar_series(lines.medium, STEPS.map(|(_, way)| of(lines, way, "ops_per_s")))
    });
    let ways: Vec<_> = STEPS.iter().map(|(name, way)| format!("{name}: {way}")).collect();
    Section {
        heading: "Figure 11: step by step",
        note: format!("{threads} threads. The steps as ways of the command: {}.", ways.join("; ")),
        table: Some(table(all, "Paper: 10 threads. The disk is the same in both columns.", rows)),
        figures: vec![("figure-11".into(), figure)],
    }
}

/// Figure 12.
fn growth(all: &All, options: &Options) -> Section {
    let most = options.most_threads();
    let of = |lines: &Lines, warehouses: u64, way: &str, key: &str| {
        let fits = |line: &&Value| {
            line["warehouses"] == warehouses && text(line, "kind") == "median" && text(line, "way") == way
        };
        lines.growth.iter().find(fits).map_or(f64::NAN, |line| number(line, key))
    };
    let (few, many) = (options.growth.first().copied().unwrap_or(1), options.growth.last().copied().unwrap_or(1));
    let loss = |way: &'static str| {
        move |lines: &Lines| {
            let ratio = of(lines, many, way, "ops_per_s") / of(lines, few, way, "ops_per_s");
            shown(100.0 * (1.0 - ratio), 0, " % less")
        }
    };
    let rows = vec![
        row(format!("throughput of sync, {many} warehouses against {few}"), "57 % less (200 against 10)", loss("sync")),
        row(format!("throughput of none, {many} warehouses against {few}"), "48 % less (200 against 10)", loss("none")),
        row("throughput, sync / naive", "1.63 to 2.07", move |lines: &Lines| {
            let at = |warehouses: &u64| {
                of(lines, *warehouses, "sync", "ops_per_s") / of(lines, *warehouses, "naive", "ops_per_s")
            };
            options.growth.iter().map(|warehouses| shown(at(warehouses), 2, "")).collect::<Vec<_>>().join(", ")
        }),
    ];
    let draw = |lines: &Lines| {
        let figure = Figure::line(format!("Figure 12: throughput of TPC-C by warehouses, {}", lines.medium));
        let figure = figure.x_axis("warehouses", Unit::Count).y_axis("transactions per second", Unit::Count).zero_y();
        let figure = ["sync", "none", "naive"].into_iter().fold(figure, |figure, way| {
            let point = |warehouses: &u64| (*warehouses as f64, of(lines, *warehouses, way, "ops_per_s"));
            figure.series(way, options.growth.iter().map(point))
        });
        (format!("figure-12-{}", lines.medium), figure)
    };
    Section {
        heading: "Figure 12: more warehouses",
        note: format!(
            "{few} to {many} warehouses with {most} threads, not the paper's 10 to 200: all rows are in DRAM, and so is the \
             pool. --growth sets the numbers on a machine with more memory."
        ),
        table: Some(table(all, "Paper: 10 to 200 warehouses, 10 threads.", rows)),
        figures: all.memories.iter().map(draw).collect(),
    }
}
