//! The page of `lodestone bench ycsb --html`: throughput, latencies, events for each operation.

use lodestone_report::figure::{Figure, Unit};
use lodestone_report::html::{HtmlReport, Table};
use lodestone_report::provenance::Provenance;
use lodestone_workload::result::BenchResult;

use super::ycsb::{Measured, origin};

/// The whole page.
pub fn page(all: &[Measured]) -> HtmlReport {
    let mut table = Table::new(BenchResult::MAIN.map(|(title, _)| title));
    for measured in all {
        table = table.row(measured.outcome.result.row(&BenchResult::MAIN));
    }
    HtmlReport::new("YCSB on a Lodestone map")
        .lead(all.first().map(origin).unwrap_or_default())
        .heading("Throughput")
        .figure(throughput(all))
        .heading("Latency")
        .figure(latency(all))
        .heading("Events for each operation")
        .figure(events(all))
        .heading("All figures")
        .table(table)
        .provenance(provenance(all))
}

fn provenance(all: &[Measured]) -> Provenance {
    let mut provenance = Provenance::of_this_machine();
    let Some(first) = all.first() else { return provenance };
    let result = &first.outcome.result;
    for (name, fact) in [("domain", &result.domain), ("media", &result.media), ("durability", &result.durability)] {
        provenance = provenance.with(name, fact.clone().unwrap_or_else(|| "unknown".into()));
    }
    if let Some(latency) = &first.sync_latency {
        let text = format!("p50 {} ns, p99 {} ns, in the same run", latency.p50_ns, latency.p99_ns);
        provenance = provenance.with("bare 4 KiB write and fdatasync", text);
    }
    provenance.with("seed", result.seed.to_string())
}

fn label(measured: &Measured) -> String {
    let result = &measured.outcome.result;
    format!("{}, {} thread{}", result.workload, result.threads, if result.threads == 1 { "" } else { "s" })
}

/// Bars of operations per second.
pub fn throughput(all: &[Measured]) -> Figure {
    Figure::bars("Throughput by workload", all.iter().map(label))
        .y_axis("operations per second", Unit::Count)
        .bar_series("operations per second", all.iter().map(|one| one.outcome.result.ops_per_s.unwrap_or(f64::NAN)))
}

/// Distribution functions of latency.
pub fn latency(all: &[Measured]) -> Figure {
    let mut figure = Figure::distribution("Latency of operations").x_axis("latency", Unit::Nanoseconds).log_x();
    for measured in all {
        for (class, histogram) in &measured.outcome.run.latency_by_class {
            let steps = histogram.iter_quantiles(8);
            let points = steps.map(|step| (step.value_iterated_to() as f64, step.quantile_iterated_to()));
            figure = figure.series(format!("{class} ({})", label(measured)), points);
        }
    }
    figure
}

/// Bars of events for each operation.
pub fn events(all: &[Measured]) -> Figure {
    let kinds = ["fences", "flushed lines", "media blocks", "syncs"];
    let mut figure = Figure::bars("Events for each operation", kinds).y_axis("events per operation", Unit::Count);
    for measured in all {
        let result = &measured.outcome.result;
        let values = [result.fences_per_op, result.flushes_per_op, result.media_blocks_per_op, result.syncs_per_op];
        figure = figure.bar_series(label(measured), values.map(|value| value.unwrap_or(f64::NAN)));
    }
    figure
}
