//! The page of a probe: the verdict first, then every section with its figures and tables, then the origin of the
//! figures.

use lodestone_media::probe::{
    Advice, Operation, Pattern, ProbeResult, Section, Subject, Topic, Verdict, bytes_text, rate_text, time_text,
};
use lodestone_report::html::{HtmlReport, Outcome};
use lodestone_report::provenance::Provenance;
use lodestone_width::whole_u64;

use super::{facts, figures, grids};

/// The whole page.
pub fn page(result: &ProbeResult, verdict: &Verdict) -> HtmlReport {
    let target = &result.target;
    let emulated = target.emulated.as_ref().map(|label| format!(" Emulated ({label}): not measured on such a medium."));
    let mut page = HtmlReport::new(format!("Media probe: {}", target.name))
        .lead(format!(
            "{} {}, domain {}, {} figures over {} in {:.0} s.{}",
            target.medium,
            target.kind,
            target.domain,
            result.cells.len(),
            bytes_text(target.range_bytes),
            result.duration_s,
            emulated.unwrap_or_default()
        ))
        .tiles(tiles(result, verdict));
    if !verdict.findings.is_empty() {
        page = page.heading("Verdict");
        for finding in &verdict.findings {
            let (outcome, word) = match finding.advice {
                Advice::Prefer => (Outcome::Pass, "Do"),
                Advice::Avoid => (Outcome::Fail, "Avoid"),
                Advice::Know => (Outcome::Info, "Know"),
            };
            page = page.advice(outcome, word, &finding.sentence, &finding.evidence);
        }
    }
    for note in &result.notes {
        page = page.verdict(Outcome::Info, note);
    }
    let grids = grids::all(result);
    for section in Section::ALL {
        let drawn = figures::of_section(result, section);
        let tables: Vec<_> = grids.iter().filter(|grid| grid.section == section).collect();
        if drawn.is_empty() && tables.is_empty() {
            continue;
        }
        let (heading, text) = introduction(section);
        page = page.heading(heading).paragraph(text);
        page = drawn.into_iter().fold(page, HtmlReport::figure);
        page = tables.into_iter().fold(page, |page, grid| page.table(grid.to_html()));
    }
    page.provenance(provenance(result))
}

fn introduction(section: Section) -> (&'static str, &'static str) {
    match section {
        Section::Latency => (
            "One thread, by access size",
            "The time of a thread by its accesses, issued back to back as in paper 2's harness: the processor may overlap \
             them. Blocks come in order or by a random permutation; writes are streaming stores with a fence at their end. \
             Reads that wait for each other are shown apart.",
        ),
        Section::Threads => (
            "Several threads",
            "Each thread has a slice of the range to itself and a processor as long as there are enough. Bandwidth is that \
             of all threads together, latency that of one.",
        ),
        Section::Fence => (
            "Fences inside of large writes",
            "A large streamed write leaves the processor in any order; a fence every 256 bytes keeps the lines of a block \
             together, which media with blocks of 256 bytes reward.",
        ),
        Section::Instruction => (
            "Store and flush, or stream",
            "The same write as ordinary stores with each line flushed after them, and as non-temporal stores around the \
             cache; both fenced at the end.",
        ),
        Section::Mixed => (
            "Readers beside writers",
            "A fixed number of threads of one kind with a growing number of the other, 256 bytes at random places.",
        ),
        Section::Nodes => {
            ("Near and far", "The same accesses by threads on the node of the medium and on the node farthest from it.")
        }
        Section::Compare => (
            "Beside DRAM and a file",
            "The same accesses to memory of this process (under a profile: to the profile of DRAM), and accesses to a file \
             through system calls: through the page cache, synced, and around the page cache.",
        ),
    }
}

fn tiles(result: &ProbeResult, verdict: &Verdict) -> Vec<(&'static str, String)> {
    let mut tiles = Vec::new();
    let line = |operation| {
        grids::cell(result, Section::Latency, |key| {
            (key.operation, key.pattern, key.access_bytes) == (operation, Pattern::Random, 64)
        })
    };
    for (operation, name) in [(Operation::Read, "random read, 64 B"), (Operation::Write, "random write, 64 B, fenced")]
    {
        tiles.extend(line(operation).map(|cell| (name, time_text(cell.latency_ns.median))));
    }
    for (operation, name) in
        [(Operation::Read, "highest read bandwidth"), (Operation::Write, "highest write bandwidth")]
    {
        let of_target = result.select(|key| (key.subject, key.operation) == (Subject::Target, operation));
        let highest = of_target.map(|cell| cell.bandwidth_bytes_per_s.median).fold(f64::NAN, f64::max);
        if highest.is_finite() {
            tiles.push((name, rate_text(highest)));
        }
    }
    let best =
        |topic: Topic| verdict.about(topic).and_then(|finding| finding.value).map(|bytes| bytes_text(whole_u64(bytes)));
    tiles.extend(best(Topic::RandomReadBytes).map(|size| ("best random read", size)));
    tiles.extend(best(Topic::RandomWriteBytes).map(|size| ("best random write", size)));
    tiles
}

fn provenance(result: &ProbeResult) -> Provenance {
    let (machine, method) = (&result.machine, &result.method);
    let kind = if machine.nodes_virtual { "virtual NUMA nodes" } else { "NUMA nodes" };
    let mut provenance = Provenance::of_this_machine()
        .with("processors", format!("{} usable, {} {kind}", machine.processors, machine.nodes))
        .with("run", if method.quick { "quick: short repetitions" } else { "full" });
    for (name, fact) in facts(result) {
        provenance = provenance.with(name, fact);
    }
    if let Some(load) = std::fs::read_to_string("/proc/loadavg").ok().as_deref().and_then(|text| text.split(' ').next())
    {
        provenance = provenance.with("load average at the end", load);
    }
    provenance
}
