//! Writes a page with every kind of block, to look at: `cargo run -p lodestone-report --example sample_page -- FILE`.
//! Its figures are made up.

use std::path::Path;

use lodestone_report::figure::{Figure, Unit};
use lodestone_report::html::{HtmlReport, Outcome, Table};
use lodestone_report::provenance::Provenance;

fn main() -> std::io::Result<()> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "sample.html".into());
    let threads = [1.0, 2.0, 4.0, 8.0, 16.0];
    let curve = |scale: f64, bend: f64| threads.map(|count: f64| (count, scale * count / (1.0 + bend * count)));
    let tail = |median: f64| {
        (1..200).map(move |step| {
            let share = f64::from(step) / 200.0;
            (median * (1.0 / (1.0 - share)).powf(0.6), share)
        })
    };
    HtmlReport::new("A sample page")
        .lead("Every kind of block that a report can hold. The figures are made up.")
        .tiles([("kills", "1,000"), ("acknowledged writes", "1,204,311"), ("lost", "0"), ("torn", "0")])
        .verdict(Outcome::Pass, "Every acknowledged write was there after every kill.")
        .verdict(Outcome::Fail, "2 of 14 mutants survived.")
        .verdict(Outcome::Info, "This machine has no persistent memory: the block domain was used.")
        .heading("Throughput")
        .paragraph("Operations per second against threads, synced writes.")
        .figure(
            Figure::line("Workload A by threads")
                .x_axis("threads", Unit::Count)
                .y_axis("operations per second", Unit::Count)
                .series("one engine", curve(45_000.0, 0.05))
                .series("another engine", curve(35_000.0, 0.4))
                .series("a third", curve(20_000.0, 0.02))
                .series("with a gap", [(1.0, 9e4), (2.0, 1.2e5), (4.0, f64::NAN), (8.0, 2e5), (16.0, 2.2e5)])
                .note("Higher is better."),
        )
        .heading("Latency")
        .figure(
            Figure::distribution("Latency of updates")
                .x_axis("latency", Unit::Nanoseconds)
                .log_x()
                .series("p", tail(900.0))
                .series("block", tail(24_000.0)),
        )
        .figure(
            Figure::histogram("Values by size")
                .x_axis("size", Unit::Bytes)
                .y_axis("records", Unit::Count)
                .log_x()
                .series("records", [(16.0, 40.0), (64.0, 900.0), (256.0, 300.0), (1024.0, 20.0), (4096.0, 0.0)]),
        )
        .heading("Counts")
        .figure(
            Figure::bars("Events for each insert", ["fences", "flushed lines", "media blocks", "syncs"])
                .y_axis("events per operation", Unit::Count)
                .bar_series("one thread", [2.0, 3.1, 1.4, 1.0])
                .bar_series("16 threads", [2.0, 3.1, 1.3, 0.07]),
        )
        .table(
            Table::new(["engine", "domain", "ops/s", "p50", "p99"])
                .caption("Workload A, 1,000,000 records of 8 + 100 bytes")
                .row(["lodestone", "block", "212,000", "31 us", "88 us"])
                .row(["lodestone", "process", "1,400,000", "0.6 us", "-"]),
        )
        .listing("$ lodestone bench ycsb --workload a --threads 8 --durability sync --json")
        .provenance(Provenance::of_this_machine().with("domain", "block").with("media", "ext4").with("seed", "1"))
        .write_to(Path::new(&path))
}
