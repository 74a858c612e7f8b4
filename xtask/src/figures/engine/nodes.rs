//! Figures 6, 7 and 8 and table 1 of paper 4: the database on several nodes, by a model (`lodestone sim nodes`).

use anyhow::Result;
use lodestone_report::figure::{Figure, Unit};
use lodestone_report::html::Table;
use serde_json::Value;

use super::super::collect::Runner;
use super::super::draw::{number, text};
use super::page::{Section, shown};

/// The loads of figure 7 and figure 8 b, with the gains of case 3 that the paper prints over cases 1 and 2.
const LOADS: [(&str, &str, &str, &str); 7] = [
    ("select", "A: 100 % select", "+199 %", "+317 %"),
    ("update", "B: 100 % update", "+105 %", "+257 %"),
    ("insert", "C: 100 % insert", "+64 %", "+190 %"),
    ("mixed", "D: 50 % select, 50 % update", "in the figure alone", "in the figure alone"),
    ("scan", "E: 95 % scan, 5 % insert", "in the figure alone", "in the figure alone"),
    ("modify", "F: 50 % select, 50 % read-modify-write", "in the figure alone", "in the figure alone"),
    ("tpc-c", "TPC-C (figure 8 b)", "+90 %", "+134 %"),
];
/// The layouts of `lodestone sim nodes`.
const LAYOUTS: [&str; 9] = [
    "case 1, whole pages",
    "case 2, whole pages",
    "case 1",
    "case 2",
    "case 3 without agents",
    "case 3 with one agent a node",
    "case 3 with an agent for each client",
    "case 3",
    "case 3, routed",
];
const NODES: [u64; 2] = [2, 4];
/// A cache for all rows of `--records 40000`.
const LARGE_CACHE: &str = "256MiB";
/// Rows beside the 40,000 of the other figures: half and twice as many, as the paper's 50 to 200 GB.
const RECORDS: [u64; 2] = [20_000, 80_000];
const MEDIA: [&str; 4] = ["data SATA, log SATA", "data NVMe, log NVMe", "data NVMe, log PM", "data PM, log PM"];

/// The lines of all runs.
#[derive(Debug)]
pub struct Lines {
    cases: Vec<Value>,
    placements: Vec<Value>,
    media: Vec<Value>,
    /// Updates with a cache that holds all rows.
    large_cache: Vec<Value>,
    /// With other numbers of rows.
    sizes: Vec<(u64, Vec<Value>)>,
    scans: Vec<Value>,
}

/// Runs the model.
pub fn collect(runner: &Runner<'_>) -> Result<Lines> {
    let mut cases = Vec::new();
    for nodes in NODES {
        let (name, nodes) = (format!("nodes-{nodes}"), nodes.to_string());
        let loads = "select,update,insert,mixed,scan,modify,tpcc";
        let words = ["sim", "nodes", "--nodes", &nodes, "--loads", loads, "--path", &runner.place, "--json"];
        cases.extend(runner.run(&runner.lodestone, &name, &words)?);
    }
    let words = ["sim", "nodes", "--placements", "--loads", "select,update,insert", "--path", &runner.place, "--json"];
    let placements = runner.run(&runner.lodestone, "nodes-placements", &words)?;
    let on_media = |name: &str, loads: &str, more: &[&str]| {
        let words = ["sim", "nodes", "--media", "--milliseconds", "20", "--path", &runner.place, "--json"];
        runner.run(&runner.lodestone, name, &[&words[..], &["--loads", loads], more].concat())
    };
    let media = on_media("nodes-media", "select,update,insert,tpcc", &[])?;
    let large_cache = on_media("nodes-media-large-cache", "update", &["--cache", LARGE_CACHE])?;
    let mut sizes = Vec::new();
    for records in RECORDS {
        let (name, text) = (format!("nodes-media-{records}"), records.to_string());
        sizes.push((records, on_media(&name, "select,update,insert", &["--records", &text])?));
    }
    let mut scans = Vec::new();
    for nodes in NODES {
        let (name, nodes) = (format!("nodes-scans-{nodes}"), nodes.to_string());
        let words = ["sim", "nodes", "--scans", "--nodes", &nodes, "--path", &runner.place, "--json"];
        scans.extend(runner.run(&runner.lodestone, &name, &words)?);
    }
    Ok(Lines { cases, placements, media, large_cache, sizes, scans })
}

/// The line of a run.
fn found<'l>(lines: &'l [Value], nodes: u64, load: &str, layout: &str) -> Option<&'l Value> {
    let fits = |line: &&Value| {
        text(line, "kind") == "run"
            && line["nodes"] == nodes
            && text(line, "load") == load
            && text(&line["layout"], "name") == layout
    };
    lines.iter().find(fits)
}

/// Transactions per second of a run.
fn ops(lines: &[Value], nodes: u64, load: &str, layout: &str) -> f64 {
    found(lines, nodes, load, layout).map_or(f64::NAN, |line| number(line, "ops_per_s"))
}

/// The gain of one over another, as the paper prints it.
fn gain(of: f64, over: f64) -> String {
    let percent = 100.0 * (of / over - 1.0);
    if percent.is_finite() { format!("{percent:+.0} %") } else { "-".into() }
}

/// The sections of the page.
pub fn sections(lines: &Lines) -> Vec<Section> {
    let assumed = lines.cases.iter().find(|line| text(line, "kind") == "model");
    let assumed = assumed.map_or(String::new(), |line| {
        format!(
            "Assumed: profile {}, {} processors a node, {} clients on two nodes; ns of the processor: {}.",
            text(line, "profile"),
            line["processors"],
            line["clients"],
            line["software"]
        )
    });
    vec![
        placements(&lines.placements),
        gains(&lines.cases, &assumed),
        steps(&lines.cases),
        scans(&lines.scans),
        media(&lines.media),
        loads(&lines.media),
        caches(lines),
    ]
}

/// Table 1.
fn placements(lines: &[Value]) -> Section {
    let names = ["1: T, W | -", "2: T | W", "3: T, W | T", "4: T, W | W", "5: T, W | T, W"];
    let loads = ["select", "update", "insert"];
    let titles = ["tables and logs on two modules", "the paper", "select", "update", "insert"];
    let verdicts = ["no far access, half of the machine", "one log", "one log", "far logs", "chosen"];
    let mut table = Table::new(titles).caption(
        "Thousands of transactions in a second of virtual time, two nodes, with agents. The paper has no figures for \
         this table; it argues. Placement 1 has its processes on one node.",
    );
    for (name, verdict) in names.iter().zip(verdicts) {
        let cells = loads.map(|load| shown(ops(lines, 2, load, name) / 1e3, 0, ""));
        table = table.row([(*name).to_owned(), verdict.into()].into_iter().chain(cells));
    }
    Section {
        heading: "Paper 4, table 1: tables and logs on two modules",
        note: "Predicted by a model in virtual time (`lodestone sim nodes --placements`).".into(),
        table: Some(table),
        figures: Vec::new(),
    }
}

/// Figure 7 and figure 8 b.
fn gains(lines: &[Value], assumed: &str) -> Section {
    let titles = [
        "load",
        "paper, over case 1",
        "2 nodes",
        "4 nodes",
        "whole pages",
        "paper, over case 2",
        "2 nodes",
        "4 nodes",
        "whole pages",
    ];
    let mut table = Table::new(titles).caption(
        "The gain of case 3. The paper's cases 1 and 2 are PostgreSQL 12, its case 3 is GoldenX: the gain mixes two \
         programs. Ours is the same program in all cases; under `whole pages` cases 1 and 2 read and write whole pages, \
         as PostgreSQL does (2 nodes).",
    );
    for (load, name, over_1, over_2) in LOADS {
        let of = |nodes, over: &str| gain(ops(lines, nodes, load, "case 3"), ops(lines, nodes, load, over));
        table = table.row([
            name.to_owned(),
            over_1.into(),
            of(2, "case 1"),
            of(4, "case 1"),
            of(2, "case 1, whole pages"),
            over_2.into(),
            of(2, "case 2"),
            of(4, "case 2"),
            of(2, "case 2, whole pages"),
        ]);
    }
    let figure = |nodes: u64| {
        let names = LOADS.map(|(_, name, ..)| name);
        let figure = Figure::bars(format!("Paper 4, figures 7 and 8 b: {nodes} nodes, virtual time"), names);
        let figure = figure.y_axis("transactions per second", Unit::Count).zero_y();
        let figure = ["case 1", "case 2", "case 3"].into_iter().fold(figure, |figure, layout| {
            figure.bar_series(layout, LOADS.map(|(load, ..)| ops(lines, nodes, load, layout)))
        });
        (format!("figure-7-{nodes}-nodes"), figure)
    };
    Section {
        heading: "Paper 4, figures 7 and 8 b: cases 1, 2 and 3",
        note: format!("Predicted by a model in virtual time (`lodestone sim nodes`). {assumed}"),
        table: Some(table),
        figures: NODES.map(figure).into(),
    }
}

/// The effects of placement and agents, apart from the assumptions of the profile.
fn steps(lines: &[Value]) -> Section {
    let titles = ["layout, 2 nodes"].into_iter().map(String::from).chain(LOADS.map(|(load, ..)| load.to_owned()));
    let mut table = Table::new(titles).caption(
        "Thousands of transactions in a second of virtual time. From case 2 to `case 3 without agents` only tables and \
         logs change their places. From there to `case 3` agents are added. `routed` has neither far reads nor agents.",
    );
    for layout in LAYOUTS {
        let cells = LOADS.map(|(load, ..)| shown(ops(lines, 2, load, layout) / 1e3, 0, ""));
        table = table.row([layout.to_owned()].into_iter().chain(cells));
    }
    Section {
        heading: "Paper 4: placement and agents, apart",
        note:
            "The profile assumes that a far read costs ten times a near one, and a far write twice (paper 4, section \
               2.1.1). With other factors the gains are others: --profile chooses them."
                .into(),
        table: Some(table),
        figures: Vec::new(),
    }
}

/// Figures 6 and 8 a.
fn media(lines: &[Value]) -> Section {
    let titles = ["load", "paper, over NVMe", "the model", "paper, over SATA", "the model", "log in PM, data on NVMe"];
    let mut table = Table::new(titles).caption(
        "The gain of data and logs in persistent memory over both on a disk. Last column: over both on NVMe, of the logs \
         alone; the paper finds none where the data is larger than the cache, and 18 % where it is not.",
    );
    let [sata, nvme, mixed, pm] = MEDIA;
    for (load, over_nvme, over_sata) in [
        ("select", "+53 %", "+1100 %"),
        ("update", "+45 %", "+588 %"),
        ("insert", "+25 %", "+310 %"),
        ("tpc-c", "+24 % (data alone)", "in the figure alone"),
    ] {
        let of = |layout: &str, over: &str| gain(ops(lines, 2, load, layout), ops(lines, 2, load, over));
        table = table.row([
            load.to_owned(),
            over_nvme.into(),
            of(pm, nvme),
            over_sata.into(),
            of(pm, sata),
            of(mixed, nvme),
        ]);
    }
    Section {
        heading: "Paper 4, figures 6 and 8 a: persistent memory beside disks",
        note:
            "Predicted by a model in virtual time (`lodestone sim nodes --media`), on one node with one module. Disks \
               have the latency and the requests per second of data sheets, and serve whole pages. Commits \
               that come together share a write of the log. GoldenX needs more of a processor than this engine, so its \
               gains are smaller where the processor is the limit."
                .into(),
        table: Some(table),
        figures: Vec::new(),
    }
}

/// Not in the paper: a scan of one table over all nodes.
fn scans(lines: &[Value]) -> Section {
    let titles = ["who reads", "2 nodes, scans per second", "far lines", "4 nodes, scans per second", "far lines"];
    let mut table = Table::new(titles).caption(
        "One client reads a table of 40,000 rows of 1,000 bytes, of which each node has as many, in the order of their \
         keys. Far lines: share of the lines that were read from another node.",
    );
    for layout in ["all on the node of the scan", "the scan alone", "with agents", "with a reader on each node"] {
        let far = |nodes: u64| {
            let lines = found(lines, nodes, "whole", layout).map(|line| &line["lines_read"]);
            let [near, far] = [0, 1].map(|of| lines.and_then(|lines| lines[of].as_f64()).unwrap_or(f64::NAN));
            shown(100.0 * far / (near + far), 0, " %")
        };
        let of = |nodes: u64| shown(ops(lines, nodes, "whole", layout), 1, "");
        table = table.row([layout.to_owned(), of(2), far(2), of(4), far(4)]);
    }
    Section {
        heading: "Paper 4: a scan of one table over several nodes",
        note:
            "Predicted by a model in virtual time (`lodestone sim nodes --scans`). The paper reads other nodes by agents \
               (section 2.1) and has no figure of a scan. Readers need no change of placement: the gain over the first \
               two lines is theirs. How large it is depends on the factor 10 for far reads, which the profile assumes."
                .into(),
        table: Some(table),
        figures: Vec::new(),
    }
}

/// Figures 6 b and c.
fn loads(lines: &[Value]) -> Section {
    let titles = [
        "load",
        "medium",
        "processors busy",
        "idle for the disk",
        "paper: CPU wait",
        "disk busy",
        "paper: disk busy",
        "data, MB/s",
        "NVMe over SATA",
        "paper",
    ];
    let mut table = Table::new(titles).caption(
        "Data and logs on one medium. The text of the paper has the figures of its columns for these loads alone; the \
         others are in its figure only. MB/s: pages of a disk that were read or written; blocks of persistent memory, \
         with its logs.",
    );
    let [sata, nvme, _, pm] = MEDIA;
    for (load, ratio, waits) in [
        ("select", "8 times", ["30 %", "10 %", "0 %"]),
        ("update", "3.8 times", ["above 0", "above 0", "-"]),
        ("insert", "3.2 times", ["above 0", "above 0", "-"]),
    ] {
        let of = |layout: &str, name: &str| {
            found(lines, 2, load, layout).and_then(|line| line[name].as_f64()).unwrap_or(f64::NAN)
        };
        let percent = |layout: &str, name: &str| shown(100.0 * of(layout, name), 0, " %");
        for (layout, wait) in [sata, nvme, pm].into_iter().zip(waits) {
            let is_nvme = layout == nvme;
            let over = of(nvme, "data_bytes_per_s") / of(sata, "data_bytes_per_s");
            table = table.row([
                load.to_owned(),
                layout.to_owned(),
                percent(layout, "processor_share"),
                percent(layout, "wait_share"),
                wait.into(),
                if layout == pm { "-".into() } else { percent(layout, "data_busy_share") },
                if layout == pm { "-".into() } else { "100 %".into() },
                shown(of(layout, "data_bytes_per_s") / 1e6, 0, ""),
                if is_nvme { shown(over, 1, " times") } else { String::new() },
                if is_nvme { ratio.into() } else { String::new() },
            ]);
        }
    }
    Section {
        heading: "Paper 4, figures 6 b and c: load of processors and devices",
        note:
            "Predicted by a model in virtual time, of the runs of figure 6 a. A processor is busy while a transaction \
               computes or waits for memory: a load cannot be told from computing. It is idle only while clients wait \
               for a disk. A disk is busy while it has a request, as `iostat` counts. All media are on the node of the \
               processors, so nothing here is placement. That disks are always busy and processors wait for them is a \
               result of the engine's reads; how long they wait is assumed: requests per second of the disks from data \
               sheets, the processor's time of a transaction, and 50 clients on 20 processors. The paper's \
               transactions need more of a processor, so theirs wait less."
                .into(),
        table: Some(table),
        figures: Vec::new(),
    }
}

/// Figure 6 d, and the sizes of the data.
fn caches(lines: &Lines) -> Section {
    let titles = ["update", "the paper", "the model"];
    let mut table = Table::new(titles).caption(
        "The small cache holds a tenth of the rows, the large one all of them, as 8 and 200 GB of DRAM beside 130 GB. \
         Last lines: of half and twice as many rows over those of the other figures, with the small cache.",
    );
    let [_, nvme, mixed, pm] = MEDIA;
    let (small, large) = (&lines.media, &lines.large_cache);
    let of = |lines: &[Value], layout: &str| ops(lines, 2, "update", layout);
    for (name, paper, ours) in [
        ("large cache: log in PM over log on NVMe, data on NVMe", "+18 %", gain(of(large, mixed), of(large, nvme))),
        ("small cache: the same", "little", gain(of(small, mixed), of(small, nvme))),
        ("data and log on NVMe: large cache over small", "+23 %", gain(of(large, nvme), of(small, nvme))),
        ("data and log in PM: large cache over small", "little", gain(of(large, pm), of(small, pm))),
    ] {
        table = table.row([name.to_owned(), paper.into(), ours]);
    }
    for (records, sized) in &lines.sizes {
        for load in ["select", "update", "insert"] {
            let ours = gain(ops(sized, 2, load, pm), ops(small, 2, load, pm));
            let name = format!("data and log in PM, {load}: {records} rows");
            table = table.row([name, "below 1.5 % over 50 to 200 GB".into(), ours]);
        }
    }
    Section {
        heading: "Paper 4, figure 6 d: a cache larger than the data",
        note:
            "Predicted by a model in virtual time (`lodestone sim nodes --media --cache`). With all rows in DRAM the \
               data's disk serves checkpoints alone, and a commit waits for its log. GoldenX reads data pages in \
               persistent memory where they are, so DRAM changes little for it. This engine keeps used rows in DRAM: \
               what it gains there is its read of memory."
                .into(),
        table: Some(table),
        figures: Vec::new(),
    }
}
