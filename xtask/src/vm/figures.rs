//! `cargo xtask vm figures`: paper 4's loads with and without placement, over the real nodes of guests.
//!
//! For each machine (two nodes, then four): fresh NVDIMMs, one boot. The guest runs `lodestone bench nodes`: select,
//! update, insert and TPC-C in the paper's cases. It leaves a line for each case in the shared folder. The host prints
//! them as a table and judges the counts: placement and agents must take far lines away.
//!
//! Nodes, devices and pinned threads are those of the guest's kernel, and so are the counts of near and far lines. The
//! times are those of an emulator, in which all memory is equally far. They are not compared with anything.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use serde_json::Value;

use super::checks::Checks;
use super::guest::{Machine, Platform, create_modules};
use super::protocol::Outcome;
use super::session::{Session, verify_set_up};
use super::share::{Share, build_lodestone};

/// Loads, as `lodestone bench nodes` has them.
const LOADS: [&str; 4] = ["select", "update", "insert", "tpcc"];
/// The cases that are compared: without placement, with it, and with each transaction on the node of its table.
const CASES: [&str; 3] = ["case 2", "case 3", "case 3, routed"];

/// Options of `cargo xtask vm figures`.
#[derive(Args)]
pub(crate) struct Options {
    /// Print one JSON object per check and line, and nothing else.
    #[arg(long)]
    json: bool,
    /// Machines to boot, by their number of nodes.
    #[arg(long, value_delimiter = ',', default_value = "2,4", value_parser = clap::value_parser!(u8).range(2..=4))]
    nodes: Vec<u8>,
    /// Threads of each node.
    #[arg(long, default_value_t = 2)]
    threads: u32,
    /// Transactions of each thread.
    #[arg(long, default_value_t = 200)]
    operations: u32,
    /// Longest time for the cases of one load, in seconds. Slow machines need more.
    #[arg(long, default_value_t = 600)]
    load_seconds_max: u64,
    /// Longest time for one boot, in seconds.
    #[arg(long, default_value_t = 2_700)]
    boot_seconds_max: u64,
    /// Use this program, `lodestone-lab`, instead of building it.
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
}

pub(super) fn run(root: &Path, options: &Options) -> Result<bool> {
    let cache = root.join("vm/.cache");
    verify_set_up(&cache)?;
    let binary = options.binary.clone().map_or_else(|| build_lodestone(root), Ok)?;
    let share = Share::fill(root, &cache, &binary)?;
    let boot_max = Duration::from_secs(options.boot_seconds_max);
    let mut session = Session { cache: &cache, checks: Checks::new(options.json), boot_max };
    for &nodes in &options.nodes {
        session.checks.note(&format!("-- {nodes} NUMA nodes, an NVDIMM on each"));
        let machine = Machine::with_nodes(usize::from(nodes));
        create_modules(&cache, machine)?;
        let variables = [
            ("MODE", "figures".to_owned()),
            ("EXPECTED", Platform::Dax.domain().to_owned()),
            ("NODES", nodes.to_string()),
            ("THREADS", options.threads.to_string()),
            ("OPERATIONS", options.operations.to_string()),
            ("FIGURES_SECONDS_MAX", options.load_seconds_max.to_string()),
        ];
        share.write_job(&variables).context("the guest would not know what to do")?;
        session.run_job(Platform::Dax, machine, "figures-boot")?;
        for load in LOADS {
            let path = cache.join(format!("share/logs/figures-{nodes}-{load}.json"));
            let text = std::fs::read_to_string(path).unwrap_or_default();
            judge(&mut session, load, &text);
        }
    }
    session.checks.note("ops/s are those of an emulator, in which all memory is equally far");
    Ok(session.checks.finish())
}

/// Shows the lines of one load, and judges their counts.
fn judge(session: &mut Session<'_>, load: &str, text: &str) {
    let started = Instant::now();
    let lines: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    for line in &lines {
        session.checks.note(&row(load, line));
    }
    let (outcome, detail) = verdict(load, &lines);
    session.record(Platform::Dax, &format!("far-lines-{load}"), outcome, started, &detail);
}

/// Lines of the pool for each transaction, near and far.
fn per_transaction(line: &Value, name: &str) -> Option<[f64; 2]> {
    let transactions = line["transactions"].as_f64().filter(|count| *count > 0.0)?;
    let of = |place: usize| Some(line[name][place].as_f64()? / transactions);
    Some([of(0)?, of(1)?])
}

fn row(load: &str, line: &Value) -> String {
    let of = |name| {
        per_transaction(line, name).map_or("-".to_owned(), |[near, far]| format!("{far:.1} of {:.1}", near + far))
    };
    let case = line["layout"]["name"].as_str().unwrap_or("-");
    format!(
        "     {load:6} {case:15} {:>2} threads  far lines read {:>16}, written {:>16}; {} checkpoints; {} ops/s emulated",
        line["threads"],
        of("lines_read"),
        of("lines_written"),
        line["checkpoints"],
        line["ops_per_s"]
    )
}

/// Whether placement takes far lines away. Transactions of TPC-C use tables of all nodes, so there only agents help.
fn verdict(load: &str, lines: &[Value]) -> (Outcome, String) {
    let far = |case: &str| {
        let line = lines.iter().find(|line| line["layout"]["name"] == case)?;
        let [read, written] = ["lines_read", "lines_written"].map(|name| per_transaction(line, name));
        Some((read?[1], written?[1]))
    };
    let [Some(without), Some(with), Some(routed)] = CASES.map(far) else {
        return (Outcome::Fail, format!("{} lines of {load} are no three cases", lines.len()));
    };
    let is_less = match load {
        "select" => with.0 < 0.5 * without.0 && routed.0 < 0.1 * without.0,
        "tpcc" => with.0 < without.0,
        _ => with.0 < 0.5 * without.0 && routed.0 < 0.1 * without.0 && with.1 < without.1,
    };
    let detail = format!(
        "far lines of a transaction, read and written: {:.1} and {:.1} without placement, {:.1} and {:.1} with it, \
         {:.1} and {:.1} routed",
        without.0, without.1, with.0, with.1, routed.0, routed.1
    );
    (if is_less { Outcome::Pass } else { Outcome::Fail }, detail)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lines_are_judged_by_their_counts() {
        let line = |case: &str, read: u64, written: u64| {
            json!({
                "layout": { "name": case }, "transactions": 100, "lines_read": [5000, read],
                "lines_written": [2000, written], "threads": 4, "checkpoints": 2, "ops_per_s": 77.0
            })
        };
        let of = |with: u64, routed: u64, written: u64| {
            vec![line("case 2", 4000, 1000), line("case 3", with, written), line("case 3, routed", routed, 0)]
        };
        let is_good = |load: &str, lines: &[Value]| verdict(load, lines).0 == Outcome::Pass;
        assert!(is_good("update", &of(100, 0, 500)));
        assert!(!is_good("update", &of(3000, 0, 500)), "agents read too little");
        assert!(!is_good("update", &of(100, 1000, 500)), "a routed transaction reads far lines");
        assert!(!is_good("insert", &of(100, 0, 1000)), "logs are far");
        assert!(is_good("select", &of(100, 0, 1000)) && is_good("tpcc", &of(3000, 3000, 1000)));
        assert!(!is_good("select", &of(100, 0, 0)[..2]), "a case is missing");
        let shown = row("update", &of(100, 0, 500)[1]);
        assert!(shown.contains("1.0 of 51.0") && shown.contains("ops/s emulated"), "{shown}");
    }
}
