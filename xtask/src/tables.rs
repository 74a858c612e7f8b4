//! `cargo xtask tables index`: the measured tables of `docs/choosing-an-index.md`, from runs of this machine.
//!
//! 1. Build the command in release mode, and the peers unless they are left out.
//! 2. Run the benchmarks that the document names, and keep every line of their output.
//! 3. Replace the text in the document between `<!-- table NAME -->` and `<!-- end -->`.
//!
//! So a table always agrees with its text, and a reader with another machine can make that machine's document.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::{Args, Subcommand};
use lodestone_report::provenance::Provenance;
use serde_json::Value;

use crate::figures::collect::{Runner, build};
use crate::figures::draw::{number, text};

/// The document whose tables are measured.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Those of `docs/choosing-an-index.md`.
    Index(Options),
}

/// Options of the runs.
#[derive(Debug, Args)]
pub struct Options {
    /// Tables to make (default: all)
    #[arg(long, value_delimiter = ',', value_parser = Name::parse)]
    only: Vec<Name>,
    /// Divide every number of records and operations, to show that everything works. Not for comparisons
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    divide: u64,
    /// Folder for the raw lines
    #[arg(long, default_value = "target/tables/index")]
    out: PathBuf,
    /// The document whose tables are replaced
    #[arg(long, default_value = "docs/choosing-an-index.md")]
    document: PathBuf,
    /// Folder for the pools: a file system in memory, so that flushes and fences are measured
    #[arg(long, default_value = "/dev/shm")]
    place: PathBuf,
    /// Leave redb and LMDB out
    #[arg(long)]
    no_peers: bool,
    /// Run nothing: write the tables from the lines of an earlier run
    #[arg(long)]
    redraw: bool,
    /// Use the programs as they are already built
    #[arg(long)]
    no_build: bool,
}

/// A table of the document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    Time,
    Counts,
    Space,
    Medium,
    Hybrids,
    Cache,
    Opening,
    Strings,
    TenMillion,
}

impl Name {
    const ALL: [Self; 9] = [
        Self::Time,
        Self::Counts,
        Self::Space,
        Self::Medium,
        Self::Hybrids,
        Self::Cache,
        Self::Opening,
        Self::Strings,
        Self::TenMillion,
    ];

    fn text(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Counts => "counts",
            Self::Space => "space",
            Self::Medium => "medium",
            Self::Hybrids => "hybrids",
            Self::Cache => "cache",
            Self::Opening => "opening",
            Self::Strings => "strings",
            Self::TenMillion => "ten-million",
        }
    }

    fn parse(text: &str) -> Result<Self, String> {
        let all = Self::ALL.map(Self::text).join(", ");
        Self::ALL.into_iter().find(|name| name.text() == text).ok_or_else(|| format!("the tables are {all}"))
    }
}

const PERSISTENT: [&str; 7] = ["fastfair", "fptree", "skiplist", "hash", "hybrid", "hybrid-plus", "acs-fastfair"];
const IN_DRAM: [&str; 2] = ["btreemap-lock", "crossbeam-skiplist"];
const CACHED: [&str; 3] = ["fastfair", "fptree", "skiplist"];
const RAW: &str = "dax-emulated";

/// Whether the index supports scans.
fn is_ordered(index: &str) -> bool {
    index != "hash"
}

/// Runs the chore.
pub fn run(root: &Path, command: &Command) -> Result<bool> {
    let Command::Index(options) = command;
    let out = root.join(&options.out);
    std::fs::create_dir_all(&out).with_context(|| format!("{} cannot be made", out.display()))?;
    let peers_folder = root.join("peers");
    if !options.no_build && !options.redraw {
        build(root, &["build", "--release", "--package", "lodestone-cli"])?;
        if !options.no_peers {
            build(&peers_folder, &["build", "--release"])?;
        }
    }
    let runner = Runner {
        out: &out,
        lodestone: root.join("target/release/lodestone"),
        peers: (!options.no_peers).then(|| peers_folder.join("target/release/lodestone-peers")),
        place: options.place.display().to_string(),
        redraw: options.redraw,
    };
    let bench = Bench { runner, divide: options.divide };
    let path = root.join(&options.document);
    let is_wanted = |name: &Name| options.only.is_empty() || options.only.contains(name);
    for name in Name::ALL.into_iter().filter(is_wanted) {
        let table = bench.table(name)?;
        // Read and written for each table, so that measured tables stay if a later run fails.
        let document = std::fs::read_to_string(&path).with_context(|| format!("{} cannot be read", path.display()))?;
        let document = replaced(&document, name.text(), &table)?;
        std::fs::write(&path, document).with_context(|| format!("{} cannot be written", path.display()))?;
        println!("table {} is in {}", name.text(), path.display());
    }
    Ok(true)
}

/// `document` with `table` between the marks of `name`.
fn replaced(document: &str, name: &str, table: &str) -> Result<String> {
    let mark = format!("<!-- table {name} -->\n");
    let begin = document.find(&mark).with_context(|| format!("the document has no line {}", mark.trim_end()))?;
    let begin = begin + mark.len();
    let length = document[begin..].find("<!-- end -->").with_context(|| format!("table {name} has no end"))?;
    Ok(format!("{}\n{}\n{}", &document[..begin], table.trim_end(), &document[begin + length - 1..]))
}

/// A table of Markdown. Every column but the first holds figures.
struct Markdown {
    text: String,
    lines: Vec<Value>,
}

impl Markdown {
    fn new(columns: &[&str]) -> Self {
        let figures = " ---: |".repeat(columns.len() - 1);
        Self { text: format!("| {} |\n| --- |{figures}\n", columns.join(" | ")), lines: Vec::new() }
    }

    fn row(&mut self, cells: &[String]) {
        writeln!(self.text, "| {} |", cells.join(" | ")).expect("a string takes what is written");
    }

    /// The table, and below it the machine, the medium and the load of the machine.
    fn finish(self) -> String {
        let machine = Provenance::of_this_machine();
        let fact = |name: &str| {
            let found = machine.facts().iter().find(|(known, _)| known == name);
            found.map_or("unknown", |(_, fact)| fact).to_owned()
        };
        let all = |key: &str| {
            let mut found: Vec<&str> = self.lines.iter().filter_map(|line| line[key].as_str()).collect();
            found.sort_unstable();
            found.dedup();
            if found.is_empty() { "none".to_owned() } else { found.join(", ") }
        };
        let loads: Vec<f64> = self.lines.iter().filter_map(|line| line["load_average"].as_f64()).collect();
        let (least, most) = loads.iter().fold((f64::INFINITY, 0.0_f64), |(a, b), &load| (a.min(load), b.max(load)));
        let load = if loads.is_empty() { "unknown".into() } else { format!("{least} to {most}") };
        format!(
            "{}\n{}, {}; domain {}; medium {}; load average {load}.\n",
            self.text,
            fact("machine"),
            fact("kernel"),
            all("domain"),
            all("media")
        )
    }
}

/// Three digits, with commas between thousands.
fn figure(value: f64) -> String {
    if !value.is_finite() {
        return "-".into();
    }
    let digits = match value.abs() {
        value if value >= 99.95 => 0,
        value if value >= 9.995 => 1,
        _ => 2,
    };
    let text = format!("{value:.digits$}");
    if digits > 0 {
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    let mut grouped = String::new();
    for (place, digit) in text.chars().rev().enumerate() {
        if place > 0 && place % 3 == 0 && digit != '-' {
            grouped.insert(0, ',');
        }
        grouped.insert(0, digit);
    }
    grouped
}

struct Bench<'a> {
    runner: Runner<'a>,
    divide: u64,
}

impl Bench<'_> {
    fn scaled(&self, count: u64) -> String {
        (count / self.divide).max(1000).to_string()
    }

    /// Lines of one run on indexes; `words` are separated by spaces.
    fn run(&self, name: &str, records: u64, words: &str) -> Result<Vec<Value>> {
        self.run_in(RAW, name, records, words)
    }

    fn run_in(&self, domain: &str, name: &str, records: u64, words: &str) -> Result<Vec<Value>> {
        let records = self.scaled(records);
        let mut all = vec!["bench", "index", "--records", &records];
        all.extend(words.split_whitespace());
        let lines = self.runner.ours_in(domain, name, &all)?;
        ensure!(!lines.is_empty() || self.runner.redraw, "{name} printed no line");
        Ok(lines)
    }

    fn table(&self, name: Name) -> Result<String> {
        match name {
            Name::Time => self.time(),
            Name::Counts => self.counts(),
            Name::Space => self.space(),
            Name::Medium => self.medium(),
            Name::Hybrids => self.hybrids(),
            Name::Cache => self.cache(),
            Name::Opening => self.opening(),
            Name::Strings => self.strings(),
            Name::TenMillion => self.ten_million(),
        }
    }

    /// The run that three tables share.
    fn points(&self, index: &str) -> Result<Vec<Value>> {
        let operations = self.scaled(500_000);
        let words = format!(
            "--index {index} --mix search,update,insert,remove --distribution uniform --operations {operations} --warm-up 0"
        );
        self.run(&format!("points-{index}"), 1_000_000, &words)
    }

    fn time(&self) -> Result<String> {
        let columns = ["index", "read, uniform", "read, zipfian 0.99", "update", "insert", "remove", "scan, per key"];
        let mut table = Markdown::new(&columns);
        for index in PERSISTENT.into_iter().chain(IN_DRAM) {
            let points = self.points(index)?;
            let operations = self.scaled(500_000);
            let words = format!(
                "--index {index} --mix search --distribution zipfian:0.99 --operations {operations} --warm-up 0.5"
            );
            let zipfian = self.run(&format!("zipfian-{index}"), 1_000_000, &words)?;
            let mut cells = vec![format!("`{index}`"), cpu(&points, "search"), cpu(&zipfian, "search")];
            cells.extend(["update", "insert", "remove"].map(|mix| cpu(&points, mix)));
            cells.push(self.scan_per_key(index, &mut table.lines)?);
            table.row(&cells);
            table.lines.extend(points.into_iter().chain(zipfian));
        }
        Ok(table.finish())
    }

    fn scan_per_key(&self, index: &str, lines: &mut Vec<Value>) -> Result<String> {
        if !is_ordered(index) {
            return Ok("-".into());
        }
        let operations = self.scaled(100_000);
        let words = format!("--index {index} --mix scan --distribution uniform --operations {operations}");
        let scans = self.run(&format!("scan-{index}"), 1_000_000, &words)?;
        let per_key =
            scans.first().map_or(f64::NAN, |line| number(line, "cpu_ns_per_op") / number(line, "scanned_per_op"));
        lines.extend(scans);
        Ok(figure(per_key))
    }

    fn counts(&self) -> Result<String> {
        let mut table = Markdown::new(&["index", "read", "update", "insert", "remove"]);
        for index in PERSISTENT {
            let points = self.points(index)?;
            let mut cells = vec![format!("`{index}`")];
            for mix in ["search", "update", "insert", "remove"] {
                cells.push(pair(&points, mix, "flushes_per_op", "fences_per_op"));
            }
            table.row(&cells);
            table.lines.extend(points);
        }
        Ok(table.finish())
    }

    fn space(&self) -> Result<String> {
        let mut table = Markdown::new(&["index", "PM", "DRAM", "thousand keys loaded per second"]);
        for index in PERSISTENT.into_iter().chain(IN_DRAM) {
            let points = self.points(index)?;
            let mut cells = vec![format!("`{index}`")];
            cells.extend(["pm_bytes_per_record", "dram_bytes_per_record"].map(|key| of(&points, "search", key, 1.0)));
            cells.push(of(&points, "search", "load_ops_per_s", 1e-3));
            table.row(&cells);
            table.lines.extend(points);
        }
        Ok(table.finish())
    }

    fn medium(&self) -> Result<String> {
        let columns = [
            "index",
            "read, uniform",
            "blocks read",
            "read, zipfian 0.99",
            "blocks read",
            "hit rate",
            "insert",
            "blocks read / written",
        ];
        let mut table = Markdown::new(&columns);
        let operations = self.scaled(100_000);
        for index in PERSISTENT {
            let shared = format!("--index {index} --operations {operations} --time-one-of 2 --profile optane");
            let reads = format!("{shared} --mix search --distribution uniform,zipfian:0.99 --warm-up 0.5");
            let reads = self.run(&format!("medium-read-{index}"), 300_000, &reads)?;
            let inserts = format!("{shared} --mix insert --distribution uniform");
            let inserts = self.run(&format!("medium-insert-{index}"), 300_000, &inserts)?;
            let (uniform, zipfian) = reads.split_at(reads.len().min(1));
            table.row(&[
                format!("`{index}`"),
                of(uniform, "search", "latency_ns_p50", 1.0),
                of(uniform, "search", "media_blocks_read_per_op", 1.0),
                of(zipfian, "search", "latency_ns_p50", 1.0),
                of(zipfian, "search", "media_blocks_read_per_op", 1.0),
                of(zipfian, "search", "cache_hit_rate", 1.0),
                of(&inserts, "insert", "latency_ns_p50", 1.0),
                pair(&inserts, "insert", "media_blocks_read_per_op", "media_blocks_written_per_op"),
            ]);
            table.lines.extend(reads.into_iter().chain(inserts));
        }
        Ok(table.finish())
    }

    /// The two hybrids on the modelled medium: throughput of both and the quotient.
    fn hybrids(&self) -> Result<String> {
        let mut table =
            Markdown::new(&["records, threads", "reads", "quotient", "updates", "quotient", "inserts", "quotient"]);
        for (records, name) in [(1_000_000, "1 M"), (10_000_000, "10 M")] {
            let words = "--mix search,update,insert --distribution uniform --threads 1,2 --seconds 2 --profile optane";
            let mut both = Vec::new();
            for index in ["hybrid", "hybrid-plus"] {
                let file = format!("hybrids-{index}-{records}");
                both.push(self.run(&file, records, &format!("--index {index} {words}"))?);
            }
            for threads in [1, 2] {
                let mut cells = vec![format!("{name}, {threads}")];
                for mix in ["search", "update", "insert"] {
                    let [old, new] = [&both[0], &both[1]].map(|lines| {
                        let line =
                            lines.iter().find(|line| text(line, "workload") == mix && line["threads"] == threads);
                        line.map_or(f64::NAN, |line| number(line, "ops_per_s") / 1e3)
                    });
                    cells.extend([format!("{} : {}", figure(new), figure(old)), figure(new / old)]);
                }
                table.row(&cells);
            }
            table.lines.extend(both.into_iter().flatten());
        }
        Ok(table.finish())
    }

    /// Three indexes without and with a cache of a tenth of the keys.
    fn cache(&self) -> Result<String> {
        let columns =
            ["index, keys from", "hit rate", "read without", "with", "change", "update without", "with", "change"];
        let mut table = Markdown::new(&columns);
        for (medium, profile) in [("optane", "--profile optane"), ("raw", "")] {
            for index in CACHED {
                let words = format!(
                    "--index {index},acs-{index} --mix search,update --distribution uniform,zipfian:0.99 --seconds 2 --warm-up 2 \
                     --time-one-of 4 {profile}"
                );
                let lines = self.run(&format!("cache-{index}-{medium}"), 300_000, &words)?;
                if lines.is_empty() {
                    continue;
                }
                for distribution in ["uniform", "zipfian:0.99"] {
                    let find = |engine: &str, mix: &str, key: &str| {
                        let fits = |line: &&Value| {
                            text(line, "engine") == engine
                                && text(line, "workload") == mix
                                && text(line, "distribution") == distribution
                        };
                        lines.iter().find(fits).map_or(f64::NAN, |line| number(line, key))
                    };
                    let cached = format!("acs-{index}");
                    let mut cells = vec![
                        format!("`{index}`, {distribution}, {medium}"),
                        figure(find(&cached, "search", "cache_hit_rate")),
                    ];
                    for mix in ["search", "update"] {
                        let mean = |engine: &str| find(engine, mix, "cpu_ns_per_op");
                        let (without, with) = (mean(index), mean(&cached));
                        let change = format!("{:+.1} %", (with / without - 1.0) * 100.0);
                        cells.extend([figure(without), figure(with), change]);
                    }
                    table.row(&cells);
                }
                table.lines.extend(lines);
            }
        }
        Ok(table.finish())
    }

    fn opening(&self) -> Result<String> {
        let columns = ["index, after", "opening the index", "first answer", "first range", "warm", "full speed"];
        let mut table = Markdown::new(&columns);
        for index in PERSISTENT {
            for line in self.run(&format!("open-{index}"), 500_000, &format!("--index {index} --open"))? {
                let mut cells = vec![format!("`{index}`, {}", text(&line, "after"))];
                let keys = ["index_open_ms", "first_answer_ms", "first_range_ms", "warm_ms", "full_speed_ms"];
                cells.extend(keys.map(|key| figure(number(&line, key))));
                table.row(&cells);
                table.lines.push(line);
            }
        }
        Ok(table.finish())
    }

    fn strings(&self) -> Result<String> {
        let mut table = Markdown::new(&["index", "read", "insert", "insert: lines / fences", "PM", "DRAM"]);
        let operations = self.scaled(200_000);
        for index in PERSISTENT[..6].iter().copied().chain(["map"]) {
            let words = format!(
                "--index {index} --key bytes:24 --mix search,insert --distribution uniform --operations {operations}"
            );
            let lines = self.run(&format!("strings-{index}"), 300_000, &words)?;
            table.row(&[
                format!("`{index}`"),
                cpu(&lines, "search"),
                cpu(&lines, "insert"),
                pair(&lines, "insert", "flushes_per_op", "fences_per_op"),
                of(&lines, "search", "pm_bytes_per_record", 1.0),
                of(&lines, "search", "dram_bytes_per_record", 1.0),
            ]);
            table.lines.extend(lines);
        }
        Ok(table.finish())
    }

    /// Throughput of all indexes and engines at ten million keys, with one thread and two. The insert column is the
    /// load, from no keys to all.
    fn ten_million(&self) -> Result<String> {
        let columns = [
            "thousand operations per second",
            "insert, 1",
            "search, 1",
            "scan, 1",
            "insert, 2",
            "search, 2",
            "scan, 2",
        ];
        let mut table = Markdown::new(&columns);
        let engines = PERSISTENT.into_iter().map(|index| (index, "process"));
        let engines = engines.chain([("fastfair", RAW)]).chain(IN_DRAM.map(|index| (index, "process")));
        for (index, domain) in engines {
            let mixes = if is_ordered(index) { "search,scan" } else { "search" };
            let by_threads = |threads: &str| {
                let words = format!(
                    "--index {index} --mix {mixes} --distribution uniform --scan-keys 100-100 --threads {threads} --load-threads {threads}"
                );
                self.run_in(domain, &format!("ten-{index}-{domain}-{threads}"), 10_000_000, &words)
            };
            let label = if domain == RAW { format!("`{index}`, flushed") } else { format!("`{index}`") };
            self.throughput(&mut table, label, &[by_threads("1")?, by_threads("2")?]);
        }
        if let Some(peers) = &self.runner.peers {
            let records = self.scaled(10_000_000);
            for engine in ["redb", "lmdb"] {
                // One thread, because there is one writer at a time and each run loads ten million keys anew.
                let words = format!(
                    "index --engine {engine} --mix search --mix scan --distribution uniform --scan-keys 100-100 --threads 1 --records \
                     {records} --durability process --json --folder {}",
                    self.runner.place
                );
                let words: Vec<&str> = words.split_whitespace().collect();
                let lines = self.runner.run(peers, &format!("ten-{engine}"), &words)?;
                self.throughput(&mut table, engine.to_owned(), &[lines, Vec::new()]);
            }
        }
        Ok(table.finish())
    }

    fn throughput(&self, table: &mut Markdown, label: String, runs: &[Vec<Value>]) {
        if runs.iter().all(Vec::is_empty) {
            return;
        }
        let mut cells = vec![label];
        for lines in runs {
            cells.push(of(lines, "search", "load_ops_per_s", 1e-3));
            cells.extend(["search", "scan"].map(|mix| of(lines, mix, "ops_per_s", 1e-3)));
            table.lines.extend(lines.iter().cloned());
        }
        table.row(&cells);
    }
}

/// A figure of the first line of `mix`, multiplied.
fn of(lines: &[Value], mix: &str, key: &str, factor: f64) -> String {
    let line = lines.iter().find(|line| text(line, "workload") == mix);
    figure(line.map_or(f64::NAN, |line| number(line, key) * factor))
}

fn cpu(lines: &[Value], mix: &str) -> String {
    of(lines, mix, "cpu_ns_per_op", 1.0)
}

fn pair(lines: &[Value], mix: &str, first: &str, second: &str) -> String {
    format!("{} / {}", of(lines, mix, first, 1.0), of(lines, mix, second, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits() {
        assert_eq!(
            [2.567, 10.0, 12.345, 1234.5, 1_234_567.0, 0.0].map(figure),
            ["2.57", "10", "12.3", "1,234", "1,234,567", "0"]
        );
        assert_eq!(figure(f64::NAN), "-");
    }

    #[test]
    fn a_table_takes_the_place_of_the_old_one() {
        let document = "a\n<!-- table x -->\n\n| old |\n\n<!-- end -->\nb\n<!-- table y -->\n<!-- end -->\n";
        let new = replaced(document, "x", "| new |\n").expect("the marks are there");
        assert_eq!(new, "a\n<!-- table x -->\n\n| new |\n\n<!-- end -->\nb\n<!-- table y -->\n<!-- end -->\n");
        assert_eq!(replaced(&new, "x", "| new |\n").expect("still"), new);
        assert!(replaced(document, "z", "").is_err());
    }
}
