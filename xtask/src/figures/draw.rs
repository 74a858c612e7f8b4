//! Draws the figures of paper 1 from collected lines: an SVG file for each, and one page with all of them and the
//! ratios.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use lodestone_report::figure::{Figure, Unit};
use lodestone_report::html::{HtmlReport, Table};
use lodestone_report::provenance::Provenance;
use serde_json::Value;

use super::collect::Lines;

const STM: &str = "stm-one-fence/thread";
const STRUCTURES: [(&str, &str, u32); 3] =
    [("hash", "Hash table", 9), ("tree", "Binary search tree", 10), ("list", "Sorted list", 11)];

pub(crate) fn text<'v>(line: &'v Value, key: &str) -> &'v str {
    line[key].as_str().unwrap_or_default()
}

pub(crate) fn number(line: &Value, key: &str) -> f64 {
    line[key].as_f64().unwrap_or(f64::NAN)
}

/// Draws everything. Returns the path of the page.
pub fn draw(out: &Path, lines: &Lines, quick: bool) -> Result<PathBuf> {
    let mut report = HtmlReport::new("Durable transactional memory: the figures of paper 1")
        .lead(if quick {
            "A quick run: it shows that everything works. Its figures are too short to compare."
        } else {
            "Measured on this machine up to two threads; beyond that by a model whose error is in a table below."
        })
        .provenance(
            Provenance::of_this_machine().with("domain", "dax-emulated: cache lines are flushed, on a file in memory"),
        );
    let mut figures = vec![("figure-1".to_owned(), clock_alone(lines)), ("figure-2".into(), clock_share(lines))];
    figures.push((
        "figure-2-throughput".into(),
        modelled(
            lines,
            "Figure 2: inserts and removes on a TL2 hash table",
            &[("tl2-redo-hash-100", "global-add", "TL2 with a redo log")],
        ),
    ));
    let logs = [("tl2-undo-tree-50", "global-add", "undo log"), ("tl2-redo-tree-50", "global-add", "redo log")];
    figures.push(("figure-3".into(), modelled(lines, "Figure 3: search tree, half updates, by log", &logs)));
    for (structure, title, figure) in STRUCTURES {
        for updates in [2, 20, 80] {
            let title = format!("Figure {figure}: {title}, {updates} % updates");
            let name = format!("figure-{figure}-{updates}");
            figures.push((name.clone(), measured(lines, structure, updates, &format!("{title}, measured"))));
            let runs = [format!("stm-{structure}-{updates}"), format!("tl2-redo-{structure}-{updates}")];
            let series = [
                (runs[0].as_str(), "thread", "stm, thread clocks"),
                (runs[0].as_str(), "global-add", "stm, global clock"),
                (runs[1].as_str(), "global-add", "TL2 with a redo log"),
            ];
            figures.push((format!("{name}-model"), modelled(lines, &format!("{title}, model"), &series)));
        }
    }
    figures.push(("figure-12".into(), ycsb(lines)));
    report = report.heading("Ratios").table(ratios(&lines.structures)).table(ycsb_ratios(&lines.ycsb));
    report = report.heading("The model's error on this machine").table(validation(lines));
    report = report.heading("Figures");
    for (name, figure) in figures {
        let path = out.join(format!("{name}.svg"));
        std::fs::write(&path, figure.to_svg()).with_context(|| format!("{} cannot be written", path.display()))?;
        report = report.figure(figure);
    }
    let page = out.join("index.html");
    report.write_to(&page).with_context(|| format!("{} cannot be written", page.display()))?;
    Ok(page)
}

/// Figure 1: ticks of a global clock.
fn clock_alone(lines: &Lines) -> Figure {
    let mut figure =
        threads_axis(Figure::line("Figure 1: ticks of a global clock, model"), "ticks per second", Unit::Count);
    for clock in ["global-mutex", "global-add", "global-cas"] {
        let fits = |line: &&Value| {
            text(line, "kind") == "clock-alone"
                && text(line, "run") == "tl2-redo-hash-100"
                && text(line, "clock") == clock
        };
        let points = lines.model.iter().filter(fits);
        figure = figure.series(clock, points.map(|line| (number(line, "threads"), number(line, "ticks_per_s"))));
    }
    figure
}

fn threads_axis(figure: Figure, label: &str, unit: Unit) -> Figure {
    figure.x_axis("threads", Unit::Count).y_axis(label, unit)
}

/// The points of a modelled run: `(threads, figure)`.
fn points(lines: &Lines, run: &str, clock: &str, key: &str) -> Vec<(f64, f64)> {
    let fits =
        |line: &&Value| text(line, "kind") == "result" && text(line, "run") == run && text(line, "clock") == clock;
    lines.model.iter().filter(fits).map(|line| (number(line, "threads"), number(line, key))).collect()
}

/// Figure 2: the share of the clock.
fn clock_share(lines: &Lines) -> Figure {
    let title = "Figure 2: the clock's share of a TL2 hash table's time, updates only, model";
    let mut figure = threads_axis(Figure::line(title), "share of time", Unit::Fraction);
    for clock in ["global-mutex", "global-add", "global-cas", "thread"] {
        figure = figure.series(clock, points(lines, "tl2-redo-hash-100", clock, "clock_share"));
    }
    figure
}

fn modelled(lines: &Lines, title: &str, series: &[(&str, &str, &str)]) -> Figure {
    let mut figure = threads_axis(Figure::line(title), "operations per second", Unit::Count)
        .note("A model of two nodes of 36 hardware threads with Optane-like memory; not a measurement.");
    for (run, clock, name) in series {
        figure = figure.series(*name, points(lines, run, clock, "ops_per_s"));
    }
    figure
}

/// The engines in the lines, in order of appearance.
fn engines(lines: &[Value]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let names = lines.iter().map(|line| text(line, "engine").to_owned());
    names.filter(|name| seen.insert(name.clone())).collect()
}

fn find<'v>(lines: &'v [Value], engine: &str, workload: &str, updates: Option<u64>, threads: u64) -> Option<&'v Value> {
    lines.iter().find(|line| {
        text(line, "engine") == engine
            && text(line, "workload") == workload
            && line["threads"] == threads
            && updates.is_none_or(|updates| line["updates_percent"] == updates)
    })
}

fn measured(lines: &Lines, structure: &str, updates: u64, title: &str) -> Figure {
    let mut figure = Figure::bars(title, ["1 thread", "2 threads"]).y_axis("operations per second", Unit::Count);
    for engine in [STM, "tl2-redo/add", "tl2-undo/add", "pmemobj", "dram-lock"] {
        let value = |threads| find(&lines.structures, engine, structure, Some(updates), threads);
        let values = [1, 2].map(|threads| value(threads).map_or(f64::NAN, |line| number(line, "ops_per_s")));
        if values.iter().any(|value| value.is_finite()) {
            figure = figure.bar_series(engine, values);
        }
    }
    figure
}

/// Figure 12.
fn ycsb(lines: &Lines) -> Figure {
    let categories = ["A x1", "B x1", "C x1", "D x1", "A x2", "B x2", "C x2", "D x2"];
    let mut figure = Figure::bars("Figure 12: YCSB, one and two threads, measured", categories)
        .y_axis("operations per second", Unit::Count);
    for engine in engines(&lines.ycsb) {
        let cells = [1, 2].into_iter().flat_map(|threads| ["a", "b", "c", "d"].map(|workload| (workload, threads)));
        let value = |(workload, threads)| find(&lines.ycsb, &engine, workload, None, threads);
        let values = cells.map(|cell| value(cell).map_or(f64::NAN, |line| number(line, "ops_per_s")));
        figure = figure.bar_series(engine.clone(), values.collect::<Vec<_>>());
    }
    figure
}

fn ratio(ours: &Value, theirs: Option<&Value>, key: &str) -> String {
    match theirs {
        Some(theirs) if number(theirs, key) > 0.0 => format!("{:.2}", number(ours, key) / number(theirs, key)),
        _ => "-".into(),
    }
}

/// Ours against each other engine, by wall time and by processor time.
fn ratios(lines: &[Value]) -> Table {
    let others: Vec<String> = engines(lines).into_iter().filter(|engine| engine != STM).collect();
    let titles = ["structure", "updates", "threads", "stm ops/s", "stm cpu ns/op"].map(String::from);
    let columns = others.iter().map(|engine| format!("/ {engine}"));
    let mut table = Table::new(titles.into_iter().chain(columns)).caption(
        "Throughput of stm (one fence, thread clocks) divided by that of each other engine; above 1 stm is faster.",
    );
    for ours in lines.iter().filter(|line| text(line, "engine") == STM) {
        let (workload, updates) = (text(ours, "workload"), ours["updates_percent"].as_u64());
        let threads = ours["threads"].as_u64().unwrap_or(0);
        let mut row = vec![
            workload.to_owned(),
            updates.map_or_else(String::new, |updates| format!("{updates} %")),
            threads.to_string(),
            format!("{:.0}", number(ours, "ops_per_s")),
            format!("{:.0}", number(ours, "cpu_ns_per_op")),
        ];
        row.extend(
            others.iter().map(|engine| ratio(ours, find(lines, engine, workload, updates, threads), "ops_per_s")),
        );
        table = table.row(row);
    }
    table
}

fn ycsb_ratios(lines: &[Value]) -> Table {
    let others: Vec<String> = engines(lines).into_iter().filter(|engine| engine != STM).collect();
    let titles = ["YCSB", "threads", "stm ops/s"].map(String::from);
    let mut table = Table::new(titles.into_iter().chain(others.iter().map(|engine| format!("/ {engine}"))))
        .caption("The same for YCSB on the B+-tree. All run on a file in memory: the syncs of the file engines cost nothing there.");
    for ours in lines.iter().filter(|line| text(line, "engine") == STM) {
        let workload = text(ours, "workload");
        let threads = ours["threads"].as_u64().unwrap_or(0);
        let mut row = vec![workload.to_owned(), threads.to_string(), format!("{:.0}", number(ours, "ops_per_s"))];
        row.extend(others.iter().map(|engine| ratio(ours, find(lines, engine, workload, None, threads), "ops_per_s")));
        table = table.row(row);
    }
    table
}

fn validation(lines: &Lines) -> Table {
    let titles = ["run", "threads", "updates", "measured per processor second", "model", "error"];
    let mut table = Table::new(titles).caption("The model with this machine's costs against runs on this machine.");
    for line in lines.model.iter().filter(|line| text(line, "kind") == "validation") {
        table = table.row([
            text(line, "run").to_owned(),
            line["threads"].to_string(),
            line["updates_percent"].to_string(),
            format!("{:.0}", number(line, "measured_ops_per_cpu_s")),
            format!("{:.0}", number(line, "model_ops_per_s")),
            format!("{:+.0} %", 100.0 * number(line, "error")),
        ]);
    }
    table
}
