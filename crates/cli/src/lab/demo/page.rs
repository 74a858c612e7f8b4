//! The page of the guided run.

use lodestone_report::figure::{Figure, Unit};
use lodestone_report::html::{HtmlReport, Outcome, Table};
use lodestone_report::provenance::Provenance;
use lodestone_workload::result::{BenchResult, human_figure, human_ns};

use crate::bench::ycsb_report;

use super::floors::{FloorSummary, PROFILES, left_out};
use super::{Findings, characters};

/// The page of all findings.
pub fn page(found: &Findings) -> HtmlReport {
    let held = found.expectations.iter().filter(|one| one.holds).count();
    let states: u64 = found.explored.iter().map(|one| one.states).sum();
    let best = found.measured.iter().filter_map(|one| one.outcome.result.ops_per_s).fold(0.0, f64::max);
    let mut page = HtmlReport::new("Lodestone: a guided first run")
        .lead(format!(
            "{held} of {} expectations held, in {:.0} seconds. Pool: {} domain on {}; {}.",
            found.expectations.len(),
            found.seconds,
            found.pool.domain_label(),
            media(found),
            found.pool.promise
        ))
        .tiles([
            ("records imported", human_figure(found.import.rows as f64)),
            ("kills", found.killed.kills.to_string()),
            ("acknowledged writes lost or torn", lost_of_acked(found)),
            ("crash states judged", human_figure(states as f64)),
            ("YCSB A operations/s", human_figure(best)),
        ]);
    for one in &found.expectations {
        page = page.verdict(if one.holds { Outcome::Pass } else { Outcome::Fail }, &one.text);
    }
    page = reads(page, found);
    page = kills(page, found);
    page = explorer(page, found);
    benchmark(page, found).provenance(provenance(found))
}

fn lost_of_acked(found: &Findings) -> String {
    let tally = found.killed.tally;
    format!("{} of {}", tally.lost + tally.torn, human_figure(found.killed.acked as f64))
}

fn media(found: &Findings) -> String {
    found.pool.media_label()
}

fn provenance(found: &Findings) -> Provenance {
    let mut provenance = Provenance::of_this_machine()
        .with("domain", found.pool.domain_label())
        .with("media", media(found))
        .with("instructions", format!("{:?} {:?}", found.pool.flush_instruction, found.pool.stream_instruction))
        .with("seed", found.seed.to_string());
    if let Some(load) = std::fs::read_to_string("/proc/loadavg").ok().as_deref().and_then(|text| text.split(' ').next())
    {
        provenance = provenance.with("load average at the end", load);
    }
    if let Some(latency) = found.measured.first().and_then(|one| one.sync_latency) {
        let text = format!("p50 {}, p99 {}", human_ns(latency.p50_ns), human_ns(latency.p99_ns));
        provenance = provenance.with("bare 4 KiB write and fdatasync here", text);
    }
    provenance
}

fn reads(page: HtmlReport, found: &Findings) -> HtmlReport {
    let mut figure = Figure::distribution("Latency of reads").x_axis("latency", Unit::Nanoseconds).log_x();
    for (name, histogram) in
        [("one record by key", &found.reads.point_ns), ("100 records in order", &found.reads.range_ns)]
    {
        let steps = histogram.iter_quantiles(8);
        let points = steps.map(|step| (step.value_iterated_to() as f64, step.quantile_iterated_to()));
        figure = figure.series(name, points);
    }
    page.heading("Real data")
        .paragraph(format!(
            "{} records from {}, imported at {} records/s with a wait for durability after each of {} batches. The pool \
             was closed and opened again in {:.0} ms; {} reads by key and {} of ranges were compared with the source.",
            human_figure(found.import.rows as f64),
            characters::SOURCE,
            human_figure(found.import.rows_per_s),
            found.import.batches,
            found.reads.open_ms,
            human_figure(found.reads.point_ns.len() as f64),
            human_figure(found.reads.range_ns.len() as f64)
        ))
        .figure(figure)
}

fn kills(page: HtmlReport, found: &Findings) -> HtmlReport {
    let mut table = Table::new([
        "kill",
        "writer lived (ms)",
        "acknowledged",
        "lost",
        "torn",
        "otherwise wrong",
        "opened and verified (ms)",
    ]);
    for round in &found.rounds {
        table = table.row([
            round.kill.to_string(),
            format!("{:.1}", round.life_ms),
            round.acked.to_string(),
            round.tally.lost.to_string(),
            round.tally.torn.to_string(),
            round.tally.other.to_string(),
            format!("{:.1}", round.reopen_ms),
        ]);
    }
    let bars =
        Figure::bars("Writes acknowledged in each life", found.rounds.iter().map(|round| round.kill.to_string()))
            .x_axis("kill", Unit::Count)
            .y_axis("acknowledged writes", Unit::Count)
            .bar_series("acknowledged", found.rounds.iter().map(|round| round.acked as f64))
            .bar_series("lost or torn", found.rounds.iter().map(|round| (round.tally.lost + round.tally.torn) as f64));
    page.heading("A writer that is killed")
        .paragraph(
            "A process writes to a pool, reports over a pipe what it starts and what was called durable, and gets SIGKILL \
             at random moments. After each kill the pool is opened and every record is held against everything that any \
             life of it acknowledged. A life without acknowledgements was killed while it opened the pool.",
        )
        .figure(bars)
        .table(table)
}

fn explorer(page: HtmlReport, found: &Findings) -> HtmlReport {
    let floors = FloorSummary::of(&found.explored, &found.audited);
    let mut table = Table::new(FloorSummary::HEADERS);
    for floor in &floors {
        table = table.row(floor.cells());
    }
    let mut bars = Figure::bars("Crash states judged, by floor", floors.iter().map(|floor| floor.floor))
        .y_axis("crash states", Unit::Count)
        .log_y()
        .note("Each state is a memory that a power failure could leave; recovery ran on it and was judged.");
    for (place, profile) in PROFILES.iter().enumerate() {
        let states = floors.iter().map(|floor| floor.states[place]).map(|states| states as f64);
        bars = bars.bar_series(profile.to_string(), states.collect::<Vec<_>>());
    }
    let page = page
        .heading("Power failures taken apart")
        .paragraph(
            "The explorer records every store, flush and fence, builds the memories that a power failure could leave, lets \
             recovery run on each, crashes recovery as well, and checks the outcome. Profile adr: persistent memory \
             under volatile caches; block: an ordinary file. A mutant is the same code with one flush or fence removed or \
             moved: that it is caught shows that the call is needed and that its absence would be noticed.",
        )
        .figure(bars)
        .table(table);
    let page = match left_out(&floors, found.not_begun) {
        Some(text) => page.paragraph(text),
        None => page.paragraph("Every state of every run was judged."),
    };
    match &found.caught.violation {
        Some(violation) => page
            .paragraph("A mistake on purpose: a mark is persistent before the value that it announces. What the explorer says:")
            .listing(format!("{}\n{}", violation.message, violation.account)),
        None => page.verdict(Outcome::Fail, "The explorer did not notice a mistake that was made for it."),
    }
}

fn benchmark(page: HtmlReport, found: &Findings) -> HtmlReport {
    let mut table = Table::new(BenchResult::MAIN.map(|(title, _)| title));
    for measured in &found.measured {
        table = table.row(measured.outcome.result.row(&BenchResult::MAIN));
    }
    page.heading("A little benchmark")
        .paragraph(
            "YCSB workload A: half reads, half updates, zipfian. Each update waits until it would survive a power failure, \
             each read until what it saw would. One sync of the device serves all writes that wait for it.",
        )
        .figure(ycsb_report::throughput(&found.measured))
        .figure(ycsb_report::latency(&found.measured))
        .figure(ycsb_report::events(&found.measured))
        .table(table)
}
