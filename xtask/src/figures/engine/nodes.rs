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
const LAYOUTS: [&str; 8] = [
    "case 1, whole pages",
    "case 2, whole pages",
    "case 1",
    "case 2",
    "case 3 without agents",
    "case 3 with one agent a node",
    "case 3",
    "case 3, routed",
];
const NODES: [u64; 2] = [2, 4];

/// The lines of all runs.
#[derive(Debug)]
pub struct Lines {
    cases: Vec<Value>,
    placements: Vec<Value>,
    media: Vec<Value>,
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
    let loads = "select,update,insert,tpcc";
    let words =
        ["sim", "nodes", "--media", "--loads", loads, "--milliseconds", "20", "--path", &runner.place, "--json"];
    Ok(Lines { cases, placements, media: runner.run(&runner.lodestone, "nodes-media", &words)? })
}

/// Transactions per second of a run.
fn ops(lines: &[Value], nodes: u64, load: &str, layout: &str) -> f64 {
    let fits = |line: &&Value| {
        text(line, "kind") == "run"
            && line["nodes"] == nodes
            && text(line, "load") == load
            && text(&line["layout"], "name") == layout
    };
    lines.iter().find(fits).map_or(f64::NAN, |line| number(line, "ops_per_s"))
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
    vec![placements(&lines.placements), gains(&lines.cases, &assumed), steps(&lines.cases), media(&lines.media)]
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
    let [sata, nvme, mixed, pm] =
        ["data SATA, log SATA", "data NVMe, log NVMe", "data NVMe, log PM", "data PM, log PM"];
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
               have the latency and the requests per second of data sheets, and serve whole pages. Each commit waits \
               for a write of its own: without group commit a log on a disk costs more here than in the paper. GoldenX \
               needs more of a processor than this engine, so its gains are smaller where the processor is the limit."
                .into(),
        table: Some(table),
        figures: Vec::new(),
    }
}
