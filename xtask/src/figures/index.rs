//! `cargo xtask figures index`: the index figures of paper 2, section 3, from our own runs.
//!
//! | figure | content |
//! | --- | --- |
//! | 17 | `hybrid` (hash in persistent memory) against `hybrid-plus` (hash in DRAM): point reads, updates, inserts, by threads |
//! | 19 | mean latency of reads and updates of three indexes without and with a cache of a tenth, uniform and zipfian |
//! | 20 | the cost of a low hit rate: no cache, and a cache that is asked first, beside the index (by a helper), or while it pays |
//!
//! Each runs on the medium as it is (raw) and on the emulated profile `optane`. Figure 20 of the paper is a drawing of
//! the parallel search. Ours is its measurement, beside the other answers to a low hit rate.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use lodestone_report::figure::{Figure, Unit};
use lodestone_report::html::{HtmlReport, Table};
use lodestone_report::provenance::Provenance;
use serde_json::Value;

use super::collect::{Runner, build};
use super::draw::{number, text};

/// Options of the runs.
#[derive(Debug, Args)]
pub struct Options {
    /// Records that are loaded; the paper loads 50 million.
    #[arg(long, default_value_t = 200_000)]
    records: u64,
    /// Measured time of each run.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Threads of figure 17.
    #[arg(long, default_value = "1,2")]
    threads: String,
    /// Folder for the figures and the raw lines.
    #[arg(long, default_value = "target/figures/index")]
    out: PathBuf,
    /// Folder for the pools: a file system in memory, so that flushes and fences are measured.
    #[arg(long, default_value = "/dev/shm")]
    place: PathBuf,
    /// Run nothing: draw from the lines of an earlier run.
    #[arg(long)]
    redraw: bool,
    /// Use the program as it is already built.
    #[arg(long)]
    no_build: bool,
}

/// The media: name, and the options that select it.
const MEDIA: [(&str, &[&str]); 2] = [("raw", &[]), ("optane", &["--profile", "optane"])];
const INDEXES: [&str; 3] = ["fastfair", "fptree", "skiplist"];

/// Lines of one medium.
struct Lines {
    medium: &'static str,
    hybrids: Vec<Value>,
    caches: Vec<Value>,
    modes: Vec<Value>,
}

/// Runs and draws.
pub fn run(root: &Path, options: &Options) -> Result<bool> {
    let out = root.join(&options.out);
    std::fs::create_dir_all(&out).with_context(|| format!("{} cannot be made", out.display()))?;
    if !options.no_build && !options.redraw {
        build(root, &["build", "--release", "--package", "lodestone-cli"])?;
    }
    let runner = Runner {
        out: &out,
        lodestone: root.join("target/release/lodestone"),
        peers: None,
        place: options.place.display().to_string(),
        redraw: options.redraw,
    };
    let all = MEDIA.iter().map(|(medium, profile)| collect(&runner, options, medium, profile));
    let page = draw(&out, &all.collect::<Result<Vec<_>>>()?, options)?;
    println!("the page is {}", page.display());
    Ok(true)
}

fn collect(runner: &Runner<'_>, options: &Options, medium: &'static str, profile: &[&str]) -> Result<Lines> {
    let (records, seconds) = (options.records.to_string(), options.seconds.to_string());
    let run = |name: &str, words: &[&str]| -> Result<Vec<Value>> {
        let mut all = vec!["bench", "index", "--records", &records, "--seconds", &seconds, "--time-one-of", "4"];
        all.extend(words);
        all.extend(profile);
        let lines = runner.ours(&format!("{name}-{medium}"), &all)?;
        Ok(lines.into_iter().filter(|line| line["bench"] == "index").collect())
    };
    let threads = options.threads.as_str();
    let hybrids = ["--index", "hybrid,hybrid-plus", "--mix", "search,update,insert", "--threads", threads];
    let names = INDEXES.map(|index| format!("{index},acs-{index}")).join(",");
    let caches = ["--index", &names, "--mix", "search,update", "--distribution", "uniform,zipfian"];
    let mut modes = run("modes-none", &["--index", "fastfair", "--distribution", "uniform,zipfian:0.5,zipfian:0.99"])?;
    for mode in ["serial", "parallel", "adaptive"] {
        let words = ["--index", "acs-fastfair", "--cache-mode", mode];
        let shapes = ["--distribution", "uniform,zipfian:0.5,zipfian:0.99"];
        let found = run(&format!("modes-{mode}"), &[&words[..], &shapes[..]].concat())?;
        modes.extend(found.into_iter().map(|mut line| {
            line["engine"] = format!("acs-fastfair, {mode}").into();
            line
        }));
    }
    Ok(Lines { medium, hybrids: run("hybrids", &hybrids)?, caches: run("caches", &caches)?, modes })
}

fn find<'v>(lines: &'v [Value], engine: &str, mix: &str, facts: &[(&str, Value)]) -> Option<&'v Value> {
    lines.iter().find(|line| {
        text(line, "engine") == engine
            && text(line, "workload") == mix
            && facts.iter().all(|(key, value)| line[*key] == *value)
    })
}

fn draw(out: &Path, all: &[Lines], options: &Options) -> Result<PathBuf> {
    let provenance = Provenance::of_this_machine()
        .with("domain", "dax-emulated: cache lines are flushed, on a file in memory")
        .with("records", options.records.to_string())
        .with("load average", load_averages(all));
    let mut report = HtmlReport::new("Indexes on persistent memory: the figures of paper 2, section 3")
        .lead("Measured on this machine. `raw` is DRAM that is flushed; `optane` is the emulated profile, whose time is spun.")
        .provenance(provenance)
        .heading("Ratios")
        .table(ratios(all))
        .heading("Figures");
    for lines in all {
        let mut figures = Vec::new();
        for (mix, name) in [("search", "point reads"), ("update", "updates"), ("insert", "inserts")] {
            figures.push((format!("figure-17-{mix}"), hybrids(lines, mix, name)));
        }
        for (mix, name) in [("search", "reads"), ("update", "updates")] {
            figures.push((format!("figure-19-{mix}"), caches(lines, mix, name)));
        }
        figures.push(("figure-20".into(), modes(lines)));
        for (name, figure) in figures {
            let path = out.join(format!("{name}-{}.svg", lines.medium));
            std::fs::write(&path, figure.to_svg()).with_context(|| format!("{} cannot be written", path.display()))?;
            report = report.figure(figure);
        }
    }
    let page = out.join("index.html");
    report.write_to(&page).with_context(|| format!("{} cannot be written", page.display()))?;
    Ok(page)
}

/// From the least busy to the busiest moment of the runs.
fn load_averages(all: &[Lines]) -> String {
    let lines = all.iter().flat_map(|lines| lines.hybrids.iter().chain(&lines.caches).chain(&lines.modes));
    let loads: Vec<f64> = lines.map(|line| number(line, "load_average")).filter(|load| load.is_finite()).collect();
    let least = loads.iter().copied().fold(f64::INFINITY, f64::min);
    let most = loads.iter().copied().fold(0.0, f64::max);
    format!("{least} to {most} during the runs")
}

/// Figure 17.
fn hybrids(lines: &Lines, mix: &str, name: &str) -> Figure {
    let title = format!("Figure 17: {name} of the two hybrids, {}", lines.medium);
    let mut figure = Figure::line(title).x_axis("threads", Unit::Count).y_axis("operations per second", Unit::Count);
    for engine in ["hybrid", "hybrid-plus"] {
        let fits = |line: &&Value| text(line, "engine") == engine && text(line, "workload") == mix;
        let points = lines.hybrids.iter().filter(fits);
        figure = figure.series(engine, points.map(|line| (number(line, "threads"), number(line, "ops_per_s"))));
    }
    figure
}

/// Figure 19.
fn caches(lines: &Lines, mix: &str, name: &str) -> Figure {
    let title = format!("Figure 19: mean latency of {name}, cache of a tenth, {}", lines.medium);
    let mut figure = Figure::bars(title, INDEXES).y_axis("mean latency", Unit::Nanoseconds);
    for distribution in ["uniform", "zipfian:0.99"] {
        for (prefix, label) in [("", "no cache"), ("acs-", "cache")] {
            let value = |index| latency(&lines.caches, &format!("{prefix}{index}"), mix, distribution);
            figure = figure.bar_series(format!("{label}, {distribution}"), INDEXES.map(value));
        }
    }
    figure
}

fn latency(lines: &[Value], engine: &str, mix: &str, distribution: &str) -> f64 {
    let line = find(lines, engine, mix, &[("distribution", distribution.into())]);
    line.map_or(f64::NAN, |line| number(line, "latency_ns_mean"))
}

const SHAPES: [&str; 3] = ["uniform", "zipfian:0.5", "zipfian:0.99"];
const MODES: [&str; 4] = ["fastfair", "acs-fastfair, serial", "acs-fastfair, parallel", "acs-fastfair, adaptive"];

/// Figure 20.
fn modes(lines: &Lines) -> Figure {
    let title = format!("Figure 20: mean latency of reads by hit rate and by how the cache is asked, {}", lines.medium);
    let mut figure = Figure::bars(title, SHAPES).y_axis("mean latency", Unit::Nanoseconds);
    for engine in MODES {
        figure = figure.bar_series(engine, SHAPES.map(|shape| latency(&lines.modes, engine, "search", shape)));
    }
    figure
}

/// The paper's promises and our figures.
fn ratios(all: &[Lines]) -> Table {
    let mut table = Table::new(["medium", "what", "the paper", "found", "cpu time"].map(String::from))
        .caption("Ratios of throughput and of mean latency by wall time; the last column by processor time, which neighbours on the machine disturb less.");
    for lines in all {
        for line in lines.hybrids.iter().filter(|line| text(line, "engine") == "hybrid-plus") {
            let (mix, threads) = (text(line, "workload"), line["threads"].clone());
            let other = find(&lines.hybrids, "hybrid", mix, &[("threads", threads.clone())]);
            let paper = if mix == "search" { "up to 1.8" } else { "about 0.7" };
            let what = format!("hybrid-plus / hybrid, {mix}, {threads} threads");
            table = table.row([
                lines.medium.to_owned(),
                what,
                paper.to_owned(),
                ratio(Some(line), other, "ops_per_s"),
                ratio(other, Some(line), "cpu_ns_per_op"),
            ]);
        }
        for (mix, distribution, paper) in [
            ("search", "uniform", "1 or a little more"),
            ("search", "zipfian:0.99", "0.5 to 0.8"),
            ("update", "uniform", "1.2 to 1.3"),
            ("update", "zipfian:0.99", "1.2 to 1.3"),
        ] {
            for index in INDEXES {
                let facts = [("distribution", Value::from(distribution))];
                let with = find(&lines.caches, &format!("acs-{index}"), mix, &facts);
                let without = find(&lines.caches, index, mix, &facts);
                table = table.row([
                    lines.medium.to_owned(),
                    format!("latency with / without cache, {index}, {mix}, {distribution}"),
                    paper.to_owned(),
                    ratio(with, without, "latency_ns_mean"),
                    ratio(with, without, "cpu_ns_per_op"),
                ]);
            }
        }
    }
    table
}

fn ratio(above: Option<&Value>, below: Option<&Value>, key: &str) -> String {
    match (above, below) {
        (Some(above), Some(below)) if number(below, key) > 0.0 => {
            format!("{:.2}", number(above, key) / number(below, key))
        }
        _ => "-".into(),
    }
}
